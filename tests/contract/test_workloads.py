"""One suite for `tidegate.kube.workloads.Workloads`: workloads in memory, and the real API server's of any kind."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest

from support.fake_workloads import FakeWorkloads
from support.scalable import KINDS, RealWorkloads, install_scalable_kinds
from tidegate.clock import SystemClock
from tidegate.kube.ports import Conflict, NotFound
from tidegate.kube.workloads import NotScalable, Workloads
from tidegate.kube.workloads_client import KubeWorkloads
from tidegate.resources.pause import WorkloadRef


@dataclass(frozen=True)
class Cluster:
    workloads: Workloads
    others: FakeWorkloads | RealWorkloads
    namespace: str
    make: Callable[[], WorkloadRef]
    """A workload with 3 replicas of the kind that is tested."""


@pytest.fixture(params=["memory", *(pytest.param(kind, marks=pytest.mark.apiserver) for kind in KINDS)])
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    if request.param == "memory":
        fake, workload = FakeWorkloads(), WorkloadRef(api_version="apps/v1", kind="Deployment", name="app")
        fake.create("ns", workload, 3)
        yield Cluster(fake, fake, "ns", lambda: workload)
        return
    client, namespace = request.getfixturevalue("kube_client"), request.getfixturevalue("namespace")
    install_scalable_kinds(client)
    real = RealWorkloads(client, namespace)
    workload = WorkloadRef(api_version=KINDS[request.param], kind=request.param, name="app")
    real.create(namespace, workload, 3)
    yield Cluster(KubeWorkloads(client, SystemClock()), real, namespace, lambda: workload)


def test_replicas_are_seen_and_set_and_nothing_else_is_touched(cluster: Cluster) -> None:
    workload = cluster.make()
    before = cluster.workloads.scale(cluster.namespace, workload)

    cluster.workloads.set_replicas(cluster.namespace, workload, before, 0)
    after = cluster.workloads.scale(cluster.namespace, workload)

    assert (before.replicas, after.replicas) == (3, 0)
    assert before.uid == after.uid
    assert before.version != after.version
    assert before.running == after.running == 0


def test_what_somebody_has_changed_meanwhile_is_not_overwritten(cluster: Cluster) -> None:
    workload = cluster.make()
    seen = cluster.workloads.scale(cluster.namespace, workload)
    cluster.others.change(cluster.namespace, workload, 5)

    with pytest.raises(Conflict):
        cluster.workloads.set_replicas(cluster.namespace, workload, seen, 0)

    assert cluster.workloads.scale(cluster.namespace, workload).replicas == 5


def test_what_runs_is_told_apart_from_what_is_asked_for(cluster: Cluster) -> None:
    workload = cluster.make()
    cluster.others.change(cluster.namespace, workload, 4, running=2)
    found = cluster.workloads.scale(cluster.namespace, workload)
    assert (found.replicas, found.running) == (4, 2)


def test_a_workload_that_was_made_anew_is_another_one(cluster: Cluster) -> None:
    workload = cluster.make()
    seen = cluster.workloads.scale(cluster.namespace, workload)
    cluster.others.delete(cluster.namespace, workload)
    with pytest.raises(NotFound):
        cluster.workloads.scale(cluster.namespace, workload)
    with pytest.raises(NotFound):
        cluster.workloads.set_replicas(cluster.namespace, workload, seen, 0)
    cluster.others.create(cluster.namespace, workload, 1)
    assert cluster.workloads.scale(cluster.namespace, workload).uid != seen.uid
    with pytest.raises(Conflict):
        cluster.workloads.set_replicas(cluster.namespace, workload, seen, 0)


def test_what_has_no_replicas_is_not_scalable(cluster: Cluster) -> None:
    for api_version, kind in (
        ("v1", "Secret"),
        ("apps/v1", "Gadget"),
        ("apps/v7", "Deployment"),
        ("nobody.example/v1", "Gadget"),
    ):
        workload = WorkloadRef(api_version=api_version, kind=kind, name="x")
        # Memory knows kinds, and no versions of them.
        expected = NotScalable if isinstance(cluster.workloads, KubeWorkloads) else (NotScalable, NotFound)
        with pytest.raises(expected):
            cluster.workloads.scale(cluster.namespace, workload)


def test_kedas_word_is_seen_set_and_taken_back(cluster: Cluster) -> None:
    workload = cluster.make()
    other = WorkloadRef(api_version=workload.api_version, kind=workload.kind, name="other")
    assert cluster.workloads.scaled_object(cluster.namespace, workload) is None
    cluster.others.scale_by_keda(cluster.namespace, "theirs", other)
    cluster.others.scale_by_keda(cluster.namespace, "mine", workload, "2")

    seen = cluster.workloads.scaled_object(cluster.namespace, workload)
    assert seen is not None
    assert (seen.name, seen.paused_replicas) == ("mine", "2")
    cluster.workloads.set_paused_replicas(cluster.namespace, seen, "0")
    with pytest.raises(Conflict):
        cluster.workloads.set_paused_replicas(cluster.namespace, seen, "1")
    now = cluster.workloads.scaled_object(cluster.namespace, workload)
    assert now is not None
    assert now.paused_replicas == "0"
    cluster.workloads.set_paused_replicas(cluster.namespace, now, None)
    last = cluster.workloads.scaled_object(cluster.namespace, workload)
    assert last is not None
    assert last.paused_replicas is None
