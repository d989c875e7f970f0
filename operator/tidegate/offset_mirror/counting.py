"""What is said of a mirror's partitions: counts, the worst of them, their lag. Pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from tidegate.offset_mirror.course import Course
from tidegate.printable import visible
from tidegate.resources.offset_mirror import (
    CopyState,
    MirrorCounts,
    MirroredTopicStatus,
    MirrorLag,
    WorstPartition,
)

WITHIN_S: Final = 10.0
"""A copy that had, so long ago at most, all that the source had then is in sync."""
_WORST: Final = 10
_MOST_WRITERS: Final = 1000
"""As many producer ids as a status may name."""
_BADNESS: Final = (
    CopyState.IN_SYNC,
    CopyState.SOURCE_GONE,
    CopyState.LAGGING,
    CopyState.SEEDING,
    CopyState.WAITING,
    CopyState.STOPPED,
    CopyState.DRIFTED,
)


@dataclass(frozen=True, slots=True)
class Counted:
    """``lag``: ``None`` where it is known of no partition."""

    counts: MirrorCounts
    worst: tuple[WorstPartition, ...]
    lag: MirrorLag | None
    topics: tuple[MirroredTopicStatus, ...]


def state_of(course: Course, now_s: float, *, seeded: bool, drifted: bool = False) -> CopyState:
    """``drifted``: a copy of its topic had when it was told of last."""
    if course.drifted or (drifted and course.offset is None):
        return CopyState.DRIFTED  # it does not pass by that nothing is known of it
    if course.stopped:
        return CopyState.STOPPED
    if course.copied_at_s is not None and now_s - course.copied_at_s <= WITHIN_S:
        return CopyState.IN_SYNC
    if course.lag is None:
        return CopyState.WAITING
    return CopyState.LAGGING if seeded else CopyState.SEEDING


def counted(
    courses: Collection[Course],
    known: Collection[MirroredTopicStatus],
    now_s: float,
    gone: Collection[str] = (),
) -> Counted:
    """``known``: the topics as they were told last, whose ids stay; ``gone``: those that the source has no more, which
    are not copied and so don't count."""
    by_topic: defaultdict[str, list[Course]] = defaultdict(list)
    for course in courses:
        by_topic[course.partition.topic].append(course)
    states: dict[str, list[CopyState]] = {}
    topics = []
    for topic in known:
        some = by_topic.get(topic.name, [])
        had_drifted = topic.state is CopyState.DRIFTED
        states[topic.name] = [state_of(course, now_s, seeded=topic.seeded, drifted=had_drifted) for course in some]
        topics.append(_told(topic, some, states[topic.name], is_gone=topic.name in gone))
    rows = [
        (course, state)
        for topic in known
        for course, state in zip(by_topic[topic.name], states[topic.name], strict=True)
    ]
    tally = Counter(state for _, state in rows)
    begun = Counter(row[0].partition.topic for row in rows if row[1] is not CopyState.WAITING)
    unknown = sum(max(0, t.partitions - begun[t.name]) for t in known if not t.seeded and t.name not in gone)
    lags = [course.lag for course, _ in rows if course.lag is not None]
    counts = MirrorCounts(
        total=sum(topic.partitions for topic in topics if topic.name not in gone),
        in_sync=tally[CopyState.IN_SYNC],
        seeding=tally[CopyState.SEEDING] + unknown,
        lagging=tally[CopyState.LAGGING],
        stopped=tally[CopyState.STOPPED] + tally[CopyState.DRIFTED],
        drifted=tally[CopyState.DRIFTED],
    )
    lag = MirrorLag(records=sum(lags), seconds=_seconds([course for course, _ in rows], now_s)) if lags else None
    return Counted(counts, _worst(rows), lag, tuple(topics))


def _told(
    topic: MirroredTopicStatus, courses: list[Course], states: list[CopyState], *, is_gone: bool
) -> MirroredTopicStatus:
    lags = [course.lag for course in courses]
    known = [lag for lag in lags if lag is not None]
    state = CopyState.SOURCE_GONE if is_gone else max(states, key=_BADNESS.index, default=CopyState.WAITING)
    seeded = topic.seeded or (len(states) == topic.partitions > 0 and set(states) == {CopyState.IN_SYNC})
    lag = sum(known) if known and len(known) == len(lags) else None
    writers = _writers(topic, courses)
    return topic.model_copy(update={"state": state, "seeded": seeded, "lag": lag, "writers": writers})


def _writers(topic: MirroredTopicStatus, courses: list[Course]) -> tuple[int, ...] | None:
    """Also those that were known before, until it is known of every copy that may still be written."""
    written = [course.producer_id for course in courses if not course.drifted]
    found = {producer_id for producer_id in written if producer_id is not None}
    is_whole = len(courses) >= topic.partitions and None not in written
    if not is_whole and topic.writers is None:
        return None
    all_of_them = found if is_whole else {*(topic.writers or ()), *found}
    # There are no more ids than that; a job's report can name others.
    return tuple(sorted(all_of_them)) if len(all_of_them) <= _MOST_WRITERS else None


def _seconds(courses: Collection[Course], now_s: float) -> int | None:
    """Of the copy that is furthest behind; ``None``: of one it is not known."""
    ages = [None if course.copied_at_s is None else now_s - course.copied_at_s for course in courses]
    known = [age for age in ages if age is not None]
    return int(max(known)) if known and len(known) == len(ages) else None


def _worst(rows: Collection[tuple[Course, CopyState]]) -> tuple[WorstPartition, ...]:
    bad = [row for row in rows if row[1] is not CopyState.IN_SYNC]
    bad.sort(key=lambda row: (-_BADNESS.index(row[1]), -(row[0].lag or 0), row[0].partition))
    return tuple(
        WorstPartition(
            topic=course.partition.topic,
            partition=course.partition.partition,
            state=state,
            offset=course.offset,
            lag=course.lag,
            message=visible((course.stopped or course.trouble or _unknown(state))[:500]),
        )
        for course, state in bad[:_WORST]
    )


def _unknown(state: CopyState) -> str:
    return "as of the last time anything was known about it" if state is CopyState.DRIFTED else ""
