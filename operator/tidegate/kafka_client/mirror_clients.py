"""One partition of a mirror's source and one of its target, through raw requests (``tidegate.mirror.ports``).

On the operator's own request layer: connections, TLS and logins are the same, and it sends batches as bytes.
"""

from __future__ import annotations

import time
from collections import deque
from dataclasses import replace
from typing import Any, Final
from uuid import UUID

from kafka import errors as wire_errors
from kafka.protocol.producer import InitProducerIdRequest

from tidegate.kafka.errors import NotAuthenticated, OutcomeUnknown, Unavailable
from tidegate.kafka.model import TopicPartition
from tidegate.kafka.rights import Resource, Right, on_topics
from tidegate.kafka_client import mirror_requests as requests
from tidegate.kafka_client.codes import NO_ERROR, NOT_AUTHORIZED, UNKNOWN_PARTITION, UNREACHABLE, check
from tidegate.kafka_client.connections import Link
from tidegate.kafka_client.log_offsets import EARLIEST, LATEST
from tidegate.kafka_client.wire import Wire
from tidegate.mirror.batches import Batch, read_batches
from tidegate.mirror.model import Appended, Done, Interrupted, ProducerState, Refusal, Tail
from tidegate.mirror.source import Aborted, SourceRead
from tidegate.mirror.states import AT_ONCE

_MOST_OF_A_TAIL: Final = 16 << 20
"""Bytes that are kept of a log's last batches. An append is no more than five batches, of which the last one tells."""
_OFFSET_OUT_OF_RANGE: Final = 1
_INCONSISTENT_TOPIC_ID: Final = 103
_MOVED_ON: Final = frozenset({45, 47, 59})
"""OUT_OF_ORDER_SEQUENCE_NUMBER, INVALID_PRODUCER_EPOCH, UNKNOWN_PRODUCER_ID: the log's end is not where it was."""

_ANSWER_S: Final = 60.0
"""For writes: a broker answers within its own ``request.timeout.ms``. Who gives up earlier leaves a request behind that
may still be carried out."""
_WRITE_MS: Final = 30_000

_HELD_BACK_S: Final = 60.0
"""How long a broker may hold the reading of a log's end back by a quota; its own window is 11 s by default."""
_HELD_BACK_PAUSE_S: Final = 0.5


class MirrorSource:
    """Implements ``tidegate.mirror.ports.Source``."""

    def __init__(
        self,
        wire: Wire,
        partition: TopicPartition,
        *,
        most_bytes: int = 4 << 20,
        wait_ms: int = 100,
        topic_id: UUID | None = None,
    ) -> None:
        """``topic_id``: nothing is read of another topic of the same name; needs brokers of Kafka 3.1."""
        self._topic_id = topic_id
        self._wire = wire
        self._partition = partition
        self._most_bytes = most_bytes
        self._wait_ms = wait_ms
        self._leader: int | None = None
        self._what = f"read {partition} of the source"
        self._needs = on_topics("Read", [partition.topic])

    def read(self, offset: int) -> SourceRead | Interrupted:
        try:
            return self._read(offset)
        except NotAuthenticated:
            raise
        except requests.HeldBack as error:
            return Interrupted(str(error), held_back=True)
        except Unavailable as error:
            self._leader = None
            return Interrupted(str(error))

    def _read(self, offset: int) -> SourceRead:
        row = self._fetched(offset, self._most_bytes, self._wait_ms)
        if row.error_code == _OFFSET_OUT_OF_RANGE:
            # What ListOffsets tells may be about another topic of this name by now, so only a fetch tells of this one.
            row = self._fetched(self._start(), most_bytes=1, wait_ms=0)
            if row.error_code == _OFFSET_OUT_OF_RANGE:
                raise Unavailable(f"{self._what}: its start moves")
            _check(row.error_code, self._what, self._needs)
            return SourceRead(offset, row.log_start_offset, row.last_stable_offset)
        _check(row.error_code, self._what, self._needs)
        aborted = tuple(Aborted(one.producer_id, one.first_offset) for one in row.aborted_transactions or ())
        data = bytes(row.records or b"")
        return SourceRead(offset, row.log_start_offset, row.last_stable_offset, aborted, data)

    def _fetched(self, offset: int, most_bytes: int, wait_ms: int) -> Any:
        request = requests.fetch(
            self._partition,
            offset,
            isolation=requests.READ_COMMITTED,
            most_bytes=most_bytes,
            wait_ms=wait_ms,
            topic_id=self._topic_id,
        )
        return requests.fetched(self._asked(request))

    def _start(self) -> int:
        request = requests.list_offset(self._partition, EARLIEST, isolation=requests.READ_COMMITTED)
        row = requests.listed(self._asked(request))
        _check(row.error_code, self._what, self._needs)
        return int(row.offset)

    def _asked(self, request: Any) -> Any:
        if self._leader is None:
            self._leader = requests.leader_of(self._wire, self._partition, self._what)
        timeout_s = self._wire.BROKER_TIMEOUT_S + self._wait_ms / 1000
        return self._wire.ask(self._leader, request, what=self._what, timeout_s=timeout_s)


