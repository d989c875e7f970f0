"""One pass over an ``OffsetResetPolicy``: the reset that it asks for, and its features."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from tidegate.kube.loop import Pass
from tidegate.kube.objects import Told, newest_of, tell_all
from tidegate.kube.ports import (
    POLICIES,
    EventType,
    Object,
    uid_of,
)
from tidegate.kube.unreadable import UNREADABLE_AGAIN_S, say_unreadable
from tidegate.offset_reset.passes import ResetPasses
from tidegate.policy.draft import Draft
from tidegate.policy.keeping import Features, Keeping
from tidegate.policy.parts import Parts
from tidegate.policy.requesting import Requesting
from tidegate.reset.runs.progress import ANNOTATION_SAYS
from tidegate.reset.runs.reasons import ANNOTATION_APPROVES_NOTHING, APPROVE, FINALIZER, INVALID_SPEC
from tidegate.resources.base import InvalidResource, has_readable_status, parse_spec, read_status
from tidegate.resources.policy import OffsetResetPolicySpec, PolicyStatus
from tidegate.threads import in_thread

_REST_S: Final = 60.0

NOTHING_KEPT: Final = "the policy's features do nothing until its spec is valid: see the condition Stalled"


class PolicyReconciler:
    """Implements ``tidegate.kube.loop.Reconciler``."""

    def __init__(self, parts: Parts, resets: ResetPasses, features: Features) -> None:
        self._parts = parts
        self._requesting = Requesting(parts)
        self._keeping = Keeping(parts, resets, features)
        self._told: dict[str, Told] = {}
        """By policy, which Events this process has recorded."""

    def expect(self, bodies: Iterable[Object]) -> None:
        """Before the first pass: the policies that there are, between which it is decided who has a group."""
        for body in bodies:
            if body["metadata"].get("deletionTimestamp") or not has_readable_status(PolicyStatus, body):
                continue
            try:
                self._keeping.expect(body, parse_spec(OffsetResetPolicySpec, body))
            except InvalidResource:
                continue  # its own pass says so

    async def reconcile(self, body: Object) -> Pass:
        metadata, kube = body["metadata"], self._parts.kube
        finalizers = metadata.get("finalizers") or ()
        if FINALIZER in finalizers:
            # An earlier version ran resets in policies themselves. OffsetResets have finalizers of their own.
            others = [name for name in finalizers if name != FINALIZER]
            return Pass(await in_thread(self._parts.executor, kube.set_finalizers, POLICIES, body, others), 0)
        if metadata.get("deletionTimestamp"):
            # It may stay for as long as others want it to. It keeps nothing any more, so others may.
            await self.forget(body)
            return Pass(body, _REST_S)
        told = self._told.setdefault(uid_of(body), Told())
        if not has_readable_status(PolicyStatus, body):
            # It says which ids were run by an earlier version, and what that has discovered.
            await self._keeping.forget(uid_of(body))
            self._parts.metrics.newer_is(POLICIES.kind, uid_of(body), True)
            now = self._parts.clock.now()
            body = await say_unreadable(kube, self._parts.executor, POLICIES, body, now, told)
            return Pass(body, UNREADABLE_AGAIN_S)
        before = read_status(PolicyStatus, body)
        generation = int(metadata["generation"])
        draft = Draft(before, generation, self._parts.clock.now(), told=told)
        draft.begin()
        try:
            spec = parse_spec(OffsetResetPolicySpec, body)
        except InvalidResource as invalid:
            _is_invalid(draft, invalid)
            draft.keeps_nothing(INVALID_SPEC, NOTHING_KEPT)
            # It keeps nothing until it is corrected, so others may.
            await self._keeping.forget(uid_of(body))
        else:
            try:
                await self._requesting.ask(body, spec, draft)
            except InvalidResource as invalid:  # its reset alone, such as a name that no OffsetReset can have
                _is_invalid(draft, invalid)
            await self._keeping.keep(body, spec, draft)
        self._parts.metrics.newer_is(POLICIES.kind, uid_of(body), draft.is_left_alone)
        if APPROVE in (metadata.get("annotations") or {}):
            draft.tell(EventType.WARNING, ANNOTATION_APPROVES_NOTHING, ANNOTATION_SAYS, ANNOTATION_APPROVES_NOTHING)
        await tell_all(kube, self._parts.executor, body, draft.happenings, told)
        if draft.status != before:
            body = await in_thread(self._parts.executor, kube.replace_status, POLICIES, body, draft.status.to_json())
            self._parts.metrics.wrote_status(POLICIES.kind)
        return Pass(body, draft.again_after_s)

    async def forget(self, body: Object) -> None:
        await self._keeping.forget(uid_of(body))
        self._requesting.forget(uid_of(body))
        self._told.pop(uid_of(body), None)
        self._parts.metrics.newer_is(POLICIES.kind, uid_of(body), False)

    async def refresh(self, body: Object) -> Object | None:
        return await newest_of(self._parts.kube, self._parts.executor, POLICIES, body)


def _is_invalid(draft: Draft, invalid: InvalidResource) -> None:
    draft.stuck(INVALID_SPEC, str(invalid))
    draft.tell(EventType.WARNING, INVALID_SPEC, str(invalid), f"{draft.generation}/{INVALID_SPEC}")
