"""One pass over an ``OffsetBackup``: what is due is begun, what is under way followed, and what is so is said.

Each pass does at most one thing (:mod:`tidegate.offset_backup.attempts`), and what it must remember is in the document
and in the status.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from tidegate.connection.live import Live, LiveConnections
from tidegate.jobs.errors import RunnerFailure
from tidegate.kube.loop import Pass
from tidegate.kube.objects import newest_of, tell_all
from tidegate.kube.ports import BACKUPS, Object, label_of, name_of, namespace_of, uid_of
from tidegate.offset_backup.attempts import Attempts, ForeignDocument, JobParts, Memory, NewerOrder
from tidegate.offset_backup.metrics import BackupMetrics
from tidegate.offset_backup.order import Order
from tidegate.offset_backup.schedule import Take, Wait
from tidegate.offset_backup.status import (
    DOCUMENT_NOT_OWNED,
    INVALID_SPEC,
    BackupStanding,
    Before,
    Told,
    backed_up,
    ending,
    refused,
    suspended,
    waiting,
)
from tidegate.offset_backup.wanted import View, decided, is_same, made_of, remembered, wanted_order
from tidegate.resources.base import InvalidResource, parse_spec, read_status
from tidegate.resources.conditions import Refusal
from tidegate.resources.offset_backup import BackupStatus, OffsetBackupSpec, OffsetBackupStatus
from tidegate.service.metrics import Metrics
from tidegate.threads import in_thread
from tidegate.versions import WRITTEN_BY_NEWER_VERSION

_log = logging.getLogger(__name__)

_IDLE_S: Final = 60.0
_ACTIVE_S: Final = 2.0
_LEAST_S: Final = 1.0
_TROUBLED_S: Final = 10.0


@dataclass(frozen=True, slots=True)
class Parts:
    """What the reconciler acts through. ``now``: the wall clock, aware, UTC."""

    jobs: JobParts
    live: LiveConnections
    now: Callable[[], datetime]
    metrics: Metrics
    backups: BackupMetrics


@dataclass(frozen=True, slots=True)
class _Outcome:
    """Of a pass: ``told`` is absent where the status stays as it is."""

    told: Told | None
    again_after_s: float


class BackupReconciler:
    """Implements ``tidegate.kube.loop.Reconciler``."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._attempts = Attempts(parts.jobs)
        self._told: dict[str, set[str]] = {}
        """By resource, the keys of Events that were recorded."""

    async def reconcile(self, body: Object) -> Pass:
        if body["metadata"].get("deletionTimestamp"):
            # Its job goes with it; an order that was removed already is not to be written again. Nor is one late.
            self._parts.backups.gone(namespace_of(body), name_of(body))
            return Pass(body, _IDLE_S)
        before = Before(read_status(OffsetBackupStatus, body), int(body["metadata"]["generation"]), self._parts.now())
        try:
            outcome, newer = await self._looked_after(body, before), False
        except NewerOrder as left_alone:
            refusal = Refusal(WRITTEN_BY_NEWER_VERSION, str(left_alone))
            outcome, newer = _Outcome(refused(before, refusal), _IDLE_S), True
        except ForeignDocument as foreign:
            refusal = Refusal(DOCUMENT_NOT_OWNED, str(foreign))
            outcome, newer = _Outcome(refused(before, refusal), _IDLE_S), False
        self._parts.metrics.newer_is(BACKUPS.kind, uid_of(body), newer)
        if outcome.told is not None:
            body = await self._say(body, before.status, outcome.told)
        return Pass(body, outcome.again_after_s)

    async def forget(self, body: Object) -> None:
        self._told.pop(uid_of(body), None)
        self._parts.metrics.newer_is(BACKUPS.kind, uid_of(body), False)
        self._parts.backups.gone(namespace_of(body), name_of(body))
        await self._attempts.forget(body)

    async def refresh(self, body: Object) -> Object | None:
        return await newest_of(self._parts.jobs.kube, self._parts.jobs.executor, BACKUPS, body)

    # --- one pass -----------------------------------------------------------------------------------------------------

    async def _looked_after(self, body: Object, before: Before) -> _Outcome:
        try:
            spec = parse_spec(OffsetBackupSpec, body)
        except InvalidResource as invalid:
            return _Outcome(refused(before, Refusal(INVALID_SPEC, str(invalid))), _IDLE_S)
        if spec.suspend:
            self._parts.backups.gone(namespace_of(body), name_of(body))
            if not await self._withdrawn(body, before):
                return _Outcome(ending(before), _ACTIVE_S)
            return _Outcome(suspended(before, spec, (await self._attempts.memory(body)).document), _IDLE_S)
        # First of all: whatever keeps backups from being made, the age of the newest has to raise the alarm.
        self._measure(body, spec, before.status.last)
        name = spec.connection_ref.name
        live = self._parts.live.used_from(namespace_of(body), (namespace_of(body), name))
        if live is None:
            why = f"there is no usable KafkaConnection {name} in this namespace: waiting for it"
        elif live.trouble is not None:
            why = f"KafkaConnection {name} is not ready ({live.trouble[0]}): waiting for it"
        if live is None or live.trouble is not None:
            return _Outcome(waiting(before, spec, why), _ACTIVE_S)
        return await self._connected(body, before, spec, live)

    async def _connected(self, body: Object, before: Before, spec: OffsetBackupSpec, live: Live) -> _Outcome:
        jobs = self._parts.jobs
        view = View(body, spec, before.status, live, before.now)
        wanted = wanted_order(view, jobs.spark, jobs.places, has_runner=jobs.runner is not None)
        if isinstance(wanted, Refusal):
            if not await self._withdrawn(body, before):
                return _Outcome(ending(before), _ACTIVE_S)
            return _Outcome(refused(before, wanted), _IDLE_S)
        memory = await self._attempts.memory(body)
        try:
            return await self._kept(view, before, memory, wanted)
        except (RunnerFailure, TimeoutError) as failure:
            if str(failure) != memory.trouble:
                memory.trouble = str(failure)
                _log.warning("%s: %s; retrying soon", label_of(body), failure)
            return self._said(view, before, memory, wanted, again_after_s=_TROUBLED_S)

    async def _kept(self, view: View, before: Before, memory: Memory, wanted: Order) -> _Outcome:
        document = memory.document
        if document is not None and document.is_under_way:
            if not is_same(document.order, wanted):
                done = await self._withdrawn(view.body, before)
                return _Outcome(None, 0.0) if done else _Outcome(ending(before), _ACTIVE_S)
            document = await self._attempts.follow(view, memory, document)
            # How it ended is said before anything else is begun.
            return self._said(view, before, memory, wanted, again_after_s=_ACTIVE_S if document.is_under_way else 0.0)
        decision = decided(view, document, wanted)
        if isinstance(decision, Take):
            await self._attempts.order(view, memory, wanted, decision)
            return self._said(view, before, memory, wanted, again_after_s=0.0)
        left_s = (decision.until - view.now).total_seconds()
        return self._said(view, before, memory, wanted, again_after_s=min(_IDLE_S, max(_LEAST_S, left_s)))

    async def _withdrawn(self, body: Object, before: Before) -> bool:
        """Whether no job of it runs, since none is wanted."""
        return await self._attempts.withdraw(body, await self._attempts.memory(body), before.now)

    # --- saying -------------------------------------------------------------------------------------------------------

    def _said(self, view: View, before: Before, memory: Memory, wanted: Order, *, again_after_s: float) -> _Outcome:
        document = memory.document
        made = made_of(document, wanted, view.live.cluster_id) or remembered(view, wanted)
        begins = None
        if document is None or not document.is_under_way:
            decision = decided(view, document, wanted)
            begins = decision.until if isinstance(decision, Wait) else decision.due
        told = backed_up(before, view.spec, BackupStanding(document, made, begins, memory.trouble))
        self._measure(view.body, view.spec, told.status.last)
        return _Outcome(told, again_after_s)

    def _measure(self, body: Object, spec: OffsetBackupSpec, last: BackupStatus | None) -> None:
        self._parts.backups.backup_is(
            namespace_of(body),
            name_of(body),
            taken_at=None if last is None else last.taken_at,
            every_s=spec.schedule.total_seconds(),
            offsets=0 if last is None else last.partitions,
            unread=0 if last is None else last.unread,
        )

    async def _say(self, body: Object, before: OffsetBackupStatus, told: Told) -> Object:
        jobs, known = self._parts.jobs, self._told.setdefault(uid_of(body), set())
        await tell_all(jobs.kube, jobs.executor, body, told.happenings, known)
        if told.status == before:
            return body
        body = await in_thread(jobs.executor, jobs.kube.replace_status, BACKUPS, body, told.status.to_json())
        self._parts.metrics.wrote_status(BACKUPS.kind)
        self._count(before, told.status)
        return body

    def _count(self, before: OffsetBackupStatus, now: OffsetBackupStatus) -> None:
        if now.last is not None and now.last != before.last:
            self._parts.backups.ended(taken=True)
        if (now.failures or 0) > (before.failures or 0):
            self._parts.backups.ended(taken=False)
