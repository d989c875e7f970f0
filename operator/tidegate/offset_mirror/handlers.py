"""kopf watches ``OffsetMirror``s; every event goes to the loop (see ``tidegate.kube.loop`` for why)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import kopf

from tidegate.kube.loop import LevelLoop
from tidegate.kube.ports import MIRRORS, Object


def register(registry: kopf.OperatorRegistry, loop: LevelLoop, changed: Callable[[Object], None]) -> None:
    """Feed the events of all ``OffsetMirror``s, those of the listing at the start included, to ``loop``. ``changed`` is
    told of each once the loop was."""

    @kopf.on.event(MIRRORS.group, MIRRORS.version, MIRRORS.plural, registry=registry)
    async def noticed(event: Any, **_: Any) -> None:
        loop.notice(event["type"], event["object"])
        changed(event["object"])
