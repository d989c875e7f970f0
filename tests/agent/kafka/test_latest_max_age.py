"""New partitions under ``latest``, as KIP-1327 has them, for each client library and protocol on a real broker.

All clients live through the same at once, each with a group of its own:

* 0 is old, and so is only its own record, not the one of a topic of that name that was there before
* 1 is new
* 2 was there at the first discovery
* 3 is new, but the group has committed an offset that is out of range
* 4 is added while they run

The others have records before they start: only so can anybody tell where they begin.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from functools import partial
from typing import Any, Self

import pytest
from confluent_kafka import (
    TIMESTAMP_LOG_APPEND_TIME,
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    Producer,
)
from confluent_kafka import TopicPartition as ClientPartition
from confluent_kafka.admin import AdminClient, NewPartitions

from agent.kafka.confluent_application import Application as ConfluentApplication
from devstack import KafkaCluster
from devstack.processes import eventually
from support.gated_applications import KINDS, Application, Job, KafkaPythonApplication, parts_replaced
from support.reset_trial import create_topic
from tidegate.control.codec import CLOCK_VALUE, encode_key, encode_value
from tidegate.control.records import ClockKey, Key, PartitionKey, PartitionSeen
from tidegate.kafka.connection import Connection
from tidegate.kafka_client.client import KafkaClient
from tidegate_agent.settings import Settings

MAX_AGE_MS = 600_000
EARLIER = 20
OUT_OF_RANGE = 10**15
WITHIN_S = 90.0
OLD, NEW, INITIAL, COMMITTED, ADDED = range(5)
CLIENTS = {
    "librdkafka, range": {"protocol": "range"},
    "librdkafka, cooperative": {"protocol": "cooperative"},
    "librdkafka, KIP-848": {"protocol": "kip-848"},
    "librdkafka, assigned by hand": {"by_hand": True},
    "aiokafka": {},
    "kafka-python": {},
}
SUBSCRIBED = [name for name in CLIENTS if "by hand" not in name]


class PatientApplication(KafkaPythonApplication):
    """Its polls last as long as joining may: kafka-python 3.0 forgets a join whose poll ends under way."""

    def _batches(self, consumer: Any) -> Iterator[list[Any]]:
        for batch in consumer.poll(5_000).values():
            for record in batch:
                self._note(record)
            yield batch


PYTHON: dict[str, type[Application]] = {**KINDS, "kafka-python": PatientApplication}


class Reader:
    """One client's application; ``offsets`` has what it was given, by partition and in order."""

    def __init__(self, bootstrap: str, topic: str, name: str) -> None:
        self.group = f"{topic}-{name.replace(', ', '-').replace(' ', '-')}"
        librdkafka: dict[str, Any] = {
            "auto.offset.reset": "latest",
            "auto.offset.reset.latest.max.age": MAX_AGE_MS,
            "topic.metadata.refresh.interval.ms": 300,
        }
        python: dict[str, Any] = {
            "auto_offset_reset": "latest",
            "auto_offset_reset_latest_max_age": MAX_AGE_MS,
            "metadata_max_age_ms": 300,
        }
        self._confluent: ConfluentApplication | None = None
        if name in PYTHON:
            self._python = PYTHON[name](Job(bootstrap, self.group, [topic], Settings(), config=python))
            self._start = self._python.start
        else:
            options = CLIENTS[name]
            self._start = lambda: setattr(
                self, "_confluent", ConfluentApplication(bootstrap, self.group, topic, config=librdkafka, **options)
            )

    def start(self) -> None:
        self._start()

    def offsets(self, partition: int) -> list[int]:
        if self._confluent is not None:
            assert self._confluent.error is None, self._confluent.error
            return self._confluent.offsets(partition)
        assert not self._python.errors, self._python.errors
        return [given.offset for given in list(self._python.given) if given.partition == partition]

    def stop(self) -> None:
        if self._confluent is not None:
            self._confluent.close()
        else:
            self._python.stop()


class Discovery:
    """Writes the control topic as the operator does, with a plain producer, and the broker's time ever again."""

    def __init__(self, bootstrap: str) -> None:
        self._client = KafkaClient(Connection(bootstrap))
        assert self._client.control.ensure() == ()
        self._producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0})
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._tick, daemon=True)
        self._broker_ms = 0

    def __enter__(self) -> Self:
        self._thread.start()
        assert eventually(lambda: self._broker_ms > 0, WITHIN_S)
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join()
        self._client.close()

    def _tick(self) -> None:
        while not self._stopping.wait(0.3):
            self._write(ClockKey(), CLOCK_VALUE)

    def _write(self, key: Key, value: bytes | None) -> None:
        def written(error: object, message: Any) -> None:
            assert error is None
            kind, self._broker_ms = message.timestamp()
            assert kind == TIMESTAMP_LOG_APPEND_TIME

        self._producer.produce("__tidegate", value, encode_key(key), partition=0, on_delivery=written)
        assert self._producer.flush(WITHIN_S) == 0

    def tell(self, topic: str, topic_id: str, partition: int, age_ms: int | None) -> None:
        """So long ago it was first seen; ``None``: at the first discovery."""
        seen = PartitionSeen(initial=True) if age_ms is None else PartitionSeen(self._broker_ms - age_ms)
        self._write(PartitionKey(topic, topic_id, partition), encode_value(seen))


