"""What there is to see at a moment: partitions, the run, events. Values only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from demo.cluster import KubeEvent
from support.deliveries import Partition


@dataclass(frozen=True, slots=True)
class Row:
    """One partition. ``position``: the offset after the newest record its owner was given; ``None``: not known yet."""

    partition: Partition
    owner: str | None
    committed: int | None
    position: int | None
    end: int
    target: int | None
    is_paused: bool = False

    @property
    def lag(self) -> int | None:
        """Records the owner has not been given yet."""
        return None if self.position is None else max(0, self.end - self.position)


@dataclass(frozen=True, slots=True)
class PhaseStart:
    """A phase of a run, and how many seconds after its resource was applied it began."""

    phase: str
    after_s: float


@dataclass(frozen=True, slots=True)
class RunPicture:
    """A run as its resource and its stored document tell it. ``phase``: ``status.reset.phase``."""

    run_id: str
    applied_at: datetime
    phase: str = ""
    engine: str = ""
    way: str = ""
    application: str = ""
    message: str = ""
    phases: tuple[PhaseStart, ...] = ()
    targets: Mapping[Partition, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Picture:
    """All of it."""

    headline: str = ""
    rows: Sequence[Row] = ()
    run: RunPicture | None = None
    happenings: Sequence[KubeEvent] = ()
    consumers: Mapping[str, int] = field(default_factory=dict)
    """Process id by member."""
