"""What happens to a cluster between the steps of a planning job, which may be minutes apart where executors are few."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped,unused-ignore]
import pytest

from support.fake_kafka import START, FakeClock, FakeKafka
from tidegate.kafka.connection import Connection
from tidegate.kafka.model import TopicPartition
from tidegate.reset.model.request import RunRequest, Selection
from tidegate.reset.model.targets import ToLatest
from tidegate.spark import plan_steps
from tidegate.spark.arrow import as_batches, rows_of
from tidegate.spark.plan_steps import JOINED, MEASURED, OBSERVED, PlanJob

ORDERS = TopicPartition("orders", 0)
TYPES = dict(column.split() for columns in (OBSERVED, MEASURED) for column in columns.split(", "))
KEY = ("cluster", "topic", "partition", "at_us")


def rows(batches: Iterable[Any]) -> list[dict[str, Any]]:
    return [row for batch in batches for row in rows_of(batch)]


def batches(names: Iterable[str], given: Iterable[dict[str, Any]]) -> list[Any]:
    names = list(names)
    columns = ", ".join(f"{name} {TYPES[name]}" for name in names)
    return list(as_batches(columns, [tuple(row.get(name) for name in names) for row in given]))


def test_a_topic_that_is_made_again_meanwhile_is_not_what_was_planned(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its id is that of the topic whose log was measured, so that no target of it is applied to the one of its name."""
    kafka = FakeKafka(FakeClock())
    topic_id = kafka.create_topic("orders", 1)
    kafka.fill("orders", 100)
    kafka.commit_directly("payments", {ORDERS: 40})
    monkeypatch.setattr(kafka, "close", lambda: None, raising=False)
    monkeypatch.setattr(plan_steps, "KafkaClient", lambda _: kafka)
    request = RunRequest("u", "r", "payments", Connection("k:9092"), (Selection("orders"),), ToLatest())
    job = PlanJob.of([request], START, spans=False, findings={})

    observed = rows(job.observe([pa.RecordBatch.from_arrays([pa.array([0])], names=["id"])]))
    measured = rows(job.measure(batches(KEY, [row for row in observed if row["topic"] is not None])))
    kafka.delete_topic("orders")
    kafka.create_topic("orders", 1)
    found = {tuple(row[name] for name in KEY): row for row in measured}
    joined = [row | found.get(tuple(row[name] for name in KEY), {}) for row in observed]
    [planned] = rows(job.plan(batches(JOINED, joined)))

    assert (planned["target"], planned["topic_id"]) == (100, topic_id)
