"""What Tidegate needs of the Kubernetes API. All calls block and are bounded in time.

Objects are plain mappings as the API server gives them. Failures are subclasses of :class:`KubeFailure` only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, Protocol

Object = Mapping[str, Any]
"""A resource as JSON."""


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of resource, as its URL and its references name it."""

    group: str
    version: str
    plural: str
    kind: str

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}"


CONNECTIONS: Final = Kind("tidegate.io", "v1alpha1", "kafkaconnections", "KafkaConnection")
PAUSES: Final = Kind("tidegate.io", "v1alpha1", "consumergrouppauses", "ConsumerGroupPause")
POLICIES: Final = Kind("tidegate.io", "v1alpha1", "offsetresetpolicies", "OffsetResetPolicy")
RESETS: Final = Kind("tidegate.io", "v1alpha1", "offsetresets", "OffsetReset")
APPROVALS: Final = Kind("tidegate.io", "v1alpha1", "offsetresetapprovals", "OffsetResetApproval")
BACKUPS: Final = Kind("tidegate.io", "v1alpha1", "offsetbackups", "OffsetBackup")
MIRRORS: Final = Kind("tidegate.io", "v1alpha1", "offsetmirrors", "OffsetMirror")


class KubeFailure(Exception):
    """A request to the API server failed; the message says which, and what the server answered."""


class KubeUnavailable(KubeFailure):
    """Nobody answered: whether a write happened is unknown, reading tells."""


class NotFound(KubeFailure):
    """There is no such object."""


class Conflict(KubeFailure):
    """The object was changed since it was read: look again."""


class NotOwned(KubeFailure):
    """There is an object of this name, and it is somebody else's."""


class EventType(StrEnum):
    NORMAL = "Normal"
    WARNING = "Warning"


@dataclass(frozen=True, slots=True)
class KubeEvent:
    """Something a person should see in ``kubectl describe``. ``key`` makes it unique: the same key is recorded once."""

    type: EventType
    reason: str
    message: str
    key: str


@dataclass(frozen=True, slots=True)
class User:
    """Who somebody is to the API server (``authentication.k8s.io/v1 UserInfo``)."""

    name: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: Mapping[str, Sequence[str]] = field(default_factory=dict)


class Kube(Protocol):
    def get(self, kind: Kind, namespace: str, name: str) -> Object:
        """Raises ``NotFound``."""
        ...

    def list(self, kind: Kind) -> Sequence[Object]:
        """All objects in the namespaces that this operator serves."""
        ...

    def replace_status(self, kind: Kind, body: Object, status: Mapping[str, Any]) -> Object:
        """The object with the new status. Raises ``NotFound``; ``Conflict`` unless ``body`` is its newest version."""
        ...

    def set_finalizers(self, kind: Kind, body: Object, finalizers: Sequence[str]) -> Object:
        """Raises ``Conflict`` unless ``body`` is the newest version, and ``NotFound``."""
        ...

    def make(self, kind: Kind, owner: Object, name: str, spec: Mapping[str, Any]) -> Object:
        """Create an object beside its owner, with which it goes.

        Raises ``Conflict`` where one of this name is there, and ``KubeFailure`` where the API server refuses it.
        """
        ...

    def remove(self, kind: Kind, body: Object) -> bool:
        """Delete the object as it was read; whether that was done. Nothing happens where it was changed since, is gone,
        or is another."""
        ...

    def record(self, body: Object, happening: KubeEvent) -> None:
        """Record an Event about the object; one with this key that is there already stays as it is, and none is
        recorded in a namespace that is being deleted."""
        ...

    def secret(self, namespace: str, name: str) -> Mapping[str, bytes]:
        """Raises ``NotFound``."""
        ...

    def config_map(self, namespace: str, name: str) -> Mapping[str, str]:
        """The text values. Raises ``NotFound``."""
        ...

    def own_config_map(self, owner: Object, name: str) -> Mapping[str, str]:
        """The text values of the owner's ConfigMap. Raises ``NotFound``; ``NotOwned`` where it is somebody else's."""
        ...

    def put_config_map(self, owner: Object, name: str, data: Mapping[str, str]) -> None:
        """Write a ConfigMap beside its owner, with which it goes. Raises ``Conflict`` where one of this name is not
        the owner's, or was changed just now, and ``NotFound`` without the namespace.
        """
        ...

    def change_config_map(
        self, owner: Object, name: str, change: Callable[[Mapping[str, str]], Mapping[str, str] | None]
    ) -> None:
        """Replace the text values of the owner's ConfigMap by what ``change`` makes of them; by ``None`` nothing
        happens. Raises ``NotFound``, ``NotOwned``, and ``Conflict`` where somebody else has changed it meanwhile."""
        ...

    def add_owner(self, namespace: str, config_map: str, owner: Mapping[str, Any]) -> Mapping[str, Any]:
        """Let the ConfigMap stay for as long as ``owner`` (an owner reference) is there, too; a reference to itself.

        Raises ``NotFound``, and ``Conflict`` where it was changed just now.
        """
        ...

    def remove_config_map(self, namespace: str, name: str) -> None:
        """Delete the ConfigMap, whatever is in it; nothing happens where there is none."""
        ...


def uid_of(body: Object) -> str:
    return str(body["metadata"]["uid"])


def namespace_of(body: Object) -> str:
    return str(body["metadata"]["namespace"])


def name_of(body: Object) -> str:
    return str(body["metadata"]["name"])


def is_controlled_by(body: Object, owner: Object) -> bool:
    """Whether this object, and none of its name before it, has created ``body``, as by ``Kube.make``."""
    owners = body["metadata"].get("ownerReferences") or ()
    return any(each.get("controller") and each.get("uid") == uid_of(owner) for each in owners)


def owner_reference(body: Object) -> Mapping[str, Any]:
    """For what belongs to the object and goes with it (``metav1.OwnerReference``)."""
    return {
        "apiVersion": body["apiVersion"],
        "kind": body["kind"],
        "name": name_of(body),
        "uid": uid_of(body),
        "controller": True,
        "blockOwnerDeletion": False,
    }


def connection_named(body: Object) -> tuple[str, str]:
    """Namespace and name of the KafkaConnection that it names, also where the spec can't be read as a whole; the name
    may be empty. Of an OffsetMirror the one through which it writes."""
    spec = body.get("spec") or {}
    named = spec.get("target" if body.get("kind") == MIRRORS.kind else "connectionRef") or {}
    return str(named.get("namespace") or namespace_of(body)), str(named.get("name", ""))


def label_of(body: Object) -> str:
    """What a person calls it: namespace and name."""
    return f"{namespace_of(body)}/{name_of(body)}"


def kept_of(body: Object) -> Object:
    """An object without what says who has set which field: most of what it takes of memory. An update without it leaves
    that as it is."""
    metadata = body.get("metadata")
    if not isinstance(metadata, Mapping) or "managedFields" not in metadata:
        return body
    return {**body, "metadata": {name: value for name, value in metadata.items() if name != "managedFields"}}
