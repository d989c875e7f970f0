"""What keeping offsets needs of a Kafka cluster, beyond what everybody else does.

All calls block, are bounded in time and thread-safe. They raise subclasses of ``tidegate.kafka.errors.KafkaFailure``.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Protocol

from tidegate.kafka.model import TopicPartition
from tidegate.kafka.offset_expiry import RetentionSettings
from tidegate.kafka.offset_records import GroupLog


@dataclass(frozen=True, slots=True)
class Commit:
    """A committed offset as OffsetFetch tells it. ``metadata``: the committer's own, put back as it was found."""

    offset: int
    metadata: str = ""


@dataclass(frozen=True, slots=True)
class Commits:
    """A group's committed offsets, and the partitions with a transactional commit that is not decided yet."""

    offsets: Mapping[TopicPartition, Commit]
    pending: frozenset[TopicPartition] = frozenset()


class OffsetRetention(Protocol):
    def settings(self) -> RetentionSettings:
        """The shortest retention that any broker has, and the longest interval between its looks.

        Raises ``NotAuthorized`` without DescribeConfigs on the cluster.
        """
        ...

    def commits(self, group_id: str) -> Commits:
        """All that the group has; nothing of a group that nobody knows."""
        ...

    def commits_of(self, group_ids: Collection[str]) -> Mapping[str, Commits]:
        """As ``commits``, of many groups in few requests. Raises where one of them may not be described."""
        ...

    def log(self, group_id: str, since: GroupLog) -> GroupLog:
        """``since`` after what came to the group's partition of ``__consumer_offsets`` meanwhile.

        Bounded: a log that could not be read to its end in one call goes on with the next. Raises ``NotAuthorized``
        without Read on that topic.
        """
        ...

    def commit(
        self,
        group_id: str,
        wanted: Mapping[TopicPartition, Commit],
        found: Mapping[TopicPartition, Commit],
        *,
        retention_ms: int,
    ) -> frozenset[TopicPartition]:
        """Commit ``wanted`` with an explicit retention, where the group still is as it was ``found``.

        A partition that was committed meanwhile, by anybody, or for which a transaction is open, is left alone, as is
        one that is gone; the partitions that were committed are the answer. The request is one of a group without
        members, so the coordinator refuses it from the moment on when one joins. Raises ``GroupNotEmpty``, and
        ``Refused`` where the brokers no longer take a retention (OffsetCommit v2 to v4).
        """
        ...
