"""What of a group's place on another cluster can be looked for here."""

from collections.abc import Collection, Mapping
from dataclasses import replace
from datetime import timedelta

import pytest

from support.fake_kafka import FakeClock, FakeKafka
from tidegate.find.survey import left_without, survey
from tidegate.kafka.connection import Connection
from tidegate.kafka.errors import NotAuthorized
from tidegate.kafka.model import TopicPartition
from tidegate.reset.model.request import RunRequest, Selection
from tidegate.reset.model.targets import FromCluster
from tidegate.reset.planning.refusals import PlanRefused


def test_topics_that_the_group_does_not_read_over_there_are_named() -> None:
    clock = FakeClock()
    here, there = FakeKafka(clock), FakeKafka(clock)
    for cluster, names in ((here, ["old.orders", "refunds"]), (there, ["orders", "refunds"])):
        for name in names:
            cluster.create_topic(name, 1)
    there.commit_directly("payments", {TopicPartition("orders", 0): 0})
    target = FromCluster(Connection("there:9092"), "payments", ("key",), timedelta(hours=1))
    selections = (Selection("old.orders"), Selection("refunds"))
    request = RunRequest("u", "r", "payments", Connection("here:9092"), selections, target)

    with pytest.raises(PlanRefused) as refused:
        survey(request, target, here, there)  # type: ignore[arg-type]

    assert refused.value.reason == "NoTopicOverThere"
    assert "of old.orders, refunds, the group of to.cluster reads none in the other cluster" in refused.value.message
    assert "to.cluster.alias" in refused.value.message


class Cluster(FakeKafka):
    """Implements ``tidegate.find.survey.Side``, without compaction."""

    def compacted(self, topics: Collection[str]) -> Mapping[str, bool]:
        return dict.fromkeys(topics, False)


def clusters(*topics: str) -> tuple[Cluster, Cluster]:
    clock = FakeClock()
    here, there = Cluster(clock), Cluster(clock)
    for cluster in (here, there):
        for name in topics:
            cluster.create_topic(name, 2)
            cluster.fill(name, 5)
    return here, there


def asked(*selections: Selection) -> tuple[RunRequest, FromCluster]:
    target = FromCluster(Connection("there:9092"), "payments", ("key",), timedelta(hours=1))
    return RunRequest("u", "r", "payments", Connection("here:9092"), selections, target), target


def test_partitions_that_the_group_has_no_place_for_are_told_of() -> None:
    here, there = clusters("orders", "refunds")
    there.commit_directly("payments", {TopicPartition("orders", 0): 3})
    request, target = asked(Selection("orders"), Selection("refunds", frozenset({1})))

    surveyed = survey(request, target, here, there)  # type: ignore[arg-type]

    assert [(pair.here, [d.partition for d in pair.destinations]) for pair in surveyed.pairs] == [("orders", [0])]
    assert surveyed.without == (TopicPartition("orders", 1), TopicPartition("refunds", 1))
    assert left_without(target, surveyed.without) == [
        "Left as they are, because group payments has no committed offset in the other cluster: 2 partitions "
        "(orders-1, refunds-1)"
    ]
    assert left_without(target, ()) == []


def test_where_the_group_has_a_place_for_none_of_them_these_are_named() -> None:
    here, there = clusters("orders")
    there.commit_directly("payments", {TopicPartition("orders", 0): 3})
    here.commit_directly("payments", {TopicPartition("orders", 0): 3})
    request, target = asked(Selection("orders", frozenset({1})))

    with pytest.raises(PlanRefused) as refused:
        survey(request, target, here, there)  # type: ignore[arg-type]

    assert (refused.value.reason, refused.value.message) == (
        "NothingMatches",
        "Left as they are, because group payments has no committed offset in the other cluster: 1 partition (orders-1)",
    )


def test_checkpoints_that_may_not_be_read_are_no_reason_not_to_find_a_place() -> None:
    class Closed(Cluster):
        def contents(self, topic: str) -> Mapping[bytes, bytes]:
            raise NotAuthorized(f"read topic {topic}: the principal lacks Read")

    clock = FakeClock()
    here, there = Closed(clock), Cluster(clock)
    here.create_topic("old.checkpoints.internal", 1)
    for cluster, name in ((here, "old.orders"), (there, "orders")):
        cluster.create_topic(name, 1)
        cluster.fill(name, 5)
    there.commit_directly("payments", {TopicPartition("orders", 0): 3})
    request, target = asked(Selection("old.orders"))

    surveyed = survey(request, replace(target, alias="old"), here, there)  # type: ignore[arg-type]

    assert [d.checkpoint for pair in surveyed.pairs for d in pair.destinations] == [None]
