"""A loop keeps the newest version of an object, and nothing of whoever told of it."""

from __future__ import annotations

import asyncio
import gc
import json
import weakref
from contextvars import ContextVar

from tidegate.kube.loop import LevelLoop, Pass
from tidegate.kube.ports import Object

CAUSE: ContextVar[object] = ContextVar("CAUSE")


class Cause:
    """As kopf's, which has the object as it was told of."""


class Resting:
    async def reconcile(self, body: Object) -> Pass:
        return Pass(body, 600.0)

    async def refresh(self, body: Object) -> Object | None:
        return body

    async def forget(self, body: Object) -> None:
        pass


def body_of(uid: str) -> Object:
    return {"metadata": {"namespace": "shop", "name": uid, "uid": uid, "generation": 1, "resourceVersion": "1"}}


def test_nothing_of_a_handler_is_kept_once_it_has_returned() -> None:
    asyncio.run(_told_by_handlers())


async def _told_by_handlers() -> None:
    loop = LevelLoop(Resting(), expected=())
    causes: list[weakref.ref[Cause]] = []

    async def handler(uid: str) -> None:
        cause = Cause()
        CAUSE.set(cause)
        causes.append(weakref.ref(cause))
        loop.notice("ADDED", body_of(uid))

    try:
        for uid in ("a", "b"):
            await asyncio.create_task(handler(uid))
        await asyncio.sleep(0)
        gc.collect()

        assert loop.size == 2
        assert [cause() for cause in causes] == [None, None]
    finally:
        await loop.stop()


def test_texts_that_many_objects_have_are_kept_once() -> None:
    asyncio.run(_told_of_two())


async def _told_of_two() -> None:
    loop = LevelLoop(Resting(), expected=())
    status = {"phase": "Paused", "rows": [{"topic": "orders", "phase": "Paused"}], "lag": 7, "message": "m" * 200}
    try:
        for uid in ("a", "b"):
            told = json.loads(json.dumps({**body_of(uid), "status": status}))
            loop.notice("ADDED", told)
            assert loop.named("shop", uid) == told

        one, another = (loop.named("shop", uid) for uid in ("a", "b"))
        assert one is not None
        assert another is not None
        assert list(map(id, one["status"])) == list(map(id, another["status"]))
        assert one["status"]["rows"][0]["topic"] is another["status"]["rows"][0]["topic"]
        assert one["status"]["phase"] is one["status"]["rows"][0]["phase"]
    finally:
        await loop.stop()
