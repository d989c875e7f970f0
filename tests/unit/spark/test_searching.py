"""A search whose connection Kafka's Java client can't be given is refused at once, and says why."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from support.fake_consumer import FakeConsumer
from support.fake_kafka import START, FakeClock, FakeKafka
from tidegate.kafka.connection import Authentication, AuthenticationType, Connection
from tidegate.kafka.errors import KafkaFailure, Refused, Unavailable
from tidegate.kafka.model import Range, TopicPartition
from tidegate.reset.model.plan import Plan
from tidegate.reset.model.request import RunRequest
from tidegate.reset.model.targets import Findings, ToRecord
from tidegate.reset.planning.refusals import PlanRefused
from tidegate.spark import find, fleet
from tidegate.spark.expression import Condition
from tidegate.spark.find import Found, _Scan, _Teller


def test_a_password_that_only_our_own_client_takes_ends_the_search(tmp_path: Path) -> None:
    """Librdkafka has looked around with it, before Spark's connector is to read."""
    password = tmp_path / "password"
    password.write_text('with"quote')
    auth = Authentication(AuthenticationType.SCRAM_SHA_512, username="tidegate", password_file=password)
    connection = Connection("kafka:9093", authentication=auth)
    spark: Any = SimpleNamespace(sparkContext=SimpleNamespace(defaultParallelism=2))
    teller = _Teller(lambda _searched: None, FakeClock(), 10)
    condition = Condition("true", frozenset())
    scan = _Scan(spark, connection, condition, None, ToRecord("true"), FakeClock(), teller)

    with pytest.raises(Refused, match="holds a quote, a backslash or a line break"):
        scan.search({TopicPartition("orders", 0): Range(0, 10)}, beyond=False, pace=None)


def of_group(group_id: str) -> RunRequest:
    return RunRequest(f"uid/{group_id}", "r", group_id, Connection("k:9092"), (), ToRecord("true"))


def test_a_group_that_a_rebalance_hides_is_not_planned_by_a_search_that_left_it_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of what only this group reads, nothing was looked at: its plan would say that the partitions were not there."""
    clock = FakeClock()
    kafka = FakeKafka(clock)
    for topic in ("orders", "refunds"):
        kafka.create_topic(topic, 1)
        kafka.fill(topic, 5)
    kafka.commit_directly("steady", {TopicPartition("orders", 0): 3})
    FakeConsumer(kafka, "moving", ["refunds"]).start()
    clock.sleep(10)
    kafka.rebalance("moving")
    monkeypatch.setattr(find, "KafkaClient", lambda _: kafka)
    requests = [of_group("moving"), of_group("steady")]

    ground = find._look_around(requests, ToRecord("true"))

    assert set(ground.inside) == {TopicPartition("orders", 0)}
    assert list(ground.failures) == ["uid/moving"]
    assert isinstance(ground.failures["uid/moving"], Unavailable)


def test_groups_that_were_not_searched_for_are_told_by_why_and_the_others_planned(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hidden = Unavailable("group b is PreparingRebalance")
    found = Found(Findings({}), {}, {"uid/b": hidden})
    monkeypatch.setattr(fleet, "find_for_groups", lambda *_, **__: found)
    monkeypatch.setattr(fleet, "plan_groups", lambda _, requests, *__, **___: requests)
    plans = {name: Plan("r", name, START, (), None, ()) for name in "ac"}
    monkeypatch.setattr(fleet, "collect_plans", lambda _, requests: [plans[r.group_id] for r in requests])
    spark: Any = SimpleNamespace()

    planned: list[Plan | PlanRefused | KafkaFailure] = list(
        fleet._plan(spark, FakeClock(), [of_group(name) for name in "abc"], START, lambda _: None)
    )

    assert planned == [plans["a"], hidden, plans["c"]]
