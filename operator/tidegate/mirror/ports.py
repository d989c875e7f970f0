"""What a mirrored partition needs of its two clusters. All calls block and are bounded in time.

What cannot be told apart from "not done" is ``Interrupted``, never an exception. ``KafkaFailure``s are for what does
not pass: a right that is missing, credentials that are refused.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from tidegate.kafka.model import LogBounds, Topic, TopicPartition
from tidegate.mirror.model import Appended, Coordinated, Done, Interrupted, ProducerIds, Refusal, Tail
from tidegate.mirror.source import SourceRead


class Source(Protocol):
    """One partition of the source, read as a consumer of committed records reads it."""

    def read(self, offset: int) -> SourceRead | Interrupted: ...


class Target(Protocol):
    """One partition of the target, at its leader.

    Whatever follows a :meth:`tail` is sent on the connection on which that was read, and is ``Interrupted`` where this
    connection is gone: nothing that was decided before a long pause can arrive after it.
    """

    def tail(self, window: int) -> Tail | Interrupted:
        """``Interrupted`` also while the last records are not replicated."""
        ...

    def append(self, batches: tuple[bytes, ...]) -> Appended | Interrupted: ...

    def write_markers(self, producer_id: int, epoch: int, count: int) -> Done | Refusal | Interrupted: ...

    def delete_records(self, offset: int) -> Done | Refusal | Interrupted: ...


class Coordinator(Protocol):
    """The transaction coordinator of the mirror's transactional id, and the target's leader for what is aborted."""

    def fence_predecessors(self) -> Coordinated | Interrupted:
        """``Interrupted`` while a transaction is under way."""
        ...

    def transact(self, producer: Coordinated, fillers: int) -> Done | Refusal | Interrupted: ...


class ProducerIdStore(Protocol):
    """The producer ids of one partition: kept for as long as the mirror is, the same for all of its writers."""

    def claim(self, after: int | None) -> ProducerIds | Interrupted:
        """All ids, with a new one at the end if ``after`` was the last so far; None: if there was none."""
        ...


# --- a whole cluster --------------------------------------------------------------------------------------------------


UNDECIDED: Final = -1
"""The offset of a partition for which a transaction of the group is still to decide."""


@dataclass(frozen=True, slots=True)
class GroupOffset:
    """What a group has committed for a partition; or ``UNDECIDED``."""

    offset: int
    metadata: str = ""


GroupOffsets = Mapping[TopicPartition, GroupOffset]


class MirrorCluster(Protocol):
    """One of a mirror's two clusters, by connections of the mirror's own. Thread-safe.

    All calls raise ``KafkaFailure``s; those that change something are sent to the target only.
    """

    def cluster_id(self) -> str: ...

    def topics(self) -> Mapping[str, Topic]:
        """Those that the principal may see, internal ones left out."""
        ...

    def topic(self, name: str) -> Topic | None:
        """``None`` only where it is not there. Raises ``NotAuthorized`` where the principal may not see it."""
        ...

    def settings(self, topics: Collection[str]) -> Mapping[str, Mapping[str, str]]:
        """The settings of topics as they hold (DescribeConfigs); one that is not there is absent. Raises
        ``NotAuthorized``."""
        ...

    def bounds(
        self, partitions: Collection[TopicPartition], *, stable: bool = True
    ) -> Mapping[TopicPartition, LogBounds]:
        """The first offset, and the last stable one; not ``stable``: the end, of open transactions as well. Raises
        ``UnknownPartitions``."""
        ...

    def told_bounds(
        self, partitions: Collection[TopicPartition], *, stable: bool = True
    ) -> Mapping[TopicPartition, LogBounds]:
        """As :meth:`bounds`, of the partitions whose leaders tell: one that is gone, or has no leader, is absent, and
        keeps no other from being told."""
        ...

    def create_topic(self, name: str, partitions: int, settings: Mapping[str, str]) -> None:
        """With the brokers' replication factor. One that is there already is left as it is."""
        ...

    def add_partitions(self, name: str, partitions: int) -> None:
        """Up to that number; nothing where there are as many."""
        ...

    def configure(self, name: str, settings: Mapping[str, str]) -> None:
        """Set these and no others (IncrementalAlterConfigs)."""
        ...

    def new_producer_id(self) -> int:
        """One that no producer has."""
        ...

    def source(self, partition: TopicPartition, topic_id: str) -> Source:
        """Nothing is read of another topic of the same name."""
        ...

    def target(self, partition: TopicPartition) -> Target: ...

    def writers(self, topics: Collection[str]) -> Mapping[str, frozenset[str]] | None:
        """By topic, the principals that the brokers' ACLs let write it; ``None``: they have no authorizer."""
        ...

    def group_ids(self) -> frozenset[str]: ...

    def committed(self, group_ids: Collection[str]) -> Mapping[str, GroupOffsets]:
        """What is committed for good; ``UNDECIDED`` where a transaction is still to decide that."""
        ...

    def commit(self, group_id: str, offsets: GroupOffsets) -> None:
        """For a group without members. Raises ``GroupNotEmpty``, ``OutcomeUnknown``."""
        ...

    def close(self) -> None: ...
