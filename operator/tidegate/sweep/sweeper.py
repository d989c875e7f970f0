"""Looks at each connection's holds again and again, and releases those that were left behind.

Nothing of it has to survive the process: what is suspected is found again, an Event of the same holds is recorded once,
and a hold that was released is released again without harm.
"""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Final, TypeVar

from tidegate.connection.live import Live, LiveConnections
from tidegate.connection.observer import NotLookedAt, Observer
from tidegate.control.gates import Gates
from tidegate.control.records import HoldKey, LimitKey
from tidegate.discovery.guard import named
from tidegate.kafka.errors import KafkaFailure
from tidegate.kube.ports import (
    CONNECTIONS,
    PAUSES,
    RESETS,
    EventType,
    Kube,
    KubeEvent,
    KubeFailure,
    KubeUnavailable,
    Object,
    connection_named,
    name_of,
    uid_of,
)
from tidegate.offset_reset.reading import status_is_readable, status_of
from tidegate.reset.runs.request import run_uid
from tidegate.reset.runs.seen import under_way
from tidegate.service.metrics import Metrics
from tidegate.sweep.kept import KeptRuns
from tidegate.sweep.left_behind import LeftBehind, Suspect, There, judge, may_be_left
from tidegate.threads import in_thread

_log = logging.getLogger(__name__)

HOLDS_SWEPT: Final = "HoldsSwept"

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Parts:
    """What the sweeper acts through. ``backfills``: the uids of discovery's runs that this process carries out.

    ``interval_s``: between two looks. ``patient_executor``: for writing to Kafka. ``kept``: what is kept of resets that
    were deleted, by the same records. ``pauses``: those that this process knows of by its watch.
    """

    kube: Kube
    live: LiveConnections
    observer: Observer
    backfills: Callable[[], frozenset[str]]
    executor: Executor
    patient_executor: Executor
    metrics: Metrics
    interval_s: float
    kept: KeptRuns
    pauses: Callable[[], Collection[Object]] = tuple


