"""What is known of a namespace when a pod comes by."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from tidegate.inject.environment import AgentTopics
from tidegate.inject.index import PolicyIndex


def connection(name: str = "kafka", **metadata: Any) -> dict[str, Any]:
    return {
        "apiVersion": "tidegate.io/v1alpha1",
        "kind": "KafkaConnection",
        "metadata": {"name": name, "namespace": "ns", "uid": f"c-{name}", "generation": 1, **metadata},
        "spec": {"bootstrapServers": "kafka:9092", "controlTopic": {"name": f"__{name}"}},
    }


def policy(name: str = "p", through: str = "kafka", **metadata: Any) -> dict[str, Any]:
    return {
        "apiVersion": "tidegate.io/v1alpha1",
        "kind": "OffsetResetPolicy",
        "metadata": {"name": name, "namespace": "ns", "uid": f"p-{name}", "generation": 1, **metadata},
        "spec": {"connectionRef": {"name": through}, "group": "payments"},
    }


def names(index: PolicyIndex, namespace: str = "ns") -> list[str] | None:
    found = index.around(namespace)
    return None if found is None else [p.name for p in found.policies]


def test_nothing_is_known_before_a_listing_and_namespaces_that_are_not_served_never() -> None:
    served = PolicyIndex(lambda: [policy()], lambda: [connection()], ["ns"])

    assert served.around("ns") is None
    served.listed([], [])

    assert names(served) == ["p"]
    assert names(served, "other") is None
    everywhere = PolicyIndex(lambda: [policy()], lambda: [connection()])
    everywhere.listed([], [])
    assert names(everywhere, "other") == []


def test_the_first_listing_counts_until_the_watches_have_begun_and_what_they_tell_counts_more() -> None:
    watched: list[Any] = []
    index = PolicyIndex(lambda: watched, lambda: [connection()])
    index.listed([policy("a"), policy("b")], [])
    assert names(index) == ["a", "b"]

    newer = policy("b")
    newer["metadata"]["generation"], newer["spec"]["group"] = 2, "refunds"
    watched.append(newer)
    around = index.around("ns")
    assert around is not None
    assert [p.spec.group for p in around.policies] == ["payments", "refunds"]
    index.listed([policy("a"), policy("b")], [])

    assert names(index) == ["b"]


def test_what_is_going_invalid_or_without_its_connection_does_not_count() -> None:
    invalid = copy.deepcopy(policy("invalid"))
    invalid["spec"]["group"] = ""
    leaving = "2026-01-01T00:00:00Z"
    index = PolicyIndex(
        lambda: [policy("p"), policy("gone", deletionTimestamp=leaving), invalid, policy("alone", through="none")],
        lambda: [connection(), connection("gone", deletionTimestamp=leaving), connection("b", namespace="other")],
    )
    index.listed([], [])

    around = index.around("ns")

    assert names(index) == ["p"]
    assert around is not None
    assert around.topics == {"kafka": AgentTopics("__kafka")}
    assert around.policies[0].topics == AgentTopics("__kafka")


@pytest.mark.parametrize("by_operator", [False, True])
def test_for_connections_that_only_observe_nothing_is_injected(*, by_operator: bool) -> None:
    observing = connection()
    observing["spec"]["observe"] = not by_operator
    index = PolicyIndex(lambda: [policy()], lambda: [observing], observe=by_operator)
    index.listed([], [])

    around = index.around("ns")

    assert around is not None
    assert (around.policies, around.topics) == ((), {})


def shared(*entries: dict[str, Any]) -> dict[str, Any]:
    made = connection()
    made["metadata"]["namespace"] = "platform"
    made["spec"]["allow"] = {"namespaces": list(entries)}
    return made


@pytest.mark.parametrize(
    ("entries", "told"),
    [
        ([{"name": "ns"}], ["p"]),
        ([{"name": "ns", "groups": ["pay*"]}], ["p"]),
        ([{"name": "ns", "groups": ["refunds"]}], []),
        ([{"name": "another"}], []),
    ],
)
def test_pods_are_told_of_another_namespaces_topics_where_that_lists_theirs(
    entries: list[dict[str, Any]], told: list[str]
) -> None:
    asking = policy()
    asking["spec"]["connectionRef"]["namespace"] = "platform"
    index = PolicyIndex(lambda: [asking], lambda: [shared(*entries)])
    index.listed([], [])

    assert names(index) == told
    around = index.around("ns")
    assert around is not None
    assert around.topics == {}
    topics = AgentTopics("__kafka")
    assert around.telling("ns", topics) == (frozenset({("platform", "kafka")}) if told else frozenset())
