"""The groups that this process leads, each in a thread of its own."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Final

from tidegate.clock import Clock
from tidegate.cluster import Kafka
from tidegate.kafka.model import Seat, TopicPartition
from tidegate.leading.pacing import Pacing, Report
from tidegate.leading.session import LeadingSession
from tidegate.leading.wishes import Covers

MOST: Final = 100
"""Groups that one process leads: each takes a thread and a connection."""

_STOP_S: Final = 5.0
"""How long ending may wait for all threads; a request that is under way ends by itself."""


@dataclass(frozen=True, slots=True)
class Led:
    """One group. ``connection``: the uid of the KafkaConnection."""

    connection: str
    group: str


@dataclass(frozen=True, slots=True)
class Look:
    """How far a group is led; what the user wants of it (``None``: nothing, as far as this process knows); whether
    somebody wants something of it."""

    report: Report = field(default_factory=lambda: Report(ended=True))
    wanted: frozenset[TopicPartition] | None = None
    is_wanted: bool = False


@dataclass(frozen=True, slots=True)
class _Running:
    session: LeadingSession
    thread: threading.Thread
    users: dict[str, frozenset[TopicPartition]]


class Leaders:
    """Thread-safe. ``may_act``: whether it is this process's turn; sessions end by themselves once it is not.

    Several users may want partitions of one group, and share its session. ``known``, ``others``: the seat and the users
    that an earlier process has noted, for where this one has no session yet.
    """

    def __init__(self, clock: Clock, pacing: Pacing, may_act: Callable[[], bool]) -> None:
        self.pacing = pacing
        self._clock = clock
        self._may_act = may_act
        self._lock = threading.Lock()
        self._running: dict[Led, _Running] = {}

    def look(self, led: Led, user: str, kafka: Kafka | None, covers: Covers | None = None) -> Look:
        """``kafka``: the connection as it is open now, through which it goes on. ``covers``: what the user wants of new
        partitions; ``None``: as before."""
        with self._lock:
            running = self._alive(led)
            if running is None and self._are_full():
                return Look(Report(ended=True, trouble=f"the operator already leads {MOST} groups, which is its limit"))
            if running is None:
                return Look()
            if kafka is not None:
                running.session.kafka = kafka
            if covers is not None:
                running.session.cover(user, covers)
            return Look(running.session.report, running.users.get(user), bool(running.users))

    def want(
        self,
        led: Led,
        kafka: Kafka,
        user: str,
        partitions: frozenset[TopicPartition],
        known: Seat | None,
        others: Collection[str],
    ) -> None:
        with self._lock:
            running = self._alive(led)
            if running is None and self._are_full():
                return  # as the next look tells
            running = running or self._begin(led, kafka, known, others)
            running.users[user] = partitions
            running.session.want(user, partitions)
            self._start(running)

    def drop(self, led: Led, kafka: Kafka, user: str, known: Seat | None, others: Collection[str]) -> None:
        """The user wants nothing any more. Where nobody does, our member leaves the group."""
        with self._lock:
            running = self._alive(led)
            if running is None:
                if known is None or others:
                    return  # there is nobody of ours, or whoever wants something has the seat, too
                running = self._begin(led, kafka, known, ())
            running.users.pop(user, None)
            running.session.drop(user)
            self._start(running)

    def forget(self, user: str, *, but: Led | None = None) -> None:
        """The user is gone, whatever it has wanted; ``but``: of other groups than this one."""
        with self._lock:
            for led, running in self._running.items():
                if led != but:
                    running.users.pop(user, None)
                    running.session.drop(user)

    def stop(self) -> None:
        """End all sessions and leave no group: another process goes on with their seats."""
        with self._lock:
            running = list(self._running.values())
        for one in running:
            one.session.stop()
        until_s = self._clock.monotonic() + _STOP_S
        for one in running:
            if one.thread.is_alive():
                one.thread.join(max(0.0, until_s - self._clock.monotonic()))

    def _alive(self, led: Led) -> _Running | None:
        running = self._running.get(led)
        if running is not None and running.session.report.ended:
            del self._running[led]
            return None
        return running

    def _are_full(self) -> bool:
        # Nobody may have looked at those that have ended since.
        for led in list(self._running) if len(self._running) >= MOST else ():
            self._alive(led)
        return len(self._running) >= MOST

    def _begin(self, led: Led, kafka: Kafka, known: Seat | None, others: Collection[str]) -> _Running:
        session = LeadingSession(kafka, led.group, self._clock, self.pacing, self._may_act, known=known, others=others)
        thread = threading.Thread(target=session.run, name=f"lead {led.group}", daemon=True)
        self._running[led] = running = _Running(session, thread, {})
        return running

    def _start(self, running: _Running) -> None:
        """Only once it knows what is wanted of it."""
        if running.thread.ident is None:
            running.thread.start()
