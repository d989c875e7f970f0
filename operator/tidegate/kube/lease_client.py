"""``tidegate.kube.lease.Leases`` on the Kubernetes API."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from kubernetes.client import ApiClient, CustomObjectsApi

from tidegate.clock import Clock
from tidegate.kube.client import KubeClient, bounded_object
from tidegate.kube.lease import LeaseRecord
from tidegate.kube.ports import EventType, KubeEvent, NotFound, Object

_GROUP: Final = "coordination.k8s.io"
_VERSION: Final = "v1"
_PLURAL: Final = "leases"
_ELECTED: Final = "LeaderElection"
"""The reason that client-go gives, too."""


class LeaseClient:
    """Implements ``tidegate.kube.lease.Leases``. Thread-safe.

    ``limit_s``: how long one call may take to connect, and to be answered.
    """

    def __init__(self, api_client: ApiClient, clock: Clock, namespace: str, name: str, limit_s: float) -> None:
        self._objects = CustomObjectsApi(api_client)
        self._events = KubeClient(api_client, clock)
        self._namespace, self._name = namespace, name
        self._limit_s = (limit_s, limit_s)

    def read(self) -> LeaseRecord | None:
        try:
            found = bounded_object(
                f"read {self}",
                self._objects.get_namespaced_custom_object,
                *(_GROUP, _VERSION, self._namespace, _PLURAL, self._name),
                timeout_s=self._limit_s,
            )
        except NotFound:
            return None
        return _record(found)

    def create(self, record: LeaseRecord) -> LeaseRecord:
        metadata = {
            "name": self._name,
            "namespace": self._namespace,
            "labels": {"app.kubernetes.io/managed-by": "tidegate"},
        }
        body = {
            "apiVersion": f"{_GROUP}/{_VERSION}",
            "kind": "Lease",
            "metadata": metadata,
            "spec": _spec(record),
        }
        made = bounded_object(
            f"create {self}",
            self._objects.create_namespaced_custom_object,
            *(_GROUP, _VERSION, self._namespace, _PLURAL, body),
            timeout_s=self._limit_s,
        )
        return _record(made)

    def update(self, record: LeaseRecord, over: LeaseRecord) -> LeaseRecord:
        there = over.lease or {}
        body = {**there, "spec": {**(there.get("spec") or {}), **_spec(record)}}
        written = bounded_object(
            f"write {self}",
            self._objects.replace_namespaced_custom_object,
            *(_GROUP, _VERSION, self._namespace, _PLURAL, self._name, body),
            timeout_s=self._limit_s,
        )
        return _record(written)

    def tell(self, record: LeaseRecord, message: str) -> None:
        if record.lease is not None:
            key = f"{record.holder}/{record.transitions}"
            self._events.record(record.lease, KubeEvent(EventType.NORMAL, _ELECTED, message, key))

    def __str__(self) -> str:
        return f"Lease {self._namespace}/{self._name}"


def _record(lease: Object) -> LeaseRecord:
    spec: Mapping[str, Any] = lease.get("spec") or {}
    return LeaseRecord(
        holder=str(spec.get("holderIdentity") or ""),
        duration_s=int(spec.get("leaseDurationSeconds") or 0),
        transitions=int(spec.get("leaseTransitions") or 0),
        acquired=_time(spec.get("acquireTime")),
        renewed=_time(spec.get("renewTime")),
        lease=lease,
    )


def _spec(record: LeaseRecord) -> Mapping[str, Any]:
    return {
        "holderIdentity": record.holder,
        "leaseDurationSeconds": record.duration_s,
        "leaseTransitions": record.transitions,
        "acquireTime": _text(record.acquired),
        "renewTime": _text(record.renewed),
    }


def _time(text: str | None) -> datetime | None:
    return datetime.fromisoformat(text) if text else None


def _text(at: datetime | None) -> str | None:
    """A ``metav1.MicroTime``."""
    return at.isoformat(timespec="microseconds").replace("+00:00", "Z") if at is not None else None
