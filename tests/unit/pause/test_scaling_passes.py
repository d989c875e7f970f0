"""A pause by scaling, pass by pass: replicas come back whatever dies when, and whoever scales meanwhile."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from support.fake_consumer import FakeConsumer
from support.fake_kube import FakeKube
from support.killed import Killed
from support.pause_world import World, condition, status
from tidegate.kafka.errors import Unavailable
from tidegate.kafka.model import GroupType
from tidegate.kube.ports import PAUSES, KubeFailure
from tidegate.pause.scaler import WORKLOAD_NOT_SCALABLE
from tidegate.pause.workloads import WORKLOAD_NOT_FOUND, WORKLOAD_UNREADABLE
from tidegate.resources.connection import AllowSpec
from tidegate.resources.pause import WorkloadRef

NEWER = "tidegate_written_by_newer_version"
APP = WorkloadRef(api_version="apps/v1", kind="Deployment", name="app")
OTHER = WorkloadRef(api_version="argoproj.io/v1alpha1", kind="Rollout", name="other")
BY_SCALE: Mapping[str, Any] = {
    "connectionRef": {"name": "kafka"},
    "group": "payments",
    "partitions": None,
    "method": "Scale",
    "workloadRef": APP.to_json(),
}
BOTH = {**BY_SCALE, "workloadRef": None, "workloadRefs": [APP.to_json(), OTHER.to_json()]}


def made(replicas: int = 3, *, keda: bool = False, paused_replicas: str | None = None) -> World:
    world = World()
    world.workloads.create("ns", APP, replicas)
    if keda:
        world.workloads.scale_by_keda("ns", "app-scaler", APP, paused_replicas)
    return world


@pytest.fixture
def world() -> Iterator[World]:
    world = made()
    yield world
    world.close()


def replicas(world: World, workload: WorkloadRef = APP) -> int:
    return world.workloads.scale("ns", workload).replicas


def keda(world: World) -> str | None:
    found = world.workloads.scaled_object("ns", APP)
    assert found is not None
    return found.paused_replicas


def test_what_it_goes_back_to_is_written_before_it_is_scaled() -> None:
    world = made(keda=True)
    world.ask(**BY_SCALE)
    world.passes()
    assert world.steps.log == [
        "status Pausing 0/0",
        "finalizer on",
        "keda 0",
        "Deployment app 0",
        "status Paused 0/0",
    ]
    [record] = status(world)["workloads"]
    assert (record["phase"], record["replicas"], record["scaledDown"]) == ("Paused", 3, 1)
    assert condition(world, "Ready")[:2] == ("True", "Paused")
    assert status(world)["method"] == "Scale"
    for _ in range(3):
        world.passes()
    assert len(world.steps.log) == 5, "a pause that nothing happens to writes nothing"

    world.drop()
    world.steps.log.clear()
    world.passes()
    assert world.steps.log == [
        "status Resuming 0/0",
        "keda None",
        "Deployment app 3",
        "status Resuming 0/0",
        "finalizer off",
    ]
    assert world.body is None
    assert (replicas(world), keda(world)) == (3, None)
    assert [h.reason for h in world.kube.happenings_of("p")] == [
        "Pausing",
        "ScalingDown",
        "Paused",
        "Resuming",
        "ScalingBack",
        "Resumed",
    ]
    world.close()


STEPS = 10
"""What the operator does to the world from the first pass of a pause with KEDA to its end."""


@pytest.mark.parametrize("first", range(STEPS))
def test_a_process_may_die_before_any_step_and_again_before_a_later_one(first: int) -> None:
    for second in (None, *range(STEPS)):
        world = made(keda=True, paused_replicas="2")
        for _ in world.begin_and_end(first, second, **BY_SCALE):
            assert (world.phase, replicas(world), keda(world)) == ("Paused", 0, "0")
        assert (replicas(world), keda(world)) == (3, "2"), (first, second)
        world.close()


_STEP = st.tuples(
    st.sampled_from(["ask", "drop"]),
    st.sampled_from(["a", "b"]),
    st.booleans(),
    st.sampled_from([40, 40, 1, 2, 3, 4]),
    st.sampled_from([None, None, 0, 1, 2, 3, 4]),
)
"""What a user does to which pause, whether both are looked at, how often, and before which step the operator dies."""


@settings(max_examples=80, deadline=None, derandomize=True, phases=[Phase.explicit, Phase.generate])
@given(st.lists(_STEP, min_size=2, max_size=7))
def test_two_pauses_of_one_workload_end_with_what_it_was(
    script: list[tuple[str, str, bool, int, int | None]],
) -> None:
    world = made(4)
    for verb, name, looks_at_both, passes, dies_in in script:
        if verb == "ask" and world.body_of(name) is None:
            world.ask(name, **BY_SCALE)
        elif verb == "drop" and world.body_of(name) is not None:
            world.drop(name)
        world.steps.dies_in = dies_in
        try:
            world.passes(*("a", "b") if looks_at_both else (name,), limit=passes)
        except Killed:
            world.reconciler = world.fresh_reconciler()
        for there in ("a", "b"):
            if world.body_of(there) is not None and world.phase_of(there) == "Paused":
                assert replicas(world) == 0
    world.steps.dies_in = None
    for name in ("a", "b"):
        body = world.body_of(name)
        if body is not None and not body["metadata"].get("deletionTimestamp"):
            world.drop(name)
    world.passes("a", "b")
    assert world.body_of("a") is None
    assert world.body_of("b") is None
    assert replicas(world) == 4
    world.close()


def test_a_second_pause_keeps_it_at_zero_until_it_ends_as_well(world: World) -> None:
    world.ask(**BY_SCALE)
    world.passes()
    world.ask("q", **BY_SCALE)
    world.passes("q")
    assert [record["replicas"] for record in status(world, "q")["workloads"]] == [3]
    world.drop()
    world.passes()
    assert world.body is None
    assert replicas(world) == 0
    world.drop("q")
    world.passes("q")
    assert replicas(world) == 3


@pytest.mark.parametrize(
    "newer", [{"ofTheNextVersion": 1}, {"workloads": [{"ofTheNextVersion": 1}]}], ids=["status", "record"]
)
def test_a_pause_whose_status_only_a_newer_version_reads_keeps_it_at_zero(world: World, newer: dict[str, Any]) -> None:
    world.ask(**BY_SCALE)
    world.ask("q", **BY_SCALE)
    world.passes("p", "q")
    told = status(world, "q")
    records = [{**record, **more} for record, more in zip(told["workloads"], newer.get("workloads", [{}]), strict=True)]
    body = world.body_of("q")
    assert body is not None
    FakeKube.replace_status(world.kube, PAUSES, body, {**told, **newer, "workloads": records})
    world.reconciler = world.fresh_reconciler()

    world.drop()
    world.passes()

    assert (world.body, replicas(world)) == (None, 0)
    world.ask("r", **BY_SCALE)
    world.passes("r")
    assert [record["replicas"] for record in status(world, "r")["workloads"]] == [3]


def test_each_workload_that_another_pause_keeps_at_zero_goes_back_to_what_that_one_recorded(world: World) -> None:
    """Also where one that is named before it still runs."""
    world.workloads.create("ns", OTHER, 2)
    world.ask(**{**BY_SCALE, "workloadRef": OTHER.to_json()})
    world.passes()
    world.ask("q", **BOTH)
    world.passes("q")
    assert [record["replicas"] for record in status(world, "q")["workloads"]] == [3, 2]
    for name in ("p", "q"):
        world.drop(name)
        world.passes(name)
    assert (replicas(world), replicas(world, OTHER)) == (3, 2)


def test_a_workload_that_was_at_zero_stays_there(world: World) -> None:
    world.workloads.change("ns", APP, 0)
    world.ask(**BY_SCALE)
    world.passes()
    assert world.phase == "Paused"
    world.drop()
    world.passes()
    assert replicas(world) == 0
    assert [step for step in world.steps.log if step.startswith("Deployment")] == []


# --- others scale -----------------------------------------------------------------------------------------------------


def test_replicas_that_somebody_sets_during_the_pause_are_those_it_goes_back_to(world: World) -> None:
    world.ask(**BY_SCALE)
    world.passes()
    world.workloads.change("ns", APP, 5)
    world.passes()
    assert (world.phase, replicas(world)) == ("Paused", 0)
    world.drop()
    world.passes()
    assert replicas(world) == 5


def test_replicas_that_somebody_sets_while_it_goes_back_stay(world: World) -> None:
    world.ask(**BY_SCALE)
    world.passes()
    world.steps.dies_in = 1  # after "Resuming" was written
    world.drop()
    with pytest.raises(Killed):
        world.passes()
    world.steps.dies_in = None
    world.workloads.change("ns", APP, 1)
    world.passes()
    assert world.body is None
    assert replicas(world) == 1


def test_who_scales_up_again_and_again_is_not_fought_for_ever(world: World) -> None:
    world.ask(**BY_SCALE)
    world.passes()
    for _ in range(6):
        world.workloads.change("ns", APP, 3)
        world.passes()
    scaled = [step for step in world.steps.log if step == "Deployment app 0"]
    assert len(scaled) == 4
    assert (world.phase, replicas(world)) == ("Degraded", 3)
    state, reason, message = condition(world, "Stalled")
    assert (state, reason) == ("True", "ScaledByOthers")
    assert "Deployment app" in message
    assert "ignoreDifferences" in message
    assert "4 times, each less than an hour after the one before" in message
    assert condition(world, "Paused")[0] == "False"

    world.clock.sleep(3601)
    world.passes()
    assert (world.phase, replicas(world)) == ("Paused", 0)


def test_who_is_faster_than_a_look_is_counted_as_well(world: World) -> None:
    set_replicas = world.workloads.set_replicas

    def set_and_undone(namespace: str, workload: WorkloadRef, *arguments: Any) -> None:
        set_replicas(namespace, workload, *arguments)
        world.workloads.change(namespace, workload, 3)

    world.workloads.set_replicas = set_and_undone  # type: ignore[method-assign]
    world.ask(**BY_SCALE)
    world.passes()
    assert len([step for step in world.steps.log if step == "Deployment app 0"]) == 4
    assert condition(world, "Stalled")[1] == "ScaledByOthers"


def test_a_fight_about_kedas_annotation_is_not_fought_for_ever_either() -> None:
    world = made(keda=True)
    annotate = world.workloads.set_paused_replicas

    def set_and_undone(*arguments: Any) -> None:
        annotate(*arguments)
        world.workloads.annotate("ns", "app-scaler", None)

    world.workloads.set_paused_replicas = set_and_undone  # type: ignore[method-assign]
    world.ask(**BY_SCALE)
    world.passes()
    assert len([step for step in world.steps.log if step == "keda 0"]) == 4
    assert condition(world, "Stalled")[1] == "ScaledByOthers"
    world.close()


def test_where_keda_scales_its_first_number_is_not_what_it_goes_back_to() -> None:
    world = made(7, keda=True)
    world.ask(**BY_SCALE)
    world.passes()
    world.workloads.annotate("ns", "app-scaler", None)
    world.workloads.change("ns", APP, 1)
    world.passes()
    assert (world.phase, replicas(world), keda(world)) == ("Paused", 0, "0")
    world.drop()
    world.passes()
    assert (replicas(world), keda(world)) == (7, None)
    world.close()


@pytest.mark.parametrize("before", [None, "0", "2"])
def test_an_annotation_of_keda_that_was_there_before_is_there_again(before: str | None) -> None:
    world = made(keda=True, paused_replicas=before)
    world.ask(**BY_SCALE)
    world.passes()
    assert keda(world) == "0"
    world.kube.change(PAUSES, "ns", "p", spec={**BY_SCALE, "suspend": True})
    world.passes()
    assert (world.phase, keda(world), replicas(world)) == ("Resumed", before, 3)
    assert status(world)["workloads"] == []
    world.close()


def test_an_annotation_of_keda_that_somebody_sets_during_the_pause_is_there_again() -> None:
    world = made(keda=True)
    world.ask(**BY_SCALE)
    world.passes()
    world.workloads.annotate("ns", "app-scaler", "2")
    world.passes()
    assert (world.phase, replicas(world), keda(world)) == ("Paused", 0, "0")
    world.drop()
    world.passes()
    assert (replicas(world), keda(world)) == (3, "2")
    world.close()


def test_a_scaled_object_that_is_made_during_the_pause_scales_once_it_is_over(world: World) -> None:
    world.ask(**BY_SCALE)
    world.passes()
    world.workloads.scale_by_keda("ns", "app-scaler", APP)
    world.passes()
    assert (world.phase, replicas(world), keda(world)) == ("Paused", 0, "0")
    world.drop()
    world.passes()
    assert (replicas(world), keda(world)) == (3, None)


# --- made anew, gone, not there ---------------------------------------------------------------------------------------


def test_a_workload_that_is_made_anew_is_another_one(world: World) -> None:
    world.ask(**BY_SCALE)
    world.passes()
    world.workloads.delete("ns", APP)
    world.passes()
    assert world.phase == "Paused"
    world.workloads.create("ns", APP, 8)
    world.passes()
    assert (world.phase, replicas(world)) == ("Paused", 0)
    world.drop()
    world.passes()
    assert replicas(world) == 8


def test_a_workload_that_is_gone_holds_up_nothing(world: World) -> None:
    world.ask(**BY_SCALE)
    world.passes()
    world.workloads.delete("ns", APP)
    world.drop()
    world.passes()
    assert world.body is None


def test_nothing_is_scaled_until_all_workloads_are_there(world: World) -> None:
    world.ask(**BOTH)
    world.passes()
    assert world.phase == "Pending"
    assert condition(world, "Stalled")[1] == WORKLOAD_NOT_FOUND
    assert "Rollout other (argoproj.io/v1alpha1)" in condition(world, "Stalled")[2]
    assert replicas(world) == 3

    world.workloads.create("ns", OTHER, 2)
    world.passes()
    assert world.phase == "Paused"
    assert (replicas(world), replicas(world, OTHER)) == (0, 0)
    world.drop()
    world.passes()
    assert (replicas(world), replicas(world, OTHER)) == (3, 2)


def test_a_workload_that_is_not_named_any_more_goes_back_at_once(world: World) -> None:
    world.workloads.create("ns", OTHER, 2)
    world.ask(**BOTH)
    world.passes()
    world.kube.change(PAUSES, "ns", "p", spec={**BOTH, "workloadRefs": [OTHER.to_json()]})
    world.passes()
    assert (world.phase, replicas(world), replicas(world, OTHER)) == ("Paused", 3, 0)


def test_a_kind_without_replicas_is_said_to_be_one(world: World) -> None:
    job = WorkloadRef(api_version="batch/v1", kind="Job", name="app")
    world.ask(**{**BY_SCALE, "workloadRef": job.to_json()})
    world.passes()
    assert condition(world, "Stalled")[1] == WORKLOAD_NOT_SCALABLE


def test_a_right_that_is_missing_is_named_and_asked_for_again(world: World) -> None:
    world.workloads.refusal = KubeFailure('scale: 403 cannot patch resource "deployments/scale"')
    world.ask(**BY_SCALE)
    world.passes()
    assert condition(world, "Stalled")[1] == WORKLOAD_UNREADABLE
    assert "deployments/scale" in condition(world, "Stalled")[2]
    world.workloads.refusal = None
    world.reconciler = world.fresh_reconciler()
    world.passes()
    assert world.phase == "Paused"


def test_of_several_workloads_each_goes_back_at_once(world: World) -> None:
    world.workloads.create("ns", OTHER, 2)
    world.ask(**BOTH)
    world.passes()
    world.drop()
    rests = []
    while replicas(world) == 0 or replicas(world, OTHER) == 0:
        body = world.body
        assert body is not None
        rests.append(asyncio.run(world.reconciler.reconcile(body)).again_after_s)
    assert set(rests) == {0}


@pytest.mark.parametrize("way", ["abandon", "wait"])
def test_a_workload_that_cannot_be_scaled_back_does_not_hold_the_pause_for_ever(world: World, way: str) -> None:
    world.ask(**BY_SCALE)
    world.passes()
    world.workloads.refusal = KubeFailure("403")
    world.kube.delete(PAUSES, "ns", "p", world.clock.now().isoformat())
    world.passes()
    assert world.phase == "Resuming"
    if way == "abandon":
        world.kube.change(PAUSES, "ns", "p", annotations={"tidegate.io/abandon": "true"})
    else:
        world.clock.sleep(121)
    world.passes()
    assert world.body is None
    [left] = [h.message for h in world.kube.happenings_of("p") if h.reason == "ReplicasLeft"]
    assert "Deployment app is left as it is: it had 3 replicas" in left


# --- Kafka ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("end", ["drop", "abandon", "suspend", "time"])
def test_replicas_come_back_while_kafka_is_away(world: World, end: str) -> None:
    world.ask(**BY_SCALE, resumeAfter="1h")
    world.passes()
    assert replicas(world) == 0
    world.kafka.fail("cluster", *itertools.repeat(Unavailable("away"), 100))
    match end:
        case "drop":
            world.drop()
        case "abandon":
            world.kube.change(PAUSES, "ns", "p", annotations={"tidegate.io/abandon": "true"})
            world.drop()
        case "suspend":
            world.kube.change(PAUSES, "ns", "p", spec={**BY_SCALE, "resumeAfter": "1h", "suspend": True})
        case "time":
            world.clock.sleep(3601)
    world.passes(limit=8)
    assert replicas(world) == 3
    assert (world.body is None) == (end in ("drop", "abandon"))


def test_it_is_paused_when_the_group_is_empty_and_not_before(world: World) -> None:
    world.workloads.change("ns", APP, 3, running=3)
    consumer = FakeConsumer(world.kafka, "payments", ["orders"], client_id="mine")
    consumer.start()
    world.clock.sleep(20)
    world.ask(**BY_SCALE)
    world.passes(limit=8)
    assert (world.phase, replicas(world), status(world)["paused"]) == ("Pausing", 0, "0/2")

    world.workloads.change("ns", APP, 0, running=0)
    world.passes(limit=8)
    assert world.phase == "Pausing"
    assert "mine at 127.0.0.1" in condition(world, "Reconciling")[2]

    world.clock.sleep(121)
    world.passes(limit=8)
    assert world.phase == "Degraded"
    assert condition(world, "Stalled")[1] == "MembersLeft"
    assert [m["clientId"] for m in status(world)["unmanagedMembers"]] == ["mine"]

    consumer.close()
    world.clock.sleep(1)
    world.passes()
    assert (world.phase, status(world)["paused"], status(world)["unmanagedMembers"]) == ("Paused", "2/2", [])


def test_pods_that_still_run_are_waited_for_although_the_group_is_empty(world: World) -> None:
    world.workloads.change("ns", APP, 3, running=3)
    world.ask(**BY_SCALE)
    world.passes(limit=8)
    assert (world.phase, replicas(world)) == ("Pausing", 0)
    world.workloads.change("ns", APP, 0, running=0)
    world.passes()
    assert world.phase == "Paused"


def test_where_members_run_no_agent_auto_scales_and_lets_go_of_its_gates(world: World) -> None:
    consumer = FakeConsumer(world.kafka, "payments", ["orders"], client_id="mine")
    consumer.start()
    world.clock.sleep(20)
    world.ask(**{**BY_SCALE, "method": "Auto"})
    world.passes(limit=3)
    assert len(world.held) == 2
    assert replicas(world) == 3
    world.clock.sleep(6)
    world.passes(limit=6)
    assert (replicas(world), world.held) == (0, [])
    assert status(world)["method"] == "Scale"
    consumer.close()
    world.clock.sleep(1)
    world.passes()
    assert world.phase == "Paused"
    assert "Degraded" not in [h.reason for h in world.kube.happenings_of("p")]
    world.drop()
    world.passes()
    assert (world.body, replicas(world)) == (None, 3)


def test_what_is_asked_of_the_agents_from_now_on_is_held_before_consumers_come_back(world: World) -> None:
    world.kafka.commit_directly("payments", dict.fromkeys(world.kafka.topics()["orders"].all_partitions(), 0))
    world.ask(**BY_SCALE)
    world.passes()
    world.steps.log.clear()
    world.kube.change(PAUSES, "ns", "p", spec={**BY_SCALE, "method": "Agent", "workloadRef": None})
    world.passes()
    doings = [step for step in world.steps.log if not step.startswith("status")]
    assert doings == ["hold 2", "Deployment app 3"]
    assert (world.phase, status(world)["method"], status(world)["workloads"]) == ("Paused", "Agent", [])


def test_a_streams_group_whose_members_nobody_can_see_is_never_called_paused(world: World) -> None:
    world.kafka.set_group("payments", GroupType.STREAMS)
    world.ask(**BY_SCALE)
    world.passes()
    assert (world.phase, condition(world, "Stalled")[1], replicas(world)) == ("Pending", "UnsupportedGroup", 3)


def test_a_streams_application_that_is_stopped_already_stays_so(world: World) -> None:
    """An earlier version did not look: an upgrade starts nothing, and does not go on to say that it is paused."""
    world.ask(**BY_SCALE)
    world.passes()
    world.kafka.set_group("payments", GroupType.STREAMS)
    world.passes()
    assert (world.phase, condition(world, "Stalled")[1], replicas(world)) == ("Degraded", "UnsupportedGroup", 0)
    world.drop()
    world.passes()
    assert (world.body, replicas(world)) == (None, 3)


def test_what_is_not_allowed_any_more_goes_back(world: World) -> None:
    world.ask(**BY_SCALE)
    world.passes()
    live = world.live.get("ns", "kafka")
    assert live is not None
    world.live.put(replace(live, allow=AllowSpec(groups=("other-*",))))
    world.passes()
    assert condition(world, "Stalled")[1] == "GroupNotAllowed"
    assert replicas(world) == 3
    assert world.body is not None
    assert "finalizers" not in world.body["metadata"]


def test_a_status_that_cannot_be_read_is_kept_with_what_is_to_be_given_back(world: World) -> None:
    """Were it written over, nobody would know how many replicas the workload had."""
    world.ask(**BY_SCALE)
    world.passes()
    assert replicas(world) == 0
    assert world.body is not None
    said = {**world.body["status"], "ofTheNextVersion": 1}
    FakeKube.replace_status(world.kube, PAUSES, world.body, said)
    world.reconciler = world.fresh_reconciler()
    world.drop()
    steps = len(world.steps.log)

    for _ in range(3):
        asyncio.run(world.reconciler.reconcile(world.body))

    assert {**status(world), "conditions": []} == {**said, "conditions": []}
    reasons = {c["type"]: c["reason"] for c in status(world)["conditions"]}
    assert (reasons["Ready"], reasons["Stalled"]) == ("UnreadableStatus", "UnreadableStatus")
    assert [h.reason for h in world.kube.happenings_of("p")].count("UnreadableStatus") == 1
    assert [step for step in world.steps.log[steps:] if not step.startswith("status")] == []
    assert world.metrics.registry.get_sample_value(NEWER, {"kind": "ConsumerGroupPause"}) == 1
    assert replicas(world) == 0

    # The version that wrote it comes back.
    readable = {name: value for name, value in status(world).items() if name != "ofTheNextVersion"}
    FakeKube.replace_status(world.kube, PAUSES, world.body, readable)
    world.passes()

    assert (world.body, replicas(world)) == (None, 3)


def test_a_pause_that_is_abandoned_goes_though_its_status_cannot_be_read(world: World) -> None:
    world.ask(**BY_SCALE)
    world.passes()
    assert world.body is not None
    FakeKube.replace_status(world.kube, PAUSES, world.body, {**world.body["status"], "ofTheNextVersion": 1})
    world.kube.change(PAUSES, "ns", "p", annotations={"tidegate.io/abandon": "true"})
    world.drop()

    world.passes()

    assert world.body is None
