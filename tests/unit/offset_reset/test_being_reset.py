"""Which groups are being reset, as policies ask that keep a group's offsets: those and no others are left alone."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from support.reset_world import FleetWorld
from tidegate.offset_reset.passes import ResetPasses
from tidegate.offset_reset.reconcile import OffsetResetReconciler
from tidegate.resources.connection import AllowedNamespace, AllowSpec
from unit.offset_reset.test_shared_resets import SHARED, share

WAVES = {"rollout": {"waveSize": 1, "pause": "20h"}, "deadline": "48h"}
ALL = ("payments", "payments-b", "payments-c", "orders", "of-another-team")


@pytest.fixture
def world(tmp_path: Path) -> Iterator[FleetWorld]:
    made = FleetWorld(tmp_path)
    yield made
    made.executor.shutdown()
    made.kafka.close()


def being_reset(world: FleetWorld, namespace: str, *, while_planned: bool = False) -> list[str]:
    """Until all of the fleet is planned, or in its pause."""
    passes = ResetPasses(world.parts)
    world.reconciler = OffsetResetReconciler(passes, world.parts)
    for _ in range(15):
        asyncio.run(world.reconciler.reconcile(world.body))
        if while_planned and world.documents:
            break
        world.clock.sleep(1)
    live = world.live.get(namespace, "kafka")
    assert live is not None
    return [group for group in ALL if passes.is_being_reset(live, group)]


def test_a_fleet_of_all_groups_is_of_those_that_its_namespace_may_use(world: FleetWorld) -> None:
    share(world, AllowedNamespace(name="ns", groups=("payments-b", "payments-c")))
    world.ask(connectionRef=SHARED, groups=["*"], **WAVES)

    assert being_reset(world, "platform") == ["payments-b", "payments-c"]


def test_so_it_is_before_it_is_planned(world: FleetWorld) -> None:
    share(world, AllowedNamespace(name="ns", groups=("payments-b", "payments-c")))
    world.ask(connectionRef=SHARED, groups=["*"], **WAVES)

    assert being_reset(world, "platform", while_planned=True) == ["payments-b", "payments-c"]


@pytest.mark.parametrize("while_planned", [True, False])
def test_so_it_is_in_the_connections_own_namespace(world: FleetWorld, while_planned: bool) -> None:
    [live] = world.live
    world.open_connection("kafka", live.uid, world.connection, allow=AllowSpec(groups=("payments*",)))
    world.ask(groups=["*"], **WAVES)

    found = being_reset(world, "ns", while_planned=while_planned)

    assert found == ["payments", "payments-b", "payments-c"]


def test_groups_that_appear_later_or_can_not_be_reset_are_none_of_it(world: FleetWorld) -> None:
    world.ask(groups=["payments*", "of-another*"], **WAVES)

    assert being_reset(world, "ns") == ["payments", "payments-b", "payments-c"]


@pytest.mark.parametrize("asked_through", ["kafka", "another"])
def test_a_run_that_was_seen_before_its_cluster_was_reached_is_known_once_it_is(
    world: FleetWorld, asked_through: str
) -> None:
    world.ask(**WAVES)
    being_reset(world, "ns")
    [live] = world.live

    # A new process.
    world.live.put(replace(live, cluster_id="", trouble=("Connecting", "the operator has not reached the cluster yet")))
    world.restart()
    passes = ResetPasses(world.parts)
    world.reconciler = OffsetResetReconciler(passes, world.parts)
    asyncio.run(world.reconciler.reconcile(world.body))
    world.live.put(live)

    if asked_through == "another":
        world.open_connection("another", "uid-another", world.connection)
    asking = world.live.get("ns", asked_through)
    assert asking is not None
    assert passes.is_being_reset(asking, "payments-b")
    assert not passes.is_being_reset(replace(asking, name="other", cluster_id="other"), "payments-b")
