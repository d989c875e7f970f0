"""What a target's leader takes of a producer that chooses its own stamps: the simulated one, and a real one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from devstack import KafkaCluster
from support.mirror.target_broker import TargetBroker
from support.needs import starts
from support.stack_fixtures import Unique, topics_of
from tidegate.kafka.connection import Connection
from tidegate.kafka.model import TopicPartition
from tidegate.kafka_client.mirror_clients import MirrorTarget, new_producer_id
from tidegate.kafka_client.wire import Wire
from tidegate.mirror.batches import Stamp, restamped
from tidegate.mirror.fencing import LAST_EPOCH
from tidegate.mirror.model import Appended, Interrupted, Refusal, Tail
from tidegate.mirror.ports import Target
from tidegate.mirror.records import filler

OUT_OF_ORDER, INVALID_EPOCH = "out of order", "invalid epoch"
SAID = {45: OUT_OF_ORDER, 47: INVALID_EPOCH}


class Simulated:
    """The port, in front of the simulation."""

    def __init__(self) -> None:
        self._broker = TargetBroker()

    def tail(self, window: int) -> Tail:
        return self._broker.tail(window)

    def append(self, batches: tuple[bytes, ...]) -> Appended:
        return Appended(tuple(self._broker.produce(data) for data in batches))

    def write_markers(self, producer_id: int, epoch: int, count: int) -> None:
        for _ in range(count):
            self._broker.write_marker(producer_id, epoch)

    def delete_records(self, offset: int) -> None:
        self._broker.delete_records(offset)


class Log:
    """A partition that is written batch by batch."""

    def __init__(self, target: Target | Simulated, producer_id: int) -> None:
        self._target = target
        self.producer_id = producer_id
        self.tail()

    def tail(self, window: int = 1) -> Tail:
        found = self._target.tail(window)
        assert not isinstance(found, Interrupted), found
        return found

    def data(self, epoch: int, sequence: int, count: int = 3) -> int | str:
        """Its offset, or why it was refused."""
        batch = restamped(filler(count, None), Stamp(self.producer_id, epoch, sequence))
        answer = self._target.append((batch,))
        assert isinstance(answer, Appended), answer
        [outcome] = answer.outcomes
        return SAID[outcome.code] if isinstance(outcome, Refusal) else outcome

    def markers(self, epoch: int, count: int = 1) -> int:
        """How many were written."""
        before = self.tail().end
        self._target.write_markers(self.producer_id, epoch, count)
        return self.tail().end - before

    def delete_records(self, offset: int) -> None:
        self._target.delete_records(offset)


@pytest.fixture
def simulated() -> Log:
    return Log(Simulated(), 100)


@pytest.fixture
@starts("kafka")
def real(kafka: KafkaCluster, unique: Unique) -> Iterator[Log]:
    make_topic = topics_of(kafka, unique)
    topic = next(make_topic)()
    with closing(make_topic), closing(Wire(Connection(kafka.bootstrap))) as wire:
        yield Log(MirrorTarget(wire, TopicPartition(topic, 0)), new_producer_id(wire))


@pytest.fixture(params=["simulated", pytest.param("real", marks=pytest.mark.kafka)])
def log(request: pytest.FixtureRequest) -> Log:
    found = request.getfixturevalue(request.param)
    assert isinstance(found, Log)
    return found


def test_data_is_a_compare_and_set(log: Log) -> None:
    assert log.data(0, 0) == 0
    assert log.data(0, 3) == 3
    assert log.data(0, 3) == 3
    assert log.data(0, 0) == 0
    assert log.data(0, 3, count=2) == OUT_OF_ORDER
    assert log.data(0, 7) == OUT_OF_ORDER
    assert log.data(0, 1, count=2) == OUT_OF_ORDER
    assert log.tail().end == 6


def test_only_the_last_five_batches_are_recognised(log: Log) -> None:
    assert [log.data(0, 3 * n) for n in range(6)] == [3 * n for n in range(6)]

    assert log.data(0, 3) == 3
    assert log.data(0, 0) == OUT_OF_ORDER


def test_a_newer_epoch_begins_anew_at_any_end(log: Log) -> None:
    assert log.data(0, 0) == 0
    assert log.data(2, 3) == OUT_OF_ORDER
    assert log.data(2, 0) == 3
    assert log.data(0, 3) == INVALID_EPOCH
    assert log.data(0, 0) == INVALID_EPOCH
    assert log.tail().end == 6


def test_markers_are_refused_only_when_they_are_older(log: Log) -> None:
    assert log.data(0, 0) == 0
    assert log.markers(1, count=3) == 3
    assert log.markers(1) == 1
    assert log.data(0, 3) == INVALID_EPOCH
    assert log.data(2, 0) == 7
    assert log.markers(1) == 0
    assert log.markers(2) == 1
    assert log.data(2, 3) == 11
    assert log.tail().end == 14


def test_after_a_marker_of_the_largest_epoch_nothing_of_that_producer_is_taken(log: Log) -> None:
    log.data(0, 0)
    assert log.markers(LAST_EPOCH) == 1

    assert log.data(0, 3) == log.data(2, 0) == INVALID_EPOCH
    assert log.markers(1) == log.markers(LAST_EPOCH - 1) == 0
    assert log.data(LAST_EPOCH - 1, 0) == INVALID_EPOCH


def test_an_unknown_producer_may_begin_with_any_sequence_number(log: Log) -> None:
    assert log.data(3, 40) == 0
    assert log.data(3, 40) == 0
    assert log.data(3, 43) == 3


def test_sequence_numbers_go_on_at_0_after_the_largest(log: Log) -> None:
    assert log.data(0, 2**31 - 2) == 0
    assert log.data(0, 1) == 3


def test_an_emptied_log_is_remembered(log: Log) -> None:
    assert log.data(1, 0) == 0
    log.tail()
    log.delete_records(3)

    tail = log.tail()

    [producer] = tail.producers
    assert (tail.start, tail.end, tail.data) == (3, 3, b"")
    assert (producer.producer_id, producer.epoch, producer.last_sequence) == (log.producer_id, 1, 2)


def test_a_marker_leaves_no_sequence_number_behind(log: Log) -> None:
    assert log.data(0, 0) == 0
    assert log.markers(1) == 1
    log.delete_records(4)

    [producer] = log.tail().producers

    assert (producer.epoch, producer.last_sequence) == (1, -1)


def test_a_producer_of_which_there_is_only_a_marker_is_remembered_with_a_log_that_has_data(log: Log) -> None:
    assert log.markers(0) == 1

    tail = log.tail()
    [producer] = tail.producers
    assert tail.data
    assert (producer.producer_id, producer.epoch, producer.last_sequence) == (log.producer_id, 0, -1)
