"""One pass over an ``OffsetResetPolicy``: its features beside its reset."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from tidegate.connection.live import Live, LiveConnections
from tidegate.connection.observer import NotLookedAt
from tidegate.kafka.errors import KafkaFailure
from tidegate.kube.loop import Pass
from tidegate.kube.ports import KubeFailure, Object, label_of, namespace_of, uid_of
from tidegate.offset_reset.passes import ResetPasses
from tidegate.policy.feature import Feature, PolicyView
from tidegate.reset.runs.actions import Decision
from tidegate.reset.runs.seen import Seen, under_way
from tidegate.resources.policy import OffsetResetPolicySpec

_log = logging.getLogger(__name__)

_KEEP_AGAIN_S: Final = 2.0


class PolicyReconciler:
    """Implements ``tidegate.kube.loop.Reconciler``."""

    def __init__(self, passes: ResetPasses, live: LiveConnections, features: Sequence[Feature]) -> None:
        self._passes = passes
        self._live = live
        self._features = features
        self._troubles: dict[str, str] = {}
        """By policy, why a feature failed last."""

    async def reconcile(self, body: Object) -> Pass:
        return await self._passes.pass_over(body, self._kept)

    async def forget(self, body: Object) -> None:
        for feature in self._features:
            await feature.forget(uid_of(body))
        self._troubles.pop(uid_of(body), None)
        self._passes.forget(body)

    async def refresh(self, body: Object) -> Object | None:
        return await self._passes.refresh(body)

    def _is_resetting(self, decision: Decision, live: Live, spec: OffsetResetPolicySpec) -> bool:
        """By itself, or by another resource that asks for resets of its group."""
        return under_way(decision.status) is not None or self._passes.is_being_reset(live, spec.only_group)

    async def _kept(self, body: Object, seen: Seen, decision: Decision) -> Decision:
        """The decision, with what the features did beside it. One that fails does not hold up the reset."""
        spec = seen.spec
        live = self._live.get(namespace_of(body), spec.connection_ref.name) if spec is not None else None
        if spec is None or seen.deleting_since is not None or spec.groups is not None:
            return decision
        if live is None:
            for feature in self._features:
                await feature.disconnected(seen.uid)
        if live is None or live.trouble is not None:
            again_after_s = _KEEP_AGAIN_S if spec.keeps_something else decision.again_after_s
            return replace(decision, again_after_s=min(decision.again_after_s, again_after_s))
        for feature in self._features:
            policy = PolicyView(
                body, spec, decision.status, live, seen.now, resetting=self._is_resetting(decision, live, spec)
            )
            try:
                kept = await feature.reconcile(policy)
            except (KafkaFailure, KubeFailure, NotLookedAt) as failure:
                if str(failure) != self._troubles.get(seen.uid):
                    self._troubles[seen.uid] = str(failure)
                    _log.warning("%s: %s; again soon", label_of(body), failure)
                decision = replace(decision, again_after_s=min(decision.again_after_s, _KEEP_AGAIN_S))
            else:
                self._troubles.pop(seen.uid, None)
                decision = replace(
                    decision,
                    status=kept.status,
                    happenings=(*decision.happenings, *kept.happenings),
                    again_after_s=min(decision.again_after_s, kept.again_after_s),
                )
        return decision
