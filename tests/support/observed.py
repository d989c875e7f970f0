"""A world whose KafkaConnection only observes, until it no longer does."""

from __future__ import annotations

from dataclasses import replace

from support.fake_kafka import FakeKafka
from tidegate.connection.live import LiveConnections
from tidegate.connection.read_only import ReadOnlyKafka


def observe(live: LiveConnections, kafka: FakeKafka, *, only: bool = True) -> None:
    """Have the connection ``kafka`` of namespace ``ns`` only observe, or act again."""
    before = live.get("ns", "kafka")
    assert before is not None
    live.put(replace(before, kafka=ReadOnlyKafka(kafka, "kafka") if only else kafka, observes=only))
