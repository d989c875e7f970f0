"""Consumers of the in-memory Kafka, of every temper."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from support.fake_kafka import COOPERATIVE, FakeKafka, void
from tidegate.control.gates import Limited
from tidegate.control.records import Ack
from tidegate.kafka.model import (
    GroupState,
    GroupType,
    Offsets,
    TopicPartition,
)


@dataclass(frozen=True, slots=True)
class Began:
    """An owner began to read a partition at an offset."""

    at_s: float
    partition: TopicPartition
    offset: int


@dataclass(frozen=True, slots=True)
class MemberMetadata:
    """By which a producer names a consumer as it sends its offsets (``ConsumerGroupMetadata``)."""

    member_id: str
    generation: int


@dataclass(eq=False)
class FakeConsumer:
    """An application with one consumer. Times in seconds; ``phase_s`` shifts its heartbeats against the others'.

    ``rejoin_delay_s``: how long after it noticed a rebalance it comes back to poll. ``keeps_position``: it carries
    its position over an eager rebalance (kafka-python); ``keeps_when_unknown``: also when it is rejoining as it
    becomes unknown; ``keeps_when_refused``: also when a refused commit or join tells it that it is unknown, in a
    cooperative group (franz-go). ``gives_up_after_s``: how long after a cooperative rebalance it gives up what it
    lost in it. ``waits``: it waits for open transactions before it reads a committed offset (KIP-447);
    ``gives_waiting_up``: until the next rebalance, of which it takes what it keeps for new, and begins as if there were
    no offset (librdkafka, classic groups).
    ``late_commit_s``: its application holds what it has read for so long and then commits it, whatever happened
    since. ``commits_after_join``: while it joins it keeps commits back, and sends them before it asks where to begin
    (franz-go). ``syncs_after_s``: how long after a join it asks what it is assigned; where the next rebalance has begun
    by then, it never hears of it (classic groups). ``fetches_after_s``: how long after it was given a partition it
    asks where to begin (KIP-848 groups). ``commits_all``: auto-commit writes also what did not change (Java).
    ``managed``: it runs the agent (``agents/contract``), which takes ``drain_s`` from the hold to its ack.
    ``begins_at_end``: without a committed offset, or with one that retention has passed, it begins at the log's end
    (``auto.offset.reset=latest``).
    """

    kafka: FakeKafka
    group_id: str
    topics: Sequence[str]
    client_id: str = "consumer"
    host: str = "/127.0.0.1"
    group_instance_id: str | None = None
    protocol: GroupType = GroupType.CLASSIC
    assignor: str = "range"
    subscription_version: int = 1
    heartbeat_s: float = 3.0
    phase_s: float = 0.0
    poll_s: float = 0.1
    records_per_poll: int = 10
    auto_commit_s: float | None = 5.0
    commits_all: bool = False
    rejoin_delay_s: float = 0.0
    rebalance_timeout_s: float = 300.0
    gives_up_after_s: float = 0.0
    keeps_position: bool = False
    keeps_when_unknown: bool = False
    keeps_when_refused: bool = False
    waits: bool = True
    gives_waiting_up: bool = False
    late_commit_s: float | None = None
    commits_after_join: bool = False
    sends_after_s: float = 0.05
    """How long after it has joined it sends what it kept back."""
    begins_before_sending: bool = False
    """It asks where to begin before it sends what it kept back (kafka-go)."""
    syncs_after_s: float = 0.0
    fetches_after_s: float = 0.0
    managed: bool = False
    drain_s: float = 0.0
    begins_at_end: bool = False
    member_id: str = ""
    began: list[Began] = field(default_factory=list)
    read: list[tuple[TopicPartition, int]] = field(default_factory=list)
    """Every record delivered, in order."""
    refused_commits: int = 0
    _generation: int = 0
    _positions: dict[TopicPartition, int] = field(default_factory=dict)
    _unstarted: set[TopicPartition] = field(default_factory=set)
    _committed: dict[TopicPartition, int] = field(default_factory=dict)
    _next_heartbeat_s: float = 0.0
    _next_commit_s: float = 0.0
    _rejoining: bool = False
    _joining: bool = False
    _running: bool = False
    _kept_back: list[Offsets] = field(default_factory=list)
    """Commits to be sent once it has joined."""
    _fetches_at_s: float = 0.0
    _closing: dict[TopicPartition, float] = field(default_factory=dict)
    """When each partition that is no longer delivered will be acked."""
    _obeyed: dict[TopicPartition, int] = field(default_factory=dict)
    """Epochs of the closed gates that were acked; −1 for an open one."""

    def start(self) -> FakeConsumer:
        clock = self.kafka.clock
        self.member_id = self._new_id()
        self._running = True
        self._next_heartbeat_s = clock.monotonic() + self.heartbeat_s + self.phase_s
        self._next_commit_s = clock.monotonic() + (self.auto_commit_s or 0.0) + self.phase_s
        self._join()
        if self.protocol is GroupType.CONSUMER:
            self._reconcile()
        clock.after(self.poll_s, self._poll)
        return self

    def close(self) -> None:
        """Leave in good order: commit, then leave."""
        if self.auto_commit_s is not None:
            self._commit(dict(self._positions))
        self._running = False
        self.kafka._remove(self.kafka._group(self.group_id), self.member_id)
        self._positions.clear()

    def crash(self) -> None:
        """Nothing is heard of it any more; the session time-out removes it."""
        self._running = False
        group, member_id = self.kafka._group(self.group_id), self.member_id
        self.kafka.clock.after(45.0, lambda: void(self.kafka._remove(group, member_id)))

    def commit(self, offsets: Offsets) -> bool:
        """Commit what the application says; whether the coordinator took it."""
        refused = self.refused_commits
        self._commit(offsets)
        return self.refused_commits == refused

    @property
    def positions(self) -> Mapping[TopicPartition, int]:
        return dict(self._positions)

    def metadata(self) -> MemberMetadata:
        """As the consumer knows itself, which may be out of date."""
        return MemberMetadata(self.member_id, self._generation)

    def _new_id(self) -> str:
        if self.protocol is GroupType.CONSUMER and self.member_id:
            return self.member_id
        return f"{self.client_id}-{next(self.kafka._numbers)}"

    def _poll(self) -> None:
        if not self._running:
            return
        now = self.kafka.clock.monotonic()
        self._obey()
        # An eager member has given all up before it joins, and a slow one is not there to poll.
        reads = not (self._rejoining or (self._joining and self.assignor not in COOPERATIVE))
        for partition, position in list(self._positions.items()):
            if partition not in self._closing and reads:
                self._positions[partition] = self._deliver(partition, position)
        if self.auto_commit_s is not None and now >= self._next_commit_s and reads:
            self._next_commit_s = now + self.auto_commit_s
            self._auto_commit()
        # Last, so that the first records of what is assigned now come with the next poll: they have to be fetched.
        if now >= self._next_heartbeat_s:
            self._next_heartbeat_s = now + self.heartbeat_s
            self._heartbeat()
        self._start_assigned()
        self.kafka.clock.after(self.poll_s, self._poll)

    def _obey(self) -> None:
        """What the agent does between two polls."""
        if not self.managed:
            return
        topics, now = self.kafka.control.topics, self.kafka.clock.monotonic()
        for gone in (self._closing.keys() | self._obeyed.keys()) - self._positions.keys():
            self._closing.pop(gone, None)
            self._obeyed.pop(gone, None)
        for partition in sorted(self._positions):
            epoch = topics.gates.epoch(self.group_id, partition) or self._epoch_of_limit(partition)
            if epoch is not None:
                due = self._closing.setdefault(partition, now + self.drain_s)
                if now >= due and self._obeyed.get(partition) != epoch:
                    if self._obeyed.get(partition, -1) < 0:
                        self._commit({partition: self._positions[partition]})
                    self._ack(partition, epoch)
            elif partition in self._closing:
                if self.waits and partition in self.kafka._undecided(self.group_id):
                    continue
                commit = self.kafka._offsets_of(self.group_id).get(partition)
                del self._closing[partition]
                if commit is not None:
                    self._positions[partition] = self._committed[partition] = commit.offset
                    self.began.append(Began(now, partition, commit.offset))
                self._ack(partition, -1)
            elif partition not in self._obeyed:
                self._ack(partition, -1)

    def _limits(self, partition: TopicPartition) -> list[Limited]:
        limits = self.kafka.control.topics.gates.limits.items()
        return [limited for k, limited in limits if (k.group, k.topic_partition) == (self.group_id, partition)]

    def _epoch_of_limit(self, partition: TopicPartition) -> int | None:
        """``None``: it has not come to one. What is closed is judged by what is committed: the group may be reset."""
        limits = self._limits(partition)
        at = self._positions[partition]
        if self._obeyed.get(partition, -1) >= 0:
            commit = self.kafka._offsets_of(self.group_id).get(partition)
            at = commit.offset if commit is not None else at
        if not limits or at < min(limited.limit.offset for limited in limits):
            return None
        self._positions[partition] = at
        return max(limited.epoch for limited in limits)

    def _ack(self, partition: TopicPartition, epoch: int) -> None:
        """``epoch``: of the closed gate, or −1: it is open, as of the control topic's end."""
        control, position = self.kafka.control, self._positions[partition]
        self._obeyed[partition] = epoch
        said = Ack(epoch if epoch >= 0 else max(0, control.topics.end - 1), position, self.member_id)
        control.ack(self.group_id, partition.topic, partition.partition, said)

    def _deliver(self, partition: TopicPartition, position: int) -> int:
        if not self.kafka._exists(partition):
            return position
        log = self.kafka._log(partition)
        position = max(position, log.start)
        limits = self._limits(partition) if self.managed else []
        end = min([log.end, *(limited.limit.offset for limited in limits)])
        for _ in range(self.records_per_poll):
            if position >= end:
                break
            if position in log.records:
                self.read.append((partition, position))
            position += 1
        return position

    def _heartbeat(self) -> None:
        group = self.kafka._group(self.group_id)
        member = group.members.get(self.member_id)
        if member is None:
            # A slow one learns it as it comes back to poll.
            if not self._rejoining:
                self._lost()
        elif self.protocol is GroupType.CONSUMER:
            self._reconcile()
        elif group.state is GroupState.PREPARING_REBALANCE and not member.rejoined and not self._rejoining:
            self._rejoin()

    def _lost(self) -> None:
        """Somebody left in our name: what was not committed is lost, and so is the position."""
        self._hold_for_late_commit()
        if not (self.keeps_when_unknown and self._joining):
            self._positions.clear()
        self._unstarted.clear()
        self.member_id = self._new_id()
        self._committed.clear()
        self._join()
        if self.protocol is GroupType.CONSUMER:
            self._reconcile()

    def _unknown_in_join(self, member_id: str) -> None:
        if not (self._running and self._joining) or self.member_id != member_id:
            return
        if self.keeps_when_refused:
            self._join_anew_with_positions()
        else:
            self._lost()

    def _join_again(self) -> None:
        if self._running and self._joining and self.member_id in self.kafka._group(self.group_id).members:
            self._join()

    def _joined(self, generation: int) -> None:
        """Somebody else leads, who has yet to say who owns what."""

    def _join_anew_with_positions(self) -> None:
        self.member_id = self._new_id()
        self._join(frozenset(self._positions))

    def _join(self, names: frozenset[TopicPartition] = frozenset()) -> None:
        self._joining = self.protocol is GroupType.CLASSIC
        self.kafka._join(self.group_id, self.member_id, self, names)

    def _rejoin(self) -> None:
        if self.assignor not in COOPERATIVE:
            self._auto_commit()
        self._rejoining = True
        member_id = self.member_id

        def come_back() -> None:
            self._rejoining = False
            if not self._running:
                return
            if member_id in self.kafka._group(self.group_id).members:
                self._join()
            else:
                self._lost()

        if self.rejoin_delay_s > 0:
            self.kafka.clock.after(self.rejoin_delay_s, come_back)
        else:
            come_back()

    def _assigned(self, generation: int, partitions: frozenset[TopicPartition]) -> None:
        """The leader has said who owns what."""
        if self.syncs_after_s > 0:
            self.kafka.clock.after(self.syncs_after_s, lambda: self._sync(generation, partitions))
        else:
            self._take(generation, partitions)

    def _sync(self, generation: int, partitions: frozenset[TopicPartition]) -> None:
        """SyncGroup; it is refused once the next rebalance has begun."""
        group = self.kafka._group(self.group_id)
        if not self._running or self.member_id not in group.members:
            return
        if group.generation == generation and group.state is GroupState.STABLE:
            self._take(generation, partitions)
        elif group.state is GroupState.PREPARING_REBALANCE and not group.members[self.member_id].rejoined:
            self._join()

    def _take(self, generation: int, partitions: frozenset[TopicPartition]) -> None:
        self._generation, self._joining = generation, False
        # Java: Heartbeat.resetTimeouts. So a rebalance makes the heartbeats of all members fall together.
        self._next_heartbeat_s = self.kafka.clock.monotonic() + self.heartbeat_s
        keeps = self.keeps_position or self.assignor in COOPERATIVE
        gone = self._positions.keys() - partitions
        if self.assignor in COOPERATIVE and self.gives_up_after_s and gone:
            self.kafka.clock.after(self.gives_up_after_s - 0.001, lambda: self._give_up(gone))
            partitions |= gone
        elif self.assignor in COOPERATIVE and self.late_commit_s is not None:
            self._hold_for_late_commit(gone)
        elif self.assignor in COOPERATIVE:
            self._commit({p: self._positions[p] for p in gone})
        if self.commits_after_join and gone:
            self._next_heartbeat_s = self.kafka.clock.monotonic()  # it joins anew as soon as it has given them up
        if self._kept_back:
            self.kafka.clock.after(self.sends_after_s, self._send_kept_back)
        self._positions = {p: o for p, o in self._positions.items() if keeps and p in partitions}
        still_waits = self._unstarted & partitions & self.kafka._undecided(self.group_id)
        self._unstarted = set(partitions) - self._positions.keys()
        for partition in sorted(still_waits & self._unstarted if self.gives_waiting_up else ()):
            self._begin(partition, None)
        self._start_assigned()

    def _send_kept_back(self) -> None:
        kept_back, self._kept_back = self._kept_back, []
        for offsets in kept_back:
            self._commit(offsets)
        self._start_assigned()

    def _give_up(self, partitions: Collection[TopicPartition]) -> None:
        """As the application polls again, some time after the rebalance."""
        self._commit({p: self._positions[p] for p in partitions if p in self._positions})
        for partition in partitions:
            self._positions.pop(partition, None)

    def _reconcile(self) -> None:
        """KIP-848: give up what is no longer ours, then take what is free."""
        group = self.kafka._group(self.group_id)
        mine = group.members[self.member_id]
        target = group.targets[self.member_id]
        gone = mine.assignment - target
        if gone:
            self._hold_for_late_commit(gone)
            if self.late_commit_s is None:
                self._commit({p: o for p, o in self._positions.items() if p in gone})
            for partition in gone:
                self._positions.pop(partition, None)
            self._unstarted -= gone
        others = {p for i, m in group.members.items() if i != self.member_id for p in m.assignment}
        taken = frozenset(target - others)
        if taken - mine.assignment:
            self._fetches_at_s = self.kafka.clock.monotonic() + self.fetches_after_s
        self._unstarted |= taken - mine.assignment
        mine.assignment = (mine.assignment - gone) | taken
        self._generation = group.generation
        if gone:
            self.kafka._retarget(group)  # what we gave up is free now
        self.kafka._reconciled(group)
        self._start_assigned()

    def _start_assigned(self) -> None:
        if (self._kept_back and not self.begins_before_sending) or self.kafka.clock.monotonic() < self._fetches_at_s:
            return
        for partition in sorted(self._unstarted):
            if self.waits and partition in self.kafka._undecided(self.group_id):
                continue
            commit = self.kafka._offsets_of(self.group_id).get(partition)
            self._begin(partition, commit.offset if commit is not None else None)

    def _begin(self, partition: TopicPartition, committed: int | None) -> None:
        log = self.kafka._log(partition)
        begin = log.end if self.begins_at_end else log.start
        # OFFSET_OUT_OF_RANGE is as good as none.
        offset = committed if committed is not None and committed >= log.start else begin
        self._unstarted.discard(partition)
        self._positions[partition] = offset
        self._committed[partition] = offset
        self.began.append(Began(self.kafka.clock.monotonic(), partition, offset))

    def _auto_commit(self) -> None:
        if self.auto_commit_s is None:
            return
        if self.late_commit_s is not None:
            self._hold_for_late_commit()
            return
        changed = {p: o for p, o in self._positions.items() if self.commits_all or self._committed.get(p) != o}
        self._commit(changed)

    def _commit(self, offsets: Offsets) -> None:
        offsets = {p: o for p, o in offsets.items() if self._obeyed.get(p, -1) < 0}
        if not offsets:
            return
        if self.commits_after_join and self._joining:
            self._kept_back.append(offsets)
            return
        if self.kafka._member_commit(self.group_id, self.member_id, self._generation, offsets):
            self._committed.update(offsets)
            return
        self.refused_commits += 1
        if self.keeps_when_refused and self.member_id not in self.kafka._group(self.group_id).members:
            self._join_anew_with_positions()

    def _hold_for_late_commit(self, partitions: Collection[TopicPartition] | None = None) -> None:
        if self.late_commit_s is None:
            return
        held = {p: o for p, o in self._positions.items() if partitions is None or p in partitions}
        self.kafka.clock.after(self.late_commit_s, lambda: self._commit(held))
