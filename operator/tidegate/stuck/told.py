"""The records that were told to be stuck, until the group gets past them; and what of it outlives the process. Pure.

What is stored may have been edited: whatever is not of this form is ignored, and begins anew.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Final

from tidegate.control.claims import Claimed
from tidegate.control.records import ClaimKey
from tidegate.kafka.model import Offsets, RecordHead, TopicPartition
from tidegate.resources.stuck_records import SKIP_PREFIX
from tidegate.stuck.courses import LEAST_MOVES, Courses, Pace
from tidegate.stuck.judging import Judged, Readable, Verdict

_MOST: Final = 1_000
"""Stuck records of one group that are remembered."""
_TOLD_S: Final = 600.0
"""How long it is told what has changed. An Event is recorded once, and the API server may be away."""
_LEASES: Final = 2
"""After so many of its leases without a renewal a claim is nobody's: one may come late, and be read late."""
_LATEST_MS: Final = 253_402_300_799_000
_LONGEST_S: Final = 1e7
_LARGEST: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Stuck:
    """A partition that stands at ``committed`` since ``since_ms``, epoch milliseconds. ``head``: the next record.

    ``reset``: the OffsetReset that would skip it, once it is decided on; ``made``: whether it was created;
    ``declined``: whether somebody has deleted it since.
    """

    committed: int
    head: RecordHead
    since_ms: int
    verdict: Verdict
    among: tuple[TopicPartition, ...] = ()
    reset: str = ""
    made: bool = False
    declined: bool = False

    def without_reset(self) -> Stuck:
        """None is offered: another one may be."""
        return replace(self, reset="", made=False, declined=False)


@dataclass(slots=True)
class Known:
    """What is known of one group. ``ids``: of its topics. ``readable``: next records that were looked at.
    ``withdrawn``: OffsetResets that are to be deleted, since the group got past what they would skip. ``changes``: what
    came to be known lately, and when (monotonic). ``unreadable``: topics whose records may not be read, why, and since
    when that is known. ``offers_s``: when it was looked last whether the resets that were offered are there.
    ``claims_s``: the newest records of claims on the group, and when each was first seen (monotonic)."""

    courses: Courses = field(default_factory=Courses)
    readable: dict[TopicPartition, Readable] = field(default_factory=dict)
    stuck: dict[TopicPartition, Stuck] = field(default_factory=dict)
    ids: dict[str, str] = field(default_factory=dict)
    withdrawn: frozenset[str] = frozenset()
    changes: tuple[tuple[float, Changes], ...] = ()
    unreadable: dict[str, tuple[str, float]] = field(default_factory=dict)
    offers_s: float | None = None
    claims_s: dict[tuple[ClaimKey, int], float] = field(default_factory=dict)

    def begin_anew(self) -> None:
        """Nothing is judged by what was seen before."""
        self.courses.begin_anew()
        self.readable = {}

    def is_claimed(self, queue: Collection[Claimed], now_s: float) -> bool:
        """Whether a run has the group, or waits for it. ``queue``: the claims in force, by the time of records: where
        no other record follows one, as of a command that was killed, that time does not pass."""
        self.claims_s = {(c.key, c.at_ms): self.claims_s.get((c.key, c.at_ms), now_s) for c in queue}
        return any(now_s - self.claims_s[c.key, c.at_ms] <= _LEASES * c.claim.lease_ms / 1000 for c in queue)

    @property
    def everybody_stands(self) -> bool:
        """Whether each of several members is stuck at a record of its own: what they share may be what fails."""
        now = self.courses.now
        owners = {its.owner for its in now.values()}
        return len(owners) > 1 and owners == {now[partition].owner for partition in self.stuck if partition in now}

    def longest_first(self) -> list[tuple[TopicPartition, Stuck]]:
        """All that is stuck, what has been for longest first."""
        return sorted(self.stuck.items(), key=lambda item: (item[1].since_ms, item[0]))

    def topics_are(self, ids: Mapping[str, str]) -> None:
        """A topic that was created again has other records."""
        others = {topic for topic, known in self.ids.items() if topic in ids and ids[topic] != known}
        partitions = [p for p in (*self.courses.paces, *self.stuck) if p.topic in others]
        self.courses.forget(partitions)
        for partition in partitions:
            self.end(partition)
        # While nobody reads a topic it isn't asked for, and may be created again.
        kept = {partition.topic for partition in (*self.courses.paces, *self.stuck)}
        self.ids = {**{topic: known for topic, known in self.ids.items() if topic in kept}, **ids}

    def keep(self, committed: Offsets) -> None:
        """Of what the group has no offset any more nothing, such as of topics that were deleted: how fast these were
        read says nothing of the others, and there may be new ones every day."""
        self.courses.forget([p for p in self.courses.paces if p not in committed])
        self.readable = {p: it for p, it in self.readable.items() if p in committed}

    def end(self, partition: TopicPartition) -> Stuck | None:
        """It is stuck no more; a reset that was offered is to be withdrawn."""
        ended = self.stuck.pop(partition, None)
        if ended is not None and ended.reset:
            self.withdrawn |= {ended.reset}
        return ended

    def withdraw_all(self) -> None:
        """No reset is wanted any more."""
        for partition, it in self.stuck.items():
            if it.reset:
                self.withdrawn |= {it.reset}
                self.stuck[partition] = it.without_reset()

    def settle(self, committed: Offsets, judged: Mapping[TopicPartition, Judged], now_s: float, now_ms: int) -> Changes:
        """What is new by a look. ``now_s``: monotonic, ``now_ms``: the same time as epoch milliseconds."""
        passed = {}
        for partition, stuck in tuple(self.stuck.items()):
            if committed.get(partition) != stuck.committed:
                self.end(partition)
                passed[partition] = stuck
        found, new = {}, 0
        for partition, it in judged.items():
            since_ms = now_ms - int((now_s - it.since_s) * 1000)
            before = self.stuck.get(partition)
            if before is not None and (before.verdict, before.among) == (it.verdict, it.among):
                continue
            if before is None:
                now, new = Stuck(it.committed, it.head, since_ms, it.verdict, it.among), new + 1
            else:
                now = replace(before, verdict=it.verdict, among=it.among)
                if it.verdict is not Verdict.STUCK and before.reset:
                    self.withdrawn |= {before.reset}
                    now = now.without_reset()
            if before is None or before.verdict is not it.verdict:
                found[partition] = now
            self.stuck[partition] = now
        changes = Changes(found, passed, new)
        lately = [(at_s, told) for at_s, told in self.changes if now_s - at_s < _TOLD_S]
        self.changes = (*lately, *([(now_s, changes)] if found or passed else ()))
        return changes


