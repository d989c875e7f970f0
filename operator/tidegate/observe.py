"""Each Kafka connection is looked at once per tick, for all resources that want to know.

Resources register the groups they care for; whoever needs to see asks for the newest :class:`Snapshot`. A look begins
only when somebody asks and the newest snapshot is older than the tick, or lacks the asker's group; askers that come
while a look is on its way wait for that one. So twenty policies cause one describe a tick, and none cause none.
(The idea is Strimzi's topic operator: observe for all, decide for each.)
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass, field, replace

from tidegate.kafka.client_config import BadConnection
from tidegate.kafka.errors import KafkaFailure, Refused
from tidegate.kafka.model import Cluster, Group, Topic
from tidegate.kafka.ports import ClusterReader


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What one look saw. ``failure``: why it saw nothing; then the rest is empty. ``taken_s`` is the loop's clock."""

    taken_s: float
    cluster: Cluster | None = None
    topics: Mapping[str, Topic] = field(default_factory=dict)
    groups: Mapping[str, Group] = field(default_factory=dict)
    failure: KafkaFailure | None = None


class NotLookedAt(Exception):
    """The connection is not, or no longer, looked at."""


@dataclass(slots=True)
class _Watched:
    name: str
    kafka: ClusterReader
    newest: Snapshot | None = None
    asked: frozenset[str] = frozenset()
    """The groups that the newest look asked for."""
    extra: set[str] = field(default_factory=set)
    """Groups that the next look asks for because somebody waits for them, registered or not."""
    looking: asyncio.Task[Snapshot] | None = None


Looked = Callable[[str, float, int, bool], None]
"""(connection, seconds, groups described, whether it failed)"""


class Observer:
    """The looks at all connections. Methods belong to the event loop's thread; Kafka is asked in ``executor``."""

    def __init__(
        self,
        executor: Executor,
        *,
        active_tick_s: float,
        idle_tick_s: float,
        looked: Looked = lambda _connection, _seconds, _groups, _failed: None,
    ) -> None:
        self._executor = executor
        self._active_tick_s = active_tick_s
        self._idle_tick_s = idle_tick_s
        self._looked = looked
        self._watched: dict[str, _Watched] = {}
        self._wanted: dict[str, tuple[str, str]] = {}
        self._active: set[str] = set()

    def connect(self, connection_uid: str, name: str, kafka: ClusterReader) -> None:
        """Look at this connection from now on; an earlier one of this uid is forgotten with all it saw."""
        self._watched[connection_uid] = _Watched(name, kafka)

    def disconnect(self, connection_uid: str) -> None:
        watched = self._watched.pop(connection_uid, None)
        if watched is not None and watched.looking is not None:
            watched.looking.cancel()

    def want(self, holder: str, connection_uid: str, group: str, *, active: bool) -> None:
        """``holder`` cares for this group; ``active``: something of it is under way, so the tick is short."""
        self._wanted[holder] = (connection_uid, group)
        (self._active.add if active else self._active.discard)(holder)

    def drop(self, holder: str) -> None:
        self._wanted.pop(holder, None)
        self._active.discard(holder)

    def tick_s(self, connection_uid: str) -> float:
        """How old a snapshot of this connection may be."""
        active = any(self._wanted[holder][0] == connection_uid for holder in self._active)
        return self._active_tick_s if active else self._idle_tick_s

    async def newest(self, connection_uid: str, *, group: str | None = None) -> Snapshot:
        """A snapshot not older than the tick, with ``group`` in it unless the look failed.

        Raises ``NotLookedAt``.
        """
        while True:
            watched = self._watched.get(connection_uid)
            if watched is None:
                raise NotLookedAt("the connection is not open, or was closed while it was looked at")
            snapshot = watched.newest
            if snapshot is not None:
                age = asyncio.get_running_loop().time() - snapshot.taken_s
                has_group = group is None or group in watched.asked or snapshot.failure is not None
                if age < self.tick_s(connection_uid) and has_group:
                    return snapshot
            if group is not None:
                watched.extra.add(group)
            if watched.looking is None:
                watched.looking = asyncio.create_task(self._look(connection_uid, watched))
            # Waited for, not awaited: one asker that is cancelled must not end the look that others wait for.
            looking = watched.looking
            await asyncio.wait([looking])
            if looking.cancelled():
                continue
            looking.result()

    async def _look(self, connection_uid: str, watched: _Watched) -> Snapshot:
        # One turn of the loop later: those who come with this one are asked for as well.
        await asyncio.sleep(0)
        groups = frozenset(group for uid, group in self._wanted.values() if uid == connection_uid) | watched.extra
        watched.extra.clear()
        loop = asyncio.get_running_loop()
        started = loop.time()
        try:
            snapshot = await loop.run_in_executor(self._executor, _look_at, watched.kafka, groups)
        finally:
            watched.looking = None
        # Its age counts from its end: a look that takes longer than a tick is still an answer to those who waited.
        snapshot = replace(snapshot, taken_s=loop.time())
        self._looked(watched.name, snapshot.taken_s - started, len(groups), snapshot.failure is not None)
        watched.newest, watched.asked = snapshot, groups
        return snapshot


def _look_at(kafka: ClusterReader, groups: frozenset[str]) -> Snapshot:
    try:
        return Snapshot(0.0, kafka.cluster(), kafka.topics(), kafka.groups(groups) if groups else {})
    except KafkaFailure as failure:
        return Snapshot(0.0, failure=failure)
    except BadConnection as bad:
        return Snapshot(0.0, failure=Refused(str(bad)))
