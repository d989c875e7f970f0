"""What a pass over a policy acts through."""

from __future__ import annotations

from concurrent.futures import Executor
from dataclasses import dataclass

from tidegate.clock import Clock
from tidegate.connection.live import LiveConnections
from tidegate.kube.ports import Kube
from tidegate.service.metrics import Metrics


@dataclass(frozen=True, slots=True)
class Parts:
    """``executor``: for calls of moments, ``patient_executor``: for those that ask Kafka."""

    kube: Kube
    live: LiveConnections
    executor: Executor
    patient_executor: Executor
    clock: Clock
    metrics: Metrics
