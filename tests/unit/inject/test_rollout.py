"""Whose turn it is to be replaced, and what is said meanwhile."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tidegate.inject.eligibility import Surroundings
from tidegate.inject.environment import AgentTopics, NamedPolicy, injection_for, injection_of
from tidegate.inject.patch import AgentImage
from tidegate.inject.rollout import Owner, PodState, Seen, SeenPod, after, decide, desired_pods, seen_pod, to_ask
from tidegate.kube.injection import Evicted
from tidegate.resources.base import parse_spec
from tidegate.resources.conditions import ConditionStatus
from tidegate.resources.features import InjectionStatus, Rollout
from tidegate.resources.policy import OffsetResetPolicySpec

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
OWNER = Owner("apps/v1", "ReplicaSet", "payments-1", "rs")
OTHER = Owner("apps/v1", "StatefulSet", "other", "sts")


def pod(name: str, state: PodState | None = PodState.STALE, **given: Any) -> SeenPod:
    usual = {"owner": OWNER, "ready": True, "leaving": False, "changed_at": NOW - timedelta(hours=1)}
    return SeenPod(name, f"uid-{name}", state, **{**usual, **given})


def seen(*pods: SeenPod, desired: int = 2, **given: Any) -> Seen:
    usual: dict[str, Any] = {
        "policy": "p",
        "setting": "s",
        "rollout": Rollout.RESTART,
        "webhook": True,
        "desired": {"rs": desired, "sts": 1},
    }
    return Seen(NOW, pods=pods, **{**usual, **given})


DONE = PodState.INJECTED


@pytest.mark.parametrize(
    ("pods", "given", "evicted", "reason"),
    [
        ([pod("a"), pod("b")], {}, "a", "RollingOut"),
        ([pod("a", DONE), pod("b")], {}, "b", "RollingOut"),
        ([pod("a", DONE), pod("b", DONE)], {}, None, "Injected"),
        ([], {}, None, "NoPods"),
        ([pod("a", None)], {}, None, "NoPods"),
        # Somebody is away, or about to be.
        ([pod("a"), pod("b", ready=False, changed_at=NOW)], {}, None, "RollingOut"),
        ([pod("a"), pod("b", DONE, ready=False, changed_at=NOW)], {}, None, "RollingOut"),
        ([pod("a"), pod("b", DONE, ready=False)], {}, None, "RolloutStuck"),
        ([pod("a"), pod("b", None, leaving=True)], {}, None, "RollingOut"),
        # Another workload that has the setting, and fails for reasons of its own, is nobody it waits for.
        ([pod("a"), pod("b", leaving=True), pod("z", DONE, owner=OTHER, ready=False)], {}, None, "RollingOut"),
        ([pod("a")], {}, None, "RollingOut"),
        ([pod("a"), pod("b"), pod("c")], {}, None, "RollingOut"),
        ([pod("a"), pod("b")], {"desired": {}}, None, "RollingOut"),
        # Another workload of the group need not wait for it.
        ([pod("a"), pod("z", owner=OTHER)], {}, "z", "RollingOut"),
        # Nobody would make another one, or somebody else decides.
        ([pod("a", owner=None), pod("b", DONE)], {}, None, "WaitingForPods"),
        ([pod("a", owner=Owner("batch/v1", "Job", "j", "j"))], {}, None, "WaitingForPods"),
        ([pod("a", ours=False), pod("b", ours=False)], {}, None, "WaitingForPods"),
        ([pod("a"), pod("b")], {"rollout": Rollout.WHEN_NEXT}, None, "WaitingForPods"),
        ([pod("a"), pod("b")], {"webhook": False}, None, "WebhookOff"),
        ([pod("a", PodState.REFUSED, refusal="it runs on Windows"), pod("b", DONE)], {}, None, "Refused"),
        ([pod("a", DONE, overruled="a (TIDEGATE_GROUP)"), pod("b", DONE)], {}, None, "Overruled"),
    ],
)
def test_whose_turn_it_is(pods: list[SeenPod], given: Mapping[str, Any], evicted: str | None, reason: str) -> None:
    decision = decide(seen(*pods, **given))

    assert (decision.evict.name if decision.evict else None) == evicted
    assert decision.condition[1] == reason
    wanted = {"Injected": ConditionStatus.TRUE, "NoPods": ConditionStatus.UNKNOWN}
    assert decision.condition[0] is wanted.get(reason, ConditionStatus.FALSE)


def test_evictions_that_bring_nothing_are_made_ever_more_rarely_until_one_does() -> None:
    """The pods come back as they were: the webhook is not asked."""
    status, at, times = InjectionStatus(), NOW, []
    while at < NOW + timedelta(hours=6):
        decision = decide(replace(seen(pod("a"), pod("b"), before=status), now=at))
        if decision.evict is not None:
            times.append(at)
        assert decision.condition[1] == ("RollingOut" if decision.evict else "NotInjected")
        status = InjectionStatus.model_validate(decision.status.to_json())
        at += timedelta(seconds=10)

    waits = [(b - a) // timedelta(minutes=1) for a, b in itertools.pairwise(times)]
    assert waits == [1, 2, 4, 8, 16, 32, 60, 60, 60, 60]

    better = decide(replace(seen(pod("a", DONE), pod("b"), before=status), now=at))
    assert better.evict is not None
    assert (better.status.futile, better.status.stale_before) == (None, 1)
    other = decide(seen(pod("a"), pod("b"), setting="t", before=status))
    assert other.evict is not None


def test_while_nobody_is_evicted_no_next_one_is_announced_and_then_it_goes_on_as_often_as_before() -> None:
    """Frozen in the middle of evictions that bring nothing, for longer than the wait for the next one."""
    about = seen(pod("a"), pod("b"), before=InjectionStatus(setting="s", stale_before=2, futile=2))
    waiting = decide(about)
    at = NOW + timedelta(hours=1)

    frozen = decide(replace(about, rollout=Rollout.WHEN_NEXT, before=waiting.status, now=at))
    still = decide(replace(about, rollout=Rollout.WHEN_NEXT, before=frozen.status, now=at))
    thawed = decide(replace(about, before=still.status, now=at))

    assert waiting.status.retry_at == NOW + timedelta(minutes=4)
    for decision in (frozen, still):
        assert decision.evict is None
        assert decision.condition[1] == "WaitingForPods"
        assert "evicted" not in decision.condition[2]
        assert decision.status.retry_at is None
        assert decision.happenings == ()
    assert thawed.evict is None
    assert "3 pod(s) were evicted" in thawed.condition[2]
    assert (thawed.status.futile, thawed.status.retry_at) == (3, at + timedelta(minutes=4))


def test_while_a_pod_is_not_ready_no_eviction_is_announced_whose_time_is_over() -> None:
    before = InjectionStatus(setting="s", stale_before=2, futile=2, retry_at=NOW - timedelta(minutes=10))

    decision = decide(seen(pod("a"), pod("b", ready=False), before=before))

    assert decision.evict is None
    assert (decision.condition[1], decision.under_way) == ("RolloutStuck", True)
    assert "pod b is not ready" in decision.condition[2]


def test_a_lost_status_costs_one_eviction_at_most() -> None:
    """The operator ended between an eviction and its status."""
    before = InjectionStatus(setting="s", stale_before=2)

    assert decide(seen(pod("a", DONE), pod("b"), before=before)).evict is not None
    assert decide(seen(pod("a"), pod("b"), before=before)).evict is None
    assert decide(seen(pod("a"), pod("b"))).evict is not None


def test_what_the_budget_forbids_is_not_counted() -> None:
    about = seen(pod("a"), pod("b"), before=InjectionStatus(setting="s", stale_before=3))

    refused, other = (after(decide(replace(about, setting=s)), Evicted.BUDGET) for s in ("s", "t"))

    assert refused.evict is None
    assert refused.blocked
    assert refused.status.stale_before == 3
    assert other.status.stale_before is None
    assert "disruption budget" in refused.condition[2]
    assert not after(decide(about), Evicted.GONE).blocked
    assert after(decide(about), Evicted.YES).status.stale_before == 2


def test_a_rollout_is_told_once_for_each_setting_and_each_trouble() -> None:
    first, second = (decide(seen(*pods)).happenings for pods in ([pod("a"), pod("b")], [pod("a", DONE), pod("b")]))
    other = decide(seen(pod("a"), pod("b"), setting="t")).happenings

    assert [h.key for h in first] == [h.key for h in second]
    assert first[0].key != other[0].key
    assert decide(seen(pod("a", DONE), pod("b", DONE))).happenings == ()


def test_only_controllers_of_stale_pods_are_asked() -> None:
    pods = [pod("a"), pod("b"), pod("c", DONE, owner=OTHER), pod("d", owner=None)]

    assert to_ask(seen(*pods)) == (OWNER,)
    assert to_ask(seen(*pods, rollout=Rollout.WHEN_NEXT)) == ()


@pytest.mark.parametrize(
    ("controller", "wanted"),
    [
        ({"metadata": {}, "spec": {"replicas": 3}}, 3),
        ({"metadata": {}, "spec": {}}, 1),
        ({"kind": "DaemonSet", "metadata": {}, "status": {"desiredNumberScheduled": 4}}, 4),
        ({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}, "spec": {"replicas": 3}}, None),
    ],
)
def test_how_many_pods_there_are_to_be(controller: Mapping[str, Any], wanted: int | None) -> None:
    assert desired_pods(controller) == wanted


# --- a pod ------------------------------------------------------------------------------------------------------------

SPEC = {
    "connectionRef": {"name": "kafka"},
    "group": "payments",
    "consumers": {"selector": {"matchLabels": {"app": "payments"}}},
}
BODY = {"apiVersion": "tidegate.io/v1alpha1", "kind": "OffsetResetPolicy", "metadata": {"name": "p"}, "spec": SPEC}
POLICY = NamedPolicy("p", parse_spec(OffsetResetPolicySpec, BODY), AgentTopics("__tidegate"), ("ns", "kafka"))
AROUND = Surroundings((POLICY,), {"kafka": AgentTopics("__tidegate")})
INJECTION = injection_for({"app": "payments"}, AROUND.policies)
SETTING = INJECTION.setting
OURS = {"name": "tidegate-agent", "command": ["/opt/tidegate/agent/install", "/tidegate"], "image": "agent:1"}
MOUNTING = {"name": "app", "volumeMounts": [{"name": "tidegate-agent", "mountPath": "/tidegate"}]}
TOLD = [{"name": name, "value": value} for name, value in INJECTION.environment.items()]
STARTING = {**MOUNTING, "env": [{"name": "PYTHONPATH", "value": "/first:/tidegate/python"}, *TOLD]}
STRIPPED = {**MOUNTING, "env": [{"name": "PYTHONPATH", "value": "/by/another/webhook"}, *TOLD]}
UNTOLD = {**MOUNTING, "env": STARTING["env"][:1]}


def running(annotations: Mapping[str, str] | None = None, **given: Any) -> dict[str, Any]:
    metadata = {
        "name": "x",
        "uid": "u",
        "labels": {"app": "payments"},
        "annotations": dict(annotations or {}),
        "creationTimestamp": "2026-11-21T11:00:00Z",
        **given.pop("metadata", {}),
    }
    status = given.pop("status", {"phase": "Running"})
    return {"metadata": metadata, "spec": {"containers": [{"name": "app"}], **given}, "status": status}


@pytest.mark.parametrize(
    ("body", "state"),
    [
        (running(), PodState.STALE),
        # Another webhook has written the containers as they were: none has the agent.
        (running({"tidegate.io/injected": SETTING}, initContainers=[OURS]), PodState.STALE),
        (running({"tidegate.io/injected": SETTING}, initContainers=[OURS], containers=[STARTING]), PodState.INJECTED),
        (running({"tidegate.io/injected": SETTING}, initContainers=[OURS], containers=[STRIPPED]), PodState.STALE),
        (running({"tidegate.io/injected": SETTING}, initContainers=[OURS], containers=[UNTOLD]), PodState.STALE),
        (running({"tidegate.io/injected": "older"}, initContainers=[OURS]), PodState.STALE),
        (running({"tidegate.io/injected": SETTING}), PodState.STALE),
        (running(os={"name": "windows"}), PodState.REFUSED),
        (running({"tidegate.io/inject": "false"}), None),
        (running(metadata={"deletionTimestamp": "2026-11-21T11:00:00Z"}), None),
    ],
)
def test_a_pod_has_the_setting_or_not(body: Mapping[str, Any], state: PodState | None) -> None:
    found = seen_pod(body, "p", AROUND, AgentImage("a", "Always"))

    assert found is not None
    assert found.state is state


def test_the_status_has_the_versions_of_the_agent_that_run() -> None:
    image = AgentImage("agent:2", "Always")
    bodies = [
        running(
            {"tidegate.io/injected": SETTING},
            initContainers=[{**OURS, "image": f"agent:{version}"}],
            containers=[STARTING],
        )
        for version in (1, 2, 1)
    ]
    stale = running({"tidegate.io/injected": "older"}, initContainers=[OURS])
    pods = [found for body in (*bodies, stale) if (found := seen_pod(body, "p", AROUND, image)) is not None]

    status = decide(seen(*pods, rollout=Rollout.WHEN_NEXT)).status

    assert [(version.image, version.pods) for version in status.versions] == [("agent:1", 2), ("agent:2", 1)]


def test_an_image_with_a_name_without_end_does_not_keep_the_status_from_being_written() -> None:
    """Whoever makes pods may name any image; the API server takes 1.5 MB of a status in all."""
    pods = [pod(f"{n}", DONE, image=f"registry/{'x' * 100_000}:{n}") for n in range(20)]

    versions = decide(seen(*pods)).status.versions

    assert len(versions) == 20
    assert len({version.image for version in versions}) == 20
    assert sum(len(version.image) for version in versions) <= 20 * 512


def test_pods_that_have_ended_do_not_count() -> None:
    for phase in ("Succeeded", "Failed"):
        assert seen_pod(running(status={"phase": phase}), "p", AROUND, AgentImage("a", "Always")) is None


def test_of_two_policies_one_rolls_and_the_other_is_told() -> None:
    other = replace(POLICY, name="q", topics=AgentTopics("__other"))
    around = replace(AROUND, policies=(POLICY, other))

    first, second = (seen_pod(running(), name, around, AgentImage("a", "Always")) for name in ("p", "q"))

    assert first is not None
    assert second is not None
    assert (first.ours, first.overruled) == (True, "")
    assert (second.ours, second.overruled) == (False, "p (TIDEGATE_CONTROL_TOPIC)")


def test_a_pod_that_names_another_policy_does_not_have_the_setting_of_those_that_select_it() -> None:
    other = replace(POLICY, name="q", topics=AgentTopics("__other"))
    around = replace(AROUND, policies=(POLICY, other))
    setting = injection_of(other).setting
    body = running(
        {"tidegate.io/policy": "q", "tidegate.io/injected": setting}, initContainers=[OURS], containers=[STARTING]
    )

    found = seen_pod(body, "p", around, AgentImage("a", "Always"))

    assert found is not None
    decision = decide(seen(found))
    assert decision.condition[1] == "Overruled"
    assert "q (annotation tidegate.io/policy)" in decision.condition[2]


def test_pods_that_another_policy_replaces_are_not_said_to_be_replaced_by_nothing() -> None:
    """Both want the same, so neither overrules the other."""
    around = replace(AROUND, policies=(POLICY, replace(POLICY, name="q")))
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "payments-1", "uid": "rs", "controller": True}
    found = seen_pod(running(metadata={"ownerReferences": [owner]}), "q", around, AgentImage("a", "Always"))

    assert found is not None
    decision = decide(replace(seen(found), policy="q"))
    assert decision.evict is None
    assert decision.condition[1:] == (
        "WaitingForPods",
        "0 of 1 pod(s) have the setting; the rollout of policy p decides whether the other pods are evicted",
    )
