"""What injection needs of the Kubernetes API beside ``tidegate.kube.ports``. Calls block, and are bounded in time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol

from tidegate.kube.ports import Object


@dataclass(frozen=True, slots=True)
class KeptSecret:
    """A Secret and its version. ``version`` ``None``: it is not there yet."""

    data: Mapping[str, bytes]
    version: str | None


class WebhookObjects(Protocol):
    """The two objects that make the API server trust the webhook."""

    def secret(self, namespace: str, name: str) -> KeptSecret: ...

    def put_secret(self, namespace: str, name: str, kept: KeptSecret) -> None:
        """Raises ``Conflict`` unless ``kept.version`` is the newest one."""
        ...

    def trust(self, configuration: str, ca_bundle: bytes) -> bool:
        """Write the CA certificates (PEM) into each webhook of a MutatingWebhookConfiguration; whether it had others.

        Raises ``NotFound``; ``Conflict`` where somebody else changed it at the same moment.
        """
        ...


class Evicted(StrEnum):
    """``BUDGET``: a PodDisruptionBudget does not allow it now. ``GONE``: it is another pod."""

    YES = "Evicted"
    BUDGET = "Budget"
    GONE = "Gone"


class Pods(Protocol):
    """Pods and what runs them."""

    def pods(self, namespace: str, selector: str) -> Sequence[Object]:
        """The pods that a label selector selects, as they are now."""
        ...

    def controller(self, namespace: str, api_version: str, kind: str, name: str) -> Mapping[str, Any]:
        """A ReplicaSet, StatefulSet, DaemonSet or ReplicationController. Raises ``NotFound``, ``KubeFailure``."""
        ...

    def evict(self, namespace: str, name: str, uid: str) -> Evicted:
        """Ask for the pod's eviction (policy/v1)."""
        ...
