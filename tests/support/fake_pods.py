"""``tidegate.kube.injection.Pods`` in memory, held to the API server's by ``tests/contract``."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any, Final

from tidegate.inject.environment import Injection
from tidegate.kube.injection import Evicted
from tidegate.kube.ports import KubeFailure, NotFound, Object

_READ: Final = {
    ("apps/v1", "ReplicaSet"),
    ("apps/v1", "StatefulSet"),
    ("apps/v1", "DaemonSet"),
    ("v1", "ReplicationController"),
}


class FakePods:
    """Ready pods that no node runs: one that is evicted is gone at once, and nobody makes another.

    Of selectors it knows labels with values (``app=payments,tier=db``). ``budget``: how many may be evicted yet;
    ``failure``: what listing raises; ``asked``: all calls, in order.
    """

    def __init__(self, *, budget: int | None = None, failure: KubeFailure | None = None) -> None:
        self.asked: list[str] = []
        self.budget = budget
        self.failure = failure
        self._pods: dict[tuple[str, str], Object] = {}
        self._controllers: dict[tuple[str, str, str, str], Object] = {}
        self._uids = (f"uid-{number}" for number in itertools.count(1))

    def add_pod(
        self,
        namespace: str,
        name: str,
        labels: Mapping[str, str],
        owner: Mapping[str, Any] | None = None,
        injected: Injection | None = None,
    ) -> str:
        """Returns its uid. ``injected``: with what the Python agent was injected into it."""
        metadata = {
            "name": name,
            "namespace": namespace,
            "uid": next(self._uids),
            "labels": dict(labels),
            "creationTimestamp": "2026-11-21T11:00:00Z",
            **({"ownerReferences": [dict(owner)]} if owner is not None else {}),
            **({"annotations": {"tidegate.io/injected": injected.setting}} if injected is not None else {}),
        }
        agent = {"name": "tidegate-agent", "command": ["/opt/tidegate/agent/install", "/tidegate"]}
        variables = {"PYTHONPATH": "/tidegate/python", **(injected.environment if injected is not None else {})}
        app = {
            "name": "app",
            "volumeMounts": [{"name": "tidegate-agent", "mountPath": "/tidegate"}],
            "env": [{"name": name, "value": value} for name, value in variables.items()],
        }
        given = {"containers": [app], "initContainers": [agent]}
        status = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
        self._pods[namespace, name] = {
            "metadata": metadata,
            "spec": given if injected is not None else {"containers": [{"name": "app"}]},
            "status": status,
        }
        return str(metadata["uid"])

    def add_controller(self, namespace: str, api_version: str, kind: str, name: str, replicas: int) -> str:
        """Returns its uid."""
        uid = next(self._uids)
        metadata = {"name": name, "namespace": namespace, "uid": uid}
        self._controllers[namespace, api_version, kind, name] = {"metadata": metadata, "spec": {"replicas": replicas}}
        return uid

    def pods(self, namespace: str, selector: str) -> Sequence[Object]:
        self.asked.append(f"list {namespace} {selector}")
        if self.failure is not None:
            raise self.failure
        wanted = dict(requirement.split("=") for requirement in selector.split(","))
        return [
            pod
            for (where, _), pod in sorted(self._pods.items())
            if where == namespace and wanted.items() <= pod["metadata"]["labels"].items()
        ]

    def controller(self, namespace: str, api_version: str, kind: str, name: str) -> Mapping[str, Any]:
        self.asked.append(f"read {api_version} {kind} {namespace}/{name}")
        if (api_version, kind) not in _READ:
            raise KubeFailure(f"{api_version} {kind} {namespace}/{name} is of no kind that is read")
        found = self._controllers.get((namespace, api_version, kind, name))
        if found is None:
            raise NotFound(f"read {kind} {namespace}/{name}: 404")
        return found

    def evict(self, namespace: str, name: str, uid: str) -> Evicted:
        self.asked.append(f"evict {namespace}/{name} {uid}")
        pod = self._pods.get((namespace, name))
        if pod is None:
            return Evicted.GONE
        if self.budget == 0:
            return Evicted.BUDGET
        if pod["metadata"]["uid"] != uid:
            return Evicted.GONE
        if self.budget is not None:
            self.budget -= 1
        del self._pods[namespace, name]
        return Evicted.YES
