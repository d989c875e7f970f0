"""What belongs to this process's shard: by the connections as their watch tells of them, and as it has seen them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tidegate.connection.live import LiveConnections
from tidegate.connection.shards import Shard, key_of, named
from tidegate.kube.loop import LevelLoop
from tidegate.kube.ports import (
    APPROVALS,
    CONNECTIONS,
    MIRRORS,
    RESETS,
    Kind,
    Object,
    connection_named,
    name_of,
    namespace_of,
)
from tidegate.offset_reset.approval_choice import named_reset


class Sharing:
    """Belongs to the event loop's thread. ``loops`` are set once they are there: what they are built with needs this
    before."""

    def __init__(self, shard: Shard, live: LiveConnections) -> None:
        self._shard = shard
        self.live = live
        self.loops: Mapping[Kind, LevelLoop] = {}
        self._clusters: dict[tuple[str, str], str] = {}
        """What told the shard of each connection when its watch told of it last."""

    def is_ours(self, kind: Kind) -> Callable[[Object], bool]:
        """Whether an object of this kind is for this process's shard to look after."""
        if self._shard.count == 1:
            return lambda _body: True
        if kind == CONNECTIONS:
            return lambda body: self._owns(body) or self._borrows(body)
        if kind == APPROVALS:
            return self._has_approval
        return lambda body: self._has(*connection_named(body))

    def is_borrowed(self, connection: Object) -> bool:
        return not self._owns(connection)

    def observes(self, kind: Kind, body: Object) -> bool:
        """Whether it is for this process to say in its status what was seen of it. For a connection that is only
        borrowed it is for its own shard, and this process is well also where that one does not run."""
        return self.is_ours(kind)(body) and not (kind == CONNECTIONS and self.is_borrowed(body))

    def connection_changed(self, connection: Object) -> None:
        """Its watch has told of it, or it is gone: where another shard is to look after it from now on, so is it after
        what goes through it."""
        if self._shard.count == 1:
            return
        place = namespace_of(connection), name_of(connection)
        # Not as it was told: it may be gone, or there may be a newer one of its name.
        now = self.loops[CONNECTIONS].named(*place)
        if now is None:
            moves = self._clusters.pop(place, named(*place)) != named(*place)
        else:
            moves = self._clusters.get(place) != key_of(now)
            self._clusters[place] = key_of(now)
        if moves:
            self.wake_all()

    def reset_changed(self, reset: Object) -> None:
        """Its watch has told of it: where it reads another cluster, that connection may be needed here."""
        other = _translates_from(reset)
        if self._shard.count > 1 and other:
            self.loops[CONNECTIONS].wake_named(namespace_of(reset), other)

    def mirror_changed(self, mirror: Object) -> None:
        """Its watch has told of it: the connection that it copies from may be needed here."""
        if self._shard.count > 1:
            self.loops[CONNECTIONS].wake_named(namespace_of(mirror), _copies_from(mirror))

    def wake_all(self) -> None:
        for loop in self.loops.values():
            loop.wake_all()

    def _owns(self, connection: Object) -> bool:
        return self._shard.has(key_of(connection))

    def _borrows(self, connection: Object) -> bool:
        place = namespace_of(connection), name_of(connection)
        readers = ((RESETS, _translates_from), (MIRRORS, _copies_from))
        return any(
            (namespace_of(body), read(body)) == place and self._has(*connection_named(body))
            for kind, read in readers
            if kind in self.loops
            for body in self.loops[kind].bodies
        )

    def _has(self, namespace: str, connection: str) -> bool:
        """Whether what goes through the connection of this name is ours, be it there or not.

        What this process has seen itself counts at once: nothing is begun for another shard between the first look at a
        cluster and the status that says which one it is.
        """
        body = self.loops[CONNECTIONS].named(namespace, connection) if CONNECTIONS in self.loops else None
        if body is None:
            return self._shard.has(named(namespace, connection))
        return self._shard.has(key_of(body, self.live.cluster_id(namespace, connection)))

    def _has_approval(self, approval: Object) -> bool:
        namespace, name = named_reset(approval)
        reset = self.loops[RESETS].named(namespace, name) if RESETS in self.loops else None
        return self._shard.has(named(namespace, name)) if reset is None else self._has(*connection_named(reset))


def _translates_from(reset: Object) -> str:
    """The name of the connection to the other cluster that ``to.cluster`` reads; empty for most resets."""
    to = (reset.get("spec") or {}).get("to") or {}
    reference = (to.get("cluster") or {}).get("connectionRef") if isinstance(to, Mapping) else None
    return str((reference or {}).get("name", ""))


def _copies_from(mirror: Object) -> str:
    """The name of the connection to the cluster that an OffsetMirror reads."""
    return str(((mirror.get("spec") or {}).get("source") or {}).get("name", ""))
