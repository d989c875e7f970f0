"""Injection as one of a policy's features: which of the selected pods have its settings, and whose turn is next."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Final, TypeVar

from tidegate.clock import Clock
from tidegate.connection.allow import GROUP_NOT_ALLOWED, group_not_allowed
from tidegate.connection.freezing import FrozenMeanwhile, begin
from tidegate.connection.live import Live
from tidegate.connection.read_only import observes
from tidegate.inject.eligibility import Surroundings
from tidegate.inject.environment import NamedPolicy, injection_of, selector_text
from tidegate.inject.index import PolicyIndex
from tidegate.inject.metrics import InjectionMetrics
from tidegate.inject.patch import AgentImage
from tidegate.inject.rollout import (
    PODS_NOT_READ,
    Decision,
    PodState,
    Seen,
    after,
    decide,
    desired_pods,
    not_evicted,
    seen_pod,
    to_ask,
)
from tidegate.kube.injection import Evicted, Pods
from tidegate.kube.ports import KubeFailure, KubeUnavailable, NotFound, Object, label_of, name_of, namespace_of, uid_of
from tidegate.policy.feature import FeatureOutcome, PolicyView
from tidegate.resources.conditions import INJECTED, OBSERVING, ConditionStatus, without_condition
from tidegate.resources.features import ConsumersSpec, InjectionStatus, Rollout
from tidegate.threads import in_thread

_log = logging.getLogger(__name__)

_AGAIN_S: Final = 60.0
_NEVER_S: Final = 3600.0
_BLOCKED_TICKS: Final = 5

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Parts:
    """What the feature acts through. ``is_frozen``: whether a connection is now, so that nobody is evicted.
    ``webhook``: whether pods are injected at all; ``rolling_s``: between two looks while pods are replaced.
    ``obeyed``: learns of each connection, by namespace and name, whose control topic the agents of running pods were
    told of: it may have been another replica that told them.
    """

    pods: Pods
    is_frozen: Callable[[Live], bool]
    index: PolicyIndex
    agent: AgentImage
    webhook: bool
    executor: Executor
    clock: Clock
    metrics: InjectionMetrics
    rolling_s: float
    obeyed: Callable[[str, str], None] = lambda _namespace, _name: None


@dataclass(frozen=True, slots=True)
class _Looked:
    generation: int
    frozen: bool
    at_s: float
    again_after_s: float


class InjectionFeature:
    """Implements ``tidegate.policy.feature.Feature`` for ``spec.consumers``."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._looked: dict[str, _Looked] = {}

    async def reconcile(self, policy: PolicyView) -> FeatureOutcome:
        consumers, uid = policy.spec.consumers, policy.key
        if consumers is None:
            await self.forget(uid)
            conditions = without_condition(policy.status.conditions, INJECTED)
            status = policy.status.model_copy(update={"injection": None, "conditions": conditions})
            return FeatureOutcome(status, again_after_s=_NEVER_S)
        if policy.live.observes:
            await self.forget(uid)
            told = (ConditionStatus.FALSE, OBSERVING, observes(policy.live.label))
            return FeatureOutcome(policy.told(INJECTED, told, injection=None), again_after_s=_AGAIN_S)
        refused = _group_not_allowed(policy)
        if refused is not None:
            await self.forget(uid)
            return FeatureOutcome(policy.told(INJECTED, refused, injection=None), again_after_s=_AGAIN_S)
        now_s, generation = self._parts.clock.monotonic(), int(policy.body["metadata"]["generation"])
        frozen, looked = bool(policy.live.frozen), self._looked.get(uid)
        same = looked is not None and (looked.generation, looked.frozen) == (generation, frozen)
        if looked is not None and same and now_s - looked.at_s < looked.again_after_s * 0.9:
            return FeatureOutcome(policy.status, again_after_s=looked.again_after_s - (now_s - looked.at_s))
        around = self._parts.index.around(namespace_of(policy.body))
        named = _named(policy, around)
        if around is None or named is None:
            return FeatureOutcome(policy.status, again_after_s=self._parts.rolling_s)
        if policy.resetting:
            # Its consumers stay while their offsets are changed: a rebalance more would only be in the way.
            return FeatureOutcome(policy.status, again_after_s=self._parts.rolling_s)
        try:
            seen = await self._see(policy, consumers, around, named)
            decision = await self._act(policy, decide(seen))
        except FrozenMeanwhile as meanwhile:
            _log.info("%s: %s, so no pod is evicted", label_of(policy.body), meanwhile)
            return FeatureOutcome(policy.status, again_after_s=self._parts.rolling_s)
        except KubeUnavailable:
            raise
        except KubeFailure as failure:
            # A right is missing, most likely. Nothing here will change that soon.
            self._looked[uid] = _Looked(generation, frozen, now_s, _AGAIN_S)
            told = (ConditionStatus.UNKNOWN, PODS_NOT_READ, str(failure))
            return FeatureOutcome(
                policy.told(INJECTED, told, injection=policy.status.injection), again_after_s=_AGAIN_S
            )
        again_after_s = self._again_s(seen, decision) if not frozen else _AGAIN_S
        self._looked[uid] = _Looked(generation, frozen, now_s, again_after_s)
        status = policy.told(INJECTED, decision.condition, injection=decision.status)
        return FeatureOutcome(status, decision.happenings, again_after_s)

    async def forget(self, key: str) -> None:
        self._looked.pop(key, None)

    async def disconnected(self, key: str) -> None:
        """Pods are injected as the connection said last; what it said is looked at when it is there again."""

    async def _see(
        self, policy: PolicyView, consumers: ConsumersSpec, around: Surroundings, named: NamedPolicy
    ) -> Seen:
        parts, namespace, name = self._parts, namespace_of(policy.body), name_of(policy.body)
        bodies: Sequence[Object] = ()
        if parts.webhook:
            bodies = await in_thread(
                self._parts.executor, parts.pods.pods, namespace, selector_text(consumers.selector)
            )
        found = (seen_pod(body, name, around, parts.agent) for body in bodies)
        seen = Seen(
            now=policy.now,
            policy=name,
            setting=injection_of(named).setting,
            # Nobody is evicted through a frozen connection. Pods that come by themselves get the agent all the same:
            # without it they would not obey what holds.
            rollout=Rollout.WHEN_NEXT if policy.live.frozen else consumers.rollout,
            webhook=parts.webhook,
            pods=tuple(pod for pod in found if pod is not None),
            before=policy.status.injection or InjectionStatus(),
        )
        if seen.of(PodState.INJECTED) and injection_of(named).topics is not None:
            parts.obeyed(policy.live.namespace, policy.live.name)
        desired: dict[str, int] = {}
        untold: dict[str, str] = {}
        for owner in to_ask(seen):
            try:
                body = await in_thread(
                    self._parts.executor, parts.pods.controller, namespace, owner.api_version, owner.kind, owner.name
                )
            except NotFound:
                continue
            except KubeUnavailable:
                raise
            except KubeFailure as refusal:
                untold[owner.uid] = str(refusal)
                continue
            wished = desired_pods(body)
            if wished is not None and uid_of(body) == owner.uid:
                desired[owner.uid] = wished
        return replace(seen, desired=desired, untold=untold)

    async def _act(self, policy: PolicyView, decision: Decision) -> Decision:
        pod = decision.evict
        if pod is None:
            return decision
        evict = functools.partial(self._parts.pods.evict, namespace_of(policy.body), pod.name, pod.uid)
        try:
            evicted = await in_thread(self._parts.executor, begin, self._parts.is_frozen, policy.live, evict)
        except KubeFailure as failure:
            # The pods were counted all the same.
            return not_evicted(decision, str(failure))
        self._parts.metrics.evicted(evicted.value)
        if evicted is Evicted.YES:
            _log.info("%s: evicted pod %s, which had another setting", label_of(policy.body), pod.name)
        return after(decision, evicted)

    def _again_s(self, seen: Seen, decision: Decision) -> float:
        if decision.under_way:
            return self._parts.rolling_s * (_BLOCKED_TICKS if decision.blocked or seen.untold else 1)
        if decision.status.retry_at is not None:
            return min(_AGAIN_S, max(1.0, (decision.status.retry_at - seen.now) / timedelta(seconds=1)))
        return _AGAIN_S


def _group_not_allowed(policy: PolicyView) -> tuple[ConditionStatus, str, str] | None:
    """Why a policy of another namespace than its connection's is not told of the topics of that. Within a namespace
    everybody is, as there is nothing secret in it."""
    live, group = policy.live, policy.spec.group
    if not live.is_foreign or group is None:
        return None
    message = group_not_allowed(live.label, live.allow, "spec.group", group)
    return None if message is None else (ConditionStatus.FALSE, GROUP_NOT_ALLOWED, message)


def _named(policy: PolicyView, around: Surroundings | None) -> NamedPolicy | None:
    """The policy as the webhook knows it; ``None`` before it does."""
    known = around.policies if around is not None else ()
    return next((p for p in known if p.name == name_of(policy.body) and p.spec == policy.spec), None)