class MirrorTarget:
    """Implements ``tidegate.mirror.ports.Target``."""

    def __init__(
        self, wire: Wire, partition: TopicPartition, *, most_bytes: int = 4 << 20, cluster_id: str = ""
    ) -> None:
        """``cluster_id``: on a connection that leads to another cluster nothing is written; empty: to any."""
        self._wire = wire
        self._cluster_id = cluster_id
        self._partition = partition
        self._most_bytes = most_bytes
        self._link: Link | None = None
        self._what = f"write {partition} of the target"
        self._needs = on_topics("Write", [partition.topic])

    def tail(self, window: int) -> Tail | Interrupted:
        try:
            return self._tail(window)
        except NotAuthenticated:
            raise
        except Unavailable as error:
            self._link = None
            return Interrupted(str(error))

    def _tail(self, window: int) -> Tail | Interrupted:
        if self._link is None:
            leader = requests.leader_of(self._wire, self._partition, self._what)
            self._link = self._wire.link(leader, what=self._what)
        asked = [
            requests.log_end(self._partition, LATEST),
            requests.describe_producers(self._partition),
            requests.log_end(self._partition, LATEST),
            requests.list_offset(self._partition, EARLIEST),
            requests.list_offset(self._partition, LATEST),
        ]
        # On the connection on which all that follows is sent: an address may lead to another cluster by now.
        [cluster, *answers] = self._asked([requests.which_cluster(), *asked])
        if self._cluster_id and cluster.cluster_id != self._cluster_id:
            raise Unavailable(f"{self._what}: it is in cluster {cluster.cluster_id} and not {self._cluster_id}")
        rows = [requests.listed(answer) for answer in answers]
        for row in rows:
            _check(row.error_code, self._what, on_topics("Read", [self._partition.topic]))
        [end, producers, again, start, replicated] = rows
        if not end.offset == again.offset == replicated.offset:
            return Interrupted(f"{self._what}: its last records are not replicated yet")
        remembered = tuple(
            ProducerState(one.producer_id, one.producer_epoch, one.last_sequence) for one in producers.active_producers
        )
        if start.offset == end.offset:
            return Tail(start.offset, end.offset, producers=remembered)
        begin = max(start.offset, end.offset - window)
        return self._with_batches(Tail(start.offset, end.offset, window=begin, producers=remembered))

    def _with_batches(self, tail: Tail) -> Tail | Interrupted:
        kept: deque[Batch] = deque()
        size, at, window = 0, tail.window, tail.window
        until = time.monotonic() + _HELD_BACK_S
        while at < tail.end:
            row = self._fetched(at, until)
            _check(row.error_code, self._what, on_topics("Read", [self._partition.topic]))
            found = [batch for batch in read_batches(bytes(row.records or b"")) if batch.base_offset < tail.end]
            if not found:
                return Interrupted(f"{self._what}: offset {at} cannot be read yet")
            kept.extend(found)
            size += sum(len(batch.data) for batch in found)
            at = found[-1].next_offset
            while size > _MOST_OF_A_TAIL and len(kept) > AT_ONCE:
                dropped = kept.popleft()
                size -= len(dropped.data)
                window = dropped.next_offset
        return replace(tail, data=b"".join(batch.data for batch in kept), window=window)

    def _fetched(self, offset: int, until: float) -> Any:
        """By a quota it may take until then: what was read of the log's end before would use the quota up again."""
        request = requests.fetch(
            self._partition, offset, isolation=requests.READ_UNCOMMITTED, most_bytes=self._most_bytes, wait_ms=0
        )
        while True:
            [answer] = self._asked([request])
            try:
                return requests.fetched(answer)
            except requests.HeldBack:
                if time.monotonic() > until:
                    raise
            time.sleep(_HELD_BACK_PAUSE_S)

    def append(self, batches: tuple[bytes, ...]) -> Appended | Interrupted:
        answers = self._written([requests.produce(self._partition, batch, _WRITE_MS) for batch in batches])
        if isinstance(answers, Interrupted):
            return answers
        outcomes: list[int | Refusal] = []
        by_its_clock = False
        for row in map(requests.produced, answers):
            refused = self._refused(int(row.error_code), row.error_message, *self._needs)
            if isinstance(refused, Interrupted):
                return refused
            outcomes.append(int(row.base_offset) if refused is None else refused)
            by_its_clock |= refused is None and int(row.log_append_time_ms) >= 0
        return Appended(tuple(outcomes), by_its_clock)

    def write_markers(self, producer_id: int, epoch: int, count: int) -> Done | Refusal | Interrupted:
        answers = self._written([requests.write_markers(self._partition, producer_id, epoch, count)])
        if isinstance(answers, Interrupted):
            return answers
        codes = requests.marker_codes(answers[0]) - {NO_ERROR}
        return self._refused(max(codes), None, Right("Alter", Resource.CLUSTER)) or Done() if codes else Done()

    def delete_records(self, offset: int) -> Done | Refusal | Interrupted:
        answers = self._written([requests.delete_records(self._partition, offset, _WRITE_MS)])
        if isinstance(answers, Interrupted):
            return answers
        code = int(requests.listed(answers[0]).error_code)
        return self._refused(code, None, *on_topics("Delete", [self._partition.topic])) or Done()

    def _written(self, asked: list[Any]) -> list[Any] | Interrupted:
        try:
            return self._asked(asked, writes=True)
        except NotAuthenticated:
            raise
        except (Unavailable, OutcomeUnknown) as error:
            self._link = None
            return Interrupted(str(error))

    def _asked(self, asked: list[Any], *, writes: bool = False) -> list[Any]:
        if self._link is None:
            raise Unavailable(f"{self._what}: there is no connection on which its end was read")
        timeout_s = _ANSWER_S if writes else self._wire.timeout_s
        answers: list[Any] = self._wire.ask_on(self._link, asked, what=self._what, timeout_s=timeout_s, writes=writes)
        return answers

    def _refused(self, code: int, said: str | None, *needs: Right) -> Refusal | Interrupted | None:
        """Raises ``NotAuthorized``."""
        if code == NO_ERROR:
            return None
        if code in UNREACHABLE or code in UNKNOWN_PARTITION:
            self._link = None
            return Interrupted(f"{self._what}: {wire_errors.for_code(code).__name__}")
        if code in NOT_AUTHORIZED:
            check(code, self._what, *needs)
        name = wire_errors.for_code(code).__name__ + (f" ({said})" if said else "")
        return Refusal(code, name, lasting=code not in _MOVED_ON)


def new_producer_id(wire: Wire) -> int:
    """One that no producer has (InitProducerId). A broker that has just begun may need a moment."""
    what = "ask for a producer id"

    def attempt(_: bool) -> int:
        answer = wire.ask_any(
            lambda: InitProducerIdRequest(
                transactional_id=None, transaction_timeout_ms=60_000, producer_id=-1, producer_epoch=-1, max_version=4
            ),
            what=what,
        )
        # Write on some topic is enough as well.
        check(answer.error_code, what, Right("IdempotentWrite", Resource.CLUSTER))
        return int(answer.producer_id)

    return wire.patiently(attempt, wire.deadline())


def _check(code: int, what: str, needs: tuple[Right, ...]) -> None:
    if code in UNKNOWN_PARTITION or code == _INCONSISTENT_TOPIC_ID:
        raise Unavailable(f"{what}: its leader is not there")
    check(code, what, *needs)
