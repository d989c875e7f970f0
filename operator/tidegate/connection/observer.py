"""Each Kafka connection is looked at once per tick, for all resources that want to know.

Resources register the groups they care for; whoever needs to see asks for the newest :class:`Snapshot`. A look begins
only when somebody asks and what is known is older than the asker's tick, or lacks the asker's group; askers that come
while a look is on its way wait for that one. So twenty policies cause one describe a tick, and none cause none; a
hundred pauses cause one reading of the control and ack topics. (The idea is Strimzi's topic operator: observe for all,
decide for each.)

A look describes no more than it has to: who waits for consumers of one group several times a second has only the
groups described that are under way as well; the others wait until somebody asks for one of them. Topics, committed
offsets and the ends of logs are read for those who need them (:mod:`tidegate.connection.together`).
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Executor
from dataclasses import replace

from tidegate.connection.watched import Ask, Snapshot, Want, Watched, look_at
from tidegate.control.ports import ControlTopics
from tidegate.kafka.model import Offsets, Topic, TopicPartition
from tidegate.kafka.ports import CommittedReader


class NotLookedAt(Exception):
    """The connection is not, or no longer, looked at."""


Looked = Callable[[str, float, int, Snapshot], None]
"""(connection, seconds, groups described, what was seen)"""


class Observer:
    """The looks at all connections. Methods belong to the event loop's thread; Kafka is asked in ``executor``."""

    def __init__(
        self,
        executor: Executor,
        *,
        active_tick_s: float,
        idle_tick_s: float,
        looked: Looked = lambda _connection, _seconds, _groups, _snapshot: None,
        stirred: Callable[[str], None] = lambda _holder: None,
    ) -> None:
        """``stirred`` is told of holders at rest for whom a look has shown something new."""
        self._executor = executor
        self._active_tick_s = active_tick_s
        self._idle_tick_s = idle_tick_s
        self._looked = looked
        self._stirred = stirred
        self._watched: dict[str, Watched] = {}
        self._through: dict[str, str] = {}
        """By holder, the uid of the connection that it wants something of."""
        self._early: defaultdict[str, dict[str, Want]] = defaultdict(dict)
        """By connection, what was wanted of it and by whom before it was opened, or opened anew."""

    def connect(
        self, connection_uid: str, name: str, kafka: CommittedReader, control: ControlTopics | None = None
    ) -> None:
        """Look at this connection from now on; an earlier one of this uid is forgotten with all it saw.

        ``control``: its control and ack topics, for those who want the gates.
        """
        wants = self._early.pop(connection_uid, {})
        if connection_uid in self._watched:
            wants = self._watched[connection_uid].wants
        watched = self._watched[connection_uid] = Watched(name, kafka, control, self._executor)
        for holder, want in wants.items():
            watched.put(holder, want)

    def disconnect(self, connection_uid: str) -> None:
        watched = self._watched.pop(connection_uid, None)
        if watched is None:
            return
        self._early[connection_uid] = watched.wants
        if watched.looking is not None:
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
        if self._through.get(holder, connection_uid) != connection_uid:
            self.drop(holder)
        self._through[holder] = connection_uid
        watched = self._watched.get(connection_uid)
        if watched is None:
            self._early[connection_uid][holder] = Want(group, tick_s, gates)
        else:
            watched.put(holder, Want(group, tick_s, gates))

    def drop(self, holder: str) -> None:
        connection_uid = self._through.pop(holder, None)
        if connection_uid is None:
            return
        if connection_uid in self._early:
            self._early[connection_uid].pop(holder, None)
            if not self._early[connection_uid]:
                del self._early[connection_uid]
        if connection_uid in self._watched:
            self._watched[connection_uid].drop(holder)

    def tick_s(self, connection_uid: str) -> float:
        """How old what is known of this connection may be."""
        watched = self._watched.get(connection_uid)
        return self._idle_tick_s if watched is None else watched.tick_s(None, self._idle_tick_s)

    async def newest(
        self, connection_uid: str, *, group: str | None = None, gates: bool = False, since_s: float = 0.0
    ) -> Snapshot:
        """A snapshot not older than the tick, with ``group``, and ``gates``, in it unless the look failed.

        ``since_s``: the look must have begun at or after this time of the loop's clock, so that it shows what was
        written before. Raises ``NotLookedAt``.
        """
        asked_s = asyncio.get_running_loop().time()
        while True:
            watched = self._of(connection_uid)
            now_s = asyncio.get_running_loop().time()
            watched.note_asked(group, now_s)
            ask = Ask(group, gates, since_s, watched.tick_s(group, self._idle_tick_s), asked_s)
            snapshot = watched.newest
            if snapshot is not None and watched.has(ask, now_s):
                refusal = snapshot.refused.get(group) if group is not None else None
                return snapshot if refusal is None else replace(snapshot, failure=refusal)
            watched.asks.append(ask)
            if watched.looking is None:
                watched.looking = asyncio.create_task(self._look(watched))
            # Waited for, not awaited: one asker that is cancelled must not end the look that others wait for.
            looking = watched.looking
            await asyncio.wait([looking])
            if not looking.cancelled():
                looking.result()

    async def topics(
        self, connection_uid: str, names: Collection[str] | None, max_age_s: float | None = None
    ) -> Mapping[str, Topic]:
        """The topics of these names that there are; ``None``: all that the principal may see, which may be very many.

        ``max_age_s``: how long ago the look may have begun; without, an idle tick. Raises ``NotLookedAt`` and
        ``KafkaFailure``.
        """
        watched = self._of(connection_uid)
        age_s = self._idle_tick_s if max_age_s is None else max_age_s
        if names is None:
            return (await watched.all_topics.get([None], age_s))[None]
        return await watched.topics.get(names, age_s)

    async def committed(self, connection_uid: str, group: str, max_age_s: float) -> Offsets:
        """All committed offsets of a group, read at most so long ago. Raises ``NotLookedAt`` and ``KafkaFailure``."""
        return (await self._of(connection_uid).committed.get([group], max_age_s)).get(group, {})

    async def log_ends(
        self, connection_uid: str, partitions: Collection[TopicPartition], max_age_s: float
    ) -> Mapping[TopicPartition, int]:
        """Where these logs end, read at most so long ago. Raises ``NotLookedAt`` and ``KafkaFailure``."""
        return await self._of(connection_uid).log_ends.get(partitions, max_age_s)

    async def stable_ends(
        self, connection_uid: str, partitions: Collection[TopicPartition], max_age_s: float
    ) -> Mapping[TopicPartition, int]:
        """Where these logs end for readers of committed records, as far as that is told. Raises ``NotLookedAt`` and
        ``KafkaFailure``."""
        return await self._of(connection_uid).stable_ends.get(partitions, max_age_s)

    def _of(self, connection_uid: str) -> Watched:
        watched = self._watched.get(connection_uid)
        if watched is None:
            raise NotLookedAt("the connection is not open, or was closed while the operator looked at it")
        return watched

    async def _look(self, watched: Watched) -> Snapshot:
        # One turn of the loop later: those who come with this one are asked for as well.
        await asyncio.sleep(0)
        loop = asyncio.get_running_loop()
        started = loop.time()
        task = watched.task(self._idle_tick_s, started)
        try:
            seen = await loop.run_in_executor(self._executor, look_at, watched.kafka, task)
        finally:
            watched.looking = None
        # Its age counts from its end: a look that takes longer than a tick is still an answer to those who waited.
        before = watched.newest
        snapshot = watched.took(task, seen, started, loop.time())
        for holder in watched.stirred(before, snapshot):
            self._stirred(holder)
        self._looked(watched.name, snapshot.taken_s - started, len(task.groups), snapshot)
        return snapshot
