"""What the source's log asks for: batches that are copied, and gaps, where no reader of committed records sees any."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from tidegate.mirror.batches import Batch, read_batches
from tidegate.mirror.records import Record, ends_by_abort, read_records, rebuilt

ENOUGH_RECORDS: Final = 50_000
ENOUGH_BYTES: Final = 16 << 20
"""Of records that are compared at once: what a log has in few bytes may be large."""


_SURELY_TAKEN: Final = 64 * 1024
"""Bytes of a batch that is not divided for its size alone."""


@dataclass(frozen=True, slots=True)
class Aborted:
    """An aborted transaction, as Fetch tells it to readers of committed records."""

    producer_id: int
    first_offset: int


@dataclass(frozen=True, slots=True)
class SourceRead:
    """An answer of the source: what is there from ``offset`` on, up to the last stable offset."""

    offset: int
    log_start: int
    last_stable: int
    aborted: tuple[Aborted, ...] = ()
    data: bytes = b""


@dataclass(frozen=True, slots=True)
class Copy:
    """``count`` records from offset ``base`` on; ``data``: a batch whose stamp is not ours yet."""

    base: int
    count: int
    data: bytes

    @property
    def until(self) -> int:
        return self.base + self.count


@dataclass(frozen=True, slots=True)
class Gap:
    """Offsets ``base`` to ``until``, the last excluded, without a visible record."""

    base: int
    until: int


Piece = Copy | Gap


def pieces(read: SourceRead) -> tuple[Piece, ...]:
    """What the target needs from ``read.offset`` on, without a hole between. Raises ``Unreadable``."""
    found: list[Piece] = []
    at = read.offset
    for batch, visible in _visible(read):
        parts = _copies(batch, read.offset) if visible else ()
        for part in parts:
            if part.base > at:
                found.append(Gap(at, part.base))
            found.append(part)
            at = part.until
        if batch.next_offset > at:
            # The last one may grow: what follows the batch can be invisible as well.
            found.append(Gap(at, batch.next_offset))
            at = batch.next_offset
    return tuple(_joined(found))


def visible_batches(read: SourceRead) -> Iterator[Batch]:
    """Those that readers of committed records see."""
    return (batch for batch, visible in _visible(read) if visible)


def hidden_ranges(read: SourceRead) -> list[range]:
    """The offsets of batches that readers of committed records are given nothing of. What compaction has removed is in
    none of them."""
    return [
        range(batch.base_offset, batch.next_offset) for batch, visible in _visible(read) if batch.count and not visible
    ]


def visible_records(read: SourceRead, without: Container[int] = ()) -> tuple[int, dict[int, Record]]:
    """The records that readers of committed records see, by offset; and up to where that is known: no further than the
    batch with which they have become many. ``without``: the base offsets of batches whose records are left out."""
    records: dict[int, Record] = {}
    known, size = read.offset, 0
    for batch, visible in _visible(read):
        if visible and batch.base_offset not in without:
            found = {record.offset: record for record in read_records(batch) if record.offset >= read.offset}
            records |= found
            size += sum(len(record.content) for record in found.values())
        known = max(known, batch.next_offset)
        if len(records) >= ENOUGH_RECORDS or size >= ENOUGH_BYTES:
            break
    return known, records


def _visible(read: SourceRead) -> Iterator[tuple[Batch, bool]]:
    """Each batch below the last stable offset, and whether readers of committed records see it (``FetchCollector``)."""
    to_come = sorted(read.aborted, key=lambda transaction: transaction.first_offset, reverse=True)
    aborting: set[int] = set()
    for batch in read_batches(read.data):
        if batch.base_offset >= read.last_stable:
            return
        while to_come and to_come[-1].first_offset < batch.next_offset:
            aborting.add(to_come.pop().producer_id)
        producer_id = batch.stamp.producer_id
        if batch.is_control and ends_by_abort(batch):
            aborting.discard(producer_id)
        hidden = batch.is_control or (batch.is_transactional and producer_id in aborting)
        if batch.next_offset > read.offset:
            yield batch, not hidden and batch.count > 0


def _copies(batch: Batch, start: int) -> Iterator[Copy]:
    if batch.count == batch.span and batch.base_offset >= start and not batch.has_log_append_time:
        yield Copy(batch.base_offset, batch.count, batch.data)
        return
    most = max(len(batch.data), _SURELY_TAKEN)
    run: list[Record] = []
    for record in read_records(batch):
        if record.offset < start:
            continue
        if run and record.offset != run[-1].offset + 1:
            yield from _rebuilt(run, batch.codec, most)
            run = []
        run.append(record)
    if run:
        yield from _rebuilt(run, batch.codec, most)


def _rebuilt(run: list[Record], codec: int, most: int) -> Iterator[Copy]:
    """In batches of ``most`` bytes, where their records allow that: its producer may have compressed one better than is
    done here, and brokers refuse what is larger than ``max.message.bytes``."""
    data = rebuilt(run, codec)
    if len(data) <= most or len(run) == 1:
        yield Copy(run[0].offset, len(run), data)
        return
    half = len(run) // 2
    yield from _rebuilt(run[:half], codec, most)
    yield from _rebuilt(run[half:], codec, most)


def _joined(found: Iterable[Piece]) -> Iterator[Piece]:
    """One gap where several follow each other."""
    open_gap: Gap | None = None
    for piece in found:
        match piece:
            case Gap(base, until):
                open_gap = Gap(base if open_gap is None else open_gap.base, until)
            case Copy():
                if open_gap is not None:
                    yield open_gap
                    open_gap = None
                yield piece
    if open_gap is not None:
        yield open_gap
