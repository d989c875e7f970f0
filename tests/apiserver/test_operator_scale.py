"""ConsumerGroupPause by scaling: real API server, real broker, consumers that come and go with the replicas."""

from __future__ import annotations

import threading

import pytest
from kubernetes import client as kube

from apiserver.conftest import StartOperator
from apiserver.offsets import committed, produce
from devstack import ApiServer, KafkaCluster
from support.clients import ConsumerFleet
from support.operator_process import Resources, condition_of, until, writes_in
from support.scalable import KINDS, RealWorkloads, WorkloadPlayer, install_scalable_kinds
from support.stack_fixtures import MakeTopic, Unique
from tidegate.resources.pause import WorkloadRef

PARTITIONS = 3
ALL = range(PARTITIONS)


@pytest.fixture
def p(unique: Unique) -> str:
    """The name of the test's pause."""
    return unique("p")


def workload_of(name: str, kind: str = "Deployment") -> WorkloadRef:
    return WorkloadRef(api_version=KINDS[kind], kind=kind, name=name)


def test_a_group_is_scaled_away_reset_and_back_and_reads_from_where_it_was_reset_to(
    shared: Resources,
    kube_client: kube.ApiClient,
    apiserver: ApiServer,
    kafka: KafkaCluster,
    make_topic: MakeTopic,
    unique: Unique,
    p: str,
) -> None:
    install_scalable_kinds(kube_client)
    topic, group, app = make_topic(PARTITIONS), unique("group"), workload_of(p)
    workloads = RealWorkloads(kube_client, shared.namespace)
    produce(kafka.bootstrap, topic, PARTITIONS, 20)
    with ConsumerFleet("librdkafka", kafka.bootstrap, group, [topic], 2, auto_commit_interval_s=0.5) as fleet:
        fleet.wait_read_to({(topic, number): 20 for number in ALL})
        workloads.create(shared.namespace, app, 2)
        workloads.scale_by_keda(shared.namespace, p, app, "4")
        since = len(apiserver.audit_log.read_text().splitlines())
        with WorkloadPlayer(workloads, app, fleet):
            shared.pause(p, group, method="Scale", workloadRef=app.to_json(), reason="INC-4711")
            body = shared.wait_pause(p, "Paused", "3/3", timeout_s=60)
            assert fleet.members() == ()
            assert workloads.replicas(app) == 0
            assert workloads.paused_replicas(p) == "0"
            assert body["status"]["method"] == "Scale"
            assert condition_of(body, "Ready")["status"] == condition_of(body, "Paused")["status"] == "True"
            [record] = body["status"]["workloads"]
            assert (record["replicas"], record["scaledObject"]["pausedReplicas"]) == (2, "4")
            until(
                lambda: [row.get("lag") for row in shared.get_pause(p)["status"]["partitions"]] == [0] * PARTITIONS,
                "its lag is told",
            )

            shared.reset(p, group, {"offset": 5}, partitions=[{"topic": topic}])
            done = shared.wait_phase(p, "Succeeded", "Failed", "RolledBack")
            assert (done["status"]["phase"], done["status"]["way"]) == ("Succeeded", "Unowned")
            assert committed(kafka.bootstrap, group, topic, PARTITIONS) == dict.fromkeys(ALL, 5)

            before = len(fleet.records())
            shared.delete_pause(p)
            until(lambda: shared.get("consumergrouppauses", p) is None, "it is gone")
            assert (workloads.replicas(app), workloads.paused_replicas(p)) == (2, "4")
            fleet.wait_for(lambda: len(fleet.records()) >= before + 15 * PARTITIONS, 60, "they read again")
            again = fleet.records()[before:]
            assert {number: min(r.offset for r in again if r.partition == number) for number in ALL} == dict.fromkeys(
                ALL, 5
            )
    writes = set(writes_in(apiserver.audit_log, shared.namespace, since))
    touched = {what for what in writes if "deployments" in what or "scaledobjects" in what}
    assert touched == {
        f"patch deployments/{p}/scale",
        f"patch deployments/{p}/status",  # the player
        f"patch scaledobjects/{p}",
    }


@pytest.mark.parametrize("kind", ["StatefulSet", "Rollout", "ReplicationController"])
def test_any_kind_with_replicas_goes_to_zero_and_back(
    kind: str, shared: Resources, kube_client: kube.ApiClient, unique: Unique, p: str
) -> None:
    install_scalable_kinds(kube_client)
    workloads = RealWorkloads(kube_client, shared.namespace)
    several = [workload_of(p, kind), workload_of(f"{p[:60]}-2", kind)]
    for replicas, workload in enumerate(several, 2):
        workloads.create(shared.namespace, workload, replicas)
    shared.pause(p, unique("group"), method="Scale", workloadRefs=[workload.to_json() for workload in several])
    shared.wait_pause(p, "Paused")
    assert [workloads.replicas(workload) for workload in several] == [0, 0]
    shared.patch_pause(p, suspend=True)
    shared.wait_pause(p, "Resumed", reason="Suspended")
    assert [workloads.replicas(workload) for workload in several] == [2, 3]
    shared.delete_pause(p)


def test_a_workload_that_others_scale_up_again_and_again_is_left_to_them(
    shared: Resources, kube_client: kube.ApiClient, unique: Unique, p: str
) -> None:
    workloads, app = RealWorkloads(kube_client, shared.namespace), workload_of(p)
    workloads.create(shared.namespace, app, 2)
    ended = threading.Event()

    def heal() -> None:
        """As a GitOps tool that applies replicas."""
        while not ended.wait(0.05):
            if workloads.replicas(app) == 0:
                workloads.change(shared.namespace, app, 2)

    healer = threading.Thread(target=heal, daemon=True)
    healer.start()
    try:
        shared.pause(p, unique("group"), method="Scale", workloadRef=app.to_json())
        body = shared.wait_pause(p, "Degraded", reason="ScaledByOthers")
        assert condition_of(body, "Stalled")["reason"] == "ScaledByOthers"
        assert body["status"]["workloads"][0]["scaledDown"] == 4
    finally:
        ended.set()
        healer.join(10)
    shared.delete_pause(p)
    until(lambda: shared.get("consumergrouppauses", p) is None, "it is gone")
    assert workloads.replicas(app) == 2


def test_an_operator_that_is_killed_while_it_scales_goes_on_where_it_was(
    resources: Resources, start_operator: StartOperator, kube_client: kube.ApiClient, kafka: KafkaCluster, p: str
) -> None:
    install_scalable_kinds(kube_client)
    operator = start_operator()
    resources.connection("kafka", kafka.bootstrap)
    resources.wait_connection("kafka")
    workloads, app = RealWorkloads(kube_client, resources.namespace), workload_of("app")
    workloads.create(resources.namespace, app, 3)
    workloads.scale_by_keda(resources.namespace, "app", app)

    resources.pause(p, "nobody", method="Scale", workloadRef=app.to_json())
    until(lambda: workloads.paused_replicas("app") == "0", "KEDA keeps away", pause_s=0.0)
    operator.kill()
    operator.start()
    resources.wait_pause(p, "Paused")
    assert (workloads.replicas(app), workloads.paused_replicas("app")) == (0, "0")

    resources.delete_pause(p)
    until(lambda: workloads.paused_replicas("app") is None, "KEDA may scale again", pause_s=0.0)
    operator.kill()
    operator.start()
    until(lambda: resources.get("consumergrouppauses", p) is None, "it is gone")
    assert (workloads.replicas(app), workloads.paused_replicas("app")) == (3, None)