Given = dict[str, dict[int, list[int]]]
"""What each client was given, by partition."""


@pytest.fixture(scope="module")
def given(kafka: KafkaCluster) -> Iterator[Given]:
    """Once each has something of every partition it has."""
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "topic.metadata.refresh.interval.ms": 100})
    # Half of all ids have one of the two characters that base64 has in two forms: one of those it is to be.
    topic = topic_id = ""
    while not {"-", "_"} & set(topic_id):
        topic = f"expanded-{time.time_ns()}"
        create_topic(kafka.bootstrap, topic, ADDED)
        with closing(KafkaClient(Connection(kafka.bootstrap))) as client:
            topic_id = client.topics()[topic].topic_id

    def produce(*partitions: int, count: int = EARLIER) -> None:
        for partition in partitions:
            for _ in range(count):
                assert eventually(partial(took, partition), WITHIN_S, every=0.02)
        assert producer.flush(WITHIN_S) == 0

    def took(partition: int) -> bool:
        """The producer comes to know of new partitions when it looks at the topic again."""
        try:
            producer.produce(topic, b"x", partition=partition)
        except KafkaException as error:
            if error.args[0].code() != KafkaError._UNKNOWN_PARTITION:
                raise
            return False
        return True

    def committed(group: str) -> bool:
        """The group's coordinator may only just be loading; librdkafka may wait half a minute for one that was."""
        wanted = ConsumerGroupTopicPartitions(group, [ClientPartition(topic, COMMITTED, OUT_OF_RANGE)])
        [altered] = admin.alter_consumer_group_offsets([wanted]).values()
        return all(partition.error is None for partition in altered.result(30).topic_partitions)

    readers = {name: Reader(kafka.bootstrap, topic, name) for name in CLIENTS}

    def read_on(names: list[str], *partitions: int) -> None:
        """Until each of these was given something of each partition."""

        def flows() -> bool:
            produce(*partitions, count=1)
            return all(readers[name].offsets(partition) for name in names for partition in partitions)

        assert eventually(flows, WITHIN_S, every=0.2), [
            (name, partition) for name in names for partition in partitions if not readers[name].offsets(partition)
        ]

    with parts_replaced(), Discovery(kafka.bootstrap) as discovery, ExitStack() as stack:
        produce(OLD, NEW, INITIAL, COMMITTED)
        # Old by any reading of the clock: how late its records arrive here makes partitions seem younger.
        discovery.tell(topic, topic_id, OLD, 10 * MAX_AGE_MS)
        discovery.tell(topic, "AAAAAAAAAAAAAAAAAAAAAQ", OLD, 0)
        discovery.tell(topic, topic_id, NEW, 0)
        discovery.tell(topic, topic_id, INITIAL, None)
        discovery.tell(topic, topic_id, COMMITTED, 0)
        for reader in readers.values():
            assert eventually(partial(committed, reader.group), WITHIN_S)
            reader.start()
            stack.callback(reader.stop)
        read_on(list(CLIENTS), OLD, NEW)
        read_on(SUBSCRIBED, INITIAL, COMMITTED)
        admin.create_partitions([NewPartitions(topic, ADDED + 1)])[topic].result(30)
        produce(ADDED)
        discovery.tell(topic, topic_id, ADDED, 0)
        read_on(SUBSCRIBED, ADDED)
        yield {name: {p: reader.offsets(p) for p in range(5)} for name, reader in readers.items()}


@pytest.mark.parametrize("name", CLIENTS)
def test_a_new_partition_begins_at_its_first_record(given: Given, name: str) -> None:
    assert given[name][NEW] == list(range(len(given[name][NEW])))


@pytest.mark.parametrize("name", SUBSCRIBED)
def test_so_does_one_that_is_added_under_a_live_group(given: Given, name: str) -> None:
    assert given[name][ADDED] == list(range(len(given[name][ADDED])))


@pytest.mark.parametrize("name", CLIENTS)
def test_an_older_one_begins_at_latest(given: Given, name: str) -> None:
    assert given[name][OLD][0] >= EARLIER


@pytest.mark.parametrize("name", SUBSCRIBED)
def test_one_of_the_first_discovery_begins_at_latest(given: Given, name: str) -> None:
    assert given[name][INITIAL][0] >= EARLIER


@pytest.mark.parametrize("name", SUBSCRIBED)
def test_a_committed_offset_that_is_out_of_range_is_reset_to_latest_whatever_the_age(given: Given, name: str) -> None:
    assert given[name][COMMITTED][0] >= EARLIER
