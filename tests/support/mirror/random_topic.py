"""A topic with a random log: transactions that are committed, aborted and interleaved, all codecs, tombstones, records
without a key, headers, compaction, a start above 0.
"""

from __future__ import annotations

import random
import time
from collections.abc import Mapping

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from devstack.processes import eventually

COMPACTED: Mapping[str, str] = {
    "cleanup.policy": "compact",
    "segment.ms": "300",
    "min.cleanable.dirty.ratio": "0.01",
    "max.compaction.lag.ms": "500",
    "delete.retention.ms": "600000",
}
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


class RandomTopic:
    def __init__(self, bootstrap: str, topic: str, seed: int, *, compacts: bool = False) -> None:
        self.topic = topic
        self._random = random.Random(seed)
        self._servers = {"bootstrap.servers": bootstrap}
        self._keys = 40 if compacts else 1000
        self._compacts = compacts
        self._plain = [self._producer(codec) for codec in CODECS]
        self._transactional = [self._producer(codec, f"{topic}-{codec}") for codec in CODECS[:3]]
        for producer in self._transactional:
            producer.init_transactions()
        self._open = [False] * len(self._transactional)

    def _producer(self, codec: str, transactional_id: str | None = None) -> Producer:
        named = {} if transactional_id is None else {"transactional.id": transactional_id}
        linger = self._random.choice([0, 5])
        return Producer({**self._servers, **named, "linger.ms": linger, "compression.type": codec})

    def write(self, records: int) -> None:
        """At least so many, and end all transactions."""
        rnd, sent = self._random, 0
        while sent < records:
            step, count = rnd.random(), rnd.randrange(1, 50)
            which = rnd.randrange(len(self._open))
            if step < 0.35:
                self._send(rnd.choice(self._plain), count)
                sent += count
            elif step < 0.75:
                if not self._open[which]:
                    self._transactional[which].begin_transaction()
                    self._open[which] = True
                self._send(self._transactional[which], count)
                sent += count
            elif self._open[which]:
                self._end(which, commits=rnd.random() < 0.55)
        for which, is_open in enumerate(self._open):
            if is_open:
                self._end(which, commits=True)
        self._send(self._plain[0], 5)

    def _end(self, which: int, *, commits: bool) -> None:
        producer = self._transactional[which]
        if commits:
            producer.commit_transaction()
        else:
            producer.abort_transaction()
        self._open[which] = False

    def _send(self, producer: Producer, count: int) -> None:
        rnd = self._random
        for _ in range(count):
            key = f"k{rnd.randrange(self._keys)}" if self._compacts or rnd.random() < 0.9 else None
            value = None if rnd.random() < 0.15 else rnd.randbytes(rnd.randrange(200))
            headers = [("h", rnd.randbytes(3)), ("n", None)] if rnd.random() < 0.3 else []
            time_ms = 1_600_000_000_000 + rnd.randrange(10**9)
            producer.produce(self.topic, value, key, 0, timestamp=time_ms, headers=headers)
        assert not producer.flush(30)

    def compact(self) -> None:
        """Write until the broker has removed records from the log.

        It may have done so before the first look: then it does again, as what is written supersedes what is there.
        """
        seen: set[int] = set()

        def removed() -> bool:
            there = consumed(self._servers["bootstrap.servers"], self.topic)[2].keys()
            gone = seen - there
            seen.update(there)
            self._send(self._plain[0], 1)
            return bool(gone)

        assert eventually(removed, 120), "the broker has removed nothing"

    def delete_before(self, offset: int) -> None:
        admin = AdminClient(self._servers)
        for future in admin.delete_records([TopicPartition(self.topic, 0, offset)]).values():
            future.result(30)


Seen = dict[int, tuple[object, ...]]


def consumed(bootstrap: str, topic: str, isolation: str = "read_committed") -> tuple[int, int, Seen]:
    """Start, end, and what a consumer sees, by offset."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "mirror-verification",
            "isolation.level": isolation,
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    partition = TopicPartition(topic, 0)
    low, high = consumer.get_watermark_offsets(partition, timeout=30, cached=False)
    consumer.assign([TopicPartition(topic, 0, low)])
    found: Seen = {}
    deadline = time.monotonic() + 60
    at_end = low == high
    while not at_end:
        assert time.monotonic() < deadline
        for message in consumer.consume(5000, 0.5):
            if message.error():
                at_end = True
            else:
                found[message.offset()] = (message.timestamp(), message.key(), message.value(), message.headers())
    consumer.close()
    return low, high, found
