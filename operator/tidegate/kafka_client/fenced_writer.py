"""Writing the control topic for an operator, so that an earlier process of it can write nothing there any more.

Each write is a transaction of a transactional id that belongs to the operator's connection: whoever takes the id over
raises its epoch, and the brokers refuse what comes with an older one. Only they can: a reader that passed over late
records would find them alone in the log once it was compacted. Requests are sent raw, because a client library's
producer cannot be begun anew without taking over from whoever came meanwhile; InitProducerId with the epoch can.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice, takewhile
from typing import Any, Final

from kafka.protocol.metadata import CoordinatorType
from kafka.protocol.producer import AddPartitionsToTxnRequest, EndTxnRequest, InitProducerIdRequest, ProduceRequest
from kafka.record import MemoryRecordsBuilder

from tidegate.kafka.errors import Fenced, KafkaFailure, NotAuthenticated, OutcomeUnknown, Refused, Unavailable
from tidegate.kafka.rights import Resource, Right, on_topics
from tidegate.kafka_client.cluster_requests import describe_topics
from tidegate.kafka_client.codes import UNKNOWN_PARTITION, check
from tidegate.kafka_client.control_description import describe_existing
from tidegate.kafka_client.control_writer import Appended
from tidegate.kafka_client.transaction import Producer, settled
from tidegate.kafka_client.wire import Wire

LASTS_S: Final = 10.0
"""The transactions' time-out. While one is open, records after it are not read: a process that is frozen in the middle
of a write holds up readers for as long, and for up to 10 s more until the coordinator looks for such transactions."""

_TIMEOUT_S: Final = 25.0
"""For a write. Longer than a coordinator's failover (8 to 16 s)."""
_PAUSE_S: Final = 0.05
_RECORDS: Final = 500
_BATCH_BYTES: Final = 900_000
"""Less than ``max.message.bytes``, before it is compressed; 500 records of the longest keys fit in two batches."""
_MAGIC: Final = 2
_GZIP: Final = 1

# The newest versions from before transaction version 2 (KIP-890), in which each transaction raises the epoch, and
# from before topics are named by their ids. InitProducerId takes an epoch from version 3 on (KIP-360).
_INIT: Final = (3, 4)
_NEWEST_ADD: Final = 3
_NEWEST_PRODUCE: Final = 11
_NEWEST_END: Final = 3


def control_transactional_id(operator: str, control_topic: str) -> str:
    """The same for all processes of one operator that write this control topic through one KafkaConnection.

    ACL: Write on this id.
    """
    return f"tidegate-control/{operator}/{control_topic}"


def _code_of(answer: Any) -> int:
    return int(answer.error_code)


@dataclass(frozen=True, slots=True)
class _Batch:
    keys: tuple[bytes, ...]
    data: bytes


@dataclass(slots=True)
class _Taken:
    """A transactional id that this process has taken over on one cluster, or is about to.

    It outlives the connection by which it was taken over: one that is opened anew goes on with the same producer, and
    so cannot take the id from a process that came meanwhile.
    """

    lock: threading.Lock = field(default_factory=threading.Lock)
    """Held for a whole write: transactions of one producer must not overlap."""
    producer: Producer | None = None
    sequence: int = 0
    in_doubt: bool = False
    """Whether the last transaction may be open still, or a request on its way."""
    was_open: bool = False
    """Whether the coordinator has said that the last transaction is open."""


class WriterProcess:
    """This process, as one of an operator's: what it has taken over, and whether another process has replaced it.

    One for all connections that the process opens. Once it was replaced by way of one of them it writes nothing by any,
    and takes over nothing more. Thread-safe.
    """

    def __init__(
        self, replaced: Callable[[str], None] = lambda _why: None, may_write: Callable[[], bool] = lambda: True
    ) -> None:
        """``replaced`` is told why, once, by the thread that finds out and before its call raises ``Fenced``.

        ``may_write``: whether it is this process's turn, asked before each write. Brokers refuse what a successor has
        fenced; this keeps a process that comes back from fencing its successor.
        """
        self._told = replaced
        self._may_write = may_write
        self._lock = threading.Lock()
        self._taken: dict[tuple[str, str], _Taken] = {}
        self._why = ""

    def refuse(self, what: str) -> None:
        """Raise what keeps this process from writing at all: ``Fenced`` for good, or ``Unavailable``."""
        if self._why:
            raise Fenced(f"{what}: {self._why}")
        if not self._may_write():
            raise Unavailable(f"{what}: this process does not hold the Lease")

    def taken(self, cluster_id: str, transactional_id: str) -> _Taken:
        with self._lock:
            return self._taken.setdefault((cluster_id, transactional_id), _Taken())

    def replaced(self, why: str) -> None:
        with self._lock:
            if self._why:
                return
            self._why = why
        self._told(why)


