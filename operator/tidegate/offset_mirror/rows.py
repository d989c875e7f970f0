"""The topics that a mirror's status lists: which of them may be copied, and what is said of the others. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from itertools import islice
from typing import Final

from tidegate.connection.live import LiveConnections
from tidegate.kafka.model import TopicPartition
from tidegate.kube.ports import Object, label_of, namespace_of, uid_of
from tidegate.offset_mirror.course import Course
from tidegate.offset_mirror.preparing import Prepared
from tidegate.offset_mirror.topics import Copied, wanted
from tidegate.resources.base import InvalidResource, parse_spec
from tidegate.resources.mirror_failover import MOST_TOPICS, FailoverPhase
from tidegate.resources.offset_mirror import CopyState, MirroredTopicStatus, OffsetMirrorSpec, OffsetMirrorStatus

_MOST_PARTITIONS: Final = 100_000
"""Of which a status is believed that they are halted: it may say any number."""


def rows_of(prepared: Prepared, known: Mapping[str, MirroredTopicStatus]) -> tuple[MirroredTopicStatus, ...]:
    """By name. What was said before of a topic stays as long as both of its ids do, and of one that the source has no
    more as long as there is room."""
    rows: dict[str, MirroredTopicStatus] = {}
    for topic in prepared.copied:
        rows[topic.source.name] = _row(topic, known.get(topic.source.name))
    for name in (*prepared.halted, *prepared.preparing):
        if name in known:
            rows[name] = known[name]
    for name in prepared.halted:
        source = prepared.sources[name]
        new = MirroredTopicStatus(
            name=name,
            source_id=source.topic_id,
            target_id="",
            partitions=source.partitions,
            state=CopyState.STOPPED,
        )
        rows.setdefault(name, new)
    gone = sorted(name for name in prepared.gone if name in known and name not in rows)
    rows |= {name: known[name] for name in gone[: max(0, MOST_TOPICS - len(rows))]}
    return tuple(rows[name] for name in sorted(rows))


def _row(topic: Copied, known: MirroredTopicStatus | None) -> MirroredTopicStatus:
    if known is not None and is_same(topic, known):
        return known.model_copy(update={"partitions": topic.source.partitions})
    return MirroredTopicStatus(
        name=topic.source.name,
        source_id=topic.source.topic_id,
        target_id=topic.target.topic_id,
        partitions=topic.source.partitions,
        state=CopyState.WAITING,
    )


def is_same(topic: Copied, known: MirroredTopicStatus | None) -> bool:
    """Whether the status speaks of these two topics: before it does, nothing is copied, so that a topic that is created
    anew meanwhile is told from the one that was copied, whoever dies when."""
    return known is not None and (known.source_id, known.target_id) == (topic.source.topic_id, topic.target.topic_id)


def fresh_in(prepared: Prepared, known: Mapping[str, MirroredTopicStatus]) -> frozenset[str]:
    """The topics that could be copied, and of which the status does not speak yet."""
    copied = (topic for topic in prepared.copied if not is_same(topic, known.get(topic.source.name)))
    return frozenset(topic.source.name for topic in copied)


def unready(prepared: Prepared | None, known: Mapping[str, MirroredTopicStatus], trouble: str) -> str:
    """Why not every topic that is wanted is being copied, and known to be."""
    if trouble or prepared is None:
        return f"could not read all of both clusters: {trouble}"
    left = sorted((*prepared.preparing, *fresh_in(prepared, known)))
    return f"{len(left)} topic(s) are not being copied yet, such as {left[0]}" if left else ""


def halted_courses(prepared: Prepared) -> list[Course]:
    """What is said of the partitions of topics that must not be copied."""
    return [
        Course(TopicPartition(name, number), None, None, None, halted.message, halted.drifted)
        for name, halted in prepared.halted.items()
        for number in range(prepared.sources[name].partitions)
    ]


def halted_before(status: OffsetMirrorStatus, courses: Iterable[Course]) -> list[Course]:
    """The same while the clusters can't be looked at: what was said of topics that are not being copied does not pass
    by itself."""
    copied = {course.partition.topic for course in courses}
    said = {row.topic: row.message for row in status.worst}
    courses_before = (
        Course(
            TopicPartition(row.name, number),
            None,
            None,
            None,
            said.get(row.name, "") or "as of the last time the clusters could be read",
            row.state is CopyState.DRIFTED,
        )
        for row in status.topics
        if row.state in (CopyState.STOPPED, CopyState.DRIFTED) and row.name not in copied
        for number in range(row.partitions)
    )
    return [*islice(courses_before, _MOST_PARTITIONS)]


def with_drift(status: OffsetMirrorStatus, courses: Iterable[Course]) -> OffsetMirrorStatus:
    """With what the process has found and no pass has written yet; and of topics that were just being made ready, with
    what is known of them from before."""
    found = {course.partition.topic for course in courses if course.drifted}
    before = {one.topic for one in status.parity.different} if status.parity is not None else set()
    drifted = {"state": CopyState.DRIFTED}
    rows = tuple(
        row.model_copy(update=drifted)
        if row.name in found or (row.name in before and row.state is not CopyState.SOURCE_GONE)
        else row
        for row in status.topics
    )
    return status.model_copy(update={"topics": rows})


def gone_before(status: OffsetMirrorStatus) -> frozenset[str]:
    """Topics that the source had no more when it could last be looked at."""
    return frozenset(row.name for row in status.topics if row.state is CopyState.SOURCE_GONE)


def copied_by_another(
    body: Object, mirrors: Iterable[Object], live: LiveConnections, target: str, names: Iterable[str]
) -> tuple[str, str] | None:
    """A topic that an older OffsetMirror copies to the same cluster, and what that is called. ``target``: the id of the
    cluster. Where a connection does not know its cluster yet, the other's status tells."""
    for other in mirrors:
        if uid_of(other) == uid_of(body) or _age(other) >= _age(body):
            continue
        try:
            spec = parse_spec(OffsetMirrorSpec, other)
        except InvalidResource:
            continue
        status = other.get("status") or {}
        if (status.get("failover") or {}).get("phase") == FailoverPhase.DONE:
            continue  # it copies nothing any more
        told = status.get("targetCluster")
        if (live.cluster_id(namespace_of(other), spec.target.name) or told) != target:
            continue
        both = wanted(names, spec.topics)
        if both:
            return both[0], label_of(other)
    return None


def _age(body: Object) -> tuple[datetime, str]:
    return datetime.fromisoformat(str(body["metadata"]["creationTimestamp"])), uid_of(body)
