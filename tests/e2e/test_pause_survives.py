"""A pause stands through whatever happens to consumers, operator and broker, until somebody takes it back."""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, Final

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from kubernetes import client as kube

from devstack import ApiServer, KafkaCluster
from support.checker import check
from support.clients import ConsumerFleet, SteadyProducer
from support.deliveries import Partition
from support.operator_process import OperatorProcess, Resources, until
from tidegate.kafka.connection import Connection
from tidegate.kafka_client.client import KafkaClient

PARTITIONS: Final = 6
PAUSED: Final = "0,3"
RATE: Final = 20.0
AWAY_S: Final = float(os.environ.get("TIDEGATE_TEST_AWAY_S", "4"))
"""For how long the operator is away; the figure in the docs is of 600."""


pytestmark = pytest.mark.at_once(3)


@dataclass(slots=True)
class Scene:
    """A live group whose consumers run the agent, and two of its partitions paused; a control topic of their own."""

    kafka: KafkaCluster
    resources: Resources
    operator: OperatorProcess
    fleet: ConsumerFleet
    producer: SteadyProducer
    topic: str
    control_topic: str
    paused_at: float = 0.0

    @property
    def partitions(self) -> list[Partition]:
        return [(self.topic, number) for number in range(PARTITIONS)]

    @property
    def paused(self) -> list[Partition]:
        return [(self.topic, int(number)) for number in PAUSED.split(",")]

    @property
    def others(self) -> list[Partition]:
        return [p for p in self.partitions if p not in self.paused]

    def pause(self) -> None:
        self.resources.pause("incident", self.topic, {"topic": self.topic, "partitions": PAUSED}, drainTimeout="5s")
        self.resources.wait_pause("incident", "Paused", "2/2")
        self.paused_at = time.time()

    def still_paused(self) -> None:
        """The others flow, and nothing has come of the paused ones since."""
        self.fleet.wait_flowing(self.others, timeout=90)
        leaked = [d for d in self.fleet.records(self.paused_at) if (d.topic, d.partition) in self.paused]
        assert not leaked, f"{len(leaked)} records of paused partitions, e.g. {leaked[:3]}"

    def resume(self) -> None:
        self.still_paused()
        self.resources.delete_pause("incident")
        try:
            until(lambda: self.resources.get("consumergrouppauses", "incident") is None, "the pause is gone")
        except AssertionError as error:
            left = (self.resources.get_pause("incident"), self.resources.get_connection("kafka"))
            raise AssertionError(f"{error}: {[(body['metadata'], body['status']) for body in left]}") from None
        self.fleet.wait_flowing(self.partitions)

    def nothing_lost(self) -> tuple[int, int]:
        """(records missing, records read twice) once all is read."""
        acked = self.producer.stop()
        self.fleet.wait_read_to(self.producer.ends(), 90)
        deliveries = self.fleet.records()
        distinct = {(d.topic, d.partition, d.offset) for d in deliveries}
        return check(deliveries, acked, []).missing, len(deliveries) - len(distinct)


@pytest.fixture
def scene(
    request: pytest.FixtureRequest,
    kafka: KafkaCluster,
    apiserver: ApiServer,
    kube_client: kube.ApiClient,
    crds_installed: None,
    namespace: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Scene]:
    options: dict[str, Any] = dict(getattr(request, "param", {}))
    resources = Resources(kube_client, namespace)
    topic = f"survives-{secrets.token_hex(3)}"
    control_topic = f"__c-{topic}"
    # One that is killed is nobody else's.
    with KafkaCluster.start() if options.pop("own_broker", False) else nullcontext(kafka) as kafka:
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
        admin.create_topics([NewTopic(topic, PARTITIONS)])[topic].result(30)
        process = OperatorProcess(apiserver.kubeconfig, namespace, tmp_path_factory.mktemp("operator"))
        with (
            process,
            SteadyProducer(kafka.bootstrap, topic, PARTITIONS, RATE) as producer,
            ConsumerFleet(
                "librdkafka",
                kafka.bootstrap,
                topic,
                [topic],
                3,
                3,
                agent=True,
                control_topic=control_topic,
                **options,
            ) as fleet,
        ):
            resources.connection("kafka", kafka.bootstrap, controlTopic={"name": control_topic})
            resources.wait_connection("kafka")
            scene = Scene(kafka, resources, process, fleet, producer, topic, control_topic)
            fleet.wait_assigned(scene.partitions)
            fleet.wait_flowing(scene.partitions)
            yield scene
            print(f"--- {process.log}\n{process.tail(120)}")


