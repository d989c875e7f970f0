"""A mirror's end for good: what its copies lack, the last carrying over, and the fence at the end of each copy."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, assert_never

from tidegate.kafka.errors import KafkaFailure, NotAuthenticated, Unavailable
from tidegate.kafka.model import LogBounds, Topic, TopicPartition
from tidegate.mirror.batches import Unreadable
from tidegate.mirror.fencing import Fenced, fence
from tidegate.mirror.model import Interrupted, Refusal
from tidegate.mirror.ports import MirrorCluster, Target
from tidegate.offset_mirror.carrier import Carrier
from tidegate.offset_mirror.course import Course
from tidegate.resources.mirror_failover import MOST_TOPICS, FailedOverTopic, FailoverPhase, MirrorFailover
from tidegate.resources.offset_mirror import CarriedGroups, CopyState, MirroredTopicStatus, OffsetMirrorStatus

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
    adopts: frozenset[str],
    mirrored: frozenset[str],
    carrier: Carrier | None,
    target: MirrorCluster | None,
) -> Settled:
    """Once nothing is copied any more: carry the groups over once more, and look at what is lacking. ``target``: absent
    where it does not matter whether the copies are still as they were left. Raises ``KafkaFailure``."""
    if target is not None:
        _check_ends(target, courses)
    ends = {course.partition: course.offset for course in courses if course.offset is not None and not course.drifted}
    groups, whole = None, target is not None
    if carrier is not None and ends:
        groups = carrier.carry(ends, source_ids, adopts, mirrored, whole=whole)
    return Settled(lacking(source, courses), groups)


def _check_ends(target: MirrorCluster, courses: Collection[Course]) -> None:
    """Where a source is idle, nothing is written that would show that a copy has got or lost something. Raises
    ``KafkaFailure``, also where one does not end as it was left."""
    ends = {course.partition: course.offset for course in courses}
    for partition, bounds in sorted(target.bounds(tuple(ends), stable=False).items()) if ends else ():
        if bounds.latest != ends[partition]:
            says = f"the copy of {partition} ends at offset {bounds.latest} at the target instead of {ends[partition]}"
            raise Unavailable(f"{says}: it is being checked again")


# --- the fence --------------------------------------------------------------------------------------------------------

_AT_ONCE: Final = 20
"""Topics that are fenced before the status says where they end, so that nobody has to find that again."""


@dataclass(frozen=True, slots=True)
class Fencing:
    """``failover``: with the ends that are known by now; ``left``: whether some are not; ``message``: what keeps it."""

    failover: MirrorFailover
    left: bool
    message: str = ""


def fence_some(target: MirrorCluster, status: OffsetMirrorStatus, may_write: Callable[[], bool]) -> Fencing:
    """Fence copies of which ``status``, of a mirror that is being fenced, does not say the end yet. A partition that
    can't be fenced keeps no other one. Raises ``KafkaFailure``; it can be done again."""
    failover = status.failover
    if failover is None:
        raise TypeError("a mirror that is not being failed over")
    topics, stuck = {topic.name: topic for topic in failover.topics}, dict[TopicPartition, str]()
    there, known = target.topics(), len(topics)
    begun = [row for row in status.topics if row.target_id]  # others were never copied
    for row in begun:
        if row.name in topics or len(topics) - known == _AT_ONCE:
            continue
        copy = there.get(row.name)
        try:
            # A topic that the principal may not see is not listed either, and could still be appended to.
            copy = copy or target.topic(row.name)
        except NotAuthenticated:
            raise
        except KafkaFailure as failure:
            stuck[TopicPartition(row.name, 0)] = str(failure)
            continue
        if copy is None or copy.topic_id != row.target_id:
            topics[row.name] = FailedOverTopic(name=row.name, ends=(), message="the copy was deleted at the target")
            continue
        found = _fenced(target, copy, row.adopted, status.producer_ids, failover.fence_id, may_write)
        if isinstance(found, FailedOverTopic):
            topics[row.name] = found
        else:
            stuck |= found
    message = _keeps(stuck) if stuck else f"{len(topics)} of {len(begun)} topics are fenced"
    left = any(row.name not in topics for row in begun)
    return Fencing(failover.model_copy(update={"topics": tuple(topics.values())}), left, message if left else "")


def _keeps(stuck: Mapping[TopicPartition, str]) -> str:
    partition = min(stuck)
    return (
        f"{len(stuck)} partition(s) can't be fenced at the target, such as {partition}: {stuck[partition]}. This "
        f"is retried. If it keeps failing, resolve the cause, or delete topic {partition.topic} at the target with "
        "everything in it: the failover then ends without that topic. Do not create the topic again until every "
        "earlier operator process has ended: one that was frozen while it was copying could still append to it"
    )


