"""Pausing a whole group by taking the replicas of its workloads to 0: any client, no agent."""

from __future__ import annotations

from typing import Final

from tidegate.pause.model import Decision, Observed, Seen
from tidegate.pause.release import refuse
from tidegate.pause.report import PAUSING, SHOWN, listed
from tidegate.pause.whole_group import Stopping, decided, not_allowed, without_members
from tidegate.pause.workloads import Step, take_down
from tidegate.resources.conditions import Refusal
from tidegate.resources.pause import ConsumerGroupPauseSpec, PauseMethod, PausePhase, PauseStatus

SCALED_BY_OTHERS: Final = "ScaledByOthers"

_CONTESTED_ADVICE: Final = (
    "Let Argo CD ignore /spec/replicas (ignoreDifferences, with RespectIgnoreDifferences=true), leave replicas out of "
    "what Flux or a pipeline applies, or suspend them; see docs/how-to/pause-by-scaling.md. The operator tries again "
    "after an hour"
)


def is_by_scale(spec: ConsumerGroupPauseSpec, status: PauseStatus) -> bool:
    """Whether this pause is one by scaling: asked for, or chosen before because members run no agent."""
    if spec.method is PauseMethod.AUTO:
        return spec.partitions is None and bool(spec.workloads) and status.method is PauseMethod.SCALE
    return spec.method is PauseMethod.SCALE


def pause(seen: Seen, spec: ConsumerGroupPauseSpec, status: PauseStatus, observed: Observed) -> Decision:
    """All workloads to 0, and then nobody of the group is there any more."""
    refusal = not_allowed(seen, spec, observed, "scaling")
    if refusal is not None:
        return refuse(seen, status, refusal)
    step = take_down(seen, spec.workloads)
    phase, why = _phase(seen, spec, observed, step)
    stopping = Stopping(
        method=PauseMethod.SCALE,
        records={"workloads": step.records},
        action=step.action,
        happenings=step.happenings,
        troubles=step.troubles,
        is_down=step.is_down,
        since=max((r.scaled_down_at for r in step.records if r.scaled_down_at is not None), default=None),
        goes_back=any(record.phase is PausePhase.RESUMING for record in step.records),
    )
    return decided(seen, spec, status, observed, stopping, phase, why)


def _phase(seen: Seen, spec: ConsumerGroupPauseSpec, observed: Observed, step: Step) -> tuple[PausePhase, Refusal]:
    """The phase, and its condition's reason and message."""
    names = listed([str(workload) for workload in spec.workloads])
    if step.troubles:
        is_down = any(record.phase is PausePhase.PAUSED for record in step.records)
        return PausePhase.DEGRADED if is_down else PausePhase.PENDING, step.troubles[0]
    if step.contested:
        text = "; ".join(
            f"the operator set {r.ref} to 0 replicas {r.scaled_down} times, each less than an hour after the one "
            f"before, and somebody else set it back to {r.replicas} each time"
            for r in step.contested[:SHOWN]
        )
        return PausePhase.DEGRADED, Refusal(SCALED_BY_OTHERS, f"{text}. {_CONTESTED_ADVICE}")
    if not step.is_down:
        waiting = listed([str(r.ref) for r in step.records if r.phase is not PausePhase.PAUSED])
        text = f"the operator is scaling {waiting or names} to 0 replicas"
        return PausePhase.PAUSING, Refusal(PAUSING, text)
    since = max((r.scaled_down_at for r in step.records if r.scaled_down_at is not None), default=None)
    advice = "They belong to something else: name its workload in spec.workloadRefs as well, or stop them"
    return without_members(seen, spec, observed, since, f"{names} at 0 replicas", advice)
