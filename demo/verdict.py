"""Was anything lost, doubled or moved that should not have been? Judged from what the consumers were given. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise

from support.checker import ResetRun, Verdict, check
from support.clients import Event, EventKind
from support.deliveries import Delivery, Partition


@dataclass(frozen=True, slots=True)
class RunFacts:
    """A run as it was carried out. ``expected``: between which offsets (both included) the group had to go, by the
    records and by what its consumers did, not by the plan. ``standstill``: as the status reports it. ``redone``:
    partitions that it says it had to send to their target again, because an owner had committed an old position.
    """

    run_id: str
    applied_at: datetime
    finished_at: datetime
    phase: str
    way: str
    targets: Mapping[Partition, int]
    expected: Mapping[Partition, tuple[int, int]]
    standstill: str
    message: str
    redone: int = 0


@dataclass(frozen=True, slots=True)
class History:
    """All that the consumers, the producer and the broker can tell once everything is read.

    ``acked``: offsets the broker acknowledged. ``committed``: the group's offsets in the end. ``processes_before`` and
    ``processes_after``: process ids by member.
    """

    deliveries: Sequence[Delivery]
    events: Sequence[Event]
    acked: Mapping[Partition, Collection[int]]
    committed: Mapping[Partition, int]
    processes_before: Mapping[str, int]
    processes_after: Mapping[str, int]
    runs: Sequence[RunFacts]


@dataclass(frozen=True, slots=True)
class Finding:
    """One sentence, and whether it is as it should be; ``None``: only a fact."""

    passed: bool | None
    sentence: str


@dataclass(frozen=True, slots=True)
class Judgement:
    """The findings, in the order in which they are told."""

    findings: tuple[Finding, ...]

    @property
    def well(self) -> bool:
        return all(finding.passed is not False for finding in self.findings)


def judge(history: History) -> Judgement:
    """Hold the history against what was asked for."""
    runs = [ResetRun(r.applied_at.timestamp(), r.finished_at.timestamp(), r.targets) for r in history.runs]
    verdict = check(history.deliveries, history.acked, runs)
    findings = [_lost(history, verdict), _doubled(history, verdict), _moved(history, verdict)]
    findings += [_arrived(i, run, verdict) for i, run in enumerate(history.runs)]
    findings += [_finished(history), _restarted(history)]
    findings += [_standstill(i, run, verdict) for i, run in enumerate(history.runs)]
    findings += [Finding(False, complaint) for complaint in verdict.complaints()]
    return Judgement(tuple(findings))


def _lost(history: History, verdict: Verdict) -> Finding:
    produced = sum(len(offsets) for offsets in history.acked.values())
    if verdict.missing:
        return Finding(False, f"{verdict.missing:,} of {produced:,} records were never delivered")
    return Finding(True, f"nothing lost: each of {produced:,} records produced was delivered")


def _doubled(history: History, verdict: Verdict) -> Finding:
    distinct = sum(partition.delivered for partition in verdict.partitions.values())
    again = len(history.deliveries) - distinct
    redone = sum(reset.reread for reset in verdict.resets if history.runs[reset.run].redone)
    unasked = verdict.stale + verdict.unintended_duplicates + sum(reset.reread for reset in verdict.resets) - redone
    if unasked:
        return Finding(False, f"{unasked:,} records were read again although nobody had asked for that")
    told = f"nothing doubled but what was asked for: {again:,} records were read again, all from a target on"
    if redone:
        told += f", {redone:,} of them twice: an owner had committed an old position, so its partition was reset again"
    return Finding(True, told)


def _moved(history: History, verdict: Verdict) -> Finding:
    asked = {partition for run in history.runs for partition in run.targets}
    others = [partition for partition in verdict.partitions if partition not in asked]
    moved = [p for p in others if verdict.partitions[p].unintended or verdict.partitions[p].missing]
    if moved:
        return Finding(False, f"partitions outside the request were moved: {_names(moved)}")
    pause = max((_pause(history.deliveries, others, run) for run in history.runs), default=0.0)
    return Finding(
        True, f"nothing outside the request moved: {len(others)} partitions went on, the longest pause {pause:.1f} s"
    )


def _pause(deliveries: Sequence[Delivery], partitions: Collection[Partition], run: RunFacts) -> float:
    """The longest time during a run in which none of the partitions delivered anything, in seconds."""
    began, ended = run.applied_at.timestamp(), run.finished_at.timestamp()
    times = sorted(d.t for d in deliveries if (d.topic, d.partition) in partitions and began <= d.t <= ended)
    return max((b - a for a, b in pairwise(times)), default=0.0)


def _arrived(number: int, run: RunFacts, verdict: Verdict) -> Finding:
    if run.phase != "Succeeded":
        return Finding(False, f"{run.run_id}: {run.phase}: {run.message}")
    if set(run.targets) != set(run.expected):
        return Finding(False, f"{run.run_id}: partitions {_names(run.targets)} instead of {_names(run.expected)}")
    wrong = [p for p, (least, most) in run.expected.items() if not least <= run.targets[p] <= most]
    if wrong:
        told = ", ".join(f"{p[0]}-{p[1]}: {run.targets[p]}, not in {run.expected[p]}" for p in wrong)
        return Finding(False, f"{run.run_id}: the targets are not what was asked for: {told}")
    resets = [reset for reset in verdict.resets if reset.run == number]
    late = [reset for reset in resets if not reset.ok]
    if late:
        return Finding(False, f"{run.run_id}: {len(late)} of {len(resets)} partitions did not go on from their target")
    firsts = ", ".join(f"{p[1]} at {offset:,}" for p, offset in sorted(run.targets.items()))
    return Finding(True, f"{run.run_id}: partitions went on exactly from their targets ({firsts})")


def _finished(history: History) -> Finding:
    ends = {partition: max(offsets) + 1 for partition, offsets in history.acked.items()}
    behind = [partition for partition, end in ends.items() if history.committed.get(partition) != end]
    if behind:
        return Finding(False, f"the group has not committed the end of these partitions: {_names(behind)}")
    return Finding(True, "the group has committed the end of every partition")


def _restarted(history: History) -> Finding:
    gone = [e.member for e in history.events if e.kind in (EventKind.CLOSED, EventKind.KILLED)]
    if gone or history.processes_before != history.processes_after:
        return Finding(
            False, f"consumers were restarted: {history.processes_before} → {history.processes_after}, {gone}"
        )
    pids = ", ".join(f"{member} {pid}" for member, pid in history.processes_after.items())
    return Finding(True, f"no consumer was restarted: the same processes all along ({pids})")


def _standstill(number: int, run: RunFacts, verdict: Verdict) -> Finding:
    seen = [r.standstill_s for r in verdict.resets if r.run == number and r.standstill_s is not None]
    told = f"{statistics.median(seen):.1f} s (median), {max(seen):.1f} s (most)" if seen else "not seen"
    return Finding(None, f"{run.run_id}: strategy {run.way}; standstill for its consumers: {told}; {run.standstill}")


def stood_at(
    deliveries: Sequence[Delivery], partitions: Collection[Partition], since: datetime
) -> dict[Partition, int]:
    """How far each partition had been given to the application when its sequence first broke after ``since``.

    ``deliveries`` in the order of their time; of a topic whose offsets have no gaps.
    """
    positions: dict[Partition, int] = {}
    broken: set[Partition] = set()
    for delivery in deliveries:
        partition = (delivery.topic, delivery.partition)
        if partition not in partitions or partition in broken:
            continue
        if delivery.t >= since.timestamp() and delivery.offset != positions.get(partition, delivery.offset):
            broken.add(partition)
        else:
            positions[partition] = delivery.offset + 1
    return positions


def _names(partitions: Collection[Partition]) -> str:
    return ", ".join(f"{topic}-{number}" for topic, number in sorted(partitions))
