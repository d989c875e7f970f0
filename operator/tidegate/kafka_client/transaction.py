"""One transaction of a producer that writes the offsets of groups, and records of the audit log: AddOffsetsToTxn,
TxnOffsetCommit, EndTxn, sent raw so that each call ends in its time (``docs/adr/0022-raw-transactions.md``).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from kafka import errors as wire_errors
from kafka.protocol.metadata import CoordinatorType
from kafka.protocol.producer import AddOffsetsToTxnRequest, EndTxnRequest, TxnOffsetCommitRequest

from tidegate.kafka.capabilities import NEWEST_COMMIT_SENT
from tidegate.kafka.errors import (
    CommitRefused,
    Fenced,
    KafkaFailure,
    NotAuthenticated,
    OutcomeUnknown,
    Refused,
    Unavailable,
)
from tidegate.kafka.model import Offsets, Record, TopicPartition
from tidegate.kafka.rights import Resource, Right, on_group, on_topics
from tidegate.kafka_client.codes import NO_ERROR, NOT_TAKEN_FROM_OUTSIDE, UNKNOWN_PARTITION, UNREACHABLE, check
from tidegate.kafka_client.partitions import by_topic
from tidegate.kafka_client.transaction_records import TransactionRecords
from tidegate.kafka_client.wire import Wire

_LOADING: Final = 14
"""COORDINATOR_LOAD_IN_PROGRESS: of all answers that pass, the one that says for certain that nothing was done."""

_NEWEST_ADD: Final = 3
_NEWEST_END: Final = 3
"""The newest versions from before transaction version 2 (KIP-890), which go with ``NEWEST_COMMIT_SENT``."""

_PAUSE_S: Final = 0.02
"""Between two tries while a transaction is being ended: that takes about as long."""

_NEW_PARTITION_S: Final = 3.0
"""How long a coordinator may not know a partition that another broker has told of."""


@dataclass(frozen=True, slots=True)
class Producer:
    """Who a transactional id's coordinator takes us for; it refuses all with an older epoch.

    ``contested``: a request for it went unanswered, and may raise the epoch once more when its broker comes to it.
    ``sequences``: by partition, the sequence number of its next record.
    """

    producer_id: int
    epoch: int
    contested: bool = False
    sequences: dict[TopicPartition, int] = field(default_factory=dict, compare=False, repr=False)


class KafkaTransaction:
    """Implements ``tidegate.kafka.ports.GroupTransaction``.

    ``ended``: nothing is left to abort. ``over``: it is known how it ended, and nothing of it can come to a broker any
    more, so the producer may begin another one; a fenced producer may too, and hears so again.
    """

    def __init__(
        self, wire: Wire, transactional_id: str, producer: Producer, *, timeout_s: float, lasts_s: float
    ) -> None:
        """``timeout_s``: for each call. ``lasts_s``: the transaction's time-out, at which the brokers end it."""
        self._wire = wire
        self._id = transactional_id
        self._producer = producer
        self._timeout_s = timeout_s
        self._lasts_s = lasts_s
        self._needs = Right("Write", Resource.TRANSACTIONAL_ID, transactional_id)
        self._begun_at: float | None = None
        self._failed: KafkaFailure | None = None
        self._unanswered = False
        self._records = TransactionRecords(
            wire, transactional_id, producer.producer_id, producer.epoch, producer.sequences, self._needs
        )
        self.ended = False
        self.over = False

    def send(self, group_id: str, offsets: Offsets) -> None:
        if not offsets:
            return
        what = f"add {len(offsets)} offset(s) of group {group_id} to the transaction"
        begun_at = time.monotonic()
        if self._begun_at is None:
            self._begun_at = begun_at  # the coordinator may have heard of it where no answer comes
        deadline = begun_at + self._timeout_s
        try:
            self._add_group(group_id, what, deadline)
            self._send(group_id, offsets, what, deadline)
        except Fenced as fenced:
            self._failed = self._why_fenced(fenced)
            raise self._failed from fenced
        except KafkaFailure as failure:
            self._failed = failure
            raise

    def append(self, topic: str, records: Mapping[bytes, bytes], *, timeout_s: float | None = None) -> None:
        if records:
            self._to_log(lambda until: self._records.append(topic, records, self._settled, until), timeout_s)

    def copy(self, partition: TopicPartition, records: Sequence[Record], *, timeout_s: float | None = None) -> None:
        if records:
            self._to_log(lambda until: self._records.copy(partition, records, self._settled, until), timeout_s)

    def include(self, partition: TopicPartition, *, timeout_s: float | None = None) -> None:
        self._to_log(lambda until: self._records.include(partition, self._settled, until), timeout_s)

    def _to_log(self, write: Callable[[float], None], timeout_s: float | None) -> None:
        """``write``: is told its deadline."""
        begun_at = time.monotonic()
        if self._begun_at is None:
            self._begun_at = begun_at
        deadline = begun_at + (self._timeout_s if timeout_s is None else min(timeout_s, self._timeout_s))
        try:
            write(deadline)
        except KafkaFailure as failure:
            # What is on its way may be appended yet, and which sequence number is next is not known.
            self._unanswered = True
            self._failed = self._why_fenced(failure) if isinstance(failure, Fenced) else failure
            raise self._failed from failure

    def _add_group(self, group_id: str, what: str, deadline: float) -> None:
        """AddOffsetsToTxn, before each send: only this coordinator tells a fenced producer that it is."""
        needs = self._needs, on_group("Read", group_id)
        answer = self._settled(
            lambda left_s: self._wire.exchange(
                self._id,
                lambda: AddOffsetsToTxnRequest(
                    transactional_id=self._id,
                    producer_id=self._producer.producer_id,
                    producer_epoch=self._producer.epoch,
                    group_id=group_id,
                    max_version=_NEWEST_ADD,
                ),
                of=CoordinatorType.TRANSACTION,
                what=what,
                needs=self._needs,
                timeout_s=left_s,
                once=True,
            )[0],
            lambda answer: int(answer.error_code),
            deadline,
        )
        check(answer.error_code, what, *needs)

    def _send(self, group_id: str, offsets: Offsets, what: str, deadline: float) -> None:
        needs = self._needs, on_group("Read", group_id), *on_topics("Read", (p.topic for p in offsets))
        answer = self._settled(
            lambda left_s: self._wire.exchange(
                group_id,
                lambda: self._offsets_request(group_id, offsets),
                code_of=first_code,
                what=what,
                needs=on_group("Read", group_id),
                timeout_s=left_s,
                once=True,
            )[0],
            first_code,
            deadline,
        )
        code = first_code(answer)
        if code in NOT_TAKEN_FROM_OUTSIDE:
            raise CommitRefused(f"{what}: {_name(code)}")
        if code in UNKNOWN_PARTITION:
            raise Unavailable(f"{what}: {_name(code)}")  # the coordinator may hear of it yet
        check(code, what, *needs)

    def _settled(self, ask: Callable[[float], Any], code_of: Callable[[Any], int], deadline: float) -> Any:
        try:
            answer, unanswered = settled(ask, code_of, deadline)
        except KafkaFailure:
            self._unanswered = True  # perhaps; and if not, another fence does no harm
            raise
        self._unanswered |= unanswered
        return answer

    def _offsets_request(self, group_id: str, offsets: Offsets) -> Any:
        """TxnOffsetCommit of nobody's: generation −1 and no member, as a producer outside the group may commit
        (KAFKA-9365, KAFKA-18060)."""
        topic_class = TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic
        partition_class = topic_class.TxnOffsetCommitRequestPartition
        return TxnOffsetCommitRequest(
            transactional_id=self._id,
            group_id=group_id,
            producer_id=self._producer.producer_id,
            producer_epoch=self._producer.epoch,
            generation_id=-1,
            member_id="",
            group_instance_id=None,
            topics=[
                topic_class(
                    name=topic,
                    partitions=[
                        partition_class(
                            partition_index=number,
                            committed_offset=offsets[TopicPartition(topic, number)],
                            committed_leader_epoch=-1,
                            committed_metadata="",
                        )
                        for number in numbers
                    ],
                )
                for topic, numbers in by_topic(offsets).items()
            ],
            max_version=NEWEST_COMMIT_SENT,
        )

    def commit(self) -> None:
        if self._failed is not None:
            raise Refused(f"commit the transaction: not after a failure ({self._failed})")
        try:
            self._end(True, self._timeout_s)
        except OutcomeUnknown:
            self.ended = True
            raise
        self.ended, self.over = True, not self._unanswered

    def abort(self, timeout_s: float) -> None:
        """Raises nothing: what is not ended here the broker ends at the transaction's time-out, the next writer at
        once."""
        try:
            self._end(False, timeout_s)
        except KafkaFailure:
            self.ended = True
        else:
            self.ended, self.over = True, not self._unanswered

    def _why_fenced(self, fenced: Fenced) -> KafkaFailure:
        """Nobody has to have taken over: brokers raise the epoch as well where they end a transaction at its time-out.

        Then it is ``Unavailable``: nothing was done, and who goes on makes sure first that it is its turn.
        """
        self.ended = True
        if self._begun_at is not None and time.monotonic() - self._begun_at >= self._lasts_s:
            return Unavailable(f"{fenced}; it was open for {self._lasts_s:g} s, after which the brokers end it")
        if self._producer.contested:
            return Unavailable(f"{fenced}; perhaps by a request of this writer that went unanswered")
        self.over = True
        return fenced

    def _end(self, committed: bool, timeout_s: float) -> None:
        """EndTxn, asked again while it may still be answered: the coordinator answers as to the first.

        Raises ``OutcomeUnknown`` where it may have been done, and ``Unavailable`` where it was not.
        """
        if self._begun_at is None:
            return  # nobody has heard of this transaction
        what = f"{'commit' if committed else 'abort'} the transaction"
        deadline = time.monotonic() + timeout_s
        maybe_done = False

        def code_of(answer: Any) -> int:
            nonlocal maybe_done
            code = int(answer.error_code)
            # What a coordinator has written before it lost its place may be carried out by the next one.
            maybe_done |= code in UNREACHABLE and code != _LOADING
            return code

        while True:
            try:
                [answer] = self._wire.exchange(
                    self._id,
                    lambda: EndTxnRequest(
                        transactional_id=self._id,
                        producer_id=self._producer.producer_id,
                        producer_epoch=self._producer.epoch,
                        committed=committed,
                        max_version=_NEWEST_END,
                    ),
                    of=CoordinatorType.TRANSACTION,
                    code_of=code_of,
                    what=what,
                    needs=self._needs,
                    timeout_s=_left_s(deadline),
                    once=True,
                )
                check(answer.error_code, what, self._needs)
            except KafkaFailure as failure:
                unanswered = isinstance(failure, OutcomeUnknown)
                self._unanswered |= unanswered
                maybe_done |= unanswered
                passes = isinstance(failure, OutcomeUnknown | Unavailable) and not isinstance(failure, NotAuthenticated)
                if passes and time.monotonic() < deadline:
                    time.sleep(_PAUSE_S)
                    continue
                why = self._why_fenced(failure) if isinstance(failure, Fenced) else failure
                if maybe_done and not isinstance(why, Fenced):
                    raise OutcomeUnknown(str(why)) from failure
                raise why from failure
            return


