"""Where one partition goes: every ``Target`` resolved to an offset inside the log, or to why there is none. Pure.

Follows ``org.apache.kafka.tools.OffsetsUtils`` (what ``kafka-consumer-groups --reset-offsets`` uses) where that has an
answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Final, assert_never

from tidegate.kafka.model import LogBounds, Offsets, TopicPartition
from tidegate.reset.model.plan import Clamped
from tidegate.reset.model.targets import (
    ByDuration,
    Findings,
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
from tidegate.resources.targets import NoMatch

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Seen:
    """What was read of one partition.

    ``found``: the first offset at or after the asked time (``ClusterReader.offsets_at``), ``None`` for no such record.
    ``named``: the offset that a file, another group, an undone run or a search has for it (``named_offsets``).
    ``had_none``: the run to undo found no committed offset there. ``searched``: its records were looked at.
    """

    committed: int | None
    bounds: LogBounds
    found: int | None = None
    named: int | None = None
    had_none: bool = False
    searched: bool = False


@dataclass(frozen=True, slots=True)
class Aim:
    """The offset to commit, inside the log."""

    offset: int
    clamped: Clamped | None = None


class NoAim(StrEnum):
    """Why a target gives no offset for a partition."""

    NOT_COMMITTED = "NotCommitted"
    """``shiftBy`` counts from a committed offset, and there is none."""
    NOT_IN_FILE = "NotInFile"
    NOT_IN_GROUP = "NotInGroup"
    NONE_BEFORE = "NoneBefore"
    """The run to undo found no committed offset there."""
    NOT_IN_RUN = "NotInRun"
    NOT_IN_BACKUP = "NotInBackup"
    NO_MATCH = "NoMatch"
    """No record was found."""
    NOT_SEARCHED = "NotSearched"
    """The partition was not there when the search began."""


def asked_time(target: Target, now: datetime) -> datetime | None:
    """The time that a target looks up, in whole milliseconds as records have it; ``None`` for targets that need none.

    Never before the epoch: to Kafka the negative timestamps -1 and -2 mean the log's end and start (ListOffsets).
    """
    match target:
        case ToTimestamp(at=at):
            return whole_milliseconds(at)
        case ByDuration(ago=ago):
            return whole_milliseconds(now - ago) if ago <= now - EPOCH else EPOCH
        case ToEarliest() | ToLatest() | ToOffset() | ShiftBy() | FromFile() | FromGroup() | Undo():
            return None
        case FromCluster() | FromBackup() | ToRecord():
            return None
        case _:
            assert_never(target)


def whole_milliseconds(at: datetime) -> datetime:
    """The first time at or after ``at`` that a record can have."""
    part = timedelta(microseconds=-at.microsecond % 1000)
    return max(at + part, EPOCH)


def named_offsets(
    target: Target, other: Offsets | None, findings: Findings | None = None
) -> Mapping[TopicPartition, int]:
    """The offsets that a target names partition by partition.

    ``other``: the offsets of the group in ``FromGroup``; ``findings``: for ``FromCluster``, ``FromBackup`` and
    ``ToRecord``.
    """
    match target:
        case FromFile(offsets=offsets) | Undo(before=offsets):
            return {o.topic_partition: o.offset for o in offsets}
        case FromGroup():
            return other or {}
        case FromCluster() | FromBackup() | ToRecord():
            return {p: offset for p, offset in findings.offsets.items() if offset is not None} if findings else {}
        case ToEarliest() | ToLatest() | ToOffset() | ToTimestamp() | ByDuration() | ShiftBy():
            return {}
        case _:
            assert_never(target)


def aim(target: Target, seen: Seen) -> Aim | NoAim:
    """Resolve a target for one partition."""
    bounds = seen.bounds
    match target:
        case ToEarliest():
            return Aim(bounds.earliest)
        case ToLatest():
            return Aim(bounds.latest)
        case ToOffset(offset=offset):
            return inside(offset, bounds)
        case ToTimestamp() | ByDuration():
            # Bounds and look-up are read one after the other while the log moves: the nearer one is meant, and nothing
            # was asked that would have to be called clamped.
            return Aim(bounds.latest if seen.found is None else bounds.clamp(seen.found))
        case ShiftBy(records=records):
            return NoAim.NOT_COMMITTED if seen.committed is None else inside(seen.committed + records, bounds)
        case FromFile():
            return NoAim.NOT_IN_FILE if seen.named is None else inside(seen.named, bounds)
        case FromGroup() | FromCluster():
            return NoAim.NOT_IN_GROUP if seen.named is None else inside(seen.named, bounds)
        case FromBackup():
            return NoAim.NOT_IN_BACKUP if seen.named is None else inside(seen.named, bounds)
        case Undo():
            if seen.named is not None:
                return inside(seen.named, bounds)
            return NoAim.NONE_BEFORE if seen.had_none else NoAim.NOT_IN_RUN
        case ToRecord(no_match=no_match):
            if seen.named is not None:
                return inside(seen.named, bounds)
            if not seen.searched:
                return NoAim.NOT_SEARCHED
            return Aim(bounds.latest) if no_match is NoMatch.END else NoAim.NO_MATCH
        case _:
            assert_never(target)


def inside(offset: int, bounds: LogBounds) -> Aim:
    """``OffsetsUtils.checkOffsetsRange``: outside the log is moved to its nearer end, and says so."""
    if offset > bounds.latest:
        return Aim(bounds.latest, Clamped.LATEST)
    if offset < bounds.earliest:
        return Aim(bounds.earliest, Clamped.EARLIEST)
    return Aim(offset)
