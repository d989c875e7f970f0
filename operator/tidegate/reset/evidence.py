"""What a plan would replay and skip, for the person who approves it: amounts, histograms over time, sample records.

Gathered after the plan is made and never in its way: a run is the same with and without it. Everything here is bounded,
so that it fits beside the plan; what was left out is said in ``notes``. Values, and what is computed of them; pure.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Final

from tidegate.kafka.model import Offsets, Range, TopicPartition
from tidegate.printable import visible_bytes
from tidegate.reset.model.plan import PartitionPlan, Plan

MAX_BUCKETS: Final = 48
"""Of a topic's histogram."""

MAX_TOPICS: Final = 40
"""Topics that are shown one by one: those in which the most moves."""

LOOKUPS: Final = 10_000
"""How often the brokers' time index is asked for histograms: partitions times buckets."""

SAMPLED_PARTITIONS: Final = 32
"""Partitions of which records are shown: those that move furthest."""

SAMPLES_A_SIDE: Final = 2
SAMPLE_REACH: Final = 16
"""Offsets looked at on each side of a target: control records and compaction leave gaps."""

KEY_LIMIT: Final = 80
VALUE_LIMIT: Final = 200
"""Characters of a key and of a value, where they are shown at all."""

EVIDENCE_LIMIT_BYTES: Final = 160 * 1024
"""Of its JSON; in a ConfigMap a long one is compressed to about a fifth of that."""

_LAST: Final = datetime.max.replace(tzinfo=UTC)


# --- values -----------------------------------------------------------------------------------------------------------


class HistogramSource(StrEnum):
    """Where the counts are from: offsets, by the brokers' time index; or the records themselves."""

    INDEX = "Index"
    RECORDS = "Records"


@dataclass(frozen=True, slots=True)
class Histogram:
    """Records by time: ``replayed[i]`` and ``skipped[i]`` from ``start + i * width`` on. Older and younger ones than
    the first and the last bucket are counted there."""

    start: datetime
    width: timedelta
    replayed: tuple[int, ...]
    skipped: tuple[int, ...]
    source: HistogramSource

    @property
    def end(self) -> datetime:
        # A producer may date a record at the end of the year 9999, and its bucket would end in the next.
        return self.start + min(self.width * len(self.replayed), _LAST - self.start)


@dataclass(frozen=True, slots=True)
class Amount:
    """What goes one way in one topic. ``offsets``: as the plan counts; ``looked_at``: those of them that were read.

    ``records``: what was found there (control records and compaction leave gaps); of these ``bytes`` are those of keys
    and values as consumers get them, ``keys`` is about how many different keys there are (HyperLogLog, 1.6 %), and
    ``without_key`` and ``tombstones`` have no key and no value. All ``None`` where no records were read.
    """

    offsets: int
    looked_at: int = 0
    records: int | None = None
    bytes: int | None = None
    keys: int | None = None
    without_key: int | None = None
    tombstones: int | None = None

    @property
    def is_sampled(self) -> bool:
        return 0 < self.looked_at < self.offsets

    @property
    def estimated_bytes(self) -> int | None:
        """Of all ``offsets``, by what was looked at."""
        return None if self.bytes is None else self.bytes * self.offsets // max(self.looked_at, 1)


@dataclass(frozen=True, slots=True)
class TopicEvidence:
    topic: str
    replayed: Amount | None = None
    skipped: Amount | None = None
    histogram: Histogram | None = None


@dataclass(frozen=True, slots=True)
class Content:
    """A key or a value: its length, a digest, and its text only where the policy says ``showValues``.

    ``digest`` is of the bytes with a random salt that was thrown away: the same content has the same digest within one
    plan, and no list of known keys can be held against it. ``text`` is escaped (``tidegate.printable``); ``cut``: there
    is more of it.
    """

    bytes: int
    digest: str
    text: str | None = None
    cut: bool = False


@dataclass(frozen=True, slots=True)
class Sample:
    """A record next to a target. ``from_target``: at or after it, so it will be read; else it is just before."""

    topic: str
    partition: int
    offset: int
    at: datetime | None
    from_target: bool
    key: Content | None = None
    value: Content | None = None

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


@dataclass(frozen=True, slots=True)
class Evidence:
    """``topics``: those in which something moves, most first. ``read``: records read for it; ``took_s`` seconds."""

    gathered_at: datetime
    topics: tuple[TopicEvidence, ...] = ()
    samples: tuple[Sample, ...] = ()
    read: int = 0
    took_s: float = 0.0
    notes: tuple[str, ...] = ()


def left_out(evidence: Evidence) -> Evidence:
    """What stays of it where the run's document needs the room."""
    return Evidence(
        evidence.gathered_at,
        read=evidence.read,
        took_s=evidence.took_s,
        notes=("Left out because the run's document has no room for it: reset fewer partitions at once to see it",),
    )


