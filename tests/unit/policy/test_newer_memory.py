"""What a newer version has written for a policy is left as it is: its memory, its status. The rest goes on."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.fake_kube import FakeKube
from support.policy_world import PolicyWorld
from tidegate.kube.ports import POLICIES
from tidegate.policy.feature import FeatureOutcome, PolicyView
from tidegate.policy.memory import PLAIN, SHARDS, NewerMemory, PolicyMemory, document_name
from tidegate.versions import POLICY_MEMORY


class Counting:
    """A feature that counts its passes in the memory."""

    def __init__(self) -> None:
        self.passes = 0

    async def reconcile(self, policy: PolicyView) -> FeatureOutcome:
        known = (await policy.memory.recall("counting") or {}).get("n", 0)
        await policy.memory.note("counting", {"n": known + 1})
        self.passes += 1
        return FeatureOutcome(policy.status)

    async def forget(self, key: str) -> None: ...

    async def disconnected(self, key: str) -> None: ...


@pytest.fixture
def world(tmp_path: Path) -> Iterator[PolicyWorld]:
    made = PolicyWorld(tmp_path)
    yield made
    made.executor.shutdown()


def restart(world: PolicyWorld) -> Counting:
    counting = Counting()
    world.features = (counting,)
    world.restart()
    return counting


def memory_of(world: PolicyWorld) -> dict[str, Any]:
    [data] = (d for (_, name), d in world.kube.config_maps.items() if "-memory-" in name)
    found: dict[str, Any] = json.loads(data[PLAIN])
    return found


def is_of_version(world: PolicyWorld, version: int) -> None:
    [data] = (d for (_, name), d in world.kube.config_maps.items() if "-memory-" in name)
    data[PLAIN] = json.dumps({**json.loads(data[PLAIN]), "version": version})


def test_a_memory_of_a_newer_version_is_left_alone_and_the_reset_goes_on(world: PolicyWorld) -> None:
    restart(world)
    world.declare(None)
    world.rounds(2)
    assert memory_of(world)["groups"]["payments"]["counting"] == {"n": 2}
    is_of_version(world, POLICY_MEMORY.version + 1)
    before = memory_of(world)

    counting = restart(world)
    world.declare("one")
    world.rounds()

    assert memory_of(world) == before
    assert counting.passes == 0
    assert world.said("Stalled") == ("True", "WrittenByNewerVersion")
    assert world.said("Ready") == ("False", "WrittenByNewerVersion")
    assert f"of version {POLICY_MEMORY.version + 1}" in world.message("Ready")
    told = [h for h in world.kube.happenings_of("p") if h.reason == "WrittenByNewerVersion"]
    assert len(told) == 1
    assert world.metric("tidegate_written_by_newer_version", kind="OffsetResetPolicy") == 1
    assert (world.resets, world.offset) == ({"p-one": "Succeeded"}, 10)

    is_of_version(world, POLICY_MEMORY.version)
    counting = restart(world)
    world.rounds(1)

    assert memory_of(world)["groups"]["payments"]["counting"] == {"n": 3}
    assert world.said("Stalled") is None
    assert world.metric("tidegate_written_by_newer_version", kind="OffsetResetPolicy") == 0


def test_a_policy_that_is_gone_is_counted_no_more(world: PolicyWorld) -> None:
    restart(world)
    world.declare(None)
    world.rounds(1)
    is_of_version(world, 2)
    restart(world)
    world.rounds(1)
    assert world.metric("tidegate_written_by_newer_version", kind="OffsetResetPolicy") == 1
    asyncio.run(world.policies.forget(world.kube.get(POLICIES, "ns", "p")))

    assert world.metric("tidegate_written_by_newer_version", kind="OffsetResetPolicy") == 0


@pytest.mark.parametrize("many", [False, True])
def test_neither_read_nor_written_nor_forgotten(world: PolicyWorld, many: bool) -> None:
    """Of a policy for many groups, each ConfigMap says its own."""
    world.declare(None)
    body = world.kube.get(POLICIES, "ns", "p")
    name = document_name(body, "memory")
    for number in range(SHARDS if many else 1):
        key = f"{name}-{number}" if many else name
        world.kube.put_config_map(body, key, {PLAIN: '{"version": 2, "somethingElse": []}'})
    before = {key: dict(data) for key, data in world.kube.config_maps.items()}
    memory = PolicyMemory(world.kube, world.executor, body, many=many)

    async def all_ways() -> None:
        for work in (
            memory.recall("discovery", "payments"),
            memory.note("discovery", "payments", {"n": 1}),
            memory.note("discovery", "payments", None),
            memory.groups(),
        ):
            with pytest.raises(NewerMemory):
                await work
        await memory.write(10**12)

    asyncio.run(all_ways())

    assert world.kube.config_maps == before


def test_a_status_that_cannot_be_read_is_not_written_over(world: PolicyWorld) -> None:
    """It says which ids an earlier version has run."""
    counting = restart(world)
    world.declare(None)
    world.rounds(1)
    body = world.kube.get(POLICIES, "ns", "p")
    status = {**body["status"], "ofTheNextVersion": {"ids": ["one"]}}
    FakeKube.replace_status(world.kube, POLICIES, body, status)
    world.declare("one")
    counting = restart(world)

    world.rounds(3)

    assert {**world.policy, "conditions": []} == {**status, "conditions": []}
    assert world.said("Stalled") == ("True", "UnreadableStatus")
    assert (counting.passes, world.resets) == (0, {})
    assert [h.reason for h in world.kube.happenings_of("p")].count("UnreadableStatus") == 1
    assert world.metric("tidegate_written_by_newer_version", kind="OffsetResetPolicy") == 1
