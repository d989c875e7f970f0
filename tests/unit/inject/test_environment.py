"""What a policy's consumers are told, and which pods are its consumers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from tidegate.inject.environment import (
    AgentTopics,
    NamedPolicy,
    agents_of,
    environment_of,
    injection_for,
    selector_text,
    selects,
)
from tidegate.resources.base import parse_spec
from tidegate.resources.features import ConsumerFormat, Selector
from tidegate.resources.policy import OffsetResetPolicySpec
from tidegate_agent.settings import is_on, read_settings
from tidegate_agent.start import Start

OURS = AgentTopics("__tidegate")


def policy(name: str = "p", group: str = "payments", topics: AgentTopics = OURS, **spec: Any) -> NamedPolicy:
    body = {
        "apiVersion": "tidegate.io/v1alpha1",
        "kind": "OffsetResetPolicy",
        "metadata": {"name": name, "namespace": "ns"},
        "spec": {"connectionRef": {"name": "kafka"}, "group": group, **spec},
    }
    return NamedPolicy(name, parse_spec(OffsetResetPolicySpec, body), topics, ("ns", "kafka"))


APP = {"selector": {"matchLabels": {"app": "payments"}}}


@pytest.mark.parametrize(
    ("spec", "wanted"),
    [
        ({}, {}),
        ({"latest": {"maxAge": "1h"}}, {"TIDEGATE_LATEST_MAX_AGE": "3600000"}),
        ({"latest": {"maxAge": "0s"}}, {"TIDEGATE_LATEST_MAX_AGE": "0"}),
        ({"latest": {"maxAge": -1}}, {}),
        ({"latest": {}}, {}),
        ({"discovery": {}}, {"TIDEGATE_NEW_PARTITIONS": "earliest"}),
        ({"discovery": {"newPartitions": "latest"}}, {"TIDEGATE_NEW_PARTITIONS": "latest"}),
        ({"discovery": {"newPartitions": "none"}}, {}),
        ({"discovery": {"interval": "0s"}}, {}),
        ({"latest": {"maxAge": "90s"}, "discovery": {}}, {"TIDEGATE_LATEST_MAX_AGE": "90000"}),
    ],
)
def test_the_environment_of_a_policy(spec: Mapping[str, Any], wanted: Mapping[str, str]) -> None:
    found = environment_of(policy(**spec))

    always = {"TIDEGATE_AGENT": "1", "TIDEGATE_CONTROL_TOPIC": "__tidegate", "TIDEGATE_GROUP": "payments"}
    assert found == always | wanted
    assert list(found) == sorted(found)


@pytest.mark.parametrize("spec", [{}, {"latest": {"maxAge": "1h"}}, {"discovery": {}}])
def test_agents_are_told_the_same_in_each_language(spec: Mapping[str, Any]) -> None:
    with_agent = [environment_of(policy(**spec), wanted) for wanted in ConsumerFormat if agents_of(wanted)]

    assert with_agent == [environment_of(policy(**spec), ConsumerFormat.PYTHON)] * 3


def test_the_agent_understands_what_it_is_told() -> None:
    by_age = read_settings(environment_of(policy(latest={"maxAge": "1h"})))
    by_discovery = read_settings(environment_of(policy(discovery={})))

    assert is_on(environment_of(policy()))
    assert by_age.new_partitions.latest_max_age_ms == 3_600_000
    assert by_age.group == "payments"
    assert by_discovery.new_partitions.new_partitions is Start.EARLIEST
    assert by_age.complaints == by_discovery.complaints == ()


def test_pods_get_what_the_policies_that_select_them_say() -> None:
    policies = [
        policy("b", consumers=APP, latest={"maxAge": "1h"}),
        policy("c", consumers={"selector": {"matchLabels": {"app": "other"}}}, latest={"maxAge": "2h"}),
        policy("d", latest={"maxAge": "3h"}),
    ]

    found = injection_for({"app": "payments", "tier": "x"}, policies)

    assert found.policies == ("b",)
    assert found.environment["TIDEGATE_LATEST_MAX_AGE"] == "3600000"
    assert injection_for({"app": "web"}, policies).environment == {}


def test_of_two_policies_that_differ_the_first_is_obeyed_and_the_other_named() -> None:
    policies = [
        policy("z", group="refunds", consumers=APP),
        policy("a", consumers=APP, latest={"maxAge": "1h"}),
        policy("m", consumers=APP, latest={"maxAge": "2h"}),
    ]

    found = injection_for({"app": "payments"}, policies)

    assert found.policies == ("a",)
    assert found.conflicts == ("m: TIDEGATE_LATEST_MAX_AGE", "z: TIDEGATE_GROUP")


@pytest.mark.parametrize(("first", "second"), [("", "__acks"), ("__acks", ""), ("__a", "__b")])
def test_policies_with_different_ack_topics_do_not_mix(first: str, second: str) -> None:
    """Where one names none, the other one's would take the acks that it waits for."""
    policies = [
        policy("a", topics=AgentTopics("__tidegate", first), consumers=APP),
        policy("b", topics=AgentTopics("__tidegate", second), consumers=APP),
    ]

    found = injection_for({"app": "payments"}, policies)

    assert (found.policies, found.conflicts) == (("a",), ("b: TIDEGATE_ACK_TOPIC",))
    assert found.topics == AgentTopics("__tidegate", first)
    assert read_settings(found.environment).acks_topic == (first or "__tidegate_acks")


