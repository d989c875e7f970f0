"""Writing a group's offsets: by Kafka transaction on a live group, plainly on one without members.

The requests of a transactional producer that writes no records (``TransactionManager``), sent raw so that each call
ends in its time: see ``docs/adr/0022-raw-transactions.md``.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Collection, Iterator
from typing import Final

from kafka.protocol.metadata import CoordinatorType
from kafka.protocol.producer import InitProducerIdRequest

from tidegate.kafka.errors import GroupNotEmpty, KafkaFailure, UnknownPartitions
from tidegate.kafka.model import Offsets, TopicPartition
from tidegate.kafka.rights import Resource, Right, on_group, on_topics
from tidegate.kafka_client.codes import HAS_MEMBERS, UNKNOWN_PARTITION, check
from tidegate.kafka_client.offset_requests import delete_offsets, offset_commit_request
from tidegate.kafka_client.transaction import KafkaTransaction, Producer, first_code, settled
from tidegate.kafka_client.wire import Wire

_NEWEST_INIT: Final = 4
"""The newest version from before transaction version 2 (KIP-890)."""


def transactional_id(group_id: str, purpose: str = "") -> str:
    """The same for all who write a group's offsets for one purpose, so that a new one fences the old one.

    Without a purpose: resets. ACL: Write on this id.
    """
    return f"tidegate.{group_id}.{purpose}" if purpose else f"tidegate.{group_id}"


class KafkaOffsetWriter:
    """Implements ``tidegate.kafka.ports.OffsetWriter`` for one group."""

    _STEP_TIMEOUT_S = 18.0
    """Longer than a coordinator's failover (8 to 16 s). No call takes longer than this and ``Wire.OVERTIME_S``."""
    _ABORT_TIMEOUT_S = 5.0
    """Shorter, as the brokers end it at the transaction's time-out, and the next writer at once."""

    def __init__(
        self,
        wire: Wire,
        group_id: str,
        *,
        transaction_timeout_s: float,
        purpose: str = "",
        refuse: Callable[[str], None] = lambda _what: None,
    ) -> None:
        """``refuse``: asked before anything is written; raises where this process may not (``WriterProcess``)."""
        self._refuse = refuse
        self._wire = wire
        self._group_id = group_id
        self._id = transactional_id(group_id, purpose)
        self._timeout_s = transaction_timeout_s
        self._producer: Producer | None = None
        self._contested = False
        """Whether a request for the producer ever went unanswered: a broker that thaws may come to it at any time."""

    def close(self) -> None:
        self._producer = None

    def fence(self) -> None:
        self._producer = None
        self._producer = self._initialized()

    @contextlib.contextmanager
    def transaction(self) -> Iterator[KafkaTransaction]:
        self._refuse(f"commit offsets of group {self._group_id}")
        producer = self._producer or self._initialized()
        # Whoever comes after a transaction whose end is not known, or of which a request may still come to a broker,
        # fences it: its offsets are not to be in the next one, nor its end to be that of the next one.
        self._producer = None
        transaction = KafkaTransaction(
            self._wire, self._id, producer, timeout_s=self._STEP_TIMEOUT_S, lasts_s=self._timeout_s
        )
        try:
            yield transaction
        finally:
            if not transaction.ended:
                transaction.abort(self._ABORT_TIMEOUT_S)
            if transaction.over:
                self._producer = producer

    def _initialized(self) -> Producer:
        """InitProducerId: ends what an earlier producer has left open, and goes on when that has ended."""
        what = f"take over transactional id {self._id}"
        self._refuse(what)
        needs = Right("Write", Resource.TRANSACTIONAL_ID, self._id)
        try:
            answer, unanswered = settled(
                lambda left_s: self._wire.exchange(
                    self._id,
                    lambda: InitProducerIdRequest(
                        transactional_id=self._id,
                        transaction_timeout_ms=int(self._timeout_s * 1000),
                        producer_id=-1,
                        producer_epoch=-1,
                        max_version=_NEWEST_INIT,
                    ),
                    of=CoordinatorType.TRANSACTION,
                    what=what,
                    needs=needs,
                    timeout_s=left_s,
                    once=True,
                )[0],
                lambda answer: int(answer.error_code),
                time.monotonic() + self._STEP_TIMEOUT_S,
            )
        except KafkaFailure:
            self._contested = True  # perhaps
            raise
        self._contested |= unanswered
        check(answer.error_code, what, needs)
        return Producer(answer.producer_id, answer.producer_epoch, contested=self._contested)

    def alter(self, group_id: str, offsets: Offsets) -> None:
        what = f"commit {len(offsets)} offset(s) of group {group_id}"
        self._refuse(what)
        on_this_group = on_group("Read", group_id)
        [answer] = self._wire.exchange(
            group_id,
            lambda: offset_commit_request(group_id, {p: (offset, "") for p, offset in offsets.items()}),
            code_of=first_code,
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
        if not partitions:
            return frozenset()
        self._refuse(f"delete {len(partitions)} offset(s) of group {group_id}")
        return delete_offsets(self._wire, group_id, partitions)
