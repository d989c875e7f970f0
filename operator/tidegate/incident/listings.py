"""Lists the resources that are about a group, or all of them, as they are; what can't be listed is said to be.

Without the models: reading what was listed is for afterwards, and importing them takes longer than a request.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from tidegate.incident.seen import Named, Unseen
from tidegate.kafka.names import is_allowed
from tidegate.kube.ports import (
    APPROVALS,
    BACKUPS,
    CONNECTIONS,
    PAUSES,
    POLICIES,
    RESETS,
    Kind,
    KubeFailure,
    KubeUnavailable,
    Object,
    connection_named,
    name_of,
    namespace_of,
)

_OVERVIEW: Final = (CONNECTIONS, RESETS, PAUSES, POLICIES, BACKUPS)


class Lists(Protocol):
    """What of ``tidegate.kube.ports.Kube`` is asked here."""

    def get(self, kind: Kind, namespace: str, name: str) -> Object: ...

    def list(self, kind: Kind) -> Sequence[Object]: ...


@dataclass(frozen=True, slots=True)
class Listed:
    """By kind, the objects that were found. ``kinds``: how many kinds could be listed."""

    bodies: Mapping[Kind, Sequence[Object]]
    kinds: int
    unseen: tuple[Unseen, ...]

    def of(self, kind: Kind) -> Sequence[Object]:
        return self.bodies.get(kind, ())


def everything(kube: Lists) -> Listed:
    """What an overview has. Raises nothing for what the API server refuses or does not answer."""
    listings = _Listings(kube)
    return listings.result({kind: listings.of(kind) for kind in _OVERVIEW})


def about_group(kube: Lists, group_id: str, connection: Named | None = None) -> Listed:
    """What names the group, with the KafkaConnections that this names, and the approvals of its OffsetResets.

    ``connection``: one that is wanted besides. Raises nothing for what the API server refuses or does not answer.
    """
    listings = _Listings(kube)
    connections = {(namespace_of(body), name_of(body)): body for body in listings.of(CONNECTIONS)}
    found: dict[Kind, Sequence[Object]] = {
        kind: [body for body in listings.of(kind) if _is_about(body, group_id)] for kind in (PAUSES, RESETS, POLICIES)
    }
    named = {connection_named(body) for bodies in found.values() for body in bodies}
    if connection is not None:
        named.add(connection)
    for each in sorted(named - connections.keys()):
        body = listings.named(CONNECTIONS, each)
        if body is not None:
            connections[each] = body
    found[CONNECTIONS] = list(connections.values())
    found[APPROVALS] = listings.of(APPROVALS) if found[RESETS] else ()
    return listings.result(found)


def _is_about(body: Object, group_id: str) -> bool:
    """Whether its spec names the group, or a pattern of it; read as it is, since other versions' specs count, too."""
    spec = body.get("spec") or {}
    if spec.get("group") == group_id:
        return True
    patterns, exclude = (tuple(map(str, spec.get(name) or ())) for name in ("groups", "exclude"))
    return is_allowed(group_id, patterns) and not is_allowed(group_id, exclude)


class _Listings:
    """Lists one kind after the other, each of which may be forbidden; an API server that is away is asked once."""

    def __init__(self, kube: Lists) -> None:
        self._kube = kube
        self._is_away = False
        self._unseen: list[Unseen] = []
        self._kinds = 0

    def of(self, kind: Kind) -> Sequence[Object]:
        if self._is_away:
            return ()
        try:
            found = self._kube.list(kind)
        except KubeUnavailable as failure:
            self._is_away = True
            which = f"{kind.plural}, and what was to be listed after them," if self._kinds else "all resources"
            self._unseen.append(Unseen(f"{which} in Kubernetes", str(failure)))
        except KubeFailure as failure:
            self._unseen.append(Unseen(kind.plural, str(failure)))
        else:
            self._kinds += 1
            return found
        return ()

    def named(self, kind: Kind, named: Named) -> Object | None:
        """One object that no listing has."""
        label = f"{kind.kind} {'/'.join(named)}"
        if self._is_away or not named[1]:
            return None
        try:
            return self._kube.get(kind, *named)
        except KubeFailure as failure:
            self._is_away = isinstance(failure, KubeUnavailable)
            self._unseen.append(Unseen(label, str(failure)))
            return None

    def result(self, bodies: Mapping[Kind, Sequence[Object]]) -> Listed:
        return Listed(bodies, self._kinds, tuple(self._unseen))
