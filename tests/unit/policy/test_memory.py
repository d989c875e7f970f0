"""What a policy remembers in ConfigMaps: read again by the next process, written rarely, and by one process only."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import pytest

from support.fake_kube import FakeKube
from tidegate.kube.ports import Conflict, KubeFailure, NotOwned
from tidegate.policy import memory as memories
from tidegate.policy.memory import PACKED, PLAIN, SHARDS, PolicyMemory, TooLarge, decode, document_name, encode

BODY = {
    "apiVersion": "tidegate.io/v1alpha1",
    "kind": "OffsetResetPolicy",
    "metadata": {"name": "All.Groups", "namespace": "ns", "uid": "u"},
}
MINUTE_MS = 60_000

T = TypeVar("T")


class World:
    def __init__(self) -> None:
        self.kube = FakeKube()
        self.executor = ThreadPoolExecutor(1)
        self.loop = asyncio.new_event_loop()

    def memory(self, *, many: bool = False) -> PolicyMemory:
        """As a process begins."""
        return PolicyMemory(self.kube, self.executor, BODY, many=many)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(work)

    @property
    def names(self) -> list[str]:
        return sorted(name for _, name in self.kube.config_maps)


@pytest.fixture
def world() -> Iterator[World]:
    made = World()
    yield made
    made.loop.close()
    made.executor.shutdown()


def test_what_was_noted_is_recalled_by_the_next_process(world: World) -> None:
    memory = world.memory()
    assert world.run(memory.recall("discovery", "a")) is None
    world.run(memory.note("discovery", "a", {"n": 1}))
    world.run(memory.note("retention", "a", {"n": 2}))
    world.run(memory.note("discovery", "a", {"n": 3}))
    world.run(memory.write(0))

    later = world.memory()

    assert world.run(later.recall("discovery", "a")) == {"n": 3}
    assert world.run(later.recall("retention", "a")) == {"n": 2}
    assert world.run(later.groups()) == {"a"}
    assert world.names == ["all-groups-memory-" + world.names[0][-8:]]


def noise(seed: int, length: int) -> str:
    """Text that hardly gets smaller when it is compressed."""
    return random.Random(seed).randbytes(length // 2).hex()


def test_a_config_map_that_is_too_large_does_not_stop_the_others(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memories, "INLINE_LIMIT_BYTES", 1_000)
    monkeypatch.setattr(memories, "LIMIT_BYTES", 5_000)
    memory = world.memory(many=True)
    for number in range(500):
        world.run(memory.note("retention", f"g{number}", {"n": number}))
    world.run(memory.note("retention", "g123", {"text": noise(1, 20_000)}))

    with pytest.raises(TooLarge, match="most of it belongs to group g123: narrow topics or groups"):
        world.run(memory.write(0))
    with pytest.raises(TooLarge):
        world.run(memory.write(1))

    assert len(world.names) == SHARDS - 1
    assert "g123" in memory.trouble
    world.run(memory.note("retention", "g123", {"n": 123}))
    world.run(memory.write(2))
    assert memory.trouble == ""
    assert len(world.run(world.memory(many=True).groups())) == 500


def test_one_that_was_written_by_somebody_else_does_not_stop_the_others_and_is_told_first(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever is told of it lets go of what is in memory, so what others have to say would be lost."""
    monkeypatch.setattr(memories, "INLINE_LIMIT_BYTES", 1_000)
    monkeypatch.setattr(memories, "LIMIT_BYTES", 5_000)
    earlier, later = world.memory(many=True), world.memory(many=True)
    for number in range(500):
        world.run(earlier.note("retention", f"g{number}", {"n": number}))
    world.run(earlier.note("retention", "g0", {"text": noise(1, 20_000)}))
    world.run(later.note("retention", "g1", {"n": 0}))
    world.run(later.write(0))

    with pytest.raises(Conflict):
        world.run(earlier.write(0))

    assert len(world.names) == SHARDS - 1
    assert world.run(world.memory(many=True).recall("retention", "g1")) == {"n": 0}


def test_a_config_map_that_is_not_the_policys_is_left_alone(world: World) -> None:
    """Somebody may have copied one, with what it says."""
    groups = [f"g{number}" for number in range(500)]
    memory = world.memory(many=True)
    for group in groups:
        world.run(memory.note("retention", group, {"n": 1}))
    world.run(memory.write(0))
    key = ("ns", world.names[0])
    theirs = dict(world.kube.config_maps[key])
    world.kube.remove_config_map(*key)
    world.kube.config_maps[key] = theirs
    world.kube.config_map_owners.pop(key, None)

    later = world.memory(many=True)
    kept = world.run(later.groups())
    assert 0 < len(kept) < len(groups)
    world.run(later.write(1))
    for group in groups:
        world.run(later.note("retention", group, {"n": 2}))
    with pytest.raises(NotOwned, match=f"ConfigMap ns/{key[1]}"):
        world.run(later.write(2))

    assert world.kube.config_maps[key] == theirs
    assert world.run(world.memory(many=True).groups()) == kept
    assert key[1] in later.trouble
    world.kube.remove_config_map(*key)
    world.run(later.write(2 + 5 * MINUTE_MS))
    assert world.run(world.memory(many=True).groups()) == set(groups)


