"""A consumer that obeys gates as `agents/contract` has it: no more than the operator's tests need of an agent."""

from __future__ import annotations

import contextlib
import threading
import time
from typing import Any, Final, Self

from confluent_kafka import Consumer, KafkaException, Producer, TopicCollection
from confluent_kafka import TopicPartition as ClientTopicPartition
from confluent_kafka.admin import AdminClient

from tidegate.control.codec import encode_key, encode_value
from tidegate.control.gates import Gates
from tidegate.control.records import Ack, AckKey
from tidegate.kafka.connection import Connection, acks_topic
from tidegate.kafka.errors import KafkaFailure
from tidegate.kafka.model import TopicPartition
from tidegate.kafka_client.client import KafkaClient

_LOOK_S: Final = 0.5
"""How often it looks whether the control topic is still the same one."""
_ANSWERED_S: Final = 5.0
"""For how long it waits for that: it is asked again."""


class StubAgent:
    """One member of a group in a thread, with the agent unless `managed` is false.

    `read` has the records it was given, by partition: (time, offset), the time as `time.monotonic`. It commits each
    record when it asks for the next. While it does not `obey`, it goes on with what it was given, as an agent whose
    application is busy.
    """

    def __init__(
        self,
        bootstrap: str,
        group: str,
        *topics: str,
        control_topic: str = "__tidegate",
        managed: bool = True,
        client_id: str = "stub",
    ) -> None:
        self.read: dict[TopicPartition, list[tuple[float, int]]] = {}
        self.failure: BaseException | None = None
        self.obeys = True
        self._bootstrap = bootstrap
        self._group = group
        self._topics = topics
        self._control_topic = control_topic
        self._acks = acks_topic(control_topic)
        self._client = KafkaClient(Connection(bootstrap, control_topic=control_topic)) if managed else None
        self._client_id = client_id
        self._assigned: set[TopicPartition] = set()
        self._said: dict[TopicPartition, int] = {}
        self._closed: set[TopicPartition] = set()
        self._control_topic_id = ""
        self._looks_at = 0.0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=client_id, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(30)
        assert self.failure is None, self.failure

    @property
    def assigned(self) -> frozenset[TopicPartition]:
        return frozenset(self._assigned)

    def count(self, topic: str, partition: int) -> int:
        """How many records of a partition it was given."""
        return len(self.read.get(TopicPartition(topic, partition), ()))

    def _run(self) -> None:
        config: dict[str, Any] = {
            "bootstrap.servers": self._bootstrap,
            "group.id": self._group,
            "client.id": self._client_id,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "partition.assignment.strategy": "range",
            "heartbeat.interval.ms": 300,
            "session.timeout.ms": 6000,
            "topic.metadata.refresh.interval.ms": 500,
            "log_level": 0,
        }
        consumer = Consumer(config)
        producer = Producer({"bootstrap.servers": self._bootstrap, "linger.ms": 0, "log_level": 0})
        admin = AdminClient({"bootstrap.servers": self._bootstrap, "log_level": 0})

        def assigned(_: Consumer, partitions: list[ClientTopicPartition]) -> None:
            self._assigned = {TopicPartition(p.topic, p.partition) for p in partitions}
            # Nothing of them is delivered before their gates were read.
            if self._client is not None:
                consumer.assign(partitions)
                consumer.pause(partitions)

        def revoked(_: Consumer, __: list[ClientTopicPartition]) -> None:
            self._assigned = set()
            self._said.clear()
            self._closed.clear()

        consumer.subscribe(list(self._topics), on_assign=assigned, on_revoke=revoked, on_lost=revoked)
        try:
            while not self._stop.is_set():
                self._poll(consumer)
                if self._client is not None and self._assigned:
                    # Without its topics an agent goes on with what it knows; of new ones it acks all anew.
                    with contextlib.suppress(KafkaFailure):
                        gates = self._client.control.read()
                        self._forget_another_topics(admin)
                        if self._client.control.exist:
                            self._obey(consumer, producer, gates)
                        else:
                            self._said.clear()
                            consumer.resume([ClientTopicPartition(*_pair(p)) for p in self._assigned - self._closed])
        except BaseException as error:  # told by whoever waits for this thread
            self.failure = error
            raise
        finally:
            consumer.close()
            if self._client is not None:
                self._client.control.close()
                self._client.close()

    def _poll(self, consumer: Consumer) -> None:
        message = consumer.poll(0.02)
        if message is None or message.error() is not None:
            return
        partition, offset = TopicPartition(message.topic(), message.partition()), message.offset()
        assert partition not in self._closed, f"{partition} was delivered while its gate was closed"
        self.read.setdefault(partition, []).append((time.monotonic(), offset))
        with contextlib.suppress(KafkaException):  # a rebalance is under way: it is read again
            consumer.commit(offsets=[ClientTopicPartition(*_pair(partition), offset + 1)], asynchronous=False)

    def _forget_another_topics(self, admin: AdminClient) -> None:
        """Epochs are offsets: those of a topic that was made again may be the same, and mean something else."""
        if time.monotonic() < self._looks_at:
            return
        self._looks_at = time.monotonic() + _LOOK_S
        asked = TopicCollection([self._control_topic])
        described = admin.describe_topics(asked, request_timeout=_ANSWERED_S)[self._control_topic]
        with contextlib.suppress(KafkaException, TimeoutError):  # there is none, or no broker answers
            found = str(described.result(_ANSWERED_S + 1).topic_id)
            if self._control_topic_id not in ("", found):
                self._said.clear()
            self._control_topic_id = found

    def _obey(self, consumer: Consumer, producer: Producer, gates: Gates) -> None:
        for partition in self._assigned:
            epoch, here = gates.epoch(self._group, partition), ClientTopicPartition(*_pair(partition))
            if epoch is not None:
                if self.obeys and self._said.get(partition) != epoch:
                    consumer.pause([here])
                    self._closed.add(partition)
                    self._ack(consumer, producer, partition, epoch)
            elif partition in self._closed or partition not in self._said:
                committed = consumer.committed([here], 10)[0]
                if partition in self._closed and committed.offset >= 0:
                    consumer.seek(committed)
                consumer.resume([here])
                self._closed.discard(partition)
                newest = max((held.epoch for held in gates.holds.values()), default=0)
                self._ack(consumer, producer, partition, newest, said=-1)

    def _ack(
        self, consumer: Consumer, producer: Producer, partition: TopicPartition, epoch: int, said: int | None = None
    ) -> None:
        here = ClientTopicPartition(*_pair(partition))
        position = consumer.position([here])[0].offset
        if position < 0:
            position = max(-1, consumer.committed([here], 10)[0].offset)
        key = AckKey(self._group, partition.topic, partition.partition)
        producer.produce(self._acks, encode_value(Ack(epoch, position, consumer.memberid() or "")), encode_key(key))
        producer.flush(10)
        self._said[partition] = epoch if said is None else said


def _pair(partition: TopicPartition) -> tuple[str, int]:
    return partition.topic, partition.partition
