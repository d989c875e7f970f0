"""Resets and their approvals, pass by pass: when an approval takes effect, and what it says of itself."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.killed import Killed
from support.reset_world import FLEET, FleetWorld, World
from tidegate.approval.reconcile import ApprovalReconciler, Parts
from tidegate.kube.ports import APPROVALS, RESETS, KubeUnavailable


class ApprovedWorld(World):
    """A reset of one group, and approvals that are looked at when they are asked for."""

    def __init__(self, folder: Path, *, separate: bool = False) -> None:
        super().__init__(folder)
        self.separate_approver = separate
        self.restart()

    def until(self, phase: str) -> None:
        for _ in range(20):
            if self.body.get("status", {}).get("phase") == phase:
                return
            self.some_passes(1)
        raise AssertionError(self.kube.log)

    def says(self, name: str = "yes") -> dict[str, Any]:
        """The approval's status, after a pass over it."""
        parts = Parts(self.kube, self.executor, self.clock.now, self.metrics, self.separate_approver)
        body = asyncio.run(ApprovalReconciler(parts).reconcile(self.kube.get(APPROVALS, "ns", name))).body
        found: dict[str, Any] = body["status"]
        return found

    def effective(self, name: str = "yes") -> tuple[str, str]:
        """(status, reason)"""
        [condition] = [c for c in self.says(name)["conditions"] if c["type"] == "Effective"]
        return condition["status"], condition["reason"]

    def withdraw(self, name: str = "yes") -> None:
        self.kube.delete(APPROVALS, "ns", name, self.clock.now().isoformat())


@pytest.fixture
def world(tmp_path: Path) -> Iterator[ApprovedWorld]:
    made = ApprovedWorld(tmp_path)
    yield made
    made.executor.shutdown()


@pytest.fixture
def separate(tmp_path: Path) -> Iterator[ApprovedWorld]:
    made = ApprovedWorld(tmp_path, separate=True)
    yield made
    made.executor.shutdown()


def test_an_approved_reset_goes_ahead_and_says_who_asked_and_who_approved_what_and_when(world: ApprovedWorld) -> None:
    world.ask(approval="Manual", requester="ann")
    world.until("AwaitingApproval")
    digest = world.reset["digest"]
    assert f"tidegate approve p --plan {digest}" in world.condition("Complete")["message"]

    world.approve(approver="bob")
    assert world.effective() == ("Unknown", "TakingEffect")
    world.passes()

    assert (world.reset["phase"], world.offset) == ("Succeeded", 10)
    assert (world.reset["requester"], world.reset["approvedDigest"]) == ("ann", digest)
    approval = world.reset["approval"]
    assert (approval["name"], approval["approver"]) == ("yes", "bob")
    assert approval["uid"] == world.kube.get(APPROVALS, "ns", "yes")["metadata"]["uid"]
    assert world.effective() == ("True", "Approved")
    assert world.says()["effectiveAt"] == approval["approvedAt"]
    [told] = [h for h in world.kube.happenings_of("p") if h.reason == "Approved"]
    assert told.message == f"OffsetResetApproval yes of bob approves the plan {digest}"


def test_an_approval_of_another_plan_has_no_effect_and_says_so(world: ApprovedWorld) -> None:
    world.ask(approval="Manual")
    world.until("AwaitingApproval")

    world.approve("0" * 64)
    world.some_passes(3)

    assert (world.reset["phase"], world.offset) == ("AwaitingApproval", 50)
    assert world.effective() == ("False", "OtherPlan")
    says = {c["type"]: c for c in world.says()["conditions"]}
    assert (says["Ready"]["status"], says["Stalled"]["status"]) == ("False", "True")
    assert world.reset["digest"] in says["Effective"]["message"]
    assert [h.reason for h in world.kube.happenings_of("yes")] == ["OtherPlan"]


