"""What is told of a group's place on another cluster, besides where it is."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from support.fake_kafka import FakeClock
from tidegate.find.survey import Surveyed
from tidegate.find.translation import Basis, Destination, Place, TopicPair, Window
from tidegate.kafka.connection import Connection
from tidegate.kafka.model import LogBounds, TopicPartition
from tidegate.reset.model.request import RunRequest, Selection
from tidegate.reset.model.targets import FromCluster
from tidegate.reset.planning.targets import EPOCH
from tidegate.spark import translation
from tidegate.spark.comparison import Compared

TARGET = FromCluster(Connection("there:9092"), "payments", ("key",), timedelta(hours=1))
REQUEST = RunRequest("u", "r", "payments", Connection("here:9092"), (Selection("orders"),), TARGET)


def test_partitions_without_a_place_over_there_are_in_the_notes(monkeypatch: pytest.MonkeyPatch) -> None:
    window = Window(0, 5, LogBounds(0, 5), EPOCH, None)
    pair = TopicPair("orders", "id", "orders", False, False, False, (), (Destination(0, window),))
    surveyed = Surveyed((pair,), (TopicPartition("orders", 1),))
    compared = Compared((Place(TopicPartition("orders", 0), 3, Basis.RECORDS),), frozenset())

    def called(_: Any, call: Callable[[], Any]) -> Any:
        return call()

    monkeypatch.setattr(translation, "in_executor", called)
    monkeypatch.setattr(translation, "with_settings", lambda *_: nullcontext())
    monkeypatch.setattr(translation, "for_joins", lambda _: {})
    monkeypatch.setattr(translation, "_survey", lambda *_: surveyed)
    monkeypatch.setattr(translation, "compare", lambda *_: compared)
    spark: Any = SimpleNamespace()

    found = translation.find_place(spark, REQUEST, TARGET, FakeClock())

    assert found.findings.offsets == {TopicPartition("orders", 0): 3}
    assert found.findings.notes[-1] == (
        "Left as they are, because group payments has no committed offset in the other cluster: 1 partition (orders-1)"
    )
