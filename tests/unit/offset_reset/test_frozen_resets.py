"""Resets through a KafkaConnection that is frozen: none begins, none that is approved is applied, what runs goes on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.observed import FROZEN_BY, freeze, observe
from support.policy_world import PolicyWorld
from support.reset_world import World


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    yield made
    made.executor.shutdown()


def test_no_reset_begins_and_each_says_who_has_frozen_it(world: World) -> None:
    freeze(world.live)
    world.ask()

    world.some_passes(5)

    assert world.offset == 50
    assert world.condition("Complete")["reason"] == "Frozen"
    assert world.condition("Complete")["message"].endswith(
        f"KafkaConnection kafka is {FROZEN_BY}. Nothing new begins until spec.freeze is removed"
    )
    assert "startedAt" not in world.reset

    freeze(world.live, thaw=True)
    world.passes()
    assert (world.reset["phase"], world.offset) == ("Succeeded", 10)


def test_a_plan_that_is_approved_meanwhile_is_applied_afterwards(world: World) -> None:
    world.ask(approval="Manual")
    world.passes()
    freeze(world.live)
    world.approve()

    world.some_passes(5)
    assert (world.reset["phase"], world.offset) == ("AwaitingApproval", 50)
    assert world.condition("Complete")["reason"] == "Frozen"

    freeze(world.live, thaw=True)
    world.passes()
    assert (world.reset["phase"], world.offset) == ("Succeeded", 10)


def test_one_that_runs_goes_on_to_its_end(world: World) -> None:
    world.ask()
    world.some_passes(2)
    assert "startedAt" in world.reset
    assert world.offset == 50
    freeze(world.live)

    world.passes()

    assert (world.reset["phase"], world.offset) == ("Succeeded", 10)


def test_what_a_policy_says_of_its_connection_goes_with_the_connection(tmp_path: Path) -> None:
    world = PolicyWorld(tmp_path)
    observe(world.live, world.kafka)
    freeze(world.live)
    world.declare("one")
    world.rounds()
    assert world.said("Frozen") == ("True", "Frozen")
    assert world.said("Observing") == ("True", "Observing")

    live = world.live.get("ns", "kafka")
    assert live is not None
    world.live.drop("ns", "kafka", uid=live.uid)
    world.rounds()

    assert world.said("Frozen") is None
    assert world.said("Observing") is None
    world.executor.shutdown()
