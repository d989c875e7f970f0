"""What a watch does at the same time, each in a task of its own, for as long as the watch is there."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

from tidegate.discovery.backoff import LONGEST_S

_log = logging.getLogger(__name__)


class Tasks:
    """Belongs to the event loop's thread. ``name``: the connection's, for what is logged."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._running: set[asyncio.Task[None]] = set()
        self._lasting: set[asyncio.Task[None]] = set()

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        self._begin(work, self._running)

    def spawn_lasting(self, work: Coroutine[Any, Any, None]) -> None:
        """What goes on to its end after the watch was closed."""
        self._begin(work, self._lasting)

    def _begin(self, work: Coroutine[Any, Any, None], among: set[asyncio.Task[None]]) -> None:
        task = asyncio.create_task(work)
        among.add(task)
        task.add_done_callback(self._ended)

    async def always(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Begin again after a defect of the code: one look that goes wrong must not be the last."""
        while True:
            task = asyncio.create_task(work())
            try:
                await asyncio.wait([task])
            finally:
                task.cancel()
            self._ended(task)
            await asyncio.sleep(LONGEST_S)

    async def close(self) -> None:
        """Cancel all that does not last, and wait for their ends."""
        running = list(self._running)
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        self._lasting.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("%s: a step of discovery ended with an unexpected error", self._name, exc_info=error)