@dataclass(frozen=True, slots=True)
class Changes:
    """``found``: stuck from now on, or known by now to be what holds up its owner, or to be one of several that may.
    ``new``: how many of them are stuck from now on. ``passed``: not any more."""

    found: Mapping[TopicPartition, Stuck] = field(default_factory=dict)
    passed: Mapping[TopicPartition, Stuck] = field(default_factory=dict)
    new: int = 0


def reset_id(group: str, partition: TopicPartition, stuck: Stuck) -> str:
    """The same for the same standstill, and another one for any other."""
    text = f"{group}/{partition}/{stuck.committed}/{stuck.head.offset}/{stuck.since_ms}"
    return f"{SKIP_PREFIX}{hashlib.sha256(text.encode()).hexdigest()[:12]}"


# --- what is stored ---------------------------------------------------------------------------------------------------


def encode(known: Known) -> dict[str, Any]:
    """JSON; :func:`decode` reads it."""
    pace: dict[str, dict[str, list[float]]] = {}
    for partition, it in sorted(known.courses.paces.items()):
        pace.setdefault(partition.topic, {})[str(partition.partition)] = [it.moves, round(it.longest_s, 1)]
    stuck = [_stuck_json(p, known.stuck[p]) for p in sorted(known.stuck)[:_MOST]]
    return {
        "topics": dict(known.ids),
        "pace": pace,
        "judged": sum(it.is_known for it in known.courses.paces.values()),
        "stuck": stuck,
        "withdrawn": sorted(known.withdrawn)[:_MOST],
    }


def decode(document: Mapping[str, Any]) -> Known:
    """What was stored, with nothing looked at yet. Raises ``ValueError`` for anything else."""
    try:
        paces = {
            TopicPartition(str(topic), _number(int(number))): _pace(row)
            for topic, rows in document["pace"].items()
            for number, row in rows.items()
        }
        stuck = dict(_stuck(row) for row in document["stuck"][:_MOST])
        ids = {str(topic): str(topic_id) for topic, topic_id in document["topics"].items()}
        withdrawn = frozenset(str(name) for name in document["withdrawn"][:_MOST])
    except (KeyError, TypeError, AttributeError, IndexError, OverflowError) as error:
        raise ValueError(f"not a document about stuck records: {error!r}") from error
    return Known(Courses(paces), stuck=stuck, ids=ids, withdrawn=withdrawn)


def _pace(row: Any) -> Pace:
    moves, longest_s = row
    if not 0 <= float(longest_s) <= _LONGEST_S:
        raise ValueError(f"no interval: {longest_s}")
    return Pace(min(LEAST_MOVES, _number(moves)), float(longest_s))


def _stuck_json(partition: TopicPartition, it: Stuck) -> dict[str, Any]:
    return {
        "partition": [partition.topic, partition.partition],
        "committed": it.committed,
        "record": [it.head.offset, None if it.head.at is None else _ms(it.head.at), it.head.size, it.head.headers],
        "sinceMs": it.since_ms,
        "verdict": it.verdict.value,
        "among": [[p.topic, p.partition] for p in it.among],
        "reset": it.reset,
        "made": it.made,
        "declined": it.declined,
    }


def _stuck(row: Any) -> tuple[TopicPartition, Stuck]:
    offset, at_ms, size, headers = row["record"]
    at = None if at_ms is None else datetime.fromtimestamp(_number(at_ms, _LATEST_MS) / 1000, UTC)
    return _partition(row["partition"]), Stuck(
        committed=_number(row["committed"]),
        head=RecordHead(_number(offset), at, _number(size), None if headers is None else _number(headers)),
        since_ms=_number(row["sinceMs"], _LATEST_MS),
        verdict=Verdict(row["verdict"]),
        among=tuple(_partition(each) for each in row["among"]),
        reset=str(row["reset"]),
        made=row["made"] is True,
        declined=row.get("declined") is True,
    )


def _partition(row: Any) -> TopicPartition:
    topic, number = row
    return TopicPartition(str(topic), _number(number))


def _number(value: Any, most: int = _LARGEST) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= most:
        raise ValueError(f"no such number: {value!r}"[:100])
    return value


def _ms(at: datetime) -> int:
    return min(_LATEST_MS, int(at.timestamp() * 1000))  # producers may give any time
