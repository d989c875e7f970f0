"""Records within a transaction that commits offsets: AddPartitionsToTxn, and Produce to the partition's leader.

The leader is asked first: an aborted transaction is not over before its marker is in each of its partitions.

Sent raw, as all of the transaction is (``docs/adr/0022-raw-transactions.md``).
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from kafka.protocol.metadata import CoordinatorType
from kafka.protocol.producer import AddPartitionsToTxnRequest, ProduceRequest
from kafka.record import MemoryRecordsBuilder

from tidegate.kafka.errors import NotAuthenticated, Unavailable
from tidegate.kafka.model import Record, TopicPartition
from tidegate.kafka.rights import Right, on_topics
from tidegate.kafka_client.codes import UNKNOWN_PARTITION, UNREACHABLE, check
from tidegate.kafka_client.taking_leader import leader_that_takes
from tidegate.kafka_client.wire import Wire

_NEWEST_ADD: Final = 3
_NEWEST_PRODUCE: Final = 11
"""The newest versions from before transaction version 2 (KIP-890)."""

_BATCH_BYTES: Final = 900_000
"""Less than ``max.message.bytes`` at its default, before it is compressed."""
_MAGIC: Final = 2
_GZIP: Final = 1
_PAUSE_S: Final = 0.05
_DUPLICATE: Final = 46
"""DUPLICATE_SEQUENCE_NUMBER: an earlier try was appended."""

Settle = Callable[[Callable[[float], Any], Callable[[Any], int], float], Any]
"""Asks the transaction's coordinator until the deadline."""


