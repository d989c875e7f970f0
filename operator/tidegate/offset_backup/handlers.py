"""kopf watches ``OffsetBackup``s; every event goes to the loop (see ``tidegate.kube.loop`` for why)."""

from __future__ import annotations

from typing import Any

import kopf

from tidegate.kube.loop import LevelLoop
from tidegate.kube.ports import BACKUPS


def register(registry: kopf.OperatorRegistry, loop: LevelLoop) -> None:
    """Feed the events of all ``OffsetBackup``s, those of the listing at the start included, to ``loop``."""

    @kopf.on.event(BACKUPS.group, BACKUPS.version, BACKUPS.plural, registry=registry)
    async def noticed(event: Any, **_: Any) -> None:
        loop.notice(event["type"], event["object"])
