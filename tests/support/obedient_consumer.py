"""A consumer that keeps the contract of ``agents/contract`` by itself, for tests of whoever pauses it.

Slow and plain on purpose: it looks at the gates between two polls. The agents have tests of their own.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from contextlib import closing
from typing import Any

from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka import TopicPartition as ClientTopicPartition

from support.operator_process import until
from tidegate.control.codec import encode_key, encode_value
from tidegate.control.gates import Gates
from tidegate.control.records import Ack, AckKey
from tidegate.kafka.connection import Connection, acks_topic
from tidegate.kafka.model import TopicPartition
from tidegate.kafka_client.client import KafkaClient

_POLL_S = 0.05


class ObedientConsumer:
    """Joins at once and reads until it is closed. ``delivered``: offsets by partition, in order. While ``obeys`` is not
    set it reads on and acks nothing, so that whoever closes its gates waits for it.
    """

    def __init__(self, bootstrap: str, group: str, topic: str, control_topic: str, **settings: Any) -> None:
        self.group = group
        self.delivered: defaultdict[TopicPartition, list[int]] = defaultdict(list)
        self._acks = acks_topic(control_topic)
        self._client = KafkaClient(Connection(bootstrap, control_topic=control_topic))
        self._client.control.ensure()
        self._producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0})
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "client.id": "obedient",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                **settings,
            }
        )
        self._said: dict[TopicPartition, int] = {}
        """Epochs of the closed gates that were acked; −1: open."""
        self.obeys = threading.Event()
        self.obeys.set()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._read)
        self._consumer.subscribe([topic], on_assign=lambda *_: self._said.clear())
        self._thread.start()

    @property
    def owned(self) -> set[TopicPartition]:
        return {TopicPartition(p.topic, p.partition) for p in self._consumer.assignment()}

    def wait_for(self, partitions: int) -> ObedientConsumer:
        """Until it owns so many and has acked each."""
        until(lambda: len(self.owned) == partitions and set(self._said) >= self.owned, f"{partitions} partitions")
        return self

    def count(self, partition: TopicPartition) -> int:
        return len(self.delivered[partition])

    def close(self) -> None:
        self._stop.set()
        self._thread.join()

    def _read(self) -> None:
        with closing(self._client), closing(self._consumer):
            while not self._stop.is_set():
                if self.obeys.is_set():
                    self._obey(self._client.control.read())
                message = self._consumer.poll(_POLL_S)
                if message is None or message.error() is not None:
                    continue
                partition = TopicPartition(message.topic() or "", message.partition() or 0)
                if self._said.get(partition, -1) >= 0:
                    continue  # fetched before the gate closed
                self.delivered[partition].append(message.offset() or 0)
                self._consumer.commit(message=message, asynchronous=False)

    def _obey(self, gates: Gates) -> None:
        for owned in self._consumer.assignment():
            partition = TopicPartition(owned.topic, owned.partition)
            epoch = gates.epoch(self.group, partition)
            said = self._said.get(partition)
            if said == (-1 if epoch is None else epoch):
                continue
            if epoch is not None:
                self._consumer.pause([owned])
            elif said is not None:
                self._go_on(owned)
            self._say(partition, epoch, gates)

    def _go_on(self, owned: ClientTopicPartition) -> None:
        [committed] = self._consumer.committed([owned], timeout=10)
        if committed.offset is not None and committed.offset >= 0:
            until(lambda: self._sought(committed), f"a seek to {committed}")
        self._consumer.resume([owned])

    def _sought(self, target: ClientTopicPartition) -> bool:
        try:
            self._consumer.seek(target)
        except KafkaException:
            return False  # its fetcher has not begun
        return True

    def _say(self, partition: TopicPartition, epoch: int | None, gates: Gates) -> None:
        newest = max((held.epoch for held in gates.holds.values()), default=0)
        [position] = self._consumer.position([ClientTopicPartition(partition.topic, partition.partition)])
        offset = position.offset if position.offset is not None and position.offset >= 0 else -1
        ack = Ack(newest if epoch is None else epoch, offset, self._consumer.memberid())
        key = encode_key(AckKey(self.group, partition.topic, partition.partition))
        self._producer.produce(self._acks, encode_value(ack), key)
        assert self._producer.flush(10) == 0
        self._said[partition] = -1 if epoch is None else epoch
