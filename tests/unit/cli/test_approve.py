"""`tidegate approve`, on an API server in memory."""

from __future__ import annotations

import io
from datetime import UTC, datetime

import pytest

from support.fake_kafka import FakeClock
from support.fake_kube import FakeKube
from tidegate.cli.approving import approve_parser, create, effect, run_approve
from tidegate.cli.errors import CommandFailed, UsageError
from tidegate.cli.screen import Screen
from tidegate.kube.ports import APPROVALS, RESETS, Kind, KubeUnavailable, Object, owner_reference
from tidegate.offset_reset.approval_status import said
from tidegate.reset.runs.approval_effect import ApprovalEffect
from tidegate.resources.approval import OffsetResetApprovalStatus
from tidegate.resources.base import InvalidResource
from tidegate.resources.conditions import ConditionStatus

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)
SPEC = {"reset": "replay", "plan": "a" * 64, "approver": "ann"}
SAYS = ((True, ConditionStatus.TRUE), (False, ConditionStatus.FALSE), (None, ConditionStatus.UNKNOWN))


@pytest.fixture
def kube() -> FakeKube:
    made = FakeKube()
    made.create(RESETS, "ns", "replay", {"group": "payments"}, "2026-11-20T11:00:00Z")
    return made


def test_the_approval_goes_with_its_reset_and_has_a_name_that_nobody_could_take(kube: FakeKube) -> None:
    made, again = create(kube, "ns", SPEC), create(kube, "ns", SPEC)

    assert made["spec"] == SPEC
    assert made["metadata"]["ownerReferences"] == [owner_reference(kube.get(RESETS, "ns", "replay"))]
    assert made["metadata"]["name"] != again["metadata"]["name"]
    assert made["metadata"]["name"].startswith("replay-")


def test_what_can_be_no_approval_is_not_created(kube: FakeKube) -> None:
    with pytest.raises(CommandFailed, match="there is no OffsetReset other in namespace ns"):
        create(kube, "ns", {**SPEC, "reset": "other"})
    with pytest.raises(InvalidResource, match=r"spec.plan: must be a plan's digest"):
        create(kube, "ns", {**SPEC, "plan": "a" * 12})
    assert kube.list(APPROVALS) == []


@pytest.mark.parametrize(("effective", "says"), SAYS)
def test_what_came_of_it_is_said_once_it_is_certain(
    kube: FakeKube, effective: bool | None, says: ConditionStatus
) -> None:
    clock, made = FakeClock(NOW), create(kube, "ns", SPEC)
    assert effect(kube, made, clock, 3.0) is None

    status = said(OffsetResetApprovalStatus(), ApprovalEffect(effective, "Because", "of that"), 1, NOW)
    kube.replace_status(APPROVALS, made, status.to_json())
    began = clock.monotonic()
    found = effect(kube, made, clock, 3.0)

    assert found is not None
    assert (found.status, found.message) == (says, "of that")
    assert (clock.monotonic() - began >= 3.0) == (effective is None)


def test_no_plan_is_approved_without_its_digest() -> None:
    with pytest.raises(UsageError, match="--plan"):
        approve_parser().parse_args(["replay"])


class Away(FakeKube):
    """Answers no reading for a while."""

    def __init__(self, silent: int) -> None:
        super().__init__()
        self.silent = silent

    def get(self, kind: Kind, namespace: str, name: str) -> Object:
        if kind == APPROVALS and self.silent:
            self.silent -= 1
            raise KubeUnavailable("nobody answers")
        return super().get(kind, namespace, name)


@pytest.mark.parametrize(("silent", "heard"), [(3, True), (99, False)])
def test_an_approval_is_no_failure_because_the_api_server_is_away_for_a_moment(silent: int, heard: bool) -> None:
    kube = Away(0)
    kube.create(RESETS, "ns", "replay", {"group": "payments"}, "2026-11-20T11:00:00Z")
    made = create(kube, "ns", SPEC)
    status = said(OffsetResetApprovalStatus(), ApprovalEffect(True, "Approved", "of that"), 1, NOW)
    kube.replace_status(APPROVALS, made, status.to_json())
    kube.silent = silent

    assert (effect(kube, made, FakeClock(NOW), 10.0) is not None) == heard


def test_one_whose_answer_is_lost_may_be_there(kube: FakeKube, monkeypatch: pytest.MonkeyPatch) -> None:
    def lost(*_: object) -> Object:
        raise KubeUnavailable("nobody answers")

    monkeypatch.setattr(kube, "make", lost)

    with pytest.raises(CommandFailed, match=r"may have been created anyway.*kubectl get -n ns ora replay-"):
        create(kube, "ns", SPEC)


def test_no_number_is_no_time_to_wait() -> None:
    with pytest.raises(UsageError, match="--wait takes a number of seconds"):
        run_approve(["replay", "-n", "ns", "--plan", "a" * 64, "--wait", "nan"], Screen(io.StringIO(), io.StringIO()))
