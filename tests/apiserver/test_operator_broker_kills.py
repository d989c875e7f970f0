"""The only broker is killed fifty times under two replicas of the operator, agents and other clients: each process that
was there at the start is there at the end, and what was asked for stands.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from random import Random
from typing import Any, Final

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from kubernetes import client as kube

from apiserver.offsets import commit
from devstack import ApiServer, KafkaCluster
from support.checker import check
from support.clients import ConsumerFleet, SteadyProducer
from support.operator_process import Resources, until
from support.takeover.replicas import LEASE, replicas_of

KILLS: Final = 50
A_RESET_EACH: Final = 10
PARTITIONS: Final = 4
PAUSED: Final = 0
RATE: Final = 5.0
LONGEST_AWAY_S: Final = 4.0
LONGEST_BETWEEN_S: Final = 3.0
CLASSIC: Final[Mapping[str, Any]] = {"session_s": 10.0, "heartbeat_s": 1.0}
FINAL: Final = ("Succeeded", "Failed", "RolledBack")


@pytest.fixture
def broker() -> Iterator[KafkaCluster]:
    with KafkaCluster.start() as kafka:
        yield kafka


def fleets(kafka: KafkaCluster, control_topic: str) -> Iterator[ConsumerFleet]:
    """Of the first, partitions are paused; the second is reset; the third is of another client."""
    agent: dict[str, Any] = {"agent": True, "control_topic": control_topic}
    yield ConsumerFleet("librdkafka", kafka.bootstrap, "managed", ["managed"], 2, 2, **agent, **CLASSIC)
    yield ConsumerFleet("librdkafka", kafka.bootstrap, "plain", ["plain"], 2, 2, **CLASSIC)
    yield ConsumerFleet("java", kafka.bootstrap, "java", ["java"], 2, **CLASSIC)


@pytest.mark.nightly
def test_no_process_ends_by_itself_over_fifty_deaths_of_the_broker(
    apiserver: ApiServer,
    kube_client: kube.ApiClient,
    crds_installed: None,
    namespace: str,
    broker: KafkaCluster,
    tmp_path: Path,
) -> None:
    control_topic, random = f"__c-{secrets.token_hex(3)}", Random(0)
    topics = ("managed", "plain", "java")
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    for made in admin.create_topics([NewTopic(topic, PARTITIONS) for topic in topics]).values():
        made.result(30)
    # The broker makes its offsets topic for the first group.
    commit(broker.bootstrap, "first", "plain", {0: 0})
    resources = Resources(kube_client, namespace)
    with ExitStack() as stack:
        producers = {
            topic: stack.enter_context(SteadyProducer(broker.bootstrap, topic, PARTITIONS, RATE)) for topic in topics
        }
        of = {f.options.group: stack.enter_context(f) for f in fleets(broker, control_topic)}
        replicas = stack.enter_context(replicas_of(apiserver, kube_client, namespace, tmp_path))
        pids = [replica.process.pid for replica in replicas.at_work]
        members = {topic: of[topic].members() for topic in topics}
        resources.connection("kafka", broker.bootstrap, controlTopic={"name": control_topic})
        resources.wait_connection("kafka")
        resources.policy("guard", "java", discovery={"interval": "300ms"}, retention={})
        for topic in topics:
            of[topic].wait_flowing([(topic, number) for number in range(PARTITIONS)], timeout=120)
        resources.pause("stands", "managed", {"topic": "managed", "partitions": [PAUSED]})
        resources.wait_pause("stands", "Paused", "1/1", timeout_s=60)
        paused_at = time.time()

        asked = []
        for number in range(KILLS):
            if number % A_RESET_EACH == 0:
                asked.append(f"r{number}")
                resources.reset(asked[-1], "plain", {"shiftBy": -5}, engine="Direct", deadline="1h")
            time.sleep(random.uniform(0, LONGEST_BETWEEN_S))
            broker.kill(broker.brokers[0])
            time.sleep(random.uniform(0, LONGEST_AWAY_S))
            broker.restart(broker.brokers[0])
            assert [replica.process.pid for replica in replicas.at_work] == pids

        ended = [resources.wait_phase(name, *FINAL, timeout_s=240)["status"] for name in asked]
        resources.wait_connection("kafka", timeout_s=120)
        resources.wait_policy("guard", timeout_s=120)
        resources.wait_pause("stands", "Paused", "1/1", timeout_s=120)
        flowing = [(t, n) for t in topics for n in range(PARTITIONS) if (t, n) != ("managed", PAUSED)]
        for topic in topics:
            of[topic].wait_flowing([place for place in flowing if place[0] == topic], timeout=120)
        leaked = [d for d in of["managed"].records(paused_at) if d.partition == PAUSED]
        resources.delete_pause("stands")
        until(lambda: resources.get("consumergrouppauses", "stands") is None, "the pause is gone")
        acked = {topic: producer.stop() for topic, producer in producers.items()}
        for topic in topics:
            of[topic].wait_read_to({p: max(o) + 1 for p, o in acked[topic].items()}, 120)

        assert [replica.process.pid for replica in replicas.at_work] == pids
        assert all(replica.process.get("/healthz")[0] == 200 for replica in replicas.at_work)
        assert {topic: of[topic].members() for topic in topics} == members
        lease = kube.CoordinationV1Api(kube_client).read_namespaced_lease(LEASE, namespace).spec
        assert lease.lease_transitions == 0, "another replica leads, though the API server was there all the time"
        assert not leaked, f"{len(leaked)} records of the paused partition"
        assert [status["phase"] for status in ended] == ["Succeeded"] * len(asked), ended
        missing = {topic: check(of[topic].records(), acked[topic], []).missing for topic in ("managed", "java")}
        assert missing == {"managed": 0, "java": 0}
        for replica in replicas.at_work:
            assert replica.process.stop() == 0
            replica.is_over = True
