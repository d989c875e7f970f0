"""One suite for `tidegate.kube.injection.Pods`: pods in memory, and those of an API server without nodes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import pytest
from kubernetes import client as kube

from support.fake_pods import FakePods
from tidegate.kube.injection import Evicted, Pods
from tidegate.kube.pods import PodsClient
from tidegate.kube.ports import KubeFailure, NotFound


class Users(Protocol):
    """What others do to the cluster."""

    namespace: str

    def pod(self, name: str, **labels: str) -> str:
        """A pod that is ready; its uid."""
        ...

    def replica_set(self, name: str, replicas: int) -> str:
        """Its uid."""
        ...

    def allow_no_eviction(self, **labels: str) -> None: ...


class _Memory:
    namespace = "ns"

    def __init__(self, pods: FakePods) -> None:
        self._pods = pods
        pods.add_pod("elsewhere", "theirs", {"app": "payments"})

    def pod(self, name: str, **labels: str) -> str:
        return self._pods.add_pod(self.namespace, name, labels)

    def replica_set(self, name: str, replicas: int) -> str:
        return self._pods.add_controller(self.namespace, "apps/v1", "ReplicaSet", name, replicas)

    def allow_no_eviction(self, **_labels: str) -> None:
        self._pods.budget = 0


class _Real:
    def __init__(self, api: kube.ApiClient, namespace: str) -> None:
        self.namespace = namespace
        self._core, self._apps, self._policy = kube.CoreV1Api(api), kube.AppsV1Api(api), kube.PolicyV1Api(api)

    def pod(self, name: str, **labels: str) -> str:
        body = {
            "metadata": {"name": name, "labels": labels},
            "spec": {"containers": [{"name": "app", "image": "none"}]},
        }
        made = self._core.create_namespaced_pod(self.namespace, body)
        # Pods that do not run yet are evicted whatever a budget says.
        status = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
        self._core.patch_namespaced_pod_status(name, self.namespace, {"status": status})
        return str(made.metadata.uid)

    def replica_set(self, name: str, replicas: int) -> str:
        labels = {"app": name}
        template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "app", "image": "none"}]}}
        spec = {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template}
        made = self._apps.create_namespaced_replica_set(self.namespace, {"metadata": {"name": name}, "spec": spec})
        return str(made.metadata.uid)

    def allow_no_eviction(self, **labels: str) -> None:
        spec = {"maxUnavailable": 0, "selector": {"matchLabels": labels}}
        made = self._policy.create_namespaced_pod_disruption_budget(
            self.namespace, {"metadata": {"name": "nobody"}, "spec": spec}
        )
        status = {
            "observedGeneration": made.metadata.generation,
            "disruptionsAllowed": 0,
            "currentHealthy": 1,
            "desiredHealthy": 1,
            "expectedPods": 1,
        }
        self._policy.patch_namespaced_pod_disruption_budget_status("nobody", self.namespace, {"status": status})


@dataclass(frozen=True)
class Cluster:
    pods: Pods
    users: Users

    def names(self, selector: str) -> list[str]:
        """Of the selected pods that are not on their way out."""
        found = self.pods.pods(self.users.namespace, selector)
        return sorted(p["metadata"]["name"] for p in found if "deletionTimestamp" not in p["metadata"])


@pytest.fixture(params=["memory", pytest.param("apiserver", marks=pytest.mark.apiserver)])
def cluster(request: pytest.FixtureRequest) -> Cluster:
    if request.param == "memory":
        fake = FakePods()
        return Cluster(fake, _Memory(fake))
    api, namespace = request.getfixturevalue("kube_client"), request.getfixturevalue("namespace")
    return Cluster(PodsClient(api), _Real(api, namespace))


def test_pods_are_selected_by_their_labels_in_their_namespace(cluster: Cluster) -> None:
    cluster.users.pod("a", app="payments", tier="db")
    cluster.users.pod("b", app="payments", tier="web")
    cluster.users.pod("c", app="orders")

    assert cluster.names("app=payments") == ["a", "b"]
    assert cluster.names("app=payments,tier=web") == ["b"]
    assert cluster.names("app=nobody") == []
    (found,) = cluster.pods.pods(cluster.users.namespace, "app=orders")
    assert found["metadata"]["labels"] == {"app": "orders"}
    assert [container["name"] for container in found["spec"]["containers"]] == ["app"]
    ready = {condition["type"]: condition["status"] for condition in found["status"]["conditions"]}
    assert (found["status"]["phase"], ready["Ready"]) == ("Running", "True")
    assert "creationTimestamp" in found["metadata"]


def test_what_runs_them_is_read(cluster: Cluster) -> None:
    uid = cluster.users.replica_set("payments-1", 3)
    namespace = cluster.users.namespace

    found = cluster.pods.controller(namespace, "apps/v1", "ReplicaSet", "payments-1")

    assert (found["metadata"]["uid"], found["spec"]["replicas"]) == (uid, 3)
    for kind in ("ReplicaSet", "StatefulSet", "DaemonSet"):
        with pytest.raises(NotFound):
            cluster.pods.controller(namespace, "apps/v1", kind, "other")
    with pytest.raises(NotFound):
        cluster.pods.controller(namespace, "v1", "ReplicationController", "payments-1")
    for api_version, kind in (("apps/v1", "Deployment"), ("batch/v1", "Job"), ("v1", "ReplicaSet")):
        with pytest.raises(KubeFailure, match="of no kind that is read"):
            cluster.pods.controller(namespace, api_version, kind, "payments-1")


def test_a_pod_is_evicted_once_and_only_the_one_that_is_meant(cluster: Cluster) -> None:
    uid = cluster.users.pod("a", app="payments")
    cluster.users.pod("b", app="payments")
    namespace = cluster.users.namespace

    assert cluster.pods.evict(namespace, "a", "5c3e6f0e-8f0e-4d9c-9b61-0d7d1c1f4c11") is Evicted.GONE
    assert cluster.names("app=payments") == ["a", "b"]
    assert cluster.pods.evict(namespace, "a", uid) is Evicted.YES
    assert cluster.names("app=payments") == ["b"]
    assert cluster.pods.evict(namespace, "a", uid) is Evicted.GONE


def test_a_budget_keeps_a_pod(cluster: Cluster) -> None:
    uid = cluster.users.pod("a", app="payments")
    cluster.users.allow_no_eviction(app="payments")

    assert cluster.pods.evict(cluster.users.namespace, "a", uid) is Evicted.BUDGET

    assert cluster.names("app=payments") == ["a"]
    assert cluster.pods.evict(cluster.users.namespace, "nobody", uid) is Evicted.GONE
