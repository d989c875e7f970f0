"""Records within a transaction that commits offsets: AddPartitionsToTxn, and Produce to the partition's leader.

The leader is asked first: an aborted transaction is not over before its marker is in each of its partitions.

Sent raw, as all of the transaction is (``docs/adr/0022-raw-transactions.md``).
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from kafka.protocol.metadata import CoordinatorType
from kafka.protocol.producer import AddPartitionsToTxnRequest, ProduceRequest
from kafka.record import MemoryRecordsBuilder

from tidegate.kafka.errors import NotAuthenticated, Refused, Unavailable
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
        self, wire: Wire, transactional_id: str, producer_id: int, epoch: int, sequences: dict[str, int], needs: Right
    ) -> None:
        """``sequences``: by topic, the producer's next sequence number; kept up to date."""
        self._wire = wire
        self._id = transactional_id
        self._producer_id = producer_id
        self._epoch = epoch
        self._sequences = sequences
        self._needs = needs
        self._leaders: dict[str, int] = {}
        """Of the topics that the transaction has been told of."""

    def append(self, topic: str, records: Mapping[bytes, bytes], settle: Settle, deadline: float) -> None:
        """To partition 0. After a failure the sequence numbers are not known: the producer has to be begun anew."""
        what = f"append {len(records)} record(s) to topic {topic} in the transaction"
        if topic not in self._leaders:
            leader = self._leader(topic, what, deadline)
            self._add(topic, what, settle, deadline)
            self._leaders[topic] = leader
        for batch in self._batches(topic, records, what):
            self._produce(topic, batch, what, deadline)

    def _leader(self, topic: str, what: str, deadline: float) -> int:
        """Waited for until the deadline: one that is elected is there in a moment."""
        while True:
            try:
                return leader_that_takes(self._wire, topic, what, deadline)
            except Unavailable as failure:
                if isinstance(failure, NotAuthenticated) or time.monotonic() >= deadline:
                    raise
            time.sleep(_PAUSE_S)

    def _add(self, topic: str, what: str, settle: Settle, deadline: float) -> None:
        topic_class = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic

        def code_of(answer: Any) -> int:
            [row] = answer.results_by_topic_v3_and_below
            [partition] = row.results_by_partition
            return int(partition.partition_error_code)

        def ask(left_s: float) -> Any:
            return self._wire.exchange(
                self._id,
                lambda: AddPartitionsToTxnRequest(
                    v3_and_below_transactional_id=self._id,
                    v3_and_below_producer_id=self._producer_id,
                    v3_and_below_producer_epoch=self._epoch,
                    v3_and_below_topics=[topic_class(name=topic, partitions=[0])],
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
        check(code, what, self._needs, *on_topics("Write", [topic]))

    def _batches(self, topic: str, records: Mapping[bytes, bytes], what: str) -> Iterator[bytes]:
        left = list(records.items())
        now_ms = time.time_ns() // 1_000_000
        while left:
            builder = MemoryRecordsBuilder(_MAGIC, _GZIP, _BATCH_BYTES)
            fitting = 0
            while fitting < len(left) and builder.append(now_ms, *left[fitting]) is not None:
                fitting += 1
            if not fitting:
                raise Refused(f"{what}: one of {len(left[0][1])} bytes is too large")
            sequence = self._sequences.get(topic, 0)
            builder.set_producer_state(self._producer_id, self._epoch, sequence, True)
            builder.close()
            self._sequences[topic] = sequence + fitting
            del left[:fitting]
            yield bytes(builder.buffer())

    def _produce(self, topic: str, batch: bytes, what: str, deadline: float) -> None:
        """The same batch again where nobody answers: a broker that has it knows its sequence numbers."""
        while True:
            try:
                self._produced(topic, batch, what, deadline)
            except NotAuthenticated:
                raise
            except Unavailable:
                if time.monotonic() >= deadline:
                    raise
                time.sleep(_PAUSE_S)
                with contextlib.suppress(Unavailable):
                    self._leaders[topic] = leader_that_takes(self._wire, topic, what, deadline)
            else:
                return

    def _produced(self, topic: str, batch: bytes, what: str, deadline: float) -> None:
        left_s = max(0.1, min(self._wire.BROKER_TIMEOUT_S, deadline - time.monotonic()))
        topic_class = ProduceRequest.TopicProduceData
        partition_class = topic_class.PartitionProduceData
        answer = self._wire.ask(
            self._leaders[topic],
            ProduceRequest(
                transactional_id=self._id,
                acks=-1,
                timeout_ms=int(left_s * 1000),
                topic_data=[topic_class(name=topic, partition_data=[partition_class(index=0, records=batch)])],
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
        check(code, what, self._needs, *on_topics("Write", [topic]), said=partition.error_message)
