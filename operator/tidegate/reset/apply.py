"""Applying a plan to one group: choose a way, make the owners let go, commit in one transaction, see it hold.

The order of checks and the sequences are those of ``kafka-facts``: XH and X3r (``Barrier``), X4n and X4h
(``Handover``). A run goes in *rounds*: partitions that an owner overwrote are done again, a bounded number of times;
then everything is put back. Each round writes its intent to the journal before its transaction, and each transaction
carries the round's marker (``tidegate.reset.marker``), so that a successor can go on where this writer died.
"""

from __future__ import annotations

import contextlib
import statistics
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final, assert_never

from tidegate.kafka.errors import (
    Fenced,
    KafkaFailure,
    NotAuthorized,
    OutcomeUnknown,
    Unavailable,
    UnknownPartitions,
)
from tidegate.kafka.model import Group, GroupState, GroupType, Member, TopicPartition
from tidegate.kafka.ports import GroupTransaction, Kafka, OffsetWriter
from tidegate.reset import marker
from tidegate.reset.clock import Clock
from tidegate.reset.model import (
    Owners,
    PartitionOffset,
    Phase,
    Plan,
    Progress,
    RunResult,
    Standstill,
    Way,
)
from tidegate.reset.store import Run, RunStore
from tidegate.reset.watch import Verdict, Watched
from tidegate.reset.ways import Choice, choose_way
from tidegate.reset.ways import Owners as OwnersSeen

MAX_ROUNDS: Final = 8
"""Facts X4n: 3 of 54 runs needed a second round, none a third."""


@dataclass(frozen=True, slots=True)
class Tuning:
    """Times in seconds. The defaults fit brokers and clients at their defaults (heartbeats 3 s and 5 s)."""

    probe_s: float = 0.12
    """Between two looks at whether everybody has rejoined."""
    look_s: float = 0.04
    """Between two looks at committed offsets while watching."""
    visible_s: float = 0.004
    """Between two looks at whether a transaction has become visible (median 10 to 50 ms)."""
    visible_limit_s: float = 20.0
    rejoin_limit_s: float = 120.0
    """How long a group may take to rejoin; longer than a dead member's session timeout of 45 s."""
    back_limit_s: float = 12.0
    """How long to wait for members that we made leave to come back (KIP-848: within their heartbeat of 5 s)."""
    settle_limit_s: float = 20.0
    """How long to wait for a group to become stable before the next step."""
    watch_s: float = 6.5
    """How long to watch for the owners' next commits: past ``auto.commit.interval.ms`` of 5 s."""
    watch_at_least_s: float = 1.0
    margin_s: float = 0.5
    """Added to ``inFlight``."""
    transaction_s: float = 5.0
    """Time-out of a transaction that is open for moments only; the broker looks every 10 s, so 15 s in all."""
    retry_s: float = 0.5


class DeadlinePassed(Exception):
    """The run's deadline has passed."""


class DidNotHold(Exception):
    """Owners went on overwriting the targets."""

    def __init__(self, partitions: Collection[TopicPartition]) -> None:
        self.partitions = frozenset(partitions)
        names = ", ".join(map(str, sorted(self.partitions)[:10]))
        super().__init__(f"after {MAX_ROUNDS} rounds owners still commit old positions over the target of: {names}")


class PlanOutdated(Exception):
    """The cluster has changed since the plan was made, so its targets no longer mean what was approved."""


class NotReady(Exception):
    """The group did not reach the state that the next step needs; the message says which."""


_FAILURES: Final = (KafkaFailure, DeadlinePassed, DidNotHold, NotReady, PlanOutdated)


@dataclass(slots=True)
class _Times:
    """When each partition's owner was made to let go, and when it had the partition again (monotonic seconds)."""

    stopped: dict[TopicPartition, float] = field(default_factory=dict)
    resumed: dict[TopicPartition, float] = field(default_factory=dict)

    def standstill(self) -> Standstill | None:
        spans = [self.resumed[p] - self.stopped[p] for p in self.resumed if p in self.stopped]
        return Standstill(p50_s=statistics.median(spans), max_s=max(spans)) if spans else None


