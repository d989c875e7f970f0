"""``tidegate.kube.injection.Pods`` on the Kubernetes API."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from kubernetes.client import ApiClient, CustomObjectsApi
from kubernetes.client.exceptions import ApiException

from tidegate.kube.answers import has_cause
from tidegate.kube.client import bounded_call, bounded_object
from tidegate.kube.core import CoreObjects
from tidegate.kube.injection import Evicted
from tidegate.kube.ports import Conflict, KubeFailure, KubeUnavailable, NotFound, Object

_PAGE: Final = 500
_TOO_MANY: Final = 429
_APPS: Final = {"ReplicaSet": "replicasets", "StatefulSet": "statefulsets", "DaemonSet": "daemonsets"}
"""The kinds of ``apps/v1`` that control pods, and their plurals."""


class PodsClient:
    """Implements ``tidegate.kube.injection.Pods``."""

    def __init__(self, api_client: ApiClient) -> None:
        self._core = CoreObjects(api_client)
        self._objects = CustomObjectsApi(api_client)

    def pods(self, namespace: str, selector: str) -> Sequence[Object]:
        found: list[Object] = []
        options: dict[str, Any] = {"label_selector": selector, "limit": _PAGE}
        while True:
            page = bounded_object(f"list the pods of {namespace}", self._core.list, "pods", namespace, **options)
            found.extend(page["items"])
            options["following"] = page["metadata"].get("continue") or ""
            if not options["following"]:
                return found

    def controller(self, namespace: str, api_version: str, kind: str, name: str) -> Mapping[str, Any]:
        what = f"read {kind} {namespace}/{name}"
        if (api_version, kind) == ("v1", "ReplicationController"):
            return bounded_object(what, self._core.read, "replicationcontrollers", namespace, name)
        plural = _APPS.get(kind) if api_version == "apps/v1" else None
        if plural is None:
            raise KubeFailure(f"{api_version} {kind} {namespace}/{name} is of no kind that is read")
        return bounded_object(what, self._objects.get_namespaced_custom_object, "apps", "v1", namespace, plural, name)

    def is_there(self, namespace: str, controller: Mapping[str, str]) -> bool:
        """Whether there is a controller with this ``apiVersion``, ``kind``, ``name`` and ``uid``. Raises
        ``KubeFailure``, also for a kind that is not read."""
        try:
            found = self.controller(namespace, controller["apiVersion"], controller["kind"], controller["name"])
        except NotFound:
            return False
        return bool(found["metadata"]["uid"] == controller["uid"])

    def evict(self, namespace: str, name: str, uid: str) -> Evicted:
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": name, "namespace": namespace},
            "deleteOptions": {"preconditions": {"uid": uid}},
        }
        try:
            evict = self._core.create_of
            bounded_call(f"evict pod {namespace}/{name}", evict, "pods", namespace, name, "eviction", body)
        except (NotFound, Conflict):
            return Evicted.GONE
        except KubeUnavailable as failure:
            if _is_of_budget(failure.__cause__):
                return Evicted.BUDGET
            raise
        return Evicted.YES


def _is_of_budget(error: object) -> bool:
    """Whether a PodDisruptionBudget says so (``DisruptionBudgetCause``), and not a server that has too much to do."""
    return isinstance(error, ApiException) and error.status == _TOO_MANY and has_cause(error, "DisruptionBudget")
