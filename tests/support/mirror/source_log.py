"""A source's log that grows at random: transactions that are committed, aborted and interleaved, compaction, a start
that moves.
"""

from __future__ import annotations

import bisect
import random
from collections.abc import Iterator
from dataclasses import dataclass, replace

from support.mirror.written import LOG_APPEND_TIME, Written, batch, marker
from tidegate.mirror.source import Aborted, SourceRead

ALWAYS_KEPT = 2
"""Batches at the end, which a broker does not compact: they are in the active segment."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A batch: ``records`` by offset, those that compaction left."""

    base: int
    span: int
    records: dict[int, Written]
    codec: int = 0
    producer: tuple[int, int, int] = (-1, -1, -1)
    transactional: bool = False
    commits: bool | None = None
    """Of a marker."""
    extra: int = 0

    @property
    def until(self) -> int:
        return self.base + self.span

    def data(self) -> bytes:
        if self.commits is not None:
            return marker(self.base, *self.producer[:2], commit=self.commits)
        relative = {offset - self.base: record for offset, record in self.records.items()}
        return batch(
            self.base,
            relative,
            self.span,
            codec=self.codec,
            producer=self.producer,
            transactional=self.transactional,
            extra=self.extra,
        )


class SourceLog:
    """``compacts``: records vanish one by one; ``trims``: the log's start moves."""

    def __init__(self, rnd: random.Random, *, compacts: bool, trims: bool) -> None:
        self._random = rnd
        self._compacts = compacts
        self._trims = trims
        self.entries: list[Entry] = []
        self.start = 0
        self.end = 0
        self._open: dict[int, int] = {}
        self._aborted: list[tuple[Aborted, int]] = []
        """With the offset of the marker."""
        self._value = 0

    @property
    def last_stable(self) -> int:
        return min([self.end, *self._open.values()])

    def grow(self) -> None:
        """By one step."""
        rnd = self._random
        step = rnd.random()
        producer = rnd.randrange(500, 503)
        if step < 0.35:
            self._write(rnd.randint(1, 6))
        elif step < 0.6:
            self._open.setdefault(producer, self.end)
            self._write(rnd.randint(1, 6), producer)
        elif step < 0.8:
            if producer in self._open:
                self._end_transaction(producer, commits=rnd.random() < 0.5)
        elif step < 0.9 and self._compacts:
            self._compact()
        elif step < 0.93 and self._trims:
            self.start = rnd.randint(self.start, self.last_stable)

    def settle(self) -> None:
        """End all transactions, and go on a bit."""
        for producer in list(self._open):
            self._end_transaction(producer, commits=self._random.random() < 0.5)
        self._write(1)

    def _write(self, count: int, producer: int | None = None) -> None:
        rnd = self._random
        records = {}
        for offset in range(self.end, self.end + count):
            self._value += 1
            value = None if rnd.random() < 0.1 else b"v%d" % self._value
            headers = (("h", b"x"), ("n", None)) if rnd.random() < 0.2 else ()
            records[offset] = Written(rnd.randrange(10**6, 2 * 10**6), b"k%d" % rnd.randrange(5), value, headers)
        extra = 0
        if rnd.random() < 0.1:
            extra, latest = LOG_APPEND_TIME, max(record.timestamp for record in records.values())
            records = {offset: replace(record, timestamp=latest) for offset, record in records.items()}
        stamp = (-1, -1, -1) if producer is None else (producer, 0, self.end)
        self._add(
            Entry(self.end, count, records, rnd.randrange(5), stamp, transactional=producer is not None, extra=extra)
        )

    def _end_transaction(self, producer: int, *, commits: bool) -> None:
        first = self._open.pop(producer)
        if not commits:
            self._aborted.append((Aborted(producer, first), self.end))
        self._add(Entry(self.end, 1, {}, producer=(producer, 0, -1), commits=commits))

    def _add(self, entry: Entry) -> None:
        self.entries.append(entry)
        self.end = entry.until

    def _compact(self) -> None:
        """Only what is stable is compacted."""
        rnd = self._random
        for at, entry in enumerate(self.entries[:-ALWAYS_KEPT]):
            if entry.until > self.last_stable or entry.commits is not None or rnd.random() < 0.5:
                continue
            kept = {offset: record for offset, record in entry.records.items() if rnd.random() < 0.7}
            self.entries[at] = replace(entry, records=kept)
        if rnd.random() < 0.3:
            gone = {rnd.randrange(len(self.entries)) for _ in range(3)} if self.entries else set()
            self.entries = [
                entry
                for at, entry in enumerate(self.entries)
                if not (at in gone and at < len(self.entries) - ALWAYS_KEPT and not entry.records)
                or entry.commits is not None
            ]

    def visible(self, since: int = 0) -> dict[int, Written]:
        """What readers of committed records see from the start on, or from ``since``."""
        begin = max(self.start, since)
        return {
            offset: record
            for entry in self._stable_entries(begin)
            for offset, record in entry.records.items()
            if offset >= begin
        }

    def _stable_entries(self, begin: int) -> Iterator[Entry]:
        for entry in self.entries[self._first(begin) :]:
            if entry.base >= self.last_stable:
                return
            producer = entry.producer[0]
            if entry.transactional and any(
                aborted.producer_id == producer and aborted.first_offset <= entry.base < ends
                for aborted, ends in self._aborted
            ):
                continue
            yield entry

    def _first(self, offset: int) -> int:
        return bisect.bisect_right(self.entries, offset, key=lambda entry: entry.until)

    def read(self, offset: int, most: int) -> SourceRead:
        """As Fetch answers to a reader of committed records, with at most so many batches."""
        if not self.start <= offset <= self.end:
            return SourceRead(offset, self.start, self.last_stable)
        found = [entry for entry in self.entries[self._first(offset) :] if entry.base < self.last_stable][:most]
        until = found[-1].until if found else offset
        aborted = tuple(one for one, ends in self._aborted if ends >= offset and one.first_offset < until)
        data = b"".join(entry.data() for entry in found)
        return SourceRead(offset, self.start, self.last_stable, aborted, data)
