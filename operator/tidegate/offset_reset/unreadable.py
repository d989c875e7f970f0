"""An ``OffsetReset`` with a status that this version can't read: what that says of a run is neither lost nor obeyed.

Deleted, it waits for the version that can settle its run, for as long as a deletion may take. Then it goes, with its
gates opened: its consumers would otherwise stand still for good.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from tidegate.kube.loop import Pass
from tidegate.kube.objects import tell_once
from tidegate.kube.ports import RESETS, EventType, KubeEvent, Object, name_of, uid_of
from tidegate.kube.unreadable import UNREADABLE_AGAIN_S, gone_by, is_abandoned, say_unreadable
from tidegate.offset_reset.parts import Memories, Parts
from tidegate.offset_reset.reading import read_spec, status_of
from tidegate.offset_reset.supervise import Supervision
from tidegate.reset.runs import reasons
from tidegate.reset.runs.ending import left_closed
from tidegate.reset.runs.seen import Seen
from tidegate.resources.reset import ResetPhase
from tidegate.threads import in_thread

_LEAST_S: Final = 1.0


class Unreadable:
    """Passes over those."""

    def __init__(self, parts: Parts, memories: Memories, supervision: Supervision) -> None:
        self._parts = parts
        self._memories = memories
        self._supervision = supervision

    async def pass_over(self, body: Object) -> Pass:
        parts, now = self._parts, self._parts.clock.now()
        parts.metrics.newer_is(RESETS.kind, uid_of(body), True)
        has_finalizer = reasons.FINALIZER in (body["metadata"].get("finalizers") or ())
        until = gone_by(body, parts.deletion_limit) if has_finalizer else None
        if until is not None and (now > until or is_abandoned(body)):
            return await self._give_up(body)
        told = self._memories.of(body).told
        body = await say_unreadable(parts.kube, parts.executor, RESETS, body, now, told, until)
        left_s = (until - now) / timedelta(seconds=1) if until is not None else UNREADABLE_AGAIN_S
        return Pass(body, min(UNREADABLE_AGAIN_S, max(_LEAST_S, left_s)))

    async def _give_up(self, body: Object) -> Pass:
        """Which job is at work is in the status; it is fenced, and goes with its owner."""
        parts, memory = self._parts, self._memories.of(body)
        if not memory.halted and not memory.unhalted:
            await self._supervision.halt_briefly(body, self._seen(body))
            return Pass(body, 0)
        why = f"as {reasons.ABANDON} asks" if is_abandoned(body) else f"after {parts.deletion_limit}"
        message = (
            f"reset {name_of(body)} was given up without being rolled back, {why}: this version of Tidegate can't read "
            f"its status. Look at the group's offsets{left_closed(memory.unhalted)}"
        )
        happening = KubeEvent(EventType.WARNING, reasons.ABANDONED, message, f"{name_of(body)}/{reasons.ABANDONED}")
        await tell_once(parts.kube, parts.executor, body, happening, memory.told)
        others = [f for f in body["metadata"]["finalizers"] if f != reasons.FINALIZER]
        body = await in_thread(parts.executor, parts.kube.set_finalizers, RESETS, body, others)
        parts.metrics.run_finished(ResetPhase.FAILED.value, reasons.ABANDONED, standstill_s=None, replayed=0, skipped=0)
        return Pass(body, 0)

    def _seen(self, body: Object) -> Seen:
        spec, invalid = read_spec(body)
        return Seen(
            uid=uid_of(body),
            run_id=name_of(body),
            generation=int(body["metadata"]["generation"]),
            spec=spec,
            status=status_of(body),
            now=self._parts.clock.now(),
            invalid=invalid,
        )
