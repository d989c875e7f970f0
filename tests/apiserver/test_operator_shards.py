"""An operator of two shards, with a real API server and a real broker: which one has the cluster, and loss of it."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from kubernetes import client as kube

from apiserver.conftest import StartOperator
from apiserver.offsets import committed, leave_at, produce
from apiserver.own_topics import Own
from devstack import KafkaCluster
from support.operator_process import OperatorProcess, Resources, until
from support.stack_fixtures import MakeTopic, Unique
from tidegate.connection.shards import Shard
from tidegate.kafka.connection import Connection
from tidegate.kafka_client.client import KafkaClient

SHARDS = 2
TAKEN_OVER_S = 60.0
"""A deadline, for machines that are busy; how long it took is printed."""


@dataclass
class Shards:
    """``having``: the leader of the shard that has the cluster, ``heir`` its standby; ``other``: the other shard's."""

    having: OperatorProcess
    heir: OperatorProcess
    other: OperatorProcess
    number: int


def leads(operator: OperatorProcess) -> bool:
    return operator.metric("tidegate_leader") == 1


@pytest.fixture
def shards(start_operator: StartOperator, resources: Resources, kafka: KafkaCluster) -> Shards:
    client = KafkaClient(Connection(kafka.bootstrap))
    try:
        cluster_id = client.cluster().cluster_id
    finally:
        client.close()

    def start(number: int) -> OperatorProcess:
        return start_operator(
            {
                "TIDEGATE_NAMESPACE": resources.namespace,
                "TIDEGATE_SHARDS": f"{SHARDS}",
                "TIDEGATE_SHARD": f"{number}",
                "TIDEGATE_LEASE": f"tidegate-shard-{number}",
            }
        )

    [mine] = [n for n in range(SHARDS) if Shard(n, SHARDS).has(cluster_id)]
    having, other = start(mine), start(1 - mine)
    until(lambda: leads(having) and leads(other), "both shards are led")
    heir = start(mine)
    until(lambda: heir.get("/readyz")[0] == 200, "the standby is ready")
    return Shards(having, heir, other, mine)


@pytest.fixture
def own(shards: Shards, resources: Resources, kafka: KafkaCluster, unique: Unique) -> Iterator[Own]:
    """Connection ``kafka``, and ``elsewhere``, whose first look is the other shard's, by its name."""
    made = Own(resources, kafka, f"__{unique('control')}"[:120])
    resources.wait_connection("kafka")
    yield made
    made.close()


def first_looked_at_by(shard: Shard, namespace: str) -> str:
    """The name of a connection whose first look is this shard's."""
    return next(name for n in itertools.count() if shard.has(f"{namespace}/{(name := f'other-{n}')}"))


def test_the_shard_of_the_cluster_does_all_and_when_it_is_lost_its_standby(
    own: Own,
    shards: Shards,
    resources: Resources,
    kafka: KafkaCluster,
    make_topic: MakeTopic,
    unique: Unique,
    kube_client: kube.ApiClient,
) -> None:
    topic, group = make_topic(2), unique("group")
    produce(own.bootstrap, topic, 2, 50)
    leave_at(own.bootstrap, group, topic, {0: 10, 1: 10})
    # The other shard has the first look at this one, finds whose it is, and lets go of it.
    name = first_looked_at_by(Shard(1 - shards.number, SHARDS), resources.namespace)
    resources.connection(name, kafka.bootstrap, controlTopic={"name": own.control_topic})
    resources.wait_connection(name)
    until(lambda: f"{name}: opened" in shards.having.log.read_text(), f"{name} goes to the cluster's shard")

    resources.pause("p", group, {"topic": topic}, connectionRef={"name": name})
    resources.wait_pause("p", "Paused", "2/2")
    assert shards.other.metric("tidegate_reconcile_seconds_count", kind="ConsumerGroupPause") == 0
    assert shards.other.get("/healthz")[0] == 200
    resources.delete_pause("p")
    until(lambda: not own.holders(), "the pause is released")

    killed = time.monotonic()
    shards.having.kill()
    until(lambda: leads(shards.heir), f"the standby leads: {shards.heir.log}", timeout_s=TAKEN_OVER_S)
    print(f"kill -9 → the shard is led again: {time.monotonic() - killed:.2f} s")
    resources.reset("r", group, {"earliest": {}}, engine="Direct", connectionRef={"name": name})
    resources.wait_phase("r", "Succeeded")

    assert set(committed(own.bootstrap, group, topic, 2).values()) == {0}
    assert leads(shards.other)
    assert shards.other.metric("tidegate_reconcile_seconds_count", kind="OffsetReset") == 0
    leases = kube.CoordinationV1Api(kube_client)
    transitions = [
        leases.read_namespaced_lease(f"tidegate-shard-{n}", resources.namespace).spec.lease_transitions
        for n in (shards.number, 1 - shards.number)
    ]
    assert transitions == [1, 0]
