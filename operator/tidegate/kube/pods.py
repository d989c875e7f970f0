"""``tidegate.kube.injection.Pods`` on the Kubernetes API."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from kubernetes.client import ApiClient, AppsV1Api, CoreV1Api
from kubernetes.client.exceptions import ApiException

from tidegate.kube.client import bounded_call
from tidegate.kube.injection import Evicted
from tidegate.kube.ports import Conflict, KubeFailure, KubeUnavailable, NotFound, Object

_PAGE: Final = 500
_BUDGET: Final = 429


class PodsClient:
    """Implements ``tidegate.kube.injection.Pods``."""

    def __init__(self, api_client: ApiClient) -> None:
        self._core = CoreV1Api(api_client)
        apps = AppsV1Api(api_client)
        self._readers = {
            ("apps/v1", "ReplicaSet"): apps.read_namespaced_replica_set,
            ("apps/v1", "StatefulSet"): apps.read_namespaced_stateful_set,
            ("apps/v1", "DaemonSet"): apps.read_namespaced_daemon_set,
            ("v1", "ReplicationController"): self._core.read_namespaced_replication_controller,
        }

    def pods(self, namespace: str, selector: str) -> Sequence[Object]:
        found: list[Object] = []
        options: dict[str, Any] = {"label_selector": selector, "limit": _PAGE, "_preload_content": False}
        while True:
            # Raw: making objects of hundreds of pods takes longer than fetching them.
            answer = bounded_call(f"list the pods of {namespace}", self._core.list_namespaced_pod, namespace, **options)
            page = json.loads(answer.data)
            found.extend(page["items"])
            options["_continue"] = page["metadata"].get("continue")
            if not options["_continue"]:
                return found

    def controller(self, namespace: str, api_version: str, kind: str, name: str) -> Mapping[str, Any]:
        reader = self._readers.get((api_version, kind))
        if reader is None:
            raise KubeFailure(f"{api_version} {kind} {namespace}/{name} is of no kind that is read")
        answer = bounded_call(f"read {kind} {namespace}/{name}", reader, name, namespace, _preload_content=False)
        found: dict[str, Any] = json.loads(answer.data)
        return found

    def evict(self, namespace: str, name: str, uid: str) -> Evicted:
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": name, "namespace": namespace},
            "deleteOptions": {"preconditions": {"uid": uid}},
        }
        try:
            bounded_call(
                f"evict pod {namespace}/{name}", self._core.create_namespaced_pod_eviction, name, namespace, body
            )
        except (NotFound, Conflict):
            return Evicted.GONE
        except KubeUnavailable as failure:
            if isinstance(failure.__cause__, ApiException) and failure.__cause__.status == _BUDGET:
                return Evicted.BUDGET
            raise
        return Evicted.YES
