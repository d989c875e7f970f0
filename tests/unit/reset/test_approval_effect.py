"""Which approval lets a plan be applied, and what each of them says of itself."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tidegate.kafka.connection import Connection
from tidegate.reset.binding import digest_of
from tidegate.reset.model.plan import PartitionPlan, Plan
from tidegate.reset.model.request import ApplySettings, RunRequest
from tidegate.reset.model.targets import ToOffset
from tidegate.reset.runs.approval_effect import Approval, ResetSeen, candidates, effect_of
from tidegate.reset.store import Run
from tidegate.resources.approval import ApprovalStatus
from tidegate.resources.base import parse_spec
from tidegate.resources.offset_reset import OffsetResetSpec, OffsetResetStatus
from tidegate.resources.reset import ResetPhase

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)
PLAN, OTHER = "a" * 64, "b" * 64
ANN = Approval("of-ann", "uid-ann", NOW, "replay", PLAN, "ann")
BOB = replace(ANN, name="of-bob", uid="uid-bob", created=NOW + timedelta(seconds=1), approver="bob")
SPEC = {"connectionRef": {"name": "prod"}, "group": "payments", "to": {"offset": 1}, "approval": "Manual"}
WAITS = OffsetResetStatus(phase=ResetPhase.AWAITING_APPROVAL, digest=PLAN, requester="ann", started_at=NOW)


def status(**changes: Any) -> OffsetResetStatus:
    return WAITS.model_copy(update=changes)


def seen(of: OffsetResetStatus | None = WAITS, *, deleting: bool = False, **spec: Any) -> ResetSeen:
    return ResetSeen(parse_spec(OffsetResetSpec, {"spec": {**SPEC, **spec}}), of, deleting)


def approved_by(approval: Approval, phase: ResetPhase = ResetPhase.APPLYING) -> OffsetResetStatus:
    by = ApprovalStatus(name=approval.name, uid=approval.uid, approver=approval.approver, approved_at=NOW)
    return status(phase=phase, approved_digest=approval.plan, approval=by)


# --- which one counts -------------------------------------------------------------------------------------------------


def test_the_oldest_approval_of_exactly_this_plan_counts_and_the_name_breaks_a_tie() -> None:
    twin = replace(ANN, name="a-twin", uid="uid-twin")
    of_another = replace(ANN, name="first", plan=OTHER, created=NOW - timedelta(hours=1))

    found = candidates([BOB, of_another, ANN, twin], PLAN, None, separate=False)

    assert found.eligible == (twin, ANN, BOB)
    assert found.no_effect == ()


def test_no_approval_of_the_beginning_of_a_digest_or_of_none_counts() -> None:
    for plan in (PLAN[:-1], "", OTHER):
        assert candidates([replace(ANN, plan=plan)], PLAN, None, separate=False).eligible == ()


def test_whoever_has_asked_approves_nothing_where_the_approver_has_to_be_somebody_else() -> None:
    found = candidates([ANN, BOB], PLAN, "ann", separate=True)

    assert found.eligible == (BOB,)
    assert found.no_effect == (
        "OffsetResetApproval of-ann has no effect: ann asked for the reset, so somebody else has to approve it",
    )
    assert candidates([ANN, BOB], PLAN, "ann", separate=False).eligible == (ANN, BOB)


def test_nobody_approves_what_nobody_is_known_to_have_asked_for_where_they_have_to_differ() -> None:
    found = candidates([ANN], PLAN, None, separate=True)

    assert found.eligible == ()
    assert "does not say who asked for it: ask for another reset with spec.requester" in found.no_effect[0]


# --- what an approval says of itself ----------------------------------------------------------------------------------

CASES: dict[str, tuple[ResetSeen | None, bool, bool | None, str]] = {
    # name: (the reset, whether approver and requester have to differ, whether it has taken effect, the reason)
    "there is no such reset": (None, False, False, "ResetNotFound"),
    "its status is of another version": (seen(None), False, None, "UnreadableStatus"),
    "it was approved by this one": (seen(approved_by(ANN)), False, True, "Approved"),
    "it was approved by this one, and has ended": (
        seen(approved_by(ANN, ResetPhase.FAILED)),
        False,
        True,
        "Approved",
    ),
    "it was approved by this one, and would not be now": (seen(approved_by(ANN)), True, True, "Approved"),
    "it was approved by another one": (seen(approved_by(BOB)), False, False, "AlreadyApproved"),
    "another one of this name was approved by this one's name": (
        seen(approved_by(replace(ANN, uid="uid-of-an-earlier-one"))),
        False,
        False,
        "AlreadyApproved",
    ),
    "another plan was approved": (seen(approved_by(replace(BOB, plan=OTHER))), False, False, "AlreadyApproved"),
    "it was approved by an annotation": (seen(status(approved_digest=PLAN)), False, False, "AlreadyApproved"),
    "it failed at its deadline": (seen(status(phase=ResetPhase.FAILED)), False, False, "ResetEnded"),
    "its plan was outdated": (seen(status(phase=ResetPhase.ROLLED_BACK)), False, False, "ResetEnded"),
    "it is being deleted": (seen(deleting=True), False, False, "ResetEnded"),
    "its spec can't be read": (ResetSeen(None, OffsetResetStatus()), False, None, "InvalidSpec"),
    "it waits for nobody": (
        seen(status(phase=ResetPhase.APPLYING), approval="Automatic"),
        False,
        False,
        "ApprovalNotNeeded",
    ),
    "it was not looked at": (seen(OffsetResetStatus()), False, None, "PlanNotMade"),
    "its plan is not made": (seen(status(phase=ResetPhase.PLANNING, digest=OTHER)), False, None, "PlanNotMade"),
    "only its request has this digest": (seen(status(phase=ResetPhase.PENDING)), False, None, "PlanNotMade"),
    "another plan waits": (seen(status(digest=OTHER)), False, False, "OtherPlan"),
    "it asks for itself": (seen(), True, False, "ApproverIsRequester"),
    "nobody has asked": (seen(status(requester=None)), True, False, "RequesterUnknown"),
    "somebody else has asked": (seen(status(requester="eve")), True, None, "TakingEffect"),
    "it waits": (seen(), False, None, "TakingEffect"),
}


@pytest.mark.parametrize(("reset", "separate", "effective", "reason"), CASES.values(), ids=CASES)
def test_how_an_approval_stands(reset: ResetSeen | None, separate: bool, effective: bool | None, reason: str) -> None:
    found = effect_of(ANN, reset, separate=separate)

    assert (found.effective, found.reason) == (effective, reason)
    assert "replay" in found.message or reason in ("ApproverIsRequester", "RequesterUnknown")
    assert (found.since is not None) == (effective is True)


def test_what_counts_and_what_an_approval_says_of_itself_agree() -> None:
    for requester in (None, "ann", "bob"):
        for separate in (True, False):
            for plan in (PLAN, OTHER):
                mine = replace(ANN, plan=plan)
                counts = candidates([mine], PLAN, requester, separate=separate).eligible == (mine,)
                says = effect_of(mine, seen(status(requester=requester)), separate=separate)
                assert (says.effective is None) == counts


# --- what the digest covers -------------------------------------------------------------------------------------------


def test_no_two_resets_have_plans_of_one_digest_though_they_ask_for_the_same() -> None:
    """So an approval is never one of a later reset of the same name."""
    request = RunRequest(
        run_uid="uid-1/replay",
        run_id="replay",
        group_id="payments",
        connection=Connection("127.0.0.1:9092"),
        selections=(),
        target=ToOffset(10),
        settings=ApplySettings(),
        manual_approval=True,
    )
    move = PartitionPlan("t", 0, "id", committed=50, target=10, earliest=0, latest=100)
    plan = Plan("replay", "payments", NOW, (move,))

    first, again = Run(request, plan=plan), Run(replace(request, run_uid="uid-2/replay"), plan=plan)
    assert digest_of(first) != digest_of(again)
    assert digest_of(Run(request)) != digest_of(first), "nor is the request's digest that of any plan"
