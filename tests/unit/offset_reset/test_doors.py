"""How many resets of a connection may be about to begin, and that no namespace keeps the others from it."""

import asyncio
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from pathlib import Path

import pytest

from support.reset_world import World
from tidegate.kube.ports import RESETS
from tidegate.offset_reset.doors import Doors
from tidegate.offset_reset.turns import Turns

KAFKA = ("platform", "kafka")


async def settled() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


def test_a_namespace_that_asks_for_much_keeps_no_other_out() -> None:
    async def story() -> None:
        doors, inside, leave = Doors(), list[str](), asyncio.Event()

        async def pass_of(namespace: str) -> None:
            async with doors.through(namespace, KAFKA):
                inside.append(namespace)
                await leave.wait()

        passes = [asyncio.create_task(pass_of(name)) for name in ["busy"] * 100 + ["a", "b"]]
        await settled()
        assert inside == ["busy"] * 8 + ["a", "b"]

        leave.set()
        await asyncio.gather(*passes)
        assert len(inside) == 102
        assert len(doors) == 0

    asyncio.run(story())


def test_all_namespaces_together_ask_the_brokers_for_so_much_only() -> None:
    async def story() -> None:
        doors = Doors()
        async with AsyncExitStack() as inside:
            for number in range(16):
                await inside.enter_async_context(doors.through(f"team-{number}", KAFKA))
            # Another connection has brokers of its own.
            await inside.enter_async_context(doors.through("team-0", ("platform", "other")))
            late = asyncio.create_task(inside.enter_async_context(doors.through("late", KAFKA)))
            await settled()
            assert not late.done()
            late.cancel()
            await asyncio.wait([late])
        assert len(doors) == 0

    asyncio.run(story())


def test_who_may_not_use_a_connection_comes_to_no_door(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(tmp_path)
    asked = list[tuple[str, str]]()
    through = Doors.through

    def noted(doors: Doors, namespace: str, connection: tuple[str, str]) -> AbstractAsyncContextManager[None]:
        asked.append(connection)
        return through(doors, namespace, connection)

    monkeypatch.setattr(Doors, "through", noted)
    world.ask("theirs", connectionRef={"name": "kafka", "namespace": "platform"})
    world.some_passes(1)
    assert world.condition("Complete")["reason"] == "NoUsableConnection"
    assert asked == []

    world.ask("ours")
    world.some_passes(1)
    assert world.reset["startedAt"]
    assert asked == [("ns", "kafka")]
    world.executor.shutdown()


def test_names_that_somebody_made_up_are_not_remembered(tmp_path: Path) -> None:
    world = World(tmp_path)
    turns = Turns(world.parts)
    for number in range(20):
        world.ask(f"r{number}", connectionRef={"name": f"made-up-{number}"})
        turns.take(world.body)
        world.kube.change(RESETS, "ns", f"r{number}", spec={**world.body["spec"], "connectionRef": {"name": "also"}})
        turns.take(world.body)
        turns.forget(world.body["metadata"]["uid"])

    assert turns.lines == 0
    world.executor.shutdown()
