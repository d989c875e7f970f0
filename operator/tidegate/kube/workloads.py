"""What Tidegate needs of workloads: their scale subresource, whatever their kind, and KEDA's say in it.

All calls block and are bounded in time; failures are subclasses of ``tidegate.kube.ports.KubeFailure`` only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Protocol

from tidegate.kube.ports import KubeFailure
from tidegate.resources.pause import WorkloadRef

KEDA_PAUSED_REPLICAS: Final = "autoscaling.keda.sh/paused-replicas"
"""KEDA scales to this many replicas, and not at all otherwise, while a ScaledObject has the annotation."""


class NotScalable(KubeFailure):
    """The API server does not know such a kind, or the kind has no scale subresource."""


@dataclass(frozen=True, slots=True)
class Scale:
    """``autoscaling/v1`` Scale. ``replicas`` are asked for (``spec``), ``running`` are there (``status``)."""

    uid: str
    version: str
    replicas: int
    running: int


@dataclass(frozen=True, slots=True)
class ScaledObject:
    """``keda.sh/v1alpha1`` ScaledObject. ``paused_replicas``: its annotation; ``None``: it has none."""

    name: str
    version: str
    paused_replicas: str | None


class Workloads(Protocol):
    def scale(self, namespace: str, workload: WorkloadRef) -> Scale:
        """Raises ``NotFound``, ``NotScalable``."""
        ...

    def set_replicas(self, namespace: str, workload: WorkloadRef, seen: Scale, replicas: int) -> None:
        """Raises ``Conflict`` unless the workload is as it was ``seen``, and ``NotFound``, ``NotScalable``."""
        ...

    def scaled_object(self, namespace: str, workload: WorkloadRef) -> ScaledObject | None:
        """KEDA's ScaledObject that scales this workload, if KEDA is there and has one."""
        ...

    def set_paused_replicas(self, namespace: str, seen: ScaledObject, paused_replicas: str | None) -> None:
        """Set its annotation, or take it away. Raises ``Conflict`` unless it is as ``seen``, and ``NotFound``."""
        ...
