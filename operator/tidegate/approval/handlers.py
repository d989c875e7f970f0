"""kopf watches ``OffsetResetApproval``s; every event goes to the loop (see ``tidegate.kube.loop`` for why)."""

from __future__ import annotations

from typing import Any

import kopf

from tidegate.kube.loop import LevelLoop
from tidegate.kube.ports import APPROVALS, RESETS, name_of, namespace_of, uid_of
from tidegate.offset_reset.approval_choice import named_reset


def register(registry: kopf.OperatorRegistry, loop: LevelLoop, resets: LevelLoop) -> None:
    """Feed the events of all ``OffsetResetApproval``s, those of the listing at the start included, to ``loop``.

    The reset that one is of is woken in ``resets``, and where a reset has changed its approvals are woken in ``loop``.
    """

    @kopf.on.event(APPROVALS.group, APPROVALS.version, APPROVALS.plural, registry=registry)
    async def noticed(event: Any, **_: Any) -> None:
        loop.notice(event["type"], event["object"])
        resets.wake_named(*named_reset(event["object"]))

    @kopf.on.event(RESETS.group, RESETS.version, RESETS.plural, registry=registry)
    async def noticed_reset(event: Any, **_: Any) -> None:
        changed = (namespace_of(event["object"]), name_of(event["object"]))
        for approval in loop.bodies:
            if named_reset(approval) == changed:
                loop.wake(uid_of(approval))
