"""Deadlines that pass once all targets are in place and their owners were let go: nothing is undone for that."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from support.simulated_groups import (
    BACK,
    GO_OFTEN,
    GROUP,
    KINDS,
    RESET,
    Kind,
    Outage,
    World,
    die_verifying,
    is_verifying,
)
from tidegate.kafka.model import GroupType
from tidegate.reset.runs import job
from tidegate.resources.reset import ResetPhase, Way

WATCHED = [*KINDS, replace(GO_OFTEN, name="led")]


@pytest.mark.parametrize("kind", WATCHED, ids=lambda k: k.name)
def test_a_run_whose_owners_are_only_watched_is_not_undone_by_its_deadline(kind: Kind, tmp_path: Path) -> None:
    """Its job has died, and the operator ends it."""
    world = World(kind, tmp_path)
    world.create(deadline=timedelta(seconds=40))
    die_verifying(world)
    world.clock.sleep(2)

    result = job.settle(
        world.store, world.kafka, world.clock, reason="DeadlineExceeded", message="it has passed", watches_on=True
    )

    assert (result.phase, result.reason) == (ResetPhase.SUCCEEDED, "Applied"), result
    world.settle()
    world.check_reset()


@pytest.mark.parametrize("kind", WATCHED, ids=lambda k: k.name)
def test_one_that_is_deleted_is_undone_all_the_same(kind: Kind, tmp_path: Path) -> None:
    world = World(kind, tmp_path)
    world.create()
    before = world.kafka.committed(GROUP)
    die_verifying(world)
    world.clock.sleep(2)

    result = job.settle(world.store, world.kafka, world.clock, reason="Deleted", message="it was deleted")

    assert (result.phase, result.reason) == (ResetPhase.ROLLED_BACK, "Deleted"), result
    assert all(world.kafka.committed(GROUP)[p] >= before[p] for p in RESET)


def test_one_whose_target_an_owner_has_overwritten_since_is_undone(tmp_path: Path) -> None:
    world = World(next(k for k in KINDS if k.name == "consumer"), tmp_path)
    world.create()
    before = world.kafka.committed(GROUP)
    die_verifying(world)
    for consumer in world.consumers:
        consumer.auto_commit_s = None
    late = RESET[0]
    world.kafka.commit_directly(GROUP, {late: world.targets[late] - 1})

    result = job.settle(
        world.store, world.kafka, world.clock, reason="DeadlineExceeded", message="it has passed", watches_on=True
    )

    assert (result.phase, result.reason) == (ResetPhase.ROLLED_BACK, "DeadlineExceeded"), result
    assert all(world.kafka.committed(GROUP)[p] >= before[p] for p in RESET)


@pytest.mark.parametrize("kind", WATCHED, ids=lambda k: k.name)
def test_a_deadline_that_passes_while_kafka_is_away_in_the_watch_undoes_nothing(kind: Kind, tmp_path: Path) -> None:
    world = World(kind, tmp_path)
    world.create(deadline=timedelta(seconds=40))

    result = world.execute(Outage(world.clock, 0, 60.0, when=is_verifying(world)))

    assert result is not None
    assert result.phase is ResetPhase.SUCCEEDED, result
    world.settle()
    world.check_reset()


def test_a_deadline_that_passes_before_anybody_is_back_undoes_nothing(tmp_path: Path) -> None:
    """All members were made to leave, and hear of it only at their heartbeats."""
    slow = (("heartbeat_s", 10.0),)
    world = World(Kind("slow", Way.HANDOVER, GroupType.CONSUMER, "uniform", consumer=slow), tmp_path)
    for consumer in world.consumers:
        consumer.auto_commit_s = None
    world.targets = {p: offset - BACK for p, offset in world.kafka.committed(GROUP).items()}
    world.create(deadline=timedelta(seconds=2))

    result = world.execute()

    assert result is not None
    assert result.phase is ResetPhase.SUCCEEDED, result
    world.settle(60)
    world.check_reset()
