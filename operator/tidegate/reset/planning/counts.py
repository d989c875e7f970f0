"""Evidence that broker metadata alone can give: how much moves, by time. Looks, and changes nothing."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Final

from tidegate.clock import Clock
from tidegate.kafka.errors import KafkaFailure
from tidegate.kafka.model import TopicPartition
from tidegate.kafka.ports import ClusterReader
from tidegate.reset.evidence import (
    LOOKUPS,
    MAX_BUCKETS,
    Evidence,
    Grid,
    Histogram,
    HistogramSource,
    added,
    by_topic,
    counted_by_index,
    grids,
    movings,
)
from tidegate.reset.model.plan import Plan
from tidegate.reset.model.request import EvidenceLevel, RunRequest

RECORDS_NOT_READ: Final = (
    "Records were not read, because the operator carries this run out itself: use engine Spark to have bytes and keys "
    "counted and samples shown"
)


def gather_counts(request: RunRequest, plan: Plan, kafka: ClusterReader, clock: Clock) -> Evidence:
    """Histograms by the brokers' time index, a few requests a bucket. What goes wrong is said in the evidence."""
    began = clock.monotonic()
    until = began + request.evidence.timeout.total_seconds()
    notes = (RECORDS_NOT_READ,) if request.evidence.level is EvidenceLevel.RECORDS else ()
    try:
        histograms, said = histograms_by_index(plan, kafka, clock, until)
    except KafkaFailure as failure:
        histograms, said = {}, (failed(failure),)
    topics, others = by_topic(plan, {}, histograms)
    return Evidence(clock.now(), topics, took_s=round(clock.monotonic() - began, 3), notes=(*notes, *said, *others))


def failed(failure: Exception | str) -> str:
    """The note of what could not be gathered."""
    return f"Some of the evidence could not be gathered, which does not affect the plan: {failure}"


def histograms_by_index(
    plan: Plan, kafka: ClusterReader, clock: Clock, until_s: float
) -> tuple[dict[str, Histogram], tuple[str, ...]]:
    """A histogram by topic, and what there is to say. ``until_s``: by the monotonic clock. Raises ``KafkaFailure``."""
    grid_of = grids(plan)
    timed = [m for m in movings(plan) if m.partition.topic in grid_of]
    most = max((grid.count for grid in grid_of.values()), default=1)
    looked_at = timed[: max(1, LOOKUPS // most)]
    found: defaultdict[TopicPartition, list[int | None]] = defaultdict(list)
    for n in range(MAX_BUCKETS):
        times: dict[TopicPartition, datetime] = {}
        for m in looked_at:
            inner = grid_of[m.partition.topic].inner
            if n < len(inner):
                times[m.partition] = inner[n]
        if not times:
            break
        if clock.monotonic() > until_s:
            return {}, ("No histograms: the brokers' time index took longer than the evidence's timeout",)
        for partition, offset in kafka.offsets_at(times).items():
            found[partition].append(offset)
    counts: defaultdict[tuple[str, bool], list[Sequence[int]]] = defaultdict(list)
    for m in looked_at:
        counts[m.partition.topic, m.replayed].append(counted_by_index(m, found[m.partition]))
    notes = []
    if len(looked_at) < len(timed):
        notes.append(f"Histograms count only the {len(looked_at):,} of {len(timed):,} partitions that move furthest")
    return histograms_of(grid_of, counts, HistogramSource.INDEX), tuple(notes)


def histograms_of(
    grid_of: Mapping[str, Grid],
    counts: Mapping[tuple[str, bool], Sequence[Sequence[int]]],
    source: HistogramSource,
) -> dict[str, Histogram]:
    """By topic. ``counts``: columns by topic and ``replayed``, any number of them, which are added up."""

    def total(topic: str, replayed: bool) -> tuple[int, ...]:
        return added(counts.get((topic, replayed), ()), grid_of[topic].count)

    return {
        topic: Histogram(grid.start, grid.width, total(topic, True), total(topic, False), source)
        for topic, grid in grid_of.items()
        if counts.keys() & {(topic, True), (topic, False)}
    }