def test_an_approval_that_is_there_before_the_plan_approves_that_plan_only_by_its_digest(world: ApprovedWorld) -> None:
    world.ask(approval="Manual")
    world.some_passes(1)
    of_the_request = world.reset["digest"]
    world.approve(of_the_request, name="blindly")
    assert world.effective("blindly") == ("Unknown", "PlanNotMade")

    world.until("AwaitingApproval")
    world.some_passes(3)

    assert (world.reset["phase"], world.offset) == ("AwaitingApproval", 50)
    assert world.effective("blindly") == ("False", "OtherPlan")


def test_an_approval_that_is_there_when_its_plan_is_stored_takes_effect_then(world: ApprovedWorld) -> None:
    world.ask(approval="Manual")
    world.until("AwaitingApproval")
    digest = world.reset["digest"]
    # The operator has not seen the plan yet: as when it dies just after the job has stored it.
    status = {**world.reset, "phase": "Planning"}
    world.kube.replace_status(RESETS, world.body, status)
    world.approve(digest)
    assert world.effective() == ("Unknown", "PlanNotMade")

    world.passes()

    assert (world.reset["phase"], world.offset) == ("Succeeded", 10)
    assert world.effective() == ("True", "Approved")


def test_one_that_is_withdrawn_before_it_takes_effect_approves_nothing(world: ApprovedWorld) -> None:
    world.ask(approval="Manual")
    world.until("AwaitingApproval")
    world.approve()
    world.withdraw()

    world.some_passes(3)

    assert (world.reset["phase"], world.offset) == ("AwaitingApproval", 50)


def test_one_that_is_withdrawn_while_the_plan_waits_for_its_turn_approves_nothing(world: ApprovedWorld) -> None:
    world.ask(approval="Manual")
    world.until("AwaitingApproval")
    world.kube.change(RESETS, "ns", "p", spec={**world.body["spec"], "suspend": True})
    world.approve()
    world.some_passes(2)
    assert world.condition("Complete")["reason"] == "Suspended"
    assert "approvedDigest" not in world.reset
    assert world.effective() == ("Unknown", "TakingEffect")

    world.withdraw()
    world.kube.change(RESETS, "ns", "p", spec={**world.body["spec"], "suspend": False})
    world.some_passes(3)

    assert (world.reset["phase"], world.offset) == ("AwaitingApproval", 50)


def test_one_that_the_watch_still_shows_and_that_is_gone_approves_nothing(world: ApprovedWorld) -> None:
    world.ask(approval="Manual")
    world.until("AwaitingApproval")
    world.approve()
    stale = list(world.kube.list(APPROVALS))
    world.withdraw()
    world.approvals = lambda: stale
    world.restart()

    world.some_passes(3)

    assert (world.reset["phase"], world.offset) == ("AwaitingApproval", 50)


def test_one_that_is_deleted_once_it_has_taken_effect_stays_recorded(world: ApprovedWorld) -> None:
    world.ask(approval="Manual")
    world.until("AwaitingApproval")
    world.approve()
    world.some_passes(1)
    assert world.reset["approvedDigest"] == world.reset["digest"]

    world.withdraw()
    world.passes()

    assert (world.reset["phase"], world.offset) == ("Succeeded", 10)
    assert world.reset["approval"]["approver"] == "ann"


@pytest.mark.parametrize("steps", [0, 1])
def test_an_operator_that_dies_before_or_after_it_has_written_the_approval_goes_on(
    world: ApprovedWorld, steps: int
) -> None:
    world.ask(approval="Manual")
    world.until("AwaitingApproval")
    world.approve()
    world.kube.dies_in = steps  # before the status is written, or between it and the run's document
    with pytest.raises(Killed):
        world.some_passes(1)
    assert ("approval" in world.reset) == (steps == 1)
    world.restart()
    if steps == 1:
        world.withdraw()  # it has taken effect

    world.passes()

    assert (world.reset["phase"], world.offset) == ("Succeeded", 10)
    assert [h.reason for h in world.kube.happenings_of("p")].count("Approved") == 1


