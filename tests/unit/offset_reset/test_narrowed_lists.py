"""What a connection allows to a namespace becomes less while resets go on there: what has begun is finished within
what it was allowed then, and what waits for an approval is not applied."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from support.fake_kube import FakeKube
from support.reset_world import CREATED, FleetWorld, World
from tidegate.kube.ports import RESETS
from tidegate.resources.connection import AllowedNamespace, AllowSpec, QuotaSpec
from unit.offset_reset.test_quotas import make
from unit.offset_reset.test_shared_resets import SHARED, complete, share
from unit.offset_reset.test_turns import Crowd

B_AND_C = ("payments-b", "payments-c")


@pytest.fixture
def crowd(tmp_path: Path) -> Iterator[Crowd]:
    made = Crowd(tmp_path)
    yield made
    made.executor.shutdown()


def allow(world: World, *namespaces: AllowedNamespace, quota: QuotaSpec | None = None) -> None:
    """The same process sees the connection change."""
    live = world.live.get("platform", "kafka")
    assert live is not None
    world.live.put(replace(live, allow=AllowSpec(namespaces=namespaces, quota=quota)))


def ask_for_waves(fleet: FleetWorld, **spec: object) -> None:
    """A rollout of two groups, which is in the pause between them."""
    share(fleet, AllowedNamespace(name="ns", groups=B_AND_C, topics=("orders",)))
    fleet.ask(connectionRef=SHARED, rollout={"waveSize": 1, "pause": "1h"}, deadline="48h", **spec)
    while fleet.offsets == [50, 50, 50]:
        fleet.some_passes(1)
    assert fleet.offsets == [50, 10, 50]


@pytest.mark.parametrize(
    "entry",
    [
        AllowedNamespace(name="ns", groups=("payments-b",)),
        AllowedNamespace(name="ns", groups=("others",)),
        AllowedNamespace(name="ns", topics=("others",)),
    ],
)
@pytest.mark.parametrize("restarted", [False, True])
def test_a_rollout_goes_on_within_what_it_was_allowed_when_it_began(
    fleet: FleetWorld, entry: AllowedNamespace, restarted: bool
) -> None:
    ask_for_waves(fleet)

    allow(fleet, entry)
    if restarted:
        fleet.restart()
    fleet.some_passes(20)

    assert (fleet.reset["phase"], fleet.offsets) == ("Succeeded", [50, 10, 10])
    allow(fleet, AllowedNamespace(name="ns", groups=B_AND_C))
    fleet.ask("back", connectionRef=SHARED, to={"undo": "p"})
    fleet.passes()
    assert fleet.offsets == [50, 50, 50]


def test_one_that_is_deleted_then_is_rolled_back(fleet: FleetWorld) -> None:
    ask_for_waves(fleet, failurePolicy="All")
    allow(fleet, AllowedNamespace(name="ns", groups=("payments-c",)))
    FakeKube.delete(fleet.kube, RESETS, "ns", "p", fleet.clock.now().isoformat())

    fleet.passes()

    assert not fleet.there
    assert fleet.offsets == [50, 50, 50]


@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize(
    ("policy", "offsets", "phase"), [("Isolate", [50, 10, 50], "Failed"), ("All", [50, 50, 50], "RolledBack")]
)
def test_no_other_wave_begins_once_the_connection_is_withdrawn(
    fleet: FleetWorld, policy: str, offsets: list[int], phase: str, restarted: bool
) -> None:
    ask_for_waves(fleet, failurePolicy=policy)
    allow(fleet)
    if restarted:
        fleet.restart()

    fleet.some_passes(20)

    assert (fleet.reset["phase"], fleet.offsets) == (phase, offsets)
    reason, message = complete(fleet)
    assert reason == "RolloutStopped"
    assert "may no longer use its KafkaConnection from this namespace" in message
    if policy == "Isolate":
        allow(fleet, AllowedNamespace(name="ns", groups=B_AND_C))
        fleet.ask("back", connectionRef=SHARED, to={"undo": "p"})
        fleet.passes()
        assert fleet.offsets == [50, 50, 50]


def test_a_rollout_goes_on_where_the_permission_is_back_before_its_next_wave(fleet: FleetWorld) -> None:
    ask_for_waves(fleet)
    allow(fleet)
    fleet.some_passes(1)
    allow(fleet, AllowedNamespace(name="ns", groups=B_AND_C))

    fleet.some_passes(20)

    assert (fleet.reset["phase"], fleet.offsets) == ("Succeeded", [50, 10, 10])


@pytest.mark.parametrize("entries", [(), (AllowedNamespace(name="ns", groups=("payments",)),)])
def test_one_to_where_another_group_stands_is_finished_too(world: World, entries: tuple[AllowedNamespace, ...]) -> None:
    share(world, AllowedNamespace(name="ns"))
    world.kafka.commit_directly("other", dict.fromkeys(world.kafka.committed("payments"), 20))
    world.ask(connectionRef=SHARED, to={"group": "other"})
    while not world.documents:
        world.some_passes(1)

    allow(world, *entries)
    world.passes()

    assert (world.reset["phase"], world.offset) == ("Succeeded", 20)


@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        (AllowedNamespace(name="ns", topics=("a*",)), "TopicNotAllowed"),
        (AllowedNamespace(name="ns", groups=("refunds",)), "GroupNotAllowed"),
    ],
)
def test_a_plan_that_waits_is_not_applied_until_it_is_allowed_again(
    world: World, entry: AllowedNamespace, reason: str
) -> None:
    share(world, AllowedNamespace(name="ns"))
    world.ask(connectionRef=SHARED, approval="Manual")
    world.passes()

    allow(world, entry)
    world.some_passes(1)
    assert world.reset["phase"] == "AwaitingApproval"
    world.approve()
    world.some_passes(3)

    assert (complete(world)[0], world.offset) == (reason, 50)
    allow(world, AllowedNamespace(name="ns"))
    world.passes()
    assert (world.reset["phase"], world.offset) == ("Succeeded", 10)


@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        (AllowedNamespace(name="ns", groups=("payments-b",)), "GroupNotAllowed"),
        (AllowedNamespace(name="ns", groups=B_AND_C, topics=("a*",)), "TopicNotAllowed"),
        (AllowedNamespace(name="ns", groups=("payments*",), topics=("ord*",)), ""),
    ],
)
def test_so_it_is_with_the_plan_of_a_fleet(fleet: FleetWorld, entry: AllowedNamespace, reason: str) -> None:
    share(fleet, AllowedNamespace(name="ns", groups=B_AND_C, topics=("orders",)))
    fleet.ask(connectionRef=SHARED, approval="Manual")
    fleet.passes()

    allow(fleet, entry)
    fleet.approve()
    fleet.some_passes(8)

    if reason:
        assert (complete(fleet)[0], fleet.offsets) == (reason, [50, 50, 50])
        allow(fleet, AllowedNamespace(name="ns", groups=B_AND_C))
        fleet.passes()
    assert (fleet.reset["phase"], fleet.offsets) == ("Succeeded", [50, 10, 10])


def test_a_run_under_way_keeps_its_place_in_queue_and_quota(crowd: Crowd) -> None:
    share(crowd, AllowedNamespace(name="ns"))
    one_at_once = QuotaSpec(concurrent_resets=1)
    allow(crowd, AllowedNamespace(name="ns", groups=("g*",)), quota=one_at_once)
    make(crowd, 0, connectionRef=SHARED)
    make(crowd, 1, connectionRef=SHARED)
    crowd.side_by_side("r0")
    assert crowd.begun == ["r0"]

    allow(crowd, AllowedNamespace(name="ns", groups=("g1",)), quota=one_at_once)
    crowd.side_by_side("r1")
    assert crowd.begun == ["r0"]

    others = (AllowedNamespace(name="ns", groups=("g1",)), AllowedNamespace(name="team-b"))
    allow(crowd, *others)
    asked = {"connectionRef": SHARED, "group": "g0", "to": {"offset": 20}}
    FakeKube.create(crowd.kube, RESETS, "team-b", "mine", asked, CREATED)
    asyncio.run(crowd.reconciler.reconcile(crowd.kube.get(RESETS, "team-b", "mine")))
    assert "startedAt" not in (crowd.kube.get(RESETS, "team-b", "mine").get("status") or {})


@pytest.mark.parametrize("restarted", [False, True])
def test_a_fleet_of_all_groups_is_in_the_way_of_no_others_than_it_was_allowed(
    fleet: FleetWorld, restarted: bool
) -> None:
    ask_for_waves(fleet, groups=["*"])
    allow(fleet, AllowedNamespace(name="ns", groups=("payments-b",)), AllowedNamespace(name="team-b"))
    if restarted:
        fleet.restart()
    fleet.some_passes(1)

    begun = []
    for group in ("payments", *B_AND_C):
        asked = {"connectionRef": SHARED, "group": group, "to": {"offset": 20}}
        FakeKube.create(fleet.kube, RESETS, "team-b", group, asked, "2026-11-01T00:00:00Z")
        asyncio.run(fleet.reconciler.reconcile(fleet.kube.get(RESETS, "team-b", group)))
        begun += [group] if "startedAt" in (fleet.kube.get(RESETS, "team-b", group).get("status") or {}) else []

    assert begun == ["payments"]


def begun_without_a_document(world: World) -> None:
    share(world, AllowedNamespace(name="ns"), AllowedNamespace(name="team-b"))
    world.ask(connectionRef=SHARED, deadline="48h")
    while "startedAt" not in (world.body.get("status") or {}):
        world.some_passes(1)
    assert world.documents == []


@pytest.mark.parametrize(
    ("entries", "reason"),
    [
        ((), "NoUsableConnection"),
        ((AllowedNamespace(name="ns", groups=("refunds",)),), "GroupNotAllowed"),
    ],
)
def test_one_that_had_only_just_begun_ends_and_is_in_nobodys_way(
    world: World, entries: tuple[AllowedNamespace, ...], reason: str
) -> None:
    begun_without_a_document(world)

    allow(world, *entries, AllowedNamespace(name="team-b"))
    world.passes()

    assert (world.reset["phase"], complete(world)[0]) == ("Failed", reason)
    assert "Nothing was changed" in complete(world)[1]
    assert (world.offset, world.documents) == (50, [])
    asked = {"connectionRef": SHARED, "group": "payments", "to": {"offset": 20}}
    FakeKube.create(world.kube, RESETS, "team-b", "mine", asked, "2026-11-01T00:00:00Z")
    for _ in range(8):
        asyncio.run(world.reconciler.reconcile(world.kube.get(RESETS, "team-b", "mine")))
        world.clock.sleep(1)
    assert world.offset == 20


def test_one_that_had_only_just_begun_waits_while_its_connection_is_not_open(world: World) -> None:
    """As just after the operator was started."""
    begun_without_a_document(world)
    live = world.live.get("platform", "kafka")
    assert live is not None
    world.live.drop("platform", "kafka", uid=live.uid)
    world.restart()
    world.some_passes(3)
    assert (world.reset["phase"], complete(world)[0]) == ("Pending", "NoUsableConnection")

    world.live.put(live)
    world.restart()
    world.passes()

    assert (world.reset["phase"], world.offset) == ("Succeeded", 10)
