"""The nouns of a Kafka cluster as Tidegate sees them: values only, no I/O.

Offsets are record positions (``int >= 0``); times are aware UTC ``datetime``s. The names are Kafka's own
(``org.apache.kafka.common.TopicPartition``, ``ConsumerGroupDescription``, ``MemberDescription``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum


@dataclass(frozen=True, slots=True, order=True)
class TopicPartition:
    """One partition of one topic."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic as the broker describes it; ``topic_id`` (KIP-516) tells a recreated topic from the one before."""

    name: str
    topic_id: str
    partitions: int

    def all_partitions(self) -> tuple[TopicPartition, ...]:
        return tuple(TopicPartition(self.name, p) for p in range(self.partitions))


@dataclass(frozen=True, slots=True)
class Range:
    """Offsets of one partition from ``start`` on, ``end`` excluded."""

    start: int
    end: int

    @property
    def size(self) -> int:
        return self.end - self.start


@dataclass(frozen=True, slots=True)
class LogBounds:
    """Where a partition's log begins and ends: the first readable offset, and the one the next record will get.

    ``latest`` is the high watermark (isolation level read_uncommitted), as ``kafka-consumer-groups`` uses it.
    """

    earliest: int
    latest: int

    def clamp(self, offset: int) -> int:
        return min(max(offset, self.earliest), self.latest)


@dataclass(frozen=True, slots=True)
class Committed:
    """A commit as OffsetFetch tells it. ``leader_epoch``: KIP-320's, where the committer told one."""

    offset: int
    leader_epoch: int | None = None
    metadata: str = ""


@dataclass(frozen=True, slots=True)
class RecordHead:
    """What may be told of a record without telling what is in it. ``size``: bytes of key and value. ``at``: its
    timestamp; ``None`` where it has none, or one that no calendar has. ``headers``: how many; ``None`` where a name of
    theirs is not UTF-8."""

    offset: int
    at: datetime | None
    size: int
    headers: int | None


@dataclass(frozen=True, slots=True)
class Record:
    """A record as a reader is given it, decompressed. ``at_ms``: its timestamp in epoch milliseconds, −1 where it has
    none; ``headers``: in their order, and names may repeat. What is in it is in no ``repr``."""

    offset: int
    at_ms: int
    key: bytes | None = field(default=None, repr=False)
    value: bytes | None = field(default=None, repr=False)
    headers: tuple[tuple[str, bytes | None], ...] = field(default=(), repr=False)

    @property
    def size(self) -> int:
        """Bytes of key, value and headers."""
        names = sum(len(name.encode()) + len(value or b"") for name, value in self.headers)
        return len(self.key or b"") + len(self.value or b"") + names


@dataclass(frozen=True, slots=True)
class Keeping:
    """For how long a topic keeps records. ``retention_ms``: since a record's timestamp, −1 without a limit;
    ``by_append_time``: the broker sets the timestamps."""

    is_compacted: bool = False
    retention_ms: int = -1
    by_append_time: bool = False


class GroupType(StrEnum):
    """``org.apache.kafka.common.GroupType``; ``SIMPLE`` is a group that has offsets and never had members."""

    CLASSIC = "classic"
    CONSUMER = "consumer"
    STREAMS = "streams"
    SHARE = "share"
    SIMPLE = "simple"
    UNKNOWN = "unknown"


class GroupState(StrEnum):
    """``org.apache.kafka.common.GroupState``."""

    EMPTY = "Empty"
    DEAD = "Dead"
    STABLE = "Stable"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    UNKNOWN = "Unknown"

    @property
    def is_rebalancing(self) -> bool:
        """A classic group is, and so does not tell who owns what."""
        return self in (GroupState.PREPARING_REBALANCE, GroupState.COMPLETING_REBALANCE)


@dataclass(frozen=True, slots=True)
class Member:
    """A member of a group.

    For KIP-848 members ``assignment`` includes what is still being revoked since Kafka 4.3; before, that is nobody's
    until its next owner has it (``ConsumerGroupMember.asConsumerGroupDescribeMember``).
    """

    member_id: str
    client_id: str
    host: str
    group_instance_id: str | None = None
    assignment: frozenset[TopicPartition] = frozenset()

    @property
    def is_static(self) -> bool:
        return self.group_instance_id is not None


@dataclass(frozen=True, slots=True)
class Group:
    """A consumer group as its coordinator describes it. A group nobody knows is ``DEAD`` without members."""

    group_id: str
    state: GroupState
    type: GroupType
    assignor: str = ""
    members: tuple[Member, ...] = ()

    @property
    def has_members(self) -> bool:
        return bool(self.members)

    @property
    def is_vacant(self) -> bool:
        """Nobody can act on old offsets: the group is Empty or Dead, or was never joined."""
        return self.state in (GroupState.EMPTY, GroupState.DEAD) and not self.members

    def owner(self, partition: TopicPartition) -> Member | None:
        return next((m for m in self.members if partition in m.assignment), None)

    def hidden(self, partitions: Iterable[TopicPartition]) -> frozenset[TopicPartition]:
        """Those that seem to be nobody's and may be somebody's: the group is moving its partitions."""
        if not self.members or self.state is GroupState.STABLE:
            return frozenset()
        return frozenset(p for p in partitions if self.owner(p) is None)

    @property
    def assigned(self) -> frozenset[TopicPartition]:
        """All partitions that its members have."""
        return frozenset(p for m in self.members for p in m.assignment)

    def owners(self, partitions: frozenset[TopicPartition]) -> tuple[Member, ...]:
        return tuple(m for m in self.members if m.assignment & partitions)


@dataclass(frozen=True, slots=True)
class ListedGroup:
    """A row of ListGroups. ``type`` is in small letters; ``type`` and ``state`` are empty from old brokers."""

    group_id: str
    protocol_type: str
    type: str
    state: str


@dataclass(frozen=True, slots=True)
class Subscription:
    """What a member of a classic group says of itself as it joins (``ConsumerProtocolSubscription``).

    ``owned``: the partitions that it has, which an eager member names none of (KIP-429); ``generation``: the one in
    which it got them (KIP-792), −1 where that is not told. ``user_data``: what its assignor adds, not read.
    """

    topics: frozenset[str]
    owned: frozenset[TopicPartition] = frozenset()
    generation: int = -1
    version: int = 0
    user_data: bytes | None = None


@dataclass(frozen=True, slots=True)
class Generation:
    """A generation of a classic group, as one of its members learns it when it has joined.

    ``subscriptions``: of the other members, by member id; told to the leader only.
    """

    number: int
    leader_id: str
    subscriptions: Mapping[str, Subscription]


@dataclass(frozen=True, slots=True)
class Seat:
    """A place in a classic group that outlives a process: whoever knows it goes on as the same member."""

    member_id: str
    generation: int
    assignor: str


@dataclass(frozen=True, slots=True)
class Broker:
    node_id: int
    host: str
    port: int


@dataclass(frozen=True, slots=True)
class Features:
    """What the brokers can do: consumer protocol (KIP-848), streams protocol (KIP-1071), native pause (KIP-1249)."""

    consumer_protocol: bool = False
    streams_protocol: bool = False
    native_pause: bool = False


@dataclass(frozen=True, slots=True)
class Cluster:
    """The cluster behind a connection."""

    cluster_id: str
    brokers: tuple[Broker, ...]
    features: Features = field(default_factory=Features)


Offsets = Mapping[TopicPartition, int]
"""Offsets by partition."""
