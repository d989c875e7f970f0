"""Judges what a group was given against what was produced and what was reset. Pure: values in, a verdict out.

"No loss" is Kafka's own meaning (kafkatest's produce_consume_validate): acknowledged ⊆ delivered, duplicates counted
apart. A forward reset leaves records out on purpose; those, and only those, need not have been delivered.

How a reset is seen. A partition's deliveries, in the order of time, are a sequence of offsets. Until the reset takes
effect the owner goes on from its old position. The effect is the first *break* of the sequence that lands on the first
record at or after the target. It needs no break where the owner, going on, stood exactly at the target at some moment
of the run. Afterwards:

* a record that continues the old position is **stale**: an owner had not let go yet. The last word wins: when the
  sequence ends on the old position, or returns to it after the run had ended, the **target is lost**. The same holds
  of a member that goes on from where it was itself: one that hung while the group went on without it still has
  records in hand when it wakes up;
* a step back, not below the target, is a **re-read** (a crash, or an owner that was made to leave before it committed);
* a record below the target, or a record at or after the target that the new sequence leaves out, means the target is
  lost.
"""

from __future__ import annotations

import copy
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import pairwise

from support.deliveries import Delivery, Partition


@dataclass(frozen=True, slots=True)
class ResetRun:
    """One run of a reset, as it was asked for and planned; times are epoch seconds.

    `t_start`: before anything was done to the group. `t_end`: when success was reported, so that from here on nothing
    may continue the old positions; without it that holds from `t_start`. `targets`: the planned offsets. `requested`:
    partitions of the request besides the targets' (unchanged ones, or all of them for a run that was rolled back);
    re-reads there are not unintended.
    """

    t_start: float
    t_end: float | None
    targets: Mapping[Partition, int]
    requested: frozenset[Partition] = frozenset()

    def covers(self, partition: Partition) -> bool:
        return partition in self.targets or partition in self.requested


class Outcome(StrEnum):
    """How a reset showed in a partition's sequence."""

    JUMPED = "jumped"  # a break landed on the first record at or after the target
    CONTINUED = "continued"  # the owner stood exactly at the target: no break needed
    NOTHING_TO_READ = "nothing to read"  # no record at or after the target, and none before it was read any more
    SUPERSEDED = "superseded"  # the next reset began before a record could show this one
    WRONG = "wrong"


@dataclass(frozen=True, slots=True)
class PartitionReset:
    """What one run did to one of its target partitions. Counts are records, times seconds.

    `first_after_reset`: the record the effect was seen at; where it was not seen, the first break's, if any.
    `expected`: the first record at or after the target, ``None`` when there is none. `earlier_jumps`: breaks before
    the effect (a crash in mid-run). `standstill_s`: from the last record before the effect to the first at the target,
    counted from `t_start` where the partition had been idle before. `lost`: records at or after the target that the
    later sequence leaves out.
    """

    run: int
    target: int
    expected: int | None
    outcome: Outcome
    first_after_reset: int | None = None
    earlier_jumps: tuple[int, ...] = ()
    standstill_s: float | None = None
    stale: int = 0
    reread: int = 0
    below_target: int = 0
    skipped: int = 0
    lost: tuple[int, ...] = ()
    target_lost: bool = False

    @property
    def ok(self) -> bool:
        return self.outcome is not Outcome.WRONG and not self.target_lost


@dataclass(frozen=True, slots=True)
class PartitionVerdict:
    """One partition. `gaps_s`, `unintended`: by run (index), for runs whose request leaves this partition out.

    `missing`: acknowledged offsets neither delivered nor left out on purpose. `unintended`: records read again.
    `before_runs`: records read again before the first run, which no reset can have caused.
    """

    partition: Partition
    acked: int
    delivered: int
    missing: tuple[int, ...]
    resets: tuple[PartitionReset, ...]
    unintended: Mapping[int, int]
    before_runs: int
    gaps_s: Mapping[int, float]

    @property
    def ok(self) -> bool:
        return not self.missing and all(reset.ok for reset in self.resets)


