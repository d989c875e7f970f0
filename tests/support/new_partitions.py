"""What consumers of several clients live through at once where partitions are old and new (KIP-1327).

Each has a group of its own:

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
from collections.abc import Callable, Collection, Mapping
from contextlib import ExitStack, closing
from functools import partial
from typing import Any, Final, Protocol, Self

from confluent_kafka import (
    TIMESTAMP_LOG_APPEND_TIME,
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    Producer,
)
from confluent_kafka import TopicPartition as ClientPartition
from confluent_kafka.admin import AdminClient, NewPartitions

from devstack.processes import eventually
from support.reset_trial import create_topic
from tidegate.control.codec import CLOCK_VALUE, encode_key, encode_value
from tidegate.control.records import ClockKey, Key, PartitionKey, PartitionSeen
from tidegate.kafka.connection import Connection
from tidegate.kafka_client.client import KafkaClient

MAX_AGE_MS: Final = 600_000
EARLIER: Final = 20
"""Records that each partition has before anybody reads it."""
OLD, NEW, INITIAL, COMMITTED, ADDED = range(5)
_OUT_OF_RANGE: Final = 10**15
_WITHIN_S: Final = 90.0

Given = Mapping[str, Mapping[int, list[int]]]
"""What each client was given, by partition."""


class Reader(Protocol):
    """One client's application: a consumer with ``latest`` and a maximum age of `MAX_AGE_MS`."""

    @property
    def group(self) -> str: ...

    def start(self) -> None: ...

    def offsets(self, partition: int) -> list[int]:
        """What it was given, in order. Raises what has ended the application."""

    def stop(self) -> None: ...


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
        assert eventually(lambda: self._broker_ms > 0, _WITHIN_S)
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
        assert self._producer.flush(_WITHIN_S) == 0

    def tell(self, topic: str, topic_id: str, partition: int, age_ms: int | None) -> None:
        """So long ago it was first seen; ``None``: at the first discovery."""
        seen = PartitionSeen(initial=True) if age_ms is None else PartitionSeen(self._broker_ms - age_ms)
        self._write(PartitionKey(topic, topic_id, partition), encode_value(seen))


def live_through(
    bootstrap: str, make_readers: Callable[[str], Mapping[str, Reader]], by_hand: Collection[str] = ()
) -> Given:
    """Once each has something of every partition it has. ``make_readers``: of a topic, by their names; ``by_hand``:
    those who assign the first partitions themselves. In one piece, since each step relies on those before."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    producer = Producer({"bootstrap.servers": bootstrap, "topic.metadata.refresh.interval.ms": 100})
    # Half of all ids have one of the two characters that base64 has in two forms: one of those it is to be.
    topic = topic_id = ""
    while not {"-", "_"} & set(topic_id):
        topic = f"expanded-{time.time_ns()}"
        create_topic(bootstrap, topic, ADDED)
        with closing(KafkaClient(Connection(bootstrap))) as client:
            topic_id = client.topics()[topic].topic_id

    def produce(*partitions: int, count: int = EARLIER) -> None:
        for partition in partitions:
            for _ in range(count):
                assert eventually(partial(took, partition), _WITHIN_S, every=0.02)
        assert producer.flush(_WITHIN_S) == 0

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
        wanted = ConsumerGroupTopicPartitions(group, [ClientPartition(topic, COMMITTED, _OUT_OF_RANGE)])
        [altered] = admin.alter_consumer_group_offsets([wanted]).values()
        return all(partition.error is None for partition in altered.result(30).topic_partitions)

    readers = make_readers(topic)
    subscribed = [name for name in readers if name not in by_hand]

    def read_on(names: Collection[str], *partitions: int) -> None:
        """Until each of these was given something of each partition."""

        def flows() -> bool:
            produce(*partitions, count=1)
            return all(readers[name].offsets(partition) for name in names for partition in partitions)

        assert eventually(flows, _WITHIN_S, every=0.2), [
            (name, partition) for name in names for partition in partitions if not readers[name].offsets(partition)
        ]

    with Discovery(bootstrap) as discovery, ExitStack() as stack:
        produce(OLD, NEW, INITIAL, COMMITTED)
        # Old by any reading of the clock: how late its records arrive here makes partitions seem younger.
        discovery.tell(topic, topic_id, OLD, 10 * MAX_AGE_MS)
        discovery.tell(topic, "AAAAAAAAAAAAAAAAAAAAAQ", OLD, 0)
        discovery.tell(topic, topic_id, NEW, 0)
        discovery.tell(topic, topic_id, INITIAL, None)
        discovery.tell(topic, topic_id, COMMITTED, 0)
        for reader in readers.values():
            assert eventually(partial(committed, reader.group), _WITHIN_S)
            reader.start()
            stack.callback(reader.stop)
        read_on(readers, OLD, NEW)
        read_on(subscribed, INITIAL, COMMITTED)
        admin.create_partitions([NewPartitions(topic, ADDED + 1)])[topic].result(30)
        produce(ADDED)
        discovery.tell(topic, topic_id, ADDED, 0)
        read_on(subscribed, ADDED)
        return {name: {p: reader.offsets(p) for p in range(5)} for name, reader in readers.items()}
