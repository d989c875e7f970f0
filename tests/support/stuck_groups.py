"""Consumers in threads of this process that read as applications do: well, slowly, or not past one record."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Final

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

POISON: Final = b"poison"


class Reader:
    """A member of a group of its own, of committed records only. It commits every ``batch`` records, or by itself every
    ``auto_commit_s``, and takes ``takes_s`` for each; at a record ``POISON`` it fails, goes back to it and tries again,
    for ever."""

    def __init__(
        self,
        bootstrap: str,
        group: str,
        topic: str,
        *,
        takes_s: float = 0.0,
        batch: int = 1,
        auto_commit_s: float | None = None,
    ) -> None:
        self.group = group
        self.read: list[tuple[int, int]] = []
        """Partition and offset of each record that was handled."""
        self._topic, self._takes_s, self._batch = topic, takes_s, batch
        self._commits = auto_commit_s is None
        self._ends = threading.Event()
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "enable.auto.commit": auto_commit_s is not None,
                "auto.commit.interval.ms": 5000 if auto_commit_s is None else int(auto_commit_s * 1000),
                "enable.auto.offset.store": False,
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
                "log_level": 0,
            }
        )
        self._thread = threading.Thread(target=self._run, name=group, daemon=True)

    def start(self) -> None:
        self._consumer.subscribe([self._topic])
        self._thread.start()

    def stop(self) -> None:
        self._ends.set()
        self._thread.join(30)
        assert not self._thread.is_alive()
        self._consumer.close()

    def _run(self) -> None:
        done: dict[int, int] = {}
        handled = 0
        while not self._ends.is_set():
            message = self._consumer.poll(0.1)
            if message is None or message.error() is not None:
                continue
            partition, offset = message.partition(), message.offset()
            assert partition is not None
            assert offset is not None
            if message.value() == POISON:
                self._ends.wait(0.05)
                with contextlib.suppress(KafkaException):  # it was revoked meanwhile
                    self._consumer.seek(TopicPartition(self._topic, partition, offset))
                continue
            self._ends.wait(self._takes_s)
            self.read.append((partition, offset))
            done[partition] = offset + 1
            handled += 1
            if not self._commits:
                with contextlib.suppress(KafkaException):  # it was revoked meanwhile
                    self._consumer.store_offsets(message)
            elif handled % self._batch == 0:
                with contextlib.suppress(KafkaException):  # a rebalance was faster
                    self._consumer.commit(
                        offsets=[TopicPartition(self._topic, p, at) for p, at in done.items()], asynchronous=False
                    )
                done = {}


class Flow:
    """A record to every partition of the topics again and again."""

    def __init__(self, bootstrap: str, topics: dict[str, int], every_s: float = 0.2) -> None:
        self._producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0, "linger.ms": 0})
        self._topics, self._every_s = topics, every_s
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run, name="flow", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._ends.set()
        self._thread.join(30)
        assert self._producer.flush(30) == 0

    def plant(self, topic: str, partition: int, value: bytes = POISON) -> int:
        """Write a record; its offset."""
        written: list[int] = []
        self._producer.produce(
            topic,
            value,
            key=b"k",
            partition=partition,
            headers=[("trace", b"1")],
            on_delivery=lambda _error, message: written.append(message.offset()),
        )
        assert self._producer.flush(30) == 0
        return written[0]

    def _run(self) -> None:
        number = 0
        while not self._ends.wait(self._every_s):
            number += 1
            for topic, partitions in self._topics.items():
                for partition in range(partitions):
                    self._producer.produce(topic, str(number).encode(), partition=partition)
            self._producer.poll(0)


@contextlib.contextmanager
def running(*parts: Reader | Flow) -> Iterator[None]:
    """Started in this order, and stopped the other way round."""
    started: list[Reader | Flow] = []
    try:
        for part in parts:
            part.start()
            started.append(part)
        yield
    finally:
        for part in reversed(started):
            part.stop()
