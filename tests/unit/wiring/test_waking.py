"""Who is woken, and who is not."""

from __future__ import annotations

import asyncio
from typing import Any

from tidegate.kube.loop import LevelLoop, Pass
from tidegate.kube.ports import Object
from tidegate.wiring.waking import Wake


class Counting:
    def __init__(self) -> None:
        self.passes: list[str] = []

    async def reconcile(self, body: Object) -> Pass:
        self.passes.append(body["metadata"]["name"])
        return Pass(body, 600.0)

    async def refresh(self, body: Object) -> Object | None:
        return body

    async def forget(self, body: Object) -> None:
        pass


def body_of(namespace: str, name: str, connection: dict[str, str]) -> dict[str, Any]:
    metadata = {"namespace": namespace, "name": name, "uid": name, "generation": 1, "resourceVersion": "1"}
    return {"metadata": metadata, "spec": {"connectionRef": connection}}


async def _woken() -> list[list[str]]:
    counts = [Counting() for _ in range(3)]
    policies, resets, pauses = (LevelLoop(each, expected=()) for each in counts)
    wake = Wake()
    wake.loops, wake.pauses = (policies, resets), pauses
    policies.notice("ADDED", body_of("kafka", "of-its-namespace", {"name": "prod"}))
    policies.notice("ADDED", body_of("shop", "of-another-connection", {"name": "prod"}))
    policies.notice("ADDED", body_of("shop", "through-another-namespace", {"name": "prod", "namespace": "kafka"}))
    resets.notice("ADDED", body_of("kafka", "a-reset", {"name": "prod"}))
    pauses.notice("ADDED", body_of("kafka", "a-pause", {"name": "prod"}))
    pauses.notice("ADDED", body_of("kafka", "a-pause-of-another", {"name": "test"}))
    await asyncio.sleep(0.01)
    for each in counts:
        each.passes.clear()

    wake.users("kafka", "prod")

    await asyncio.sleep(0.01)
    for loop in (policies, resets, pauses):
        await loop.stop()
    return [each.passes for each in counts]


def test_a_connection_that_changes_wakes_the_policies_and_pauses_that_name_it() -> None:
    assert asyncio.run(_woken()) == [["of-its-namespace", "through-another-namespace"], [], ["a-pause"]]
