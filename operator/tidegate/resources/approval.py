"""``OffsetResetApproval``: somebody lets the plan of an ``OffsetReset`` be applied."""

from __future__ import annotations

import operator
from typing import Annotated, ClassVar, Final

from tidegate.resources.base import ResourceModel, SpecModel, StatusModel
from tidegate.resources.conditions import Conditions
from tidegate.resources.fields import Timestamp, UserName
from tidegate.resources.rules import Transition, matching
from tidegate.resources.targets import RunId

Digest = Annotated[
    str,
    matching(
        "[0-9a-f]{64}",
        "must be a plan's digest, which has 64 hexadecimal digits: take status.digest of the OffsetReset",
        most=64,
    ),
]

_IMMUTABLE: Final = "is immutable: create another OffsetResetApproval"


class OffsetResetApprovalSpec(SpecModel):
    """Which plan is approved, and by whom. It cannot be changed."""

    transitions: ClassVar[tuple[Transition, ...]] = (Transition("self == oldSelf", _IMMUTABLE, operator.eq),)

    reset: RunId
    """The OffsetReset of this namespace whose plan is approved."""

    plan: Digest
    """The digest of the plan: status.digest of the OffsetReset while it awaits approval. It stands for that plan and no
    other. The command tidegate plan shows it below the plan."""

    approver: UserName
    """The user name of whoever approves the plan. The chart's ValidatingAdmissionPolicy accepts only the user name of
    whoever creates this resource, except from accounts that may name somebody else."""


class OffsetResetApprovalStatus(StatusModel):
    """Whether the approval has taken effect."""

    effective_at: Timestamp | None = None
    """When the approval took effect."""

    conditions: Conditions = ()
    """Effective is True once this approval has let the plan be applied, and False if it has no effect; the message says
    why. Ready says the same. Reconciling is present while the approval may still take effect without further action,
    Stalled while it has no effect."""


class ApprovalStatus(ResourceModel):
    """The approval that let a plan be applied, as the status of the reset names it."""

    name: str
    """The name of the OffsetResetApproval. It may have been deleted since."""

    uid: str
    """Its uid."""

    approver: str
    """Who has approved the plan."""

    approved_at: Timestamp
    """When the approval took effect."""
