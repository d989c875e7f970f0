"""An `OffsetReset`'s passes: it runs once, its status tells all, and it takes turns with what resets the same group."""

import asyncio
import shutil
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from support.fake_kube import FakeKube
from support.killed import Killed
from support.reset_world import CREATED, FLEET, T0, FleetWorld, World, policy_parts
from tidegate.kafka.model import TopicPartition
from tidegate.kube.loop import Reconciler
from tidegate.kube.ports import POLICIES, RESETS
from tidegate.offset_reset.passes import ResetPasses
from tidegate.offset_reset.reconcile import OffsetResetReconciler
from tidegate.policy.feature import FeatureOutcome, PolicyView
from tidegate.policy.keeping import Features
from tidegate.policy.reconcile import PolicyReconciler
from tidegate.resources.connection import AllowSpec


class Both(World):
    """Resets and policies of one operator."""

    def pass_over(self, kind: Any, name: str) -> None:
        """One pass, whatever it asks for."""
        of = self.policies if kind is POLICIES else self.reconciler
        done = asyncio.run(of.reconcile(self.kube.get(kind, "ns", name)))
        self.clock.sleep(min(done.again_after_s, 1.0))

    def reconciler_of(self, parts: Any) -> Reconciler:
        self.parts, self.passes_of_both = parts, ResetPasses(parts)
        self.policies = PolicyReconciler(policy_parts(parts), self.passes_of_both, Features())
        return OffsetResetReconciler(self.passes_of_both, parts)

    def ask(self, name: str = "p", **spec: Any) -> None:
        super().ask(name, **spec)
        self.name = "p"

    def status(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = self.kube.get(RESETS, "ns", name)["status"]
        return found

    def until_ended(self, name: str) -> dict[str, Any]:
        for _ in range(60):
            self.pass_over(RESETS, name)
            body = self.kube.get(RESETS, "ns", name)
            if "finishedAt" in body.get("status", {}) and not body["metadata"].get("finalizers"):
                return self.status(name)
        raise AssertionError(f"no end: {self.kube.log}")

    def is_so(self, name: str, condition: str) -> dict[str, Any]:
        found: dict[str, Any] = next((c for c in self.status(name)["conditions"] if c["type"] == condition), {})
        return found


@pytest.fixture
def world(tmp_path: Path) -> Iterator[Both]:
    made = Both(tmp_path)
    yield made
    made.executor.shutdown()


def test_it_runs_once_and_its_status_tells_all(world: Both) -> None:
    world.ask()

    world.passes()
    world.kafka.commit_directly("payments", {T0: 70})
    world.restart()
    world.passes()

    assert world.offset == 70
    status = world.status("p")
    assert (status["phase"], status["plan"]["recordsReplayed"]) == ("Succeeded", 40)
    assert world.is_so("p", "Complete")["status"] == "True"
    assert world.is_so("p", "Complete")["reason"] == "Applied"
    assert world.is_so("p", "Ready")["status"] == "True"
    assert not world.is_so("p", "Failed")
    assert not world.is_so("p", "Reset")


def test_one_that_fails_says_so_in_a_condition_that_can_be_waited_for(world: Both) -> None:
    world.ask(partitions=[{"topic": "no-such-topic"}])

    world.passes()

    assert world.status("p")["phase"] == "Failed"
    failed, complete = world.is_so("p", "Failed"), world.is_so("p", "Complete")
    assert (failed["status"], failed["reason"]) == ("True", "UnknownTopic")
    assert (complete["status"], complete["reason"], complete["message"]) == ("False", "UnknownTopic", failed["message"])
    assert world.is_so("p", "Stalled")["status"] == "True"
    assert world.offset == 50


def test_a_refused_one_has_not_failed_and_can_be_corrected(world: Both) -> None:
    world.ask(to={"configMap": {"name": "offsets", "key": "csv"}})

    world.passes()

    assert world.is_so("p", "Stalled")["reason"] == "ConfigMapNotFound"
    assert world.is_so("p", "Stalled")["message"].startswith("spec.to.configMap:")
    assert not world.is_so("p", "Failed")

    world.kube.config_maps["ns", "offsets"] = {"csv": "orders,0,7\n"}
    world.passes()
    assert world.status("p")["phase"] == "Succeeded"
    assert world.offset == 7


def test_a_plan_is_approved_by_its_digest(world: Both) -> None:
    world.ask(approval="Manual")
    world.some_passes(8)
    status = world.status("p")
    assert status["phase"] == "AwaitingApproval"
    assert world.offset == 50

    world.approve(status["digest"])
    world.passes()

    assert world.status("p")["phase"] == "Succeeded"
    assert world.status("p")["approvedDigest"] == status["digest"]
    assert world.offset == 10


def test_a_suspended_one_begins_once_it_is_resumed_and_meanwhile_blocks_nobody(world: Both) -> None:
    world.ask(suspend=True)
    world.some_passes(5)
    assert world.is_so("p", "Complete")["reason"] == "Suspended"
    assert "startedAt" not in world.status("p")

    world.ask("other", to={"offset": 20})
    assert world.until_ended("other")["phase"] == "Succeeded"
    assert world.offset == 20

    spec = {**world.kube.get(RESETS, "ns", "p")["spec"], "suspend": False}
    world.kube.change(RESETS, "ns", "p", spec=spec)
    world.passes()
    assert world.offset == 10


def test_an_approved_plan_is_not_applied_while_it_is_suspended(world: Both) -> None:
    world.ask(approval="Manual")
    world.passes()
    spec = {**world.kube.get(RESETS, "ns", "p")["spec"], "suspend": True}
    digest = world.status("p")["digest"]
    world.kube.change(RESETS, "ns", "p", spec=spec)
    world.approve(digest)

    world.some_passes(5)

    assert world.offset == 50
    assert world.is_so("p", "Ready")["reason"] == "Suspended"
    world.kube.change(RESETS, "ns", "p", spec={**spec, "suspend": False})
    world.passes()
    assert world.offset == 10


def test_it_waits_for_another_that_resets_the_same_group(world: Both) -> None:
    world.ask("first", to={"offset": 20})
    world.ask()
    world.some_passes(3)
    assert world.is_so("p", "Complete")["reason"] == "WaitingForReset"
    assert "OffsetReset ns/first is to reset group payments first" in world.is_so("p", "Complete")["message"]

    assert world.until_ended("first")["phase"] == "Succeeded"
    assert world.offset == 20

    world.pass_over(RESETS, "p")
    assert world.status("p")["phase"] == "Pending"
    world.ask("third", to={"offset": 30})
    world.pass_over(RESETS, "third")
    assert "OffsetReset ns/p is resetting group payments" in world.is_so("third", "Complete")["message"]

    assert world.until_ended("p")["phase"] == "Succeeded"
    assert world.offset == 10


def test_undo_names_another_reset_of_the_same_group(world: Both) -> None:
    world.ask()
    world.passes()
    world.ask("back", to={"undo": "p"})

    assert world.until_ended("back")["phase"] == "Succeeded"
    assert world.offset == 50
    assert world.status("p")["resultDigest"]


def test_undo_may_write_the_namespace_of_its_connection_though_the_other_one_did_not(world: Both) -> None:
    world.ask()
    world.passes()
    assert world.offset == 10

    world.ask("back", connectionRef={"name": "kafka", "namespace": "ns"}, to={"undo": "p"})

    assert world.until_ended("back")["phase"] == "Succeeded"
    assert world.offset == 50


def test_undo_of_another_groups_reset_is_refused(world: Both) -> None:
    other = TopicPartition("orders", 0)
    world.kafka.commit_directly("refunds", {other: 5})
    world.ask()
    world.passes()
    world.ask("back", group="refunds", to={"undo": "p"})

    for _ in range(3):
        world.pass_over(RESETS, "back")

    assert world.is_so("back", "Stalled")["reason"] == "UndoOfOtherGroup"
    assert world.kafka.committed("refunds")[other] == 5


def test_undo_through_another_connection_is_refused(world: Both) -> None:
    """Of another cluster, the places that it stood at are no places here."""
    world.open_connection("other", "uid-of-other", world.connection)
    world.restart()
    world.ask()
    world.passes()
    world.ask("back", connectionRef={"name": "other"}, to={"undo": "p"})

    for _ in range(10):
        world.pass_over(RESETS, "back")

    assert world.offset == 10
    assert world.is_so("back", "Stalled")["reason"] == "UndoOfOtherGroup"


def test_undo_goes_back_in_no_topic_that_is_not_allowed_any_more(world: Both) -> None:
    world.ask()
    world.passes()
    live = world.live.get("ns", "kafka")
    assert live is not None
    world.live.put(replace(live, allow=AllowSpec(topics=("refunds",))))
    world.ask("back", to={"undo": "p"})

    for _ in range(10):
        world.pass_over(RESETS, "back")

    assert world.offset == 10
    assert world.is_so("back", "Stalled")["reason"] == "ForeignRun"


def test_undo_of_what_is_gone_fails_and_says_why(world: Both) -> None:
    world.ask("gone", to={"undo": "never-was"})

    assert world.until_ended("gone")["phase"] == "Failed"
    assert "name an OffsetReset of this namespace" in world.is_so("gone", "Failed")["message"]
    assert world.offset == 50


@pytest.mark.parametrize("first", ["p", "back"])
def test_undo_of_a_reset_that_has_not_ended_waits_for_it_whichever_is_older(world: Both, first: str) -> None:
    if first == "back":
        world.ask("back", to={"undo": "p"})
        world.ask()
    else:
        world.ask(suspend=True)
        world.ask("back", to={"undo": "p"})
    world.pass_over(RESETS, "back")
    world.pass_over(RESETS, "back")
    assert world.is_so("back", "Complete")["reason"] == "UndoneResetNotEnded"
    assert "Failed" not in world.status("back").get("phase", "")

    world.kube.change(RESETS, "ns", "p", spec={**world.kube.get(RESETS, "ns", "p")["spec"], "suspend": False})
    world.passes()
    assert world.offset == 10
    assert world.until_ended("back")["phase"] == "Succeeded"
    assert world.offset == 50


def test_undo_that_names_itself_is_refused_and_stops_nobody_else(world: Both) -> None:
    world.ask("evil", to={"undo": "evil"})
    world.pass_over(RESETS, "evil")
    assert world.is_so("evil", "Stalled")["reason"] == "InvalidSpec"
    assert world.is_so("evil", "Complete")["status"] == "False"
    assert "must name another OffsetReset" in world.is_so("evil", "Complete")["message"]

    world.ask()
    world.passes()
    assert world.offset == 10


def test_undo_of_one_group_is_not_that_of_a_fleet_of_the_same_name(world: Both) -> None:
    world.ask()
    world.passes()
    spec = {"connectionRef": {"name": "kafka"}, "groups": ["payments"], "to": {"undo": "p"}}
    world.kube.create(RESETS, "ns", "back", spec, CREATED)
    world.pass_over(RESETS, "back")

    assert world.is_so("back", "Stalled")["reason"] == "UndoOfOtherGroup"


class Noting:
    """A feature that notes whether its policy's group is being reset."""

    def __init__(self) -> None:
        self.seen: list[bool] = []

    async def reconcile(self, policy: PolicyView) -> FeatureOutcome:
        self.seen.append(policy.resetting)
        return FeatureOutcome(policy.status)

    async def forget(self, uid: str) -> None: ...

    async def disconnected(self, uid: str) -> None: ...


def test_features_of_a_policy_know_of_a_reset_of_their_group(world: Both) -> None:
    noting = Noting()
    world.policies = PolicyReconciler(policy_parts(world.parts), world.passes_of_both, Features((noting,)))
    spec = {"connectionRef": {"name": "kafka"}, "group": "payments", "retention": {}}
    world.kube.create(POLICIES, "ns", "keeps", spec, CREATED)
    world.pass_over(POLICIES, "keeps")
    world.ask()
    world.pass_over(RESETS, "p")
    world.pass_over(POLICIES, "keeps")
    world.until_ended("p")
    world.pass_over(POLICIES, "keeps")

    assert noting.seen == [False, True, False]


@pytest.mark.parametrize("stored", [True, False])
def test_one_that_has_ended_and_whose_status_is_of_another_version_is_left_alone(world: Both, stored: bool) -> None:
    world.ask()
    world.passes()
    world.kafka.commit_directly("payments", {T0: 70})
    body = world.kube.get(RESETS, "ns", "p")
    FakeKube.replace_status(world.kube, RESETS, body, {**body["status"], "ofTheNextVersion": 1})
    if not stored:
        shutil.rmtree(world.folder / "runs")
    world.restart()
    world.some_passes(3)

    assert world.offset == 70
    assert world.status("p")["resultDigest"] == body["status"]["resultDigest"]
    assert [h.reason for h in world.kube.happenings_of("p")][-1] == "UnreadableStatus"
    world.ask("other")
    world.pass_over(RESETS, "other")
    assert world.is_so("other", "Complete")["reason"] == "Pending", "it is in nobody's way"


def test_a_reset_that_was_suspended_and_is_spoilt_then_says_only_that(world: Both) -> None:
    world.ask(suspend=True)
    world.some_passes(2)
    assert world.is_so("p", "Complete")["reason"] == "Suspended"
    world.kube.change(RESETS, "ns", "p", spec={"group": "payments"})
    world.some_passes(1)

    complete, stalled = world.is_so("p", "Complete"), world.is_so("p", "Stalled")
    assert (complete["status"], complete["reason"], complete["message"]) == ("False", "InvalidSpec", stalled["message"])


def test_suspending_does_not_stop_one_that_has_begun(world: Both) -> None:
    world.ask()
    world.kube.dies_in = 1
    with pytest.raises(Killed):
        world.passes()
    world.restart()
    spec = {**world.kube.get(RESETS, "ns", "p")["spec"], "suspend": True}
    world.kube.change(RESETS, "ns", "p", spec=spec)

    world.passes()

    assert world.status("p")["phase"] == "Succeeded"


def test_an_approved_plan_that_is_suspended_past_its_deadline_says_so(world: Both) -> None:
    world.ask(approval="Manual")
    world.passes()
    digest = world.status("p")["digest"]
    spec = {**world.kube.get(RESETS, "ns", "p")["spec"], "suspend": True}
    world.kube.change(RESETS, "ns", "p", spec=spec)
    world.approve(digest)
    world.some_passes(2)
    assert world.is_so("p", "Complete")["reason"] == "Suspended"

    world.clock.sleep(1000)
    world.some_passes(5)

    assert (
        "its plan was approved, but the reset could not go ahead (spec.suspend is true"
        in world.is_so("p", "Failed")["message"]
    )
    assert world.offset == 50


def test_it_is_deleted_some_time_after_its_end_and_not_before(world: Both) -> None:
    world.ask(ttlAfterFinished="1h")
    world.passes()
    world.clock.sleep(timedelta(minutes=59).total_seconds())
    world.some_passes(1)
    assert world.there

    world.clock.sleep(120)
    asyncio.run(world.reconciler.reconcile(world.kube.get(RESETS, "ns", "p")))
    assert not world.there


@pytest.mark.parametrize("change", [{"ttlAfterFinished": "9h"}, {}])
def test_it_is_kept_where_more_time_was_asked_for_meanwhile(world: Both, change: dict[str, str]) -> None:
    world.ask(ttlAfterFinished="1h")
    world.passes()
    seen = world.kube.get(RESETS, "ns", "p")
    spec = {n: v for n, v in seen["spec"].items() if n != "ttlAfterFinished"} | change
    world.kube.change(RESETS, "ns", "p", spec=spec)
    world.clock.sleep(7200)

    asyncio.run(world.reconciler.reconcile(seen))

    assert world.there


def test_somebody_elses_finalizer_keeps_it_from_being_gone_and_not_from_being_deleted(world: Both) -> None:
    world.ask(ttlAfterFinished="1h")
    world.passes()
    world.kube.set_finalizers(RESETS, world.kube.get(RESETS, "ns", "p"), ["example.com/mine"])
    world.clock.sleep(7200)

    asyncio.run(world.reconciler.reconcile(world.kube.get(RESETS, "ns", "p")))

    assert world.kube.get(RESETS, "ns", "p")["metadata"]["deletionTimestamp"]


@pytest.mark.parametrize("steps", range(2, 5))
def test_deleting_it_in_mid_flight_settles_its_run(world: Both, steps: int) -> None:
    world.ask()
    world.kube.dies_in = steps
    with pytest.raises(Killed):
        world.passes()
    world.restart()
    world.kube.delete(RESETS, "ns", "p", world.clock.now().isoformat())

    world.passes()

    assert not world.there
    assert world.offset == 50
    assert "Abandoned" not in [h.reason for h in world.kube.happenings_of("p")]


def test_a_name_that_cannot_be_a_runs_is_refused(world: Both) -> None:
    world.ask("p.q")

    world.pass_over(RESETS, "p.q")

    assert world.is_so("p.q", "Stalled")["reason"] == "InvalidSpec"
    assert "metadata.name: must have at most 63" in world.is_so("p.q", "Stalled")["message"]


class ResetFleetWorld(FleetWorld):
    """Three groups at 50 of 100, and resets of `payments*`."""

    kind = RESETS
    reconciler_of = World.reconciler_of

    def ask(self, reset_id: str = "p", **reset: Any) -> None:
        spec = {"connectionRef": {"name": "kafka"}, "groups": ["payments*"], "to": {"offset": 10}, **reset}
        self.kube.create(RESETS, "ns", reset_id, spec, CREATED)


def test_a_fleet_is_reset_and_undone_by_another(tmp_path: Path) -> None:
    world = ResetFleetWorld(tmp_path)
    world.ask()
    world.passes()
    assert world.offsets == [10, 10, 10]

    world.ask("back", to={"undo": "p"})
    for _ in range(40):
        asyncio.run(world.reconciler.reconcile(world.kube.get(RESETS, "ns", "back")))
        world.clock.sleep(1)

    status = world.kube.get(RESETS, "ns", "back")["status"]
    assert status["phase"] == "Succeeded"
    assert (status["fleet"]["groups"], status["fleet"]["reset"]) == (len(FLEET), len(FLEET))
    assert world.offsets == [50, 50, 50]
    world.executor.shutdown()
