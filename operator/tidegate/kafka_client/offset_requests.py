"""Requests about committed offsets: OffsetFetch of one group or of many at once (KIP-709), OffsetCommit, OffsetDelete
(KIP-496).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final

from kafka.protocol.consumer import OffsetCommitRequest, OffsetDeleteRequest, OffsetFetchRequest

from tidegate.kafka.model import Committed, TopicPartition
from tidegate.kafka.rights import on_group, on_topics
from tidegate.kafka_client.codes import (
    GROUP_ID_NOT_FOUND,
    GROUP_SUBSCRIBED_TO_TOPIC,
    NO_ERROR,
    UNSTABLE_OFFSET_COMMIT,
    check,
)
from tidegate.kafka_client.partitions import by_topic
from tidegate.kafka_client.wire import Wire, named

RETENTION_VERSIONS: Final = range(2, 5)
"""Those of OffsetCommit that carry ``retention_time_ms``; Kafka 4.0 has taken 0 and 1 away."""

_COMMIT_VERSIONS: Final = range(2, 10)
"""Those of OffsetCommit that name topics, not topic ids."""

_OFFSET_COMMIT: Final = 8
"""Its API key."""


def fetch_offsets(
    wire: Wire, group_id: str, partitions: Collection[TopicPartition] | None, *, stable: bool
) -> tuple[dict[TopicPartition, int], frozenset[TopicPartition]]:
    """Committed offsets, and the partitions whose commit is not decided yet (only looked for when ``stable``)."""
    if partitions is not None and not partitions:
        return {}, frozenset()
    return _offsets_of(_fetch(wire, group_id, partitions, stable=stable))


def _fetch(wire: Wire, group_id: str, partitions: Collection[TopicPartition] | None, *, stable: bool) -> Any:
    [answer] = wire.exchange(
        group_id,
        lambda: OffsetFetchRequest(
            groups=[_group_to_fetch(group_id, partitions)], require_stable=stable, min_version=8, max_version=8
        ),
        code_of=lambda answer: int(answer.groups[0].error_code),
        what=f"read the committed offsets of group {group_id}",
    )
    return answer.groups[0]


def fetch_many(wire: Wire, group_ids: Collection[str]) -> dict[str, dict[TopicPartition, int]]:
    """All committed offsets of many groups; one request a coordinator and up to 200 groups."""
    return {group_id: _offsets_of(group)[0] for group_id, group in _fetch_groups(wire, group_ids).items()}


def commits_of_many(wire: Wire, group_ids: Collection[str]) -> dict[str, dict[TopicPartition, Committed]]:
    """As :func:`fetch_many`, with all that the coordinators tell of a commit."""
    return {group_id: _commits(group)[0] for group_id, group in _fetch_groups(wire, group_ids).items()}


def stable_commits_of(
    wire: Wire, group_ids: Collection[str]
) -> dict[str, tuple[dict[TopicPartition, Committed], frozenset[TopicPartition]]]:
    """As :func:`commits_of_many`, and the partitions whose commit is not decided yet."""
    return {group_id: _commits(group) for group_id, group in _fetch_groups(wire, group_ids, stable=True).items()}


def _fetch_groups(wire: Wire, group_ids: Collection[str], *, stable: bool = False) -> dict[str, Any]:
    """Each group's part of an OffsetFetch answer."""

    def request(batch: list[str]) -> Any:
        groups = [_group_to_fetch(group_id, None) for group_id in batch]
        return OffsetFetchRequest(groups=groups, require_stable=stable, min_version=8, max_version=8)

    return wire.of_coordinators(group_ids, request, what=f"read the committed offsets of {named(group_ids)}")


def offset_fetch_request(group_id: str) -> Any:
    """An OffsetFetch request for all that a group has; see :func:`commits_of`."""
    return OffsetFetchRequest(
        groups=[_group_to_fetch(group_id, None)], require_stable=True, min_version=8, max_version=8
    )


def offset_commit_request(
    group_id: str, rows: Mapping[TopicPartition, tuple[int, str]], retention_ms: int | None = None
) -> Any:
    """An OffsetCommit request of nobody's (generation −1), for (offset, metadata); ``retention_ms``: explicit."""
    topic_class = OffsetCommitRequest.OffsetCommitRequestTopic
    partition_class = topic_class.OffsetCommitRequestPartition
    versions = _COMMIT_VERSIONS if retention_ms is None else RETENTION_VERSIONS
    return OffsetCommitRequest(
        group_id=group_id,
        generation_id_or_member_epoch=-1,
        member_id="",
        retention_time_ms=-1 if retention_ms is None else retention_ms,
        topics=[
            topic_class(
                name=topic,
                partitions=[
                    partition_class(
                        partition_index=number,
                        committed_offset=rows[TopicPartition(topic, number)][0],
                        committed_metadata=rows[TopicPartition(topic, number)][1],
                    )
                    for number in numbers
                ],
            )
            for topic, numbers in by_topic(rows).items()
        ],
        min_version=versions[0],
        max_version=versions[-1],
    )


