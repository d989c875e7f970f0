"""kopf watches ``OffsetReset``s; every event goes to the loop (see ``tidegate.kube.loop`` for why)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import kopf

from tidegate.kube.loop import LevelLoop
from tidegate.kube.ports import RESETS, Object
from tidegate.offset_reset.reading import policy_of


def register(
    registry: kopf.OperatorRegistry, loop: LevelLoop, policies: LevelLoop, changed: Callable[[Object], None]
) -> None:
    """Feed the events of all ``OffsetReset``s, those of the listing at the start included, to ``loop``.

    A policy that has created one repeats its status: it is woken in ``policies``. ``changed`` is told of each.
    """

    @kopf.on.event(RESETS.group, RESETS.version, RESETS.plural, registry=registry)
    async def noticed(event: Any, **_: Any) -> None:
        loop.notice(event["type"], event["object"])
        changed(event["object"])
        policy = policy_of(event["object"])
        if policy is not None:
            policies.wake(policy.uid)
