"""Kafka in memory, behind ``tidegate.kafka.ports``; one contract suite runs against it and against the real thing
(``tests/contract/test_kafka_ports.py``). Its consumers: ``support.fake_consumer``.

Time is a ``FakeClock``: nothing happens but while somebody sleeps on it. Consumers poll, heartbeat, commit, rejoin and
commit late as events of that clock, in a fixed order, so every run is the same. Use from one thread.

What is simplified: one coordinator; a join and its sync are one step, unless a guest leads; a KIP-848 member that
takes part in a revocation is done with it at its own heartbeat; static members rejoin as dynamic ones do.
"""

from __future__ import annotations

import base64
import contextlib
import heapq
import itertools
from collections import defaultdict, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from support.fake_audit import FakeAuditLog
from support.fake_control import FakeControlTopics
from support.fake_offset_retention import FakeOffsetRetention
from tidegate.control.standing import managed_members
from tidegate.kafka import streams
from tidegate.kafka.assignments import LEADER_CLIENT_ID
from tidegate.kafka.capabilities import KNOWN_VERSIONS, PROBE_FAILED, PROBE_REFUSED, Capabilities, Capability, kind_of
from tidegate.kafka.errors import (
    CommitRefused,
    Fenced,
    GroupNotEmpty,
    GroupNotLive,
    KafkaFailure,
    MemberForgotten,
    OutcomeUnknown,
    Refused,
    Unavailable,
    UnknownPartitions,
)
from tidegate.kafka.model import (
    Broker,
    Cluster,
    Features,
    Generation,
    Group,
    GroupState,
    GroupType,
    Keeping,
    LogBounds,
    Member,
    Offsets,
    Range,
    Record,
    RecordHead,
    Seat,
    Subscription,
    Topic,
    TopicPartition,
)
from tidegate.kafka.rights import Right
from tidegate.resources.connection import GroupKind, Support

if TYPE_CHECKING:
    from support.fake_consumer import FakeConsumer, MemberMetadata

START: Final = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)
PENDING_SESSION_S: Final = 8.0
VISIBLE_AT_MOST_S: Final = 0.25
"""A committed transaction shows by then, also if nobody looks: on real brokers mostly after 10 to 50 ms."""

COOPERATIVE: Final = frozenset({"cooperative-sticky"})
OFFERED: Final = ("range", "roundrobin", "sticky", "cooperative-sticky")
"""Assignors that Tidegate offers as it joins, besides the one it is told."""
DATED_SUBSCRIPTION: Final = 2
"""Version of the subscription that tells the generation of what a member owns (KIP-792)."""


class FakeClock:
    """Implements ``tidegate.clock.Clock``: sleeping runs what falls due meanwhile, in order of time."""

    def __init__(self, start: datetime = START) -> None:
        self.deaths: tuple[type[BaseException], ...] = ()
        """What kills a process: raised by a repeated call, it ends that, and nobody else hears of it."""
        self._start = start
        self._elapsed = 0.0
        self._numbers = itertools.count()
        self._events: list[tuple[float, int, Callable[[], None]]] = []

    def now(self) -> datetime:
        return self._start + timedelta(seconds=self._elapsed)

    def monotonic(self) -> float:
        return self._elapsed

    def sleep(self, seconds: float) -> None:
        until = self._elapsed + max(0.0, seconds)
        while self._events and self._events[0][0] <= until:
            at, _, event = heapq.heappop(self._events)
            # An event may have taken time itself.
            self._elapsed = max(self._elapsed, at)
            event()
        self._elapsed = max(self._elapsed, until)

    @contextlib.contextmanager
    def repeat(self, seconds: float, call: Callable[[], None]) -> Iterator[None]:
        over = False

        def again() -> None:
            nonlocal over
            if over:
                return
            with contextlib.suppress(*self.deaths):
                call()
                self.after(seconds, again)

        self.after(seconds, again)
        try:
            yield
        finally:
            over = True

    def after(self, seconds: float, event: Callable[[], None]) -> None:
        heapq.heappush(self._events, (self._elapsed + seconds, next(self._numbers), event))


# --- logs -------------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Log:
    """Records by offset with their timestamps in ms; offsets of markers and compacted records are missing.

    ``open_from``: the first record of an open transaction, where there is one.
    """

    records: dict[int, int] = field(default_factory=dict)
    start: int = 0
    end: int = 0
    offline: bool = False
    open_from: int | None = None
    whole: dict[int, Record] = field(default_factory=dict)
    """What is in records, where that was told."""
    aborted: set[int] = field(default_factory=set)
    """Records of transactions that were aborted."""

    @property
    def stable_end(self) -> int:
        return self.end if self.open_from is None else self.open_from


@dataclass(slots=True)
class _TopicLogs:
    topic_id: str
    logs: list[_Log]


# --- groups -----------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Membership:
    """The coordinator's side of one member."""

    consumer: FakeConsumer | FakeGuest
    assignment: frozenset[TopicPartition] = frozenset()
    owned: frozenset[TopicPartition] = frozenset()
    """What it had as it joined the present generation."""
    rejoined: bool = False


@dataclass(slots=True)
class _Commit:
    """``sequence``: its place in the coordinator's log. The last one wins, whatever ends later (GroupMetadata).

    ``explicit_ms``: the expiry that the commit asked for (OffsetCommit v2 to v4).
    """

    offset: int
    sequence: int
    committed_ms: int
    metadata: str = ""
    explicit_ms: int | None = None


@dataclass(slots=True)
class _GroupLogs:
    group_id: str
    type: GroupType = GroupType.SIMPLE
    assignor: str = ""
    state: GroupState = GroupState.EMPTY
    generation: int = 0
    leader: str = ""
    members: dict[str, _Membership] = field(default_factory=dict)
    committed: dict[TopicPartition, _Commit] = field(default_factory=dict)
    pending_ids: dict[str, float] = field(default_factory=dict)
    targets: dict[str, frozenset[TopicPartition]] = field(default_factory=dict)
    rebalance: int = 0
    first_join_ends_s: float | None = None
    emptied_ms: int | None = None


@dataclass(slots=True, eq=False)
class _Transaction:
    transactional_id: str
    epoch: int
    offsets: dict[str, dict[TopicPartition, _Commit]] = field(default_factory=lambda: defaultdict(dict))
    records: list[tuple[str, bytes, bytes]] = field(default_factory=list)
    """Topic, key and value."""
    copies: list[tuple[TopicPartition, Record]] = field(default_factory=list)
    included: set[TopicPartition] = field(default_factory=set)
    """Partitions that its end decides."""
    ended: bool = False
    polls_left: int = 0
    """A committed transaction becomes visible once it was asked for this often."""


