"""Which of the partitions that stand are stuck at a record, and which may only be waiting for their turn. Pure.

A consumer takes its partitions one after the other. So a partition that stands is stuck only if its owner is not busy
with what it had to read in another one before; and where several stand, which of them holds up the owner isn't known.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from tidegate.kafka.model import RecordHead, TopicPartition
from tidegate.stuck.courses import Course, Courses, Pace

_TIMES_LONGEST: Final = 3
"""Of the longest interval that was seen of the partition."""
_TIMES_GROUPS: Final = 2
"""Of the longest of any partition of the group."""

_READ_AGAIN_S: Final = 5.0
"""How often a record is looked for where there was none."""


class Verdict(StrEnum):
    STUCK = "Stuck"
    ONE_OF_SEVERAL = "OneOfSeveral"


@dataclass(frozen=True, slots=True)
class Judged:
    """A partition that is stuck at ``committed``. ``among``: it and those of the same owner that stand as well,
    of which one may be what holds up the owner; empty where it is the only one."""

    verdict: Verdict
    committed: int
    head: RecordHead
    owner: str
    since_s: float
    among: tuple[TopicPartition, ...] = ()


@dataclass(frozen=True, slots=True)
class Readable:
    """The next record behind a committed offset, and when it was first seen, monotonic."""

    committed: int
    head: RecordHead | None
    seen_s: float


def patience_s(pace: Pace, longest_of_group_s: float, after_s: float) -> float:
    """How long a partition may stand before it is stuck."""
    return max(after_s, _TIMES_LONGEST * pace.longest_s, _TIMES_GROUPS * longest_of_group_s)


def to_read(courses: Courses, known: Mapping[TopicPartition, Readable], after_s: float) -> dict[TopicPartition, int]:
    """The committed offsets whose next record has to be looked at, of partitions that stand for half of that.

    Offsets need not have records: logs have markers of transactions, and gaps of compaction.
    """
    return {
        p: course.committed
        for p, course in courses.now.items()
        if _has_stood_s(course) >= _patience_of(courses, p, after_s) / 2
        and courses.paces.get(p, Pace()).is_known
        and not _is_read(course, known.get(p))
    }


def judge(courses: Courses, known: Mapping[TopicPartition, Readable], after_s: float) -> dict[TopicPartition, Judged]:
    """The partitions that are stuck. What can't be told is left out."""
    found: dict[TopicPartition, Judged] = {}
    for partition, course in courses.now.items():
        patience = _patience_of(courses, partition, after_s)
        readable = known.get(partition)
        if course.since_s is None or not courses.paces.get(partition, Pace()).is_known:
            continue
        if _has_stood_s(course) < patience or readable is None or readable.head is None:
            continue
        # The log may have grown by markers, and have a record only since a moment ago.
        if readable.committed != course.committed or course.last_s - readable.seen_s < patience / 2:
            continue
        among = _among(courses, partition, course)
        if among is not None:
            verdict = Verdict.ONE_OF_SEVERAL if among else Verdict.STUCK
            everyone = tuple(sorted((partition, *among))) if among else ()
            found[partition] = Judged(verdict, course.committed, readable.head, course.owner, course.since_s, everyone)
    return found


def _among(courses: Courses, partition: TopicPartition, course: Course) -> tuple[TopicPartition, ...] | None:
    """Other partitions of the owner that may be what holds it up; ``None``: it may be busy with another one."""
    if course.since_s is None:
        return None
    late_s = course.since_s + 2 * max(courses.paces.get(partition, Pace()).longest_s, courses.longest_s)
    others = []
    for other, its in courses.now.items():
        if other == partition or its.owner != course.owner:
            continue
        before = course.others.get(other)
        moved = its.first_s >= course.since_s
        if before is not None and its.committed < before and not _may_be_marker(its, before):
            if moved:
                return None  # it has not come to the end of what was there when this one began to wait
            others.append(other)
        elif its.busy_s is not None and its.since_s is not None and its.busy_s <= late_s:
            others.append(other)  # perhaps it was read first, and this one has not had its turn
    for unseen, it in courses.elsewhere.items():
        if it.owner != course.owner:
            continue
        if it.moved_s is not None and it.moved_s >= course.since_s:
            return None  # what there still is to read nobody knows
        others.append(unseen)
    return tuple(others)


def _may_be_marker(its: Course, end: int) -> bool:
    return its.since_s is None and end - its.committed == 1


def _patience_of(courses: Courses, partition: TopicPartition, after_s: float) -> float:
    return patience_s(courses.paces.get(partition, Pace()), courses.longest_s, after_s)


def _has_stood_s(course: Course) -> float:
    return -1.0 if course.since_s is None else course.last_s - course.since_s


def _is_read(course: Course, readable: Readable | None) -> bool:
    if readable is None or readable.committed != course.committed:
        return False
    return readable.head is not None or course.last_s - readable.seen_s < _READ_AGAIN_S
