"""The parts start, survive what tests do to them, and go without a trace."""

import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from kubernetes import client as kube

from devstack import ApiServer, KafkaCluster, StackError, toolcache
from devstack.processes import RunFolder
from support.stack_fixtures import Unique, kubeconfig_to_use, topics_of

PROJECT = Path(__file__).resolve().parents[2]


@pytest.mark.kafka
def test_a_killed_broker_comes_back_with_its_records(unique: Unique) -> None:
    with KafkaCluster.start() as cluster:
        topic = next(topics_of(cluster, unique))()
        producer = Producer({"bootstrap.servers": cluster.bootstrap})
        producer.produce(topic, b"kept")
        assert producer.flush(10) == 0
        folder = cluster.folder
        cluster.kill(0)
        assert not cluster.alive(0)
        cluster.restart(0)
        consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": unique()})
        consumer.assign([TopicPartition(topic, 0, 0)])
        message = consumer.poll(20)
        assert message is not None
        assert message.value() == b"kept"
        consumer.close()
    assert folder is not None
    assert not folder.exists()


@pytest.mark.kafka
def test_a_broker_that_cannot_start_says_why(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(StackError, match="num\\.partitions"):
        KafkaCluster.start(properties={"num.partitions": "none"})
    assert "logs are kept in" in capsys.readouterr().err


@pytest.mark.kafka
@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_users_authenticate(kafka_secure: KafkaCluster, mechanism: str) -> None:
    security = kafka_secure.security
    admin = AdminClient(
        {
            "bootstrap.servers": security.sasl_ssl_bootstrap,
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(security.ca),
            "sasl.mechanism": mechanism,
            "sasl.username": security.username,
            "sasl.password": security.password,
        }
    )
    assert list(admin.list_topics(timeout=10).brokers) == [0]


@pytest.mark.kafka
def test_a_client_certificate_authenticates(kafka_secure: KafkaCluster) -> None:
    security = kafka_secure.security
    admin = AdminClient(
        {
            "bootstrap.servers": security.ssl_bootstrap,
            "security.protocol": "SSL",
            "ssl.ca.location": str(security.ca),
            "ssl.certificate.location": str(security.client.certificate),
            "ssl.key.location": str(security.client.key),
        }
    )
    assert list(admin.list_topics(timeout=10).brokers) == [0]


@pytest.mark.apiserver
def test_a_killed_api_server_comes_back_with_its_objects() -> None:
    with ApiServer.start() as server:
        server.request("POST", "/api/v1/namespaces", {"metadata": {"name": "kept"}})
        server.kill()
        server.restart()
        assert server.request("GET", "/api/v1/namespaces/kept")["status"]["phase"] == "Active"
        assert '"name":"kept"' in server.audit_log.read_text()
        assert server.kubeconfig.stat().st_mode & 0o777 == 0o600
        folder = server.folder
    assert folder is not None
    assert not folder.exists()


@pytest.mark.apiserver
@pytest.mark.usefixtures("crds_installed")
def test_the_custom_resources_are_served(kube_client: kube.ApiClient, namespace: str) -> None:
    custom = kube.CustomObjectsApi(kube_client)
    for group, version, plural in (
        ("tidegate.io", "v1alpha1", "kafkaconnections"),
        ("tidegate.io", "v1alpha1", "offsetresetpolicies"),
        ("tidegate.io", "v1alpha1", "offsetresets"),
        ("tidegate.io", "v1alpha1", "offsetbackups"),
        ("tidegate.io", "v1alpha1", "offsetmirrors"),
        ("sparkoperator.k8s.io", "v1beta2", "sparkapplications"),
    ):
        assert custom.list_namespaced_custom_object(group, version, namespace, plural)["items"] == []


def test_a_kubeconfig_of_another_machine_is_left_alone(tmp_path: Path) -> None:
    def named(server: str, **more: str) -> Path | None:
        path = tmp_path / "kubeconfig"
        path.write_text(
            f"""
            clusters: [{{name: c, cluster: {{server: "{server}"}}}}]
            contexts: [{{name: x, context: {{cluster: c, user: u}}}}]
            current-context: x
            """
        )
        return kubeconfig_to_use({"KUBECONFIG": str(path), **more})

    assert named("https://prod.example.com:6443") is None
    assert named("https://prod.example.com:6443", TIDEGATE_USE_CLUSTER="1") is not None
    assert named("https://127.0.0.1:6443") is not None
    assert kubeconfig_to_use({}) is None


@pytest.mark.kafka
@pytest.mark.apiserver
def test_up_twice_repairs_and_down_leaves_nothing(tmp_path: Path) -> None:
    # Given a cache of its own with the machine's tools
    (tmp_path / "tools").symlink_to(toolcache().root / "tools")

    def stack(command: str) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "TIDEGATE_CACHE": str(tmp_path)}
        line = [sys.executable, str(PROJECT / "dev" / "stack.py"), command]
        return subprocess.run(line, env=environment, capture_output=True, text=True, check=False, timeout=120)

    def exports(output: str) -> dict[str, str]:
        words = (word for word in shlex.split(output) if word != "export")
        return dict(word.split("=", 1) for word in words)

    try:
        assert stack("env").returncode == 1
        # When it comes up, once more, and once more after its broker was killed
        first = stack("up")
        assert first.returncode == 0, first.stderr
        again = stack("up")
        assert again.stdout == first.stdout == stack("env").stdout
        run = RunFolder(Path(exports(first.stdout)["KUBECONFIG"]).parent)
        before = run.processes()
        assert len(before) == 4
        before[0].send(signal.SIGKILL)
        assert before[0].ended_within(5)
        assert stack("status").returncode == 1
        repaired = stack("up")
        assert repaired.returncode == 0, repaired.stderr
        assert stack("status").returncode == 0
    finally:
        down = stack("down")
    # Then nothing of it is left
    assert down.returncode == 0, down.stderr
    assert not any(process.alive for process in before)
    assert not run.path.exists()
    assert not Path(exports(repaired.stdout)["KUBECONFIG"]).exists()
    assert stack("status").returncode == 1
