"""Tidegate as it is installed: by Helm, in a cluster, with the Spark operator, for an application in a Deployment.

The tests tell one story, in this order, on one node; each leaves the application flowing for the next.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

from apiserver.offsets import commit, committed
from devstack.images import build_image, image_name
from support.checker import ResetRun, check
from support.clients import SteadyProducer
from support.earlier_versions import BEFORE_VERSIONS, is_here, unpacked
from support.ledger import Ledger
from support.operator_process import until
from support.pod_images import SPRING_BOOT_IMAGE
from support.pod_stage import (
    AGENT_INIT_CONTAINER,
    APPLICATION_NAMESPACE,
    ASKED_NAMESPACES,
    EXECUTOR_ACCOUNT,
    RUN_S,
    SPARK_ACCOUNT,
    TIDEGATE_NAMESPACE,
    PodStage,
)
from support.pods import longest_silence, make_topics, wait_ready
from support.rights import Right, rules_of, used
from tidegate.resources.reset import ResetPhase

pytestmark = pytest.mark.e2e_cluster

SETTLED: Final = "180s"
NOBODY_WAITS_LONGER_S: Final = 25.0
RESET: Final = {"apiVersion": "tidegate.io/v1alpha1", "kind": "OffsetReset"}
MANUAL: Final = {"to": {"shiftBy": -30}, "engine": "Direct", "approval": "Manual"}


def pause(name: str, **spec: Any) -> dict[str, Any]:
    spec = {"connectionRef": {"name": "kafka"}, **spec}
    return {
        "apiVersion": "tidegate.io/v1alpha1",
        "kind": "ConsumerGroupPause",
        "metadata": _named(name),
        "spec": spec,
    }


def _named(name: str) -> dict[str, Any]:
    return {"name": name, "namespace": APPLICATION_NAMESPACE}


def test_what_is_installed_is_ready_and_its_pods_are_restricted(stage: PodStage) -> None:
    stage.helm("test", "tidegate", "--namespace", TIDEGATE_NAMESPACE, "--timeout", SETTLED)

    for namespace in (TIDEGATE_NAMESPACE, APPLICATION_NAMESPACE):
        labels = stage.kubectl.get("namespace", namespace)["metadata"]["labels"]
        assert labels["pod-security.kubernetes.io/enforce"] == "restricted"
    (pod,) = stage.kubectl.pods(TIDEGATE_NAMESPACE, "app.kubernetes.io/component=operator")
    assert all(c["securityContext"]["readOnlyRootFilesystem"] for c in pod["spec"]["containers"])
    assert wait_ready(stage.kubectl, APPLICATION_NAMESPACE, "kafkaconnection/kafka")["status"]["clusterId"]


def test_a_label_makes_an_ordinary_deployment_managed_and_leaves_it_as_it_was(stage: PodStage) -> None:
    pods = stage.application.pods()

    assert len(pods) == stage.application.replicas
    for pod in pods:
        assert AGENT_INIT_CONTAINER in [container["name"] for container in pod["spec"]["initContainers"]]
        (container,) = pod["spec"]["containers"]
        assert {entry["name"]: entry.get("value") for entry in container["env"]}["TIDEGATE_AGENT"] == "1"
    deployment = stage.kubectl.get("deployment", "-n", APPLICATION_NAMESPACE, stage.application.name)
    assert deployment["metadata"]["generation"] == 1
    assert "initContainers" not in deployment["spec"]["template"]["spec"]


def test_a_spark_application_resets_the_live_group_and_undo_puts_it_back(stage: PodStage) -> None:
    asked = {"to": {"shiftBy": -60}, "engine": "Spark"}
    reset = stage.reset("first", asked, name="first reset by SparkApplication, from apply to Ready")

    assert (reset["phase"], reset["engine"], reset["way"]) == ("Succeeded", "Spark", "Gated")
    undone = stage.reset("undone", {"to": {"undo": "first"}})
    assert (undone["phase"], undone["engine"]) == ("Succeeded", "Direct")
    stage.caught_up()
    verdict = stage.verdict()
    assert verdict.clean, verdict.complaints()


@pytest.mark.nightly
def test_a_place_is_found_by_content_in_pods(stage: PodStage) -> None:
    record = {"where": "string(value) like '% 37'"}
    found = stage.reset("by-content", {"to": {"record": record}}, name="reset to a record, from apply to Ready")

    assert (found["phase"], found["engine"]) == ("Succeeded", "Spark")
    assert found["search"]["recordsRead"] > 0
    # What is sent to a partition is numbered from 0.
    assert stage.runs[-1].targets == dict.fromkeys(stage.application.partitions, 37)
    stage.caught_up()
    verdict = stage.verdict()
    assert verdict.clean, verdict.complaints()


def test_a_fleet_goes_back_by_one_spark_application_and_its_reset_goes_with_its_policy(stage: PodStage) -> None:
    topic, partitions = stage.application.topic, len(stage.application.partitions)
    groups = ("bygone-a", "bygone-b")
    for group in groups:
        commit(stage.kafka.bootstrap, group, topic, dict.fromkeys(range(partitions), 20))
    spec = {
        "connectionRef": {"name": "kafka"},
        "groups": ["bygone-*"],
        "topics": [topic],
        "reset": {"id": "all-back", "to": {"offset": 10}, "engine": "Spark", "failurePolicy": "All"},
    }
    stage.kubectl.apply(stage.policy_manifest() | {"metadata": _named("bygone"), "spec": spec})
    wait_ready(stage.kubectl, APPLICATION_NAMESPACE, "offsetresetpolicy/bygone", timeout_s=RUN_S)

    there = ("offsetreset", "-n", APPLICATION_NAMESPACE, "bygone-all-back")
    reset = stage.kubectl.get(*there)["status"]
    assert (reset["phase"], reset["engine"], reset["fleet"]["reset"]) == ("Succeeded", "Spark", len(groups))
    for group in groups:
        assert committed(stage.kafka.bootstrap, group, topic, partitions) == dict.fromkeys(range(partitions), 10)
    labelled = ("-l", "tidegate.io/offset-reset=bygone-all-back")
    launched = stage.kubectl.get("sparkapplications", "-n", APPLICATION_NAMESPACE, *labelled)
    assert len(launched["items"]) == 1
    stage.kubectl("delete", "-n", APPLICATION_NAMESPACE, "offsetresetpolicy/bygone", f"--timeout={SETTLED}")
    stage.kubectl("wait", "-n", APPLICATION_NAMESPACE, "--for=delete", "/".join(there[::3]), f"--timeout={SETTLED}")


def test_one_partition_of_the_live_group_is_paused_and_the_others_flow(stage: PodStage) -> None:
    topic, number = held = stage.application.partitions[0]
    began = time.monotonic()
    stage.kubectl.apply(
        pause("one", group=stage.application.group, partitions=[{"topic": topic, "partitions": [number]}])
    )
    status = wait_ready(stage.kubectl, APPLICATION_NAMESPACE, "consumergrouppause/one")["status"]
    stage.stopwatch.took("first pause, from kubectl apply to Ready", time.monotonic() - began)

    assert (status["phase"], status["method"], status["partitionsPaused"]) == ("Paused", "Agent", 1)
    paused_at = time.time()
    stage.ledger.wait_flowing(stage.application.partitions[1:])
    assert [d for d in stage.ledger.deliveries(paused_at) if (d.topic, d.partition) == held] == []
    stage.kubectl("delete", "-n", APPLICATION_NAMESPACE, "consumergrouppause/one", f"--timeout={SETTLED}")
    stage.ledger.wait_flowing(stage.application.partitions)


def test_a_spring_boot_deployment_is_paused_and_reset_by_a_label_alone(stage: PodStage) -> None:
    topic, ledger_topic, target = "invoices", "invoices-ledger", 5
    make_topics(stage.kafka.bootstrap, {topic: 3, ledger_topic: 1})
    spring = {
        "SPRING_KAFKA_BOOTSTRAP_SERVERS": stage.kafka.bootstrap,
        "SPRING_KAFKA_CONSUMER_AUTO_OFFSET_RESET": "earliest",
        "JAVA_TOOL_OPTIONS": "-Xmx96m -XX:+UseSerialGC -XX:TieredStopAtLevel=1",
    }
    with (
        SteadyProducer(stage.kafka.bootstrap, topic, 3, 10.0) as producer,
        Ledger(stage.kafka.bootstrap, ledger_topic) as ledger,
    ):
        application = stage.application.like(
            "invoicing",
            image=SPRING_BOOT_IMAGE,
            topic=topic,
            ledger=ledger,
            ledger_topic=ledger_topic,
            partitions=tuple((topic, number) for number in range(3)),
            replicas=1,
            environment=spring,
            labels={"tidegate.io/inject": "java"},
        )
        stage.stopwatch.step("Spring Boot application managed by a label, until it flows", application.deploy)
        held = application.partitions[0]
        stage.kubectl.apply(
            pause("one-of-java", group=application.group, partitions=[{"topic": topic, "partitions": [0]}])
        )
        status = wait_ready(stage.kubectl, APPLICATION_NAMESPACE, "consumergrouppause/one-of-java")["status"]
        paused_at = time.time()
        ledger.wait_flowing(application.partitions[1:])

        assert (status["phase"], status["method"], status["partitionsPaused"]) == ("Paused", "Agent", 1)
        assert [d for d in ledger.deliveries(paused_at) if (d.topic, d.partition) == held] == []
        stage.kubectl("delete", "-n", APPLICATION_NAMESPACE, "consumergrouppause/one-of-java", f"--timeout={SETTLED}")
        ledger.wait_flowing(application.partitions)

        asked = time.time()
        to = {"connectionRef": {"name": "kafka"}, "group": application.group, "to": {"offset": target}}
        stage.kubectl.apply(RESET | {"metadata": _named("java-back"), "spec": {**to, "engine": "Direct"}})
        reset = wait_ready(stage.kubectl, APPLICATION_NAMESPACE, "offsetreset/java-back")["status"]
        ended = time.time()

        assert (reset["phase"], reset["way"]) == ("Succeeded", "Gated")
        ledger.wait_for(
            lambda: all(
                sum((d.topic, d.partition, d.offset) == (*p, target) for d in ledger.deliveries()) == 2
                for p in application.partitions
            ),
            60,
            "each partition went on at the target",
        )
        run = ResetRun(asked, ended, dict.fromkeys(application.partitions, target))
        verdict = check(ledger.deliveries(), producer.acked_offsets(), [run], drained=False)
        assert verdict.clean, verdict.complaints()
        application.delete()


def test_no_password_is_in_anything_that_the_cluster_or_a_log_shows(stage: PodStage) -> None:
    own = "kafkaconnections,offsetresetpolicies,offsetresets,offsetbackups,offsetmirrors,consumergrouppauses"
    kinds = f"pods,sparkapplications,configmaps,events,{own},deployments"
    shown = stage.kubectl("get", kinds, "--all-namespaces", "-o", "yaml")
    shown += stage.operator_log()
    for pod in stage.kubectl.pods(APPLICATION_NAMESPACE, "spark-role=driver"):
        shown += stage.kubectl("logs", "-n", APPLICATION_NAMESPACE, pod["metadata"]["name"])
        # As files, and not as anything that a list of processes or `kubectl describe` shows.
        mounted = [volume["secret"]["secretName"] for volume in pod["spec"]["volumes"] if "secret" in volume]
        assert stage.password_secret in mounted

    assert "tidegate-reset" in shown
    assert stage.password not in shown


def test_new_partitions_lose_nothing(stage: PodStage) -> None:
    partitions = stage.expand(2)

    stage.caught_up()
    assert len(partitions) == 2
    verdict = stage.verdict()
    assert verdict.ok, verdict.complaints()
    policy = stage.kubectl.get("offsetresetpolicy", "-n", APPLICATION_NAMESPACE, stage.policy)
    assert policy["status"]["discovery"]["initialDiscoveryFinished"] is True


def test_the_whole_group_is_scaled_away_reset_and_brought_back(stage: PodStage) -> None:
    workload = {"apiVersion": "apps/v1", "kind": "Deployment", "name": stage.application.name}
    autoscaler = {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "bookkeeping", "namespace": APPLICATION_NAMESPACE},
        "spec": {"scaleTargetRef": workload, "minReplicas": stage.application.replicas, "maxReplicas": 5},
    }
    stage.kubectl.apply(autoscaler)
    stage.kubectl.apply(pause("all", group=stage.application.group, method="Scale", workloadRef=workload))
    status = wait_ready(stage.kubectl, APPLICATION_NAMESPACE, "consumergrouppause/all")["status"]

    assert (status["phase"], status["method"]) == ("Paused", "Scale")
    # They have left the group; that their processes have ended as well may take a moment more.
    until(lambda: not stage.application.all_pods(), "no pod is left")
    reset = stage.reset("while-away", {"to": {"shiftBy": -30}})
    assert (reset["phase"], reset["way"]) == ("Succeeded", "Unowned")
    # It looks every 15 s, and leaves alone what is at 0.
    disabled = ("ScalingActive", "False", "ScalingDisabled")
    until(lambda: disabled in _conditions(stage, "hpa", "bookkeeping"), "the autoscaler stands aside", timeout_s=60)
    assert stage.application.all_pods() == []
    stage.kubectl("delete", "-n", APPLICATION_NAMESPACE, "consumergrouppause/all", f"--timeout={SETTLED}")
    stage.application.wait_available(stage.application.replicas)
    stage.caught_up()
    stage.kubectl("delete", "-n", APPLICATION_NAMESPACE, "hpa/bookkeeping")
    verdict = stage.verdict()
    assert verdict.ok, verdict.complaints()


def _conditions(stage: PodStage, kind: str, name: str) -> set[tuple[str, str, str]]:
    status = stage.kubectl.get(kind, "-n", APPLICATION_NAMESPACE, name).get("status", {})
    return {(c["type"], c["status"], c["reason"]) for c in status.get("conditions", [])}


def _operator(stage: PodStage) -> None:
    (pod,) = stage.kubectl.pods(TIDEGATE_NAMESPACE, "app.kubernetes.io/component=operator")
    stage.kubectl.kill_pod(TIDEGATE_NAMESPACE, pod["metadata"]["name"])


def _consumer(stage: PodStage) -> None:
    stage.kubectl.kill_pod(APPLICATION_NAMESPACE, stage.application.pods()[0]["metadata"]["name"])


def _driver(stage: PodStage) -> None:
    stage.kill_spark_pod("driver")


def _executor(stage: PodStage) -> None:
    stage.kill_spark_pod("executor")


def _broker(stage: PodStage) -> None:
    stage.kafka.kill(0)
    stage.kafka.restart(0)


IN_CI: Final = (_operator, _driver)
"""Of an executor and a broker that die, ``tests/spark/test_losses.py`` tells in continuous integration."""


@pytest.mark.parametrize(
    "kill",
    [
        pytest.param(kill, id=kill.__name__[1:], marks=() if kill in IN_CI else pytest.mark.nightly)
        for kill in (_operator, _consumer, _driver, _executor, _broker)
    ],
)
def test_a_death_in_mid_run_is_finished_once(stage: PodStage, kill: Callable[[PodStage], None]) -> None:
    run_id = f"{kill.__name__[1:]}-dies"
    asked = stage.ask(run_id, {"to": {"shiftBy": -40}, "engine": "Spark"})
    stage.wait_phase(run_id, {ResetPhase.PAUSING, ResetPhase.APPLYING, ResetPhase.VERIFYING})
    killed_at = time.time()
    kill(stage)
    begun = stage.document(run_id)
    reset = stage.finished(run_id, asked)
    stage.caught_up()
    silence = longest_silence(stage.ledger, stage.application.partitions, killed_at)
    stage.stopwatch.took(f"longest silence with {run_id.replace('-dies', '')} killed", silence)

    assert begun is not None
    assert begun.result is None, "it had ended before the kill"
    assert reset["phase"] == "Succeeded"
    assert silence <= NOBODY_WAITS_LONGER_S
    verdict = stage.verdict()
    assert verdict.ok, verdict.complaints()
    mine = [r for r in verdict.resets if r.run == len(stage.runs) - 1]
    assert not any(r.stale for r in mine), verdict.complaints()


def test_the_operator_may_do_what_its_chart_grants_and_nothing_else(stage: PodStage) -> None:
    rules = stage.rules()
    # A cluster-wide rule grants in each namespace; one for an object by its name is asked about as it is.
    expected = {
        right._replace(namespace=namespace)
        for right in rules
        for namespace in (ASKED_NAMESPACES if right.namespace == "*" and not right.name else (right.namespace,))
    }

    assert expected
    assert stage.answers(expected) == expected


def test_drivers_and_executors_use_every_right_that_they_have(stage: PodStage) -> None:
    # Spark removes by its name an executor that has failed by itself, of which this story has none.
    removes_a_failed_executor = Right(APPLICATION_NAMESPACE, "delete", "", "pods")
    # Nor has it a mirror, whose jobs tests/spark/test_rights_of_jobs.py tries.
    of_mirrors = Right(APPLICATION_NAMESPACE, "get", "tidegate.io", "offsetmirrors")
    for account, beside in (
        (SPARK_ACCOUNT, {removes_a_failed_executor, of_mirrors}),
        (EXECUTOR_ACCOUNT, {of_mirrors}),
    ):
        granted = rules_of(stage.client, account, APPLICATION_NAMESPACE)
        assert granted
        assert used(stage.node.audit_log, account, APPLICATION_NAMESPACE) | beside == granted


def test_the_chart_is_upgraded_under_a_pause_and_resources_outlive_it(stage: PodStage) -> None:
    topic, number = held = stage.application.partitions[1]
    stage.kubectl.apply(
        pause("kept", group=stage.application.group, partitions=[{"topic": topic, "partitions": [number]}])
    )
    wait_ready(stage.kubectl, APPLICATION_NAMESPACE, "consumergrouppause/kept")
    paused_at = time.time()
    stage.upgrade()
    wait_ready(stage.kubectl, APPLICATION_NAMESPACE, "consumergrouppause/kept")

    assert [d for d in stage.ledger.deliveries(paused_at) if (d.topic, d.partition) == held] == []
    stage.ledger.wait_flowing([p for p in stage.application.partitions if p != held])


@pytest.mark.nightly
@pytest.mark.skipif(not is_here(BEFORE_VERSIONS), reason=f"this clone has no commit {BEFORE_VERSIONS}: fetch more")
def test_the_version_before_and_this_one_follow_each_other_while_the_application_reads(
    stage: PodStage, tmp_path: Path
) -> None:
    """Chart and image of the version before, this one's by `helm upgrade`, those again by `helm rollback`, and back."""
    before = unpacked(BEFORE_VERSIONS, ".", tmp_path)
    name = "docker.io/library/tidegate-operator-before:dev"
    stage.node.load(build_image("operator", name=name, context=before))
    repository, _, tag = name.rpartition(":")
    stage.install(before / "charts" / "tidegate", image={"repository": repository, "tag": tag, "pullPolicy": "Never"})
    assert stage.operator_images() == {name}
    revision = stage.revision()
    topic, number = held = stage.application.partitions[2]
    stage.kubectl.apply(
        pause("over-versions", group=stage.application.group, partitions=[{"topic": topic, "partitions": [number]}])
    )
    wait_ready(stage.kubectl, APPLICATION_NAMESPACE, "consumergrouppause/over-versions")
    paused_at = time.time()
    planned = stage.ask("planned-before", MANUAL)
    stage.wait_phase("planned-before", {ResetPhase.AWAITING_APPROVAL})

    stage.install()
    assert stage.operator_images() == {image_name("operator")}
    stage.approve("planned-before")
    assert stage.finished("planned-before", planned)["phase"] == "Succeeded"
    planned = stage.ask("planned-after", MANUAL)
    stage.wait_phase("planned-after", {ResetPhase.AWAITING_APPROVAL})

    stage.roll_back(revision)
    assert stage.operator_images() == {name}
    stage.approve("planned-after")
    assert stage.finished("planned-after", planned)["phase"] == "Succeeded"
    assert stage.reset("undone-after", {"to": {"undo": "planned-before"}, "engine": "Direct"})["phase"] == "Succeeded"

    stage.install()
    wait_ready(stage.kubectl, APPLICATION_NAMESPACE, "consumergrouppause/over-versions")
    assert [d for d in stage.ledger.deliveries(paused_at) if (d.topic, d.partition) == held] == []
    stage.kubectl("delete", "-n", APPLICATION_NAMESPACE, "consumergrouppause", "over-versions", "--timeout=60s")
    kept = stage.application.partitions[1]
    stage.ledger.wait_flowing([p for p in stage.application.partitions if p != kept])
    verdict = stage.verdict()
    assert verdict.ok, verdict.complaints()


def test_uninstalling_opens_every_gate_and_leaves_nothing_that_hangs(stage: PodStage) -> None:
    stage.uninstall()

    # The pause of the test before is still there, and holds nobody.
    stage.ledger.wait_flowing(stage.application.partitions)
    body = stage.kubectl.get("consumergrouppause", "-n", APPLICATION_NAMESPACE, "kept")
    assert body["metadata"].get("finalizers", []) == []
    stage.kubectl(
        "delete",
        "-n",
        APPLICATION_NAMESPACE,
        "kafkaconnection,consumergrouppause,offsetresetpolicy,offsetreset",
        "--all",
        "--timeout=30s",
    )
    pods = stage.application.pods()
    stage.application.scale(0)
    stage.application.scale(len(pods))
    stage.ledger.wait_flowing(stage.application.partitions)
    assert all("initContainers" not in pod["spec"] for pod in stage.application.pods())
