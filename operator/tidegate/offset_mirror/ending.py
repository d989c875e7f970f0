"""A mirror's end for good: what its copies lack, the last carrying over, and the fence at the end of each copy."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from tidegate.kafka.errors import KafkaFailure, Unavailable
from tidegate.kafka.model import TopicPartition
from tidegate.mirror.batches import Unreadable
from tidegate.mirror.fencing import Fenced, fence
from tidegate.mirror.ports import MirrorCluster
from tidegate.offset_mirror.carrier import Carrier
from tidegate.offset_mirror.course import Course
from tidegate.printable import visible
from tidegate.resources.mirror_failover import FailedOverTopic, FailoverPhase, MirrorFailover
from tidegate.resources.offset_mirror import CarriedGroups, MirroredTopicStatus, OffsetMirrorStatus

_log = logging.getLogger(__name__)


def lacking(source: MirrorCluster, courses: Collection[Course]) -> Mapping[TopicPartition, int]:
    """How many offsets each copy lacks, those of open transactions as well; copies that lack none are left out. Of one
    whose end is not known, as many as the source has had. Raises ``KafkaFailure``."""
    ends = {course.partition: course.offset or 0 for course in courses}
    if not ends:
        return {}
    bounds = source.bounds(tuple(ends), stable=False)
    return {p: bounds[p].latest - end for p, end in ends.items() if bounds[p].latest > end}


@dataclass(frozen=True, slots=True)
class Settled:
    """``groups``: as they were carried over last, if they are."""

    lacking: Mapping[TopicPartition, int]
    groups: CarriedGroups | None


def settle(
    source: MirrorCluster,
    courses: Collection[Course],
    source_ids: Mapping[str, str],
    carrier: Carrier | None,
) -> Settled:
    """Once nothing is copied any more: carry the groups over once more, and look at what is lacking. Raises
    ``KafkaFailure``."""
    ends = {course.partition: course.offset for course in courses if course.offset is not None and not course.drifted}
    groups = carrier.carry(ends, source_ids) if carrier is not None and ends else None
    return Settled(lacking(source, courses), groups)


def fence_all(
    source: MirrorCluster | None,
    target: MirrorCluster,
    status: OffsetMirrorStatus,
    now: Callable[[], datetime],
    may_write: Callable[[], bool],
) -> MirrorFailover:
    """Fence each copy, and say what the source had beyond it. ``source``: absent where it is not reachable;
    ``status``: of a mirror that is being fenced. Raises ``KafkaFailure``; it can be done again."""
    failover = status.failover
    if failover is None:
        raise TypeError("a mirror that is not being failed over")
    there, topics = target.topics(), list[FailedOverTopic]()
    for row in status.topics:
        copy = there.get(row.name)
        if not row.target_id:
            continue  # it was never copied
        if copy is None or copy.topic_id != row.target_id:
            topics.append(FailedOverTopic(name=row.name, ends=(), message="the copy was deleted at the target"))
            continue
        ends, message = _fenced(target, row, status.producer_ids, failover.fence_id, may_write)
        topics.append(FailedOverTopic(name=row.name, ends=ends, message=message))
    beyond = _beyond(source, status.topics, topics)
    told = topics if beyond is None else [_with_beyond(topic, beyond) for topic in topics]
    return MirrorFailover(
        phase=FailoverPhase.DONE,
        fence_id=failover.fence_id,
        at=now().replace(microsecond=0),
        source_answered=beyond is not None,
        not_copied=None if beyond is None else sum(beyond.values()),
        topics=tuple(told),
    )


def _fenced(
    target: MirrorCluster,
    row: MirroredTopicStatus,
    ids: Sequence[int],
    fence_id: int,
    may_write: Callable[[], bool],
) -> tuple[tuple[int, ...], str]:
    """The ends of a topic's copies, and what is wrong with one of them."""
    ends, message = list[int](), ""
    for number in range(row.partitions):
        partition = TopicPartition(row.name, number)
        if not may_write():
            raise Unavailable("nothing may be written now")
        try:
            found = fence(target.target(partition), ids, fence_id)
        except Unreadable as error:
            raise Unavailable(f"fence {partition}: {error}") from error
        if not isinstance(found, Fenced):
            raise Unavailable(f"fence {partition}: {visible(str(found))}")
        ends.append(found.end)
        if found.displaced is not None:
            message = (
                f"a batch of partition {number} was on its way while the copying ended, and has come to lie at offset "
                f"{found.displaced} instead of {found.end}"
            )
        _log.info("the copy of %s ends at offset %d", partition, found.end)
    return tuple(ends), message


def _beyond(
    source: MirrorCluster | None, rows: Collection[MirroredTopicStatus], topics: Collection[FailedOverTopic]
) -> Mapping[TopicPartition, int] | None:
    """How many offsets the source has beyond the ends of the copies; ``None``: it does not answer."""
    if source is None:
        return None
    ids = {row.name: row.source_id for row in rows}
    try:
        known = source.topics()
        same = [t for t in topics if t.name in known and known[t.name].topic_id == ids[t.name]]
        ends = {TopicPartition(t.name, n): end for t in same for n, end in enumerate(t.ends)}
        bounds = source.bounds(tuple(ends), stable=False) if ends else {}
    except KafkaFailure as failure:
        _log.warning("what the source has beyond the copies is not known: %s", failure)
        return None
    return {p: max(0, bounds[p].latest - end) for p, end in ends.items()}


def _with_beyond(topic: FailedOverTopic, beyond: Mapping[TopicPartition, int]) -> FailedOverTopic:
    counts = [beyond.get(TopicPartition(topic.name, number)) for number in range(len(topic.ends))]
    known = tuple(count for count in counts if count is not None)
    return topic.model_copy(update={"lacks": known if len(known) == len(counts) else None})
