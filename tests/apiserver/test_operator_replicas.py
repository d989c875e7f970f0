"""Two replicas of one operator, with a real API server and a real broker: one leads, the other takes over."""

from __future__ import annotations

import base64
import contextlib
import http.client
import json
import re
import ssl
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from kubernetes import client as kube

from apiserver.conftest import StartOperator
from apiserver.offsets import committed, leave_at, live_group, produce
from apiserver.own_topics import Own
from devstack import KafkaCluster
from support.operator_process import OperatorProcess, Resources, condition_of, until
from support.stack_fixtures import MakeTopic, Unique
from support.status_watch import StatusWatch
from support.stub_agent import StubAgent

# Mostly they wait for a Lease to run out. No more at once: starved of the CPU, a leader loses its own.
pytestmark = pytest.mark.at_once(2)

PARTITIONS = 2
LEASE = "tidegate"
FINAL = ("Succeeded", "Failed", "RolledBack")
TAKEN_OVER_S = 60.0
"""A deadline, for machines that are busy; how long it took is printed."""


@dataclass
class Replicas:
    """Two operators of one namespace, and their Lease. `leader` and `standby`: as it was when both were up."""

    leader: OperatorProcess
    standby: OperatorProcess
    leases: kube.CoordinationV1Api
    namespace: str

    @property
    def lease(self) -> Any:
        return self.leases.read_namespaced_lease(LEASE, self.namespace).spec

    def taken_over(self, since: float, after: str) -> None:
        """The standby leads; tells how long that took."""
        until(lambda: leads(self.standby), f"the standby leads: {self.standby.log}", timeout_s=TAKEN_OVER_S)
        print(f"{after} → the standby leads: {time.monotonic() - since:.2f} s")


def leads(operator: OperatorProcess) -> bool:
    return operator.metric("tidegate_leader") == 1


def pair(start_operator: StartOperator, client: kube.ApiClient, namespace: str, **environment: str) -> Replicas:
    told = {"TIDEGATE_NAMESPACE": namespace, "TIDEGATE_LEASE": LEASE, **environment}
    leader = start_operator(told)
    until(lambda: leads(leader), "the first one leads")
    standby = start_operator(told)
    until(lambda: standby.get("/readyz")[0] == 200, "the second one is ready")
    return Replicas(leader, standby, kube.CoordinationV1Api(client), namespace)


@pytest.fixture
def replicas(start_operator: StartOperator, kube_client: kube.ApiClient, resources: Resources) -> Replicas:
    return pair(start_operator, kube_client, resources.namespace)


@pytest.fixture
def own(replicas: Replicas, resources: Resources, kafka: KafkaCluster, unique: Unique) -> Iterator[Own]:
    made = Own(resources, kafka, f"__{unique('control')}"[:120])
    resources.wait_connection("kafka")
    yield made
    made.close()


@pytest.fixture
def topic(make_topic: MakeTopic) -> str:
    return make_topic(PARTITIONS)


@pytest.fixture
def group(unique: Unique) -> str:
    return unique("group")


@pytest.fixture
def agent(own: Own, group: str, topic: str) -> Iterator[StubAgent]:
    with StubAgent(own.bootstrap, group, topic, control_topic=own.control_topic) as member:
        until(lambda: len(member.assigned) == PARTITIONS, "it owns all")
        yield member


def watched(own: Own, client: kube.ApiClient, name: str) -> StatusWatch:
    return StatusWatch(client, own.resources.namespace, "consumergrouppauses", name)


# --- side by side -----------------------------------------------------------------------------------------------------