def test_the_approval_that_counts_has_an_event_though_one_that_was_withdrawn_had_one(world: ApprovedWorld) -> None:
    world.ask(approval="Manual")
    world.until("AwaitingApproval")
    world.approve(approver="ann")
    world.kube.dies_in = 0  # the Event is there, and the status is not
    with pytest.raises(Killed):
        world.some_passes(1)
    world.restart()
    world.withdraw()
    world.approve(name="instead", approver="bob")

    world.passes()

    assert world.reset["approval"]["approver"] == "bob"
    told = [h.message for h in world.kube.happenings_of("p") if h.reason == "Approved"]
    assert told[-1].startswith("OffsetResetApproval instead of bob approves")


def test_of_two_approvals_the_first_takes_effect_and_the_second_says_that_it_came_late(world: ApprovedWorld) -> None:
    world.ask(approval="Manual")
    world.until("AwaitingApproval")
    world.approve(name="z-first", approver="ann")
    world.clock.sleep(1)
    world.approve(name="a-second", approver="bob")

    world.passes()

    assert world.reset["approval"]["name"] == "z-first"
    assert world.effective("z-first") == ("True", "Approved")
    assert world.effective("a-second") == ("False", "AlreadyApproved")


def test_an_approval_of_a_reset_that_is_not_there_waits_for_none_and_approves_none_that_comes(
    world: ApprovedWorld,
) -> None:
    world.approve("0" * 64, reset="later")
    assert world.effective() == ("False", "ResetNotFound")

    world.ask("later", approval="Manual")
    world.until("AwaitingApproval")
    world.some_passes(2)

    assert world.reset["phase"] == "AwaitingApproval"
    assert world.effective() == ("False", "OtherPlan")


def test_an_approval_is_not_of_a_reset_of_the_same_name_that_is_created_later(world: ApprovedWorld) -> None:
    world.ask(approval="Manual")
    world.until("AwaitingApproval")
    read = world.reset["digest"]
    world.kube.delete(RESETS, "ns", "p", world.clock.now().isoformat())
    world.passes()
    world.approve(read)
    world.ask(approval="Manual")
    world.until("AwaitingApproval")

    world.some_passes(3)

    assert world.reset["digest"] != read
    assert (world.reset["phase"], world.offset) == ("AwaitingApproval", 50)
    assert world.effective() == ("False", "OtherPlan")


def test_a_plan_that_is_outdated_is_approved_by_nothing_any_more(world: ApprovedWorld) -> None:
    world.ask(approval="Manual")
    world.until("AwaitingApproval")
    world.approve(name="in-time")
    digest = world.reset["digest"]
    world.kafka.commit_directly("payments", {next(iter(world.kafka.committed("payments"))): 5})
    world.passes()
    assert (world.reset["phase"], world.condition("Failed")["reason"]) == ("Failed", "PlanOutdated")

    world.approve(digest, name="late")

    assert world.effective("in-time") == ("True", "Approved")
    assert world.effective("late") == ("False", "AlreadyApproved")


def test_a_plan_that_would_skip_more_than_was_approved_is_refused(world: ApprovedWorld) -> None:
    """The group has gone back since: by then other records lie before the target."""
    world.ask(to={"offset": 60}, approval="Manual")
    world.until("AwaitingApproval")
    world.kafka.commit_directly("payments", {next(iter(world.kafka.committed("payments"))): 40})
    world.approve()
    world.passes()

    assert (world.reset["phase"], world.condition("Failed")["reason"]) == ("Failed", "PlanOutdated")
    assert "would be skipped than were approved" in world.condition("Failed")["message"]
    assert world.offset == 40


def test_a_plan_to_skip_is_refused_once_nothing_is_committed_any_more(world: ApprovedWorld) -> None:
    """Whoever reads next may begin anywhere: before the records that are to be skipped are others then."""
    world.ask(to={"offset": 60}, approval="Manual")
    world.until("AwaitingApproval")
    world.kafka.delete_group("payments")
    world.approve()
    world.passes()

    assert (world.reset["phase"], world.condition("Failed")["reason"]) == ("Failed", "PlanOutdated")
    assert "no longer a committed offset" in world.condition("Failed")["message"]
    assert not world.kafka.committed("payments")