@dataclass(frozen=True, slots=True)
class Verdict:
    """All partitions.

    `ok`: nothing lost, every first record right, no target lost. `clean`: also nothing stale, nothing outside a
    request read again, and no break before an effect.
    """

    partitions: Mapping[Partition, PartitionVerdict]

    @property
    def ok(self) -> bool:
        return all(partition.ok for partition in self.partitions.values())

    @property
    def clean(self) -> bool:
        jumped = any(reset.earlier_jumps for reset in self.resets)
        return self.ok and not jumped and not self.stale and not self.unintended_duplicates

    @property
    def resets(self) -> tuple[PartitionReset, ...]:
        return tuple(reset for partition in self.partitions.values() for reset in partition.resets)

    @property
    def missing(self) -> int:
        return sum(len(partition.missing) for partition in self.partitions.values())

    @property
    def stale(self) -> int:
        return sum(reset.stale for reset in self.resets)

    @property
    def unintended_duplicates(self) -> int:
        return sum(sum(partition.unintended.values()) for partition in self.partitions.values())

    @property
    def targets_lost(self) -> int:
        return sum(reset.target_lost for reset in self.resets)

    @property
    def standstills_s(self) -> tuple[float, ...]:
        """Of every target partition of every run where it could be measured."""
        return tuple(reset.standstill_s for reset in self.resets if reset.standstill_s is not None)

    @property
    def max_gap_s(self) -> float:
        """The longest silence, during a run, of a partition outside its request."""
        return max((gap for partition in self.partitions.values() for gap in partition.gaps_s.values()), default=0.0)

    def complaints(self) -> tuple[str, ...]:
        """What is not `clean`, a line each."""
        found: list[str] = []
        for (topic, number), verdict in self.partitions.items():
            name = f"{topic}-{number}"
            if verdict.missing:
                found.append(f"{name}: {len(verdict.missing)} records missing, first {_few(verdict.missing)}")
            for run, again in verdict.unintended.items():
                found.append(f"{name}: outside the request of run {run}, yet {again} records were read again")
            for reset in verdict.resets:
                found.extend(f"{name}, run {reset.run}: {text}" for text in _complaints(reset))
        return tuple(found)


def check(
    deliveries: Iterable[Delivery],
    acked: Mapping[Partition, Collection[int]],
    resets: Sequence[ResetRun] = (),
    *,
    starts: Mapping[Partition, int] | None = None,
    drained: bool = True,
    idle_after_s: float = 1.0,
) -> Verdict:
    """Judge `deliveries` against the `acked` offsets and the `resets`, which are in the order of their start.

    `starts`: where the group began, where that is not the log's start: nothing below is demanded. `drained`:
    production was stopped and the group given time to read to the end, so that the newest records are demanded too.
    `idle_after_s`: a partition silent for longer than this before a run counts as idle. Raises ``ValueError`` for
    resets out of order.
    """
    if any(a.t_start > b.t_start for a, b in pairwise(resets)):
        raise ValueError("the resets are not in the order of their start")
    by_partition: dict[Partition, list[Delivery]] = defaultdict(list)
    for delivery in sorted(deliveries, key=lambda d: d.t):
        by_partition[delivery.topic, delivery.partition].append(delivery)
    targeted = {partition for run in resets for partition in run.targets}
    verdicts = {
        partition: _Walk(
            partition,
            by_partition.get(partition, []),
            frozenset(acked.get(partition, ())),
            resets,
            (starts or {}).get(partition),
            drained,
            idle_after_s,
        ).verdict()
        for partition in sorted({*by_partition, *acked, *targeted})
    }
    return Verdict(verdicts)


class _Log:
    """The offsets known to be in a partition's log; the ones between them (transaction markers, for one) hold no
    records."""

    def __init__(self, offsets: Iterable[int]) -> None:
        self._offsets = sorted(offsets)

    def first_at(self, offset: int) -> int | None:
        i = bisect_left(self._offsets, offset)
        return self._offsets[i] if i < len(self._offsets) else None

    def continues(self, position: int | None, offset: int) -> bool:
        """Whether a reader at `position` (the next offset it wants) is rightly given `offset`."""
        return position is not None and offset >= position and self.first_at(position) == offset


class _Step(StrEnum):
    ON = "on"
    BACK = "back"
    FORWARD = "forward"


