"""The Kubernetes API as Tidegate sees it on its way out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from kubernetes.client import ApiClient, AppsV1Api

from tidegate.clock import Clock
from tidegate.kube.client import KubeClient, bounded_call, bounded_object
from tidegate.kube.ports import PAUSES, RESETS, Kind, NotFound, Object

_OWN: Final = "tidegate.io/"
_ENDED: Final = ("Succeeded", "Failed")
"""Phases of a pod none of whose containers runs or will run again."""


@dataclass(frozen=True, slots=True)
class Named:
    """An object by its namespace and name."""

    namespace: str
    name: str

    @classmethod
    def parse(cls, text: str) -> Named:
        """From ``NAMESPACE/NAME``. Raises ``ValueError``."""
        namespace, slash, name = text.partition("/")
        if not (namespace and slash and name):
            raise ValueError(f"{text!r} has to be NAMESPACE/NAME")
        return cls(namespace, name)


def own_finalizers(body: Object) -> tuple[str, ...]:
    """Tidegate's finalizers of an object; others' are none of its business."""
    return tuple(name for name in body["metadata"].get("finalizers") or () if name.startswith(_OWN))


class LeavingClient(KubeClient):
    """Shows each pause and reset as if it had been deleted at ``since``: what a deletion undoes is undone, and
    the resource stays. What is written never says so."""

    def __init__(self, api_client: ApiClient, clock: Clock, namespaces: Sequence[str], since: datetime) -> None:
        super().__init__(api_client, clock, namespaces)
        self._apps = AppsV1Api(api_client)
        self._since = since.isoformat(timespec="seconds").replace("+00:00", "Z")

    # --- pauses and resets --------------------------------------------------------------------------------------------

    def get(self, kind: Kind, namespace: str, name: str) -> Object:
        return self._shown(kind, super().get(kind, namespace, name))

    def list(self, kind: Kind) -> Sequence[Object]:
        return [self._shown(kind, body) for body in super().list(kind)]

    def replace_status(self, kind: Kind, body: Object, status: Mapping[str, Any]) -> Object:
        return self._shown(kind, super().replace_status(kind, self._as_it_is(body), status))

    def set_finalizers(self, kind: Kind, body: Object, finalizers: Sequence[str]) -> Object:
        return self._shown(kind, super().set_finalizers(kind, body, finalizers))

    def _shown(self, kind: Kind, body: Object) -> Object:
        if kind not in (PAUSES, RESETS) or body["metadata"].get("deletionTimestamp"):
            return body
        return {**body, "metadata": {**body["metadata"], "deletionTimestamp": self._since}}

    def _as_it_is(self, body: Object) -> Object:
        if body["metadata"].get("deletionTimestamp") != self._since:
            return body
        return {**body, "metadata": {k: v for k, v in body["metadata"].items() if k != "deletionTimestamp"}}

    # --- the operator itself ------------------------------------------------------------------------------------------

    def scale_to_zero(self, namespace: str, deployment: str) -> str | None:
        """Ask for no pods of a Deployment; the selector of those it has. ``None``: there is no such Deployment."""
        what = f"Deployment {namespace}/{deployment}"
        try:
            found = bounded_call(f"read {what}", self._apps.read_namespaced_deployment, deployment, namespace)
            bounded_call(
                f"scale {what} to 0",
                self._apps.patch_namespaced_deployment_scale,
                deployment,
                namespace,
                {"spec": {"replicas": 0}},
            )
        except NotFound:
            return None
        return ",".join(f"{key}={value}" for key, value in sorted(found.spec.selector.match_labels.items()))

    def pods(self, namespace: str, selector: str) -> int:
        """How many pods of a selector run, or may: those that are just ending included, and not those that have ended,
        such as by an eviction, which may stay for days."""
        what = f"list pods {selector} of {namespace}"
        found = bounded_object(what, self._core.list, "pods", namespace, label_selector=selector)["items"]
        return sum((pod.get("status") or {}).get("phase") not in _ENDED for pod in found)