def test_one_works_and_the_other_only_knows_what_is_there(
    own: Own, replicas: Replicas, topic: str, group: str, kube_client: kube.ApiClient
) -> None:
    own.resources.pause("p", group, {"topic": topic})
    own.resources.wait_pause("p", "Paused", f"{PARTITIONS}/{PARTITIONS}")

    for operator, is_leader in ((replicas.leader, True), (replicas.standby, False)):
        status, text = operator.get("/healthz")
        assert (status, json.loads(text)) == (200, {"healthy": True, "problems": 0, "leader": is_leader})
        assert operator.get("/readyz")[0] == 200
    assert replicas.lease.holder_identity
    assert [reason for reason, _ in own.resources.events(LEASE)] == ["LeaderElection"]
    assert replicas.leader.metric("tidegate_reconcile_seconds_count") > 0
    for written in ("tidegate_reconcile_seconds_count", "tidegate_status_writes_total"):
        assert replicas.standby.metric(written) == 0
    assert "opened" not in replicas.standby.log.read_text(), "it has connected to Kafka"


def test_each_of_them_serves_the_webhook(
    resources: Resources, start_operator: StartOperator, kube_client: kube.ApiClient, kafka: KafkaCluster
) -> None:
    replicas = pair(
        start_operator,
        kube_client,
        resources.namespace,
        TIDEGATE_WEBHOOK_ADDRESS="127.0.0.1:0",
        TIDEGATE_WEBHOOK_SECRET="webhook",
        TIDEGATE_WEBHOOK_SERVICE="webhook",
        TIDEGATE_AGENT_IMAGE="agent:1",
    )
    resources.connection("kafka", kafka.bootstrap)
    resources.policy("p", "payments", consumers={"selector": {"matchLabels": {"app": "payments"}}})

    for operator in (replicas.leader, replicas.standby):
        until(lambda asked=operator: injects(asked, resources), f"pods are injected: {operator.log}")
    assert leads(replicas.leader)
    assert not leads(replicas.standby)


def injects(operator: OperatorProcess, resources: Resources) -> bool:
    """Whether a pod of a policy gets the agent, as an API server asks."""
    namespace = resources.namespace
    found = re.findall(r"webhook on port (\d+)", operator.log.read_text())
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "x", "namespace": namespace, "labels": {"app": "payments"}},
        "spec": {"containers": [{"name": "main", "image": "none"}]},
    }
    kind = {"group": "", "version": "v1", "resource": "pods"}
    asked = {"uid": "u", "namespace": namespace, "operation": "CREATE", "resource": kind, "object": pod, "dryRun": True}
    review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": asked}
    ca = base64.b64decode(resources.core.read_namespaced_secret("webhook", namespace).data["ca.crt"]).decode()
    context = ssl.create_default_context(cadata=ca)
    connection = http.client.HTTPSConnection("127.0.0.1", int(found[-1]), timeout=10, context=context)
    with contextlib.closing(connection):
        connection.request("POST", "/mutate/pods", json.dumps(review), {"Content-Type": "application/json"})
        return bool(json.load(connection.getresponse())["response"].get("patch"))


# --- taking over ------------------------------------------------------------------------------------------------------


def test_a_pause_goes_on_when_its_leader_is_killed_in_the_middle_of_it(
    own: Own, replicas: Replicas, topic: str, group: str, agent: StubAgent, kube_client: kube.ApiClient
) -> None:
    own.resources.pause("paused", group, {"topic": topic, "partitions": [0]})
    own.resources.wait_pause("paused", "Paused", "1/1")
    agent.obeys = False
    own.resources.pause("pausing", group, {"topic": topic, "partitions": [1]})
    until(lambda: len(own.holders()) == 2, "the second one is held")
    own.resources.wait_pause("pausing", "Pausing")

    with watched(own, kube_client, "paused") as watch, watched(own, kube_client, "pausing") as other:
        killed = time.monotonic()
        replicas.leader.kill()
        produce(own.bootstrap, topic, PARTITIONS, 5)
        agent.obeys = True
        replicas.taken_over(killed, "kill -9")
        own.resources.wait_pause("pausing", "Paused", "1/1", timeout_s=TAKEN_OVER_S)
        print(f"kill -9 → the pause is Paused: {time.monotonic() - killed:.2f} s")
        own.resources.delete_pause("pausing")
        until(lambda: len(own.holders()) == 1, "it is released")

    assert watch.phases == ["Paused"]
    assert watch.conditions("Paused") == ["True/Paused"]
    assert set(other.phases) <= {"Pausing", "Paused", "Resuming"}
    assert "Unknown/WaitingForConnection" not in other.conditions("Paused")
    assert [reason for reason, _ in own.resources.events("paused")] == ["Pausing", "Paused"]
    assert replicas.lease.lease_transitions == 1


