"""What a reset of one group would do, partition by partition."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum

from tidegate.kafka.model import TopicPartition
from tidegate.kafka.numbers import Offset, PartitionNumber
from tidegate.resources.reset import Way


class Clamped(StrEnum):
    """The asked offset was outside the log and was moved to the named end of it."""

    EARLIEST = "Earliest"
    LATEST = "Latest"


@dataclass(frozen=True, slots=True)
class PartitionPlan:
    """One partition: where the group is, where it would go, and what lies between.

    ``committed`` is ``None`` without a commit; then nothing is counted as replayed or skipped.
    ``span_from`` and ``span_to`` are the timestamps of the records at the lower and the upper end of the range that
    would be replayed or skipped, where they were looked up and exist.

    ``end``: where a replay ends, the offset of the first record that is not read in it. ``returns``: the group goes on
    where it was before then, so that nothing from ``end`` on is read again.
    """

    topic: str
    partition: PartitionNumber
    topic_id: str
    committed: Offset | None
    target: Offset
    earliest: Offset
    latest: Offset
    clamped: Clamped | None = None
    span_from: datetime | None = None
    span_to: datetime | None = None
    end: Offset | None = None
    returns: bool = False

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    @property
    def moves(self) -> bool:
        return self.committed != self.target

    @property
    def replayed(self) -> int:
        """Records (offsets) that would be read again."""
        if self.returns and self.end is not None:
            return max(0, self.end - self.target)
        return max(0, self.committed - self.target) if self.committed is not None else 0

    @property
    def skipped(self) -> int:
        """Records (offsets) that would never be read."""
        return max(0, self.target - self.committed) if self.committed is not None else 0


@dataclass(frozen=True, slots=True)
class Plan:
    """Targets with their evidence. Sorted by topic and partition. ``notes`` are sentences for a person."""

    run_id: str
    group_id: str
    made_at: datetime
    partitions: tuple[PartitionPlan, ...]
    way: Way | None = None
    notes: tuple[str, ...] = ()

    @property
    def targets(self) -> dict[TopicPartition, int]:
        return {p.topic_partition: p.target for p in self.partitions}

    @property
    def ends(self) -> dict[TopicPartition, int]:
        """Where the replay of each partition ends; empty where it does not."""
        return {p.topic_partition: p.end for p in self.partitions if p.end is not None}

    def from_offsets(self, before: Mapping[TopicPartition, int]) -> Plan:
        """The same targets from where the group stood when it was moved. It had read on since the plan was made."""
        partitions = tuple(replace(p, committed=before.get(p.topic_partition, p.committed)) for p in self.partitions)
        return replace(self, partitions=partitions)

    @property
    def moved(self) -> int:
        return sum(p.moves for p in self.partitions)

    @property
    def unchanged(self) -> int:
        return sum(not p.moves for p in self.partitions)

    @property
    def clamped(self) -> int:
        return sum(p.clamped is not None for p in self.partitions)

    @property
    def records_replayed(self) -> int:
        return sum(p.replayed for p in self.partitions)

    @property
    def records_skipped(self) -> int:
        return sum(p.skipped for p in self.partitions)
