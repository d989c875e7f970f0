"""What an ``OffsetResetApproval`` says of itself. Pure."""

from __future__ import annotations

from datetime import datetime

from tidegate.kube.ports import Object
from tidegate.reset.runs.approval_effect import ApprovalEffect
from tidegate.resources.approval import OffsetResetApprovalStatus
from tidegate.resources.conditions import EFFECTIVE, ConditionStatus, ready, reconciling, stalled, with_condition


def has_taken_effect(body: Object) -> bool:
    """By what its status says, also where a newer version has written that and the rest of it can't be read."""
    conditions = (body.get("status") or {}).get("conditions") or ()
    return any((each.get("type"), each.get("status")) == (EFFECTIVE, ConditionStatus.TRUE) for each in conditions)


def said(
    before: OffsetResetApprovalStatus, stands: ApprovalEffect, generation: int, now: datetime
) -> OffsetResetApprovalStatus:
    """The status that says how the approval stands."""
    about = {"reason": stands.reason, "message": stands.message}
    match stands.effective:
        case True:
            conditions = ready(before.conditions, **about, generation=generation, now=now)
        case None:
            conditions = reconciling(before.conditions, **about, generation=generation, now=now)
        case False:
            conditions = stalled(before.conditions, **about, generation=generation, now=now)
    conditions = with_condition(conditions, EFFECTIVE, stands.effective, **about, generation=generation, now=now)
    return before.model_copy(
        update={"observed_generation": generation, "effective_at": stands.since, "conditions": conditions}
    )
