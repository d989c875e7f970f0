"""Writing a group's offsets: by Kafka transaction on a live group, plainly on one without members."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Collection, Iterator
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka import TopicPartition as ClientTopicPartition

from tidegate.kafka.client_config import librdkafka_config
from tidegate.kafka.codes import FENCED, NOT_AUTHORIZED, NOT_TAKEN_FROM_OUTSIDE, UNKNOWN_PARTITION, UNREACHABLE
from tidegate.kafka.connection import Connection
from tidegate.kafka.errors import (
    CommitRefused,
    Fenced,
    GroupNotEmpty,
    KafkaFailure,
    NotAuthorized,
    OutcomeUnknown,
    Refused,
    Unavailable,
    UnknownPartitions,
)
from tidegate.kafka.model import Offsets, TopicPartition
from tidegate.kafka.rights import Resource, Right, on_group, on_topics, to_grant
from tidegate.kafka.wire import HAS_MEMBERS, NO_ERROR, Wire, check

_SOCKET_TIMEOUT_S: Final = 15.0


def transactional_id(group_id: str, purpose: str = "") -> str:
    """The same for all who write a group's offsets for one purpose, so that a new one fences the old one.

    Without a purpose: resets. ACL: Write on this id.
    """
    return f"tidegate.{group_id}.{purpose}" if purpose else f"tidegate.{group_id}"


def failure(error: KafkaError, what: str, *needs: Right) -> KafkaFailure:
    """The failure that librdkafka's error means. ``needs``: the rights that were needed, for who lacks one."""
    code = error.code()
    text = f"{what}: {error.str()} ({error.name()})"
    if code in FENCED:
        return Fenced(text)
    if code in NOT_AUTHORIZED:
        refused: Resource | None = NOT_AUTHORIZED[code]
        if refused is Resource.CLUSTER:
            # A producer that may write to no topic at all is refused its id, as if that took a right on the cluster.
            refused = None
        return NotAuthorized(f"{text}{to_grant(needs, refused)}")
    if code in UNREACHABLE or error.retriable():
        return Unavailable(text)
    return Refused(text)


class KafkaOffsetWriter:
    """Implements ``tidegate.kafka.ports.OffsetWriter`` for one group."""

    _STEP_TIMEOUT_S = 20.0
    """Longer than a coordinator's failover (8 to 16 s, facts)."""

    def __init__(
        self,
        connection: Connection,
        wire: Wire,
        group_id: str,
        *,
        transaction_timeout_s: float,
        purpose: str = "",
    ) -> None:
        self._connection = connection
        self._wire = wire
        self._group_id = group_id
        self._id = transactional_id(group_id, purpose)
        self._timeout_s = transaction_timeout_s
        self._producer: Producer | None = None
        self._metadata: dict[str, Any] = {}
        self._lock = threading.Lock()

    def close(self) -> None:
        self._producer = None

    def fence(self) -> None:
        producer = Producer(
            librdkafka_config(
                self._connection,
                **{
                    "transactional.id": self._id,
                    "transaction.timeout.ms": int(self._timeout_s * 1000),
                    # librdkafka wants it to be no longer than the transaction's.
                    "socket.timeout.ms": int(min(self._timeout_s, _SOCKET_TIMEOUT_S) * 1000),
                },
            ),
            logger=silent_logger(),
        )
        what = f"take over transactional id {self._id}"
        needs = Right("Write", Resource.TRANSACTIONAL_ID, self._id)
        self._until_answered(lambda: producer.init_transactions(self._STEP_TIMEOUT_S), what, needs)
        self._producer = producer

    @contextlib.contextmanager
    def transaction(self) -> Iterator[KafkaTransaction]:
        if self._producer is None:
            self.fence()
        producer = self._producer
        if producer is None:
            raise Unavailable(f"group {self._group_id}: the writer was closed")
        try:
            producer.begin_transaction()
        except KafkaException as error:
            self._producer = None  # a producer that cannot begin is of no further use
            raise failure(error.args[0], f"begin a transaction for group {self._group_id}") from error
        transaction = KafkaTransaction(producer, self._id, self._group_metadata, self._STEP_TIMEOUT_S)
        try:
            yield transaction
        finally:
            if not transaction.ended:
                try:
                    producer.abort_transaction(self._STEP_TIMEOUT_S)
                except KafkaException:
                    # The broker ends it at the transaction timeout; the next writer does at once.
                    self._producer = None

    def alter(self, group_id: str, offsets: Offsets) -> None:
        what = f"commit {len(offsets)} offset(s) of group {group_id}"
        on_this_group = on_group("Read", group_id)
        [answer] = self._wire.exchange(
            group_id,
            lambda: self._wire.offset_commit(group_id, {p: (offset, "") for p, offset in offsets.items()}),
            code_of=_first_code,
            what=what,
            needs=on_this_group,
            timeout_s=self._STEP_TIMEOUT_S,
            once=True,
        )
        unknown = set()
        for topic in answer.topics:
            for row in topic.partitions:
                partition, code = TopicPartition(topic.name, row.partition_index), row.error_code
                if code in HAS_MEMBERS:
                    raise GroupNotEmpty(f"{what}: it has members")
                if code in UNKNOWN_PARTITION:
                    unknown.add(partition)
                else:
                    check(code, f"{what} ({partition})", on_this_group, *on_topics("Read", [topic.name]))
        if unknown:
            raise UnknownPartitions(frozenset(unknown))

    def delete(self, group_id: str, partitions: Collection[TopicPartition]) -> frozenset[TopicPartition]:
        return self._wire.delete_offsets(group_id, partitions) if partitions else frozenset()

    def _group_metadata(self, group_id: str) -> Any:
        """Generation −1 and no member: what a producer outside the group may commit with (KAFKA-9365, KAFKA-18060)."""
        if not (group_id.isascii() and group_id.isprintable()):
            # It would say "Input buffer group id is not safe" (rd_kafka_consumer_group_metadata_read).
            raise Refused(
                f"commit offsets of group {group_id}: librdkafka does so in a transaction only for group ids of "
                "printable ASCII characters"
            )
        with self._lock:
            if group_id not in self._metadata:
                outsider = Consumer(
                    librdkafka_config(self._connection, **{"group.id": group_id}),
                    logger=silent_logger(),
                )
                self._metadata[group_id] = outsider.consumer_group_metadata()
                outsider.close()
            return self._metadata[group_id]

    def _until_answered(self, call: Callable[[], object], what: str, needs: Right) -> None:
        deadline = time.monotonic() + self._STEP_TIMEOUT_S
        while True:
            try:
                call()
            except KafkaException as error:
                cause = error.args[0]
                if cause.retriable() and time.monotonic() < deadline:
                    continue
                raise failure(cause, what, needs) from error
            return


