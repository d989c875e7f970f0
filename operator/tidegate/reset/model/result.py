"""How far a run has come, in one word, and how it ended."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from tidegate.reset.model.fleet import FleetCounts
from tidegate.reset.model.targets import PartitionOffset
from tidegate.resources.reset import ResetPhase, Way


@dataclass(frozen=True, slots=True)
class Standstill:
    """Seconds from the moment a partition's owner was made to let go until it had the partition again, by partition."""

    p50_s: float
    max_s: float


MAX_UNREAD = 10
"""Partitions that a result names of those it counts as waiting."""


@dataclass(frozen=True, slots=True)
class RunResult:
    """How a run ended. ``phase`` is final. ``reason`` is PascalCase, for the condition."""

    phase: ResetPhase
    reason: str
    message: str
    finished_at: datetime
    way: Way | None = None
    rounds: int = 0
    redone: int = 0
    """Partitions that had to be done again because an owner overwrote the target, or may have while Kafka was away or
    the run had no writer; by all its writers."""
    standstill: Standstill | None = None
    begun: int | None = None
    """Partitions whose owners are known to go on from the target: by a commit beyond it, or by the agent's word."""
    waiting: int | None = None
    """Partitions that have an owner and records to read, of which that was not known yet when the run ended.

    Both are ``None`` where a run has not succeeded, or could not look.
    """
    unread: tuple[str, ...] = ()
    """The first ``MAX_UNREAD`` of those, each with its owner, as people read it; in a fleet with its group."""
    before: tuple[PartitionOffset, ...] = ()
    counts: FleetCounts | None = None
    ends: tuple[tuple[str, str], ...] = ()
    """Of a fleet: by group, the digest of how its run ended (``tidegate.reset.binding.digest_of_end``)."""