def test_a_plan_that_skips_less_by_now_than_was_approved_is_applied(world: ApprovedWorld) -> None:
    world.ask(to={"offset": 60}, approval="Manual")
    world.until("AwaitingApproval")
    world.kafka.commit_directly("payments", {next(iter(world.kafka.committed("payments"))): 55})
    world.approve()
    world.passes()

    assert (world.reset["phase"], world.offset) == ("Succeeded", 60)


def test_one_that_comes_after_the_deadline_says_that_the_reset_has_ended(world: ApprovedWorld) -> None:
    world.ask(approval="Manual", deadline="30s")
    world.until("AwaitingApproval")
    digest = world.reset["digest"]
    world.clock.sleep(60)
    world.passes()

    world.approve(digest)

    assert world.effective() == ("False", "ResetEnded")


def test_an_approval_in_another_namespace_or_of_another_reset_counts_for_nothing(world: ApprovedWorld) -> None:
    world.ask(approval="Manual")
    world.until("AwaitingApproval")
    spec = {"reset": "p", "plan": world.reset["digest"], "approver": "ann"}
    world.kube.create(APPROVALS, "elsewhere", "yes", spec, "2026-01-01T00:00:00Z")
    world.approve(reset="q")

    world.some_passes(3)

    assert (world.reset["phase"], world.offset) == ("AwaitingApproval", 50)


def test_the_annotation_of_earlier_versions_approves_nothing_and_it_is_said(world: ApprovedWorld) -> None:
    world.ask(approval="Manual")
    world.until("AwaitingApproval")

    world.kube.change(RESETS, "ns", "p", annotations={"tidegate.io/approve": world.reset["digest"]})
    world.some_passes(3)

    assert (world.reset["phase"], world.offset) == ("AwaitingApproval", 50)
    assert "create an OffsetResetApproval instead" in world.condition("Complete")["message"]
    told = [h.reason for h in world.kube.happenings_of("p")]
    assert told.count("AnnotationApprovesNothing") == 1


def test_an_approval_that_can_not_be_read_says_so_and_holds_up_no_other(world: ApprovedWorld) -> None:
    world.ask(approval="Manual")
    world.until("AwaitingApproval")
    world.kube.create(APPROVALS, "ns", "bad", {"reset": "p", "plan": world.reset["digest"]}, "2026-01-01T00:00:00Z")
    assert world.effective("bad") == ("False", "InvalidSpec")

    world.approve()
    world.passes()

    assert (world.reset["phase"], world.reset["approval"]["name"]) == ("Succeeded", "yes")


def test_whoever_has_asked_for_it_can_not_approve_it_where_they_have_to_differ(separate: ApprovedWorld) -> None:
    separate.ask(approval="Manual", requester="ann")
    separate.until("AwaitingApproval")
    separate.approve(approver="ann", name="own")
    separate.some_passes(3)

    assert (separate.reset["phase"], separate.offset) == ("AwaitingApproval", 50)
    assert separate.effective("own") == ("False", "ApproverIsRequester")
    assert "OffsetResetApproval own has no effect: ann asked for the reset" in separate.condition("Complete")["message"]

    separate.approve(approver="bob")
    separate.passes()

    assert (separate.reset["phase"], separate.reset["approval"]["approver"]) == ("Succeeded", "bob")
    assert separate.effective("own") == ("False", "AlreadyApproved")


def test_who_has_asked_is_who_it_was_when_the_reset_began(separate: ApprovedWorld) -> None:
    """A CEL rule keeps the spec as it is from then on; were it changed all the same, nothing would come of that."""
    separate.ask(approval="Manual", requester="ann")
    separate.until("AwaitingApproval")
    separate.kube.change(RESETS, "ns", "p", spec={**separate.body["spec"], "requester": "eve"})

    separate.approve(approver="ann")
    separate.some_passes(3)

    assert (separate.reset["phase"], separate.reset["requester"]) == ("AwaitingApproval", "ann")