class KafkaTransaction:
    """Implements ``tidegate.kafka.ports.GroupTransaction``."""

    def __init__(
        self, producer: Producer, transactional_id: str, metadata: Callable[[str], Any], timeout_s: float
    ) -> None:
        self._producer = producer
        self._needs = Right("Write", Resource.TRANSACTIONAL_ID, transactional_id)
        self._metadata = metadata
        self._timeout_s = timeout_s
        self.ended = False

    def send(self, group_id: str, offsets: Offsets) -> None:
        if not offsets:
            return
        what = f"add {len(offsets)} offset(s) of group {group_id} to the transaction"
        partitions = _client_partitions(offsets)
        deadline = time.monotonic() + self._timeout_s
        while True:
            try:
                self._producer.send_offsets_to_transaction(partitions, self._metadata(group_id), self._timeout_s)
            except KafkaException as error:
                cause = error.args[0]
                if cause.retriable() and not cause.txn_requires_abort() and time.monotonic() < deadline:
                    continue
                if cause.code() in NOT_TAKEN_FROM_OUTSIDE:
                    raise CommitRefused(f"{what}: {cause.str()} ({cause.name()})") from error
                topics = on_topics("Read", (p.topic for p in offsets))
                raise failure(cause, what, self._needs, on_group("Read", group_id), *topics) from error
            return

    def commit(self) -> None:
        what = "commit the transaction"
        deadline = time.monotonic() + self._timeout_s
        while True:
            try:
                # A commit whose answer is missing is asked for again: librdkafka resumes it.
                self._producer.commit_transaction(self._timeout_s)
            except KafkaException as error:
                cause = error.args[0]
                if cause.retriable() and time.monotonic() < deadline:
                    continue
                if cause.retriable() or cause.code() in UNREACHABLE:
                    self.ended = True
                    raise OutcomeUnknown(f"{what}: {cause.str()} ({cause.name()})") from error
                raise failure(cause, what, self._needs) from error
            self.ended = True
            return


def _first_code(answer: Any) -> int:
    """The first error of an OffsetCommit's answer."""
    codes = (int(row.error_code) for topic in answer.topics for row in topic.partitions)
    return next((code for code in codes if code != NO_ERROR), NO_ERROR)


def _client_partitions(offsets: Offsets) -> list[ClientTopicPartition]:
    return [ClientTopicPartition(p.topic, p.partition, offset) for p, offset in offsets.items()]


def silent_logger() -> logging.Logger:
    """For librdkafka, whose lines repeat what its errors say."""
    logger = logging.getLogger("tidegate.kafka.librdkafka")
    logger.addHandler(logging.NullHandler())
    logger.propagate = False
    return logger
