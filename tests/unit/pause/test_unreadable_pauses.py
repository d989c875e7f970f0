"""A pause whose status only a newer version can read: it is left alone, and once deleted waits for that version as
long as a deletion may take."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import timedelta

import pytest

from support.fake_kube import FakeKube
from support.pause_world import World
from tidegate.kafka.errors import Unavailable
from tidegate.kube.ports import PAUSES, Object

LIMIT = timedelta(minutes=2)


@pytest.fixture
def world() -> Iterator[World]:
    made = World()
    made.ask()
    made.passes()
    assert (made.phase, len(made.held)) == ("Paused", 2)
    FakeKube.replace_status(made.kube, PAUSES, body(made), {**body(made)["status"], "ofTheNextVersion": 1})
    made.reconciler = made.fresh_reconciler()
    made.steps.log.clear()
    yield made
    made.close()


def body(world: World) -> Object:
    assert world.body is not None
    return world.body


def look(world: World, times: int = 1) -> float:
    """So many passes; when the next one is asked for."""
    again_s = 0.0
    for _ in range(times):
        again_s = asyncio.run(world.reconciler.reconcile(body(world))).again_after_s
    return again_s


def delete(world: World) -> None:
    world.kube.delete(PAUSES, "ns", "p", world.clock.now().isoformat())


def abandon(world: World) -> None:
    world.kube.change(PAUSES, "ns", "p", annotations={"tidegate.io/abandon": "true"})


def test_deleted_it_waits_and_says_until_when(world: World) -> None:
    delete(world)
    until = world.clock.now() + LIMIT

    again_s = look(world)

    assert 0 < again_s <= 60
    assert len(world.held) == 2
    said = next(c for c in body(world)["status"]["conditions"] if c["type"] == "Ready")
    assert said["reason"] == "UnreadableStatus"
    assert f"{until:%Y-%m-%dT%H:%M:%SZ}" in said["message"]
    assert "tidegate.io/abandon=true" in said["message"]
    world.clock.sleep(LIMIT.total_seconds() - 5)
    assert look(world) <= 5
    assert len(world.held) == 2


def test_after_the_limit_it_releases_what_it_holds_and_goes(world: World) -> None:
    delete(world)
    world.clock.sleep(LIMIT.total_seconds() + 1)

    world.passes()

    assert (world.body, world.held) == (None, [])
    assert world.steps.log == ["release 2", "finalizer off"], "its status was not written over"
    [told] = [h for h in world.kube.happenings_of("p") if h.reason == "Abandoned"]
    assert "kubectl scale" in told.message


def test_after_the_limit_it_goes_while_kafka_is_away(world: World) -> None:
    delete(world)
    world.clock.sleep(LIMIT.total_seconds() + 1)
    world.control.failure = Unavailable("nobody answers")
    world.kafka.failure = Unavailable("nobody answers")

    world.passes()

    assert world.body is None
    assert "HoldsLeft" in [h.reason for h in world.kube.happenings_of("p")]


def test_abandoned_it_goes_at_once(world: World) -> None:
    abandon(world)
    delete(world)

    world.passes()

    assert world.body is None
    assert world.steps.log == ["finalizer off"]


def test_without_a_finalizer_of_ours_nothing_is_done(world: World) -> None:
    FakeKube.set_finalizers(world.kube, PAUSES, body(world), ["somebody.else/s"])
    delete(world)
    world.clock.sleep(LIMIT.total_seconds() + 1)

    assert look(world, 2) == 60

    assert (len(world.held), body(world)["status"]["ofTheNextVersion"]) == (2, 1)
    assert "Abandoned" not in [h.reason for h in world.kube.happenings_of("p")]


def test_abandoned_and_not_deleted_it_is_left_alone(world: World) -> None:
    abandon(world)

    look(world, 3)

    assert body(world)["status"]["ofTheNextVersion"] == 1
    assert len(world.held) == 2
