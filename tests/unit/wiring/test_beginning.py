"""What a process knows before its first pass: all that is there, of every kind."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from support.policy_world import SPEC, PolicyWorld
from support.reset_world import CREATED, policy_parts
from tidegate.kube.loop import LevelLoop
from tidegate.kube.ports import CONNECTIONS, POLICIES, RESETS, Kind, Object, uid_of
from tidegate.offset_reset.passes import ResetPasses
from tidegate.offset_reset.reconcile import OffsetResetReconciler
from tidegate.policy.feature import FeatureOutcome, PolicyView
from tidegate.policy.keeping import Features
from tidegate.policy.precedence import RETENTION
from tidegate.policy.reconcile import PolicyReconciler
from tidegate.resources.policy import PolicyStatus
from tidegate.running import Operator


class Noting:
    """A feature that notes which policy keeps it for its group, and whether the group is being reset then."""

    part = RETENTION

    def __init__(self) -> None:
        self.kept: list[tuple[str, bool]] = []

    async def reconcile(self, policy: PolicyView) -> FeatureOutcome:
        self.kept.append((str(policy.body["metadata"]["name"]), policy.resetting))
        return FeatureOutcome(policy.status)

    async def let_go(self, _policy: PolicyView) -> bool:
        return True

    def without(self, status: PolicyStatus) -> PolicyStatus:
        return status

    async def forget(self, uid: str) -> None: ...

    async def disconnected(self, uid: str) -> None: ...


@pytest.fixture
def world(tmp_path: Path) -> Iterator[PolicyWorld]:
    made = PolicyWorld(tmp_path)
    yield made
    made.executor.shutdown()
    made.kafka.close()


def keeps(world: PolicyWorld, name: str, created: str = CREATED) -> None:
    world.kube.create(POLICIES, "ns", name, {**SPEC, "retention": {}}, created)


def begun(world: PolicyWorld) -> None:
    """The reset that was asked for is being planned."""
    while not (status := world.body.get("status")) or status["phase"] != "Planning":
        world.some_passes(1)


def said(policy: Object) -> bool:
    """Whether a pass was made over it."""
    return bool(policy.get("status") or policy["metadata"].get("deletionTimestamp"))


def first_passes(world: PolicyWorld) -> list[tuple[str, bool]]:
    """What policies keep in the first pass of each, of a new process that comes to its OffsetResets later."""
    noting, parts = Noting(), world.fresh_parts()
    resets = ResetPasses(parts)
    policies = PolicyReconciler(policy_parts(parts), resets, Features((noting,), cast("Any", (noting,))))

    async def begins() -> None:
        loops = {
            RESETS: LevelLoop(OffsetResetReconciler(resets, parts), expected=(), begins=resets.expect),
            POLICIES: LevelLoop(policies, expected=(), begins=policies.expect),
        }
        for kind, loop in loops.items():
            loop.stand_by()
            for body in world.kube.list(kind):
                loop.notice(None, body)
        # As where their workers are slower.
        loops[RESETS]._start = lambda *_: None  # type: ignore[method-assign]
        for loop in loops.values():
            loop.begin()
        async with asyncio.timeout(10):
            while not all(map(said, loops[POLICIES].bodies)):  # noqa: ASYNC110 - by whom nobody is told
                await asyncio.sleep(0.01)
        for loop in loops.values():
            await loop.stop()

    asyncio.run(begins())
    return noting.kept


def test_the_first_pass_of_a_policy_knows_of_a_more_specific_one(world: PolicyWorld) -> None:
    """Else it would keep the group's offsets by its own rules until that one's turn."""
    keeps(world, "a", created="2026-02-01T00:00:00Z")
    keeps(world, "b")
    keeps(world, "c-deleted", created="2025-01-01T00:00:00Z")
    body = world.kube.get(POLICIES, "ns", "c-deleted")
    world.kube.set_finalizers(POLICIES, body, ["somebody.else/s"])
    world.kube.delete(POLICIES, "ns", "c-deleted", CREATED)

    assert first_passes(world) == [("b", False)]


def test_the_first_pass_of_a_policy_knows_of_a_reset_that_an_earlier_process_has_begun(world: PolicyWorld) -> None:
    """Else what the reset deletes would be brought back, and what it commits be taken for somebody else's."""
    world.ask("r")
    begun(world)
    keeps(world, "p")

    assert first_passes(world) == [("p", True)]


def test_a_reset_that_is_over_or_waits_to_be_approved_is_none(world: PolicyWorld) -> None:
    world.ask("r")
    world.passes()
    assert world.reset["phase"] == "Succeeded"
    keeps(world, "p")

    assert first_passes(world) == [("p", False)]


def test_what_was_expected_of_a_reset_is_over_with_its_own_passes(world: PolicyWorld) -> None:
    world.ask("r")
    begun(world)
    parts = world.fresh_parts()
    passes = ResetPasses(parts)
    passes.expect(world.kube.list(RESETS))
    [live] = world.live
    assert [passes.is_being_reset(live, group) for group in ("payments", "other")] == [True, False]

    world.reconciler = OffsetResetReconciler(passes, parts)
    world.passes()

    assert world.reset["phase"] == "Succeeded"
    assert not passes.is_being_reset(live, "payments")


def test_all_kinds_are_taken_in_before_this_process_may_lead() -> None:
    bodies = {kind: [{"metadata": {"uid": kind.plural}}] for kind in (CONNECTIONS, POLICIES, RESETS)}
    noticed: list[str] = []

    class Loop:
        def notice(self, _event: None, body: Object) -> None:
            assert not warm.is_set()
            noticed.append(uid_of(body))

        async def retain(self, _listed: Collection[str], _known: Collection[str]) -> None: ...

    async def listed() -> None:
        operator: Any = SimpleNamespace(
            metrics=SimpleNamespace(unobserved=lambda _count: None),
            index=SimpleNamespace(listed=lambda _policies, _connections: None),
            warm=warm,
            loops=dict.fromkeys(bodies, Loop()),
            connections=Loop(),
            webhook=None,
            known={},
        )
        found: list[tuple[Kind, list[Object]]] = [(kind, list(each)) for kind, each in bodies.items()]
        await Operator._listed(cast("Operator", operator), found, 0)

    warm = asyncio.Event()
    asyncio.run(listed())
    assert sorted(noticed) == sorted(kind.plural for kind in bodies)
    assert warm.is_set()


def test_a_loop_tells_what_it_begins_with_before_the_first_pass() -> None:
    happened: list[str] = []

    class Reconciler:
        async def reconcile(self, body: Object) -> Any:
            happened.append(f"pass {uid_of(body)}")
            raise KeyError

        async def refresh(self, body: Object) -> Object | None:
            return body

        async def forget(self, body: Object) -> None: ...

    def body_of(uid: str) -> Object:
        return {"metadata": {"uid": uid, "namespace": "ns", "name": uid, "resourceVersion": "1"}}

    async def story() -> None:
        def begins(bodies: Collection[Object]) -> None:
            happened.append(f"begins with {sorted(map(uid_of, bodies))}")

        loop = LevelLoop(Reconciler(), expected=(), is_ours=lambda body: uid_of(body) != "other", begins=begins)
        loop.stand_by()
        for uid in ("a", "b", "other"):
            loop.notice(None, body_of(uid))
        loop.begin()
        loop.begin()
        async with asyncio.timeout(5):
            while len(happened) < 3:  # noqa: ASYNC110 - by whom nobody is told
                await asyncio.sleep(0.01)
        await loop.stop()

    asyncio.run(story())
    assert happened == ["begins with ['a', 'b']", "pass a", "pass b"]
