"""What the agent's core counts on in a client, held against the simulated one and against confluent-kafka's.

The simulated one is what ``tests/agent/unit`` stand on, librdkafka what ``tidegate_agent.adapters.confluent`` uses.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Protocol

import pytest
from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, OFFSET_INVALID, Consumer, KafkaError, KafkaException, Producer
from confluent_kafka import TopicPartition as ClientTopicPartition

from agent.unit.simulated import Client
from devstack import KafkaCluster
from devstack.processes import eventually
from support.stack_fixtures import MakeTopic, Unique
from tidegate_agent.gates import Partition
from tidegate_agent.lifecycle import SETTLE_S
from tidegate_agent.start import Start

RECORDS = 10
WITHIN_S = 90.0
QUIET_S = 0.7
"""Longer than a fetch takes on a broker beside us: what could come has come."""


class World(Protocol):
    """A client of one partition, whose log has ``RECORDS`` records."""

    def begin(self) -> None:
        """It is assigned, as for the first time or again."""
        ...

    def deliver(self, count: int) -> list[int]:
        """The offsets of the next records that the application is given, up to ``count``."""
        ...

    def silent(self) -> bool:
        """Whether the application is given nothing."""
        ...

    def pause(self) -> None: ...
    def resume(self) -> None: ...
    def seek(self, offset: int) -> None: ...
    def begin_at(self, start: Start) -> None: ...
    def position(self) -> int | None: ...
    def commit_stored(self) -> None: ...
    def forget(self) -> None: ...
    def commit(self, offset: int) -> None: ...
    def committed(self) -> int | None: ...


class Simulated:
    def __init__(self, *, auto_stores: bool) -> None:
        self._partition = Partition("orders", 0)
        self._client = Client(log_end={self._partition: RECORDS}, auto_stores=auto_stores)

    def begin(self) -> None:
        self._client.begin(self._partition)

    def deliver(self, count: int) -> list[int]:
        before = len(self._client.delivered)
        for _ in range(count):
            if self._client.next[self._partition] < RECORDS:
                self._client.deliver(self._partition)
        return [offset for _, offset in self._client.delivered[before:]]

    def silent(self) -> bool:
        return not self.deliver(1)

    def pause(self) -> None:
        self._client.pause([self._partition])

    def resume(self) -> None:
        self._client.resume([self._partition])

    def seek(self, offset: int) -> None:
        self._client.seek(self._partition, offset)

    def begin_at(self, start: Start) -> None:
        self._client.begin_at(self._partition, start)

    def position(self) -> int | None:
        return self._client.position[self._partition]

    def commit_stored(self) -> None:
        self._client.commit_stored([self._partition])

    def forget(self) -> None:
        self._client.forget([self._partition])

    def commit(self, offset: int) -> None:
        self._client.committed[self._partition] = offset

    def committed(self) -> int | None:
        return self._client.committed.get(self._partition)


class Real:
    def __init__(self, bootstrap: str, group: str, topic: str, *, auto_stores: bool) -> None:
        self._topic, self._auto_stores = topic, auto_stores
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "enable.auto.commit": False,
                "enable.auto.offset.store": auto_stores,
                "auto.offset.reset": "latest",
                "fetch.wait.max.ms": 100,
            }
        )

    def _at(self, offset: int = OFFSET_INVALID) -> ClientTopicPartition:
        return ClientTopicPartition(self._topic, 0, offset)

    def begin(self) -> None:
        self._consumer.assign([self._at()])
        # It is carried out by a thread of the library; until then the position is the one of before.
        assert eventually(lambda: self.position() is None, WITHIN_S, every=0.01)

    def deliver(self, count: int) -> list[int]:
        found: list[int] = []
        deadline = time.monotonic() + WITHIN_S
        while len(found) < count and time.monotonic() < deadline:
            message = self._consumer.poll(0.1)
            if message is None:
                continue
            assert message.error() is None, message.error()
            assert message.offset() is not None
            found.append(message.offset() or 0)
            if not self._auto_stores:
                self._consumer.store_offsets(message)
        return found

    def silent(self) -> bool:
        return self._consumer.poll(QUIET_S) is None

    def pause(self) -> None:
        self._consumer.pause([self._at()])
        time.sleep(SETTLE_S)

    def resume(self) -> None:
        self._consumer.resume([self._at()])

    def seek(self, offset: int) -> None:
        self._eventually(lambda: self._consumer.seek(self._at(offset)))

    def begin_at(self, start: Start) -> None:
        self.seek(OFFSET_BEGINNING if start is Start.EARLIEST else OFFSET_END)

    def _eventually(self, call: Callable[[], object]) -> None:
        """ "Erroneous state" while the fetcher starts, or the coordinator: it will have an answer soon."""
        deadline = time.monotonic() + WITHIN_S
        while True:
            try:
                call()
            except KafkaException:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.05)
            else:
                return

    def position(self) -> int | None:
        [found] = self._consumer.position([self._at()])
        return found.offset if found.offset is not None and found.offset >= 0 else None

    def commit_stored(self) -> None:
        try:
            self._consumer.commit(asynchronous=False)
        except KafkaException as error:
            if error.args[0].code() != KafkaError._NO_OFFSET:
                raise

    def forget(self) -> None:
        if not self._auto_stores:
            self._consumer.store_offsets(offsets=[self._at()])

    def commit(self, offset: int) -> None:
        self._consumer.commit(offsets=[self._at(offset)], asynchronous=False)

    def committed(self) -> int | None:
        [found] = self._consumer.committed([self._at()], timeout=WITHIN_S)
        return found.offset if found.offset is not None and found.offset >= 0 else None

    def close(self) -> None:
        self._consumer.close()


@pytest.fixture(params=["simulated", pytest.param("real", marks=pytest.mark.kafka)])
def make(request: pytest.FixtureRequest) -> Iterator[Callable[[bool], World]]:
    made: list[Real] = []

    def make(auto_stores: bool) -> World:
        if request.param == "simulated":
            return Simulated(auto_stores=auto_stores)
        kafka: KafkaCluster = request.getfixturevalue("kafka")
        make_topic: MakeTopic = request.getfixturevalue("make_topic")
        unique: Unique = request.getfixturevalue("unique")
        topic = make_topic()
        producer = Producer({"bootstrap.servers": kafka.bootstrap})
        for number in range(RECORDS):
            producer.produce(topic, str(number), partition=0)
        assert producer.flush(WITHIN_S) == 0
        real = Real(kafka.bootstrap, unique("group"), topic, auto_stores=auto_stores)
        made.append(real)
        # A broker that has not loaded the group's coordinator yet would have poll() return that as an error.
        real._eventually(real.committed)
        return real

    yield make
    for each in made:
        each.close()


@pytest.fixture(params=[False, True], ids=["application stores", "client stores"])
def auto_stores(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.fixture
def world(make: Callable[[bool], World]) -> World:
    return make(False)


def test_it_begins_at_the_committed_offset_and_at_the_logs_end_where_there_is_none(world: World) -> None:
    world.begin()
    assert world.silent()
    world.commit(4)
    assert world.silent(), "it looks for it only when it is assigned"

    world.begin()

    assert world.deliver(RECORDS - 4) == list(range(4, RECORDS))
    assert world.silent()


def test_its_position_is_known_once_something_was_delivered_since_it_was_assigned_or_sought(world: World) -> None:
    world.commit(2)
    world.begin()
    assert world.position() is None
    assert world.deliver(3) == [2, 3, 4]
    assert world.position() == 5

    world.seek(1)

    assert world.position() is None
    assert world.deliver(1) == [1]
    assert world.position() == 2
    world.begin()
    assert world.position() is None


def test_paused_it_delivers_nothing_also_of_what_it_has_fetched_and_goes_on_where_it_was(world: World) -> None:
    world.commit(0)
    world.begin()
    assert world.deliver(3) == [0, 1, 2]

    world.pause()

    assert world.silent()
    assert world.position() == 3
    world.commit(7)
    world.resume()
    assert world.deliver(2) == [3, 4], "not at what was committed meanwhile"


def test_sought_while_it_is_paused_it_goes_on_there_once_resumed(world: World) -> None:
    world.commit(0)
    world.begin()
    assert world.deliver(5) == [0, 1, 2, 3, 4]
    world.pause()

    world.seek(2)

    assert world.silent()
    world.resume()
    assert world.deliver(3) == [2, 3, 4]


@pytest.mark.parametrize("start", list(Start))
def test_it_begins_at_either_end_of_the_log_where_it_is_told(world: World, start: Start) -> None:
    world.begin()
    world.pause()
    world.begin_at(start)
    world.resume()
    if start is Start.EARLIEST:
        assert world.deliver(1) == [0]
    else:
        assert world.silent()


def test_a_partition_that_is_assigned_again_is_still_paused_and_has_nothing_stored(
    make: Callable[[bool], World], auto_stores: bool
) -> None:
    world = make(auto_stores)
    world.commit(0)
    world.begin()
    assert world.deliver(3) == [0, 1, 2]
    world.pause()

    world.begin()
    world.commit_stored()

    assert world.committed() == 0
    assert world.silent()
    world.resume()
    assert world.deliver(1) == [0]


def test_a_commit_of_what_is_stored_is_of_what_was_delivered_also_after_a_seek(
    make: Callable[[bool], World], auto_stores: bool
) -> None:
    world = make(auto_stores)
    world.commit(0)
    world.begin()
    assert world.deliver(3) == [0, 1, 2]
    world.pause()
    world.seek(1)

    world.commit_stored()

    assert world.committed() == 3


def test_what_the_application_stored_can_be_forgotten_and_what_the_client_stores_cannot(
    make: Callable[[bool], World], auto_stores: bool
) -> None:
    world = make(auto_stores)
    world.commit(0)
    world.begin()
    assert world.deliver(3) == [0, 1, 2]
    world.pause()
    world.forget()

    world.commit_stored()

    assert world.committed() == (3 if auto_stores else 0)
