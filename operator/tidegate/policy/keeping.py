"""What a policy keeps for its group, feature by feature, and what it remembers of that."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final

from tidegate.connection.live import Live
from tidegate.connection.observer import NotLookedAt
from tidegate.kafka.errors import KafkaFailure
from tidegate.kube.ports import Conflict, KubeFailure, Object, label_of, namespace_of, uid_of
from tidegate.offset_reset.passes import ResetPasses
from tidegate.policy.draft import Draft
from tidegate.policy.feature import Feature, PolicyView
from tidegate.policy.memory import GroupMemory, PolicyMemory
from tidegate.policy.parts import Parts
from tidegate.resources.policy import OffsetResetPolicySpec
from tidegate.resources.reset import has_ended

_log = logging.getLogger(__name__)

_AGAIN_S: Final = 2.0


class Keeping:
    """Asks the features of one policy after the other. Belongs to the event loop's thread."""

    def __init__(self, parts: Parts, resets: ResetPasses, features: Sequence[Feature]) -> None:
        self._parts = parts
        self._resets = resets
        self._features = features
        self._memories: dict[str, PolicyMemory] = {}
        self._troubles: dict[str, str] = {}
        """By policy, why a feature failed last."""

    async def keep(self, body: Object, spec: OffsetResetPolicySpec, draft: Draft) -> None:
        """Ask each feature. One that fails does not hold up the others."""
        if spec.groups is not None:
            return
        uid, live = uid_of(body), self._parts.live.get(namespace_of(body), spec.connection_ref.name)
        if live is None:
            for feature in self._features:
                await feature.disconnected(uid)
        if live is None or live.trouble is not None:
            if spec.keeps_something:
                draft.look_in(_AGAIN_S)
            return
        before = draft.status
        memory = self._memories.setdefault(uid, PolicyMemory(self._parts.kube, self._parts.executor, body, many=False))
        for feature in self._features:
            view = PolicyView(
                body,
                spec,
                draft.status,
                live,
                draft.now,
                resetting=self._is_resetting(draft, live, spec.only_group),
                memory=GroupMemory(memory, spec.only_group),
            )
            try:
                kept = await feature.reconcile(view)
            except (KafkaFailure, KubeFailure, NotLookedAt) as failure:
                self._trouble(body, draft, failure)
            else:
                self._troubles.pop(uid, None)
                draft.status = kept.status
                draft.happenings.extend(kept.happenings)
                draft.look_in(kept.again_after_s)
        try:
            await memory.write(int(draft.now.timestamp() * 1000))
        except KubeFailure as failure:
            # What an earlier version has remembered in the status has to stay there until it is elsewhere.
            draft.status = draft.status.model_copy(update={"discovery": before.discovery})
            self._trouble(body, draft, failure)
            if isinstance(failure, Conflict):
                await self.forget(uid)

    async def forget(self, uid: str) -> None:
        """Let go of what is kept in this process; the next pass begins with what is written."""
        for feature in self._features:
            await feature.forget(uid)
        self._memories.pop(uid, None)
        self._troubles.pop(uid, None)

    def _trouble(self, body: Object, draft: Draft, failure: Exception) -> None:
        if str(failure) != self._troubles.get(uid_of(body)):
            self._troubles[uid_of(body)] = str(failure)
            _log.warning("%s: %s; again soon", label_of(body), failure)
        draft.look_in(_AGAIN_S)

    def _is_resetting(self, draft: Draft, live: Live, group: str) -> bool:
        """By its own OffsetReset, or by another one of its group."""
        own = draft.status.reset
        begun = own is not None and own.started_at is not None and not has_ended(own.phase) and own.phase is not None
        return begun or self._resets.is_being_reset(live, group)
