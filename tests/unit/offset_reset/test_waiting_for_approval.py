"""A plan that waits for approval costs nothing until somebody approves it or its deadline comes."""

import asyncio
from dataclasses import replace

from support.reset_world import World
from tidegate.connection.observer import Observer
from tidegate.jobs.runner import RunnerState, RunnerStatus
from tidegate.kube.loop import Pass

LONG_S = 300


def planned(world: World) -> Pass:
    """The pass over one whose plan waits, whose job has ended."""
    for _ in range(20):
        done = asyncio.run(world.reconciler.reconcile(world.body))
        if done.body["status"].get("phase") == "AwaitingApproval" and done.again_after_s > 0:
            return asyncio.run(world.reconciler.reconcile(world.body))
        world.clock.sleep(done.again_after_s)
    raise AssertionError(world.kube.log)


def test_it_is_not_looked_at_again_before_somebody_does_something(world: World) -> None:
    world.ask(approval="Manual")

    assert planned(world).again_after_s >= LONG_S


def test_its_deadline_is_not_slept_through(world: World) -> None:
    world.ask(approval="Manual", deadline="100s")

    waits_s = planned(world).again_after_s

    assert 50 < waits_s < 100 / 1.15
    world.passes(100)
    assert world.reset["phase"] == "AwaitingApproval"
    world.clock.sleep(100)
    world.passes()
    assert world.condition("Complete")["reason"] == "DeadlineExceeded"


def test_while_its_job_gathers_evidence_it_is_looked_at(world: World) -> None:
    world.ask(approval="Manual")
    planned(world)
    world.runner.states[world.reset["application"]] = RunnerStatus(RunnerState.RUNNING)

    assert asyncio.run(world.reconciler.reconcile(world.body)).again_after_s == world.parts.active_tick_s


def test_the_observer_looks_at_nothing_for_it(world: World) -> None:
    [live] = world.live
    observer = Observer(world.executor, active_tick_s=1, idle_tick_s=10)
    observer.connect(live.uid, "ns/kafka", world.kafka)
    world.parts = replace(world.parts, observer=observer)
    world.reconciler = world.reconciler_of(world.parts)
    world.ask(approval="Manual")

    planned(world)

    assert observer.tick_s(live.uid) == 10
