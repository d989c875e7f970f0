"""What mirrors are looked after through."""

from __future__ import annotations

from collections.abc import Callable, Collection
from concurrent.futures import Executor
from dataclasses import dataclass

from tidegate.clock import Clock
from tidegate.connection.live import LiveConnections
from tidegate.kafka.connection import Connection
from tidegate.kube.ports import Kube, Object
from tidegate.mirror.ports import MirrorCluster
from tidegate.offset_mirror.jobs import JobParts
from tidegate.offset_mirror.metrics import MirrorMetrics
from tidegate.service.metrics import Metrics


@dataclass(frozen=True, slots=True)
class Parts:
    """What the reconciler acts through. ``open_cluster``: connections of a mirror's own, to the cluster of that id;
    ``mirrors``: all OffsetMirrors that are known; ``may_write``: whether it is this process's turn, from any thread;
    ``jobs``: for mirrors whose engine is Spark."""

    kube: Kube
    live: LiveConnections
    open_cluster: Callable[[Connection, str], MirrorCluster]
    mirrors: Callable[[], Collection[Object]]
    may_write: Callable[[], bool]
    jobs: JobParts
    executor: Executor
    patient_executor: Executor
    clock: Clock
    metrics: Metrics
    of_mirrors: MirrorMetrics
    active_tick_s: float
    idle_tick_s: float
    look_s: float = 1.0
    """How often the ends of the source's logs are asked for, for all partitions of a mirror at once."""
