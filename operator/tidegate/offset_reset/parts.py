"""What a pass over a resource that asks for resets acts through, and what this process remembers between passes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final

from tidegate.clock import Clock
from tidegate.cluster import Kafka
from tidegate.connection.live import LiveConnections
from tidegate.connection.observer import Observer
from tidegate.jobs.runner import Runner
from tidegate.jobs.settings import SparkSettings
from tidegate.kafka.connection import Connection
from tidegate.kube.ports import (
    Kube,
    Object,
    uid_of,
)
from tidegate.reset.model.result import RunResult
from tidegate.reset.store import RunStore
from tidegate.resources.reset import Engine
from tidegate.service.metrics import Metrics

_TRIED_AT_LEAST: Final = timedelta(seconds=30)

OpenStore = Callable[[str, str, Mapping[str, Any] | None], RunStore]
"""(namespace, name, owner reference)"""


@dataclass(frozen=True, slots=True)
class Parts:
    """What the reconciler acts through. ``runners``: those that this operator has; ``Auto`` is none of them.

    ``executor`` is for calls of moments, ``patient_executor`` for taking runs over. ``mounts_secrets``: Spark jobs run
    in pods, which get the connection's Secrets mounted. ``approvals``: all ``OffsetResetApproval``s that are known;
    ``separate_approver``: whoever has asked for a reset may not approve it. ``undo_kept``: how long a reset can be
    undone after its resource was deleted; 0: not at all.
    """

    kube: Kube
    live: LiveConnections
    observer: Observer
    open_store: OpenStore
    open_kafka: Callable[[Connection], Kafka]
    runners: Mapping[Engine, Runner]
    executor: Executor
    patient_executor: Executor
    clock: Clock
    metrics: Metrics
    spark: SparkSettings
    mounts_secrets: bool
    active_tick_s: float
    idle_tick_s: float
    deletion_limit: timedelta
    max_launches: int
    approvals: Callable[[], Collection[Object]]
    separate_approver: bool
    undo_kept: timedelta = timedelta(0)


@dataclass(slots=True)
class Memory:
    """What this process knows of a resource beyond the API server; losing it costs nothing but a look."""

    told: set[str] = field(default_factory=set)
    launched: set[str] = field(default_factory=set)
    dead: str = ""
    died_at: datetime | None = None
    fenced: int = 0
    trouble: str = ""
    forged: str = ""
    """Why what the run under way goes by is forged, where an effect has found that out."""
    halted: bool = False
    """Whether all work of the run was ended."""
    unhalted: str = ""
    """Why a brief try at that failed."""
    taking_over: asyncio.Future[RunResult] | None = None
    deletion_seen: datetime | None = None
    """When it was first seen to be deleted."""

    def deletion_began(self, at: datetime, now: datetime, limit: timedelta) -> datetime:
        """When the time began that a deletion may take, of one that was asked for ``at``. Where no operator was there
        meanwhile, or this one's clock is ahead, it would be given up before anything was tried: so there are some
        seconds of it left when it is first seen."""
        self.deletion_seen = min(self.deletion_seen or now, now)
        return max(at, self.deletion_seen + min(limit, _TRIED_AT_LEAST) - limit)


class Memories:
    """Of each resource, what this process remembers."""

    def __init__(self) -> None:
        self._by_uid: dict[str, Memory] = {}

    def of(self, body: Object) -> Memory:
        return self._by_uid.setdefault(uid_of(body), Memory())

    def forget(self, uid: str) -> None:
        self._by_uid.pop(uid, None)
