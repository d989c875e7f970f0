"""What a person wants to know of a stored plan before approving it, in words and numbers. Pure.

Names, notes and records' contents come from others: every text that is foreign goes through ``visible`` here, so that
what shows it (terminal, page) only has to escape for its own medium.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from shlex import quote
from typing import Final, assert_never

from tidegate.incident.commands import in_context
from tidegate.printable import visible
from tidegate.reset.evidence import Amount, Evidence, Histogram, Sample, TopicEvidence, amounts, movings
from tidegate.reset.model.plan import PartitionPlan, Plan
from tidegate.reset.model.request import EvidenceLevel
from tidegate.reset.model.targets import (
    ByDuration,
    FromBackup,
    FromCluster,
    FromFile,
    FromGroup,
    ShiftBy,
    Target,
    ToEarliest,
    ToLatest,
    ToOffset,
    ToRecord,
    ToTimestamp,
    Undo,
)
from tidegate.reset.runs.progress import phase_of
from tidegate.reset.store import Run
from tidegate.resources.durations import format_duration
from tidegate.resources.reset import ResetPhase
from tidegate.resources.timestamps import format_timestamp

_LATE: Final = timedelta(seconds=30)
"""Beyond its own timeout; then nothing more is to be expected of the job that gathers."""


@dataclass(frozen=True, slots=True)
class Total:
    """What goes one way in all topics together; ``None`` where it is not known of each. Keys count once a topic."""

    offsets: int
    estimated_bytes: int | None
    keys: int | None
    is_sampled: bool


@dataclass(frozen=True, slots=True)
class Topic:
    """One topic of the plan: how many partitions, and the evidence, which has at least the plan's counts."""

    name: str
    partitions: int
    evidence: TopicEvidence


@dataclass(frozen=True, slots=True)
class Review:
    """A run's plan as it is to be shown. ``pending``: why there is no evidence (yet), as a sentence."""

    reset: str
    run_id: str
    group: str
    phase: ResetPhase
    target: str
    way: str
    made_at: datetime
    age: timedelta
    partitions: tuple[PartitionPlan, ...]
    """Those that move furthest first."""
    topics: tuple[Topic, ...]
    notes: tuple[str, ...]
    evidence_notes: tuple[str, ...]
    samples: tuple[Sample, ...]
    targets: dict[str, int]
    """By the partition's name."""
    approval: str | None
    outcome: str | None
    at: datetime | None
    """The time that the target names, to be marked in histograms."""

    @property
    def moved(self) -> int:
        return sum(p.moves for p in self.partitions)

    @property
    def clamped(self) -> int:
        return sum(p.clamped is not None for p in self.partitions)

    @property
    def replayed(self) -> Total | None:
        return _sum([t.evidence.replayed for t in self.topics if t.evidence.replayed is not None])

    @property
    def skipped(self) -> Total | None:
        return _sum([t.evidence.skipped for t in self.topics if t.evidence.skipped is not None])

    @property
    def span(self) -> tuple[datetime, datetime] | None:
        """Times of the first and the last record that is read again or skipped, as far as they were looked up."""
        times = [at for p in self.partitions for at in (p.span_from, p.span_to) if at is not None]
        return (min(times), max(times)) if times else None


def review(namespace: str, name: str, run: Run, now: datetime, context: str | None = None) -> Review:
    """``context``: of the kubeconfig, where one was given. Raises ``ValueError`` for a run without a plan."""
    plan, evidence = run.plan, run.evidence
    if plan is None:
        raise ValueError(f"run {run.request.run_id} has no plan")
    phase = run.result.phase if run.result is not None else phase_of(run)
    waits = phase is ResetPhase.AWAITING_APPROVAL
    target = run.request.target
    return Review(
        reset=visible(f"{namespace}/{name}"),
        run_id=visible(plan.run_id),
        group=visible(plan.group_id),
        phase=phase,
        target=visible(described(target, plan.made_at)),
        way=str(plan.way or "not known yet"),
        made_at=plan.made_at,
        age=now - plan.made_at,
        partitions=tuple(sorted(plan.partitions, key=lambda p: (-_distance(p), p.topic, p.partition))),
        topics=_topics(plan, evidence),
        notes=tuple(map(visible, plan.notes)),
        evidence_notes=_evidence_notes(run, now),
        samples=evidence.samples if evidence is not None else (),
        targets={str(p): offset for p, offset in plan.targets.items()},
        approval=approval_command(namespace, name, run.digest, context) if waits else None,
        outcome=None if run.result is None else visible(f"{run.result.phase}: {run.result.message}"),
        at=target.at if isinstance(target, ToTimestamp) else None,
    )


def approval_command(namespace: str, name: str, digest: str, context: str | None) -> str:
    where = f"--namespace {quote(visible(namespace))}{in_context(context)}"
    return f"tidegate approve {quote(visible(name))} {where} --plan {digest}"


def _topics(plan: Plan, evidence: Evidence | None) -> tuple[Topic, ...]:
    """The topics, those that move most first; with the plan's counts where the evidence is silent."""
    gathered = {t.topic: t for t in evidence.topics} if evidence is not None else {}
    partitions: dict[str, int] = {}
    for p in plan.partitions:
        partitions[p.topic] = partitions.get(p.topic, 0) + 1
    counted = amounts(movings(plan))
    names = [*counted, *sorted(partitions.keys() - counted.keys())]
    found = []
    for name in names:
        replayed, skipped = (counted.get(name, {}).get(way) for way in (True, False))
        by_plan = TopicEvidence(
            name,
            None if replayed is None else Amount(replayed),
            None if skipped is None else Amount(skipped),
        )
        found.append(Topic(visible(name), partitions[name], gathered.get(name, by_plan)))
    return tuple(found)