def settled(ask: Callable[[float], Any], code_of: Callable[[Any], int], deadline: float) -> tuple[Any, bool]:
    """The first answer that does not pass by itself, or the last in time; and whether an earlier request was sent and
    not answered. ``ask``: is told the time left.

    Raises ``Unavailable`` also where nothing was answered: such a request does no harm when it is repeated.
    """
    patience = {code: time.monotonic() + _NEW_PARTITION_S for code in UNKNOWN_PARTITION}
    unanswered = False
    while True:
        try:
            answer = ask(_left_s(deadline))
        except OutcomeUnknown as failure:
            unanswered = True
            if time.monotonic() >= deadline:
                raise Unavailable(str(failure)) from failure
        else:
            code = code_of(answer)
            until = deadline if code in UNREACHABLE else patience.get(code, 0.0)
            if time.monotonic() >= min(until, deadline):
                return answer, unanswered
        time.sleep(_PAUSE_S)


def _left_s(deadline: float) -> float:
    return max(0.0, deadline - time.monotonic())


def _name(code: int) -> str:
    return str(wire_errors.for_code(code).__name__)


def first_code(answer: Any) -> int:
    """The first error of an OffsetCommit's or a TxnOffsetCommit's answer."""
    codes = (int(row.error_code) for topic in answer.topics for row in topic.partitions)
    return next((code for code in codes if code != NO_ERROR), NO_ERROR)
