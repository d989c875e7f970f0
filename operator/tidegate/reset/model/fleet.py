"""A fleet: which groups it is of, what is planned for each, and how many have ended how."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from tidegate.reset.model.plan import PartitionPlan
from tidegate.resources.reset import Way


@dataclass(frozen=True, slots=True)
class Roster:
    """A fleet's groups, sorted, as they were at ``at``, which is also the time their plans count from.

    ``notes``: what was left out, sentences for a person without a full stop.
    """

    at: datetime
    groups: tuple[str, ...]
    notes: tuple[str, ...] = ()


def span(parts: Iterable[PartitionPlan | GroupPlan]) -> tuple[datetime | None, datetime | None]:
    """The earliest and the latest of the times that are known."""
    parts = tuple(parts)
    starts = [p.span_from for p in parts if p.span_from is not None]
    ends = [p.span_to for p in parts if p.span_to is not None]
    return min(starts, default=None), max(ends, default=None)


@dataclass(frozen=True, slots=True)
class GroupPlan:
    """One group's plan in numbers, or ``refused``: why it has none (PascalCase), which ``message`` explains."""

    group_id: str
    partitions: int = 0
    moved: int = 0
    clamped: int = 0
    records_replayed: int = 0
    records_skipped: int = 0
    span_from: datetime | None = None
    span_to: datetime | None = None
    way: Way | None = None
    refused: str = ""
    message: str = ""
    digest: str = ""
    """Of the group's own run (``tidegate.reset.binding.digest_of``), which is the only one that is carried out."""


@dataclass(frozen=True, slots=True)
class FleetPlan:
    """What is approved: every group of the roster, in its order. Each group's own document has its targets."""

    run_id: str
    made_at: datetime
    groups: tuple[GroupPlan, ...]
    notes: tuple[str, ...] = ()

    @property
    def digests(self) -> dict[str, str]:
        """Of the groups that have a plan."""
        return {g.group_id: g.digest for g in self.groups if not g.refused}

    @property
    def planned(self) -> tuple[str, ...]:
        return tuple(g.group_id for g in self.groups if not g.refused)

    @property
    def refused(self) -> tuple[GroupPlan, ...]:
        return tuple(g for g in self.groups if g.refused)

    @property
    def partitions(self) -> int:
        return sum(g.partitions for g in self.groups)

    @property
    def unchanged(self) -> int:
        return self.partitions - self.moved

    @property
    def moved(self) -> int:
        return sum(g.moved for g in self.groups)

    @property
    def clamped(self) -> int:
        return sum(g.clamped for g in self.groups)

    @property
    def records_replayed(self) -> int:
        return sum(g.records_replayed for g in self.groups)

    @property
    def records_skipped(self) -> int:
        return sum(g.records_skipped for g in self.groups)


@dataclass(frozen=True, slots=True)
class GroupTrouble:
    """Why one group of a fleet was not reset."""

    group_id: str
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class FleetCounts:
    """A fleet's groups by outcome; those not yet ended are in none. ``troubles``: the first of those not reset."""

    reset: int = 0
    failed: int = 0
    put_back: int = 0
    troubles: tuple[GroupTrouble, ...] = ()
    not_begun: int = 0
    """Because a rollout in waves had stopped before them."""