def fitted(evidence: Evidence, size: Callable[[Evidence], int], limit: int = EVIDENCE_LIMIT_BYTES) -> Evidence:
    """The evidence with no more samples, then topics, than fit into ``limit`` by ``size``; it says what it left out."""
    samples, topics = len(evidence.samples), len(evidence.topics)
    shortened = evidence
    while size(shortened) > limit and (samples or topics):
        if samples:
            samples //= 2
        else:
            topics //= 2
        notes = []
        if samples < len(evidence.samples):
            notes.append(
                f"Left out because there is no room for more: {len(evidence.samples) - samples:,} sample records"
            )
        if topics < len(evidence.topics):
            notes.append(f"Left out because there is no room for more: {len(evidence.topics) - topics:,} topics")
        shortened = replace(
            evidence,
            samples=evidence.samples[:samples],
            topics=evidence.topics[:topics],
            notes=(*evidence.notes, *notes),
        )
    return shortened


# --- what would be replayed and skipped -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Moving:
    """The offsets ``start`` to ``end`` (excluded) of one partition: all to be read again, or all to be skipped."""

    partition: TopicPartition
    start: int
    end: int
    replayed: bool

    @property
    def offsets(self) -> int:
        return self.end - self.start


def movings(plan: Plan) -> tuple[Moving, ...]:
    """What each partition would replay or skip of what its log still has, most first."""
    found = []
    for p in plan.partitions:
        if p.committed is None:
            continue
        start, end = max(min(p.committed, p.target), p.earliest), min(max(p.committed, p.target), p.latest)
        if start < end:
            found.append(Moving(p.topic_partition, start, end, replayed=p.target < p.committed))
    return tuple(sorted(found, key=lambda m: (-m.offsets, m.partition)))


def amounts(moving: Sequence[Moving]) -> dict[str, dict[bool, int]]:
    """Offsets by topic and by ``replayed``; the topics in which the most moves first."""
    sums: defaultdict[str, defaultdict[bool, int]] = defaultdict(lambda: defaultdict(int))
    for m in moving:
        sums[m.partition.topic][m.replayed] += m.offsets
    ranked = sorted(sums, key=lambda topic: (-sum(sums[topic].values()), topic))
    return {topic: dict(sums[topic]) for topic in ranked}


WINDOWS: Final = 4
"""Stretches of each partition that are read where there is too much to read all of it."""

READ_PARTITIONS: Final = 256
"""Partitions that are read, those that move furthest: each stretch is a task of its own."""


@dataclass(frozen=True, slots=True)
class Stretches:
    """What is read of each partition: all that moves, or ``WINDOWS`` stretches spread evenly over it, to its ends."""

    of: Mapping[Moving, tuple[Range, ...]]

    def looked_at(self) -> dict[tuple[str, bool], int]:
        """Offsets by topic and ``replayed``."""
        sums: defaultdict[tuple[str, bool], int] = defaultdict(int)
        for m, ranges in self.of.items():
            sums[m.partition.topic, m.replayed] += sum(r.size for r in ranges)
        return dict(sums)

    def rounds(self, replayed: bool) -> tuple[dict[TopicPartition, Range], ...]:
        """Such that no partition is twice in one."""
        ranges = {m.partition: of for m, of in self.of.items() if m.replayed is replayed}
        most = max(map(len, ranges.values()), default=0)
        return tuple({p: of[n] for p, of in ranges.items() if n < len(of)} for n in range(most))


def stretches(moving: Sequence[Moving], max_records: int) -> Stretches:
    """At most ``max_records`` offsets of the first ``READ_PARTITIONS``, each by its share."""
    moving = moving[:READ_PARTITIONS]
    total = sum(m.offsets for m in moving)
    if total <= max_records:
        return Stretches({m: (Range(m.start, m.end),) for m in moving})
    found = {}
    for m in moving:
        size = max_records * m.offsets // total // WINDOWS
        step = (m.offsets - size) / (WINDOWS - 1)
        starts = [m.start + round(n * step) for n in range(WINDOWS)] if size else []
        found[m] = tuple(Range(start, start + size) for start in starts)
    return Stretches(found)


# --- histograms -------------------------------------------------------------------------------------------------------

_SECOND: Final = timedelta(seconds=1)
_WIDTHS: Final = (
    *(timedelta(milliseconds=n) for n in (1, 2, 5, 10, 20, 50, 100, 200, 500)),
    *(timedelta(seconds=n) for n in (1, 2, 5, 10, 30)),
    *(timedelta(minutes=n) for n in (1, 2, 5, 10, 15, 30)),
    *(timedelta(hours=n) for n in (1, 2, 3, 6, 12)),
    *(timedelta(days=n) for n in (1, 2, 7, 14, 28, 84, 364, 3640)),
)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Grid:
    """The buckets of one topic: ``count`` of them from ``start`` on, each ``width`` wide."""

    start: datetime
    width: timedelta
    count: int

    @property
    def inner(self) -> tuple[datetime, ...]:
        """The times between the buckets."""
        return tuple(self.start + self.width * n for n in range(1, self.count))


