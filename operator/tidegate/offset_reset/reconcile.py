"""One pass over an ``OffsetReset``, which is deleted some time after its end where it asks for that."""

from __future__ import annotations

import logging
from dataclasses import replace
from datetime import timedelta
from typing import Final

from tidegate.clock import Clock
from tidegate.kube.loop import Pass
from tidegate.kube.ports import RESETS, Object, label_of
from tidegate.offset_reset.parts import Parts
from tidegate.offset_reset.passes import ResetPasses
from tidegate.reset.runs.reasons import FINALIZER
from tidegate.resources.base import InvalidResource, parse_spec, read_status
from tidegate.resources.offset_reset import OffsetResetSpec, OffsetResetStatus
from tidegate.resources.reset import has_ended
from tidegate.threads import in_thread

_log = logging.getLogger(__name__)

_LOOK_AGAIN_S: Final = 10.0
"""After a deletion, of which a watch tells."""

_SHORTEST_S: Final = 0.1


class OffsetResetReconciler:
    """Implements ``tidegate.kube.loop.Reconciler``."""

    def __init__(self, passes: ResetPasses, parts: Parts) -> None:
        self._passes = passes
        self._parts = parts

    async def reconcile(self, body: Object) -> Pass:
        if self._is_over(body):
            # What is seen may be old: somebody may have asked for more time since.
            fresh = await self._passes.refresh(body)
            if fresh is not None and self._is_over(fresh) and await self._removed(fresh):
                _log.info("%s: deleted, because it ended longer than spec.ttlAfterFinished ago", label_of(body))
            return Pass(fresh or body, _LOOK_AGAIN_S)
        done = await self._passes.pass_over(body)
        left = _left_to_live(done.body, self._parts.clock)
        if left is None:
            return done
        return replace(done, again_after_s=min(done.again_after_s, max(left.total_seconds(), _SHORTEST_S)))

    async def _removed(self, body: Object) -> bool:
        return await in_thread(self._parts.executor, self._parts.kube.remove, RESETS, body)

    def _is_over(self, body: Object) -> bool:
        left = _left_to_live(body, self._parts.clock)
        return left is not None and left <= timedelta(0)

    async def forget(self, body: Object) -> None:
        self._passes.forget(body)

    async def refresh(self, body: Object) -> Object | None:
        return await self._passes.refresh(body)


def _left_to_live(body: Object, clock: Clock) -> timedelta | None:
    """How much longer it is kept; ``None``: it has not ended, is being deleted, or stays until somebody deletes it."""
    # Asked twice in each pass, and most never asked for it.
    if (body.get("spec") or {}).get("ttlAfterFinished") is None or _is_kept(body):
        return None
    status = read_status(OffsetResetStatus, body)
    if not has_ended(status.phase) or status.finished_at is None:
        return None
    try:
        ttl = parse_spec(OffsetResetSpec, body).ttl_after_finished
    except InvalidResource:
        return None
    return None if ttl is None else status.finished_at + ttl - clock.now()


def _is_kept(body: Object) -> bool:
    """Until its run is settled, and where it is being deleted already."""
    metadata = body["metadata"]
    return FINALIZER in (metadata.get("finalizers") or ()) or bool(metadata.get("deletionTimestamp"))
