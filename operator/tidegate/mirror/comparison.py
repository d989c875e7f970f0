"""Whether the end of the target's log is what the source has at the same offsets.

A writer that dies may not have seen where its last batches came to lie; whoever goes on looks. Batches that are too far
on drag all that follow along, up to the next gap, before which each writer looks: so the last ones tell.
"""

from __future__ import annotations

from dataclasses import dataclass

from tidegate.mirror.batches import Batch, read_batches
from tidegate.mirror.model import Tail
from tidegate.mirror.records import Record, read_records
from tidegate.mirror.source import SourceRead, visible_records


@dataclass(frozen=True, slots=True)
class Compared:
    """``known``: up to where source and target agree; ``reason``: where not, and how."""

    known: int
    reason: str | None = None


def disagreement(read: SourceRead, tail: Tail, *, compacts: bool) -> Compared:
    """Compare what ``read`` has with the target, from ``read.offset`` up to the target's end."""
    known, of_source = visible_records(read)
    known = min(known, tail.end)
    of_target, hidden = _target_records(tail)
    for offset in sorted(of_source.keys() | of_target.keys()):
        if not max(read.offset, tail.start) <= offset < known:
            continue
        ours, theirs = of_target.get(offset), of_source.get(offset)
        if theirs is not None and ours is None and (offset in hidden or not compacts):
            return Compared(known, f"the source has a record at offset {offset}, the target none")
        if ours is not None and theirs is None and not compacts:
            return Compared(known, f"the target has a record at offset {offset}, the source none")
        if ours is not None and theirs is not None and ours != theirs:
            return Compared(known, f"the records at offset {offset} differ")
    return Compared(known)


def fills_a_gap(batch: Batch) -> bool:
    """Markers, and what a transaction aborts: the only records of the target that are in one."""
    return batch.is_control or batch.is_transactional


def _target_records(tail: Tail) -> tuple[dict[int, Record], set[int]]:
    """By offset, and the offsets that gaps were filled at."""
    records: dict[int, Record] = {}
    hidden: set[int] = set()
    for batch in read_batches(tail.data):
        if fills_a_gap(batch):
            hidden.update(range(batch.base_offset, batch.next_offset))
        elif batch.count:
            records |= {record.offset: record for record in read_records(batch)}
    return records, hidden
