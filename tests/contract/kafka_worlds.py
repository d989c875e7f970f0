"""The two worlds that the contract of ``tidegate.kafka.ports`` holds in: Kafka in memory, and a real cluster.

Each sets the scene in its own way: topics, records with given timestamps, consumers of a group.
"""

from __future__ import annotations

import contextlib
import itertools
import queue
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from datetime import UTC, datetime
from typing import Any, Final, Protocol

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka import TopicPartition as ClientTopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic
from kafka import KafkaConsumer
from kafka.structs import OffsetAndMetadata
from kafka.structs import TopicPartition as KafkaPartition

from support.fake_consumer import FakeConsumer
from support.fake_kafka import FakeClock, FakeKafka, FakeProducer
from tidegate.clock import Clock, SystemClock
from tidegate.cluster import Kafka
from tidegate.kafka.connection import Connection
from tidegate.kafka.errors import Unavailable
from tidegate.kafka.model import GroupState, GroupType, Offsets, TopicPartition
from tidegate.kafka_client.client import KafkaClient

HEARTBEAT_S: Final = 0.5


class WorldConsumer(Protocol):
    """One consumer that owns what its group assigned to it. It never commits by itself."""

    def commit(self, offsets: Offsets) -> object: ...

    def metadata(self) -> Any:
        """By which a producer names it as it sends its offsets; as the consumer knows itself."""
        ...

    def close(self) -> None: ...


class WorldProducer(Protocol):
    """An application's transactional producer."""

    def send_offsets(self, group_id: str, offsets: Offsets, member: Any | None) -> bool:
        """Add them to the transaction, which begins if none is open; whether they are taken. If not, it is aborted.

        ``member``: what a consumer's ``metadata`` told; without one the producer names the group only.
        """
        ...

    def end(self, *, commit: bool) -> None: ...


class World(Protocol):
    """Kafka with the means to set a scene. Names of topics are new each time."""

    @property
    def kafka(self) -> Kafka: ...

    @property
    def clock(self) -> Clock: ...

    def create_topic(self, partitions: int) -> str: ...

    def create_log(self) -> str:
        """A topic of one partition for a writer's own records."""
        ...

    def committed_records(self, topic: str) -> list[tuple[bytes, bytes]]:
        """Keys and values in such a topic, as those find who read committed records."""
        ...

    def add_partitions(self, name: str, partitions: int) -> None:
        """Expand a topic to so many."""
        ...

    def delete_topic(self, name: str) -> None: ...

    def recreate_topic(self, name: str, partitions: int) -> None: ...

    def append(self, partition: TopicPartition, times: Iterable[datetime]) -> None: ...

    def append_transaction(self, partition: TopicPartition) -> None:
        """One record, and the marker of the transaction that wrote it: an offset that holds no record."""
        ...

    def delete_records(self, partition: TopicPartition, before: int) -> None: ...

    def consumer(
        self, group_id: str, topics: Sequence[str], *, protocol: GroupType = GroupType.CLASSIC, assignor: str = ""
    ) -> WorldConsumer:
        """Start a consumer; returns when the group is stable. ``assignor``: of a classic group, the client's default
        without."""
        ...

    def leave_commit(self, group_id: str, partition: TopicPartition, metadata: str) -> None:
        """A commit with this metadata, in a group that nobody is in."""
        ...

    def producer(self, *, timeout_s: float = 60.0) -> WorldProducer:
        """``timeout_s``: how long its transactions may be open."""
        ...

    def close(self) -> None: ...


def until(world: World, reached: Callable[[], bool], what: str, *, timeout_s: float = 20.0) -> None:
    """Look again and again. Raises ``AssertionError`` when ``timeout_s`` have passed."""
    limit = world.clock.monotonic() + timeout_s
    while not reached():
        assert world.clock.monotonic() < limit, f"not within {timeout_s} s: {what}"
        world.clock.sleep(0.02)


def commit_plainly(world: World, group_id: str, offsets: Offsets) -> None:
    """``alter``, again where the coordinator is not there yet: then nothing was done."""
    altering = world.kafka.writer(group_id, transaction_timeout_s=20)

    def done() -> bool:
        try:
            altering.alter(group_id, offsets)
        except Unavailable:
            return False
        return True

    until(world, done, f"offsets of group {group_id} are committed")


def _wait_stable(world: World, group_id: str) -> None:
    def stable() -> bool:
        group = world.kafka.groups([group_id])[group_id]
        return group.state is GroupState.STABLE and all(m.assignment for m in group.members)

    until(world, stable, f"group {group_id} is stable")


