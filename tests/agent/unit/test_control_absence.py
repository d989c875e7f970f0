"""A link that was away for so long that a release may be gone from the log reads the control topic from its start, and
so does one that finds that brokers have lost records of it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from confluent_kafka.cimpl import TIMESTAMP_NOT_AVAILABLE, KafkaError

from tidegate_agent import control, control_reading
from tidegate_agent.control import ControlLink
from tidegate_agent.gates import Partition
from tidegate_agent.records import Hold, HoldKey, encode_key, encode_value
from tidegate_agent.topic_description import Topic

HOUR_S = 3600.0
P0, P1 = Partition("orders", 0), Partition("orders", 1)
KEY, OTHER = HoldKey("g", *P0, "pause/c/p"), HoldKey("g", *P1, "pause/c/p")


@dataclass
class Message:
    key_bytes: bytes | None
    value_bytes: bytes | None
    at: int
    problem: KafkaError | None = None

    def error(self) -> KafkaError | None:
        return self.problem

    def key(self) -> bytes | None:
        return self.key_bytes

    def value(self) -> bytes | None:
        return self.value_bytes

    def offset(self) -> int:
        return self.at

    def timestamp(self) -> tuple[int, int]:
        return TIMESTAMP_NOT_AVAILABLE, 0


@dataclass
class Log:
    """A compacted partition: ``records`` by offset, and the offset after the last one there ever was.

    ``topic_id``: of the topic that it is of. ``readable``: whether whoever reads is given anything; ``begun``: how
    often it was read from its start.
    """

    records: dict[int, Message] = field(default_factory=dict)
    end: int = 0
    topic_id: str = "id"
    begun: int = 0
    fails: bool = False
    resets: bool = False
    """Whether whoever reads is told that its offset is of a log that is not there any more."""
    readable: threading.Event = field(default_factory=threading.Event)
    changed: threading.Condition = field(default_factory=threading.Condition)

    def append(self, hold: Hold | None, key: HoldKey = KEY) -> int:
        with self.changed:
            self.records[self.end] = Message(encode_key(key), encode_value(hold), self.end)
            self.end += 1
            self.changed.notify_all()
        return self.end - 1

    def replace(self, hold: Hold) -> None:
        """Another topic of the name, with this alone."""
        with self.changed:
            self.topic_id, self.records, self.end = f"{self.topic_id}+", {}, 0
        self.append(hold)

    def cut(self, end: int) -> None:
        """As after a broker that lacks the last records has become the leader."""
        with self.changed:
            self.records = {at: message for at, message in self.records.items() if at < end}
            self.end = end

    def compact(self) -> None:
        """As after ``delete.retention.ms``: of a key whose newest record is a tombstone nothing is left."""
        with self.changed:
            newest = {m.key_bytes: m for m in self.records.values()}
            self.records = {m.at: m for m in newest.values() if m.value_bytes is not None}


class Reader:
    """What the link's consumer is, on a log in memory."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._next = 0
        self._said_end = -1

    def assign(self, _partitions: Any) -> None:
        self._next, self._said_end = 0, -1
        self._log.begun += 1

    def poll(self, seconds: float) -> Message | None:
        with self._log.changed:
            if self._log.fails:
                self._log.fails = False
                raise RuntimeError("the consumer was closed")
            if not self._log.readable.is_set():
                self._log.changed.wait(0.01)
                return None
            if self._next > self._log.end or self._log.resets:
                # auto.offset.reset=earliest
                self._next, self._said_end, self._log.resets = 0, -1, False
            for offset in sorted(o for o in self._log.records if o >= self._next):
                self._next = offset + 1
                return self._log.records[offset]
            self._next = self._log.end
            if self._said_end != self._log.end:
                self._said_end = self._log.end
                return Message(None, None, self._log.end, KafkaError(KafkaError._PARTITION_EOF))
            self._log.changed.wait(seconds)
            return None

    def consume(self, _count: int, _seconds: float) -> list[Message]:
        return []

    def close(self) -> None: ...


@dataclass
class Scene:
    log: Log
    link: ControlLink
    away_s: float = 0.0

    def until(self, reached: Callable[[], bool], what: str, *, asking: bool = True) -> None:
        deadline = time.monotonic() + 20
        while not reached():
            assert time.monotonic() < deadline, what
            if asking:
                self.link.ask()
            time.sleep(0.005)

    def read(self) -> None:
        """Until the link has read the log to its end."""
        ticket = self.link.ask()
        self.until(lambda: self.link.known.answered >= ticket, "the log is read to its end")

    def is_closed(self) -> bool:
        return self.link.known.gate("g", P0) is not None


@pytest.fixture
def scene(monkeypatch: pytest.MonkeyPatch) -> Iterator[Scene]:
    log = Log()
    log.readable.set()
    log.append(None)
    made = Scene(log, ControlLink({}, "__tidegate", "__tidegate_acks"))
    monkeypatch.setattr(control, "plain", lambda _client: lambda *_args, **_kwargs: Reader(log))
    monkeypatch.setattr(ControlLink, "_look", lambda _link, _admin: Topic(log.topic_id, log.end))
    monkeypatch.setattr(ControlLink, "_is_lost", lambda _link, _admin, topic: topic is None)
    instant = control._instant
    monkeypatch.setattr(control, "_instant", lambda: tuple(at + made.away_s for at in instant()))
    yield made
    log.readable.set()
    made.link.close()


def go_away_while_it_is_released(scene: Scene, seconds: float) -> None:
    """The link's reader stands; meanwhile the hold is released, and the log compacted."""
    scene.log.append(Hold())
    scene.read()
    assert scene.is_closed()
    scene.log.readable.clear()
    scene.log.append(None)
    scene.log.compact()
    scene.away_s += seconds


