"""A world whose KafkaConnection only observes, or is frozen, until it no longer is."""

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


FROZEN_BY = "frozen by alice since 2026-11-27T03:12:00Z: INC-4711"


def freeze(live: LiveConnections, *, thaw: bool = False) -> None:
    """Freeze that connection, or let it act again."""
    before = live.get("ns", "kafka")
    assert before is not None
    live.put(replace(before, frozen="" if thaw else FROZEN_BY))
