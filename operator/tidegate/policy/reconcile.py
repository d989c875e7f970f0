"""One pass over an ``OffsetResetPolicy``: the reset that it asks for, and its features."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final

from tidegate.connection.live import Live
from tidegate.connection.observer import NotLookedAt
from tidegate.connection.read_only import observes
from tidegate.kafka.errors import KafkaFailure
from tidegate.kube.loop import Pass
from tidegate.kube.objects import newest_of, tell_once
from tidegate.kube.ports import (
    POLICIES,
    EventType,
    KubeFailure,
    Object,
    label_of,
    namespace_of,
    uid_of,
)
from tidegate.offset_reset.passes import ResetPasses
from tidegate.policy.draft import Draft
from tidegate.policy.feature import Feature, PolicyView
from tidegate.policy.parts import Parts
from tidegate.policy.requesting import Requesting
from tidegate.reset.runs.progress import ANNOTATION_SAYS
from tidegate.reset.runs.reasons import ANNOTATION_APPROVES_NOTHING, APPROVE, FINALIZER, INVALID_SPEC
from tidegate.resources.base import InvalidResource, parse_spec, read_status
from tidegate.resources.policy import OffsetResetPolicySpec, PolicyStatus
from tidegate.resources.reset import has_ended
from tidegate.threads import in_thread

_log = logging.getLogger(__name__)

_KEEP_AGAIN_S: Final = 2.0
_REST_S: Final = 60.0


class PolicyReconciler:
    """Implements ``tidegate.kube.loop.Reconciler``."""

    def __init__(self, parts: Parts, resets: ResetPasses, features: Sequence[Feature]) -> None:
        self._parts = parts
        self._resets = resets
        self._requesting = Requesting(parts)
        self._features = features
        self._troubles: dict[str, str] = {}
        """By policy, why a feature failed last."""
        self._told: dict[str, set[str]] = {}
        """By policy, the keys of the Events that this process has recorded."""

    async def reconcile(self, body: Object) -> Pass:
        metadata, kube = body["metadata"], self._parts.kube
        finalizers = metadata.get("finalizers") or ()
        if FINALIZER in finalizers:
            # An earlier version ran resets in policies themselves. OffsetResets have finalizers of their own.
            others = [name for name in finalizers if name != FINALIZER]
            return Pass(await in_thread(self._parts.executor, kube.set_finalizers, POLICIES, body, others), 0)
        if metadata.get("deletionTimestamp"):
            return Pass(body, _REST_S)
        before = read_status(PolicyStatus, body)
        generation = int(metadata["generation"])
        draft = Draft(before, generation, self._parts.clock.now())
        draft.begin()
        try:
            spec = parse_spec(OffsetResetPolicySpec, body)
            await self._requesting.ask(body, spec, draft)
        except InvalidResource as invalid:
            draft.stuck(INVALID_SPEC, str(invalid))
            draft.tell(EventType.WARNING, INVALID_SPEC, str(invalid), f"{generation}/{INVALID_SPEC}")
        else:
            await self._keep(body, spec, draft)
        if APPROVE in (metadata.get("annotations") or {}):
            draft.tell(EventType.WARNING, ANNOTATION_APPROVES_NOTHING, ANNOTATION_SAYS, ANNOTATION_APPROVES_NOTHING)
        told = self._told.setdefault(uid_of(body), set())
        for happening in draft.happenings:
            await tell_once(kube, self._parts.executor, body, happening, told)
        if draft.status != before:
            body = await in_thread(self._parts.executor, kube.replace_status, POLICIES, body, draft.status.to_json())
            self._parts.metrics.wrote_status(POLICIES.kind)
        return Pass(body, draft.again_after_s)

    async def forget(self, body: Object) -> None:
        for feature in self._features:
            await feature.forget(uid_of(body))
        self._requesting.forget(uid_of(body))
        self._troubles.pop(uid_of(body), None)
        self._told.pop(uid_of(body), None)

    async def refresh(self, body: Object) -> Object | None:
        return await newest_of(self._parts.kube, self._parts.executor, POLICIES, body)

    def _is_resetting(self, draft: Draft, live: Live, spec: OffsetResetPolicySpec) -> bool:
        """By its own OffsetReset, or by another one of its group."""
        own = draft.status.reset
        begun = own is not None and own.started_at is not None and not has_ended(own.phase) and own.phase is not None
        return begun or self._resets.is_being_reset(live, spec.only_group)

    async def _keep(self, body: Object, spec: OffsetResetPolicySpec, draft: Draft) -> None:
        """Ask each feature. One that fails does not hold up the others."""
        uid, live = uid_of(body), self._parts.live.get(namespace_of(body), spec.connection_ref.name)
        if live is not None:
            draft.observing_is(observes(live.name) if live.observes else None)
        if spec.groups is not None:
            return
        if live is None:
            for feature in self._features:
                await feature.disconnected(uid)
        if live is None or live.trouble is not None:
            if spec.keeps_something:
                draft.look_in(_KEEP_AGAIN_S)
            return
        for feature in self._features:
            view = PolicyView(
                body, spec, draft.status, live, draft.now, resetting=self._is_resetting(draft, live, spec)
            )
            try:
                kept = await feature.reconcile(view)
            except (KafkaFailure, KubeFailure, NotLookedAt) as failure:
                if str(failure) != self._troubles.get(uid):
                    self._troubles[uid] = str(failure)
                    _log.warning("%s: %s; again soon", label_of(body), failure)
                draft.look_in(_KEEP_AGAIN_S)
            else:
                self._troubles.pop(uid, None)
                draft.status = kept.status
                draft.happenings.extend(kept.happenings)
                draft.look_in(kept.again_after_s)
