"""What is called from parts that are built before those that it reaches."""

from __future__ import annotations

import asyncio
from collections.abc import Collection

from tidegate.jobs.runner import Launch
from tidegate.kube.loop import LevelLoop
from tidegate.kube.ports import Object, connection_named, uid_of
from tidegate.running import Operator


class Turns:
    """Tells the operator that it is its turn to lead, and, from any thread, that another process has taken its place:
    what finds that out is built before it."""

    def __init__(self) -> None:
        self.operator: Operator | None = None
        self._events = asyncio.get_running_loop()

    def elected(self) -> None:
        """On the event loop: it is this process's turn."""
        if self.operator is not None:
            self.operator.lead()

    def lost(self, why: str) -> None:
        if self.operator is not None and not self._events.is_closed():
            # Before the call that found it out returns: its pass must not write about it.
            self._events.call_soon_threadsafe(self.operator.give_way, why)


class Wake:
    """Wakes what asks for resets, from any thread, once there are its loops: what they are built with needs it before.

    ``loops``: of policies, and of resets. ``pauses``: theirs.
    """

    def __init__(self) -> None:
        self.loops: tuple[LevelLoop, ...] = ()
        self.pauses: LevelLoop | None = None
        self._events = asyncio.get_running_loop()

    def requester(self, uid: str) -> None:
        """On the event loop. A uid is known to one of the loops at most."""
        for loop in self.loops:
            loop.wake(uid)

    def stirred(self, uid: str) -> None:
        """On the event loop: there is something new to a pause or to a policy."""
        for loop in self._resting():
            loop.wake(uid)

    def users(self, namespace: str, name: str) -> None:
        """On the event loop: the KafkaConnection of this name has changed for the policies and pauses that name it. A
        reset that waits for it looks for itself, and what has begun goes on."""
        for loop in self._resting():
            for body in loop.bodies:
                if connection_named(body) == (namespace, name):
                    loop.wake(uid_of(body))

    def _resting(self) -> tuple[LevelLoop, ...]:
        """The loops of policies and pauses, as far as they are there."""
        return (*self.loops[:1], *([self.pauses] if self.pauses is not None else []))

    def policies(self) -> Collection[Object]:
        """Those that are known."""
        return self.loops[0].bodies if self.loops else ()

    def owner(self, launch: Launch) -> None:
        """Of a job that has ended; from the job's thread."""
        if not self._events.is_closed():
            self._events.call_soon_threadsafe(self.requester, str(launch.owner["uid"]))
