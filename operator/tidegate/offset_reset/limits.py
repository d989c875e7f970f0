"""How large the plan of a reset may be, by the quota of its connection."""

from __future__ import annotations

from tidegate.connection.live import Live
from tidegate.kube.ports import Object
from tidegate.offset_reset.reading import status_of
from tidegate.reset.model.request import PlanLimits
from tidegate.reset.runs.quota import Size, limits_of, too_large
from tidegate.resources.conditions import Refusal
from tidegate.resources.offset_reset import OffsetResetSpec


def limits(spec: OffsetResetSpec, live: Live) -> PlanLimits | None:
    """What its plan may do. An undo may do anything."""
    return None if spec.to.undo is not None else limits_of(live.allow.quota, live.label)


def too_large_by_now(body: Object, spec: OffsetResetSpec, live: Live) -> Refusal | None:
    """Why a plan that waits for approval may not be applied: the quota may have become smaller since it was made."""
    plan = status_of(body).plan
    if plan is None:
        return None
    size = Size(plan.partitions or 0, plan.records_replayed or 0)
    refused = too_large(size, limits(spec, live))
    return None if refused is None else Refusal(refused.reason, refused.message)
