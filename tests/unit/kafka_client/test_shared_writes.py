"""Writes of many threads share transactions, and each learns what became of its own records."""

import threading
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from tidegate.kafka.errors import Refused, Unavailable
from tidegate.kafka_client.control_writer import Appended
from tidegate.kafka_client.shared_writes import MOST_SHARED, Records, SharedWrites


class Topic:
    """A topic that is written while ``gate`` is open; ``failures`` are raised for writes that have their keys."""

    def __init__(self) -> None:
        self.writes: list[tuple[bytes, ...]] = []
        self.failures: dict[bytes, Exception] = {}
        self.gate = threading.Event()
        self.writing = threading.Event()
        self.end = 0

    def write(self, records: Records) -> dict[bytes, Appended]:
        self.writes.append(tuple(records))
        self.writing.set()
        assert self.gate.wait(10)
        for key in records:
            if key in self.failures:
                raise self.failures[key]
        first, self.end = self.end, self.end + len(records)
        return {key: Appended(first + n, None) for n, key in enumerate(records)}


@pytest.fixture
def topic() -> Topic:
    return Topic()


@pytest.fixture
def writes(topic: Topic) -> SharedWrites:
    return SharedWrites(topic.write)


Answer = Future[dict[bytes, Appended]]


def while_one_is_written(topic: Topic, writes: SharedWrites, *others: Records) -> tuple[Answer, list[Answer]]:
    """One is being written when the others come, in this order."""
    pool = ThreadPoolExecutor(len(others) + 1)
    first = pool.submit(writes.write, {b"first": b""})
    assert topic.writing.wait(10)
    answers = []
    for n, records in enumerate(others):
        answers.append(pool.submit(writes.write, records))
        while len(writes._waiting) < n + 2:
            threading.Event().wait(0.001)
    topic.gate.set()
    pool.shutdown()
    return first, answers


def test_those_who_come_meanwhile_share_the_next_write(topic: Topic, writes: SharedWrites) -> None:
    first, others = while_one_is_written(topic, writes, {b"a": b""}, {b"b": b"", b"c": None}, {b"d": b""})

    assert topic.writes == [(b"first",), (b"a", b"b", b"c", b"d")]
    assert first.result() == {b"first": Appended(0, None)}
    assert [{key: at.offset for key, at in answer.result().items()} for answer in others] == [
        {b"a": 1},
        {b"b": 2, b"c": 3},
        {b"d": 4},
    ]
    assert not writes._waiting


def test_records_of_one_key_are_written_one_after_the_other(topic: Topic, writes: SharedWrites) -> None:
    _, (earlier, between, later) = while_one_is_written(topic, writes, {b"a": b"1"}, {b"b": b""}, {b"a": b"2"})

    assert topic.writes == [(b"first",), (b"a", b"b"), (b"a",)]
    assert earlier.result()[b"a"].offset < between.result()[b"b"].offset < later.result()[b"a"].offset


def test_nobodys_records_are_divided_and_few_do_not_wait_for_very_many(topic: Topic, writes: SharedWrites) -> None:
    many = {b"%d" % n: b"" for n in range(MOST_SHARED + 1)}
    while_one_is_written(topic, writes, {b"a": b""}, many, {b"b": b""})

    assert [len(keys) for keys in topic.writes] == [1, 1, MOST_SHARED + 1, 1]


def test_what_was_not_written_is_told_to_all_who_shared_it(topic: Topic, writes: SharedWrites) -> None:
    topic.failures[b"b"] = Unavailable("nobody leads the topic")
    first, others = while_one_is_written(topic, writes, {b"a": b""}, {b"b": b""})

    assert first.result()
    for answer in others:
        with pytest.raises(Unavailable):
            answer.result()
    assert len(topic.writes) == 2, "they do not wait for one another's time-outs"
    assert writes.write({b"c": b""}), "whoever comes later tries again"


def test_each_thread_raises_a_failure_of_its_own(topic: Topic, writes: SharedWrites) -> None:
    """One exception that several raise has the frames of all of them, and what one was handling is said of another."""
    topic.failures[b"b"] = Unavailable("nobody leads the topic")
    _, others = while_one_is_written(topic, writes, {b"a": b""}, {b"b": b""}, {b"c": b""})

    failures = [answer.exception() for answer in others]
    assert [str(failure) for failure in failures] == ["nobody leads the topic"] * 3
    assert len(set(map(id, failures))) == 3


def test_one_that_kafka_refuses_does_not_take_the_others_with_it(topic: Topic, writes: SharedWrites) -> None:
    topic.failures[b"b"] = Refused("the record is too large")
    _, (a, b, c) = while_one_is_written(topic, writes, {b"a": b""}, {b"b": b""}, {b"c": b""})

    assert a.result()
    assert c.result()
    with pytest.raises(Refused):
        b.result()


def test_a_defect_is_told_to_whom_it_belongs_whichever_thread_finds_it(topic: Topic, writes: SharedWrites) -> None:
    topic.failures[b"b"] = ZeroDivisionError()
    _, (a, b, c) = while_one_is_written(topic, writes, {b"a": b""}, {b"b": b""}, {b"c": b""})

    assert (a.result(), c.result()) == ({b"a": Appended(1, None)}, {b"c": Appended(2, None)})
    with pytest.raises(ZeroDivisionError):
        b.result()


def test_once_nobody_answers_those_who_are_left_do_not_wait_for_one_another(topic: Topic, writes: SharedWrites) -> None:
    topic.failures |= {b"b": Refused("the record is too large"), b"a": Unavailable("nobody leads the topic")}
    write, together = topic.write, {b"a", b"b", b"c", b"d"}

    def refused_first(records: Records) -> dict[bytes, Appended]:
        if records.keys() == together:
            topic.writes.append(tuple(records))
            raise topic.failures[b"b"]
        return write(records)

    writes._write = refused_first
    _, others = while_one_is_written(topic, writes, *({key: b""} for key in sorted(together)))

    assert [type(answer.exception()) for answer in others] == [Unavailable] * 4
    assert topic.writes[2:] == [(b"a",)]


def test_a_defect_in_one_write_keeps_nobody_waiting(topic: Topic, writes: SharedWrites) -> None:
    topic.failures[b"first"] = ZeroDivisionError()
    first, (other,) = while_one_is_written(topic, writes, {b"a": b""})

    with pytest.raises(ZeroDivisionError):
        first.result()
    assert other.result() == {b"a": Appended(0, None)}


def test_nothing_is_written_for_no_records(topic: Topic, writes: SharedWrites) -> None:
    assert writes.write({}) == {}
    assert topic.writes == []