def _evidence_notes(run: Run, now: datetime) -> tuple[str, ...]:
    evidence, asked = run.evidence, run.request.evidence
    if evidence is not None:
        return tuple(map(visible, evidence.notes))
    if asked.level is EvidenceLevel.NONE:
        return ("No evidence was requested (spec.evidence), so only the counts of the plan itself are shown",)
    since = run.journal[-1].at if run.journal else now
    if now < since + asked.timeout + _LATE:
        return (f"Evidence is still being gathered, since {time_text(since)}: look again in a moment",)
    return ("There is no evidence, because the job ended before it was gathered",)


def described(target: Target, made_at: datetime) -> str:
    """Where to, in words. ``made_at``: when it was planned."""
    match target:
        case ToEarliest():
            return "the start of the log"
        case ToLatest():
            return "the end of the log"
        case ToOffset(offset=offset):
            return f"offset {offset}"
        case ToTimestamp(at=at):
            return f"the first record at or after {time_text(at)}"
        case ByDuration(ago=ago):
            return f"{format_duration(ago)} before it was planned, {time_text(made_at - ago)}"
        case ShiftBy(records=records):
            return f"{abs(records):,} records {'forward' if records > 0 else 'back'}"
        case FromFile(source=source):
            return f"the offsets in {source}"
        case FromGroup(group_id=group_id):
            return f"the committed offsets of group {group_id}"
        case FromCluster(group_id=group_id, connection=connection):
            return f"where group {group_id} is on the cluster at {connection.bootstrap_servers}"
        case FromBackup(storage=storage, at=at):
            by = f" taken by {time_text(at)}" if at is not None else ""
            return f"where the group was in the newest backup{by} in {storage.uri}"
        case Undo(run_id=run_id):
            return f"where the group was before run {run_id}"
        case ToRecord(where=where, since=since, until=until, after=after):
            bounds = [f"from {time_text(since)}"] if since is not None else []
            bounds += [f"until {time_text(until)}"] if until is not None else []
            which = "after the last record" if after else "the first record"
            return " ".join([which, *bounds, "where", visible(where)])
        case _:
            assert_never(target)


# --- numbers ----------------------------------------------------------------------------------------------------------


def time_text(at: datetime) -> str:
    """RFC 3339 in UTC, to the second, or to the millisecond where it has any."""
    return format_timestamp(at.replace(microsecond=at.microsecond // 1000 * 1000))


def ago_text(age: timedelta) -> str:
    seconds = max(0, int(age.total_seconds()))
    for size, unit in ((86_400, "day"), (3_600, "hour"), (60, "minute")):
        if seconds >= size:
            count = seconds // size
            return f"{count} {unit}{'' if count == 1 else 's'} ago"
    return "just now"


def width_text(width: timedelta) -> str:
    seconds = width.total_seconds()
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s")):
        if seconds >= size:
            return f"{seconds / size:g} {unit}"
    return f"{seconds * 1000:g} ms"


def bytes_text(count: int) -> str:
    """IEC units, three digits."""
    size, unit = float(count), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB", "PiB"):
        if size < 1024:
            break
        size, unit = size / 1024, larger
    return f"{size:,.0f} {unit}" if unit == "B" or size >= 999.5 else f"{size:.3g} {unit}"


def size_text(amount: Amount | Total) -> str | None:
    """The bytes; ``about`` where only some of the records were read. ``None`` where none were."""
    estimated = amount.estimated_bytes
    if estimated is None:
        return None
    return f"{'about ' if amount.is_sampled else ''}{bytes_text(estimated)}"


def keys_text(amount: Amount | Total) -> str | None:
    if amount.keys is None:
        return None
    return f"{'at least about' if amount.is_sampled else 'about'} {amount.keys:,}"


def records_text(amount: Amount | Total | None) -> str:
    return "0" if amount is None else f"{amount.offsets:,}"


def reading_text(amount: Amount) -> str | None:
    """How much of it was read, where that is not all of it or not the same."""
    if amount.records is None:
        return None
    if amount.is_sampled:
        return f"estimated from {amount.looked_at:,} of {amount.offsets:,} offsets"
    gaps = amount.offsets - amount.records
    return f"{amount.records:,} records in {amount.offsets:,} offsets" if gaps else None


def position_text(p: PartitionPlan) -> str:
    """What happens to one partition, as a sentence's end."""
    if p.end is not None:
        then = ", and then returns" if p.returns else ""
        at = "no commit so far, goes" if p.committed is None else f"goes back from {p.committed:,}"
        return f"{at} to {p.target:,}, is replayed up to {p.end:,} ({p.end - p.target:,} offsets){then}"
    if p.committed is None:
        return f"no commit so far, goes to {p.target:,}"
    if p.replayed:
        return f"goes back from {p.committed:,} to {p.target:,}, {p.replayed:,} read again"
    if p.skipped:
        return f"goes forward from {p.committed:,} to {p.target:,}, {p.skipped:,} skipped"
    return f"stays at {p.target:,}"


def peak(histogram: Histogram) -> int:
    return max([*histogram.replayed, *histogram.skipped, 0])


def _sum(of: list[Amount]) -> Total | None:
    if not of:
        return None

    def total(values: list[int | None]) -> int | None:
        known = [v for v in values if v is not None]
        return sum(known) if len(known) == len(values) else None

    return Total(
        offsets=sum(a.offsets for a in of),
        estimated_bytes=total([a.estimated_bytes for a in of]),
        keys=total([a.keys for a in of]),
        is_sampled=any(a.is_sampled for a in of),
    )


def _distance(p: PartitionPlan) -> int:
    return abs(p.target - p.committed) if p.committed is not None else 0