class FakeKafka:
    """Implements ``tidegate.cluster.Kafka``.

    ``visible_after``: how many looks (``pending``, ``committed``) it takes until a committed transaction shows.
    """

    def __init__(self, clock: FakeClock | None = None, *, visible_after: int = 2, brokers: int = 1) -> None:
        self.clock = clock or FakeClock()
        self.visible_after = visible_after
        self.initial_delay_s = 0.0
        """``group.initial.rebalance.delay.ms``: the first join of an Empty group takes so long, whoever is pending."""
        self.max_size: int | None = None
        """``group.max.size``"""
        self.hides_revocations = False
        """As brokers before 4.3: a KIP-848 member's description leaves out what it has yet to give up."""
        self.refuses: frozenset[GroupKind] = frozenset()
        """For which groups the brokers take no offsets of a producer that is no member, as 3.9 for KIP-848 groups."""
        self.refusal = "the coordinator refused them: UNKNOWN_MEMBER_ID"
        self.told_support: Support | None = None
        self.lacks: frozenset[Right] = frozenset()
        """Rights that the principal does not have, as the brokers tell."""
        """What is told of every kind of group instead of the truth."""
        self.calls: list[str] = []
        """Names of the calls made, to hold the number of requests against."""
        self._brokers = brokers
        self._topics: dict[str, _TopicLogs] = {}
        self.kept_for: dict[str, Keeping] = {}
        """Topics whose settings may be read."""
        self._lagging: dict[str, int] = {}
        self._groups: dict[str, _GroupLogs] = {}
        self._epochs: dict[str, int] = {}
        self._open: dict[str, _Transaction] = {}
        self._ending: list[_Transaction] = []
        self._numbers = itertools.count(1)
        self._failures: defaultdict[str, deque[KafkaFailure]] = defaultdict(deque)
        self._lost_answers: deque[bool] = deque()
        self.tells_no_outcome = False
        """The next transaction that is committed hangs: its coordinator calls it complete, and has told the groups'
        nothing (a whole cluster that was restarted just then). The same producer's next one decides it as well, for the
        groups and the topics that it has itself."""
        self._hanging: dict[str, list[_Transaction]] = defaultdict(list)
        self._control = FakeControlTopics(sleep=self.clock.sleep, now_ms=lambda: _ms(self.clock.now()))
        self._retention = FakeOffsetRetention(self)
        self._audit = FakeAuditLog()

    # --- setting the scene ------------------------------------------------------------------------------------------

    def create_topic(self, name: str, partitions: int) -> str:
        """Returns the topic id. Raises ``ValueError`` when there is one."""
        if name in self._topics:
            raise ValueError(f"topic {name} exists")
        raw = next(self._numbers).to_bytes(16, "big")
        topic_id = base64.urlsafe_b64encode(raw).decode().rstrip("=")
        self._topics[name] = _TopicLogs(topic_id, [_Log() for _ in range(partitions)])
        return topic_id

    def delete_topic(self, name: str) -> None:
        """The coordinator forgets the offsets of a deleted topic's partitions."""
        del self._topics[name]
        for group in self._groups.values():
            group.committed = {p: c for p, c in group.committed.items() if p.topic != name}

    def delete_group(self, group_id: str) -> None:
        """As ``kafka-consumer-groups --delete`` does, of a group without members."""
        del self._groups[group_id]

    def add_partitions(self, name: str, partitions: int) -> None:
        """Expand a topic to so many. Its consumers' groups get them when they next rebalance."""
        logs = self._topics[name].logs
        logs.extend(_Log() for _ in range(partitions - len(logs)))

    def lag_behind(self, name: str, partitions: int | None) -> None:
        """Whoever asks for the topic meets a broker that knows of so many partitions yet; ``None``: of all."""
        self._lagging.pop(name, None)
        if partitions is not None:
            self._lagging[name] = partitions

    def append(self, partition: TopicPartition, times: Iterable[datetime]) -> None:
        """Write a record for each timestamp."""
        log = self._log(partition)
        for at in times:
            log.records[log.end] = _ms(at)
            log.end += 1

    def append_whole(self, partition: TopicPartition, record: Record, *, aborted: bool = False) -> None:
        """Write a record as it is, but for its offset. ``aborted``: in a transaction that was."""
        log = self._log(partition)
        log.records[log.end] = record.at_ms
        log.whole[log.end] = replace(record, offset=log.end)
        log.aborted |= {log.end} if aborted else set()
        log.end += 1

    def fill(self, topic: str, records: int, *, at: datetime = START, every: timedelta = timedelta(0)) -> None:
        """Write ``records`` records to each partition, the first at ``at``."""
        for number in range(len(self._topics[topic].logs)):
            self.append(TopicPartition(topic, number), (at + every * n for n in range(records)))

    def append_gap(self, partition: TopicPartition, offsets: int = 1) -> None:
        """Offsets without a record: transaction markers, or records that compaction took."""
        self._log(partition).end += offsets

    def open_transaction(self, partition: TopicPartition) -> None:
        """What is written from here on belongs to a transaction that stays open until ``end_transaction``."""
        self._log(partition).open_from = self._log(partition).end

    def end_transaction(self, partition: TopicPartition) -> None:
        """It is committed, with a marker."""
        self._log(partition).open_from = None
        self.append_gap(partition)

    def delete_records(self, partition: TopicPartition, before: int) -> None:
        log = self._log(partition)
        log.start = max(log.start, min(before, log.end))
        log.records = {o: t for o, t in log.records.items() if o >= log.start}

    def take_offline(self, partition: TopicPartition) -> None:
        """The partition has no leader: whoever asks for its offsets gets no answer."""
        self._log(partition).offline = True

    def commit_directly(self, group_id: str, offsets: Offsets, metadata: str = "") -> None:
        """Put offsets into a group as an earlier member of it would have left them; no range check, as in Kafka."""
        group = self._group(group_id)
        self._write(group, offsets)
        for partition in offsets:
            group.committed[partition].metadata = metadata

    def rebalance(self, group_id: str) -> None:
        """As where somebody joins a classic group and is gone before the others have rejoined."""
        self._prepare(self._group(group_id))

    def set_group(self, group_id: str, type: GroupType, assignor: str = "") -> None:  # noqa: A002
        group = self._group(group_id)
        group.type, group.assignor = type, assignor
        if type in (GroupType.STREAMS, GroupType.SHARE):
            group.state = GroupState.UNKNOWN

    def fail(self, call: str, *failures: KafkaFailure) -> None:
        """The next calls of that name (``committed``, ``send``, ``commit`` …) raise these, one each."""
        self._failures[call].extend(failures)

    def lose_commit_answer(self, *, committed: bool) -> None:
        """The next transaction's commit raises ``OutcomeUnknown``, having worked or not."""
        self._lost_answers.append(committed)

    @property
    def undecided_records(self) -> list[tuple[str, bytes, bytes]]:
        """Of transactions that hang: nobody who reads committed records gets beyond them."""
        return [row for left in self._hanging.values() for hanging in left for row in hanging.records]

    # --- looking ------------------------------------------------------------------------------------------------------

    def cluster(self) -> Cluster:
        self._called("cluster")
        brokers = tuple(Broker(n, "127.0.0.1", 9092 + n) for n in range(self._brokers))
        return Cluster("fake-cluster", brokers, Features(consumer_protocol=True, streams_protocol=True))

    def capabilities(self, kinds: Collection[GroupKind], *, probe: bool = True) -> Capabilities:
        self._called("capabilities" if probe else "capabilities without a probe")
        if self.told_support is not None:
            return {kind: Capability(self.told_support, PROBE_FAILED, "as the test says") for kind in kinds}
        refused = Capability(Support.UNSUPPORTED, PROBE_REFUSED, self.refusal)
        taken = Capability(Support.SUPPORTED, KNOWN_VERSIONS, "the brokers were tested")
        return {kind: refused if kind in self.refuses else taken for kind in kinds}

    def lacking(self, rights: Collection[Right]) -> Collection[Right]:
        self._called("lacking")
        return [right for right in rights if right in self.lacks]

    def topics(self, names: Collection[str] | None = None) -> Mapping[str, Topic]:
        self._called("topics")
        return {n: t for n, t in self._public_topics().items() if names is None or n in names}

    def _public_topics(self) -> dict[str, Topic]:
        return {
            name: Topic(name, t.topic_id, self._lagging.get(name, len(t.logs)))
            for name, t in self._topics.items()
            if not name.startswith("__")
        }

    def topic_watch(self) -> FakeTopicWatch:
        return FakeTopicWatch(self)

    def groups(self, group_ids: Collection[str]) -> Mapping[str, Group]:
        self._called("groups")
        return {group_id: self._described(group_id) for group_id in group_ids}

    def _described(self, group_id: str) -> Group:
        group = self._groups.get(group_id)
        if group is None:
            return Group(group_id, GroupState.DEAD, GroupType.UNKNOWN)
        # A classic group's assignments are not told while it rebalances.
        told = not group.state.is_rebalancing
        members = tuple(
            Member(
                member_id=member_id,
                client_id=m.consumer.client_id,
                host=m.consumer.host,
                group_instance_id=m.consumer.group_instance_id,
                assignment=self._told_assignment(group, member_id) if told else frozenset(),
            )
            for member_id, m in group.members.items()
        )
        return Group(group_id, group.state, group.type, group.assignor if members and told else "", members)

    def _told_assignment(self, group: _GroupLogs, member_id: str) -> frozenset[TopicPartition]:
        assignment = group.members[member_id].assignment
        if self.hides_revocations and group.type is GroupType.CONSUMER:
            return assignment & group.targets.get(member_id, frozenset())
        return assignment

    def group_ids(self) -> frozenset[str]:
        self._called("group_ids")
        return frozenset(self._groups)

    def committed(
        self, group_id: str, partitions: Collection[TopicPartition] | None = None, *, stable: bool = False
    ) -> Offsets:
        self._called("committed")
        self._look()
        known = {p: c.offset for p, c in self._offsets_of(group_id).items()}
        hidden = self._undecided(group_id) if stable else frozenset()
        return {p: o for p, o in known.items() if p not in hidden and (partitions is None or p in partitions)}

    def committed_of(self, group_ids: Collection[str]) -> Mapping[str, Offsets]:
        self._called("committed_of")
        self._look()
        return {g: {p: c.offset for p, c in self._offsets_of(g).items()} for g in group_ids}

    def committed_by_streams(self, group_ids: Collection[str]) -> frozenset[str]:
        self._called("committed_by_streams")
        self._look()
        return frozenset(g for g in group_ids if streams.committed(c.metadata for c in self._offsets_of(g).values()))

    def pending(self, group_id: str, partitions: Collection[TopicPartition]) -> frozenset[TopicPartition]:
        self._called("pending")
        self._look()
        return self._undecided(group_id) & frozenset(partitions)

    def log_bounds(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, LogBounds]:
        self._called("log_bounds")
        return {p: LogBounds(log.start, log.end) for p, log in self._led(partitions).items()}

    def last_stable_offsets(self, partitions: Collection[TopicPartition], *, as_told: bool = False) -> Offsets:
        self._called("last_stable_offsets")
        told = [p for p in partitions if self._exists(p) and not self._log(p).offline] if as_told else partitions
        return {p: log.stable_end for p, log in self._led(told).items()}

    def next_records(self, positions: Offsets) -> Mapping[TopicPartition, RecordHead]:
        self._called("next_records")
        found = {}
        for partition, log in self._led(positions).items():
            first = min((o for o in log.records if positions[partition] <= o < log.stable_end), default=None)
            if first is not None:
                at = datetime.fromtimestamp(log.records[first] / 1000, UTC)
                found[partition] = RecordHead(first, at, size=10, headers=0)
        return found

    def records(
        self, partition: TopicPartition, span: Range, *, committed: bool, most_bytes: int
    ) -> tuple[Record, ...]:
        self._called("records")
        log = self._led([partition])[partition]
        end = min(span.end, log.stable_end if committed else log.end)
        found = tuple(
            log.whole.get(at, Record(at, log.records[at], None, b"ten bytes."))
            for at in sorted(log.records)
            if span.start <= at < end and not (committed and at in log.aborted)
        )
        if sum(record.size for record in found) > most_bytes:
            raise Refused(f"read {partition} from offset {span.start} on: more than {most_bytes:,} bytes")
        return found

    def keeping(self, topic: str) -> Keeping | None:
        self._called("keeping")
        return self.kept_for.get(topic)

    def offsets_at(self, times: Mapping[TopicPartition, datetime]) -> Mapping[TopicPartition, int | None]:
        self._called("offsets_at")
        logs = self._led(times)
        return {
            p: min((o for o, t in logs[p].records.items() if t >= _ms_up(at)), default=None) for p, at in times.items()
        }

    def record_times(self, positions: Offsets) -> Mapping[TopicPartition, datetime]:
        self._called("record_times")
        times = {}
        for partition, log in self._led(positions).items():
            first = min((o for o in log.records if o >= positions[partition]), default=None)
            if first is not None:
                times[partition] = datetime.fromtimestamp(log.records[first] / 1000, UTC)
        return times

    @property
    def control(self) -> FakeControlTopics:
        return self._control

    @property
    def retention(self) -> FakeOffsetRetention:
        return self._retention

    def managed_members(self, group_id: str) -> frozenset[str]:
        self._called("managed_members")
        return managed_members(self._control.read([group_id]), group_id)

    @property
    def audit(self) -> FakeAuditLog:
        return self._audit

    @property
    def membership(self) -> FakeMembership:
        return FakeMembership(self)

    def writer(self, group_id: str, *, transaction_timeout_s: float, purpose: str = "") -> FakeWriter:
        return FakeWriter(self, group_id, transaction_timeout_s, purpose)

    def close(self) -> None:
        """Nothing is held."""

    # --- inside: logs -------------------------------------------------------------------------------------------------

    def _called(self, name: str) -> None:
        self.calls.append(name)
        if self._failures[name]:
            raise self._failures[name].popleft()

    def _exists(self, partition: TopicPartition) -> bool:
        return partition.topic in self._topics and 0 <= partition.partition < len(self._topics[partition.topic].logs)

    def _log(self, partition: TopicPartition) -> _Log:
        if not self._exists(partition):
            raise UnknownPartitions(frozenset({partition}))
        return self._topics[partition.topic].logs[partition.partition]

    def _led(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, _Log]:
        asked = list(partitions)
        unknown = frozenset(p for p in asked if not self._exists(p))
        if unknown:
            raise UnknownPartitions(unknown)
        logs = {p: self._log(p) for p in asked}
        for partition, log in logs.items():
            if log.offline:
                raise Unavailable(f"read the log's offsets ({partition}): LEADER_NOT_AVAILABLE")
        return logs

    # --- inside: offsets and transactions -----------------------------------------------------------------------------

    def _group(self, group_id: str) -> _GroupLogs:
        return self._groups.setdefault(group_id, _GroupLogs(group_id))

    def _offsets_of(self, group_id: str) -> dict[TopicPartition, _Commit]:
        return self._groups[group_id].committed if group_id in self._groups else {}

    def _write(self, group: _GroupLogs, offsets: Offsets) -> None:
        for partition, offset in offsets.items():
            group.committed[partition] = self._commit(offset)

    def _commit(self, offset: int) -> _Commit:
        return _Commit(offset, next(self._numbers), _ms(self.clock.now()))

    def _undecided(self, group_id: str) -> frozenset[TopicPartition]:
        hanging = [t for left in self._hanging.values() for t in left]
        return frozenset(
            p for t in [*self._open.values(), *self._ending, *hanging] for p in t.offsets.get(group_id, {})
        )

    def _look(self) -> None:
        for transaction in list(self._ending):
            if transaction.polls_left <= 0:
                self._show(transaction)
            transaction.polls_left -= 1

    def _show(self, transaction: _Transaction) -> None:
        if transaction in self._ending:
            self._ending.remove(transaction)
            self._materialise(transaction)

    def _materialise(self, transaction: _Transaction) -> None:
        for topic, key, value in transaction.records:
            self._audit.values[topic].append((key, value))
        for partition, record in transaction.copies:
            self.append_whole(partition, record)
        for group_id, offsets in transaction.offsets.items():
            committed = self._group(group_id).committed
            for partition, commit in offsets.items():
                if partition not in committed or committed[partition].sequence < commit.sequence:
                    committed[partition] = commit

    def _init_transactions(self, transactional_id: str) -> int:
        """Ends what an earlier producer left: aborts an open transaction, waits for one that is committing."""
        left = self._open.pop(transactional_id, None)
        if left is not None:
            left.ended = True
        self._complete(transactional_id)
        self._epochs[transactional_id] = self._epochs.get(transactional_id, 0) + 1
        return self._epochs[transactional_id]

    def _complete(self, transactional_id: str) -> None:
        """Who sends to its next transaction, or takes the id over, waits until the one before has taken effect."""
        for transaction in [t for t in self._ending if t.transactional_id == transactional_id]:
            self._show(transaction)

    def _send_offsets(self, transaction: _Transaction, group_id: str, offsets: Offsets) -> None:
        self._check_epoch(transaction.transactional_id, transaction.epoch)
        self._complete(transaction.transactional_id)
        transaction.offsets[group_id].update({p: self._commit(o) for p, o in offsets.items()})

    def _begin(self, transactional_id: str, epoch: int, timeout_s: float) -> _Transaction:
        transaction = _Transaction(transactional_id, epoch)
        self._open[transactional_id] = transaction

        def expire() -> None:
            if self._open.get(transactional_id) is transaction:
                # The coordinator raises the epoch when it aborts, so the producer cannot go on.
                self._init_transactions(transactional_id)

        self.clock.after(timeout_s, expire)
        return transaction

    def _check_epoch(self, transactional_id: str, epoch: int) -> None:
        if self._epochs.get(transactional_id) != epoch:
            raise Fenced(f"transactional id {transactional_id}: a newer producer has taken over")

    def _end(self, transaction: _Transaction, *, commit: bool) -> None:
        transactional_id = transaction.transactional_id
        transaction.ended = True
        if self._open.get(transactional_id) is transaction:
            del self._open[transactional_id]
            if commit and self.tells_no_outcome:
                self.tells_no_outcome = False
                self._hanging[transactional_id].append(transaction)
                return
            written = {topic for topic, _, _ in transaction.records}
            for hanging in self._hanging[transactional_id]:
                transaction.records[:0] = [row for row in hanging.records if row[0] in written]
                hanging.records = [row for row in hanging.records if row[0] not in written]
                transaction.copies[:0] = [row for row in hanging.copies if row[0] in transaction.included]
                hanging.copies = [row for row in hanging.copies if row[0] not in transaction.included]
                for group_id, offsets in transaction.offsets.items():
                    transaction.offsets[group_id] = hanging.offsets.pop(group_id, {}) | offsets
            if commit:
                transaction.polls_left = self.visible_after
                self._ending.append(transaction)
                self.clock.after(VISIBLE_AT_MOST_S, lambda: self._show(transaction))

    # --- inside: members ----------------------------------------------------------------------------------------------

    def _subscribed(self, group: _GroupLogs) -> frozenset[str]:
        return frozenset(t for m in group.members.values() for t in m.consumer.topics)

    def _partitions_of(self, topics: Iterable[str]) -> list[TopicPartition]:
        return sorted(TopicPartition(t, n) for t in topics if t in self._topics for n in range(self._size(t)))

    def _size(self, topic: str) -> int:
        return len(self._topics[topic].logs)

    def _join(
        self,
        group_id: str,
        member_id: str,
        consumer: FakeConsumer | FakeGuest,
        names: frozenset[TopicPartition] = frozenset(),
    ) -> None:
        """A member joins or rejoins. A classic group answers when all have: see ``_maybe_complete``.

        ``names``: what a new member says that it owns; of two who name a partition, the one of the newer generation
        keeps it.
        """
        group = self._group(group_id)
        if group.members and (group.type, group.assignor) != (consumer.protocol, consumer.assignor):
            raise Refused(f"group {group_id}: INCONSISTENT_GROUP_PROTOCOL")
        group.type, group.assignor = consumer.protocol, consumer.assignor
        taken = {p for m in group.members.values() for p in m.assignment}
        known = group.members.setdefault(member_id, _Membership(consumer, assignment=names - taken))
        if group.type is GroupType.CONSUMER:
            self._retarget(group)
            return
        if group.state is not GroupState.PREPARING_REBALANCE:
            self._prepare(group)
        known.rejoined = True
        self._maybe_complete(group)

    def _prepare(self, group: _GroupLogs) -> None:
        group.first_join_ends_s = None
        if group.state is GroupState.EMPTY and self.initial_delay_s > 0:
            group.first_join_ends_s = self.clock.monotonic() + self.initial_delay_s
            self.clock.after(self.initial_delay_s, lambda: self._maybe_complete(group))
        unanswered = group.state is GroupState.COMPLETING_REBALANCE
        group.state = GroupState.PREPARING_REBALANCE
        group.rebalance += 1
        mine = group.rebalance
        for member in group.members.values():
            member.rejoined = False
            if unanswered:
                # The answer to its sync says that it has to join anew.
                self.clock.after(0.002, member.consumer._join_again)

        def expire() -> None:
            if group.rebalance == mine and group.state is GroupState.PREPARING_REBALANCE:
                for member_id in [i for i, m in group.members.items() if not m.rejoined]:
                    del group.members[member_id]
                self._maybe_complete(group)

        timeouts = [m.consumer.rebalance_timeout_s for m in group.members.values()]
        self.clock.after(max(timeouts, default=PENDING_SESSION_S), expire)

    def _maybe_complete(self, group: _GroupLogs) -> None:
        """The join ends once every member has rejoined and no handed-out member id is outstanding (KIP-394)."""
        if group.state is not GroupState.PREPARING_REBALANCE:
            return
        now = self.clock.monotonic()
        if group.first_join_ends_s is not None:
            if now < group.first_join_ends_s:
                return
        elif any(expiry > now for expiry in group.pending_ids.values()):
            return
        if not all(m.rejoined for m in group.members.values()):
            return
        group.generation += 1
        if not group.members:
            group.state, group.emptied_ms = GroupState.EMPTY, _ms(self.clock.now())
            return
        if group.leader not in group.members:
            group.leader = next(iter(group.members))
        leader = group.members[group.leader].consumer
        if isinstance(leader, FakeGuest):
            group.state = GroupState.COMPLETING_REBALANCE
            for member in group.members.values():
                member.consumer._joined(group.generation)
            return
        self._give(group, self._ranges(group) if group.assignor not in COOPERATIVE else self._sticky(group))

    def _give(self, group: _GroupLogs, shares: Mapping[str, frozenset[TopicPartition]]) -> None:
        group.state = GroupState.STABLE
        none = frozenset[TopicPartition]()
        moving = group.assignor in COOPERATIVE and any(
            m.assignment - shares.get(i, none) for i, m in group.members.items()
        )
        for member_id, member in group.members.items():
            member.owned, member.assignment = member.assignment, shares.get(member_id, none)
            member.consumer._assigned(group.generation, member.assignment)
        if moving:
            # KIP-429: what its owner gave up in this rebalance is given away in the next one.
            late_s = max(m.consumer.gives_up_after_s for m in group.members.values())
            generation = group.generation

            def next_one() -> None:
                if group.generation == generation and group.state is GroupState.STABLE:
                    self._prepare(group)

            self.clock.after(late_s, next_one) if late_s else next_one()

    def _ranges(self, group: _GroupLogs) -> dict[str, frozenset[TopicPartition]]:
        """RangeAssignor: each topic's partitions in runs, by the members' order."""
        order = sorted(group.members, key=lambda i: (group.members[i].consumer.client_id, i))
        share: dict[str, set[TopicPartition]] = {i: set() for i in order}
        for topic in sorted({p.topic for p in self._partitions_of(self._subscribed(group))}):
            readers = [i for i in order if topic in group.members[i].consumer.topics]
            each, more = divmod(self._size(topic), len(readers))
            numbers = iter(range(self._size(topic)))
            for place, member_id in enumerate(readers):
                taken = itertools.islice(numbers, each + (place < more))
                share[member_id].update(TopicPartition(topic, n) for n in taken)
        return {i: frozenset(partitions) for i, partitions in share.items()}

    def _sticky(self, group: _GroupLogs) -> dict[str, frozenset[TopicPartition]]:
        """Owners keep what they have up to their fair share; what nobody has is spread."""
        wanted = self._partitions_of(self._subscribed(group))
        order = sorted(
            (i for i, m in group.members.items() if m.consumer.topics),
            key=lambda i: (group.members[i].consumer.client_id, i),
        )
        if not order:
            return {}
        owned = {i: [p for p in wanted if p in group.members[i].assignment] for i in order}
        most = -(-len(wanted) // len(order))
        share = {i: set(owned[i][:most]) for i in order}
        held = {p for partitions in owned.values() for p in partitions}
        for partition in wanted:
            if partition not in held:
                readers = [i for i in order if partition.topic in group.members[i].consumer.topics]
                share[min(readers, key=lambda i: len(share[i]))].add(partition)
        return {i: frozenset(s) for i, s in share.items()}

    def _retarget(self, group: _GroupLogs) -> None:
        """KIP-848: a new target assignment; members reconcile with it at their heartbeats."""
        group.targets = self._sticky(group)
        group.generation += 1
        self._reconciled(group)

    def _reconciled(self, group: _GroupLogs) -> None:
        if not group.members:
            group.state, group.emptied_ms = GroupState.EMPTY, _ms(self.clock.now())
        elif all(m.assignment == group.targets[i] for i, m in group.members.items()):
            group.state = GroupState.STABLE
        else:
            group.state = GroupState.RECONCILING

    def _remove(self, group: _GroupLogs, member_id: str) -> bool:
        removed = group.members.pop(member_id, None)
        if removed is None:
            return False
        if removed.consumer._joining:
            # The answer to its join says that it is unknown; it joins anew at once.
            self.clock.after(0.002, lambda: removed.consumer._unknown_in_join(member_id))
        if group.type is GroupType.CONSUMER:
            self._retarget(group)
        elif group.state is GroupState.PREPARING_REBALANCE:
            self._maybe_complete(group)
        else:
            self._prepare(group)
            self._maybe_complete(group)
        return True

    def _member_commit(self, group_id: str, member_id: str, generation: int, offsets: Offsets) -> bool:
        """A member's own commit."""
        accepted = self._accepts(group_id, member_id, generation)
        if accepted:
            self._write(self._group(group_id), offsets)
        return accepted

    def _accepts(self, group_id: str, member_id: str, generation: int) -> bool:
        """Not from a member that left, nor, in a classic group, from one of another generation."""
        group = self._group(group_id)
        return member_id in group.members and (group.type is not GroupType.CLASSIC or generation == group.generation)


# --- writing ----------------------------------------------------------------------------------------------------------


class FakeTopicWatch:
    """Implements ``tidegate.kafka.ports.TopicWatch``. Its calls are named ``poll``."""

    def __init__(self, kafka: FakeKafka) -> None:
        self._kafka = kafka
        self._asked: frozenset[str] | None = None
        self._seen: dict[str, Topic] | None = None
        self._closed = False

    def poll(self, topics: Collection[str] | None = None) -> Mapping[str, Topic] | None:
        if self._closed:
            raise Unavailable("look at the topics: the connection was closed")
        try:
            self._kafka._called("poll")
        except KafkaFailure:
            self._seen = None
            raise
        asked = None if topics is None else frozenset(topics)
        now = {name: t for name, t in self._kafka._public_topics().items() if asked is None or name in asked}
        if now == self._seen and asked == self._asked:
            return None
        self._asked, self._seen = asked, now
        return dict(now)

    def close(self) -> None:
        self._closed = True


class FakeWriter:
    """Implements ``tidegate.kafka.ports.OffsetWriter``."""

    def __init__(self, kafka: FakeKafka, group_id: str, transaction_timeout_s: float, purpose: str) -> None:
        self._kafka = kafka
        self._id = f"tidegate.{group_id}/{purpose}"
        self._timeout_s = transaction_timeout_s
        self._epoch: int | None = None

    def fence(self) -> None:
        self._kafka._called("fence")
        self._epoch = self._kafka._init_transactions(self._id)

    @contextlib.contextmanager
    def transaction(self) -> Iterator[FakeTransaction]:
        if self._epoch is None:
            self.fence()
        epoch = self._epoch or 0
        # That the producer was fenced shows at its first request.
        if self._is_newest(epoch):
            opened = self._kafka._begin(self._id, epoch, self._timeout_s)
        else:
            opened = _Transaction(self._id, epoch)
        transaction = FakeTransaction(self._kafka, opened, self._timeout_s)
        try:
            yield transaction
        finally:
            if not opened.ended:
                self._kafka._end(opened, commit=False)
            if transaction.lapsed:
                self._epoch = None

    def _is_newest(self, epoch: int) -> bool:
        return self._kafka._epochs.get(self._id) == epoch

    def alter(self, group_id: str, offsets: Offsets) -> None:
        self._kafka._called("alter")
        group = self._kafka._group(group_id)
        if group.members:
            raise GroupNotEmpty(f"commit {len(offsets)} offset(s) of group {group_id}: it has members")
        # Partition by partition, as the broker does: those that exist are committed all the same.
        there = {p: o for p, o in offsets.items() if self._kafka._exists(p)}
        self._kafka._write(group, there)
        if len(there) < len(offsets):
            raise UnknownPartitions(frozenset(offsets) - frozenset(there))

    def delete(self, group_id: str, partitions: Collection[TopicPartition]) -> frozenset[TopicPartition]:
        self._kafka._called("delete")
        group = self._kafka._groups.get(group_id)
        if group is None:
            return frozenset()
        unknown = sorted(p for p in partitions if not self._kafka._exists(p))
        if unknown:
            raise Unavailable(f"delete committed offsets of group {group_id}: {unknown[0]} does not exist")
        subscribed = self._kafka._subscribed(group)
        for partition in partitions:
            if partition.topic not in subscribed:
                group.committed.pop(partition, None)
        return frozenset(p for p in partitions if p.topic in subscribed)

    def close(self) -> None:
        """What is open stays so, as after a crash."""
        self._epoch = None


class FakeTransaction:
    """Implements ``tidegate.kafka.ports.GroupTransaction``."""

    def __init__(self, kafka: FakeKafka, opened: _Transaction, timeout_s: float) -> None:
        self._kafka = kafka
        self._opened = opened
        self._expires_s = kafka.clock.monotonic() + timeout_s
        self._failed: KafkaFailure | None = None
        self.lapsed = False
        """Whether the coordinator may have ended it, which raises the epoch as if somebody had taken over."""

    def send(self, group_id: str, offsets: Offsets) -> None:
        try:
            self._send(group_id, offsets)
        except KafkaFailure as failure:
            self._failed = failure
            raise

    def _send(self, group_id: str, offsets: Offsets) -> None:
        self._kafka._called("send")
        if not offsets:
            return
        self._check_epoch()
        kind = kind_of(self._kafka._described(group_id))
        if kind in self._kafka.refuses:
            raise CommitRefused(f"add {len(offsets)} offset(s) of group {group_id}: UNKNOWN_MEMBER_ID")
        unknown = sorted(p for p in offsets if not self._kafka._exists(p))
        if unknown:
            # The coordinator may hear of it yet, so it is asked again for a while.
            raise Unavailable(f"add {len(offsets)} offset(s) of group {group_id}: {unknown[0]} does not exist")
        self._kafka._send_offsets(self._opened, group_id, offsets)

    def append(self, topic: str, records: Mapping[bytes, bytes], *, timeout_s: float | None = None) -> None:  # noqa: ARG002
        self._kafka._called("append")
        try:
            self._check_epoch()
            self._kafka.audit.check_append(topic)
            if topic not in self._kafka.audit.topics and topic not in self._kafka._topics:
                raise Unavailable(f"append to topic {topic}: there is no such topic")
        except KafkaFailure as failure:
            self._failed = failure
            raise
        self._opened.records += [(topic, key, value) for key, value in records.items()]

    def copy(self, partition: TopicPartition, records: Sequence[Record], *, timeout_s: float | None = None) -> None:  # noqa: ARG002
        self._include("copy", partition)
        self._opened.copies += [(partition, record) for record in records]

    def include(self, partition: TopicPartition, *, timeout_s: float | None = None) -> None:  # noqa: ARG002
        self._include("include", partition)

    def _include(self, call: str, partition: TopicPartition) -> None:
        self._kafka._called(call)
        try:
            self._check_epoch()
            if not self._kafka._exists(partition):
                raise Unavailable(f"{call}: {partition} does not exist")
            self._opened.included.add(partition)
        except KafkaFailure as failure:
            self._failed = failure
            raise

    def _check_epoch(self) -> None:
        try:
            self._kafka._check_epoch(self._opened.transactional_id, self._opened.epoch)
        except Fenced as fenced:
            if self._kafka.clock.monotonic() < self._expires_s:
                raise
            self.lapsed = True
            raise Unavailable(f"{fenced}, or it was ended at its time-out") from fenced

    def commit(self) -> None:
        self._kafka._called("commit")
        if self._failed is not None:
            raise Refused(f"commit the transaction: not after a failure ({self._failed})")
        self._check_epoch()
        if not self._kafka._lost_answers:
            self._kafka._end(self._opened, commit=True)
            return
        # Without its commit request the transaction stays open until somebody fences it, or it times out.
        if self._kafka._lost_answers.popleft():
            self._kafka._end(self._opened, commit=True)
        self._opened.ended = True
        raise OutcomeUnknown("commit the transaction: the answer was lost")


class FakeProducer:
    """A transactional producer of an application, which commits its consumer's offsets with what it writes.

    ``timeout_s``: the coordinator aborts a transaction that is open for longer (``transaction.timeout.ms``).
    """

    def __init__(self, kafka: FakeKafka, *, timeout_s: float = 60.0) -> None:
        self._kafka = kafka
        self._id = f"producer-{next(kafka._numbers)}"
        self._epoch = kafka._init_transactions(self._id)
        self._timeout_s = timeout_s
        self._opened: _Transaction | None = None

    def send_offsets(self, group_id: str, offsets: Offsets, member: MemberMetadata | None) -> bool:
        """Add them to the transaction, which begins if none is open; whether the group's coordinator takes them.

        It checks that ``member`` is one (KIP-447), now and never again; without one it takes them from anybody. An
        application that is refused aborts.
        """
        if self._opened is None:
            self._opened = self._kafka._begin(self._id, self._epoch, self._timeout_s)
        if member is not None and not self._kafka._accepts(group_id, member.member_id, member.generation):
            self.end(commit=False)
            return False
        self._kafka._send_offsets(self._opened, group_id, offsets)
        return True

    def end(self, *, commit: bool) -> None:
        """Raises ``Fenced`` where it was aborted by then."""
        if self._opened is not None:
            opened, self._opened = self._opened, None
            self._kafka._check_epoch(self._id, self._epoch)
            self._kafka._end(opened, commit=commit)


# --- membership -------------------------------------------------------------------------------------------------------


class FakeMembership:
    """Implements ``tidegate.kafka.ports.Membership``."""

    def __init__(self, kafka: FakeKafka) -> None:
        self._kafka = kafka

    def leave(self, group_id: str, members: Iterable[Member]) -> frozenset[str]:
        self._kafka._called("leave")
        group = self._kafka._groups.get(group_id)
        if group is None:
            return frozenset()
        return frozenset(m.member_id for m in members if self._kafka._remove(group, m.member_id))

    def owned_when_joining(self, group_id: str, *, dated: bool = False) -> Mapping[str, frozenset[TopicPartition]]:
        self._kafka._called("owned_when_joining")
        group = self._kafka._groups.get(group_id)
        if group is None or group.type is not GroupType.CLASSIC or group.state is not GroupState.STABLE:
            return {}
        least = DATED_SUBSCRIPTION if dated else 0
        tells = {i for i, m in group.members.items() if m.consumer.subscription_version >= least}
        cooperative = group.assignor in COOPERATIVE
        return {i: m.owned if cooperative and i in tells else frozenset() for i, m in group.members.items()}

    def subscription_versions(self, group_id: str) -> Mapping[str, int]:
        self._kafka._called("subscription_versions")
        group = self._kafka._groups.get(group_id)
        if group is None or group.type is not GroupType.CLASSIC or group.state is not GroupState.STABLE:
            return {}
        return {i: m.consumer.subscription_version for i, m in group.members.items()}

    @contextlib.contextmanager
    def hold(self, group_id: str, *, rebalance: bool = True, assignor: str = "") -> Iterator[FakeHold]:
        self._kafka._called("hold")
        group = self._classic(group_id)
        offered = {assignor, *OFFERED}
        if group.state is GroupState.PREPARING_REBALANCE and group.assignor not in offered:
            raise Refused(f"ask for a member id in group {group_id}: InconsistentGroupProtocolError")
        hold = FakeHold(self._kafka, group)
        try:
            if rebalance and group.state is not GroupState.PREPARING_REBALANCE:
                self._kafka._prepare(group)
            yield hold
        finally:
            hold.release()

    @contextlib.contextmanager
    def guest(self, group_id: str) -> Iterator[FakeGuest]:
        self._kafka._called("guest")
        guest = FakeGuest(self._kafka, self._classic(group_id))
        try:
            yield guest
        finally:
            guest.leave()

    @contextlib.contextmanager
    def seat(self, group_id: str, session_s: float, known: Seat | None = None) -> Iterator[FakeSeatedGuest]:
        self._kafka._called("seat")
        group = self._classic(group_id)
        yield FakeSeatedGuest(self._kafka, group, session_s, known)

    def guests(self, group_id: str) -> frozenset[str]:
        self._kafka._called("guests")
        group = self._kafka._groups.get(group_id)
        if group is None or group.type is not GroupType.CLASSIC or group.state is not GroupState.STABLE:
            return frozenset()
        return frozenset(i for i, m in group.members.items() if not m.consumer.topics)

    def _classic(self, group_id: str) -> _GroupLogs:
        group = self._kafka._groups.get(group_id)
        if group is None or group.type is not GroupType.CLASSIC or not group.members:
            raise GroupNotLive(f"group {group_id}: only a classic group with members can be rebalanced")
        return group


class FakeHold:
    """Implements ``tidegate.kafka.ports.JoinHold``: an outstanding member id with a session of its own."""

    def __init__(self, kafka: FakeKafka, group: _GroupLogs) -> None:
        self._kafka = kafka
        self._group = group
        self._pending: str | None = None
        self._lapsed = False
        self._take()

    @property
    def lapsed(self) -> bool:
        return self._lapsed

    def _take(self) -> None:
        member_id = f"pending-{next(self._kafka._numbers)}"
        self._pending = member_id
        self._group.pending_ids[member_id] = self._kafka.clock.monotonic() + PENDING_SESSION_S

        def expire() -> None:
            if self._group.pending_ids.pop(member_id, None) is not None:
                self._kafka._maybe_complete(self._group)

        self._kafka.clock.after(PENDING_SESSION_S, expire)

    def blink(self) -> bool:
        self._kafka._called("blink")
        self.release()
        if self._group.state is not GroupState.PREPARING_REBALANCE:
            return True
        self._take()
        return False

    def keep(self) -> None:
        if self._pending is not None:
            old = self._pending
            self._take()
            self._forget(old)

    def release(self) -> None:
        if self._pending is not None:
            held, self._pending = self._pending, None
            self._forget(held)
            self._kafka._maybe_complete(self._group)

    def _forget(self, member_id: str) -> None:
        self._lapsed |= self._group.pending_ids.pop(member_id, None) is None


class FakeGuest:
    """Implements ``tidegate.kafka.ports.Guest``, and is the coordinator's view of that member."""

    protocol: Final = GroupType.CLASSIC
    topics: Final[Sequence[str]] = ()
    client_id = "tidegate"
    host: Final = "/127.0.0.1"
    group_instance_id: Final = None
    subscription_version: Final = 0
    rebalance_timeout_s: Final = PENDING_SESSION_S
    gives_up_after_s: Final = 0.0

    def __init__(self, kafka: FakeKafka, group: _GroupLogs, session_s: float = PENDING_SESSION_S) -> None:
        self._kafka = kafka
        self._group = group
        self._session_s = session_s
        self.assignor = group.assignor
        if kafka.max_size is not None and len(group.members) >= kafka.max_size:
            raise Refused(f"group {group.group_id}: GROUP_MAX_SIZE_REACHED")
        self.member_id = f"{self.client_id}-{next(kafka._numbers)}"
        # It is waited for, as every member id that was handed out.
        self._session_ends_s = 0.0
        self._heard()
        group.pending_ids[self.member_id] = self._session_ends_s
        self._joining = False
        self._generation: int | None = None
        self._lost = False

    def join(self) -> None:
        self._kafka._called("guest.join")
        self._check()
        self._group.pending_ids.pop(self.member_id, None)
        self._joining, self._generation = True, None
        self._kafka._join(self._group.group_id, self.member_id, self)

    def joined(self) -> Generation | None:
        self._kafka._called("guest.joined")
        self._check()
        if self._generation is None:
            return None
        group = self._group
        said = {
            member_id: Subscription(
                topics=frozenset(m.consumer.topics),
                owned=m.assignment if group.assignor in COOPERATIVE else frozenset(),
                generation=group.generation if m.consumer.subscription_version >= DATED_SUBSCRIPTION else -1,
                version=m.consumer.subscription_version,
            )
            for member_id, m in group.members.items()
            if member_id != self.member_id
        }
        return Generation(self._generation, group.leader, said if group.leader == self.member_id else {})

    def rebalances(self) -> bool:
        self._kafka._called("guest.rebalances")
        self._check()
        self._heard()
        return self._group.state is GroupState.PREPARING_REBALANCE

    def keep(self) -> None:
        self._kafka._called("guest.keep")
        self._check()
        self._heard()

    def assign(self, generation: Generation, shares: Mapping[str, frozenset[TopicPartition]]) -> bool:
        self._kafka._called("guest.assign")
        self._check()
        self._heard()
        if self._group.state is GroupState.PREPARING_REBALANCE:
            return False
        if generation.number != self._group.generation:
            raise Unavailable(f"group {self._group.group_id}: ILLEGAL_GENERATION")
        self._kafka._give(self._group, shares)
        return True

    def leave(self) -> None:
        with contextlib.suppress(KafkaFailure):
            self._kafka._called("guest.leave")
            self._forget()

    def _forget(self) -> None:
        pending = self._group.pending_ids.pop(self.member_id, None) is not None
        if not self._kafka._remove(self._group, self.member_id) and pending:
            self._kafka._maybe_complete(self._group)

    def _check(self) -> None:
        known = self.member_id in self._group.members or self.member_id in self._group.pending_ids
        if self._lost or not known:
            raise MemberForgotten(f"group {self._group.group_id}: UNKNOWN_MEMBER_ID")

    def _heard(self) -> None:
        self._session_ends_s = self._kafka.clock.monotonic() + self._session_s

        def expire() -> None:
            known = self._group.members.get(self.member_id)
            if known is not None and known.consumer is not self:
                return  # another process goes on as this member
            if self._kafka.clock.monotonic() >= self._session_ends_s and not self._joining:
                self._forget()

        self._kafka.clock.after(self._session_s, expire)

    # --- what the coordinator tells it ---

    def _joined(self, generation: int) -> None:
        self._joining, self._generation = False, generation
        self._heard()

    def _assigned(self, generation: int, _: frozenset[TopicPartition]) -> None:
        if self._joining:
            self._joined(generation)

    def _unknown_in_join(self, _: str) -> None:
        self._lost = True

    def _join_again(self) -> None:
        """Whoever holds it hears of that from its next request."""


class FakeSeatedGuest(FakeGuest):
    """Implements ``tidegate.kafka.ports.SeatedGuest``."""

    client_id = LEADER_CLIENT_ID

    def __init__(self, kafka: FakeKafka, group: _GroupLogs, session_s: float, known: Seat | None) -> None:
        super().__init__(kafka, group, session_s)
        self._seat = Seat(self.member_id, -1, group.assignor)
        if known is not None:
            group.pending_ids.pop(self.member_id)
            self.member_id, self._seat = known.member_id, known
            if known.member_id in group.members:
                group.members[known.member_id].consumer = self
            self._heard()

    @property
    def seat(self) -> Seat:
        return self._seat

    def present(self) -> Generation | None:
        if self._group.state is not GroupState.STABLE:
            return None
        self._generation = self._seat.generation
        return super().joined()

    def joined(self) -> Generation | None:
        found = super().joined()
        if found is not None:
            self._seat = Seat(self.member_id, found.number, self._group.assignor)
        return found

    def rebalances(self) -> bool:
        return super().rebalances() or self._seat.generation != self._group.generation

    def assign(self, generation: Generation, shares: Mapping[str, frozenset[TopicPartition]]) -> bool:
        self._check()
        return generation.number == self._group.generation and super().assign(generation, shares)


def void(_: object) -> None:
    """For events, whose value nobody wants."""


def _ms(at: datetime) -> int:
    """Milliseconds since the epoch, exactly."""
    return (at - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)


def _ms_up(at: datetime) -> int:
    """The first millisecond at or after ``at``."""
    return -((datetime(1970, 1, 1, tzinfo=UTC) - at) // timedelta(milliseconds=1))
