"""What was seen of a cluster and of each of its groups, twice where two looks were asked for. Values only.

The order of reading makes each comparison hold: in both looks a group's offsets are read before the ends of its logs,
and the second look begins once the first one has ended.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from tidegate.kafka.capabilities import Capabilities
from tidegate.kafka.model import Cluster, Group, ListedGroup, LogBounds, Offsets, Subscription, Topic, TopicPartition
from tidegate.kafka.offset_expiry import RetentionSettings
from tidegate.kafka.offset_records import GroupLog
from tidegate.reset.planning.checks import LeftByStreams

Bounds = Mapping[TopicPartition, LogBounds]
"""Of partitions whose leaders told; what is absent was not seen."""


@dataclass(frozen=True, slots=True)
class ClusterSeen:
    """``settings``: of each broker, empty where they may not be read. ``capabilities``: by what the brokers say."""

    at: datetime
    cluster: Cluster
    topics: Mapping[str, Topic]
    capabilities: Capabilities = field(default_factory=dict)
    settings: Sequence[Mapping[str, str]] = ()

    def numbers(self, name: str) -> tuple[int, ...]:
        """What the brokers have as a whole number under this name, each value once, the least first."""
        told = {settings.get(name, "") for settings in self.settings}
        return tuple(sorted(int(text) for text in told if text.lstrip("-").isdigit()))

    @property
    def retention(self) -> RetentionSettings | None:
        """The shortest of any broker; ``None``: not known."""
        minutes = self.numbers("offsets.retention.minutes")
        intervals = self.numbers("offsets.retention.check.interval.ms")
        if not minutes or not intervals:
            return None
        return RetentionSettings.of_minutes(minutes[0], intervals[-1])


@dataclass(frozen=True, slots=True)
class Before:
    """A group's offsets at the first look, how its logs ended then, and how many seconds the second came later."""

    committed: Offsets
    bounds: Bounds
    seconds: float


@dataclass(frozen=True, slots=True)
class GroupSeen:
    """One group at the last look.

    ``group`` is ``None`` where its kind can't be described, such as Connect's workers. ``listed`` is from the
    beginning, so its state is the earlier one. ``before`` is ``None`` where the group was looked at once. ``log``: what
    the coordinator's log says of it, ``None`` where that was not read. ``left``: what Kafka Streams has left of it,
    where it has no members.
    """

    listed: ListedGroup
    group: Group | None = None
    committed: Offsets = field(default_factory=dict)
    bounds: Bounds = field(default_factory=dict)
    before: Before | None = None
    subscriptions: Mapping[str, Subscription] = field(default_factory=dict)
    log: GroupLog | None = None
    left: LeftByStreams | None = None

    @property
    def group_id(self) -> str:
        return self.listed.group_id

    def moved(self, partition: TopicPartition) -> bool:
        """Whether its committed offset is another one than at the first look."""
        return self.before is not None and self.before.committed.get(partition) != self.committed.get(partition)

    def grown(self, partition: TopicPartition) -> int:
        """By how many offsets the log has grown between the looks; 0 where that was not seen."""
        then = self.before.bounds.get(partition) if self.before is not None else None
        now = self.bounds.get(partition)
        return 0 if then is None or now is None else max(0, now.latest - then.latest)
