"""`tidegate why` against a real broker, by Kafka alone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from confluent_kafka import Producer

from devstack import KafkaCluster
from support.operator_process import until
from support.stack_fixtures import MakeTopic, Unique
from support.stub_agent import StubAgent
from tidegate.control.records import Hold, HoldKey
from tidegate.kafka.connection import Connection
from tidegate.kafka_client.client import KafkaClient

ROOT = Path(__file__).resolve().parents[2]
NO_API_SERVER = """\
{apiVersion: v1, kind: Config, current-context: dead,
 contexts: [{name: dead, context: {cluster: dead, user: dead, namespace: shop}}],
 clusters: [{name: dead, cluster: {server: "http://127.0.0.1:1"}}], users: [{name: dead, user: {}}]}
"""


def why(*arguments: str, kubeconfig: Path) -> tuple[int, str, str]:
    environment = os.environ | {"PYTHONPATH": str(ROOT / "operator"), "KUBECONFIG": str(kubeconfig)}
    done = subprocess.run(
        [sys.executable, "-m", "tidegate.cli.main", "why", *arguments],
        check=False,
        capture_output=True,
        text=True,
        env=environment,
        timeout=120,
    )
    return done.returncode, done.stdout, done.stderr


@pytest.fixture
def kubeconfig(tmp_path: Path) -> Path:
    path = tmp_path / "config"
    path.write_text(NO_API_SERVER)
    return path


def test_holds_owners_and_lag_are_told_while_no_api_server_answers(
    kafka: KafkaCluster, make_topic: MakeTopic, unique: Unique, kubeconfig: Path
) -> None:
    topic, group, control = make_topic(2), unique("group"), f"__{unique('control')}"
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    for number in range(20):
        producer.produce(topic, str(number), partition=number % 2)
    assert producer.flush(20) == 0
    with closing(KafkaClient(Connection(kafka.bootstrap, control_topic=control))) as client:
        assert client.control.ensure() == ()
        with StubAgent(kafka.bootstrap, group, topic, control_topic=control, client_id="pay\u202eer") as agent:
            until(lambda: agent.count(topic, 0) == agent.count(topic, 1) == 10, "all is read")
            client.control.hold({HoldKey(group, topic, 1, "pause/c/u-1"): Hold("INC-4711\x7f\u202e")})
            until(lambda: any(acks[-1].epoch for acks in client.control.read([group]).acks.values()), "it is obeyed")
            producer.produce(topic, "more", partition=1)
            assert producer.flush(20) == 0

            options = ("--bootstrap-server", kafka.bootstrap, "--control-topic", control)
            code, out, err = why(group, *options, kubeconfig=kubeconfig)
            coded, as_json, _ = why(group, *options, "-o", "json", kubeconfig=kubeconfig)

    assert code == coded == 0, out + err
    print(out)
    assert "1 partition of 2 is held, by 1 holder." in out
    assert f"{topic} 1: held by the ConsumerGroupPause with uid u-1 (its name and state are unknown" in out
    assert " since 20" in out
    assert "has acknowledged it, at offset 10." in out
    assert "pay\\u202eer" in out
    assert "\u202e" not in out + as_json
    assert "all resources in Kubernetes: list kafkaconnections in shop: " in out
    found = json.loads(as_json)
    [_, held] = found["partitions"]
    assert (held["committed"], held["logEnd"], held["lag"], held["flow"]) == (10, 11, 1, "Closed")
    assert found["resources"] is None


def test_neither_kafka_nor_kubernetes_is_an_error(kubeconfig: Path, tmp_path: Path) -> None:
    impatient = tmp_path / "client.properties"
    impatient.write_text("request.timeout.ms=500\n")
    options = ("--bootstrap-server", "127.0.0.1:1", "--command-config", str(impatient))
    code, out, _ = why("g", *options, kubeconfig=kubeconfig)

    assert code == 1
    assert "Kafka was not reached" in out
    assert "all resources in Kubernetes: " in out


@pytest.mark.parametrize(
    "arguments", [["--no-kubernetes"], ["--no-kubernetes", "-c", "prod"], ["--bootstrap-server", "x:1", "--nonsense"]]
)
def test_bad_usage_ends_with_1_and_the_usage(arguments: list[str], kubeconfig: Path) -> None:
    code, out, err = why("g", *arguments, kubeconfig=kubeconfig)

    assert (code, out) == (1, "")
    assert "usage: tidegate why" in err