class FencedWriter:
    """Writes records by key, each call in one transaction. Connects on first use; thread-safe.

    Once another process has taken over, every call raises ``Fenced``, for good: it is for a new process to take over.
    """

    def __init__(self, wire: Wire, name: str, operator: str, process: WriterProcess) -> None:
        """``name``: the control topic's; ``operator``: see ``control_transactional_id``."""
        self._wire = wire
        self._name = name
        self._id = control_transactional_id(operator, name)
        self._needs = Right("Write", Resource.TRANSACTIONAL_ID, self._id)
        self._process = process
        self._known: _Taken | None = None
        self._closed = False

    def close(self) -> None:
        """Does not wait: a write that is on its way ends by itself."""
        self._closed = True

    def take_over(self) -> None:
        """Make sure that no earlier process of the operator writes from now on, and that this one still may. Raises
        ``KafkaFailure``s."""
        taken = self._taken()
        with taken.lock:
            taken.in_doubt = True
            self._ready(taken, time.monotonic() + _TIMEOUT_S)

    def confirm(self) -> None:
        """Raise ``Fenced`` where another process has taken over from this one. Where this one has not taken over yet
        nobody is asked. Raises ``KafkaFailure``s."""
        if self._taken().producer is not None:
            self.take_over()

    def write(self, records: Mapping[bytes, bytes | None]) -> dict[bytes, Appended]:
        """Write values by key, all or none.

        Raises ``Fenced``, ``Unavailable`` also where it is not known whether they were written, ``NotAuthorized`` and
        ``Refused``.
        """
        if not records:
            return {}
        what = f"write to topic {self._name}"
        taken = self._taken()
        with taken.lock:
            return self._write(taken, records, what, time.monotonic() + _TIMEOUT_S)

    def _write(
        self, taken: _Taken, records: Mapping[bytes, bytes | None], what: str, deadline: float
    ) -> dict[bytes, Appended]:
        while True:
            producer = self._ready(taken, deadline)
            leader = self._leader(what)
            try:
                return self._transaction(taken, producer, leader, records, what, deadline)
            except (Fenced, Unavailable, OutcomeUnknown) as failure:
                # Brokers raise the epoch as well where they end a transaction at its time-out: _ready tells.
                is_over = time.monotonic() >= deadline or isinstance(failure, NotAuthenticated)
                if is_over and not isinstance(failure, Fenced):
                    self._abort(taken)
                    raise Unavailable(str(failure)) from failure
            except KafkaFailure:
                self._abort(taken)
                raise
            time.sleep(_PAUSE_S)

    # --- who we are ---------------------------------------------------------------------------------------------------

    def _taken(self) -> _Taken:
        self._refuse()
        if self._known is None:
            cluster = describe_topics(self._wire, [], what=f"tell which cluster has topic {self._name}")
            self._known = self._process.taken(cluster.cluster_id or "", self._id)
        return self._known

    def _refuse(self) -> None:
        """Raise what keeps this writer from writing at all."""
        if self._closed:
            raise Unavailable(f"write to topic {self._name}: the connection was closed")
        self._process.refuse(f"write to topic {self._name}")

    def _ready(self, taken: _Taken, deadline: float) -> Producer:
        """The producer, with nothing open. Raises ``Fenced`` where another process has taken over."""
        self._refuse()
        if taken.producer is not None and not taken.in_doubt:
            return taken.producer
        try:
            taken.producer = self._initialized(taken, deadline)
        except Fenced as fenced:
            why = f"{fenced}: another process of this operator writes topic {self._name} now"
            self._process.replaced(why)
            raise Fenced(why) from fenced
        taken.sequence, taken.in_doubt, taken.was_open = 0, False, False
        return taken.producer

    def _initialized(self, taken: _Taken, deadline: float) -> Producer:
        known = taken.producer
        if known is None:
            return self._init(-1, -1, deadline)
        try:
            return self._init(known.producer_id, known.epoch, deadline)
        except Fenced:
            if not taken.was_open:
                raise
        # A transaction that the broker ended at its time-out raised the epoch by one. Another process would have
        # raised it by two: once to end the transaction, and once for itself.
        return self._init(known.producer_id, known.epoch + 1, deadline)

    def _init(self, producer_id: int, epoch: int, deadline: float) -> Producer:
        what = f"take over transactional id {self._id}"
        oldest, newest = _INIT
        answer = self._ask_coordinator(
            lambda: InitProducerIdRequest(
                transactional_id=self._id,
                transaction_timeout_ms=int(LASTS_S * 1000),
                producer_id=producer_id,
                producer_epoch=epoch,
                min_version=oldest,
                max_version=newest,
            ),
            what,
            deadline,
        )
        check(answer.error_code, what, self._needs)
        return Producer(answer.producer_id, answer.producer_epoch)

    def _ask_coordinator(
        self, request: Callable[[], Any], what: str, deadline: float, code_of: Callable[[Any], int] = _code_of
    ) -> Any:
        """What the transaction's coordinator answers to the request, which is made anew each time it is sent."""
        answer, _ = settled(
            lambda left_s: self._wire.exchange(
                self._id,
                request,
                of=CoordinatorType.TRANSACTION,
                code_of=code_of,
                what=what,
                needs=self._needs,
                timeout_s=left_s,
                once=True,
            )[0],
            code_of,
            deadline,
        )
        return answer

    # --- one transaction ----------------------------------------------------------------------------------------------

    def _transaction(
        self,
        taken: _Taken,
        producer: Producer,
        leader: int,
        records: Mapping[bytes, bytes | None],
        what: str,
        deadline: float,
    ) -> dict[bytes, Appended]:
        if leader < 0:
            raise Unavailable(f"{what}: its leader is being elected")
        taken.in_doubt = True
        self._begin(producer, what, deadline)
        taken.was_open = True
        appended: dict[bytes, Appended] = {}
        for batch in self._batches(taken, producer, records):
            appended |= self._append(leader, batch, what)
        self._end(producer, deadline, committed=True)
        taken.in_doubt = taken.was_open = False
        return appended

    def _leader(self, what: str) -> int:
        """The node id of the topic's leader, −1 where there is none at the moment."""
        topic = describe_existing(self._wire, [self._name]).get(self._name)
        if topic is None:
            raise Unavailable(f"{what}: there is no such topic")
        if len(topic.partitions) != 1:
            raise Refused(f"{what}: it has {len(topic.partitions)} partitions, not one")
        return int(topic.partitions[0].leader_id)

    def _begin(self, producer: Producer, what: str, deadline: float) -> None:
        topic_class = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic

        def code_of(answer: Any) -> int:
            [topic] = answer.results_by_topic_v3_and_below
            [partition] = topic.results_by_partition
            return int(partition.partition_error_code)

        answer = self._ask_coordinator(
            lambda: AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=self._id,
                v3_and_below_producer_id=producer.producer_id,
                v3_and_below_producer_epoch=producer.epoch,
                v3_and_below_topics=[topic_class(name=self._name, partitions=[0])],
                max_version=_NEWEST_ADD,
            ),
            what,
            deadline,
            code_of,
        )
        check(code_of(answer), what, self._needs, *on_topics("Write", [self._name]))

    def _batches(self, taken: _Taken, producer: Producer, records: Mapping[bytes, bytes | None]) -> Iterator[_Batch]:
        left = iter(records.items())
        while some := list(islice(left, _RECORDS)):
            while some:
                batch = self._batch(taken, producer, some)
                del some[: len(batch.keys)]
                yield batch

    def _batch(self, taken: _Taken, producer: Producer, records: list[tuple[bytes, bytes | None]]) -> _Batch:
        """As many of these as fit. Thousands of records of discovery hardly differ, and every agent reads them all: so
        they are compressed."""
        builder = MemoryRecordsBuilder(_MAGIC, _GZIP, _BATCH_BYTES)
        now_ms = time.time_ns() // 1_000_000
        fitting = [key for key, _ in takewhile(lambda record: builder.append(now_ms, *record) is not None, records)]
        builder.set_producer_state(producer.producer_id, producer.epoch, taken.sequence, True)
        builder.close()
        taken.sequence += len(fitting)
        return _Batch(tuple(fitting), bytes(builder.buffer()))

    def _append(self, leader: int, batch: _Batch, what: str) -> dict[bytes, Appended]:
        topic_class = ProduceRequest.TopicProduceData
        partition_class = topic_class.PartitionProduceData
        timeout_s = self._wire.BROKER_TIMEOUT_S
        answer = self._wire.ask(
            leader,
            ProduceRequest(
                transactional_id=self._id,
                acks=-1,
                timeout_ms=int(timeout_s * 1000),
                topic_data=[
                    topic_class(name=self._name, partition_data=[partition_class(index=0, records=batch.data)])
                ],
                max_version=_NEWEST_PRODUCE,
            ),
            what=what,
            timeout_s=timeout_s,
        )
        [topic] = answer.responses
        [partition] = topic.partition_responses
        if partition.error_code in UNKNOWN_PARTITION:
            raise Unavailable(f"{what}: its leader does not know it")
        check(partition.error_code, what, self._needs, *on_topics("Write", [self._name]), said=partition.error_message)
        at_ms = partition.log_append_time_ms if partition.log_append_time_ms >= 0 else None
        return {key: Appended(partition.base_offset + n, at_ms) for n, key in enumerate(batch.keys)}

    def _end(self, producer: Producer, deadline: float, *, committed: bool) -> None:
        """EndTxn, asked again while it may still be answered: the coordinator answers as to the first."""
        what = f"{'commit' if committed else 'abort'} the transaction on topic {self._name}"
        answer = self._ask_coordinator(
            lambda: EndTxnRequest(
                transactional_id=self._id,
                producer_id=producer.producer_id,
                producer_epoch=producer.epoch,
                committed=committed,
                max_version=_NEWEST_END,
            ),
            what,
            deadline,
        )
        check(answer.error_code, what, self._needs)

    def _abort(self, taken: _Taken) -> None:
        """So that readers need not wait for its time-out. Where that fails, they do, or the next write sees to it."""
        if taken.producer is not None and taken.was_open:
            try:
                self._end(taken.producer, time.monotonic() + self._wire.BROKER_TIMEOUT_S, committed=False)
            except KafkaFailure:
                return
            taken.was_open = False