def test_a_reset_that_nobody_is_known_to_have_asked_for_is_not_approved_where_they_have_to_differ(
    separate: ApprovedWorld,
) -> None:
    separate.ask(approval="Manual")
    separate.until("AwaitingApproval")

    separate.approve(approver="bob")
    separate.some_passes(3)

    assert (separate.reset["phase"], separate.offset) == ("AwaitingApproval", 50)
    assert separate.effective() == ("False", "RequesterUnknown")


@pytest.mark.parametrize("phase", ["Succeeded", "RolledBack"])
def test_one_whose_reset_is_gone_before_its_own_pass_has_taken_effect_all_the_same(
    world: ApprovedWorld, phase: str
) -> None:
    world.ask(approval="Manual")
    world.until("AwaitingApproval")
    world.approve()
    if phase == "Succeeded":
        world.passes()
        assert world.reset["phase"] == phase
    else:
        world.some_passes(1)
    approved = world.reset["approval"]["approvedAt"]
    world.kube.delete(RESETS, "ns", "p", world.clock.now().isoformat())
    world.passes()
    assert not world.there

    assert world.effective() == ("True", "Approved")
    assert world.says()["effectiveAt"] == approved
    assert not world.kube.happenings_of("yes")


def test_one_that_is_made_anew_under_its_name_is_not_told_that_it_took_effect(world: ApprovedWorld) -> None:
    world.ask(approval="Manual")
    world.until("AwaitingApproval")
    digest = world.reset["digest"]
    world.approve()
    world.some_passes(1)
    world.withdraw()
    world.approve(digest)
    world.passes()

    world.kube.delete(RESETS, "ns", "p", world.clock.now().isoformat())

    assert world.effective() == ("False", "ResetNotFound")


def test_a_reset_that_is_deleted_is_not_kept_by_an_approval_that_can_not_be_told(
    world: ApprovedWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.ask(approval="Manual")
    world.until("AwaitingApproval")
    world.approve()
    world.some_passes(1)
    world.kube.delete(RESETS, "ns", "p", world.clock.now().isoformat())
    write = world.kube.replace_status

    def refused(kind: Any, body: Any, status: Any) -> Any:
        if kind == APPROVALS:
            raise KubeUnavailable("nobody answered")
        return write(kind, body, status)

    monkeypatch.setattr(world.kube, "replace_status", refused)
    world.passes()

    assert not world.there


def test_what_has_taken_effect_is_not_looked_at_again(world: ApprovedWorld) -> None:
    world.ask(approval="Manual")
    world.until("AwaitingApproval")
    world.approve()
    world.passes()
    said = world.says()
    world.kube.delete(RESETS, "ns", "p", world.clock.now().isoformat())
    written = world.kube.writes

    assert world.says() == said
    assert world.kube.writes == written


def test_what_has_taken_effect_stays_so_also_where_a_newer_version_has_written_it(world: ApprovedWorld) -> None:
    """After a roll-back, and the reset is gone by then."""
    world.ask(approval="Manual")
    world.until("AwaitingApproval")
    world.approve()
    world.passes()
    said = {**world.says(), "ofANewerVersion": 1}
    world.kube.replace_status(APPROVALS, world.kube.get(APPROVALS, "ns", "yes"), said)
    world.kube.delete(RESETS, "ns", "p", world.clock.now().isoformat())

    assert world.says() == said


def test_a_fleets_plan_is_approved_as_one(tmp_path: Path) -> None:
    fleet = FleetWorld(tmp_path)
    fleet.ask(approval="Manual")
    fleet.some_passes(8)
    fleet.approve()

    fleet.passes()

    assert (fleet.reset["phase"], fleet.offsets) == ("Succeeded", [10] * len(FLEET))
    assert fleet.reset["approval"]["name"] == "yes"
    fleet.executor.shutdown()
