"""Looks at a pause's workloads, and does what was decided about them."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from tidegate.kube.ports import (
    Conflict,
    Kube,
    KubeFailure,
    KubeUnavailable,
    NotFound,
    namespace_of,
)
from tidegate.kube.workloads import NotScalable, Workloads
from tidegate.pause.model import LookedAt, SetReplicas, TellKeda
from tidegate.pause.others import other_pauses, workloads_of
from tidegate.pause.workloads import WORKLOAD_UNREADABLE
from tidegate.resources.conditions import Refusal
from tidegate.resources.pause import PausePhase, PauseStatus, ScaledWorkload, WorkloadRef

WORKLOAD_NOT_SCALABLE: Final = "WorkloadNotScalable"
_RIGHTS: Final = "; the permissions that scaling needs are in docs/reference/permissions.md"

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class ScalerMemory:
    """What this process knows of a pause's workloads beyond the API server; losing it costs nothing but a look.

    ``zeroed``, ``annotated``: what the last pass has had an answer for. ``refused``: what the API server has refused,
    and when, by the loop's clock.
    """

    zeroed: set[WorkloadRef] = field(default_factory=set)
    annotated: set[WorkloadRef] = field(default_factory=set)
    refused: dict[WorkloadRef, tuple[Refusal, float]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Scaler:
    """Blocking. ``retry_s``: for so long something that was refused is not tried again."""

    kube: Kube
    workloads: Workloads
    retry_s: float

    def look(
        self,
        namespace: str,
        pause_uid: str,
        status: PauseStatus,
        refs: Iterable[WorkloadRef],
        memory: ScalerMemory,
        now_s: float,
        *,
        raises: bool,
    ) -> Mapping[WorkloadRef, LookedAt]:
        """These workloads and, where that matters, what other pauses have recorded of them.

        Raises ``KubeUnavailable`` if ``raises``, and ``Conflict`` when a workload was changed during the look.
        """
        found: dict[WorkloadRef, LookedAt] = {}
        for ref in refs:
            refused = memory.refused.get(ref)
            if refused is not None and now_s - refused[1] < self.retry_s:
                found[ref] = LookedAt(trouble=refused[0])
            else:
                found[ref] = self._look(namespace, ref, raises=raises)
        recorded = {record.ref: record for record in status.workloads}
        if not any(_depends_on_others(recorded.get(ref), looked) for ref, looked in found.items()):
            return {ref: self._with_memory(ref, looked, memory) for ref, looked in found.items()}
        others = self._records_of_others(namespace, pause_uid)
        for ref, looked in found.items():
            found[ref] = self._with_memory(ref, replace(looked, others=tuple(others.get(ref, ()))), memory)
            scale, record = looked.scale, recorded.get(ref)
            is_new = scale is not None and (record is None or record.uid != scale.uid)
            if scale is None or scale.replicas > 0 or not is_new or found[ref].others:
                continue
            # Had another pause just given it back, neither its record nor the replicas would have been seen.
            if self.workloads.scale(namespace, ref).version != scale.version:
                raise Conflict(f"{ref} in {namespace} was changed while the operator looked at it")
        return found

    def do(self, namespace: str, action: SetReplicas | TellKeda, memory: ScalerMemory, now_s: float) -> None:
        """Raises ``KubeUnavailable``: whether it is done is unknown, the next look tells."""
        try:
            match action:
                case SetReplicas(workload, seen, replicas):
                    self.workloads.set_replicas(namespace, workload, seen, replicas)
                    if replicas == 0:
                        memory.zeroed.add(workload)
                    _log.info("%s/%s: from %d replicas to %d", namespace, workload, seen.replicas, replicas)
                case TellKeda(workload, keda, paused_replicas):
                    self.workloads.set_paused_replicas(namespace, keda, paused_replicas)
                    memory.annotated.add(workload)
                    _log.info("%s/ScaledObject %s: paused replicas %s", namespace, keda.name, paused_replicas)
            memory.refused.pop(action.workload, None)
        except (Conflict, NotFound) as error:
            _log.debug("%s; looking again", error)
        except KubeUnavailable:
            raise
        except KubeFailure as failure:
            memory.refused[action.workload] = Refusal(WORKLOAD_UNREADABLE, f"{failure}{_RIGHTS}"), now_s
            _log.warning("%s", failure)

    def _look(self, namespace: str, ref: WorkloadRef, *, raises: bool) -> LookedAt:
        try:
            return LookedAt(
                scale=self.workloads.scale(namespace, ref), scaled_object=self.workloads.scaled_object(namespace, ref)
            )
        except NotFound:
            return LookedAt()
        except NotScalable as error:
            return LookedAt(trouble=Refusal(WORKLOAD_NOT_SCALABLE, f"{error}: look at apiVersion and kind"))
        except KubeUnavailable as error:
            if raises:
                raise
            return LookedAt(trouble=Refusal(WORKLOAD_UNREADABLE, str(error)))
        except KubeFailure as failure:
            return LookedAt(trouble=Refusal(WORKLOAD_UNREADABLE, f"{failure}{_RIGHTS}"))

    def _with_memory(self, ref: WorkloadRef, looked: LookedAt, memory: ScalerMemory) -> LookedAt:
        return replace(looked, zeroed=ref in memory.zeroed, annotated=ref in memory.annotated)

    def _records_of_others(self, namespace: str, pause_uid: str) -> Mapping[WorkloadRef, list[ScaledWorkload]]:
        others: dict[WorkloadRef, list[ScaledWorkload]] = {}
        for body in other_pauses(self.kube, pause_uid):
            if namespace_of(body) == namespace:
                for record in workloads_of(body):
                    others.setdefault(record.ref, []).append(record)
        return others


def _depends_on_others(record: ScaledWorkload | None, looked: LookedAt) -> bool:
    """Whether it is about to be recorded, or to go back."""
    if looked.scale is None:
        return False
    return record is None or record.uid != looked.scale.uid or record.phase is PausePhase.RESUMING
