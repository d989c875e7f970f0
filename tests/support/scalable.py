"""Workloads of several kinds on an API server that no controller works on, and the CRDs of Argo's and KEDA's kinds.

The CRDs have what Tidegate looks at and no more: a scale subresource like that of an Argo Rollout, and the target of a
ScaledObject.
"""

import contextlib
import threading
from collections.abc import Mapping
from functools import partial
from typing import Any, Self

from kubernetes import client as kube

from devstack.processes import eventually
from support.clients import ConsumerFleet
from tidegate.resources.pause import WorkloadRef

KINDS = {
    "Deployment": "apps/v1",
    "StatefulSet": "apps/v1",
    "ReplicationController": "v1",
    "Rollout": "argoproj.io/v1alpha1",
}
"""The API version of each kind."""

_PLURALS = {"Deployment": "deployments", "StatefulSet": "statefulsets", "Rollout": "rollouts"}
_MERGE = "application/merge-patch+json"


def _crd(group: str, kind: str, plural: str, subresources: Mapping[str, Any], spec: Mapping[str, Any]) -> Any:
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    schema = {"type": "object", "properties": {"spec": {**anything, "properties": dict(spec)}, "status": anything}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"kind": kind, "plural": plural, "singular": kind.lower(), "listKind": f"{kind}List"},
            "versions": [
                {
                    "name": "v1alpha1",
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": schema},
                    "subresources": {"status": {}, **subresources},
                }
            ],
        },
    }