class TransactionRecords:
    """Appends records for one producer in one transaction."""

    def __init__(
        self,
        wire: Wire,
        transactional_id: str,
        producer_id: int,
        epoch: int,
        sequences: dict[TopicPartition, int],
        needs: Right,
    ) -> None:
        """``sequences``: by partition, the producer's next sequence number; kept up to date."""
        self._wire = wire
        self._id = transactional_id
        self._producer_id = producer_id
        self._epoch = epoch
        self._sequences = sequences
        self._needs = needs
        self._leaders: dict[TopicPartition, int] = {}
        """Of the partitions that the transaction has been told of."""

    def append(self, topic: str, records: Mapping[bytes, bytes], settle: Settle, deadline: float) -> None:
        """To partition 0. After a failure the sequence numbers are not known: the producer has to be begun anew."""
        now_ms = time.time_ns() // 1_000_000
        made = [Record(number, now_ms, key, value) for number, (key, value) in enumerate(records.items())]
        to = TopicPartition(topic, 0)
        what = self._included(to, made, settle, deadline)
        for batch in self._batches(to, made):
            self._produce(to, batch, what, deadline)

    def copy(self, partition: TopicPartition, records: Sequence[Record], settle: Settle, deadline: float) -> None:
        """As they are, but for their offsets; otherwise as ``append``. Each in a batch of its own: that is what
        ``max.message.bytes`` is about, and together they may be larger than each of them was."""
        what = self._included(partition, records, settle, deadline)
        for record in records:
            for batch in self._batches(partition, [record]):
                self._produce(partition, batch, what, deadline)

    def _included(self, partition: TopicPartition, records: Sequence[Record], settle: Settle, deadline: float) -> str:
        """What is done, for a message."""
        what = f"append {len(records)} record(s) to {_named(partition)} in the transaction"
        self.include(partition, settle, deadline, what)
        return what

    def include(self, partition: TopicPartition, settle: Settle, deadline: float, what: str = "") -> None:
        """Tell the transaction's coordinator of a partition, once: it is marked at the transaction's end."""
        what = what or f"have {_named(partition)} in the transaction"
        if partition not in self._leaders:
            leader = self._leader(partition, what, deadline)
            self._add(partition, what, settle, deadline)
            self._leaders[partition] = leader

    def _leader(self, partition: TopicPartition, what: str, deadline: float) -> int:
        """Waited for until the deadline: one that is elected is there in a moment."""
        while True:
            try:
                return leader_that_takes(self._wire, partition.topic, what, deadline, number=partition.partition)
            except Unavailable as failure:
                if isinstance(failure, NotAuthenticated) or time.monotonic() >= deadline:
                    raise
            time.sleep(_PAUSE_S)

    def _add(self, partition: TopicPartition, what: str, settle: Settle, deadline: float) -> None:
        topic_class = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic

        def code_of(answer: Any) -> int:
            [row] = answer.results_by_topic_v3_and_below
            [result] = row.results_by_partition
            return int(result.partition_error_code)

        def ask(left_s: float) -> Any:
            return self._wire.exchange(
                self._id,
                lambda: AddPartitionsToTxnRequest(
                    v3_and_below_transactional_id=self._id,
                    v3_and_below_producer_id=self._producer_id,
                    v3_and_below_producer_epoch=self._epoch,
                    v3_and_below_topics=[topic_class(name=partition.topic, partitions=[partition.partition])],
                    max_version=_NEWEST_ADD,
                ),
                of=CoordinatorType.TRANSACTION,
                code_of=code_of,
                what=what,
                needs=self._needs,
                timeout_s=left_s,
                once=True,
            )[0]

        code = code_of(settle(ask, code_of, deadline))
        if code in UNKNOWN_PARTITION:
            raise Unavailable(f"{what}: there is no such topic")
        check(code, what, self._needs, *on_topics("Write", [partition.topic]))

    def _batches(self, partition: TopicPartition, records: Sequence[Record]) -> Iterator[bytes]:
        """A batch takes at least one record, whatever its size: whether that is too large the broker says."""
        left = list(records)
        while left:
            builder = MemoryRecordsBuilder(_MAGIC, _GZIP, _BATCH_BYTES)
            fitting = 0
            while fitting < len(left) and _appended(builder, left[fitting]):
                fitting += 1
            sequence = self._sequences.get(partition, 0)
            builder.set_producer_state(self._producer_id, self._epoch, sequence, True)
            builder.close()
            self._sequences[partition] = sequence + fitting
            del left[:fitting]
            yield bytes(builder.buffer())

    def _produce(self, partition: TopicPartition, batch: bytes, what: str, deadline: float) -> None:
        """The same batch again where nobody answers: a broker that has it knows its sequence numbers."""
        while True:
            try:
                self._produced(partition, batch, what, deadline)
            except NotAuthenticated:
                raise
            except Unavailable:
                if time.monotonic() >= deadline:
                    raise
                time.sleep(_PAUSE_S)
                with contextlib.suppress(Unavailable):
                    self._leaders[partition] = leader_that_takes(
                        self._wire, partition.topic, what, deadline, number=partition.partition
                    )
            else:
                return

    def _produced(self, to: TopicPartition, batch: bytes, what: str, deadline: float) -> None:
        left_s = max(0.1, min(self._wire.BROKER_TIMEOUT_S, deadline - time.monotonic()))
        topic_class = ProduceRequest.TopicProduceData
        partition_class = topic_class.PartitionProduceData
        answer = self._wire.ask(
            self._leaders[to],
            ProduceRequest(
                transactional_id=self._id,
                acks=-1,
                timeout_ms=int(left_s * 1000),
                topic_data=[
                    topic_class(name=to.topic, partition_data=[partition_class(index=to.partition, records=batch)])
                ],
                max_version=_NEWEST_PRODUCE,
            ),
            what=what,
            timeout_s=left_s,
        )
        [row] = answer.responses
        [partition] = row.partition_responses
        code = int(partition.error_code)
        if code == _DUPLICATE:
            return
        if code in UNKNOWN_PARTITION or code in UNREACHABLE:
            raise Unavailable(f"{what}: its leader is not there")
        check(code, what, self._needs, *on_topics("Write", [to.topic]), said=partition.error_message)


def _named(partition: TopicPartition) -> str:
    """Of topics with one partition, such as the audit topic, people know the name."""
    return f"topic {partition.topic}" if partition.partition == 0 else f"partition {partition}"


def _appended(builder: MemoryRecordsBuilder, record: Record) -> bool:
    return builder.append(record.at_ms, record.key, record.value, list(record.headers)) is not None