@dataclass(slots=True)
class _Cursor:
    """A reader of the log: the next offset it wants, and up to where it reads again what it had read."""

    log: _Log
    position: int | None = None
    again_until: int = 0

    def step(self, offset: int) -> _Step:
        """Follow one delivery. The first delivery of all counts as going on."""
        before, self.position = self.position, offset + 1
        if before is None or self.log.continues(before, offset):
            return _Step.ON
        if offset < before:
            self.again_until = max(self.again_until, before)
            return _Step.BACK
        return _Step.FORWARD

    def again(self, offset: int) -> bool:
        return offset < self.again_until


@dataclass(slots=True)
class _Effect:
    """Where in a segment's deliveries the reset takes effect: before the one with this index."""

    index: int
    outcome: Outcome


@dataclass(slots=True)
class _Walk:
    """Follows one partition's deliveries through all runs."""

    partition: Partition
    deliveries: Sequence[Delivery]
    acked: frozenset[int]
    runs: Sequence[ResetRun]
    start: int | None
    drained: bool
    idle_after_s: float
    log: _Log = field(init=False)
    cursor: _Cursor = field(init=False)
    own: dict[str, int] = field(default_factory=dict)
    """Each member's own position, whoever has read the partition since."""
    seen: set[int] = field(default_factory=set)
    left_out: list[tuple[int, int]] = field(default_factory=list)
    superseded: set[int] = field(default_factory=set)
    again: Counter[int] = field(default_factory=Counter)
    last_t: float | None = None

    def __post_init__(self) -> None:
        self.seen = {delivery.offset for delivery in self.deliveries}
        self.log = _Log(self.acked | self.seen)
        self.cursor = _Cursor(self.log)

    def verdict(self) -> PartitionVerdict:
        mine = [i for i, run in enumerate(self.runs) if self.partition in run.targets]
        bounds = [self.runs[i].t_start for i in mine]
        cuts = [bisect_left(self.deliveries, t, key=lambda d: d.t) for t in bounds]
        cuts.append(len(self.deliveries))
        self._before(self.deliveries[: cuts[0]])
        resets = [
            self._reset(i, self.deliveries[begin:end], final=i == mine[-1])
            for i, (begin, end) in zip(mine, pairwise(cuts), strict=True)
        ]
        return PartitionVerdict(
            partition=self.partition,
            acked=len(self.acked),
            delivered=len(self.seen),
            missing=self._missing(),
            resets=tuple(resets),
            unintended={i: n for i, n in sorted(self.again.items()) if i >= 0 and not self._covered(i)},
            before_runs=self.again[-1],
            gaps_s=self._gaps(),
        )

    def _covered(self, run: int) -> bool:
        return self.runs[run].covers(self.partition)

    def _over(self, run: int) -> float:
        """From when on nothing may continue the positions from before this run."""
        end = self.runs[run].t_end
        return self.runs[run].t_start if end is None else end

    def _charge(self, t: float) -> None:
        """Count a record read again on the run in whose time it was."""
        started = [i for i, run in enumerate(self.runs) if run.t_start <= t]
        self.again[started[-1] if started else -1] += 1

    def _before(self, deliveries: Sequence[Delivery]) -> list[int]:
        """Follow deliveries that no reset accounts for; returns where the breaks landed."""
        jumps: list[int] = []
        for delivery in deliveries:
            before = self.cursor.position
            step = self.cursor.step(delivery.offset)
            self.own[delivery.member] = delivery.offset + 1
            if step is not _Step.ON and delivery.offset in self.superseded:
                # an earlier reset that the following one overtook, and that shows only now
                self.superseded.discard(delivery.offset)
                self.cursor.again_until = 0
                if step is _Step.FORWARD and before is not None:
                    self.left_out.append((before, delivery.offset))
            elif step is not _Step.ON:
                jumps.append(delivery.offset)
            if self.cursor.again(delivery.offset):
                self._charge(delivery.t)
            self.last_t = delivery.t
        return jumps

    def _reset(self, run: int, deliveries: Sequence[Delivery], *, final: bool) -> PartitionReset:
        target = self.runs[run].targets[self.partition]
        expected = self.log.first_at(target)
        effect = self._effect(run, target, expected, deliveries)
        if effect is None:
            return self._unseen(run, target, expected, deliveries, final=final)
        charged = self.again[run]
        jumps = self._before(deliveries[: effect.index])
        old = self.cursor.position
        skipped = self._leave_out(old, target)
        after = deliveries[effect.index :]
        new = _After(self.log, target, old if effect.outcome is Outcome.JUMPED else None, dict(self.own))
        standstill = self._standstill(run, after[0].t) if after and after[0].offset == expected else None
        for delivery in after:
            if new.follow(delivery, self._over(run)):
                self._charge(delivery.t)
            self.own[delivery.member] = delivery.offset + 1
            self.last_t = delivery.t
        lost = self._lost(target, new, final=final)
        first = after[0].offset if after else None
        self.cursor = _Cursor(self.log, new.position, new.cursor.again_until)
        return PartitionReset(
            run=run,
            target=target,
            expected=expected,
            outcome=effect.outcome if first in (None, expected) else Outcome.WRONG,
            first_after_reset=first,
            earlier_jumps=tuple(jumps),
            standstill_s=standstill,
            stale=new.stale,
            reread=self.again[run] - charged,
            below_target=new.below,
            skipped=skipped,
            lost=lost,
            target_lost=bool(lost) or new.below > 0 or new.returned,
        )

    def _effect(self, run: int, target: int, expected: int | None, deliveries: Sequence[Delivery]) -> _Effect | None:
        """Look for the break that lands on the target, and else for the last moment at which the owner stood there."""
        cursor, own = copy.copy(self.cursor), dict(self.own)
        passed: int | None = None
        by = self._over(run)
        if cursor.position is not None and self.log.first_at(cursor.position) == expected:
            passed = 0
        ahead = cursor.position is not None and cursor.position <= target
        for i, delivery in enumerate(deliveries):
            fresh = cursor.position is None
            step = cursor.step(delivery.offset)
            goes_on = self.log.continues(own.get(delivery.member), delivery.offset)
            own[delivery.member] = delivery.offset + 1
            if delivery.offset == expected and (fresh or step is not _Step.ON):
                return _Effect(i, Outcome.JUMPED)
            # Two that read the partition at once take turns here; neither has left anything out.
            ahead = ahead and (step is not _Step.FORWARD or goes_on)
            at_target = self.log.first_at(delivery.offset + 1) == expected
            if ahead and at_target and delivery.t <= by:
                passed = i + 1
        return None if passed is None else _Effect(passed, Outcome.CONTINUED)

    def _unseen(
        self, run: int, target: int, expected: int | None, deliveries: Sequence[Delivery], *, final: bool
    ) -> PartitionReset:
        """No effect is to be seen: rightly, where there is nothing to read or the next reset came first."""
        quiet = all(delivery.t <= self._over(run) for delivery in deliveries)
        fresh = self.cursor.position is None and bool(deliveries)
        jumps = self._before(deliveries)
        outcome, skipped = Outcome.WRONG, 0
        if quiet and expected is None:
            outcome, skipped = Outcome.NOTHING_TO_READ, self._leave_out(self.cursor.position, target)
        elif quiet and expected is not None and not final:
            outcome = Outcome.SUPERSEDED
            self.superseded.add(expected)
        elif quiet and not deliveries and not self.drained:
            outcome = Outcome.SUPERSEDED  # watching ended before a record could show it
        first = deliveries[0].offset if fresh else next(iter(jumps), None)
        return PartitionReset(
            run=run,
            target=target,
            expected=expected,
            outcome=outcome,
            first_after_reset=first,
            earlier_jumps=tuple(jumps) if outcome is not Outcome.WRONG else (),
            reread=self.again[run],
            skipped=skipped,
            target_lost=outcome is Outcome.WRONG,
        )

    def _leave_out(self, position: int | None, target: int) -> int:
        begin = position if position is not None else (self.start or 0)
        if target <= begin:
            return 0
        self.left_out.append((begin, target))
        return sum(begin <= offset < target and offset not in self.seen for offset in self.acked)

    def _standstill(self, run: int, first_t: float) -> float | None:
        if self.last_t is None:
            return None
        started = self.runs[run].t_start
        since = started if self.last_t < started - self.idle_after_s else self.last_t
        return max(0.0, first_t - since)

    def _lost(self, target: int, new: _After, *, final: bool) -> tuple[int, ...]:
        """The records from the target on that the new sequence leaves out, as far as it had to come."""
        if final and self.drained:
            demanded = (o for o in self.acked if o >= target)
        else:
            demanded = (o for o in self.acked if target <= o < new.reached)
        return tuple(sorted(o for o in demanded if o not in new.given))

    def _missing(self) -> tuple[int, ...]:
        end = None if self.drained else max(self.seen, default=-1) + 1
        return tuple(
            offset
            for offset in sorted(self.acked - self.seen)
            if (self.start is None or offset >= self.start)
            and (end is None or offset < end)
            and not any(begin <= offset < to for begin, to in self.left_out)
        )

    def _gaps(self) -> dict[int, float]:
        times = [delivery.t for delivery in self.deliveries]
        gaps: dict[int, float] = {}
        for i, run in enumerate(self.runs):
            if self._covered(i) or len(times) < 2:
                continue
            following = self.runs[i + 1].t_start if i + 1 < len(self.runs) else times[-1]
            end = run.t_end if run.t_end is not None else following
            within = [b - a for a, b in pairwise(times) if b >= run.t_start and a <= end]
            if within:
                gaps[i] = max(within)
        return gaps