def grid(first: datetime, last: datetime, most: int = MAX_BUCKETS) -> Grid:
    """At most ``most`` buckets of a width that people count in, from ``first`` to ``last`` (both within)."""
    if last < first:
        first, last = last, first
    for width in _WIDTHS:
        start = first - (first - _EPOCH) % width
        count = (last - start) // width + 1
        if count <= most:
            return Grid(start, width, count)
    return Grid(first, (last - first) / most + _SECOND, most)


def grids(plan: Plan) -> dict[str, Grid]:
    """A grid for each topic of whose records times are known (``span_from``, ``span_to`` of the plan's partitions)."""
    times: defaultdict[str, list[datetime]] = defaultdict(list)
    for p in plan.partitions:
        times[p.topic] += [at for at in (p.span_from, p.span_to) if at is not None]
    return {topic: grid(min(of), max(of)) for topic, of in times.items() if of}


def counted_by_index(moving: Moving, found: Sequence[int | None]) -> tuple[int, ...]:
    """Offsets by bucket. ``found``: the first offset at or after each of ``Grid.inner``, ``None`` for no such record.

    With timestamps out of order the index finds *some* first record at or after a time: counts then move between
    neighbours, and their sum stays.
    """
    bounds = [moving.start]
    for offset in found:
        inside = moving.end if offset is None else min(max(offset, moving.start), moving.end)
        bounds.append(max(inside, bounds[-1]))
    bounds.append(moving.end)
    return tuple(bounds[n + 1] - bounds[n] for n in range(len(bounds) - 1))


def added(counts: Sequence[Sequence[int]], buckets: int) -> tuple[int, ...]:
    """The sum, bucket by bucket."""
    return tuple(sum(column) for column in zip(*counts, strict=True)) if counts else (0,) * buckets


# --- samples ----------------------------------------------------------------------------------------------------------


def sampled(plan: Plan) -> tuple[PartitionPlan, ...]:
    """The partitions that move furthest, ``SAMPLED_PARTITIONS`` of them; one without a commit moves as far as its log
    is long."""
    moved = [p for p in plan.partitions if p.moves and p.earliest < p.latest]
    moved.sort(key=lambda p: (-_distance(p), p.topic, p.partition))
    return tuple(moved[:SAMPLED_PARTITIONS])


def _distance(p: PartitionPlan) -> int:
    return p.latest - p.earliest if p.committed is None else abs(p.committed - p.target)


def nearest(samples: Sequence[Sample], targets: Offsets) -> tuple[Sample, ...]:
    """``SAMPLES_A_SIDE`` records on each side of each target, sorted."""
    sides: defaultdict[tuple[TopicPartition, bool], list[Sample]] = defaultdict(list)
    for sample in samples:
        sides[sample.topic_partition, sample.from_target].append(sample)
    kept = [
        sample
        for (partition, _), of in sides.items()
        for sample in sorted(of, key=lambda s: abs(s.offset - targets[partition]))[:SAMPLES_A_SIDE]
    ]
    return tuple(sorted(kept, key=lambda s: (s.topic, s.partition, s.offset)))


def content(
    length: int | None, digest: str | None, head: bytes | None, limit: int, whole: int | None = None
) -> Content | None:
    """``length`` is ``None`` for a null. ``head``: the first bytes where the text may be shown, else ``None``; of as
    many as ``whole`` where it is another spelling, such as JSON of what is encoded otherwise."""
    if length is None or digest is None:
        return None
    if head is None:
        return Content(length, digest)
    text, cut = visible_bytes(head, limit)
    return Content(length, digest, text, cut or len(head) < (length if whole is None else whole))


# --- as a whole -------------------------------------------------------------------------------------------------------


def by_topic(
    plan: Plan,
    read: Mapping[tuple[str, bool], Amount],
    histograms: Mapping[str, Histogram],
) -> tuple[tuple[TopicEvidence, ...], tuple[str, ...]]:
    """The topics, most first and ``MAX_TOPICS`` at most, and what there is to say of the others.

    ``read``: what was read, by topic and ``replayed``; absent: only the plan's counts are known.
    """

    def amount(topic: str, replayed: bool) -> Amount | None:
        offsets = all_amounts[topic].get(replayed)
        return None if offsets is None else read.get((topic, replayed), Amount(offsets))

    all_amounts = amounts(movings(plan))
    shown = list(all_amounts)[:MAX_TOPICS]
    topics = tuple(TopicEvidence(t, amount(t, True), amount(t, False), histograms.get(t)) for t in shown)
    if len(shown) == len(all_amounts):
        return topics, ()
    return topics, (f"Only {len(shown)} of {len(all_amounts):,} topics are shown: those in which the most moves",)
