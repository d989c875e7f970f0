"""A workload whose kind the API server has stopped to serve in the version that is named is there all the same."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from kubernetes.client.exceptions import ApiException

from tidegate.clock import SystemClock
from tidegate.kube.ports import NotFound
from tidegate.kube.workloads import NotScalable
from tidegate.kube.workloads_client import KubeWorkloads
from tidegate.resources.pause import WorkloadRef

GADGET = WorkloadRef(api_version="tests.io/v1alpha1", kind="Gadget", name="one")


class Server:
    """As far as it is asked. ``serves``: whether it knows the kind in this version."""

    def __init__(self) -> None:
        self.serves, self.names = True, {"one"}

    def get_api_resources(self, group: str, version: str, **_: Any) -> Any:
        assert (group, version) == ("tests.io", "v1alpha1")
        if not self.serves:
            raise ApiException(404, "404 page not found")
        gadgets = [SimpleNamespace(kind="Gadget", name="gadgets", namespaced=True)]
        return SimpleNamespace(
            resources=[*gadgets, SimpleNamespace(kind="Scale", name="gadgets/scale", namespaced=True)]
        )

    def get_namespaced_custom_object_scale(self, *where: str, **_: Any) -> Any:
        if not self.serves or where[-1] not in self.names:
            raise ApiException(404, "Not Found")
        return {"metadata": {"uid": "u", "resourceVersion": "1"}, "spec": {"replicas": 0}}


def test_a_workload_of_a_version_that_is_served_no_more_does_not_count_as_deleted() -> None:
    """Its pause would forget how many replicas it is to get back, and leave it at 0 for ever."""
    server, workloads = Server(), KubeWorkloads(SimpleNamespace(), SystemClock())
    workloads._objects = server
    assert workloads.scale("ns", GADGET).replicas == 0

    server.serves = False

    with pytest.raises(NotScalable, match="knows no kind Gadget of"):
        workloads.scale("ns", GADGET)
    server.serves, server.names = True, set()
    with pytest.raises(NotFound):
        workloads.scale("ns", GADGET)
