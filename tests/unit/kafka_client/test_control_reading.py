"""Many who ask at once what the control topic says share a reading."""

import threading
import time
from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor
from typing import cast

import pytest

from tidegate.control.gates import Gates
from tidegate.kafka.connection import Connection
from tidegate.kafka.errors import Unavailable
from tidegate.kafka_client import control
from tidegate.kafka_client.control import KafkaControlTopics
from tidegate.kafka_client.control_reader import ControlReader
from tidegate.kafka_client.log_offsets import LogOffsets
from tidegate.kafka_client.wire import Wire

MANY = 8


class Reader:
    """Counts how often it reads; the first reading waits for ``gate``."""

    def __init__(self) -> None:
        self.reads: list[tuple[str, ...]] = []
        self.reading = threading.Event()
        self.gate = threading.Event()
        self.waiting = threading.Event()
        self.failures: list[Unavailable] = []
        self.taken = 0
        self.is_whole = False
        self.kept: set[str] = set()

    def refresh(self, groups: Collection[str]) -> None:
        self.reads.append(tuple(groups))
        self.reading.set()
        self.gate.wait(10)
        self.kept.update(groups)
        self.is_whole = not self.failures
        if self.failures:
            raise self.failures.pop()

    def wait(self, wait_s: float) -> None:
        self.waiting.set()
        threading.Event().wait(min(wait_s, 0.01))

    @property
    def exist(self) -> bool:
        return True

    def keeps(self, groups: Collection[str]) -> bool:
        return self.kept >= set(groups)

    def gates(self, _groups: Collection[str]) -> Gates:
        return Gates()


@pytest.fixture
def reader() -> Reader:
    return Reader()


@pytest.fixture
def topics(reader: Reader) -> KafkaControlTopics:
    connection = Connection("127.0.0.1:1")
    wire = Wire(connection)
    made = KafkaControlTopics(connection, wire, LogOffsets(wire))
    made._reader = cast("ControlReader", reader)
    return made


def while_one_reads(reader: Reader, topics: KafkaControlTopics, **asked: tuple[str, ...]) -> None:
    """One reads, and many ask for something meanwhile."""
    with ThreadPoolExecutor(MANY + 1) as pool:
        first = pool.submit(topics.read)
        reader.reading.wait(10)
        others = [pool.submit(topics.read, **asked) for _ in range(MANY)]
        while topics._lock.locked() and pool._work_queue.qsize():
            threading.Event().wait(0.01)
        reader.gate.set()
        for done in (first, *others):
            done.result(10)


def test_those_who_came_meanwhile_share_the_next_reading(reader: Reader, topics: KafkaControlTopics) -> None:
    while_one_reads(reader, topics)

    assert 2 <= len(reader.reads) < MANY, "the one under way had begun before they asked"


def test_who_asks_later_has_it_read_again(reader: Reader, topics: KafkaControlTopics) -> None:
    reader.gate.set()

    topics.read()
    topics.read()

    assert len(reader.reads) == 2


def test_who_asks_about_a_new_group_has_it_read_for_it(reader: Reader, topics: KafkaControlTopics) -> None:
    while_one_reads(reader, topics, groups=("g",))

    assert reader.reads[:2] == [(), ("g",)]


def test_who_asks_about_groups_that_others_ask_about_shares_their_reading(
    reader: Reader, topics: KafkaControlTopics
) -> None:
    reader.kept = {"g"}
    while_one_reads(reader, topics, groups=("g",))

    assert 2 <= len(reader.reads) < MANY


def test_a_reading_that_failed_is_nobodys(reader: Reader, topics: KafkaControlTopics) -> None:
    reader.gate.set()
    reader.failures = [Unavailable("nobody leads the topic")]

    with pytest.raises(Unavailable):
        topics.read()
    topics.read()

    assert len(reader.reads) == 2


def test_a_reading_that_lost_what_was_known_is_not_shared(reader: Reader, topics: KafkaControlTopics) -> None:
    """Who asked before a good reading began, and comes to its turn after one that failed, would find nothing held."""
    reader.gate.set()
    topics.read()
    topics._read_s += 3600.0  # it has begun after all that follow have asked
    reader.is_whole = False
    topics.read()
    assert len(reader.reads) == 2


def test_who_waits_for_records_goes_by_no_reading_that_failed_meanwhile(
    reader: Reader, topics: KafkaControlTopics
) -> None:
    reader.gate.set()
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(topics.read, ("g",), wait_s=30.0)
        assert reader.waiting.wait(10)
        reader.failures = [Unavailable("nobody leads the topic")]
        with pytest.raises(Unavailable):
            topics.read(("other",))
        with pytest.raises(Unavailable):
            waiting.result(10)


def test_many_who_wait_for_a_reading_that_fails_fail_with_it(reader: Reader, topics: KafkaControlTopics) -> None:
    reader.failures = [Unavailable("nobody leads the topic")] * (MANY + 1)
    with pytest.raises(Unavailable):
        while_one_reads(reader, topics)
    assert len(reader.reads) <= 2


def test_who_fails_with_somebody_s_reading_has_an_exception_of_its_own(
    reader: Reader, topics: KafkaControlTopics
) -> None:
    reader.failures = [Unavailable("nobody leads the topic") for _ in range(MANY + 1)]
    failures = list[BaseException | None]()
    with ThreadPoolExecutor(MANY + 1) as pool:
        asking = [pool.submit(topics.read) for _ in range(MANY + 1)]
        while pool._work_queue.qsize():
            threading.Event().wait(0.01)
        reader.gate.set()
        failures += [each.exception(10) for each in asking]
    assert [str(failure) for failure in failures] == ["nobody leads the topic"] * (MANY + 1)
    assert len(reader.reads) < MANY
    assert len(set(map(id, failures))) == MANY + 1


def test_many_who_make_sure_of_the_topics_while_that_fails_fail_with_it(
    topics: KafkaControlTopics, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate, begun = threading.Event(), list[float]()

    def facts(*_: object) -> None:
        begun.append(time.monotonic())
        assert gate.wait(10)
        raise Unavailable("nobody answers")

    monkeypatch.setattr(control, "topic_facts", facts)
    with ThreadPoolExecutor(MANY + 1) as pool:
        asking = [pool.submit(topics.ensure) for _ in range(MANY + 1)]
        while pool._work_queue.qsize() or not begun:
            threading.Event().wait(0.01)
        gate.set()
        failures = [each.exception(10) for each in asking]

    assert [str(failure) for failure in failures] == ["nobody answers"] * (MANY + 1)
    assert len(begun) < MANY, "they do not wait for one another's time-outs"
    assert len(set(map(id, failures))) == MANY + 1
    tried = len(begun)
    with pytest.raises(Unavailable):
        topics.ensure()
    assert len(begun) == tried + 1, "whoever comes later tries again"