@pytest.mark.parametrize(
    ("selector", "labels", "wanted"),
    [
        ({"matchLabels": {"app": "a"}}, {"app": "a", "x": "y"}, True),
        ({"matchLabels": {"app": "a", "tier": "b"}}, {"app": "a"}, False),
        ({"matchExpressions": [{"key": "app", "operator": "In", "values": ["a", "b"]}]}, {"app": "b"}, True),
        ({"matchExpressions": [{"key": "app", "operator": "In", "values": ["a"]}]}, {}, False),
        ({"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["a"]}]}, {"app": "a"}, False),
        ({"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["a"]}]}, {}, True),
        ({"matchExpressions": [{"key": "app", "operator": "Exists"}]}, {"app": ""}, True),
        ({"matchExpressions": [{"key": "app", "operator": "Exists"}]}, {}, False),
        ({"matchExpressions": [{"key": "app", "operator": "DoesNotExist"}]}, {}, True),
        ({"matchExpressions": [{"key": "app", "operator": "DoesNotExist"}]}, {"app": "a"}, False),
        (
            {"matchLabels": {"app": "a"}, "matchExpressions": [{"key": "tier", "operator": "Exists"}]},
            {"app": "a"},
            False,
        ),
    ],
)
def test_a_selector_means_what_it_means_to_kubernetes(
    selector: Mapping[str, Any], labels: Mapping[str, str], wanted: bool
) -> None:
    assert selects(Selector.model_validate(selector), labels) is wanted


@pytest.mark.parametrize(
    ("wanted", "prefixes"),
    [
        ("Spring", ["SPRING_KAFKA_CONSUMER_PROPERTIES_"]),
        ("Quarkus", ["KAFKA_"]),
        ("Connect", ["CONNECT_CONSUMER_"]),
    ],
)
def test_java_frameworks_are_told_by_the_names_they_read(wanted: str, prefixes: list[str]) -> None:
    consumers = {**APP, "format": wanted}

    by_discovery = environment_of(policy(consumers=consumers, discovery={}))
    at_the_end = environment_of(policy(consumers=consumers, discovery={"newPartitions": "latest"}))

    assert by_discovery == {f"{prefix}AUTO_OFFSET_RESET_NEW_PARTITIONS": "earliest" for prefix in prefixes}
    assert at_the_end == {f"{prefix}AUTO_OFFSET_RESET_NEW_PARTITIONS": "latest" for prefix in prefixes}
    assert environment_of(policy(consumers=consumers)) == {}


@pytest.mark.parametrize("discovery", [{}, {"newPartitions": "latest"}, {"newPartitions": "none"}, {"interval": "0s"}])
def test_an_age_is_told_to_frameworks_in_both_forms_of_the_kip(discovery: Mapping[str, Any]) -> None:
    """Which of them a client will know is not decided yet; where it knows the accepted one, new is young."""
    consumers = {**APP, "format": "Spring"}
    prefix = "SPRING_KAFKA_CONSUMER_PROPERTIES_AUTO_OFFSET_RESET"

    aged = environment_of(policy(consumers=consumers, latest={"maxAge": "90s"}, discovery=discovery))
    ageless = environment_of(policy(consumers=consumers, latest={"maxAge": "0s"}, discovery=discovery))

    assert aged == {f"{prefix}_LATEST_MAX_AGE": "90000", f"{prefix}_NEW_PARTITIONS": "earliest"}
    assert ageless == {f"{prefix}_LATEST_MAX_AGE": "0"}


def test_a_setting_is_the_same_as_long_as_pods_would_be() -> None:
    first = injection_for({"app": "payments"}, [policy(consumers=APP, latest={"maxAge": "1h"})])
    renamed = injection_for({"app": "payments"}, [policy("q", consumers=APP, latest={"maxAge": "60m"})])
    older = injection_for({"app": "payments"}, [policy(consumers=APP, latest={"maxAge": "2h"})])
    elsewhere = injection_for(
        {"app": "payments"}, [policy(consumers={**APP, "containers": ["b"]}, latest={"maxAge": "1h"})]
    )

    assert first.setting == renamed.setting
    assert len({first.setting, older.setting, elsewhere.setting}) == 3


def test_a_selector_is_told_to_the_api_server() -> None:
    selector = Selector.model_validate(
        {
            "matchLabels": {"b": "2", "a": "1"},
            "matchExpressions": [
                {"key": "c", "operator": "In", "values": ["x", "y"]},
                {"key": "d", "operator": "NotIn", "values": ["z"]},
                {"key": "e", "operator": "Exists"},
                {"key": "f", "operator": "DoesNotExist"},
            ],
        }
    )

    assert selector_text(selector) == "a=1,b=2,c in (x,y),d notin (z),e,!f"


@pytest.mark.parametrize(
    ("other", "clash"), [({"format": "Java"}, "format"), ({"containers": ["b"]}, "containers"), ({}, None)]
)
def test_policies_that_differ_in_how_they_inject_do_not_mix(other: Mapping[str, Any], clash: str | None) -> None:
    found = injection_for({"app": "payments"}, [policy("a", consumers=APP), policy("b", consumers={**APP, **other})])

    assert found.policies == (("a",) if clash else ("a", "b"))
    assert found.conflicts == ((f"b: {clash}",) if clash else ())
