"""Which connections a process has looked at since it began: before that it knows nothing of what goes through them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Final

from tidegate.kube.ports import Object, connection_named, label_of, name_of, namespace_of, uid_of

_log = logging.getLogger(__name__)

LIMIT_S: Final = 20.0
"""As long as a look at a cluster that does not answer may take; after that it is said that it is waited for."""


class FirstLooks:
    """What a status says was found out by an earlier process, and stands until this one has found out more: so whatever
    goes through a connection waits for the first look at it, within bounds. Belongs to the event loop's thread.

    ``connections``: those that are known, set once there is their loop. ``limit_s``: how long an object waits at most.
    """

    def __init__(self, limit_s: float = LIMIT_S) -> None:
        self.connections: Callable[[], Iterable[Object]] = tuple
        self._limit_s = limit_s
        self._looked: dict[str, asyncio.Event] = {}

    def looked(self, uid: str) -> None:
        """The connection was looked at, whatever came of that."""
        self._of(uid).set()

    def forget(self, uid: str) -> None:
        self._looked.pop(uid, None)

    async def wait(self, body: Object) -> None:
        """Until the connection that the object names was looked at. One that is not there is not waited for."""
        named = connection_named(body)
        uid = next((uid_of(c) for c in self.connections() if (namespace_of(c), name_of(c)) == named), None)
        if uid is None or self._of(uid).is_set():
            return
        try:
            async with asyncio.timeout(self._limit_s):
                await self._of(uid).wait()
        except TimeoutError:
            _log.info("%s: did not get to look at connection %s within %.0f s", label_of(body), named[1], self._limit_s)

    def _of(self, uid: str) -> asyncio.Event:
        return self._looked.setdefault(uid, asyncio.Event())
