"""Each Kafka connection is looked at once per tick, for all resources that want to know.

Resources register the groups they care for; whoever needs to see asks for the newest :class:`Snapshot`. A look begins
only when somebody asks and the newest snapshot is older than the tick, or lacks the asker's group; askers that come
while a look is on its way wait for that one. So twenty policies cause one describe a tick, and none cause none; a
hundred pauses cause one reading of the control and ack topics.
(The idea is Strimzi's topic operator: observe for all, decide for each.)
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass, field, replace

from tidegate.control.gates import Gates
from tidegate.control.ports import ControlTopics
from tidegate.kafka.errors import KafkaFailure, NotAuthorized, Refused
from tidegate.kafka.model import Cluster, Group, Topic
from tidegate.kafka.ports import ClusterReader
from tidegate.kafka_client.settings import BadConnection


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What one look saw. ``failure``: why it saw nothing; then the rest is empty. ``refused``: groups that may not be
    described; to whoever asks for one of them that is the failure.

    ``began_s`` and ``taken_s``, its begin and end, are the loop's clock. ``gates``: what the control and ack topics
    say, read after the groups were described, where somebody wanted it; ``gates_failure``: why that could not be read,
    while all else could. ``control_topics_exist``: whether both are there. ``unreadable``: how many of their records
    are not of the contract.
    """

    taken_s: float
    began_s: float = 0.0
    cluster: Cluster | None = None
    topics: Mapping[str, Topic] = field(default_factory=dict)
    groups: Mapping[str, Group] = field(default_factory=dict)
    failure: KafkaFailure | None = None
    refused: Mapping[str, NotAuthorized] = field(default_factory=dict)
    gates: Gates | None = None
    gates_failure: KafkaFailure | None = None
    control_topics_exist: bool = False
    unreadable: int = 0

    @property
    def has_gates(self) -> bool:
        """Whether the look was also one at the control and ack topics, successful or not."""
        return self.gates is not None or self.gates_failure is not None or self.failure is not None


class NotLookedAt(Exception):
    """The connection is not, or no longer, looked at."""


@dataclass(slots=True)
class _Watched:
    name: str
    kafka: ClusterReader
    control: ControlTopics | None
    newest: Snapshot | None = None
    asked: frozenset[str] = frozenset()
    """The groups that the newest look asked for."""
    extra: set[str] = field(default_factory=set)
    """Groups that the next look asks for because somebody waits for them, registered or not."""
    gates_asked: bool = False
    """Somebody waits for the gates, registered or not."""
    looking: asyncio.Task[Snapshot] | None = None


Looked = Callable[[str, float, int, Snapshot], None]
"""(connection, seconds, groups described, what was seen)"""


@dataclass(frozen=True, slots=True)
class _Want:
    connection_uid: str
    group: str | None
    tick_s: float | None
    gates: bool