class FakeWorld:
    """Kafka in memory."""

    def __init__(self) -> None:
        self._clock = FakeClock()
        self._kafka = FakeKafka(self._clock)
        self._kafka.create_topic("__consumer_offsets", 1)
        self._numbers = itertools.count()

    @property
    def kafka(self) -> FakeKafka:
        return self._kafka

    @property
    def clock(self) -> FakeClock:
        return self._clock

    def create_topic(self, partitions: int) -> str:
        name = f"contract-{next(self._numbers)}"
        self._kafka.create_topic(name, partitions)
        return name

    def create_log(self) -> str:
        name = f"log-{next(self._numbers)}"
        self._kafka.audit.topics.add(name)
        return name

    def committed_records(self, topic: str) -> list[tuple[bytes, bytes]]:
        return list(self._kafka.audit.values[topic])

    def add_partitions(self, name: str, partitions: int) -> None:
        self._kafka.add_partitions(name, partitions)

    def delete_topic(self, name: str) -> None:
        self._kafka.delete_topic(name)

    def recreate_topic(self, name: str, partitions: int) -> None:
        self._kafka.delete_topic(name)
        self._kafka.create_topic(name, partitions)

    def append(self, partition: TopicPartition, times: Iterable[datetime]) -> None:
        self._kafka.append(partition, times)

    def append_transaction(self, partition: TopicPartition) -> None:
        self._kafka.append(partition, [datetime.fromtimestamp(1, UTC)])
        self._kafka.append_gap(partition)

    def delete_records(self, partition: TopicPartition, before: int) -> None:
        self._kafka.delete_records(partition, before)

    def consumer(
        self, group_id: str, topics: Sequence[str], *, protocol: GroupType = GroupType.CLASSIC, assignor: str = ""
    ) -> FakeConsumer:
        consumer = FakeConsumer(
            self._kafka,
            group_id,
            topics,
            protocol=protocol,
            assignor=assignor or ("range" if protocol is GroupType.CLASSIC else "uniform"),
            heartbeat_s=HEARTBEAT_S,
            auto_commit_s=None,
        ).start()
        _wait_stable(self, group_id)
        return consumer

    def leave_commit(self, group_id: str, partition: TopicPartition, metadata: str) -> None:
        self._kafka.commit_directly(group_id, {partition: 0}, metadata)

    def producer(self, *, timeout_s: float = 60.0) -> FakeProducer:
        return FakeProducer(self._kafka, timeout_s=timeout_s)

    def close(self) -> None:
        self._kafka.close()


