"""What the passes over pauses act through, and what they remember from one to the next."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass, field
from datetime import datetime

from tidegate.connect.ports import ConnectWorkers
from tidegate.connection.control_topics import TopicsOfConnections
from tidegate.connection.live import LiveConnections
from tidegate.connection.observer import Observer
from tidegate.control.topics import TopicsChecked
from tidegate.kafka.model import TopicPartition
from tidegate.kube.ports import Kube
from tidegate.kube.workloads import Workloads
from tidegate.leading.leaders import Leaders
from tidegate.pause.model import (
    Patience,
    Tick,
    Wait,
)
from tidegate.pause.scaler import ScalerMemory
from tidegate.pause.stopper import StopperMemory
from tidegate.resources.pause import (
    PausedPartition,
)
from tidegate.service.metrics import Metrics


@dataclass(frozen=True, slots=True)
class Parts:
    """What the reconciler acts through. ``now``: the wall clock, aware, UTC.

    ``executor`` is for calls of moments, ``patient_executor`` for writing to Kafka, which may take its time,
    ``connect_executor`` for asking Connect's workers, which may take theirs and hold up nothing else.
    """

    kube: Kube
    live: LiveConnections
    observer: Observer
    executor: Executor
    patient_executor: Executor
    now: Callable[[], datetime]
    metrics: Metrics
    tick: Tick
    patience: Patience
    topics: TopicsOfConnections
    workloads: Workloads
    connect: ConnectWorkers
    connect_executor: Executor
    leaders: Leaders


@dataclass(slots=True)
class Memory:
    """What this process knows of one pause beyond the API server and Kafka; losing it costs nothing but a look.

    Times are the loop's clock. ``wrote_s``: when holds were last written or released, or replicas set; only what was
    read after that tells what is held. ``held_s``: when the holds were written that were not seen obeyed yet. ``rows``:
    of the last pass; empty where the status has them all, ``None`` before the first.
    """

    told: set[str] = field(default_factory=set)
    waits: Mapping[TopicPartition, Wait] = field(default_factory=dict)
    rows: tuple[PausedPartition, ...] | None = None
    tick_s: float | None = 0.0
    wrote_s: float = 0.0
    held_s: dict[TopicPartition, float] = field(default_factory=dict)
    lag_s: float | None = None
    refused: TopicsChecked | None = None
    refused_s: float = 0.0
    scaler: ScalerMemory = field(default_factory=ScalerMemory)
    stopper: StopperMemory = field(default_factory=StopperMemory)
    lead_stopped: bool = False
    """Its group was asked not to be led for it any more, by this process."""
    lead_asked: bool = False
    """Its group was asked to be led for it, by this process."""
