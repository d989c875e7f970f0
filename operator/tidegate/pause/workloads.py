"""Which workloads go to 0 replicas and back, step by step. Pure.

What a workload goes back to is recorded in the pause's status before anything is done to it, so a process may die
between any two steps. A record's phase: ``Pausing`` until its replicas were seen at 0, ``Paused`` from then on,
``Degraded`` while somebody else sets them again and again, ``Resuming`` from the moment it is to go back.

Several pauses may name one workload. It goes back when the last one lets go: who lets go writes ``Resuming`` first and
looks at the others' records then, so of two that let go at once at least the later sees the earlier. Who comes while
it is at 0 takes over what the others have recorded. Only pauses with the finalizer count: another one may vanish.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from tidegate.kube.ports import EventType, KubeEvent
from tidegate.kube.workloads import Scale, ScaledObject
from tidegate.pause.model import LookedAt, Seen, SetReplicas, TellKeda
from tidegate.resources.conditions import Refusal
from tidegate.resources.pause import PausedScaledObject, PausePhase, ScaledWorkload, WorkloadRef

WORKLOAD_NOT_FOUND: Final = "WorkloadNotFound"
WORKLOAD_UNREADABLE: Final = "WorkloadUnreadable"
SCALING_DOWN: Final = "ScalingDown"
SCALING_BACK: Final = "ScalingBack"

MOST_SCALE_DOWNS: Final = 4
WITHIN: Final = timedelta(hours=1)
"""So often within this time a workload is set to 0, and not more often, whoever sets it to something else."""

_ZERO: Final = "0"


@dataclass(frozen=True, slots=True)
class Step:
    """What the workloads need next. ``records`` go to the status before ``action`` is done.

    ``is_down``: all replicas are 0 and none is there any more. ``troubles``: why some workloads can't be seen.
    """

    records: tuple[ScaledWorkload, ...]
    action: SetReplicas | TellKeda | None = None
    happenings: tuple[KubeEvent, ...] = ()
    troubles: tuple[Refusal, ...] = ()
    is_down: bool = False

    @property
    def contested(self) -> tuple[ScaledWorkload, ...]:
        """The workloads that somebody else scales up again and again."""
        return tuple(record for record in self.records if record.phase is PausePhase.DEGRADED)


# --- to 0 -------------------------------------------------------------------------------------------------------------


def take_down(seen: Seen, workloads: Iterable[WorkloadRef]) -> Step:
    """To 0 with these workloads, and back with those that the status names beside them."""
    left = {record.ref: record for record in seen.status.workloads}
    records: list[ScaledWorkload] = []
    troubles: list[Refusal] = []
    actions: list[tuple[ScaledWorkload, SetReplicas | TellKeda]] = []
    is_down = True
    for workload in workloads:
        record = left.pop(workload, None)
        looked = seen.workloads.get(workload, LookedAt())
        trouble = looked.trouble
        if trouble is None and looked.scale is None and record is None:
            trouble = Refusal(WORKLOAD_NOT_FOUND, f"there is no {workload} ({workload.api_version}) in this namespace")
        if trouble is not None:
            troubles.append(trouble)
            is_down = False
        elif looked.scale is not None:
            record = _kept_down(seen.now, workload, record, looked, looked.scale)
            is_down &= record.phase is PausePhase.PAUSED and looked.scale.running == 0
            if record.phase is PausePhase.PAUSING:
                actions.append((record, _down(workload, looked, looked.scale)))
        # Otherwise it was deleted, and nothing of it runs.
        if record is not None:
            records.append(record)
    back = give_back(seen, left.values())
    record_and_action = actions[0] if actions and not troubles else None
    return Step(
        records=(*records, *back.records),
        action=back.action if record_and_action is None else record_and_action[1],
        happenings=back.happenings if record_and_action is None else _scaling_down(seen, *record_and_action),
        troubles=(*troubles, *back.troubles),
        is_down=is_down,
    )


def _kept_down(
    now: datetime, workload: WorkloadRef, record: ScaledWorkload | None, looked: LookedAt, scale: Scale
) -> ScaledWorkload:
    keda = looked.scaled_object
    if record is None or record.uid != scale.uid:
        return _first_record(workload, looked, scale)
    keeps_away = keda is None or keda.paused_replicas == _ZERO
    if scale.replicas == 0 and keeps_away:
        if record.phase is PausePhase.PAUSED:
            return record
        record = record.model_copy(update={"scaled_object": _recorded(record.scaled_object, keda)})
        is_ours = record.phase is PausePhase.PAUSING and record.replicas > 0
        return (_counted(record, now) if is_ours else record).model_copy(update={"phase": PausePhase.PAUSED})
    was_undone = record.phase in (PausePhase.PAUSED, PausePhase.DEGRADED)
    if (looked.zeroed and scale.replicas > 0) or (looked.annotated and not keeps_away):
        was_undone, record = True, _counted(record, now)
    # What somebody asks for meanwhile is what it goes back to; but where KEDA scales, that number is only its first.
    has_been_down = was_undone or record.scaled_down > 0
    is_kept = scale.replicas == 0 or (has_been_down and keda is not None)
    is_contested = (
        was_undone
        and record.scaled_down >= MOST_SCALE_DOWNS
        and record.scaled_down_at is not None
        and now - record.scaled_down_at < WITHIN
    )
    return record.model_copy(
        update={
            "phase": PausePhase.DEGRADED if is_contested else PausePhase.PAUSING,
            "replicas": record.replicas if is_kept else scale.replicas,
            "scaled_object": _recorded(record.scaled_object, keda),
        }
    )


def _first_record(workload: WorkloadRef, looked: LookedAt, scale: Scale) -> ScaledWorkload:
    """What it goes back to. At 0 for another pause, it goes back to what that one has recorded."""
    other = next((other for other in looked.others if other.uid == scale.uid), None)
    return ScaledWorkload(
        api_version=workload.api_version,
        kind=workload.kind,
        name=workload.name,
        uid=scale.uid,
        phase=PausePhase.PAUSING,
        replicas=other.replicas if other is not None and scale.replicas == 0 else scale.replicas,
        scaled_object=_recorded(other.scaled_object if other is not None else None, looked.scaled_object),
    )


def _recorded(record: PausedScaledObject | None, keda: ScaledObject | None) -> PausedScaledObject | None:
    """What is to be put back: as recorded while our own word stands there, and otherwise what stands there."""
    if keda is None or (record is not None and record.name == keda.name and keda.paused_replicas == _ZERO):
        return record
    return PausedScaledObject(name=keda.name, paused_replicas=keda.paused_replicas)


def _counted(record: ScaledWorkload, now: datetime) -> ScaledWorkload:
    is_new = record.scaled_down_at is None or now - record.scaled_down_at >= WITHIN
    count = 1 if is_new else record.scaled_down + 1
    return record.model_copy(update={"scaled_down": count, "scaled_down_at": now.replace(microsecond=0)})


def _down(workload: WorkloadRef, looked: LookedAt, scale: Scale) -> SetReplicas | TellKeda:
    """KEDA first: otherwise it would scale up again."""
    keda = looked.scaled_object
    if keda is not None and keda.paused_replicas != _ZERO:
        return TellKeda(workload, keda, _ZERO)
    return SetReplicas(workload, scale, 0)


def _scaling_down(seen: Seen, record: ScaledWorkload, action: SetReplicas | TellKeda) -> tuple[KubeEvent, ...]:
    if isinstance(action, TellKeda):
        return ()
    text = f"{record.ref} goes from {action.seen.replicas} replicas to 0, and back to {record.replicas} afterwards"
    key = f"{seen.generation}/{SCALING_DOWN}/{record.uid}/{record.scaled_down}/{record.scaled_down_at}"
    return (KubeEvent(EventType.NORMAL, SCALING_DOWN, text, key),)


# --- and back ---------------------------------------------------------------------------------------------------------


def give_back(seen: Seen, records: Iterable[ScaledWorkload]) -> Step:
    """Back with these workloads; who is back has no record any more."""
    kept: list[ScaledWorkload] = []
    troubles: list[Refusal] = []
    first: SetReplicas | TellKeda | None = None
    happenings: tuple[KubeEvent, ...] = ()
    for record in records:
        looked = seen.workloads.get(record.ref, LookedAt())
        resuming = record.model_copy(update={"phase": PausePhase.RESUMING})
        if looked.trouble is not None:
            troubles.append(looked.trouble)
        elif looked.scale is None or looked.scale.uid != record.uid:
            continue
        elif record.phase is PausePhase.RESUMING:
            if any(other.uid == record.uid and other.phase is not PausePhase.RESUMING for other in looked.others):
                continue
            action = way_back(record, looked)
            if action is None:
                continue
            if first is None:
                first, happenings = action, _scaling_back(seen, record, action)
        kept.append(resuming)
    return Step(tuple(kept), first, happenings, tuple(troubles))


def way_back(record: ScaledWorkload, looked: LookedAt) -> SetReplicas | TellKeda | None:
    """The next thing to do for a workload that nobody keeps at 0 any more; ``None``: it is back.

    Replicas that somebody has set meanwhile stay. KEDA is let go first: it would set them to 0 again.
    """
    keda, before = looked.scaled_object, record.scaled_object
    if (
        keda is not None
        and before is not None
        and keda.name == before.name
        and keda.paused_replicas == _ZERO
        and before.paused_replicas != _ZERO
    ):
        return TellKeda(record.ref, keda, before.paused_replicas)
    if looked.scale is not None and looked.scale.replicas == 0 and record.replicas > 0:
        return SetReplicas(record.ref, looked.scale, record.replicas)
    return None


def _scaling_back(seen: Seen, record: ScaledWorkload, action: SetReplicas | TellKeda) -> tuple[KubeEvent, ...]:
    if isinstance(action, TellKeda):
        return ()
    key = f"{seen.generation}/{SCALING_BACK}/{record.uid}/{record.scaled_down}/{record.scaled_down_at}"
    text = f"{record.ref} goes back from 0 replicas to {record.replicas}"
    return (KubeEvent(EventType.NORMAL, SCALING_BACK, text, key),)
