"""What brokers answer a mirror that is no answer to what it has asked."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, Final, cast
from uuid import UUID

import pytest
from kafka.protocol.consumer import ListOffsetsRequest

from support.mirror.written import Written, batch
from tidegate.kafka.model import TopicPartition
from tidegate.kafka_client import mirror_clients
from tidegate.kafka_client.mirror_clients import MirrorSource, MirrorTarget
from tidegate.mirror.model import Interrupted, Tail
from tidegate.mirror.source import SourceRead

P: Final = TopicPartition("t", 0)
TOPIC: Final = UUID(int=7)

OUT_OF_RANGE: Final = 1
UNKNOWN_TOPIC_ID: Final = 100

THROTTLED: Final = SimpleNamespace(error_code=0, responses=[])
"""While a quota is used up (``FullFetchContext.getThrottledResponse``)."""


def fetched(*, error_code: int = 0, start: int = -1, end: int = -1, records: bytes = b"") -> Any:
    row = SimpleNamespace(
        error_code=error_code,
        log_start_offset=start,
        last_stable_offset=end,
        aborted_transactions=None,
        records=records,
    )
    return SimpleNamespace(error_code=0, responses=[SimpleNamespace(partitions=[row])])


def listed(offset: int) -> Any:
    return SimpleNamespace(topics=[SimpleNamespace(partitions=[SimpleNamespace(error_code=0, offset=offset)])])


class Wire:
    """Answers Fetch and ListOffsets, each in turn."""

    BROKER_TIMEOUT_S = 1.0
    timeout_s = 1.0

    def __init__(self, fetches: list[Any], lists: list[int] | None = None) -> None:
        self._fetches, self._lists = iter(fetches), iter(lists or [])

    def ask(self, _node: int, request: Any, **_: Any) -> Any:
        if isinstance(request, ListOffsetsRequest):
            return listed(next(self._lists))
        return next(self._fetches)


def source(fetches: list[Any], lists: list[int] | None = None) -> MirrorSource:
    made = MirrorSource(cast("Any", Wire(fetches, lists)), P, topic_id=TOPIC)
    made._leader = 1
    return made


def test_a_source_that_holds_back_by_a_quota_is_asked_again_soon() -> None:
    found = source([THROTTLED]).read(0)

    assert isinstance(found, Interrupted)
    assert found.held_back
    assert "quota" in found.reason


def test_a_source_without_the_topic_does_not_say_that_it_holds_back() -> None:
    found = source([fetched(error_code=UNKNOWN_TOPIC_ID)]).read(0)

    assert isinstance(found, Interrupted)
    assert not found.held_back


def test_a_source_that_has_deleted_what_is_asked_for_tells_where_it_begins() -> None:
    found = source([fetched(error_code=OUT_OF_RANGE), fetched(start=40, end=90)], lists=[40]).read(12)

    assert found == SourceRead(12, 40, 90)


def test_bounds_are_never_those_of_another_topic_of_the_same_name() -> None:
    """It is deleted and created again between two answers; offsets are listed by name."""
    found = source([fetched(error_code=OUT_OF_RANGE), fetched(error_code=UNKNOWN_TOPIC_ID)], lists=[0]).read(12)

    assert isinstance(found, Interrupted)


def test_a_start_that_moves_between_two_answers_is_asked_for_again() -> None:
    found = source([fetched(error_code=OUT_OF_RANGE), fetched(error_code=OUT_OF_RANGE)], lists=[40]).read(12)

    assert isinstance(found, Interrupted)
    assert "start" in found.reason


class Log(Wire):
    """A target's partition with a batch of one record at each offset, of which a quota lets every other read pass."""

    def __init__(self, end: int) -> None:
        super().__init__([])
        self.end = end
        self.read: list[int] = []
        self._lets_pass = False

    def ask_on(self, _link: Any, asked: list[Any], **_: Any) -> list[Any]:
        if len(asked) > 1:
            producers = SimpleNamespace(
                topics=[SimpleNamespace(partitions=[SimpleNamespace(error_code=0, active_producers=[], offset=-1)])]
            )
            ends = [listed(self.end), producers, listed(self.end), listed(0), listed(self.end)]
            return [SimpleNamespace(cluster_id="b"), *ends]
        self._lets_pass = not self._lets_pass
        if not self._lets_pass:
            return [THROTTLED]
        offset = asked[0].topics[0].partitions[0].fetch_offset
        self.read.append(offset)
        return [fetched(records=batch(offset, {offset: Written(1, None, b"v")}, 1))]


def test_a_target_that_holds_back_by_a_quota_is_read_to_its_end_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mirror_clients, "_HELD_BACK_PAUSE_S", 0.0)
    log = Log(end=6)
    target = MirrorTarget(cast("Any", log), P)
    target._link = cast("Any", object())

    found = target.tail(5)

    assert isinstance(found, Tail)
    assert (found.window, found.end) == (1, 6)
    assert log.read == [1, 2, 3, 4, 5]


def test_a_target_that_goes_on_holding_back_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mirror_clients, "_HELD_BACK_PAUSE_S", 0.0)
    monkeypatch.setattr(mirror_clients, "_HELD_BACK_S", -1.0)
    target = MirrorTarget(cast("Any", Log(end=6)), P)
    target._link = cast("Any", object())

    found = target.tail(5)

    assert isinstance(found, Interrupted)
    assert "quota" in found.reason
