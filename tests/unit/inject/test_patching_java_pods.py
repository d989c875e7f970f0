"""What becomes of pods whose consumers run in a JVM, or in one or the other: the agent's jar, and the option that loads
it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from tidegate.inject.eligibility import PodRefusal, Surroundings, wish_for
from tidegate.inject.environment import AgentTopics
from tidegate.inject.patch import AgentImage, Patch, is_injected, patch_for
from unit.inject.test_patching_pods import AGENT, AROUND, SELECTS, env, injected, pod, policy, refusal

OURS = "-javaagent:/tidegate/java/tidegate-agent.jar"
OPTIONS = "JAVA_TOOL_OPTIONS"
JAVA = Surroundings((policy(latest={"maxAge": "1h"}, consumers={**SELECTS, "format": "Java"}),))
AUTO = Surroundings((policy(consumers={**SELECTS, "format": "Auto"}),))


def with_options(*variables: Mapping[str, Any]) -> dict[str, Any]:
    return pod({"name": "app", "env": list(variables)})


def from_elsewhere(**more: Any) -> dict[str, Any]:
    return {"name": OPTIONS, "valueFrom": {"configMapKeyRef": {"name": "jvm", "key": "options", **more}}}


def options(body: Mapping[str, Any], container: int = 0) -> str | None:
    return env(body["spec"]["containers"][container]).get(OPTIONS)


def is_left_alone(body: dict[str, Any], around: Surroundings) -> bool:
    wish = wish_for(body, around)
    assert wish is not None
    assert not isinstance(wish, PodRefusal)
    return patch_for(body, wish, AGENT) == Patch(()) and is_injected(body, wish)


def test_a_selected_pod_gets_the_jar_and_what_the_python_agent_would_be_told() -> None:
    after = injected(pod({"name": "app"}, {"name": "sidecar"}), JAVA)

    app, sidecar = after["spec"]["containers"]
    told = env(injected(pod())["spec"]["containers"][0])
    told.pop("PYTHONPATH")
    assert env(app) == {**told, OPTIONS: OURS}
    assert app["volumeMounts"] == [{"name": "tidegate-agent", "mountPath": "/tidegate", "readOnly": True}]
    assert sidecar == {"name": "sidecar"}
    (init,) = after["spec"]["initContainers"]
    assert init["command"] == ["/opt/tidegate/agent/install", "/tidegate", "java"]


def test_either_language_is_offered_the_agent_where_nobody_says_which_it_is() -> None:
    after = injected(pod(), AUTO)

    found = env(after["spec"]["containers"][0])
    assert (found["PYTHONPATH"], found[OPTIONS]) == ("/tidegate/python", OURS)
    assert after["spec"]["initContainers"][0]["command"][2:] == ["python", "java"]
    assert is_left_alone(after, AUTO)


@pytest.mark.parametrize("wanted", ["java", "auto"])
def test_a_label_alone_brings_the_agent_for_the_namespaces_control_topic(wanted: str) -> None:
    around = Surroundings((), {"kafka": AgentTopics("__gates")})

    after = injected(pod(labels={"tidegate.io/inject": wanted}), around)

    found = env(after["spec"]["containers"][0])
    assert (found["TIDEGATE_AGENT"], found["TIDEGATE_CONTROL_TOPIC"], found[OPTIONS]) == ("1", "__gates", OURS)
    assert ("PYTHONPATH" in found) is (wanted == "auto")


@pytest.mark.parametrize(
    ("before", "wanted"),
    [
        ("", OURS),
        ("-Xmx1g", f"-Xmx1g {OURS}"),
        ("-javaagent:/otel/opentelemetry-javaagent.jar", f"-javaagent:/otel/opentelemetry-javaagent.jar {OURS}"),
        ("$(HEAP) -Dx='a b'", f"$(HEAP) -Dx='a b' {OURS}"),
        (OURS, OURS),
        (f"{OURS} -Xmx1g", f"{OURS} -Xmx1g"),
    ],
)
def test_options_that_are_there_stay_and_ours_comes_last(before: str, wanted: str) -> None:
    after = injected(with_options({"name": "HEAP", "value": "-Xms1g"}, {"name": OPTIONS, "value": before}), JAVA)

    assert options(after) == wanted
    assert [variable["name"] for variable in after["spec"]["containers"][0]["env"][:2]] == ["HEAP", OPTIONS]


def test_options_from_elsewhere_are_extended_where_they_stand() -> None:
    """As Kubernetes has it, $(NAME) is the value of a variable that comes before."""
    body = with_options(from_elsewhere(), {"name": "PYTHONPATH", "value": "/app"}, {"name": "LAST", "value": "1"})

    for around in (JAVA, AUTO):
        after = injected(body, around)
        variables = after["spec"]["containers"][0]["env"]
        assert variables[0] == {**from_elsewhere(), "name": "TIDEGATE_JAVA_TOOL_OPTIONS"}
        assert variables[1] == {"name": OPTIONS, "value": f"$(TIDEGATE_JAVA_TOOL_OPTIONS) {OURS}"}
        assert [variable["name"] for variable in variables[2:4]] == ["PYTHONPATH", "LAST"]
        assert is_left_alone(after, around)
    assert variables[2]["value"] == "/tidegate/python:/app"


def test_of_options_that_are_there_twice_the_last_counts() -> None:
    body = with_options({"name": OPTIONS, "value": "-Xmx1g"}, {"name": OPTIONS, "value": "-Xmx2g"})

    after = injected(body, JAVA)

    values = [variable["value"] for variable in after["spec"]["containers"][0]["env"] if variable["name"] == OPTIONS]
    assert values == ["-Xmx1g", f"-Xmx2g {OURS}"]


def test_options_that_may_be_missing_are_not_extended() -> None:
    """Kubernetes would leave ``$(NAME)`` as it is, and the JVM would refuse to start with it."""
    found = refusal(with_options(from_elsewhere(optional=True)), JAVA)

    assert found.reason == "JavaToolOptionsNotKnown"
    assert "container app" in found.message
    assert injected(with_options(from_elsewhere(optional=True)))


def test_what_another_webhook_has_replaced_is_put_back_once() -> None:
    after = injected(with_options({"name": OPTIONS, "value": "-Xmx1g"}), JAVA)
    (app,) = after["spec"]["containers"]
    app["env"] = [{"name": OPTIONS, "value": "-javaagent:/otel.jar"}]
    app["volumeMounts"].append({"name": "otel", "mountPath": "/otel"})

    again = injected(after, JAVA)

    assert options(again) == f"-javaagent:/otel.jar {OURS}"
    assert len(again["spec"]["containers"][0]["volumeMounts"]) == 2
    assert len(again["spec"]["initContainers"]) == len(again["spec"]["volumes"]) == 1
    assert is_left_alone(again, JAVA)


def test_a_container_that_came_to_stand_first_meanwhile_is_not_started_without_the_jar() -> None:
    after = injected(pod({"name": "app"}), JAVA)
    after["spec"]["containers"].insert(0, {"name": "proxy"})

    assert is_left_alone(after, JAVA)


def test_a_pod_that_has_only_another_languages_agent_is_not_told_to_load_this_one() -> None:
    """A template made of a running pod: its init container would not copy the jar."""
    after = injected(pod())
    wish = wish_for(after, JAVA)

    assert wish is not None
    assert not isinstance(wish, PodRefusal)
    assert not is_injected(after, wish)
    assert patch_for(after, wish, AgentImage("a", "Always")) == Patch(())


@pytest.mark.parametrize("around", [JAVA, AUTO])
@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (pod(os={"name": "windows"}), "WindowsNotSupported"),
        (pod({"name": "app", "volumeMounts": [{"mountPath": "/tidegate"}]}), "MountTaken"),
        (pod(volumes=[{"name": "tidegate-agent"}]), "NameTaken"),
    ],
)
def test_what_cannot_be_done_is_refused(body: dict[str, Any], reason: str, around: Surroundings) -> None:
    assert refusal(body, around).reason == reason


def test_python_pods_have_what_they_had_before_there_was_another_agent() -> None:
    after = injected(with_options({"name": OPTIONS, "value": "-Xmx1g"}), AROUND)

    assert options(after) == "-Xmx1g"
    assert after["spec"]["initContainers"][0]["command"] == ["/opt/tidegate/agent/install", "/tidegate"]
    # Its setting is what pods have in their annotation: another one would have them all evicted.
    assert after["metadata"]["annotations"]["tidegate.io/injected"] == "da1764ef3b226606"
