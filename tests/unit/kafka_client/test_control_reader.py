"""What the reader of the control topics makes of topics that the brokers do not know yet, or no more."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from tidegate.control.codec import encode_key, encode_value
from tidegate.control.records import Ack, AckKey, Hold, HoldKey, Key, Value
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


class Log:
    """The two topics, with one partition each, and their leaders' and consumers' word.

    ``lags``: how many of the next answers are of a leader that has not heard of the last record.
    """

    def __init__(self) -> None:
        self.records: dict[str, list[tuple[Key, Value]]] = {TOPIC: [], ACKS: []}
        self.lags = 0
        self.begun = 0
        self._next: dict[str, int] = {}

    def at(self, asked: dict[TopicPartition, int], _what: str) -> dict[TopicPartition, int]:
        self.lags, lag = max(0, self.lags - 1), min(1, self.lags)
        return {partition: len(self.records[partition.topic]) - lag for partition in asked}

    def assign(self, partitions: Collection[Any]) -> None:
        self.begun += 1
        self._next = {partition.topic: max(0, partition.offset) for partition in partitions}

    def poll(self, _wait_s: float) -> Any:
        for topic, at in self._next.items():
            if at > len(self.records[topic]):
                at = 0  # auto.offset.reset=earliest
            if at < len(self.records[topic]):
                self._next[topic] = at + 1
                return _message(topic, at, *self.records[topic][at])
        return None

    def consume(self, _count: int, _wait_s: float) -> list[Any]:
        return []

    def close(self) -> None: ...


def _message(topic: str, at: int, key: Key, value: Value) -> Any:
    said = {"topic": topic, "partition": 0, "offset": at, "error": None, "timestamp": (0, 0)}
    said |= {"key": encode_key(key), "value": encode_value(value)}
    return SimpleNamespace(**{name: partial(said.get, name) for name in said})


ACKS = f"{TOPIC}-acks"
HOLD, OTHER = HoldKey("payments", "orders", 0, "pause/c/p"), HoldKey("payments", "orders", 1, "pause/c/p")
ACK = AckKey("payments", "orders", 0)


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> Log:
    made = Log()
    described = SimpleNamespace(partitions=[SimpleNamespace(partition_index=0)])
    monkeypatch.setattr(control_reader, "describe_existing", lambda *_: {TOPIC: described, ACKS: described})
    monkeypatch.setattr(control_reader, "topic_id", lambda _: "id")
    monkeypatch.setattr(control_reader, "Consumer", lambda *_args, **_named: made)
    return made


def _reader_of(log: Log) -> ControlReader:
    of_log: Any = log
    return ControlReader(Connection(bootstrap_servers="127.0.0.1:1"), (TOPIC, ACKS), of_log, of_log)


def test_acks_from_before_the_control_topic_lost_its_end_say_nothing_of_later_holds(log: Log) -> None:
    log.records[TOPIC] += [(OTHER, Hold())] * 5
    log.records[ACKS].append((ACK, Ack(4, 7, "m")))
    reader = _reader_of(log)
    reader.refresh(["payments"])
    assert reader.gates(["payments"]).acks[ACK] == (Ack(4, 7, "m"),)

    log.records[TOPIC] = [(OTHER, None), (HOLD, Hold())]
    with pytest.raises(Unavailable, match=f"read topic {TOPIC}: brokers have lost records of it"):
        reader.refresh(["payments"])
    reader.refresh(["payments"])

    gates = reader.gates(["payments"])
    assert {key: held.epoch for key, held in gates.holds.items()} == {HOLD: 1}
    assert not gates.acks
    assert tuple(reader.acks_ahead()) == (ACK,)


def test_acks_whose_topic_has_lost_its_end_are_read_again(log: Log) -> None:
    log.records[TOPIC] += [(OTHER, Hold())] * 5
    log.records[ACKS] += [(ACK, Ack(3, 7, "m")), (ACK, Ack(4, 7, "m"))]
    reader = _reader_of(log)
    reader.refresh(["payments"])

    log.records[ACKS].pop()
    with pytest.raises(Unavailable, match=f"read topic {ACKS}: brokers have lost records of it"):
        reader.refresh(["payments"])
    reader.refresh(["payments"])

    assert reader.gates(["payments"]).acks[ACK] == (Ack(3, 7, "m"),)


def test_a_topic_that_is_empty_now_is_read_from_its_start(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control_reader, "_TIMEOUT_S", 0.0)
    log.records[TOPIC].append((OTHER, Hold()))
    reader = _reader_of(log)
    reader._begin({TOPIC: SimpleNamespace(partitions=[SimpleNamespace(partition_index=0)])}, ("id", "id"))
    reader.wait(0)

    log.records[TOPIC].clear()
    with pytest.raises(Unavailable, match="brokers have lost records"):
        reader.refresh(())
    reader.refresh(())

    assert not reader.gates(()).holds


def test_a_leader_that_lags_behind_has_lost_nothing(log: Log) -> None:
    log.records[TOPIC] += [(OTHER, Hold()), (HOLD, Hold())]
    reader = _reader_of(log)
    reader.refresh(["payments"])

    log.lags, begun = 3, log.begun
    reader.refresh(["payments"])

    assert reader.gates(["payments"]).holds.keys() == {OTHER, HOLD}
    assert log.begun == begun