_ROLLOUT = _crd(
    "argoproj.io",
    "Rollout",
    "rollouts",
    {"scale": {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.HPAReplicas"}},
    {"replicas": {"type": "integer", "format": "int32"}},
)
_SCALED_OBJECT = _crd("keda.sh", "ScaledObject", "scaledobjects", {}, {})


def install_scalable_kinds(client: kube.ApiClient) -> None:
    """The CRDs, served. Idempotent, also when several tests do it at once."""
    crds, custom = kube.ApiextensionsV1Api(client), kube.CustomObjectsApi(client)
    for crd in (_ROLLOUT, _SCALED_OBJECT):
        with contextlib.suppress(kube.exceptions.ConflictException):
            crds.create_custom_resource_definition(crd)
        names = crd["spec"]["names"]
        look = partial(_is_served, custom, crd["spec"]["group"], names["plural"])
        assert eventually(look, 90), f"{names['plural']} are not served"


def _is_served(custom: kube.CustomObjectsApi, group: str, plural: str) -> bool:
    try:
        found = custom.get_api_resources(group, "v1alpha1")
        if not any(resource.name == plural for resource in found.resources):
            return False
        custom.list_cluster_custom_object(group, "v1alpha1", plural)
    except kube.exceptions.NotFoundException:
        return False
    return True


class RealWorkloads:
    """What others do to workloads: users, autoscalers, GitOps and the controllers that are not there."""

    def __init__(self, client: kube.ApiClient, namespace: str) -> None:
        self.namespace = namespace
        self._core = kube.CoreV1Api(client)
        self._custom = kube.CustomObjectsApi(client)

    def create(self, namespace: str, workload: WorkloadRef, replicas: int) -> None:
        labels = {"app": workload.name}
        pod = {"containers": [{"name": "app", "image": "app"}]}
        spec: dict[str, Any] = {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": pod},
        }
        body = {
            "apiVersion": workload.api_version,
            "kind": workload.kind,
            "metadata": {"name": workload.name},
            "spec": spec,
        }
        if workload.kind == "ReplicationController":
            spec["selector"] = labels
            self._core.create_namespaced_replication_controller(namespace, body)
            return
        self._custom.create_namespaced_custom_object(*self._where(namespace, workload), body)

    def change(self, namespace: str, workload: WorkloadRef, replicas: int, running: int = 0) -> None:
        """Replicas as `kubectl scale` sets them, and how many there are as a controller says it."""
        self._patch(namespace, workload, "scale", {"spec": {"replicas": replicas}})
        self.run(workload, running)

    def run(self, workload: WorkloadRef, running: int) -> None:
        """So many replicas are there."""
        field = "HPAReplicas" if workload.kind == "Rollout" else "replicas"
        self._patch(self.namespace, workload, "status", {"status": {field: running}})

    def _patch(self, namespace: str, workload: WorkloadRef, subresource: str, patch: Mapping[str, Any]) -> None:
        if workload.kind == "ReplicationController":
            call = getattr(self._core, f"patch_namespaced_replication_controller_{subresource}")
            call(workload.name, namespace, dict(patch), _content_type=_MERGE)
        else:
            call = getattr(self._custom, f"patch_namespaced_custom_object_{subresource}")
            call(*self._where(namespace, workload), workload.name, dict(patch), _content_type=_MERGE)

    def delete(self, namespace: str, workload: WorkloadRef) -> None:
        if workload.kind == "ReplicationController":
            # Its default leaves the pods to a collector that is not there.
            self._core.delete_namespaced_replication_controller(
                workload.name, namespace, propagation_policy="Background"
            )
        else:
            self._custom.delete_namespaced_custom_object(*self._where(namespace, workload), workload.name)

    def replicas(self, workload: WorkloadRef) -> int:
        """As asked for."""
        if workload.kind == "ReplicationController":
            found = self._core.read_namespaced_replication_controller(workload.name, self.namespace)
            return int(found.spec.replicas)
        body: Any = self._custom.get_namespaced_custom_object(*self._where(self.namespace, workload), workload.name)
        return int(body["spec"]["replicas"])

    def scale_by_keda(self, namespace: str, name: str, target: WorkloadRef, paused_replicas: str | None = None) -> None:
        # KEDA takes a Deployment of apps/v1 where only a name is given.
        reference = {"apiVersion": target.api_version, "kind": target.kind, "name": target.name}
        if (target.api_version, target.kind) == ("apps/v1", "Deployment"):
            reference = {"name": target.name}
        annotations = {} if paused_replicas is None else {"autoscaling.keda.sh/paused-replicas": paused_replicas}
        body = {
            "apiVersion": "keda.sh/v1alpha1",
            "kind": "ScaledObject",
            "metadata": {"name": name, "annotations": annotations},
            "spec": {"scaleTargetRef": reference, "triggers": []},
        }
        self._custom.create_namespaced_custom_object("keda.sh", "v1alpha1", namespace, "scaledobjects", body)

    def paused_replicas(self, name: str) -> str | None:
        """KEDA's annotation."""
        body: Any = self._custom.get_namespaced_custom_object(
            "keda.sh", "v1alpha1", self.namespace, "scaledobjects", name
        )
        found: str | None = body["metadata"].get("annotations", {}).get("autoscaling.keda.sh/paused-replicas")
        return found

    def _where(self, namespace: str, workload: WorkloadRef) -> tuple[str, str, str, str]:
        group, _, version = workload.api_version.partition("/")
        return group, version, namespace, _PLURALS[workload.kind]


class WorkloadPlayer:
    """Does what the controllers of a real cluster do: so many consumers run as replicas are asked for.

    It begins with the fleet's members, and says in the workload's status how many there are.
    """

    def __init__(self, workloads: RealWorkloads, workload: WorkloadRef, fleet: ConsumerFleet) -> None:
        self._workloads = workloads
        self._workload = workload
        self._fleet = fleet
        self._running = list(fleet.members())
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._play, name="workload player", daemon=True)
        self.failure: Exception | None = None

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(60)
        assert self.failure is None, self.failure

    def _play(self) -> None:
        try:
            self._tell()
            while not self._stop.wait(0.05):
                asked = self._workloads.replicas(self._workload)
                if asked == len(self._running):
                    continue
                while len(self._running) > asked:
                    self._fleet.stop_member(self._running.pop())
                while len(self._running) < asked:
                    self._running.append(self._fleet.add(process=0))
                self._tell()
        except Exception as error:  # noqa: BLE001 - the test is told by the end of the block
            self.failure = error

    def _tell(self) -> None:
        self._workloads.run(self._workload, len(self._running))