@pytest.mark.parametrize("phase", ["Pausing", pytest.param("Verifying", marks=pytest.mark.nightly)])
def test_a_reset_is_finished_once_when_its_leader_is_killed_in_the_middle_of_it(
    own: Own, replicas: Replicas, topic: str, group: str, phase: str
) -> None:
    produce(own.bootstrap, topic, PARTITIONS, 100)
    with live_group(own.bootstrap, group, topic, PARTITIONS) as fleet:
        fleet.wait_read_to({(topic, number): 99 for number in range(PARTITIONS)})
        own.resources.reset("r", group, {"offset": 10}, inFlight="2s")
        until(lambda: has_reached(own.resources, "r", phase), f"the run is in {phase}", pause_s=0.01)
        killed = time.monotonic()
        replicas.leader.kill()
        replicas.taken_over(killed, "kill -9")
        done = own.resources.wait_phase("r", *FINAL, timeout_s=120)
        print(f"kill -9 in {phase} → the reset is {done['status']['phase']}: {time.monotonic() - killed:.2f} s")
        fleet.wait_read_to({(topic, number): 99 for number in range(PARTITIONS)})

    assert done["status"]["phase"] == "Succeeded", done["status"]
    assert len(own.resources.run_documents("r")) == 1
    reasons = [reason for reason, _ in own.resources.events("r")]
    assert len(reasons) == len(set(reasons)), f"told twice: {reasons}"
    assert reasons[-1] == "Succeeded"


def has_reached(resources: Resources, name: str, phase: str) -> bool:
    """By the run itself, which is ahead of the status."""
    documents = resources.run_documents(name).values()
    return any(f'"phase":"{phase}"' in document.get("journal.jsonl", "") for document in documents)


def test_a_leader_that_was_frozen_ends_when_it_wakes_and_changes_nothing(
    own: Own, replicas: Replicas, topic: str, group: str, agent: StubAgent, kube_client: kube.ApiClient
) -> None:
    own.resources.pause("first", group, {"topic": topic, "partitions": [0]})
    own.resources.wait_pause("first", "Paused", "1/1")
    leave_at(own.bootstrap, f"{group}-2", topic, dict.fromkeys(range(PARTITIONS), 0))
    produce(own.bootstrap, topic, PARTITIONS, 20)

    with watched(own, kube_client, "first") as watch:
        frozen = time.monotonic()
        replicas.leader.freeze()
        try:
            replicas.taken_over(frozen, "SIGSTOP")
            own.resources.pause("second", group, {"topic": topic, "partitions": [1]})
            own.resources.wait_pause("second", "Paused", "1/1", timeout_s=TAKEN_OVER_S)
            own.resources.reset("r", f"{group}-2", {"offset": 10})
            own.resources.wait_phase("r", "Succeeded", timeout_s=90)
            holders = own.holders()
        finally:
            woken = time.monotonic()
            replicas.leader.thaw()
        with watched(own, kube_client, "second") as other:
            assert replicas.leader.ended(60) == 3
            print(f"SIGCONT → the woken one has ended: {time.monotonic() - woken:.2f} s")
            passes = replicas.standby.metric("tidegate_reconcile_seconds_count", kind="ConsumerGroupPause")
            until(
                lambda: replicas.standby.metric("tidegate_reconcile_seconds_count", kind="ConsumerGroupPause") > passes,
                "the new leader has looked again",
            )

    assert watch.phases == other.phases == ["Paused"]
    assert watch.conditions("Paused") == other.conditions("Paused") == ["True/Paused"]
    assert own.holders() == holders
    assert committed(own.bootstrap, f"{group}-2", topic, PARTITIONS) == dict.fromkeys(range(PARTITIONS), 10)
    for name in ("first", "second"):
        assert [reason for reason, _ in own.resources.events(name)] == ["Pausing", "Paused"]
    log = replicas.leader.log.read_text()
    assert "the Lease could not be renewed for 7 s; this process stops its work and ends" in log
    assert "Traceback" not in log
    assert replicas.standby.get("/healthz")[0] == 200