def test_one_that_the_api_server_refuses_does_not_stop_the_others_and_is_said(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = world.memory(many=True)
    for number in range(500):
        world.run(memory.note("retention", f"g{number}", {"n": number}))
    put, refused = world.kube.put_config_map, document_name(BODY, "memory") + "-7"

    def put_config_map(owner: Any, name: str, data: Any) -> None:
        if name == refused:
            raise KubeFailure(f"write ConfigMap ns/{name}: 403 exceeded quota")
        put(owner, name, data)

    with monkeypatch.context() as full:
        full.setattr(world.kube, "put_config_map", put_config_map)
        with pytest.raises(KubeFailure, match="exceeded quota"):
            world.run(memory.write(0))
        assert len(world.names) == SHARDS - 1
        assert "exceeded quota" in memory.trouble
    world.run(memory.write(1))

    assert len(world.names) == SHARDS
    assert memory.trouble == ""


def test_what_is_forgotten_is_gone(world: World) -> None:
    memory = world.memory()
    world.run(memory.note("discovery", "a", {"n": 1}))
    world.run(memory.note("discovery", "a", None))
    world.run(memory.note("discovery", "b", None))
    world.run(memory.write(0))

    assert world.run(world.memory().groups()) == set()


def test_many_groups_are_spread_among_config_maps(world: World) -> None:
    memory = world.memory(many=True)
    for number in range(500):
        world.run(memory.note("retention", f"g{number}", {"n": number}))
    world.run(memory.write(0))

    assert len(world.names) == SHARDS
    assert world.run(world.memory(many=True).recall("retention", "g123")) == {"n": 123}
    assert len(world.run(world.memory(many=True).groups())) == 500


def test_progress_is_written_rarely_and_with_what_is_urgent(world: World) -> None:
    memory = world.memory()
    world.run(memory.note("retention", "a", {"n": 0}))
    world.run(memory.write(0))
    world.run(memory.note("retention", "a", {"n": 1}, urgent=False))
    world.run(memory.write(4 * MINUTE_MS))
    assert world.run(world.memory().recall("retention", "a")) == {"n": 0}

    world.run(memory.write(5 * MINUTE_MS))
    assert world.run(world.memory().recall("retention", "a")) == {"n": 1}

    world.run(memory.note("retention", "a", {"n": 2}, urgent=False))
    world.run(memory.note("retention", "b", {"n": 0}))
    world.run(memory.write(5 * MINUTE_MS + 1))
    assert world.run(world.memory().recall("retention", "a")) == {"n": 2}


def test_a_process_that_another_one_has_followed_does_not_overwrite(world: World) -> None:
    earlier, later = world.memory(), world.memory()
    world.run(earlier.recall("discovery", "a"))
    world.run(later.note("discovery", "a", {"n": 2}))
    world.run(later.write(0))
    world.run(earlier.note("discovery", "a", {"n": 1}))

    with pytest.raises(Conflict, match="was written by somebody else"):
        world.run(earlier.write(0))

    assert world.run(world.memory().recall("discovery", "a")) == {"n": 2}


def test_what_another_process_writes_in_that_moment_is_not_written_over(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = world.memory()
    world.run(memory.note("discovery", "a", {"n": 0}))
    world.run(memory.write(0))
    world.run(memory.note("discovery", "a", {"n": 1}))
    own, meanwhile = world.kube.own_config_map, [encode({"a": {"discovery": {"n": 2}}})]

    def own_config_map(owner: Any, name: str) -> Any:
        found = own(owner, name)
        if meanwhile:
            world.kube.config_maps["ns", name] = meanwhile.pop()
        return found

    monkeypatch.setattr(world.kube, "own_config_map", own_config_map)
    with pytest.raises(Conflict):
        world.run(memory.write(1))

    assert world.run(world.memory().recall("discovery", "a")) == {"n": 2}


@pytest.mark.parametrize("data", [{PLAIN: "{"}, {PLAIN: '{"groups": 1}'}, {PACKED: "no gzip"}, {PLAIN: "[]"}], ids=str)
def test_what_cannot_be_read_is_written_anew(world: World, data: dict[str, str]) -> None:
    world.run(world.memory().note("discovery", "a", {"n": 1}))
    memory = world.memory()
    world.run(memory.note("discovery", "a", {"n": 1}))
    world.run(memory.write(0))
    [key] = world.kube.config_maps
    world.kube.config_maps[key] = data

    damaged = world.memory()
    assert world.run(damaged.recall("discovery", "a")) is None
    world.run(damaged.note("discovery", "a", {"n": 2}))
    world.run(damaged.write(0))

    assert world.run(world.memory().recall("discovery", "a")) == {"n": 2}


def test_a_long_document_is_compressed_and_one_that_does_not_fit_is_refused() -> None:
    long = {f"group-{n}": {"discovery": {"n": n}} for n in range(5_000)}

    assert list(encode(long)) == [PACKED]
    assert decode(encode(long)) == long
    with pytest.raises(TooLarge, match="narrow topics or groups"):
        encode({f"{n * 2_654_435_761 % 2**61:x}{n * 40_503 % 2**61:x}": {"p": {"n": n}} for n in range(120_000)})