@dataclass(slots=True)
class _After:
    """The sequence after an effect: the new one from the target on, and what may be left of the old one."""

    log: _Log
    target: int
    old: int | None
    own: dict[str, int]
    cursor: _Cursor = field(init=False)
    given: set[int] = field(default_factory=set)
    stale: int = 0
    below: int = 0
    returned: bool = False
    ended_on: int | None = None
    """Where the old sequence has come to, while the last record is one of it."""

    def __post_init__(self) -> None:
        self.cursor = _Cursor(self.log, self.target)

    def follow(self, delivery: Delivery, end: float) -> bool:
        """One more delivery; `end`: after it nothing may continue the old position. True for a record read again."""
        offset = delivery.offset
        own = self.own.pop(delivery.member, None)
        old = next((old for old in (self.old, own) if self._continues(old, offset)), None)
        if not self.log.continues(self.cursor.position, offset) and old is not None:
            if old == self.old:
                self.old = offset + 1
            self.own[delivery.member] = offset + 1
            self.stale += 1
            self.ended_on = offset + 1
            self.returned = self.returned or delivery.t > end
            return False
        self.ended_on = None
        self.cursor.step(offset)
        if offset < self.target:
            self.below += 1
            return False
        self.given.add(offset)
        return self.cursor.again(offset)

    def _continues(self, old: int | None, offset: int) -> bool:
        if old is None or not self.log.continues(old, offset):
            return False
        # Once the new sequence has come past the old position, nobody can be going on from there.
        return offset < self.target or self.cursor.position is None or old >= self.cursor.position

    @property
    def position(self) -> int | None:
        return self.cursor.position if self.ended_on is None else self.ended_on

    @property
    def reached(self) -> int:
        """The offset before which the new sequence has to be whole; where it ends on the old position, that one."""
        new = max(self.given, default=self.target - 1) + 1
        return new if self.ended_on is None else max(new, self.ended_on)


def _few(offsets: Sequence[int]) -> str:
    return ", ".join(map(str, offsets[:5]))


def _complaints(reset: PartitionReset) -> list[str]:
    found: list[str] = []
    if reset.outcome is Outcome.WRONG:
        found.append(f"first record {reset.first_after_reset}, expected {reset.expected} (target {reset.target})")
    if reset.target_lost:
        lost = f"; left out: {_few(reset.lost)}" if reset.lost else ""
        found.append(f"target {reset.target} lost, {reset.below_target} records below it read{lost}")
    if reset.stale:
        found.append(f"{reset.stale} stale records after the first at the target")
    if reset.earlier_jumps:
        found.append(f"jumped to {_few(reset.earlier_jumps)} before")
    return found
