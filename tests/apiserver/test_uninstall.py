"""`tidegate-operator uninstall`, on a real API server and a real broker."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from kubernetes import client as kube

from apiserver.conftest import StartOperator
from apiserver.offsets import commit, committed, produce
from devstack import ApiServer, KafkaCluster
from support.operator_process import FAST, Resources, condition_of, until
from support.stack_fixtures import MakeTopic, Unique
from tidegate.kafka.connection import Connection
from tidegate.kafka_client.client import KafkaClient
from tidegate.reset.runs.reasons import FINALIZER

SELECTOR = {"app": "tidegate"}


class Uninstall:
    """The command, as the hook's pod runs it."""

    def __init__(self, apiserver: ApiServer, namespace: str, folder: Path, limit_s: int) -> None:
        self._log = folder / f"uninstall-{limit_s}.log"
        environment = {
            **os.environ,
            **FAST,
            "KUBECONFIG": str(apiserver.kubeconfig),
            "TIDEGATE_NAMESPACES": namespace,
            "TIDEGATE_HEALTH_ADDRESS": "127.0.0.1:0",
            "TIDEGATE_RUNTIME_DIRECTORY": str(folder / f"uninstall-{limit_s}"),
            "TIDEGATE_DELETION_LIMIT_S": str(limit_s),
        }
        command = [sys.executable, "-m", "tidegate.main", "uninstall"]
        command += [f"--deployment={namespace}/tidegate"]
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)

    def wait(self) -> str:
        """Its log, once it has ended well."""
        code = self._process.wait(90)
        assert code == 0, self._log.read_text()
        return self._log.read_text()


def _deploy(client: kube.ApiClient, namespace: str) -> None:
    """A Deployment of one pod, which nobody runs: there are no controllers."""
    pod = {"containers": [{"name": "operator", "image": "tidegate-operator"}]}
    metadata = {"name": "tidegate", "labels": SELECTOR}
    template = {"metadata": {"labels": SELECTOR}, "spec": pod}
    spec = {"replicas": 1, "selector": {"matchLabels": SELECTOR}, "template": template}
    kube.AppsV1Api(client).create_namespaced_deployment(namespace, {"metadata": metadata, "spec": spec})
    kube.CoreV1Api(client).create_namespaced_pod(namespace, {"metadata": metadata, "spec": pod})


def test_uninstalling_ends_the_operator_and_lets_go_of_everything_but_the_resources(
    request: pytest.FixtureRequest,
    resources: Resources,
    start_operator: StartOperator,
    apiserver: ApiServer,
    kube_client: kube.ApiClient,
    kafka: KafkaCluster,
    make_topic: MakeTopic,
    unique: Unique,
    tmp_path: Path,
) -> None:
    topic, paused_group, reset_group = make_topic(2), unique("paused"), unique("reset")
    namespace, core, apps = resources.namespace, resources.core, kube.AppsV1Api(kube_client)
    produce(kafka.bootstrap, topic, 2, 100)
    commit(kafka.bootstrap, reset_group, topic, {0: 50, 1: 50})
    control_topic = f"__{unique('control')}"[:120]
    client = KafkaClient(Connection(kafka.bootstrap, control_topic=control_topic))
    control = client.control
    request.addfinalizer(client.close)
    request.addfinalizer(control.close)
    _deploy(kube_client, namespace)

    # Given a pause that holds, and a run in mid-flight.
    resources.connection("kafka", kafka.bootstrap, controlTopic={"name": control_topic})
    operator = start_operator()
    resources.pause("p", paused_group, {"topic": topic, "partitions": ["0-1"]})
    resources.reset("r", reset_group, {"offset": 10}, approval="Manual", topics=[topic])
    resources.policy("earlier", unique("earlier"))
    resources.wait_pause("p", "Paused", "2/2")
    resources.wait_phase("r", "AwaitingApproval")
    assert len(control.read().holds) == 2

    # When it is uninstalled: nothing is touched while the operator still runs.
    uninstall = Uninstall(apiserver, namespace, tmp_path, limit_s=60)
    until(
        lambda: not apps.read_namespaced_deployment_scale("tidegate", namespace).spec.replicas,
        "the operator is to be ended",
    )
    assert len(control.read().holds) == 2
    operator.stop()
    # What an earlier version has left, and nobody has looked at since.
    resources.patch("offsetresetpolicies", "earlier", {"metadata": {"finalizers": [FINALIZER]}})
    core.delete_namespaced_pod("tidegate", namespace, grace_period_seconds=0)
    log = uninstall.wait()

    # Then nothing is held, the run has ended, the offsets are as they were, and the resources are there.
    assert "LEFT BEHIND" not in log
    assert not control.read().holds
    pause, reset = resources.get_pause("p"), resources.get_reset("r")
    assert not pause["metadata"].get("finalizers")
    assert not reset["metadata"].get("finalizers")
    assert not resources.get_policy("earlier")["metadata"].get("finalizers")
    assert pause["status"]["phase"] == "Resumed"
    assert condition_of(pause, "Stalled")["reason"] == "Uninstalled"
    assert reset["status"]["phase"] == "Failed"
    assert committed(kafka.bootstrap, reset_group, topic, 2) == {0: 50, 1: 50}

    # Installed again, it takes up the pause, and not the run.
    operator = start_operator()
    resources.wait_pause("p", "Paused", "2/2")
    assert resources.wait_phase("r", "Failed")
    assert len(control.read().holds) == 2

    # Uninstalled while Kafka can't be reached, it does not hang: it says what is left.
    operator.stop()
    resources.patch("kafkaconnections", "kafka", {"spec": {"bootstrapServers": "127.0.0.1:1"}})
    log = Uninstall(apiserver, namespace, tmp_path, limit_s=2).wait()

    assert f"LEFT BEHIND: ConsumerGroupPause {namespace}/p: its holds could not be released" in log
    assert len(control.read().holds) == 2
    pause = resources.get_pause("p")
    assert not pause["metadata"].get("finalizers")
    assert "its holds could not be released" in condition_of(pause, "Stalled")["message"]