class RealWorld:
    """A cluster at ``bootstrap``."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._admin = AdminClient({"bootstrap.servers": bootstrap})
        self._kafka = KafkaClient(Connection(bootstrap))
        self._clock = SystemClock()
        self._consumers: list[_RealConsumer] = []

    @property
    def kafka(self) -> KafkaClient:
        return self._kafka

    @property
    def clock(self) -> SystemClock:
        return self._clock

    def create_topic(self, partitions: int) -> str:
        name = f"contract-{uuid.uuid4().hex[:12]}"
        self._create(name, partitions)
        return name

    def _create(self, name: str, partitions: int) -> None:
        def created() -> bool:
            try:
                self._admin.create_topics([NewTopic(name, partitions, 1)])[name].result()
            except KafkaException:
                return False  # a topic that is just being deleted still has its name
            return True

        until(self, created, f"topic {name} is created")
        until(self, lambda: name in self._kafka.topics(), f"topic {name} is there")

    def create_log(self) -> str:
        return self.create_topic(1)

    def committed_records(self, topic: str) -> list[tuple[bytes, bytes]]:
        reader = Consumer(
            {
                "bootstrap.servers": self._bootstrap,
                "group.id": "contract-reader",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "isolation.level": "read_committed",
            }
        )
        found: list[tuple[bytes, bytes]] = []
        try:
            reader.assign([ClientTopicPartition(topic, 0, 0)])
            while (message := reader.poll(20)) is not None and message.error() is None:
                key, value = message.key(), message.value()
                assert isinstance(key, bytes)
                assert isinstance(value, bytes)
                found.append((key, value))
        finally:
            reader.close()
        return found

    def add_partitions(self, name: str, partitions: int) -> None:
        self._admin.create_partitions([NewPartitions(name, partitions)])[name].result()

    def delete_topic(self, name: str) -> None:
        self._admin.delete_topics([name])[name].result()
        until(self, lambda: name not in self._kafka.topics(), f"topic {name} is gone")

    def recreate_topic(self, name: str, partitions: int) -> None:
        self.delete_topic(name)
        self._create(name, partitions)

    def append(self, partition: TopicPartition, times: Iterable[datetime]) -> None:
        producer = Producer({"bootstrap.servers": self._bootstrap, "acks": "all"})
        for at in times:
            producer.produce(
                partition.topic, b"record", partition=partition.partition, timestamp=round(at.timestamp() * 1000)
            )
        assert producer.flush(20) == 0

    def append_transaction(self, partition: TopicPartition) -> None:
        producer = Producer({"bootstrap.servers": self._bootstrap, "transactional.id": f"contract-{uuid.uuid4().hex}"})
        producer.init_transactions(20)
        producer.begin_transaction()
        begin = self._kafka.log_bounds([partition])[partition].latest
        producer.produce(partition.topic, b"record", partition=partition.partition, timestamp=1000)
        producer.commit_transaction(20)
        # The coordinator answers before it has written the markers.
        until(self, lambda: self._kafka.log_bounds([partition])[partition].latest == begin + 2, "the marker is written")

    def delete_records(self, partition: TopicPartition, before: int) -> None:
        asked = ClientTopicPartition(partition.topic, partition.partition, before)
        for future in self._admin.delete_records([asked]).values():
            future.result()

    def consumer(
        self, group_id: str, topics: Sequence[str], *, protocol: GroupType = GroupType.CLASSIC, assignor: str = ""
    ) -> _RealConsumer:
        consumer = _RealConsumer(self._bootstrap, group_id, topics, protocol, assignor)
        self._consumers.append(consumer)
        _wait_stable(self, group_id)
        return consumer

    def leave_commit(self, group_id: str, partition: TopicPartition, metadata: str) -> None:
        # confluent-kafka writes a byte more.
        consumer = KafkaConsumer(bootstrap_servers=self._bootstrap, group_id=group_id, enable_auto_commit=False)
        place = KafkaPartition(partition.topic, partition.partition)
        consumer.assign([place])
        consumer.commit({place: OffsetAndMetadata(0, metadata, -1)})
        consumer.close()

    def producer(self, *, timeout_s: float = 60.0) -> _RealProducer:
        return _RealProducer(self._bootstrap, timeout_s)

    def close(self) -> None:
        for consumer in self._consumers:
            consumer.close()
        self._kafka.close()


class _RealConsumer:
    """Polls in a thread."""

    def __init__(
        self, bootstrap: str, group_id: str, topics: Sequence[str], protocol: GroupType, assignor: str
    ) -> None:
        config: dict[str, Any] = {
            "bootstrap.servers": bootstrap,
            "group.id": group_id,
            "group.protocol": str(protocol),
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
        }
        if protocol is GroupType.CLASSIC:
            config |= {
                "heartbeat.interval.ms": int(HEARTBEAT_S * 1000),
                "session.timeout.ms": 10_000,
                "partition.assignment.strategy": assignor or "range",
            }
        self._consumer = Consumer(config)
        self._consumer.subscribe(list(topics))
        self._stop = threading.Event()
        self._calls: queue.Queue[tuple[Callable[[], object], Future[object]]] = queue.Queue()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.is_set():
            self._consumer.poll(0.05)
            with contextlib.suppress(queue.Empty):
                call, answer = self._calls.get_nowait()
                try:
                    answer.set_result(call())
                except KafkaException as error:
                    answer.set_exception(error)

    def _between_polls(self, call: Callable[[], object]) -> object:
        """As an application does it; asked by another thread than the one that polls, the metadata never came."""
        answer: Future[object] = Future()
        self._calls.put((call, answer))
        return answer.result(20)

    def commit(self, offsets: Offsets) -> object:
        rows = [ClientTopicPartition(p.topic, p.partition, o) for p, o in offsets.items()]
        deadline = time.monotonic() + 20
        while True:
            try:
                return self._between_polls(lambda: self._consumer.commit(offsets=rows, asynchronous=False))
            except KafkaException as error:
                # KIP-848: the coordinator has raised the member's epoch, and its heartbeat has not brought it yet.
                if error.args[0].code() != KafkaError.STALE_MEMBER_EPOCH or time.monotonic() > deadline:
                    raise

    def metadata(self) -> object:
        return self._between_polls(self._consumer.consumer_group_metadata)

    def close(self) -> None:
        if not self._stop.is_set():
            self._stop.set()
            self._thread.join(10)
            self._consumer.close()


class _RealProducer:
    def __init__(self, bootstrap: str, timeout_s: float) -> None:
        self._bootstrap = bootstrap
        self._is_open = False
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "transactional.id": f"contract-{uuid.uuid4().hex}",
                "transaction.timeout.ms": int(timeout_s * 1000),
                # librdkafka wants it to be no longer than the transaction's.
                "socket.timeout.ms": int(min(timeout_s, 20) * 1000),
            }
        )
        self._producer.init_transactions(20)

    def send_offsets(self, group_id: str, offsets: Offsets, member: Any | None) -> bool:
        if not self._is_open:
            self._producer.begin_transaction()
            self._is_open = True
        rows = [ClientTopicPartition(p.topic, p.partition, o) for p, o in offsets.items()]
        try:
            self._producer.send_offsets_to_transaction(rows, member or self._nobody(group_id), 20)
        except KafkaException as error:
            if not error.args[0].txn_requires_abort():
                raise
            self.end(commit=False)
            return False
        return True

    def _nobody(self, group_id: str) -> object:
        """Of a consumer that has joined no group: generation -1, and no member id."""
        consumer = Consumer({"bootstrap.servers": self._bootstrap, "group.id": group_id})
        try:
            return consumer.consumer_group_metadata()
        finally:
            consumer.close()

    def end(self, *, commit: bool) -> None:
        if self._is_open:
            self._is_open = False
            self._producer.commit_transaction(20) if commit else self._producer.abort_transaction(20)


def new_group() -> str:
    return f"contract-{uuid.uuid4().hex[:12]}"