def test_a_leader_that_is_told_to_stop_is_followed_at_once(
    resources: Resources,
    start_operator: StartOperator,
    kube_client: kube.ApiClient,
    kafka: KafkaCluster,
    topic: str,
    group: str,
) -> None:
    """Its Lease would keep the others waiting for ten minutes."""
    replicas = pair(
        start_operator,
        kube_client,
        resources.namespace,
        TIDEGATE_LEASE_DURATION_S="600",
        TIDEGATE_LEASE_RENEW_S="500",
    )
    resources.connection("kafka", kafka.bootstrap)
    resources.wait_connection("kafka")
    stopped = time.monotonic()
    replicas.leader.ask_to_stop()
    replicas.taken_over(stopped, "SIGTERM")
    assert replicas.leader.ended(60) == 0
    print(f"SIGTERM → it has ended: {time.monotonic() - stopped:.2f} s")
    resources.pause("p", group, {"topic": topic})
    resources.wait_pause("p", "Paused")
    assert replicas.standby.stop() == 0
    assert replicas.lease.holder_identity == ""


def test_a_leader_whose_lease_was_taken_ends(own: Own, replicas: Replicas) -> None:
    patch = {"spec": {"holderIdentity": "somebody-else", "leaseDurationSeconds": 3600}}
    replicas.leases.patch_namespaced_lease(LEASE, replicas.namespace, patch)
    assert replicas.leader.ended(60) == 3
    assert "the Lease is held by somebody-else" in replicas.leader.log.read_text()
    until(lambda: "somebody-else leads" in replicas.standby.log.read_text(), "the other one knows who leads")
    assert not leads(replicas.standby)
    assert condition_of(own.resources.get_connection("kafka"), "Ready")["status"] == "True"


def test_a_lease_that_somebody_deletes_is_created_again(replicas: Replicas) -> None:
    holder = replicas.lease.holder_identity
    replicas.leases.delete_namespaced_lease(LEASE, replicas.namespace)

    def held() -> str:
        found = replicas.leases.list_namespaced_lease(replicas.namespace).items
        return str(found[0].spec.holder_identity or "") if found else ""

    new = until(held, "it is there again")
    loser = replicas.leader if new != holder else None
    if loser is not None:
        assert loser.ended(60) == 3
    assert leads(replicas.leader if new == holder else replicas.standby)


# --- the only one -----------------------------------------------------------------------------------------------------


def test_an_operator_that_starts_again_leaves_what_is_paused_as_it_is(
    resources: Resources,
    start_operator: StartOperator,
    kafka: KafkaCluster,
    topic: str,
    group: str,
    unique: Unique,
    kube_client: kube.ApiClient,
) -> None:
    """Without a Lease, too: before it has looked at Kafka it knows nothing, and says nothing."""
    operator = start_operator()
    own = Own(resources, kafka, f"__{unique('control')}"[:120])
    resources.wait_connection("kafka")
    with StubAgent(own.bootstrap, group, topic, control_topic=own.control_topic) as member:
        until(lambda: len(member.assigned) == PARTITIONS, "it owns all")
        resources.pause("p", group, {"topic": topic})
        resources.wait_pause("p", "Paused", f"{PARTITIONS}/{PARTITIONS}")
        with watched(own, kube_client, "p") as watch:
            for _ in range(3):
                operator.kill()
                operator.start()
                until(
                    lambda: operator.metric("tidegate_reconcile_seconds_count", kind="ConsumerGroupPause") >= 2,
                    "it has looked at the pause",
                )
    own.close()

    assert watch.phases == ["Paused"]
    assert watch.conditions("Paused") == ["True/Paused"]
    assert watch.conditions("Ready") == ["True/Paused"]
