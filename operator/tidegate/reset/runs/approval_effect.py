"""Which ``OffsetResetApproval`` lets a plan be applied, and what each of them says of itself. Pure.

An approval takes effect when the status of the OffsetReset names it (``status.approval``); that is written once, by
whoever writes ``status.approvedDigest``. Until then deleting it takes it back, afterwards nothing does. The digest of a
plan covers the uid of its OffsetReset and when it began, so no approval is ever one of a later reset of the same name.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from tidegate.reset.runs.reasons import APPROVED, INVALID_SPEC, UNREADABLE_STATUS
from tidegate.resources.conditions import COMPLETE, Refusal, find_condition
from tidegate.resources.offset_reset import OffsetResetSpec, OffsetResetStatus
from tidegate.resources.reset import ApprovalMode, ResetPhase, has_ended

RESET_NOT_FOUND: Final = "ResetNotFound"
RESET_ENDED: Final = "ResetEnded"
APPROVAL_NOT_NEEDED: Final = "ApprovalNotNeeded"
ALREADY_APPROVED: Final = "AlreadyApproved"
OTHER_PLAN: Final = "OtherPlan"
PLAN_NOT_MADE: Final = "PlanNotMade"
TAKING_EFFECT: Final = "TakingEffect"
REQUESTER_UNKNOWN: Final = "RequesterUnknown"
APPROVER_IS_REQUESTER: Final = "ApproverIsRequester"


@dataclass(frozen=True, slots=True)
class Approval:
    """One ``OffsetResetApproval``: that ``approver`` approves the plan with the digest ``plan`` of ``reset``."""

    name: str
    uid: str
    created: datetime
    reset: str
    plan: str
    approver: str


@dataclass(frozen=True, slots=True)
class Candidates:
    """``eligible``: the approvals that may take effect, the oldest first. ``no_effect``: why others that name the plan
    do not."""

    eligible: tuple[Approval, ...] = ()
    no_effect: tuple[str, ...] = ()


def candidates(approvals: Iterable[Approval], plan: str, requester: str | None, *, separate: bool) -> Candidates:
    """Of the approvals of one reset. ``separate``: the approver has to be somebody else than the requester."""
    named = sorted((a for a in approvals if a.plan == plan), key=lambda a: (a.created, a.name))
    refused = [(a, refusal_of(a, requester, separate=separate)) for a in named]
    return Candidates(
        tuple(a for a, refusal in refused if refusal is None),
        tuple(
            f"OffsetResetApproval {a.name} has no effect: {refusal.message}"
            for a, refusal in refused
            if refusal is not None
        ),
    )


def refusal_of(approval: Approval, requester: str | None, *, separate: bool) -> Refusal | None:
    """Why an approval of the right plan must not let it be applied."""
    if not separate:
        return None
    if requester is None:
        return Refusal(
            REQUESTER_UNKNOWN,
            "the approver must not be the requester, but the reset does not say who asked for it: ask for another "
            "reset with spec.requester",
        )
    if approval.approver == requester:
        return Refusal(
            APPROVER_IS_REQUESTER,
            f"{requester} asked for the reset, so somebody else has to approve it",
        )
    return None


@dataclass(frozen=True, slots=True)
class ResetSeen:
    """The OffsetReset that an approval names. ``spec`` and ``status`` are ``None`` where they can't be read."""

    spec: OffsetResetSpec | None
    status: OffsetResetStatus | None
    deleting: bool = False


@dataclass(frozen=True, slots=True)
class ApprovalEffect:
    """Whether an approval has taken effect; ``None``: it may do so yet."""

    effective: bool | None
    reason: str
    message: str
    since: datetime | None = None


def effect_of(approval: Approval, reset: ResetSeen | None, *, separate: bool) -> ApprovalEffect:
    """Whether an approval has taken effect, and why. Reads as a list of checks, the first that applies."""
    name = approval.reset
    if reset is None:
        return ApprovalEffect(False, RESET_NOT_FOUND, f"there is no OffsetReset {name} in this namespace")
    if reset.status is None:
        message = f"this version of Tidegate can't read the status of OffsetReset {name}: run the version that wrote it"
        return ApprovalEffect(None, UNREADABLE_STATUS, message)
    status = reset.status
    by = status.approval
    if by is not None and by.uid == approval.uid:
        message = f"{approval.approver} has approved the plan of OffsetReset {name}"
        return ApprovalEffect(True, APPROVED, message, by.approved_at)
    if status.approved_digest is not None:
        who = f"by OffsetResetApproval {by.name} of {by.approver}" if by is not None else "by an annotation"
        return ApprovalEffect(False, ALREADY_APPROVED, f"the plan of OffsetReset {name} was already approved {who}")
    if reset.deleting or has_ended(status.phase):
        ended = "is being deleted" if reset.deleting or status.phase is None else f"has ended as {status.phase.value}"
        return ApprovalEffect(False, RESET_ENDED, f"OffsetReset {name} {ended}, so there is nothing left to approve")
    if reset.spec is None:
        return ApprovalEffect(
            None, INVALID_SPEC, f"the spec of OffsetReset {name} can't be used: its conditions say why"
        )
    if reset.spec.approval is not ApprovalMode.MANUAL and status.phase is not ResetPhase.AWAITING_APPROVAL:
        message = f"OffsetReset {name} needs no approval, because its spec.approval is not Manual"
        return ApprovalEffect(False, APPROVAL_NOT_NEEDED, message)
    if status.phase is not ResetPhase.AWAITING_APPROVAL:
        message = (
            f"OffsetReset {name} has no plan yet: this approval takes effect if the plan has the digest {approval.plan}"
        )
        return ApprovalEffect(None, PLAN_NOT_MADE, message)
    return _of_waiting(approval, status, separate=separate)


def _of_waiting(approval: Approval, status: OffsetResetStatus, *, separate: bool) -> ApprovalEffect:
    """Of a reset whose plan waits to be approved."""
    if approval.plan != status.digest:
        message = (
            f"this approval names the plan {approval.plan}, but the plan of OffsetReset {approval.reset} that waits "
            f"for approval is {status.digest}: look at that plan with tidegate plan, and create another "
            "OffsetResetApproval"
        )
        return ApprovalEffect(False, OTHER_PLAN, message)
    refusal = refusal_of(approval, status.requester, separate=separate)
    if refusal is not None:
        return ApprovalEffect(False, refusal.reason, refusal.message)
    said = find_condition(status.conditions, COMPLETE)
    waits = "" if said is None or said.reason == ResetPhase.AWAITING_APPROVAL else f": {said.message}"
    return ApprovalEffect(
        None, TAKING_EFFECT, f"this approval of OffsetReset {approval.reset} is about to take effect{waits}"
    )
