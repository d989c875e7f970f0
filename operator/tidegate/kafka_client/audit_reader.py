"""Reading an audit topic: what is committed, from its start or from a time on, to its end or on and on."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from confluent_kafka import Consumer, KafkaError, KafkaException
from confluent_kafka import TopicPartition as ClientTopicPartition

from tidegate.audit.codec import Unreadable, decode_change
from tidegate.audit.records import Part
from tidegate.kafka.connection import Connection
from tidegate.kafka.errors import Refused, Unavailable, UnknownPartitions
from tidegate.kafka.model import TopicPartition
from tidegate.kafka.rights import on_topics
from tidegate.kafka_client.librdkafka import failure, silent_logger
from tidegate.kafka_client.log_offsets import EARLIEST, LATEST, LogOffsets
from tidegate.kafka_client.settings import librdkafka_config
from tidegate.kafka_client.wire import Wire
from tidegate.versions import NewerVersion

_POLL_S: Final = 0.2
_BATCH: Final = 1000
_SILENT_S: Final = 30.0
"""So long without a word from the brokers, before the end is reached, is a failure."""


@dataclass(frozen=True, slots=True)
class Read:
    """``at_ms``: the record's timestamp."""

    part: Part
    offset: int
    at_ms: int


@dataclass(slots=True)
class Left:
    """What was not read: ``unreadable`` are no records of the audit log, ``newer`` are of a later version, and
    ``undecided`` offsets lie behind a transaction that is still open."""

    unreadable: int = 0
    newer: int = 0
    undecided: int = 0


class AuditReader:
    """Of partition 0 of one topic, which all records are in. For one thread."""

    def __init__(self, connection: Connection, topic: str) -> None:
        self._connection = connection
        self._wire = Wire(connection)
        self._offsets = LogOffsets(self._wire)
        self._partition = TopicPartition(topic, 0)
        self.left = Left()

    def close(self) -> None:
        self._wire.close()

    def read(self, *, since: datetime | None = None, follow: bool = False) -> Iterator[Read]:
        """In the topic's order; ``follow``: does not end. Raises ``KafkaFailure``s, ``Refused`` without a topic."""
        what = f"read topic {self._partition.topic}"
        needs = on_topics("Read", [self._partition.topic])
        try:
            begin = self._offsets.at({self._partition: EARLIEST}, what, *needs)[self._partition]
            decided = self._offsets.at({self._partition: LATEST}, what, *needs, read_committed=True)[self._partition]
            self.left.undecided = self._offsets.at({self._partition: LATEST}, what, *needs)[self._partition] - decided
            if since is not None:
                at = {self._partition: max(0, int(since.timestamp() * 1000))}
                found = self._offsets.at(at, what, *needs)[self._partition]
                begin = max(begin, decided if found < 0 else found)
        except UnknownPartitions as error:
            raise Refused(f"{what}: there is no such topic, or the principal may not describe it") from error
        if begin >= decided and not follow:
            return
        with closing(self._consumer()) as consumer:
            consumer.assign([ClientTopicPartition(self._partition.topic, 0, begin)])
            yield from self._records(consumer, None if follow else decided, what)

    def _records(self, consumer: Consumer, end: int | None, what: str) -> Iterator[Read]:
        heard_s = time.monotonic()
        read_to = 0
        while end is None or read_to < end:
            try:
                # consume() alone would wait for a full batch.
                first = consumer.poll(_POLL_S)
                messages = [] if first is None else [first, *consumer.consume(_BATCH, 0)]
            except KafkaException as error:
                raise failure(error.args[0], what) from error
            if messages:
                heard_s = time.monotonic()
            elif end is not None and time.monotonic() - heard_s > _SILENT_S:
                raise Unavailable(f"{what}: nothing came for {_SILENT_S:.0f} s")
            for message in messages:
                problem, offset = message.error(), message.offset()
                if problem is not None:
                    if problem.code() == KafkaError._PARTITION_EOF:
                        # Behind the last record there is the marker of its transaction, which is never handed out.
                        read_to = max(read_to, end or 0)
                    # librdkafka looks for the coordinator of the group that it wants named, which needs no right.
                    elif problem.code() != KafkaError.GROUP_AUTHORIZATION_FAILED and not problem.retriable():
                        raise failure(problem, what, *on_topics("Read", [self._partition.topic]))
                    continue
                if offset is None:
                    continue
                read_to = offset + 1
                if end is not None and offset >= end:
                    return
                value = message.value()
                try:
                    part = decode_change(value if isinstance(value, bytes) else None)
                except NewerVersion:
                    self.left.newer += 1
                except Unreadable:
                    self.left.unreadable += 1
                else:
                    yield Read(part, offset, message.timestamp()[1])

    def _consumer(self) -> Consumer:
        return Consumer(
            librdkafka_config(
                self._connection,
                **{
                    # A group id is mandatory in librdkafka; nothing is ever joined or committed with it.
                    "group.id": "tidegate-reader",
                    "enable.auto.commit": False,
                    "enable.partition.eof": True,
                    # What a writer could not commit did not happen.
                    "isolation.level": "read_committed",
                    "queued.max.messages.kbytes": 16384,
                    "allow.auto.create.topics": False,
                },
            ),
            logger=silent_logger(),
        )
