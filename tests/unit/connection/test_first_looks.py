"""What goes through a connection waits for the first look at it."""

import asyncio
from typing import Any

from tidegate.connection.first_looks import FirstLooks


def connection(name: str) -> dict[str, Any]:
    return {"metadata": {"uid": f"uid-{name}", "namespace": "ns", "name": name}}


def through(name: str) -> dict[str, Any]:
    metadata = {"uid": "p", "namespace": "ns", "name": "p"}
    return {"metadata": metadata, "spec": {"connectionRef": {"name": name}}}


def looks_at(*names: str, limit_s: float = 60) -> FirstLooks:
    looks = FirstLooks(limit_s)
    looks.connections = lambda: [connection(name) for name in names]
    return looks


def test_it_waits_until_the_connection_was_looked_at_and_never_again() -> None:
    async def story() -> None:
        looks = looks_at("kafka", "other")
        waiting = asyncio.create_task(looks.wait(through("kafka")))
        looks.looked("uid-other")
        await asyncio.wait([waiting], timeout=0.05)
        assert not waiting.done()

        looks.looked("uid-kafka")
        async with asyncio.timeout(5):
            await waiting
            await looks.wait(through("kafka"))

    asyncio.run(story())


def test_a_connection_that_is_not_there_is_not_waited_for() -> None:
    async def story() -> None:
        async with asyncio.timeout(5):
            await looks_at("kafka").wait(through("none"))
            await looks_at("kafka").wait({"metadata": {"uid": "a", "namespace": "ns", "name": "a"}, "spec": {}})

    asyncio.run(story())


def test_nothing_waits_longer_than_its_time() -> None:
    async def story() -> None:
        async with asyncio.timeout(5):
            await looks_at("kafka", limit_s=0.01).wait(through("kafka"))

    asyncio.run(story())