def test_a_gate_whose_release_is_gone_from_the_log_opens_after_a_long_absence(scene: Scene) -> None:
    go_away_while_it_is_released(scene, 25 * HOUR_S)
    scene.log.readable.set()
    scene.read()
    assert not scene.is_closed()
    assert scene.link.known.generation == 1, "it is the same topic: its epochs can be compared"
    assert scene.link.known.moved_after("g", P0, 1), "it was opened by what was not read"


def test_gates_stay_as_they_were_until_the_log_is_read_to_its_end(scene: Scene) -> None:
    go_away_while_it_is_released(scene, 25 * HOUR_S)
    begun = scene.log.begun
    scene.until(lambda: scene.log.begun > begun, "it is read from its start")
    assert scene.is_closed()
    scene.log.readable.set()
    scene.read()
    assert not scene.is_closed()


def test_a_gate_that_is_still_held_stays_closed_with_its_epoch(scene: Scene) -> None:
    epoch = scene.log.append(Hold("INC-4711"))
    scene.read()
    before = scene.link.known
    scene.away_s += 25 * HOUR_S
    begun = scene.log.begun
    scene.read()
    gate = scene.link.known.gate("g", P0)
    assert scene.log.begun == begun + 1
    assert gate is not None
    assert gate.epoch == epoch
    assert not scene.link.known.moved_after("g", P0, before.taken)


def test_a_reader_that_failed_and_is_begun_again_opens_no_gate(scene: Scene) -> None:
    epoch = scene.log.append(Hold())
    scene.read()
    open_for_a_moment = threading.Event()
    scene.link.listen(lambda: None if scene.is_closed() else open_for_a_moment.set())
    begun, scene.log.fails = scene.log.begun, True
    scene.until(lambda: scene.log.begun > begun, "it is read from its start")
    scene.read()
    gate = scene.link.known.gate("g", P0)
    assert gate is not None
    assert gate.epoch == epoch
    assert not open_for_a_moment.is_set()


def test_what_is_kept_of_a_lost_topic_ends_only_once_the_new_one_is_read(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control_reading, "REBUILT_S", 0.5)
    monkeypatch.setattr(control, "_RETRY_S", 0.01)
    scene.log.append(Hold())
    scene.log.append(Hold(), OTHER)
    scene.read()
    scene.log.replace(Hold())
    scene.until(lambda: scene.link.known.generation == 2, "the new topic is read")
    open_for_a_moment = threading.Event()
    scene.link.listen(lambda: None if scene.is_closed() else open_for_a_moment.set())
    scene.log.readable.clear()
    begun = scene.log.begun
    with scene.log.changed:
        scene.log.fails = True
        scene.log.changed.notify_all()
    scene.until(lambda: scene.log.begun > begun, "it is read from its start", asking=False)
    over_s = time.monotonic() + 0.6
    scene.until(lambda: time.monotonic() > over_s, "what is kept has had its time", asking=False)
    assert not open_for_a_moment.is_set()
    kept = scene.link.known.gate("g", P1)
    assert kept is not None
    assert kept.epoch == 0

    scene.log.readable.set()
    scene.until(lambda: scene.link.known.gate("g", P1) is None, "the gate that no record closes opens")
    assert scene.is_closed()
    assert not open_for_a_moment.is_set()


def test_a_short_absence_costs_nothing(scene: Scene) -> None:
    scene.read()
    begun = scene.log.begun
    scene.away_s += 0.9 * HOUR_S
    scene.read()
    scene.away_s += 0.9 * HOUR_S
    scene.log.append(Hold())
    scene.read()
    assert scene.is_closed()
    assert scene.log.begun == begun


def test_a_reading_that_takes_long_is_not_begun_again_and_again(scene: Scene) -> None:
    scene.read()
    scene.log.readable.clear()
    scene.away_s += 25 * HOUR_S
    begun = scene.log.begun
    scene.until(lambda: scene.log.begun > begun, "it is read from its start")
    scene.away_s += 0.5 * HOUR_S
    scene.log.readable.set()
    scene.read()
    assert scene.log.begun == begun + 1


def test_a_topic_that_has_lost_its_end_counts_as_another_one(scene: Scene) -> None:
    scene.log.append(Hold(), OTHER)
    scene.log.append(Hold())
    scene.log.append(None)
    scene.read()
    assert not scene.is_closed()

    scene.log.cut(1)
    epoch = scene.log.append(Hold("INC-4711"))
    scene.until(lambda: scene.link.known.generation == 2, "epochs begin anew")
    scene.until(scene.is_closed, "the hold is read")

    gate, other = scene.link.known.gate("g", P0), scene.link.known.gate("g", P1)
    assert gate is not None
    assert gate.epoch == epoch
    assert other is not None
    assert other.epoch == 0, "whoever held it may hold it again"
    assert scene.link.known.taken == epoch


def test_it_is_another_one_each_time_and_never_for_what_came_meanwhile(scene: Scene) -> None:
    scene.log.append(None)
    for generation in (2, 3):
        scene.log.append(None)
        scene.read()
        scene.log.cut(1)
        scene.until(lambda wanted=generation: scene.link.known.generation == wanted, "epochs begin anew")
        begun = scene.log.begun
        for _ in range(20):
            scene.log.append(Hold())
            scene.read()
        assert (scene.link.known.generation, scene.log.begun) == (generation, begun)


def test_what_a_reader_has_missed_that_begins_anew_by_itself_is_read_from_the_start(scene: Scene) -> None:
    scene.log.append(None)
    scene.log.append(None, OTHER)
    scene.read()

    scene.log.records[1] = Message(encode_key(KEY), encode_value(Hold()), 1)
    scene.log.resets = True

    scene.until(scene.is_closed, "the hold is read")
    assert scene.link.known.generation == 1