class Sweeper:
    """Belongs to the event loop's thread."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._suspects: dict[str, Mapping[HoldKey | LimitKey, Suspect]] = {}
        """By connection."""
        self._looked_s: dict[str, float] = {}
        """By connection, when the last look began: what a look finds has to be newer than what the one before did."""
        self._troubles: dict[str, str] = {}

    async def run(self) -> None:
        """Sweep for ever; a defect of the code ends one sweep, and not the next."""
        while True:
            sweep = asyncio.create_task(self.sweep(self._parts.interval_s))
            try:
                await asyncio.wait([sweep])
            finally:
                sweep.cancel()
            if not sweep.cancelled() and (error := sweep.exception()) is not None:
                _log.error("a look for holds left behind ended with an unexpected error", exc_info=error)
            await asyncio.sleep(self._parts.interval_s)

    async def sweep(self, settle_s: float) -> None:
        """Look once at each connection, and release what a look ``settle_s`` or longer ago has found left behind too.

        0: at once; for when no other process is at work. Raises the first defect of the code, once all have ended.
        """
        lives = [live for live in self._parts.live if live.trouble is None and not live.borrowed]
        there = {live.uid for live in self._parts.live}
        for known in (self._suspects, self._looked_s, self._troubles):
            for gone in known.keys() - there:
                del known[gone]
        # Side by side: one cluster that does not answer keeps no other waiting. To the end: the next look must not find
        # this one still at work, nor an uninstallation go on meanwhile.
        ended = await asyncio.gather(*(self._sweep(live, settle_s) for live in lives), return_exceptions=True)
        defects = [defect for defect in ended if defect is not None]
        for other in defects[1:]:
            _log.error("a look for holds left behind ended with an unexpected error", exc_info=other)
        if defects:
            raise defects[0]

    async def _sweep(self, live: Live, settle_s: float) -> None:
        try:
            gates = await self._look(live, settle_s)
            if gates is not None and not live.observes:
                await self._parts.kept.look(live, gates)
        except (KafkaFailure, KubeFailure, NotLookedAt) as failure:
            # Nothing was learned: what is suspected stays so.
            if self._troubles.get(live.uid) != str(failure):
                self._troubles[live.uid] = str(failure)
                _log.warning("%s/%s: could not look for holds left behind: %s", live.namespace, live.name, failure)
        else:
            self._troubles.pop(live.uid, None)

    async def _look(self, live: Live, settle_s: float) -> Gates | None:
        """What the control topic says, where it can be read, once what is due about its holds is done."""
        parts, loop = self._parts, asyncio.get_running_loop()
        began_s = loop.time()
        snapshot = await parts.observer.newest(live.uid, gates=True, since_s=self._looked_s.get(live.uid, 0.0))
        self._looked_s[live.uid] = began_s
        gates = snapshot.gates
        if gates is None:
            return None  # whoever needs the control topic says why it can't be read
        if not may_be_left(gates, live.uid, self._known_pauses(live)):
            self._suspects.pop(live.uid, None)
            return gates
        # In this order: whoever holds was there before it held.
        there = await self._there(live)
        left, self._suspects[live.uid] = judge(
            gates, live.uid, there, self._suspects.get(live.uid, {}), began_s, settle_s
        )
        if left:
            connection = await in_thread(self._parts.executor, parts.kube.get, CONNECTIONS, live.namespace, live.name)
            for one in left:
                await self._release(live, connection, one)
        return gates

    def _known_pauses(self, live: Live) -> frozenset[str]:
        """By the watch. One that is gone and still known delays the release of what it held, until that is told."""
        return frozenset(uid_of(body) for body in self._parts.pauses() if self._may_pause(body, live))

    def _may_pause(self, body: Object, live: Live) -> bool:
        """What one holds that may not use the connection any more nobody needs, should it not release it itself."""
        return _goes_through(body, live) and self._parts.live.used_by(body) is not None

    async def _there(self, live: Live) -> There:
        backfills = self._parts.backfills()
        pauses = await in_thread(self._parts.executor, self._parts.kube.list, PAUSES)
        asking = await in_thread(self._parts.executor, self._parts.kube.list, RESETS)
        return There(
            pauses=frozenset(uid_of(body) for body in pauses if self._may_pause(body, live)),
            requesters=frozenset(uid_of(body) for body in asking if _goes_through(body, live)),
            runs=frozenset(run_uid(uid_of(b), name_of(b)) for b in asking if under_way(status_of(b)) is not None),
            unsure=frozenset(uid_of(body) for body in asking if not status_is_readable(body)),
            backfills=backfills,
        )

    async def _release(self, live: Live, connection: Object, left: LeftBehind) -> None:
        what = f"group {left.group}: {named(left.partitions)}, held by {left.holder}: {left.why}"
        if uid_of(connection) == live.uid:
            # Before the effect, of which nobody would tell if this process died after it.
            key = f"{HOLDS_SWEPT}/{left.holder}/{left.group}/{left.epoch}/{len(left.keys)}"
            message = f"released what nobody else would have released; {what}"
            happening = KubeEvent(EventType.WARNING, HOLDS_SWEPT, message, key)
            try:
                await in_thread(self._parts.executor, self._parts.kube.record, connection, happening)
            except KubeUnavailable:
                raise
            except KubeFailure as refused:
                # It may be refused for good, and the log tells as well: nobody's consumers wait for an Event.
                _log.warning("%s/%s: an Event was not recorded: %s; %s", live.namespace, live.name, refused, message)
        loop = asyncio.get_running_loop()
        release = functools.partial(live.finishing.control.release, left.keys)
        await loop.run_in_executor(self._parts.patient_executor, release)
        self._parts.metrics.swept(left.kind.value, len(left.keys))
        _log.warning("%s/%s: released what was left behind; %s", live.namespace, live.name, what)


def _goes_through(body: Object, live: Live) -> bool:
    return connection_named(body) == (live.namespace, live.name)