CLASSIC = {"session_s": 6.0, "heartbeat_s": 1.0}
PROTOCOLS = [
    pytest.param(CLASSIC, id="classic range"),
    pytest.param({**CLASSIC, "assignor": "cooperative-sticky"}, id="cooperative-sticky", marks=pytest.mark.nightly),
    pytest.param({"protocol": "consumer"}, id="KIP-848"),
]


@pytest.mark.parametrize("scene", PROTOCOLS, indirect=True)
def test_a_rolling_restart_of_all_consumers_resumes_nothing(scene: Scene) -> None:
    scene.pause()

    for member in scene.fleet.members():
        scene.fleet.stop_member(member)
        scene.fleet.add()
        scene.fleet.wait_assigned(scene.partitions)
        scene.still_paused()

    scene.resources.wait_pause("incident", "Paused", "2/2")
    scene.resume()
    assert scene.nothing_lost() == (0, 0)


@pytest.mark.parametrize("scene", [CLASSIC], ids=["classic range"], indirect=True)
def test_an_operator_that_is_away_resumes_nothing(scene: Scene) -> None:
    scene.pause()
    scene.operator.kill()

    crashed = scene.fleet.process_of(scene.fleet.members()[0])
    scene.fleet.kill_process(crashed)
    scene.fleet.add()
    scene.fleet.wait_assigned(scene.partitions)
    deadline = time.monotonic() + AWAY_S
    while time.monotonic() < deadline:
        scene.still_paused()
        time.sleep(0.5)
    scene.operator.start()
    scene.resources.wait_pause("incident", "Paused", "2/2")
    scene.resume()

    missing, _ = scene.nothing_lost()
    assert missing == 0


@pytest.mark.parametrize("scene", [{**CLASSIC, "own_broker": True}], ids=["classic range"], indirect=True)
def test_a_broker_that_restarts_resumes_nothing(scene: Scene) -> None:
    scene.pause()

    [broker] = scene.kafka.brokers
    scene.kafka.kill(broker)
    scene.kafka.restart(broker)
    scene.fleet.wait_flowing(scene.others, time.time(), 120)

    scene.still_paused()
    scene.resources.wait_pause("incident", "Paused", "2/2", timeout_s=60)
    scene.resume()
    missing, _ = scene.nothing_lost()
    assert missing == 0


@pytest.mark.parametrize("scene", [CLASSIC], ids=["classic range"], indirect=True)
def test_a_control_topic_that_is_deleted_is_written_anew(scene: Scene) -> None:
    scene.pause()

    admin = AdminClient({"bootstrap.servers": scene.kafka.bootstrap})
    admin.delete_topics([scene.control_topic], operation_timeout=30)[scene.control_topic].result(30)
    client = KafkaClient(Connection(scene.kafka.bootstrap, control_topic=scene.control_topic))
    try:
        until(lambda: len(client.control.read().holds) == 2, "both holds are there again", timeout_s=60)
    finally:
        client.close()

    scene.still_paused()
    scene.resources.wait_pause("incident", "Paused", "2/2", timeout_s=60)
    scene.resume()
    assert scene.nothing_lost() == (0, 0)


@pytest.mark.parametrize("scene", [CLASSIC], ids=["classic range"], indirect=True)
def test_a_member_without_the_agent_is_named_and_its_partitions_are_not_called_paused(scene: Scene) -> None:
    """Python consumers with the agent and an ordinary Java consumer in one group."""
    with ConsumerFleet("java", scene.kafka.bootstrap, scene.topic, [scene.topic], ["java"], **CLASSIC) as java:
        java.wait_for(lambda: bool(java.owners()), 60, "the Java consumer owns something")
        until(lambda: len(scene.fleet.owners()) + len(java.owners()) == PARTITIONS, "all partitions have an owner")
        scene.resources.pause("incident", scene.topic, {"topic": scene.topic}, drainTimeout="2s")

        body = scene.resources.wait_pause("incident", "Degraded", timeout_s=60)

        status = body["status"]
        theirs = {number for _, number in java.owners()}
        assert len(status["unmanagedMembers"]) == 1
        assert status["unmanagedMembers"][0]["clientId"]
        assert status["paused"] == f"{PARTITIONS - len(theirs)}/{PARTITIONS}"
        assert {r["partition"] for r in status["partitions"] if r["phase"] != "Paused"} == theirs
        scene.resources.delete_pause("incident")
        until(lambda: scene.resources.get("consumergrouppauses", "incident") is None, "the pause is gone")
