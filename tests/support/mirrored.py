"""Two clusters of which one was copied to the other, as lists: what happened is known, so every answer can be checked.

``World`` makes the logs; ``SideReader`` reads one of them as a ``ClusterReader`` would; ``compare`` is what the Spark
job finds out, said record by record.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from tidegate.find.translation import (
    Contribution,
    Destination,
    Found,
    Place,
    Proof,
    TopicPair,
    counted,
    identity,
    is_crossed,
    place,
    proofs,
)
from tidegate.kafka.model import Group, GroupState, GroupType, LogBounds, Offsets, Topic, TopicPartition

FIRST = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)
"""The time of the first records."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A record. ``origin``: partition and offset over there that it was copied from; ``None``: written here."""

    offset: int
    at: datetime
    key: str | None
    value: str | None
    origin: tuple[int, int] | None = None


@dataclass(slots=True)
class Log:
    entries: list[Entry] = field(default_factory=list)
    earliest: int = 0
    end: int = 0

    def append(self, at: datetime, key: str | None, value: str | None, origin: tuple[int, int] | None = None) -> int:
        self.entries.append(Entry(self.end, at, key, value, origin))
        self.end += 1
        return self.end - 1

    def trim(self, earliest: int) -> None:
        self.earliest = max(self.earliest, min(earliest, self.end))
        self.entries = [e for e in self.entries if e.offset >= self.earliest]

    def compact(self, below: int) -> None:
        """As a log cleaner: of each key only the last record, among those below an offset."""
        last = {e.key: e.offset for e in self.entries if e.offset < below}
        self.entries = [e for e in self.entries if e.offset >= below or last[e.key] == e.offset]


@dataclass(frozen=True, slots=True)
class Shape:
    """What a world is like. ``disorder_s``: how far times are out of order; ``strays``: of how many records, 1 being
    all, they are a day off. ``keys``: how many; 0: none has a key. ``repeats``: values repeat. ``local``: records are
    written here beside the mirror's.
    """

    there: int = 1
    here: int = 1
    records: int = 40
    keys: int = 5
    repeats: bool = False
    disorder_s: float = 0
    strays: float = 0
    transactions: bool = False
    compact_there: bool = False
    compact_here: bool = False
    trim_there: bool = False
    trim_here: bool = False
    restarts: int = 0
    local: int = 0
    behind: bool = False
    caught_up: bool = False