def _fenced(
    target: MirrorCluster,
    copy: Topic,
    adopted: Sequence[int],
    ids: Sequence[int],
    fence_id: int,
    may_write: Callable[[], bool],
) -> FailedOverTopic | Mapping[TopicPartition, str]:
    """Where the copies of a topic end; or why some of them can't be fenced. All partitions that the target has: one may
    have been added and begun since the status was written."""
    ends, message, unknown, stuck = list[int](), "", "", dict[TopicPartition, str]()
    for partition in copy.all_partitions():
        if not may_write():
            raise Unavailable("this operator process must not write at the moment")
        begun_from = adopted[partition.partition] if partition.partition < len(adopted) else 0
        found = _fence(target.target(partition), ids, fence_id, begun_from)
        if isinstance(found, str):
            stuck[partition] = found
            continue
        ends.append(found.end)
        if found.fills:
            message = message or (
                f"partition {partition.partition} was still being filled up to the source's first record: the last "
                f"records before offset {found.end} are empty. Delete all records before that offset"
            )
        if found.displaced is not None:
            message = (
                f"a batch of partition {partition.partition} was still being sent when the copying ended, and was "
                f"written at offset {found.displaced} instead of {found.end}"
            )
        if found.strange is not None:
            message = unknown = (
                f"somebody else has written to the copy of partition {partition.partition}: offset "
                f"{found.strange} was not written by this mirror"
            )
        _log.info("the copy of %s ends at offset %d", partition, found.end)
    return stuck or FailedOverTopic(name=copy.name, ends=tuple(ends), message=message, unknown=unknown)


def _fence(target: Target, ids: Sequence[int], fence_id: int, adopted: int) -> Fenced | str:
    try:
        found = fence(target, ids, fence_id, adopted)
    except NotAuthenticated:
        raise
    except (KafkaFailure, Unreadable) as error:
        return str(error)
    match found:
        case Fenced():
            return found
        case Refusal(code, name):
            return f"the target refuses: {name} ({code})"
        case Interrupted(reason):
            return reason
        case _ as never:
            assert_never(never)


# --- what was not copied ----------------------------------------------------------------------------------------------

_NOT_THERE: Final = "the source no longer has this topic, or does not show it"


def ended(
    source: MirrorCluster | None,
    status: OffsetMirrorStatus,
    fenced: MirrorFailover,
    wants: Callable[[Iterable[str]], Collection[str]],
    now: Callable[[], datetime],
) -> MirrorFailover:
    """The failover once all copies are fenced, with what the source had beyond them. ``source``: absent where it is not
    reachable; ``wants``: which of the source's topics were to be copied."""
    topics: Collection[FailedOverTopic] | None = None
    if source is not None:
        try:
            topics = _counted(source, {row.name: row for row in status.topics}, fenced.topics, wants)
        except KafkaFailure as failure:
            _log.warning("could not count what the source has beyond the copies: %s", failure)
    lacks = None if topics is None else [sum(t.lacks) if t.lacks is not None else None for t in topics]
    known = [each for each in lacks or () if each is not None]
    return MirrorFailover(
        phase=FailoverPhase.DONE,
        fence_id=fenced.fence_id,
        at=now().replace(microsecond=0),
        source_answered=topics is not None,
        not_copied=sum(known) if lacks is not None and len(known) == len(lacks) else None,
        topics=tuple([_unknown(topic, "") for topic in fenced.topics] if topics is None else topics)[:MOST_TOPICS],
    )


def _counted(
    source: MirrorCluster,
    rows: Mapping[str, MirroredTopicStatus],
    fenced: Collection[FailedOverTopic],
    wants: Callable[[Iterable[str]], Collection[str]],
) -> list[FailedOverTopic]:
    """Also the topics that were to be copied and never were. Raises ``KafkaFailure``."""
    there = source.topics()
    begun = {topic.name for topic in fenced}
    # One of which the status knows, and that the source does not list any more, may only be hidden.
    names = [name for name in wants({*there, *rows}) if name not in begun]
    never = [FailedOverTopic(name=name, ends=(), message="it was never copied") for name in names]
    asked = [p for topic in (*fenced, *never) if topic.name in there for p in there[topic.name].all_partitions()]
    bounds = source.told_bounds(asked, stable=False)
    return [
        *(_lacks(topic, there.get(topic.name), rows[topic.name], bounds) for topic in fenced if topic.name in rows),
        *(_never_copied(topic, there.get(topic.name), bounds) for topic in never),
    ]


def _lacks(
    topic: FailedOverTopic,
    source: Topic | None,
    row: MirroredTopicStatus,
    bounds: Mapping[TopicPartition, LogBounds],
) -> FailedOverTopic:
    """Of a topic that was copied."""
    if source is None:
        return _unknown(topic, _NOT_THERE)
    if source.topic_id != row.source_id:
        return _unknown(topic, "it was deleted and created again at the source")
    if row.state is CopyState.DRIFTED:
        return _unknown(topic, "its copy had drifted from the source")
    if topic.unknown:
        return topic
    return _beyond(topic, source, bounds) if topic.ends else _unknown(topic, "there is no copy to compare with")


def _never_copied(
    topic: FailedOverTopic, source: Topic | None, bounds: Mapping[TopicPartition, LogBounds]
) -> FailedOverTopic:
    return _unknown(topic, _NOT_THERE) if source is None else _beyond(topic, source, bounds)


def _unknown(topic: FailedOverTopic, why: str) -> FailedOverTopic:
    return topic.model_copy(update={"unknown": why})


def _beyond(topic: FailedOverTopic, source: Topic, bounds: Mapping[TopicPartition, LogBounds]) -> FailedOverTopic:
    """With what the source has, of partitions that the copy does not have as well: those end at 0."""
    ends = (*topic.ends, *[0] * (source.partitions - len(topic.ends)))
    lacks = list[int]()
    for number, end in enumerate(ends):
        found = bounds.get(TopicPartition(topic.name, number))
        if found is None and number < source.partitions:
            return _unknown(topic, "the source does not say where its logs end")
        lacks.append(0 if found is None else max(0, found.latest - max(end, found.earliest)))
    return topic.model_copy(update={"ends": ends, "lacks": tuple(lacks)})
