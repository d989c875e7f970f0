"""An OffsetReset whose status only a newer version can read, deleted in mid-run: it waits for that version as long as
a deletion may take, and does not go before its gates are open."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from support.fake_kube import FakeKube
from support.reset_world import T0, World
from tidegate.kafka.errors import Unavailable
from tidegate.kafka.model import GroupType
from tidegate.kube.ports import RESETS
from tidegate.resources.connection import AllowSpec, QuotaSpec
from unit.offset_reset.test_newer_runs import begun, hold_of, is_held


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    begun(made)
    FakeKube.replace_status(made.kube, RESETS, made.body, {**made.reset, "ofTheNextVersion": 1})
    made.some_passes(2)
    yield made
    made.executor.shutdown()


def delete(world: World) -> None:
    world.kube.delete(RESETS, "ns", world.name, world.clock.now().isoformat())


def after_the_limit(world: World) -> None:
    delete(world)
    world.clock.sleep(timedelta(minutes=2, seconds=1).total_seconds())


def abandoned(world: World) -> None:
    world.kube.change(RESETS, "ns", world.name, annotations={"tidegate.io/abandon": "true"})
    delete(world)


def test_it_waits_and_says_until_when(world: World) -> None:
    status = {**world.reset, "conditions": []}
    delete(world)
    limit = world.clock.now() + timedelta(minutes=2)

    world.some_passes(1)

    assert world.there
    assert is_held(world)
    assert {**world.reset, "conditions": []} == status
    said = world.condition("Ready")
    assert said["reason"] == "UnreadableStatus"
    assert f"{limit:%Y-%m-%dT%H:%M:%SZ}" in said["message"]
    assert "tidegate.io/abandon=true" in said["message"]
    assert world.clock.now() <= limit + timedelta(seconds=1)


def test_the_version_that_can_read_it_settles_it_meanwhile(world: World) -> None:
    delete(world)
    world.some_passes(1)
    FakeKube.replace_status(
        world.kube, RESETS, world.body, {k: v for k, v in world.reset.items() if k != "ofTheNextVersion"}
    )
    world.restart()

    world.passes()

    assert not world.there
    assert world.offset == 50


@pytest.mark.parametrize("given_up", [after_the_limit, abandoned])
def test_given_up_it_goes_with_its_gates_open(world: World, given_up: object) -> None:
    assert callable(given_up)
    given_up(world)
    key, name, steps = hold_of(world), world.name, len(world.kube.log)

    world.passes()

    assert not world.there
    assert key not in world.kafka.control.read().holds
    assert world.kube.log[steps:] == ["finalizer off"], "its status was not written over"
    told = [h for h in world.kube.happenings_of(name) if h.reason == "Abandoned"]
    assert len(told) == 1
    assert world.finished == {("Failed", "Abandoned"): 1}


def test_it_goes_though_kafka_is_away_and_says_so(world: World) -> None:
    after_the_limit(world)
    name = world.name
    world.kafka.control.failure = Unavailable("nobody answers")

    world.passes()

    assert not world.there
    [told] = [h for h in world.kube.happenings_of(name) if h.reason == "Abandoned"]
    assert "gates may still be closed (nobody answers)" in told.message


def test_without_a_finalizer_of_ours_nothing_is_done(world: World) -> None:
    FakeKube.set_finalizers(world.kube, RESETS, world.body, ["somebody.else/s"])
    delete(world)
    steps = len(world.kube.log)

    world.some_passes(2)

    assert not [step for step in world.kube.log[steps:] if "finalizer" in step]
    assert world.reset["ofTheNextVersion"] == 1


@pytest.mark.parametrize(
    ("phase", "goes_ahead"), [("Succeeded", True), ("Applying", False), ("OfTheNextVersion", False)]
)
def test_it_is_in_the_way_of_others_unless_its_run_has_ended(world: World, phase: str, goes_ahead: bool) -> None:
    """Which a phase says in any version: after a roll-back, runs that are over use up nobody's turn."""
    live = world.live.get("ns", "kafka")
    assert live is not None
    world.live.put(replace(live, allow=AllowSpec(quota=QuotaSpec(concurrent_resets=1))))
    FakeKube.replace_status(world.kube, RESETS, world.body, {**world.reset, "phase": phase})
    world.kafka.commit_directly("other", {T0: 50})
    world.kafka.set_group("other", GroupType.CLASSIC)
    for number, group in enumerate(("payments", "other")):
        world.ask(f"later-{number}", group=group)
        world.some_passes(2)
        assert ("startedAt" in world.reset) == goes_ahead
        FakeKube.delete(world.kube, RESETS, "ns", world.name, "now")
        if world.there:
            FakeKube.set_finalizers(world.kube, RESETS, world.body, ())
        world.restart()


def test_an_undo_of_it_waits_for_the_version_that_can_read_it_and_is_in_nobodys_way(world: World) -> None:
    FakeKube.replace_status(world.kube, RESETS, world.body, {**world.reset, "phase": "Succeeded"})
    world.ask("back", to={"undo": "p"})

    world.some_passes(2)

    said = world.condition("Complete")
    assert (said["status"], said["reason"]) == ("Unknown", "UnreadableStatus")
    assert "can't read the status of OffsetReset p" in said["message"]
    world.ask("later")
    world.some_passes(2)
    assert "startedAt" in world.reset
