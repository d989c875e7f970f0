"""Workloads and KEDA's ScaledObjects in memory; `tests/contract/test_workloads.py` runs against both."""

import itertools
import threading
from dataclasses import dataclass, replace

from tidegate.kube.ports import Conflict, KubeFailure, NotFound
from tidegate.kube.workloads import NotScalable, Scale, ScaledObject
from tidegate.resources.pause import WorkloadRef

SCALABLE = ("Deployment", "StatefulSet", "ReplicationController", "Rollout")


@dataclass(frozen=True)
class _KedaObject:
    seen: ScaledObject
    target: WorkloadRef


class FakeWorkloads:
    """Implements `tidegate.kube.workloads.Workloads`; `create` to `annotate` are what others do. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._versions = itertools.count(1)
        self._scales: dict[tuple[str, WorkloadRef], Scale] = {}
        self._keda: dict[tuple[str, str], _KedaObject] = {}
        self.refusal: KubeFailure | None = None

    # --- others -------------------------------------------------------------------------------------------------------

    def create(self, namespace: str, workload: WorkloadRef, replicas: int) -> None:
        with self._lock:
            version = str(next(self._versions))
            self._scales[namespace, workload] = Scale(f"uid-{version}", version, replicas, 0)

    def change(self, namespace: str, workload: WorkloadRef, replicas: int, running: int = 0) -> None:
        with self._lock:
            scale = self.scale(namespace, workload)
            self._scales[namespace, workload] = replace(
                scale, version=str(next(self._versions)), replicas=replicas, running=running
            )

    def delete(self, namespace: str, workload: WorkloadRef) -> None:
        with self._lock:
            del self._scales[namespace, workload]

    def scale_by_keda(self, namespace: str, name: str, target: WorkloadRef, paused_replicas: str | None = None) -> None:
        with self._lock:
            seen = ScaledObject(name, str(next(self._versions)), paused_replicas)
            self._keda[namespace, name] = _KedaObject(seen, target)

    def annotate(self, namespace: str, name: str, paused_replicas: str | None) -> None:
        with self._lock:
            there = self._keda[namespace, name]
            seen = replace(there.seen, version=str(next(self._versions)), paused_replicas=paused_replicas)
            self._keda[namespace, name] = replace(there, seen=seen)

    # --- the port -----------------------------------------------------------------------------------------------------

    def scale(self, namespace: str, workload: WorkloadRef) -> Scale:
        if workload.kind not in SCALABLE:
            raise NotScalable(f"{workload} has no scale")
        with self._lock:
            found = self._scales.get((namespace, workload))
        if found is None:
            raise NotFound(f"there is no {workload} in {namespace}")
        return found

    def set_replicas(self, namespace: str, workload: WorkloadRef, seen: Scale, replicas: int) -> None:
        if self.refusal is not None:
            raise self.refusal
        with self._lock:
            there = self.scale(namespace, workload)
            if (there.uid, there.version) != (seen.uid, seen.version):
                raise Conflict(f"{workload} was changed")
            self.change(namespace, workload, replicas, there.running)

    def scaled_object(self, namespace: str, workload: WorkloadRef) -> ScaledObject | None:
        with self._lock:
            found = sorted((key, keda.seen) for key, keda in self._keda.items() if keda.target == workload)
        return next((seen for (where, _), seen in found if where == namespace), None)

    def set_paused_replicas(self, namespace: str, seen: ScaledObject, paused_replicas: str | None) -> None:
        with self._lock:
            there = self._keda.get((namespace, seen.name))
            if there is None:
                raise NotFound(f"there is no ScaledObject {seen.name}")
            if there.seen.version != seen.version:
                raise Conflict(f"ScaledObject {seen.name} was changed")
            self.annotate(namespace, seen.name, paused_replicas)
