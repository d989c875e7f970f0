"""What the reader of the control topics makes of topics that the brokers do not know yet, or no more."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pytest

from tidegate.kafka.connection import Connection
from tidegate.kafka.errors import KafkaFailure, Refused, Unavailable, UnknownPartitions
from tidegate.kafka.model import TopicPartition
from tidegate.kafka_client import control_reader
from tidegate.kafka_client.control_reader import ControlReader

TOPIC = "__tidegate"
UNKNOWN = UnknownPartitions(frozenset({TopicPartition(TOPIC, 0)}))


class Leaders:
    """Stand for ``LogOffsets``: they answer each question by the next of ``answers``."""

    def __init__(self, answers: Iterable[int | KafkaFailure]) -> None:
        self._answers: Iterator[int | KafkaFailure] = iter(answers)

    def at(self, asked: dict[TopicPartition, int], _what: str) -> dict[TopicPartition, int]:
        answer = next(self._answers)
        if isinstance(answer, KafkaFailure):
            raise answer
        return dict.fromkeys(asked, answer)


def _ends(*answers: int | KafkaFailure) -> dict[tuple[str, int], int]:
    nobody: Any = None
    leaders: Any = Leaders(answers)
    reader = ControlReader(Connection(bootstrap_servers="127.0.0.1:1"), (TOPIC, f"{TOPIC}-acks"), nobody, leaders)
    reader._next = {(TOPIC, 0): 0}
    return reader._known_ends()


def test_a_topic_that_was_made_just_now_is_asked_for_again() -> None:
    assert _ends(UNKNOWN, UNKNOWN, 7) == {(TOPIC, 0): 7}


def test_a_topic_that_stays_unknown_is_being_deleted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control_reader, "_MADE_S", 0.0)
    with pytest.raises(Unavailable, match=f"read topic {TOPIC}: it is being deleted"):
        _ends(UNKNOWN, UNKNOWN, 7)


@pytest.mark.parametrize(
    "failure", [Unavailable("no leader"), Refused("not like this")], ids=lambda f: type(f).__name__
)
def test_what_was_waited_for_already_is_told_at_once(failure: KafkaFailure) -> None:
    with pytest.raises(type(failure), match=str(failure)):
        _ends(failure, 7)


class Slow:
    """Stands for a consumer that gives one record with each call, and then none."""

    def __init__(self, records: int) -> None:
        self._left, self._given = records, 0

    def poll(self, _wait_s: float) -> Any:
        if not self._left:
            return None
        self._left, self._given = self._left - 1, self._given + 1
        message = Message()
        message.at = self._given - 1
        return message

    def consume(self, _count: int, _wait_s: float) -> list[Any]:
        return []

    def position(self, _partitions: list[Any]) -> list[Any]:
        return []

    def close(self) -> None:
        self._left = 0


class Message:
    """No record of the contract."""

    at = 0
    error = key = value = staticmethod(lambda: None)

    def topic(self) -> str:
        return TOPIC

    def partition(self) -> int:
        return 0

    def offset(self) -> int:
        return self.at


def _reader(consumer: Slow, end: int) -> ControlReader:
    nobody: Any = None
    leaders: Any = Leaders([end] * 10)
    reader = ControlReader(Connection(bootstrap_servers="127.0.0.1:1"), (TOPIC, f"{TOPIC}-acks"), nobody, leaders)
    reader._next, reader._consumer = {(TOPIC, 0): 0}, consumer  # type: ignore[assignment]
    return reader


def test_what_is_read_too_slowly_is_gone_on_with(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control_reader, "_TIMEOUT_S", -1.0)
    consumer = Slow(3)
    reader = _reader(consumer, 3)
    reader.wait(0)

    with pytest.raises(Unavailable, match=f"read topic {TOPIC}: .* up to 2 records are left, which are being read"):
        reader._catch_up(consumer)  # type: ignore[arg-type]

    assert (reader._next, reader.is_whole) == ({(TOPIC, 0): 1}, False)
    monkeypatch.setattr(control_reader, "_TIMEOUT_S", 15.0)
    reader._catch_up(consumer)  # type: ignore[arg-type]
    assert (reader._next, reader.taken) == ({(TOPIC, 0): 3}, 3)


def test_where_nothing_comes_it_connects_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control_reader, "_TIMEOUT_S", -1.0)
    monkeypatch.setattr(control_reader, "_STALLED_S", 0.0)
    consumer = Slow(1)
    reader = _reader(consumer, 3)
    reader.wait(0)

    with pytest.raises(Unavailable, match="its end was not reached within"):
        reader._catch_up(consumer)  # type: ignore[arg-type]

    assert (reader._next, reader._consumer) == ({}, None)
