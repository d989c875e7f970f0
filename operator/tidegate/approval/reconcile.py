"""One pass over an ``OffsetResetApproval``: whether it has taken effect is read from the reset, and said.

It approves nothing here: the reset's own pass looks for approvals, and the reset's status says which one counted. So
what is said here may be said late, and never wrongly.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from tidegate.kube.loop import Pass
from tidegate.kube.objects import newest_of, tell_once
from tidegate.kube.ports import APPROVALS, RESETS, EventType, Kube, KubeEvent, NotFound, Object, namespace_of, uid_of
from tidegate.offset_reset.approval_choice import approval_of
from tidegate.offset_reset.approval_status import has_taken_effect, said
from tidegate.offset_reset.reading import read_spec, status_is_readable, status_of
from tidegate.reset.runs.approval_effect import Approval, ApprovalEffect, ResetSeen, effect_of
from tidegate.reset.runs.reasons import INVALID_SPEC
from tidegate.resources.approval import OffsetResetApprovalStatus
from tidegate.resources.base import InvalidResource, read_status
from tidegate.service.metrics import Metrics
from tidegate.threads import in_thread

_REST_S: Final = 60.0
_LOOK_S: Final = 10.0
"""A watch tells of what becomes of the reset; this is for what it has missed."""


@dataclass(frozen=True, slots=True)
class Parts:
    """What the reconciler acts through. ``separate_approver``: whoever has asked for a reset may not approve it."""

    kube: Kube
    executor: Executor
    now: Callable[[], datetime]
    metrics: Metrics
    separate_approver: bool


class ApprovalReconciler:
    """Implements ``tidegate.kube.loop.Reconciler``."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._told: dict[str, set[str]] = {}
        """By resource, the keys of Events that were recorded."""

    async def reconcile(self, body: Object) -> Pass:
        before = read_status(OffsetResetApprovalStatus, body)
        if body["metadata"].get("deletionTimestamp") or has_taken_effect(body):
            return Pass(body, _REST_S)  # what has taken effect has done so for good, also once the reset is gone
        try:
            stands = await self._effect(body, approval_of(body))
        except InvalidResource as invalid:
            stands = ApprovalEffect(False, INVALID_SPEC, str(invalid))
        status = said(before, stands, int(body["metadata"]["generation"]), self._parts.now())
        if stands.effective is False:
            told, key = self._told.setdefault(uid_of(body), set()), stands.reason
            happening = KubeEvent(EventType.WARNING, stands.reason, stands.message, key)
            await tell_once(self._parts.kube, self._parts.executor, body, happening, told)
        if status != before:
            write = self._parts.kube.replace_status
            body = await in_thread(self._parts.executor, write, APPROVALS, body, status.to_json())
            self._parts.metrics.wrote_status(APPROVALS.kind)
        return Pass(body, _LOOK_S if stands.effective is None else _REST_S)

    async def forget(self, body: Object) -> None:
        self._told.pop(uid_of(body), None)

    async def refresh(self, body: Object) -> Object | None:
        return await newest_of(self._parts.kube, self._parts.executor, APPROVALS, body)

    async def _effect(self, body: Object, approval: Approval) -> ApprovalEffect:
        return effect_of(approval, await self._reset(body, approval), separate=self._parts.separate_approver)

    async def _reset(self, body: Object, approval: Approval) -> ResetSeen | None:
        try:
            there = await in_thread(
                self._parts.executor, self._parts.kube.get, RESETS, namespace_of(body), approval.reset
            )
        except NotFound:
            return None
        spec, _ = read_spec(there)
        status = status_of(there) if status_is_readable(there) else None
        return ResetSeen(spec, status, deleting=bool(there["metadata"].get("deletionTimestamp")))
