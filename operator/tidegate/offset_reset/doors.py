"""Few resets of one connection are between asked for and begun at once: each asks its brokers several things."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Hashable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

_OF_A_NAMESPACE: Final = 8
_OF_ALL: Final = 16
"""More than of one namespace, which so can't keep the others out."""


@dataclass(slots=True)
class _Door:
    semaphore: asyncio.Semaphore
    users: int = 0
    """Those that are in or wait."""


class Doors:
    """Of each connection one for all, and before that one for each namespace that uses it. There are only those that
    somebody uses just now."""

    def __init__(self) -> None:
        self._doors: dict[Hashable, _Door] = {}

    @asynccontextmanager
    async def through(self, namespace: str, connection: tuple[str, str]) -> AsyncIterator[None]:
        """``connection``: by its namespace and name."""
        async with self._through((namespace, connection), _OF_A_NAMESPACE), self._through(connection, _OF_ALL):
            yield

    @asynccontextmanager
    async def _through(self, key: Hashable, most: int) -> AsyncIterator[None]:
        door = self._doors.setdefault(key, _Door(asyncio.Semaphore(most)))
        door.users += 1
        try:
            async with door.semaphore:
                yield
        finally:
            door.users -= 1
            if not door.users:
                del self._doors[key]

    def __len__(self) -> int:
        return len(self._doors)