class GroupReset:
    """One run on one group, by one writer. Use once, from one thread."""

    def __init__(
        self,
        run: Run,
        plan: Plan,
        attempt: int,
        store: RunStore,
        kafka: Kafka,
        clock: Clock,
        tuning: Tuning | None = None,
    ) -> None:
        self._run = run
        self._plan = plan
        self._attempt = attempt
        self._store = store
        self._kafka = kafka
        self._clock = clock
        self._tuning = tuning or Tuning()
        self._group_id = run.request.group_id
        self._settings = run.request.settings
        self._targets: dict[TopicPartition, int] = plan.targets
        self._before: dict[TopicPartition, int] = {}
        self._round = 0
        self._redone = 0
        self._way: Way | None = None
        self._kept_position = False
        self._times = _Times()
        self._unverified: frozenset[TopicPartition] = frozenset()
        self._written: list[Progress] = []
        self._putting_back = ""
        self._committed_any = False
        self._found_round = 0
        self._deadline: datetime | None = self._settings.deadline
        open_for = self._tuning.transaction_s
        if self._settings.owners is Owners.WAITING:
            open_for += self._tuning.back_limit_s + self._settings.in_flight.total_seconds()
        self._writer: OffsetWriter = kafka.writer(self._group_id, transaction_timeout_s=open_for)

    # --- the whole ----------------------------------------------------------------------------------------------------

    def apply(self) -> RunResult:
        """Apply and verify; put everything back where that fails. Raises ``Fenced`` and ``StaleAttempt`` only."""
        try:
            try:
                self._retrying(self._writer.fence)
                self._retrying(self._recall)
                for entry in self._run.journal:
                    if entry.putting_back:
                        return self.put_back(entry.putting_back, entry.message, frozenset())
                self._rounds(self._left_to_do())
            except Fenced:
                raise
            except _FAILURES as error:
                return self.put_back(_reason(error), str(error), self._overwritten(error))
            return self._result(Phase.SUCCEEDED, "Applied", self._summary())
        finally:
            self._writer.close()

    def take_over(self, reason: str, message: str) -> RunResult:
        """End the run whatever its state: fence its writer and put back what it committed. Raises as ``apply``."""
        try:
            try:
                self._deadline = self._clock.now() + timedelta(seconds=self._tuning.rejoin_limit_s)
                self._retrying(self._writer.fence)
                self._retrying(self._recall)
            except Fenced:
                raise
            except _FAILURES as error:
                return self._result(
                    Phase.FAILED,
                    "NotPutBack",
                    f"{message}. Whether anything was changed could not be looked up: {error}",
                )
            return self.put_back(reason, message, frozenset())
        finally:
            self._writer.close()

    def fence(self) -> None:
        """Only end what a dead writer left open, so that nobody waits for it."""
        try:
            self._writer.fence()
        finally:
            self._writer.close()

    def put_back(self, reason: str, message: str, theirs: Collection[TopicPartition]) -> RunResult:
        """Invariant 5: a failed run leaves every committed offset as it was.

        ``theirs``: partitions whose owners have overwritten the target; they stand at their owners' progress already.
        """
        if not self._committed_any:
            return self._result(Phase.FAILED, reason, f"{message}. Nothing was changed")
        targets = {p: o for p, o in self._before.items() if p not in theirs and p in self._targets}
        absent = [p for p in self._targets if p not in self._before and p not in theirs]
        self._putting_back = reason
        self._kept_position = False
        self._unverified = frozenset()
        try:
            # A time of its own: the deadline may be what brought us here.
            self._deadline = self._clock.now() + timedelta(seconds=self._tuning.rejoin_limit_s)
            self._targets, self._before = targets, self._targets_of(targets)
            self._rounds(frozenset(targets), putting_back=True)
            still = self._writer.delete(self._group_id, absent)
        except Fenced:
            raise
        except _FAILURES as error:
            self._before = targets
            return self._result(
                Phase.FAILED,
                "NotPutBack",
                f"{message}. Putting the offsets back failed too: {error}. The offsets before the run are in its plan; "
                f"apply them with `to: {{undo: {self._run.request.run_id}}}`",
            )
        self._before = targets
        note = f"; {len(still)} partition(s) had no commit before and keep the target" if still else ""
        return self._result(
            Phase.ROLLED_BACK, reason, f"{message}. {len(targets)} committed offset(s) were put back{note}"
        )

    def _rounds(self, pending: frozenset[TopicPartition], *, putting_back: bool = False) -> None:
        for attempt in range(MAX_ROUNDS):
            if not pending:
                return
            self._round += 1
            if attempt > 0 and not putting_back:
                self._redone += len(pending)
            try:
                pending = self._one_round(pending, putting_back=putting_back)
            except Unavailable:
                # A coordinator that moves, a broker that restarts: the same round again, as far as time allows.
                if attempt == MAX_ROUNDS - 1:
                    raise
                self._check_deadline()
                self._clock.sleep(self._tuning.retry_s)
        if pending:
            raise DidNotHold(pending)

    def _one_round(self, pending: frozenset[TopicPartition], *, putting_back: bool) -> frozenset[TopicPartition]:
        """Returns the partitions that did not hold."""
        group = self._settled_group()
        choice = self._choose(group, pending)
        self._way = choice.way if self._way is None or choice.way is not Way.DIRECT else self._way
        owners = group.owners(pending)
        if not putting_back:
            known = self._kafka.committed(self._group_id, list(pending))
            for partition, offset in known.items():
                # Only the first look is from before the run; later ones may see our own target.
                self._before.setdefault(partition, offset)
        self._journal(Phase.PAUSING if owners else Phase.APPLYING, pending, choice, owners)
        waiting = self._settings.owners is Owners.WAITING
        match choice.way:
            case Way.DIRECT:
                held_back = self._direct(pending)
            case Way.BARRIER:
                held_back = self._barrier_waiting(pending) if waiting else self._barrier(pending)
            case Way.HANDOVER:
                held_back = self._handover_waiting(pending, owners) if waiting else self._handover(pending, group)
            case Way.GATED:
                raise NotReady("managed consumers are not supported by this version")
            case _:
                assert_never(choice.way)
        if choice.way is Way.DIRECT:
            return held_back
        if not held_back:
            self._journal(Phase.VERIFYING, pending, choice, ())
        not_held = held_back | self._overwritten_while_empty(pending)
        if not_held:
            return not_held
        overwritten = self._watch(pending)
        if overwritten and choice.way is Way.BARRIER:
            # Committed after everybody had rejoined: somebody did not give its position up for the rebalance.
            self._kept_position = True
        return overwritten

    # --- the ways -----------------------------------------------------------------------------------------------------

    def _direct(self, pending: frozenset[TopicPartition]) -> frozenset[TopicPartition]:
        """Nobody owns the partitions: commit, and look whether somebody took them meanwhile.

        Who did may have started from the old offset; those are done again, as owned partitions.
        """
        self._commit(pending)
        group = self._group()
        return frozenset(p for p in pending if group.owner(p) is not None)

    def _barrier(self, pending: frozenset[TopicPartition]) -> frozenset[TopicPartition]:
        """XH: hold the group at its join, commit, see it, let go once everybody has rejoined.

        Each member commits for the last time before it rejoins, and starts from the committed offsets after. So the
        targets are committed again whenever such a commit replaced one, until the join is let go with all in place.
        """
        tuning, clock = self._tuning, self._clock
        limit = clock.monotonic() + tuning.rejoin_limit_s
        with self._kafka.membership.hold(self._group_id) as hold:
            started = clock.monotonic()
            earliest = started + self._hold_s()
            for partition in pending:
                self._times.stopped.setdefault(partition, started)
            while True:
                self._check_deadline()
                self._commit_where_needed(pending)
                if clock.monotonic() >= earliest and hold.blink():
                    break
                if clock.monotonic() > limit:
                    raise NotReady(
                        f"not every member of group {self._group_id} rejoined within {tuning.rejoin_limit_s:.0f} s: "
                        "one of them is slow to poll"
                    )
                hold.keep()
                clock.sleep(tuning.probe_s)
        seen = self._kafka.committed(self._group_id, list(pending))
        now = clock.monotonic()
        self._times.resumed |= dict.fromkeys(pending, now)
        return self._overwritten_at_release(pending, seen)

    def _barrier_waiting(self, pending: frozenset[TopicPartition]) -> frozenset[TopicPartition]:
        """X3r: under an open transaction the owners rejoin and wait for it; their last commits come before its end."""
        tuning, clock = self._tuning, self._clock
        with self._writer.transaction() as transaction:
            transaction.send(self._group_id, self._targets_of(pending))
            started = clock.monotonic()
            for partition in pending:
                self._times.stopped.setdefault(partition, started)
            self._kafka.membership.rebalance(self._group_id)
            limit = started + tuning.back_limit_s
            while self._group().state is GroupState.PREPARING_REBALANCE:
                self._check_deadline()
                if clock.monotonic() > limit:
                    raise NotReady(
                        f"not every member of group {self._group_id} rejoined within {tuning.back_limit_s:.0f} s"
                    )
                clock.sleep(tuning.visible_s)
            self._pause(self._hold_s())
            self._learn_before(pending)
            self._send_with_marker(transaction, pending)
            self._end(transaction)
        self._wait_visible(pending)
        self._times.resumed |= dict.fromkeys(pending, clock.monotonic())
        return self._overwritten_at_release(pending, self._kafka.committed(self._group_id, list(pending)))

    def _handover(self, pending: frozenset[TopicPartition], group: Group) -> frozenset[TopicPartition]:
        """X4n: commit, then leave in the owners' names; the read-back decides, for then they can commit no more.

        What they had committed in between is replaced before anybody takes their partitions.
        """
        owners = group.owners(pending)
        with self._held_join(group):
            self._commit(pending)
            now = self._clock.monotonic()
            for member in owners:
                for partition in member.assignment & pending:
                    self._times.stopped.setdefault(partition, now)
            left = self._kafka.membership.leave(self._group_id, owners)
            again = _owned_by_others(pending, owners, left)
            late = self._overwritten_at_release(pending, self._kafka.committed(self._group_id, list(pending)))
            if late:
                self._commit(late)
                taken = self._group()
                again |= {p for p in late if taken.owner(p) is not None}
                seen = self._kafka.committed(self._group_id, list(late))
                again |= {p for p in late if seen.get(p) != self._targets[p]}
        return again

    @contextlib.contextmanager
    def _held_join(self, group: Group) -> Iterator[None]:
        """Hold a classic group at its join, so that nobody takes a partition before all is in place.

        Nor does it become Empty where all members leave: to an Empty group anybody may commit without being a member,
        and aiokafka does so before it rejoins.
        """
        if group.type is not GroupType.CLASSIC:
            yield
            return
        with self._kafka.membership.hold(self._group_id) as hold:
            yield
            limit = self._clock.monotonic() + self._tuning.back_limit_s
            while not self._group().has_members and self._clock.monotonic() < limit:
                self._check_deadline()
                hold.keep()
                self._clock.sleep(self._tuning.look_s)

    def _handover_waiting(
        self, pending: frozenset[TopicPartition], owners: tuple[Member, ...]
    ) -> frozenset[TopicPartition]:
        """X4h: leave in the owners' names under an open transaction, wait for them to be back, commit."""
        clock = self._clock
        with self._writer.transaction() as transaction:
            transaction.send(self._group_id, self._targets_of(pending))
            started = clock.monotonic()
            for partition in pending:
                self._times.stopped.setdefault(partition, started)
            left = self._kafka.membership.leave(self._group_id, owners)
            limit = started + self._tuning.back_limit_s
            while not _are_back(self._group(), owners) and clock.monotonic() < limit:
                self._check_deadline()
                clock.sleep(self._tuning.visible_s * 5)
            self._pause(self._hold_s())
            self._learn_before(pending)
            self._send_with_marker(transaction, pending)
            self._end(transaction)
        self._wait_visible(pending)
        seen = self._kafka.committed(self._group_id, list(pending))
        return self._overwritten_at_release(pending, seen) | _owned_by_others(pending, owners, left)

    # --- committing ---------------------------------------------------------------------------------------------------

    def _commit_where_needed(self, pending: frozenset[TopicPartition]) -> None:
        seen = self._learn_before(pending)
        needed = frozenset(p for p in pending if seen.get(p) != self._targets[p])
        if needed:
            self._commit(needed)

    def _commit(self, partitions: frozenset[TopicPartition]) -> None:
        """One transaction with the targets and the marker, visible when this returns. Looks up unknown outcomes."""

        def once() -> None:
            with self._writer.transaction() as transaction:
                self._send_with_marker(transaction, partitions)
                self._end(transaction)

        self._retrying(once)
        self._wait_visible(partitions)

    def _end(self, transaction: GroupTransaction) -> None:
        """Commit, and look up an unknown outcome."""
        try:
            transaction.commit()
        except OutcomeUnknown:
            # A new epoch ends the transaction one way or the other; the marker says which.
            self._retrying(self._writer.fence)
            if self._committed_round() != self._round:
                raise Unavailable(f"the transaction for group {self._group_id} was aborted") from None
        self._committed_any = True

    def _send_with_marker(self, transaction: GroupTransaction, partitions: Iterable[TopicPartition]) -> None:
        transaction.send(self._group_id, self._targets_of(partitions))
        mark = marker.marker_offset(self._run.request.run_uid, self._round)
        transaction.send(marker.marker_group(self._group_id), {marker.marker_partition(self._plan): mark})

    def _committed_round(self) -> int:
        group_id, partition = marker.marker_group(self._group_id), marker.marker_partition(self._plan)
        self._wait_visible([partition], group_id)
        offset = self._kafka.committed(group_id, [partition]).get(partition)
        return marker.committed_round(self._run.request.run_uid, offset)

    def _wait_visible(self, partitions: Collection[TopicPartition], group_id: str | None = None) -> None:
        """``commit_transaction`` returns before its offsets can be read (median 10 to 50 ms, up to 250 ms)."""
        limit = self._clock.monotonic() + self._tuning.visible_limit_s
        while self._kafka.pending(group_id or self._group_id, partitions):
            if self._clock.monotonic() > limit:
                raise Unavailable(
                    f"offsets of group {group_id or self._group_id} are still pending after "
                    f"{self._tuning.visible_limit_s:.0f} s: another transaction holds them"
                )
            self._clock.sleep(self._tuning.visible_s)

    def _targets_of(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return {p: self._targets[p] for p in partitions}

    def _learn_before(self, pending: frozenset[TopicPartition]) -> dict[TopicPartition, int]:
        """Read what is committed now. Owners that let go commit once more: the newest place is what undo goes to."""
        seen = dict(self._kafka.committed(self._group_id, list(pending)))
        if self._round == 1:
            for partition, offset in seen.items():
                if offset != self._targets[partition] and offset > self._before.get(partition, -1):
                    self._before[partition] = offset
        return seen

    # --- looking ------------------------------------------------------------------------------------------------------

    def _overwritten_while_empty(self, pending: frozenset[TopicPartition]) -> frozenset[TopicPartition]:
        """Look until a group whose members were all made to leave has one again: what was committed by then is old.

        To an Empty group anybody may commit without being a member: a KIP-848 Java consumer does when its auto-commit
        falls between being fenced and rejoining. Such a commit can be told from progress only now.
        """
        self._unverified |= pending
        limit = self._clock.monotonic() + self._tuning.back_limit_s
        was_empty = False
        while not self._group().has_members and self._clock.monotonic() < limit:
            was_empty = True
            self._check_deadline()
            self._clock.sleep(self._tuning.visible_s)
        if not was_empty:
            return frozenset()
        seen = self._kafka.committed(self._group_id, list(pending))
        return frozenset(p for p in pending if seen.get(p) != self._targets[p])

    def _watch(self, pending: frozenset[TopicPartition]) -> frozenset[TopicPartition]:
        """Look until the owners' next commits, or for as long as they may take; which partitions were overwritten."""
        tuning, clock = self._tuning, self._clock
        self._unverified |= pending
        began = clock.monotonic()
        held = self._hold_s()
        at_least = began + max(tuning.watch_at_least_s, held)
        limit = began + max(tuning.watch_s, held + tuning.watch_at_least_s)
        while True:
            seen = self._kafka.committed(self._group_id, list(self._unverified))
            self._note_resumed(pending)
            verdicts = {
                p: Watched(self._before.get(p), self._targets[p], seen.get(p)).verdict for p in self._unverified
            }
            overwritten = frozenset(p for p, verdict in verdicts.items() if verdict is Verdict.OVERWRITTEN)
            now = clock.monotonic()
            if overwritten:
                return overwritten
            if now >= limit or (now >= at_least and all(v is Verdict.SETTLED for v in verdicts.values())):
                self._unverified = frozenset()
                return frozenset()
            clock.sleep(tuning.look_s if now - began < tuning.watch_at_least_s else tuning.look_s * 5)

    def _note_resumed(self, pending: frozenset[TopicPartition]) -> None:
        missing = pending - self._times.resumed.keys()
        if not missing:
            return
        group, now = self._group(), self._clock.monotonic()
        if group.type is GroupType.CONSUMER or group.state is GroupState.STABLE:
            for member in group.members:
                self._times.resumed |= dict.fromkeys(member.assignment & missing, now)

    def _overwritten_at_release(
        self, pending: frozenset[TopicPartition], seen: Mapping[TopicPartition, int]
    ) -> frozenset[TopicPartition]:
        return frozenset(
            p for p in pending if Watched(self._before.get(p), self._targets[p], seen.get(p)).overwritten_before_release
        )

    def _group(self) -> Group:
        return self._kafka.groups([self._group_id])[self._group_id]

    def _settled_group(self) -> Group:
        """The group once nothing moves in it; as it is when that takes too long."""
        limit = self._clock.monotonic() + self._tuning.settle_limit_s
        while True:
            self._check_deadline()
            group = self._group()
            if group.state in (GroupState.STABLE, GroupState.EMPTY, GroupState.DEAD):
                return group
            if self._way is Way.BARRIER and group.state is GroupState.PREPARING_REBALANCE:
                return group  # held by ourselves, or by a writer that died: the hold can be taken over
            if self._clock.monotonic() > limit:
                if group.type is GroupType.CLASSIC:
                    raise NotReady(
                        f"group {self._group_id} is {group.state} since {self._tuning.settle_limit_s:.0f} s: "
                        "a member does not come back to the rebalance"
                    )
                return group
            self._clock.sleep(self._tuning.look_s)

    def _choose(self, group: Group, pending: frozenset[TopicPartition]) -> Choice:
        if group.state is GroupState.PREPARING_REBALANCE:
            return Choice(Way.BARRIER, "a rebalance of this group is under way")
        versions = {}
        if group.type is GroupType.CLASSIC and group.owners(pending):
            versions = dict(self._kafka.membership.subscription_versions(self._group_id))
        return choose_way(OwnersSeen(group, pending, versions, kept_position=self._kept_position))

    # --- a successor --------------------------------------------------------------------------------------------------

    def _recall(self) -> None:
        """How far predecessors came, by the run's journal and the marker."""
        intents = [p for p in self._run.journal if p.round > 0]
        if not intents:
            return
        self._round, self._way = intents[-1].round, intents[-1].way
        self._found_round = self._committed_round()
        if self._found_round > 0:
            self._committed_any = True
            # Where nothing was committed, the owners have gone on since: what is "before" is read anew.
            self._before = {b.topic_partition: b.offset for p in intents for b in p.before}

    def _left_to_do(self) -> frozenset[TopicPartition]:
        """What is still to be done of the run, after ``_recall``, by what is committed."""
        everything = frozenset(self._targets)
        if not self._committed_any:
            self._check_plan()
            return everything
        last = [p for p in self._run.journal if p.round > 0][-1]
        if self._found_round < last.round:
            return frozenset(last.pending)
        self._wait_visible(everything)
        if last.phase is Phase.VERIFYING or self._settings.owners is Owners.WAITING:
            return self._overwritten_while_empty(everything) or self._watch(everything)
        return self._unreleased(frozenset(last.pending), last) or self._watch(everything)

    def _unreleased(self, pending: frozenset[TopicPartition], intent: Progress) -> frozenset[TopicPartition]:
        """The writer died between its commit and its word that the owners were let go: who may stand where he stood?"""
        # A rebalance hides who owns what; one of a Barrier is our own hold, which can be taken over.
        group = self._settled_group()
        if intent.way is Way.BARRIER and group.state is GroupState.PREPARING_REBALANCE:
            return pending
        if intent.way is Way.HANDOVER and not {m.member_id for m in group.members} & set(intent.releasing):
            return frozenset()
        seen = self._kafka.committed(self._group_id, list(pending))
        unsure = self._overwritten_at_release(pending, seen)
        if intent.way is not Way.BARRIER:
            unsure |= {p for p in pending if seen.get(p) == self._targets[p] and group.owner(p) is not None}
        return unsure

    def _check_plan(self) -> None:
        """The plan may be old: the topics are the same ones, and their logs still reach to the targets."""
        topics = self._kafka.topics()
        changed = {
            p.topic
            for p in self._plan.partitions
            if p.topic not in topics
            or topics[p.topic].topic_id != p.topic_id
            or topics[p.topic].partitions <= p.partition
        }
        if changed:
            raise PlanOutdated(f"deleted or recreated since the plan was made: {', '.join(sorted(changed))}")
        bounds = self._kafka.log_bounds(list(self._targets))
        outside = [p for p, o in self._targets.items() if not bounds[p].earliest <= o <= bounds[p].latest]
        if outside:
            first = min(outside)
            raise PlanOutdated(
                f"{len(outside)} target(s) are outside the log by now, e.g. {first}: target {self._targets[first]}, "
                f"log {bounds[first].earliest} to {bounds[first].latest}. Plan anew under another reset id"
            )

    # --- small things -------------------------------------------------------------------------------------------------

    def _hold_s(self) -> float:
        """How long owners are held after they let go: past what an application may still have in hand."""
        in_flight = self._settings.in_flight.total_seconds()
        return in_flight + self._tuning.margin_s if in_flight > 0 else 0.0

    def _pause(self, seconds: float) -> None:
        until = self._clock.monotonic() + seconds
        while self._clock.monotonic() < until:
            self._check_deadline()
            self._clock.sleep(min(self._tuning.look_s, seconds))

    def _check_deadline(self) -> None:
        if self._deadline is not None and self._clock.now() > self._deadline:
            raise DeadlinePassed(f"the run's deadline {self._deadline:%Y-%m-%dT%H:%M:%SZ} has passed")

    def _retrying(self, call: Callable[[], None]) -> None:
        """Try again for as long as the deadline allows while Kafka is away."""
        while True:
            try:
                return call()
            except Unavailable:
                if self._deadline is None:
                    raise
                self._check_deadline()
                self._clock.sleep(self._tuning.retry_s)

    def _journal(
        self, phase: Phase, pending: frozenset[TopicPartition], choice: Choice, owners: tuple[Member, ...]
    ) -> None:
        first = not any(b.before for b in self._written)
        entry = Progress(
            phase=phase,
            at=self._clock.now(),
            attempt=self._attempt,
            way=choice.way,
            round=self._round,
            before=_as_tuple(self._before) if first else (),
            releasing=tuple(m.member_id for m in owners),
            pending=tuple(sorted(pending)),
            message=choice.because,
            putting_back=self._putting_back,
        )
        self._store.append(entry, attempt=self._attempt)
        self._written.append(entry)

    def _overwritten(self, error: Exception) -> frozenset[TopicPartition]:
        return error.partitions if isinstance(error, DidNotHold) else frozenset()

    def _summary(self) -> str:
        way = f" by way of {self._way}" if self._way is not None else ""
        again = f"; {self._redone} done again, because an owner had committed an old position" if self._redone else ""
        return f"{len(self._targets)} partition(s) of group {self._group_id} reset{way}{again}"

    def _result(self, phase: Phase, reason: str, message: str) -> RunResult:
        return RunResult(
            phase=phase,
            reason=reason,
            message=message,
            finished_at=self._clock.now(),
            way=self._way,
            rounds=self._round,
            redone=self._redone,
            standstill=self._times.standstill(),
            before=_as_tuple(self._before),
        )


def _owned_by_others(
    pending: frozenset[TopicPartition], owners: Iterable[Member], left: Collection[str]
) -> frozenset[TopicPartition]:
    """Partitions whose owner was another by the time we left in its name: nobody has let those go."""
    return frozenset(p for m in owners if m.member_id not in left for p in m.assignment & pending)


def _are_back(group: Group, left: Iterable[Member]) -> bool:
    """Whether the clients that were made to leave are members again.

    KIP-848 members come back under their own member id, classic ones under a new one; clients are told apart by
    client id and host.
    """
    gone = list(left)
    old_ids = {m.member_id for m in gone}
    for client in {(m.client_id, m.host) for m in gone}:
        now = [
            m
            for m in group.members
            if (m.client_id, m.host) == client and (group.type is GroupType.CONSUMER or m.member_id not in old_ids)
        ]
        if len(now) < sum((m.client_id, m.host) == client for m in gone):
            return False
    return True


def _as_tuple(offsets: Mapping[TopicPartition, int]) -> tuple[PartitionOffset, ...]:
    return tuple(PartitionOffset(p.topic, p.partition, offset) for p, offset in sorted(offsets.items()))


_REASONS: Final[tuple[tuple[type[Exception], str], ...]] = (
    (DeadlinePassed, "DeadlineExceeded"),
    (DidNotHold, "Overwritten"),
    (PlanOutdated, "PlanOutdated"),
    (NotReady, "GroupNotReady"),
    (NotAuthorized, "NotAuthorized"),
    (UnknownPartitions, "UnknownPartitions"),
    (Unavailable, "KafkaUnavailable"),
    (OutcomeUnknown, "OutcomeUnknown"),
)


def _reason(error: Exception) -> str:
    return next((reason for kind, reason in _REASONS if isinstance(error, kind)), "RefusedByKafka")
