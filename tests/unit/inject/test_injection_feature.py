"""The feature of ``spec.consumers``, with pods that the test plays."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, cast

import pytest
from prometheus_client import CollectorRegistry

from support.fake_kafka import FakeKafka
from support.fake_pods import FakePods
from support.live import live_of
from support.served_webhook import CONNECTION, POLICY
from tidegate.connection.live import Live
from tidegate.inject.environment import injection_of
from tidegate.inject.feature import InjectionFeature, Parts
from tidegate.inject.index import PolicyIndex
from tidegate.inject.metrics import InjectionMetrics
from tidegate.inject.patch import AgentImage
from tidegate.kube.injection import Evicted
from tidegate.kube.ports import KubeFailure, KubeUnavailable
from tidegate.policy.feature import FeatureOutcome, PolicyView
from tidegate.policy.memory import GroupMemory
from tidegate.resources.base import parse_spec
from tidegate.resources.conditions import find_condition
from tidegate.resources.connection import AllowSpec
from tidegate.resources.features import InjectionStatus
from tidegate.resources.policy import OffsetResetPolicySpec, PolicyStatus

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)


class TwoBudgets(FakePods):
    """Two PodDisruptionBudgets select each pod."""

    def evict(self, namespace: str, name: str, uid: str) -> Evicted:
        self.asked.append(f"evict {namespace}/{name} {uid}")
        raise KubeUnavailable(f"evict pod {namespace}/{name}: 500 This pod has more than one PodDisruptionBudget")


class NoRight(FakePods):
    """The API server refuses to evict a pod, or to tell of what controls it."""

    refuses = "evict"

    def evict(self, namespace: str, name: str, uid: str) -> Evicted:
        if self.refuses == "evict":
            raise KubeFailure(f"evict pod {namespace}/{name}: 403 forbidden")
        return super().evict(namespace, name, uid)

    def controller(self, namespace: str, api_version: str, kind: str, name: str) -> Mapping[str, Any]:
        if self.refuses == "read":
            raise KubeFailure(f"read {kind} {namespace}/{name}: 403 forbidden")
        return super().controller(namespace, api_version, kind, name)


class MayNotRead(NoRight):
    refuses = "read"


def one_ready_pod(
    *, budget: int | None = None, failure: KubeFailure | None = None, kind: type[FakePods] = FakePods
) -> FakePods:
    """Of a ReplicaSet that is to have one."""
    pods = kind(budget=budget, failure=failure)
    uid = pods.add_controller("ns", "apps/v1", "ReplicaSet", "rs", 1)
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "rs", "uid": uid, "controller": True}
    pods.add_pod("ns", "x", {"app": "payments"}, owner)
    return pods


class StillClock:
    def __init__(self) -> None:
        self.seconds = 0.0

    def now(self) -> datetime:
        return NOW

    def monotonic(self) -> float:
        return self.seconds

    def sleep(self, seconds: float) -> None:
        self.seconds += seconds


def index_of_one() -> PolicyIndex:
    index = PolicyIndex(lambda: [POLICY], lambda: [CONNECTION])
    index.listed([], [])
    return index


def feature(
    pods: FakePods,
    clock: StillClock | None = None,
    *,
    webhook: bool = True,
    obeyed: Callable[[str, str], None] = lambda _namespace, _name: None,
    is_frozen: Callable[[Live], bool] = lambda _live: False,
    index: PolicyIndex | None = None,
) -> InjectionFeature:
    return InjectionFeature(
        Parts(
            pods=pods,
            is_frozen=is_frozen,
            index=index or index_of_one(),
            agent=AgentImage("agent:1", "Never"),
            webhook=webhook,
            executor=ThreadPoolExecutor(1),
            clock=clock or StillClock(),
            metrics=InjectionMetrics(CollectorRegistry()),
            rolling_s=2.0,
            obeyed=obeyed,
        )
    )


def kept(
    feature: InjectionFeature,
    *,
    resetting: bool = False,
    status: PolicyStatus | None = None,
    observes: bool = False,
    **live_is: Any,
) -> FeatureOutcome:
    spec = parse_spec(OffsetResetPolicySpec, POLICY)
    # Nothing else of the connection is looked at here, and nothing of what is remembered.
    live = replace(live_of(FakeKafka(), "c"), observes=observes, **live_is)
    memory = cast("GroupMemory", None)
    policy = PolicyView(POLICY, spec, status or PolicyStatus(), live, NOW, resetting, memory)
    return asyncio.run(feature.reconcile(policy))


def reason(found: FeatureOutcome) -> str:
    condition = find_condition(found.status.conditions, "Injected")
    return condition.reason if condition is not None else ""


def test_one_look_lists_asks_and_evicts_and_the_next_one_comes_later() -> None:
    pods, clock = one_ready_pod(), StillClock()
    one = feature(pods, clock)

    first = kept(one)
    clock.seconds = 1.0
    second = kept(one, status=first.status)

    assert pods.asked == ["list ns app=payments", "read apps/v1 ReplicaSet ns/rs", "evict ns/x uid-2"]
    assert (reason(first), first.again_after_s) == ("RollingOut", 2.0)
    assert second.status == first.status
    clock.seconds = 2.0
    kept(one, status=first.status)
    assert pods.asked[3:] == ["list ns app=payments"]  # where there is none, as nobody makes another here


def test_a_budget_that_allows_nothing_is_asked_less_often() -> None:
    found = kept(feature(one_ready_pod(budget=0)))

    assert (reason(found), found.again_after_s) == ("RollingOut", 10.0)
    assert found.status.injection is not None
    assert found.status.injection.stale_before is None


def test_an_eviction_that_is_not_answered_as_it_should_be_is_said_and_asked_for_less_often() -> None:
    pods = one_ready_pod(kind=TwoBudgets)

    found = kept(feature(pods))

    assert pods.asked[-1] == "evict ns/x uid-2"
    condition = find_condition(found.status.conditions, "Injected")
    assert condition is not None
    assert (condition.status.value, condition.reason) == ("False", "RollingOut")
    assert condition.message.endswith(
        "; pod x could not be evicted: evict pod ns/x: 500 This pod has more than one PodDisruptionBudget"
    )
    assert found.status.injection is not None
    assert (found.status.injection.stale, found.status.injection.stale_before) == (1, None)
    assert found.again_after_s == 10.0


@pytest.mark.parametrize(
    ("kind", "told"),
    [
        (NoRight, "; pod x could not be evicted: evict pod ns/x: 403 forbidden"),
        (MayNotRead, "; the rollout waits: read ReplicaSet ns/rs: 403 forbidden"),
    ],
)
def test_what_a_rollout_may_not_do_is_said_beside_what_was_read_of_the_pods(kind: type[FakePods], told: str) -> None:
    """They were counted: the status would say for ever what was so before the right was taken away."""
    pods, clock = one_ready_pod(kind=kind), StillClock()
    one = feature(pods, clock)

    found = kept(one, status=PolicyStatus(injection=InjectionStatus(setting="before", pods=7, injected=7)))

    condition = find_condition(found.status.conditions, "Injected")
    assert condition is not None
    assert (condition.status.value, condition.reason) == ("False", "RollingOut")
    assert condition.message.endswith(told)
    assert found.status.injection is not None
    assert (found.status.injection.pods, found.status.injection.injected, found.status.injection.stale) == (1, 0, 1)
    assert found.again_after_s == 10.0


def test_a_pod_that_names_a_policy_for_many_groups_holds_up_no_other() -> None:
    """Whoever makes pods need not be whoever may change policies."""
    metadata = {**POLICY["metadata"], "name": "q", "uid": "q"}
    fleet = {**POLICY, "metadata": metadata, "spec": {"connectionRef": {"name": "kafka"}, "groups": ["*"]}}
    index = PolicyIndex(lambda: [POLICY, fleet], lambda: [CONNECTION])
    index.listed([], [])
    pods = FakePods()
    pods.add_pod("ns", "x", {"app": "payments"})
    [body] = pods.pods("ns", "app=payments")
    body["metadata"]["annotations"] = {"tidegate.io/policy": "q"}

    found = kept(feature(pods, index=index))

    condition = find_condition(found.status.conditions, "Injected")
    assert condition is not None
    assert condition.reason == "Refused"
    assert "which is for many groups" in condition.message


def test_nobody_is_evicted_while_the_groups_offsets_are_being_changed() -> None:
    pods = one_ready_pod()

    found = kept(feature(pods), resetting=True)

    assert pods.asked == []
    assert found.status == PolicyStatus()


def test_nobody_is_evicted_through_a_connection_that_only_observes() -> None:
    pods = one_ready_pod()

    found = kept(feature(pods), observes=True)

    assert pods.asked == []
    assert reason(found) == "Observing"


def test_through_a_frozen_connection_nobody_is_evicted_and_pods_are_counted() -> None:
    pods, clock = one_ready_pod(), StillClock()
    one = feature(pods, clock)

    found = kept(one, frozen="frozen: INC-4711")

    assert pods.asked == ["list ns app=payments"]
    assert reason(found) == "WaitingForPods"
    assert found.status.injection is not None
    assert (found.status.injection.pods, found.status.injection.stale) == (1, 1)
    assert found.again_after_s == 60.0

    kept(one, status=found.status)
    assert pods.asked[-1] == "evict ns/x uid-2", "at once when it is thawed"


def test_pods_are_not_looked_at_where_nothing_is_injected() -> None:
    pods = one_ready_pod()

    assert reason(kept(feature(pods, webhook=False))) == "WebhookOff"
    assert pods.asked == []


def test_a_right_that_is_missing_is_said_in_the_condition() -> None:
    found = kept(feature(one_ready_pod(failure=KubeFailure("list the pods of ns: 403 forbidden"))))

    condition = find_condition(found.status.conditions, "Injected")
    assert condition is not None
    assert (condition.reason, condition.message) == ("PodsNotRead", "list the pods of ns: 403 forbidden")
    assert found.again_after_s == 60.0


def test_it_learns_from_the_pods_whose_control_topic_another_replica_has_told_agents_of() -> None:
    obeyed: list[tuple[str, str]] = []
    kept(feature(one_ready_pod(), obeyed=lambda *names: obeyed.append(names)))
    assert obeyed == []

    around = index_of_one().around("ns")
    assert around is not None
    pods = FakePods()
    pods.add_pod("ns", "x", {"app": "payments"}, injected=injection_of(around.policies[0]))
    kept(feature(pods, obeyed=lambda *names: obeyed.append(names)))
    assert obeyed == [("ns", "kafka")]


def test_nobody_is_told_the_topics_of_another_namespaces_connection_for_a_group_that_it_does_not_allow() -> None:
    allow = AllowSpec(groups=("refunds",))

    found = kept(feature(one_ready_pod()), namespace="kafka", user="ns", allow=allow)

    assert reason(found) == "GroupNotAllowed"