@dataclass(slots=True)
class World:
    there: list[Log]
    here: list[Log]
    committed: dict[int, int]
    copied: list[int]
    compacted_there: bool
    compacted_here: bool

    @classmethod
    def make(cls, shape: Shape, seed: int) -> World:
        rng = random.Random(seed)
        there, here = [Log() for _ in range(shape.there)], [Log() for _ in range(shape.here)]
        for number, log in enumerate(there):
            at = FIRST
            for n in range(rng.randint(shape.records // 2, shape.records)):
                at += timedelta(seconds=rng.choice((0, 1, 1, 5, 60)))
                shifted = at + timedelta(seconds=rng.uniform(-1, 1) * shape.disorder_s)
                if shape.strays and rng.random() < shape.strays:
                    shifted += timedelta(days=rng.choice((-1, 1)))
                stamp = shifted.replace(microsecond=shifted.microsecond // 1000 * 1000)
                key = f"k{number}-{rng.randrange(shape.keys)}" if shape.keys else None
                log.append(stamp, key, f"v{rng.randrange(3)}" if shape.repeats else f"v{number}-{n}")
                if shape.transactions and rng.random() < 0.2:
                    log.end += 1
        position = [0] * shape.there
        stop = [log.end if not shape.behind else rng.randint(0, log.end) for log in there]
        restarts, local = shape.restarts * shape.there, shape.local
        while any(position[i] < stop[i] for i in range(shape.there)):
            i = rng.choice([i for i in range(shape.there) if position[i] < stop[i]])
            upto = min(stop[i], position[i] + rng.randint(1, 8))
            for e in there[i].entries:
                if position[i] <= e.offset < upto:
                    to = i if shape.there == shape.here else _partition(e.key, shape.here, rng)
                    here[to].append(e.at, e.key, e.value, (i, e.offset))
            position[i] = upto
            if restarts and rng.random() < 0.3:
                restarts -= 1
                position[i] = rng.randint(0, position[i])
            if local and rng.random() < 0.3:
                local -= 1
                log = rng.choice(here)
                at = log.entries[-1].at if log.entries else FIRST
                log.append(at, f"local{local}", f"local{local}")
            if shape.compact_there and rng.random() < 0.2:
                there[i].compact(rng.randint(0, position[i]))
            if shape.compact_here and rng.random() < 0.1:
                log = rng.choice(here)
                log.compact(rng.randint(0, log.end))
        committed = {}
        for i, log in enumerate(there):
            committed[i] = log.end if shape.caught_up else rng.randint(0, log.end)
            if shape.compact_there:
                log.compact(rng.randint(0, log.end))
            if shape.trim_there:
                log.trim(rng.randint(0, committed[i] if rng.random() < 0.7 else log.end))
        for log in here:
            if shape.compact_here:
                log.compact(rng.randint(0, log.end))
            if shape.trim_here:
                log.trim(rng.randint(0, log.end))
        return cls(there, here, committed, stop, shape.compact_there, shape.compact_here)

    def is_done(self, e: Entry) -> bool:
        return e.origin is not None and e.origin[1] < self.committed[e.origin[0]]

    def skipped(self, places: Collection[Place]) -> list[Entry]:
        """What the group would never read. Records written here count where the mirror's are around them."""
        found = []
        for p in places:
            log = self.here[p.partition.partition]
            found += [e for e in log.entries if e.offset < p.offset and e.origin is not None and not self.is_done(e)]
        return found

    def doubled(self, pair: TopicPair, places: Collection[Place]) -> int:
        """What the group would read again of what is here, to the end of the window, and of what is still to come, from
        the beginning of the window over there."""
        stops = {d.partition: d.window.stop for d in pair.destinations}
        again = sum(
            self.is_done(e) and p.offset <= e.offset < stops[p.partition.partition]
            for p in places
            for e in self.here[p.partition.partition].entries
        )
        to_come = sum(
            max(self.copied[o.partition], o.window.start) <= e.offset < self.committed[o.partition]
            for o in pair.origins
            for e in self.there[o.partition].entries
        )
        return again + to_come


def _partition(key: str | None, partitions: int, rng: random.Random) -> int:
    return rng.randrange(partitions) if key is None else sum(key.encode()) % partitions


# --- reading ----------------------------------------------------------------------------------------------------------


class SideReader:
    """The parts of ``tidegate.find.survey.Side`` that a survey asks for."""

    def __init__(self, topic: str, logs: list[Log], committed: Mapping[int, int], *, compacted: bool = False) -> None:
        self._topic = topic
        self._logs = logs
        self._committed = committed
        self._compacted = compacted

    def topics(self) -> Mapping[str, Topic]:
        return {self._topic: Topic(self._topic, "id", len(self._logs))}

    def groups(self, group_ids: Collection[str]) -> Mapping[str, Group]:
        return {g: Group(g, GroupState.EMPTY, GroupType.CLASSIC) for g in group_ids}

    def committed(self, *_: Any, **__: Any) -> Offsets:
        return {TopicPartition(self._topic, p): offset for p, offset in self._committed.items()}

    def compacted(self, topics: Collection[str]) -> Mapping[str, bool]:
        return dict.fromkeys(topics, self._compacted)

    def log_bounds(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, LogBounds]:
        return {p: LogBounds(self._logs[p.partition].earliest, self._logs[p.partition].end) for p in partitions}

    def offsets_at(self, times: Mapping[TopicPartition, datetime]) -> Mapping[TopicPartition, int | None]:
        return {
            p: next((e.offset for e in self._logs[p.partition].entries if e.at >= at), None) for p, at in times.items()
        }

    def record_times(self, positions: Offsets) -> Mapping[TopicPartition, datetime]:
        found = {}
        for p, offset in positions.items():
            at = next((e.at for e in self._logs[p.partition].entries if e.offset >= offset), None)
            if at is not None:
                found[p] = at
        return found


# --- comparing --------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Same:
    """Records over there that are the same by ``match``."""

    done: int = 0
    open: int = 0
    partitions: set[int] = field(default_factory=set)
    anchors: bool = False
    first: int = -1
    young: bool = True


def what(e: Entry, match: Collection[str]) -> tuple[object, ...]:
    return tuple({"timestamp": e.at, "key": e.key, "value": e.value}[name] for name in match)


def compare(world: World, pair: TopicPair, match: Collection[str]) -> tuple[list[Place], bool]:
    """The places, and whether records have changed partitions: what the Spark job does, one record at a time."""
    match = identity(pair, match)
    same: defaultdict[object, _Same] = defaultdict(_Same)
    for origin in pair.origins:
        window = origin.window
        rows = [e for e in world.there[origin.partition].entries if window.start <= e.offset < window.stop]
        next_open = next((e.offset for e in rows if e.offset >= origin.committed), None)
        whole = origin.committed >= window.bounds.earliest and not pair.compacted_there
        for e in rows:
            s = same[what(e, match)]
            s.partitions.add(origin.partition)
            s.first = e.offset
            s.young &= e.at >= window.since
            if e.offset < origin.committed:
                s.done += 1
            else:
                s.open += 1
                s.anchors |= e.offset == next_open and (whole or e.offset == origin.committed)
    rows_here = {
        d.partition: [e for e in world.here[d.partition].entries if d.window.start <= e.offset < d.window.stop]
        for d in pair.destinations
    }
    contributions = list(_contributions(rows_here, same, match))
    proven = proofs(pair, contributions)
    matched = {what(e, match) for rows in rows_here.values() for e in rows}
    furthest: defaultdict[int, int] = defaultdict(lambda: -1)
    for h, s in same.items():
        if h in matched and (s.done, s.open) == (1, 0):
            furthest[min(s.partitions)] = max(furthest[min(s.partitions)], s.first)
    to_come = {
        o.partition: sum(
            max(o.window.start, furthest[o.partition] + 1) <= e.offset < min(o.window.stop, o.committed)
            for e in world.there[o.partition].entries
        )
        for o in pair.origins
    }
    places = []
    for d in pair.destinations:
        proof, rows = proven[d.partition], rows_here[d.partition]
        states = [(e, same.get(what(e, match))) for e in rows]
        first_open = next(
            (
                e.offset
                for e, s in states
                if s is not None and (s.open or (not pair.by_key and s.partitions != {d.partition}))
            ),
            None,
        )
        first_unknown = next((e.offset for e, s in states if s is None and not _passed_over(e, pair, d, proof)), None)
        found = Found(first_open, first_unknown, _same_offsets(world, pair, d, states))
        at = place(pair, d, proof, found)
        seen = sum(
            e.offset >= at.offset and (bool(s.done) if s is not None else d.reach is None or e.at < d.reach)
            for e, s in states
        )
        places.append(counted(pair, at, d, seen, to_come))
    return places, is_crossed(pair, contributions)


def _passed_over(e: Entry, pair: TopicPair, d: Destination, proof: Proof) -> bool:
    if d.window.until is not None and e.at >= d.window.until:
        return False
    return e.offset < proof.first or (e.offset < proof.last and (pair.compacted_there or e.at < d.window.since))


def _contributions(
    rows_here: Mapping[int, list[Entry]], same: Mapping[object, _Same], match: Collection[str]
) -> Collection[Contribution]:
    firsts: dict[tuple[int, object], int] = {}
    for q, rows in rows_here.items():
        for e in rows:
            firsts.setdefault((q, what(e, match)), e.offset)
    ends: defaultdict[tuple[int, int], list[int]] = defaultdict(list)
    for (q, h), offset in firsts.items():
        s = same.get(h)
        if s is None or len(s.partitions) != 1:
            continue
        [i] = s.partitions
        proves = s.young and (not s.open or (not s.done and s.anchors))
        ends[q, i] += [offset] if proves else []
    return [Contribution(q, i, min(at, default=None), max(at, default=None)) for (q, i), at in ends.items()]


def _same_offsets(world: World, pair: TopicPair, d: Destination, states: list[tuple[Entry, _Same | None]]) -> bool:
    origin = next((o for o in pair.origins if o.partition == d.partition), None)
    if pair.by_key or origin is None:
        return False
    start, stop = d.window.start, min(d.window.stop, origin.window.stop)
    there = {e.offset for e in world.there[origin.partition].entries if start <= e.offset < stop}
    here = [(e, s) for e, s in states if start <= e.offset < stop]
    alike = [
        e for e, s in here if s is not None and (s.done + s.open, s.first, s.partitions) == (1, e.offset, {d.partition})
    ]
    return len(here) == len(there) == len(alike) > 0
