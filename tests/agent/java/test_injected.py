"""What the webhook gives to a container is what a JVM needs to run the agent, beside agents that it has already."""

from __future__ import annotations

import re
from functools import partial

import pytest

from devstack.java_agent import agent_jar
from devstack.java_clients import opentelemetry_agent
from support import gate_scenes
from support.gated_applications import Scene
from support.java_applications import Java, JavaProcess, Packaging
from tidegate.inject.eligibility import Surroundings
from tidegate.inject.environment import AgentTopics
from unit.inject.test_patching_pods import env, injected, pod

BOOT = Java("3.9.2", packaging=Packaging.BOOT)
NO_EXPORT = {"OTEL_TRACES_EXPORTER": "none", "OTEL_METRICS_EXPORTER": "none", "OTEL_LOGS_EXPORTER": "none"}


def environment(control_topic: str, wanted: str, *, before: str = "") -> dict[str, str]:
    """A container's, with the jar where it is on this machine. ``before``: what its template says of the options."""
    own = {"env": [{"name": "JAVA_TOOL_OPTIONS", "value": before}]} if before else {}
    around = Surroundings((), {"kafka": AgentTopics(control_topic)})
    after = injected(pod({"name": "app", **own}, labels={"tidegate.io/inject": wanted}), around)
    [container] = after["spec"]["containers"]
    [mount] = container["volumeMounts"]
    here = re.escape(mount["mountPath"]) + r"/java/tidegate-agent\.jar"
    return {name: re.sub(here, str(agent_jar()), value) for name, value in env(container).items()}


@pytest.mark.parametrize("wanted", ["java", pytest.param("auto", marks=pytest.mark.nightly)])
def test_a_labelled_pods_consumer_obeys_its_gates(scene: Scene, control_topic: str, wanted: str) -> None:
    with JavaProcess(Java(), environment(control_topic, wanted, before="-Dapplications.own=1")) as jvm:
        gate_scenes.it_stands_still_and_goes_on_where_it_was(scene, partial(scene.application, jvm.application))


@pytest.mark.nightly
@pytest.mark.parametrize("java", [Java(), Java("2.8.2"), BOOT], ids=str)
def test_so_it_does_beside_opentelemetry(scene: Scene, control_topic: str, java: Java) -> None:
    before = f"-javaagent:{opentelemetry_agent()}"
    given = environment(control_topic, "java", before=before)
    assert given["JAVA_TOOL_OPTIONS"] == f"{before} -javaagent:{agent_jar()}"

    with JavaProcess(java, given | NO_EXPORT) as jvm:
        gate_scenes.it_stands_still_and_goes_on_where_it_was(scene, partial(scene.application, jvm.application))
        log = jvm.log

    assert "opentelemetry-javaagent - version" in log


@pytest.mark.nightly
@pytest.mark.parametrize("java", [Java(), BOOT], ids=str)
def test_whichever_of_the_two_is_loaded_first(scene: Scene, control_topic: str, java: Java) -> None:
    """OpenTelemetry's operator adds its agent after what is there."""
    given = environment(control_topic, "java")
    given["JAVA_TOOL_OPTIONS"] += f" -javaagent:{opentelemetry_agent()}"

    with JavaProcess(java, given | NO_EXPORT) as jvm:
        gate_scenes.after_a_reset_it_goes_on_at_the_target(
            scene, partial(scene.application, jvm.application, commit="manual")
        )
