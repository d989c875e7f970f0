"""Resets through a KafkaConnection that only observes: they stop at their plans, and nothing is written to Kafka."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.killed import Killed
from support.observed import observe
from support.policy_world import PolicyWorld
from support.reset_world import T0, FleetWorld, World
from tidegate.control.records import RunKey
from tidegate.resources.reset import ResetPhase, has_ended


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    observe(made.live, made.kafka)
    yield made
    made.executor.shutdown()


def wrote(world: World) -> list[str]:
    """Calls that change something in the cluster."""
    looks = {"cluster", "topics", "groups", "group_ids", "committed", "committed_of", "log_bounds", "offsets_at"}
    looks |= {"managed_members", "pending", "record_times", "capabilities without a probe", "contents", "commits_of"}
    looks |= {"committed_by_streams"}
    return [call for call in world.kafka.calls if call not in looks]


def test_a_reset_stops_at_its_plan_and_changes_nothing(world: World) -> None:
    world.ask()
    world.kafka.calls.clear()

    world.passes()

    assert world.reset["phase"] == "AwaitingApproval"
    assert world.reset["plan"]["recordsReplayed"] == 40
    assert world.offset == 50
    assert wrote(world) == []
    world.kafka.control.read()
    assert not world.kafka.control.exist, "no claim was written"


def test_an_approval_takes_no_effect_while_it_only_observes_and_says_so(world: World) -> None:
    world.ask()
    world.passes()
    world.approve()

    world.some_passes(5)

    assert (world.reset["phase"], world.offset) == ("AwaitingApproval", 50)
    assert world.condition("Complete")["reason"] == "Observing"
    assert "KafkaConnection kafka only observes" in world.condition("Complete")["message"]
    assert "approvedDigest" not in world.reset


def test_a_plan_made_meanwhile_is_applied_later_only_once_it_is_approved(world: World) -> None:
    world.ask()
    world.passes()
    observe(world.live, world.kafka, only=False)

    world.passes()
    assert (world.reset["phase"], world.offset) == ("AwaitingApproval", 50)

    world.approve()
    world.passes()
    assert (world.reset["phase"], world.offset) == ("Succeeded", 10)


def test_a_plan_that_nobody_approves_in_time_ends_without_a_write(world: World) -> None:
    world.ask(deadline="5m")
    world.passes()
    world.kafka.calls.clear()
    world.clock.sleep(400)

    world.passes()

    assert (world.reset["phase"], world.condition("Failed")["reason"]) == ("Failed", "DeadlineExceeded")
    assert world.condition("Failed")["message"].endswith("Nothing was changed")
    assert wrote(world) == []
    world.kafka.control.read()
    assert not world.kafka.control.exist, "no claim was written"


def test_what_was_begun_before_is_finished(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.ask()
    while world.reset.get("application") is None if world.body.get("status") else True:
        world.some_passes(1)
    observe(world.live, world.kafka)

    world.passes()

    assert (world.reset["phase"], world.offset) == ("Succeeded", 10)
    world.executor.shutdown()


def test_a_fleet_stops_at_its_plan(tmp_path: Path) -> None:
    world = FleetWorld(tmp_path)
    observe(world.live, world.kafka)
    world.ask()
    world.kafka.calls.clear()

    world.passes()

    assert world.reset["phase"] == "AwaitingApproval"
    assert world.offsets == [50, 50, 50]
    assert wrote(world) == []
    world.executor.shutdown()


@pytest.mark.parametrize("approved", [False, True])
def test_a_policys_id_counts_as_executed_only_once_its_plan_goes_ahead(tmp_path: Path, *, approved: bool) -> None:
    world = PolicyWorld(tmp_path)
    observe(world.live, world.kafka)
    world.declare("one")
    world.rounds()
    [name] = world.resets
    assert world.resets[name] == "AwaitingApproval"
    assert world.said("Observing") == ("True", "Observing")
    assert not world.kafka.control.read().runs
    observe(world.live, world.kafka, only=False)
    world.name = name
    if approved:
        world.approve()

    world.rounds()

    assert world.said("Observing") is None
    assert has_ended(ResetPhase(world.reset["phase"])) is approved
    assert (RunKey("ns", "p", "one") in world.kafka.control.read().runs) is approved
    assert world.kafka.committed("payments")[T0] == (10 if approved else 50)
    world.executor.shutdown()


def test_an_approved_plan_does_not_go_ahead_before_that_is_written_down(tmp_path: Path) -> None:
    """Its approval was written down, and the operator died before it could write that its id is executed."""
    world = PolicyWorld(tmp_path)
    observe(world.live, world.kafka)
    world.declare("one")
    world.rounds()
    [world.name] = world.resets
    observe(world.live, world.kafka, only=False)
    world.approve()
    world.kube.dies_in = 2
    with pytest.raises(Killed):
        world.rounds()
    world.kube.dies_in = None
    assert "approvedDigest" in world.reset
    assert world.kafka.committed("payments")[T0] == 50
    live = world.live.get("ns", "kafka")
    assert live is not None
    world.live.drop("ns", "kafka", uid=live.uid)
    world.restart()

    for _ in range(5):
        asyncio.run(world.reconciler.reconcile(world.body))
    assert world.kafka.committed("payments")[T0] == 50
    assert world.condition("Reconciling")["reason"] == "WaitingForConnection"
    world.live.put(live)
    world.restart()
    world.rounds()
    assert world.reset["phase"] == "Succeeded"
    assert RunKey("ns", "p", "one") in world.kafka.control.read().runs
    world.executor.shutdown()