class Observer:
    """The looks at all connections. Methods belong to the event loop's thread; Kafka is asked in ``executor``."""

    def __init__(
        self,
        executor: Executor,
        *,
        active_tick_s: float,
        idle_tick_s: float,
        looked: Looked = lambda _connection, _seconds, _groups, _snapshot: None,
    ) -> None:
        self._executor = executor
        self._active_tick_s = active_tick_s
        self._idle_tick_s = idle_tick_s
        self._looked = looked
        self._watched: dict[str, _Watched] = {}
        self._wanted: dict[str, _Want] = {}

    def connect(
        self, connection_uid: str, name: str, kafka: ClusterReader, control: ControlTopics | None = None
    ) -> None:
        """Look at this connection from now on; an earlier one of this uid is forgotten with all it saw.

        ``control``: its control and ack topics, for those who want the gates.
        """
        self._watched[connection_uid] = _Watched(name, kafka, control)

    def disconnect(self, connection_uid: str) -> None:
        watched = self._watched.pop(connection_uid, None)
        if watched is not None and watched.looking is not None:
            watched.looking.cancel()

    def want(
        self,
        holder: str,
        connection_uid: str,
        group: str | None,
        *,
        active: bool,
        gates: bool = False,
        tick_s: float | None = None,
    ) -> None:
        """``holder`` cares for this group, or for no single one; ``active``: it is under way, so a short tick.

        ``gates``: it wants to know its gates as well. ``tick_s``: how short the tick is, instead of the usual.
        """
        tick_s = (self._active_tick_s if tick_s is None else tick_s) if active else None
        self._wanted[holder] = _Want(connection_uid, group, tick_s, gates)

    def drop(self, holder: str) -> None:
        self._wanted.pop(holder, None)

    def tick_s(self, connection_uid: str) -> float:
        """How old a snapshot of this connection may be."""
        ticks = [w.tick_s for w in self._wanted.values() if w.connection_uid == connection_uid and w.tick_s is not None]
        return min(ticks, default=self._idle_tick_s)

    async def newest(
        self, connection_uid: str, *, group: str | None = None, gates: bool = False, since_s: float = 0.0
    ) -> Snapshot:
        """A snapshot not older than the tick, with ``group``, and ``gates``, in it unless the look failed.

        ``since_s``: the look must have begun at or after this time of the loop's clock, so that it shows what was
        written before. Raises ``NotLookedAt``.
        """
        while True:
            watched = self._watched.get(connection_uid)
            if watched is None:
                raise NotLookedAt("the connection is not open, or was closed while it was looked at")
            snapshot = watched.newest
            if snapshot is not None:
                age = asyncio.get_running_loop().time() - snapshot.taken_s
                has_group = group is None or group in watched.asked or snapshot.failure is not None
                has_gates = not gates or snapshot.has_gates
                fresh = age < self.tick_s(connection_uid) and snapshot.began_s >= since_s
                if fresh and has_group and has_gates:
                    refusal = snapshot.refused.get(group) if group is not None else None
                    return snapshot if refusal is None else replace(snapshot, failure=refusal)
            if group is not None:
                watched.extra.add(group)
            watched.gates_asked |= gates
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
        wants = [want for want in self._wanted.values() if want.connection_uid == connection_uid]
        groups = frozenset(want.group for want in wants if want.group is not None) | watched.extra
        control = watched.control if watched.gates_asked or any(want.gates for want in wants) else None
        watched.extra.clear()
        watched.gates_asked = False
        loop = asyncio.get_running_loop()
        started = loop.time()
        try:
            snapshot = await loop.run_in_executor(self._executor, _look_at, watched.kafka, groups, control)
        finally:
            watched.looking = None
        # Its age counts from its end: a look that takes longer than a tick is still an answer to those who waited.
        snapshot = replace(snapshot, began_s=started, taken_s=loop.time())
        self._looked(watched.name, snapshot.taken_s - started, len(groups), snapshot)
        watched.newest, watched.asked = snapshot, groups
        return snapshot


def _described(kafka: ClusterReader, groups: frozenset[str]) -> tuple[Mapping[str, Group], Mapping[str, NotAuthorized]]:
    """One by one where the principal may not see one of them: whoever names such a group must not blind the others."""
    try:
        return kafka.groups(groups) if groups else {}, {}
    except NotAuthorized:
        described: dict[str, Group] = {}
        refused: dict[str, NotAuthorized] = {}
        for group in sorted(groups):
            try:
                described.update(kafka.groups([group]))
            except NotAuthorized as failure:
                refused[group] = failure
        return described, refused


def _look_at(kafka: ClusterReader, groups: frozenset[str], control: ControlTopics | None) -> Snapshot:
    try:
        cluster, topics = kafka.cluster(), kafka.topics()
        described, refused = _described(kafka, groups)
        snapshot = Snapshot(0.0, 0.0, cluster, topics, described, refused=refused)
    except KafkaFailure as failure:
        return Snapshot(0.0, failure=failure)
    except BadConnection as bad:
        return Snapshot(0.0, failure=Refused(str(bad)))
    if control is None:
        return snapshot
    try:
        # After the groups: an owner that came in between must not look as if it had said nothing.
        gates = control.read(groups)
    except KafkaFailure as failure:
        return replace(snapshot, gates_failure=failure)
    return replace(snapshot, gates=gates, control_topics_exist=control.exist, unreadable=control.unreadable)