def takes_retention(wire: Wire) -> bool:
    """Whether the brokers take OffsetCommit in a version that carries a retention."""
    oldest, newest = wire.versions().get(_OFFSET_COMMIT, (0, 0))
    return bool(oldest <= RETENTION_VERSIONS[-1] and newest >= RETENTION_VERSIONS[0])


def delete_offsets(wire: Wire, group_id: str, partitions: Collection[TopicPartition]) -> frozenset[TopicPartition]:
    """Forget committed offsets (KIP-496); returns those refused because the group is subscribed to the topic."""
    topics = by_topic(partitions)
    topic_class = OffsetDeleteRequest.OffsetDeleteRequestTopic
    partition_class = topic_class.OffsetDeleteRequestPartition

    def build() -> Any:
        return OffsetDeleteRequest(
            group_id=group_id,
            topics=[
                topic_class(name=t, partitions=[partition_class(partition_index=p) for p in ps])
                for t, ps in topics.items()
            ],
        )

    what = f"delete committed offsets of group {group_id}"
    [answer] = wire.exchange(group_id, build, what=what)
    if answer.error_code == GROUP_ID_NOT_FOUND:
        return frozenset()
    needs = on_group("Delete", group_id)
    check(answer.error_code, what, needs)
    refused = set()
    for topic in answer.topics:
        for row in topic.partitions:
            if row.error_code == GROUP_SUBSCRIBED_TO_TOPIC:
                refused.add(TopicPartition(topic.name, row.partition_index))
            else:
                named = f"{what} ({topic.name}-{row.partition_index})"
                check(row.error_code, named, needs, *on_topics("Read", [topic.name]))
    return frozenset(refused)


def leader_epochs(wire: Wire, group_id: str) -> Mapping[TopicPartition, int]:
    """Leader epochs of a group's committed offsets (KIP-320), where the committer told one."""
    what = f"read the committed offsets of group {group_id}"
    [answer] = wire.exchange(
        group_id,
        lambda: OffsetFetchRequest(groups=[_group_to_fetch(group_id, None)], min_version=8, max_version=8),
        code_of=lambda answer: int(answer.groups[0].error_code),
        what=what,
    )
    rows = ((topic.name, row) for topic in answer.groups[0].topics for row in topic.partitions)
    return {
        TopicPartition(name, row.partition_index): row.committed_leader_epoch
        for name, row in rows
        if row.error_code == NO_ERROR and row.committed_offset >= 0 and row.committed_leader_epoch >= 0
    }


def _group_to_fetch(group_id: str, partitions: Collection[TopicPartition] | None) -> Any:
    group_class = OffsetFetchRequest.OffsetFetchRequestGroup
    if partitions is None:
        return group_class(group_id=group_id, topics=None)
    return group_class(
        group_id=group_id,
        topics=[
            group_class.OffsetFetchRequestTopics(name=topic, partition_indexes=indexes)
            for topic, indexes in by_topic(partitions).items()
        ],
    )


def commits_of(answer: Any) -> tuple[dict[TopicPartition, Committed], frozenset[TopicPartition]]:
    """What an OffsetFetch answer about one group tells by partition, and the partitions that are not decided yet."""
    [group] = answer.groups
    return _commits(group)


def _commits(group: Any) -> tuple[dict[TopicPartition, Committed], frozenset[TopicPartition]]:
    offsets, pending = _offsets_of(group)
    rows = {TopicPartition(topic.name, row.partition_index): row for topic in group.topics for row in topic.partitions}
    commits = {
        p: Committed(
            offset,
            rows[p].committed_leader_epoch if rows[p].committed_leader_epoch >= 0 else None,
            rows[p].metadata or "",
        )
        for p, offset in offsets.items()
    }
    return commits, pending


def _offsets_of(group: Any) -> tuple[dict[TopicPartition, int], frozenset[TopicPartition]]:
    what = f"read the committed offsets of group {group.group_id}"
    if group.error_code == GROUP_ID_NOT_FOUND:
        return {}, frozenset()
    needs = on_group("Describe", group.group_id)
    check(group.error_code, what, needs)
    offsets: dict[TopicPartition, int] = {}
    pending: set[TopicPartition] = set()
    for topic in group.topics:
        for row in topic.partitions:
            partition = TopicPartition(topic.name, row.partition_index)
            if row.error_code == UNSTABLE_OFFSET_COMMIT:
                pending.add(partition)
                continue
            if row.error_code:
                check(row.error_code, f"{what} ({partition})", needs, *on_topics("Describe", [topic.name]))
            if row.committed_offset >= 0:
                offsets[partition] = row.committed_offset
    return offsets, frozenset(pending)
