"""What a pass over a policy acts through."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass

from tidegate.clock import Clock
from tidegate.connection.live import LiveConnections
from tidegate.kube.ports import Kube, Object
from tidegate.service.metrics import Metrics


@dataclass(frozen=True, slots=True)
class Parts:
    """``executor``: for calls of moments, ``patient_executor``: for those that ask Kafka.

    ``told_of_reset``: the OffsetReset of a namespace and name as a watch has told of it last; ``None``: of none.
    """

    kube: Kube
    live: LiveConnections
    executor: Executor
    patient_executor: Executor
    clock: Clock
    metrics: Metrics
    told_of_reset: Callable[[str, str], Object | None] = lambda _namespace, _name: None
