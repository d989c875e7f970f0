"""Whether the target's log, its end above all, is what the source has at the same offsets.

A writer that dies may not have seen where its last batches came to lie; whoever goes on looks. Batches that are too far
on drag all that follow along, up to the next gap, before which each writer looks: so the last ones tell.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from tidegate.mirror.batches import Batch, read_batches
from tidegate.mirror.model import Tail
from tidegate.mirror.records import Record, ends_by_abort, read_records
from tidegate.mirror.source import (
    ENOUGH_BYTES,
    ENOUGH_RECORDS,
    SourceRead,
    hidden_ranges,
    visible_batches,
    visible_records,
)


@dataclass(frozen=True, slots=True)
class Compared:
    """``known``: up to where source and target agree; ``reason``: where not, and how."""

    known: int
    reason: str | None = None


def disagreement(read: SourceRead, tail: Tail, *, compacts: bool, adopted: int = 0) -> Compared:
    """Compare what ``read`` has with the target, from ``read.offset`` up to the target's end. ``adopted``: up to where
    the target was written by others, whose transactions may have committed.

    What one of them has nothing at all at, compaction has removed: maybe when the topic still was compacted, so it is
    no difference whatever ``compacts`` says. Where nothing was ever compacted, each offset has a record, or something
    that nobody sees."""
    hides = _hidden(tail, adopted)
    same = _same(read, tail, hides)
    known, of_source = visible_records(read, without=same)
    known = min(known, tail.end)
    known, of_target, hidden = _target_records(tail, range(read.offset, known), same, hides)
    within = range(max(read.offset, tail.start), known)
    source_lacks = [] if compacts else hidden_ranges(read)
    found = _difference(of_source, of_target, within, hidden, _InAny(source_lacks))
    return Compared(known, None if found is None else found[1])


@dataclass(frozen=True, slots=True)
class Sample:
    """``records``: how many were found to be the same; ``reason``: where two differ, and how; ``at``: the offset."""

    records: int
    reason: str | None = None
    at: int | None = field(default=None, compare=False)


def sample(source: SourceRead, copy: SourceRead, *, compacts: bool = False) -> Sample:
    """Compare what two clusters have from the same offset on, as far as both have answered; ``copy``: the target, as a
    reader of committed records sees it. What only one has is a difference where the other one has something that nobody
    sees, and otherwise may have been removed by compaction, now or when the topic still was compacted. ``compacts``:
    replicas do so each for itself, so that after a change of the leader a record may be back that was a gap when it was
    copied, and was filled: what only one has is no difference then. Raises ``Unreadable``."""
    same = _same_batches(source, visible_batches(copy))
    until_source, of_source = visible_records(source, without=same)
    until_copy, of_copy = visible_records(copy, without=same)
    within = range(max(source.offset, source.log_start, copy.log_start), min(until_source, until_copy))
    target_lacks, source_lacks = ([], []) if compacts else (hidden_ranges(copy), hidden_ranges(source))
    found = _difference(of_source, of_copy, within, _InAny(target_lacks), _InAny(source_lacks))
    if found is not None:
        at, reason = found
        return Sample(0, reason, at)
    whole = (b for b in visible_batches(source) if b.base_offset in same)
    equal = sum(b.count for b in whole if within.start <= b.base_offset and b.next_offset <= within.stop)
    return Sample(equal + sum(offset in within for offset in of_source.keys() & of_copy.keys()))


def _difference(
    of_source: Mapping[int, Record],
    of_target: Mapping[int, Record],
    within: range,
    target_lacks: Container[int],
    source_lacks: Container[int],
) -> tuple[int, str] | None:
    """The first offset, and how they differ there. ``target_lacks``, ``source_lacks``: the offsets where it is a
    difference that it has no record."""
    for offset in sorted(of_source.keys() | of_target.keys()):
        if offset not in within:
            continue
        ours, theirs = of_target.get(offset), of_source.get(offset)
        if theirs is not None and ours is None and offset in target_lacks:
            return offset, f"the source has a record at offset {offset}, the target none"
        if ours is not None and theirs is None and offset in source_lacks:
            return offset, f"the target has a record at offset {offset}, the source none"
        if ours is not None and theirs is not None and ours != theirs:
            return offset, f"the records at offset {offset} differ"
    return None


@dataclass(frozen=True, slots=True)
class _InAny:
    """In their order, none overlapping another."""

    ranges: Sequence[range]

    def __contains__(self, offset: object) -> bool:
        if not isinstance(offset, int):
            return False
        at = bisect_right(self.ranges, offset, key=lambda one: one.start) - 1
        return at >= 0 and offset in self.ranges[at]


def _same(read: SourceRead, tail: Tail, hides: Container[int]) -> frozenset[int]:
    return _same_batches(read, (batch for batch in read_batches(tail.data) if batch.base_offset not in hides))


def _same_batches(read: SourceRead, of_target: Iterable[Batch]) -> frozenset[int]:
    """Base offsets of batches that are in both as they were written: most of them, which need not be decompressed."""
    ours = {batch.base_offset: batch for batch in of_target}
    return frozenset(
        batch.base_offset
        for batch in visible_batches(read)
        if (copy := ours.get(batch.base_offset)) is not None and _content(copy) == _content(batch)
    )


def _content(batch: Batch) -> tuple[object, ...]:
    """All that tells what its records are. A batch that bears the broker's time is never the same as another."""
    own_times = not batch.has_log_append_time or object()
    return batch.codec, batch.count, batch.span, batch.base_timestamp, own_times, batch.records


def fills_a_gap(batch: Batch) -> bool:
    """Markers, and what a transaction aborts: the only records of the target that are in one."""
    return batch.is_control or batch.is_transactional


def _hidden(tail: Tail, adopted: int) -> frozenset[int]:
    """Base offsets of batches that readers of committed records do not see. In what was adopted a transaction's end
    tells whether they do."""
    hidden: set[int] = set()
    commits: set[int] = set()
    for batch in reversed(list(read_batches(tail.data))):
        producer_id = batch.stamp.producer_id
        if batch.is_control and batch.next_offset <= adopted:
            (commits.discard if ends_by_abort(batch) else commits.add)(producer_id)
        committed = batch.next_offset <= adopted and not batch.is_control and producer_id in commits
        if fills_a_gap(batch) and not committed:
            hidden.add(batch.base_offset)
    return frozenset(hidden)


def _target_records(
    tail: Tail, within: range, without: Container[int], hides: Container[int]
) -> tuple[int, dict[int, Record], set[int]]:
    """Up to where they are read, records by offset, and the offsets that nobody sees anything at."""
    records: dict[int, Record] = {}
    hidden: set[int] = set()
    size = 0
    for batch in read_batches(tail.data):
        if batch.next_offset <= within.start:
            continue
        if batch.base_offset >= within.stop:
            break
        if len(records) >= ENOUGH_RECORDS or size >= ENOUGH_BYTES:
            return batch.base_offset, records, hidden
        if batch.base_offset in hides:
            hidden.update(range(batch.base_offset, batch.next_offset))
        elif batch.count and batch.base_offset not in without:
            found = read_records(batch)
            records |= {record.offset: record for record in found}
            size += sum(len(record.content) for record in found)
    return within.stop, records, hidden
