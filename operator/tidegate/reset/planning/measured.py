"""What was read of the cluster for a plan, and what a target came to in it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tidegate.kafka.model import LogBounds, Offsets, TopicPartition
from tidegate.reset.model.plan import PartitionPlan
from tidegate.reset.model.targets import Findings
from tidegate.reset.planning.targets import NoAim


@dataclass(frozen=True, slots=True)
class Measured:
    """What was read of the partitions in scope.

    ``found``: answers of ``offsets_at`` for the asked time; empty for targets that ask for none. ``findings``: for
    targets for which records were read.
    """

    committed: Offsets
    bounds: Mapping[TopicPartition, LogBounds]
    found: Mapping[TopicPartition, int | None] = field(default_factory=dict)
    other: Offsets | None = None
    findings: Findings | None = None
    ends: Mapping[TopicPartition, int | None] = field(default_factory=dict)
    """As ``found``, for the time at which a replay ends."""


@dataclass(frozen=True, slots=True)
class Aimed:
    """Each partition of the scope is in one of both."""

    partitions: tuple[PartitionPlan, ...]
    without: Mapping[NoAim, tuple[TopicPartition, ...]]
