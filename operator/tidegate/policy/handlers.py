"""kopf watches ``OffsetResetPolicy``s; every event goes to the loop (see ``tidegate.kube.loop`` for why)."""

from __future__ import annotations

from typing import Any

import kopf

from tidegate.kube.loop import LevelLoop
from tidegate.kube.ports import POLICIES


def register(registry: kopf.OperatorRegistry, loop: LevelLoop) -> None:
    """Feed the events of all ``OffsetResetPolicy``s, those of the listing at the start included, to ``loop``."""

    @kopf.on.event(POLICIES.group, POLICIES.version, POLICIES.plural, registry=registry)
    async def noticed(event: Any, **_: Any) -> None:
        loop.notice(event["type"], event["object"])
