"""What many ask for, each by a key of its own, is read for all of them at once.

Groups' committed offsets are told for two hundred groups in one request, and the ends of logs for all partitions of a
broker. Whoever asks for something that is too old has everything read again that is about to be too old as well and is
likely to be asked for before the new answer is: so five hundred pauses that look every ten seconds cause a few requests
in ten seconds, and those that look once a minute do not have everything read for each other all the time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Hashable, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from tidegate.kafka.errors import KafkaFailure
from tidegate.threads import in_thread

_ABOUT_TO_BE: Final = 0.5
"""Of the age that is allowed: what is older is read along with what is too old."""

_LATE: Final = 2
"""Times the age that is allowed: who has not come by then is not waited for any more."""

_LATELY: Final = 4
"""Times the age that is allowed: what nobody has asked for since is forgotten."""

_REMEMBERED_S: Final = 600.0
"""The least time after which that happens: longer than anybody waits for an answer, and than the pauses of those who
ask seldom."""

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


@dataclass(slots=True)
class _Entry(Generic[V]):
    """``began_s``: when the newest reading of it began; ``asked_s``: when somebody asked last or still waited;
    ``came_s``: when the newest asker came that may need another reading, ``gap_s`` after the one before; ``since_s``:
    some asker waits for a reading that begins then or later. The loop's clock."""

    asked_s: float
    max_age_s: float
    came_s: float
    gap_s: float
    since_s: float = 0.0
    began_s: float | None = None
    value: V | None = None
    alone: bool = False
    """Reading it has failed: it must not keep the others from being read."""

    def is_read_along(self, now_s: float) -> bool:
        """Whether somebody waits for it, or it is old enough, and will by its rhythm be asked for while the answer is
        not too old. Who asks for the first time counts as one that asks again and again."""
        if self.alone:
            return False
        if self.is_older(self.since_s):
            return True
        expected_s = self.came_s + self.gap_s
        is_expected = expected_s - self.max_age_s <= now_s <= expected_s + _LATE * self.max_age_s
        return is_expected and self.is_older(now_s - _ABOUT_TO_BE * self.max_age_s)

    def is_older(self, than_s: float) -> bool:
        """Whether its newest reading began before that, or there was none."""
        return self.began_s is None or self.began_s < than_s


class Together(Generic[K, V]):
    """Belongs to the event loop's thread; ``read`` is called in ``executor``, and leaves out what there is not."""

    def __init__(self, executor: Executor, read: Callable[[Collection[K]], Mapping[K, V]]) -> None:
        self._executor = executor
        self._read = read
        self._entries: dict[K, _Entry[V]] = {}
        self._reading: asyncio.Task[None] | None = None

    async def get(self, keys: Collection[K], max_age_s: float) -> dict[K, V]:
        """By key, what a reading told that began at most so long ago; what there is not is absent.

        Raises ``KafkaFailure``, where it is these keys' own.
        """
        now_s = asyncio.get_running_loop().time()
        since_s = now_s - max_age_s
        self._came(keys, max_age_s, now_s)
        while old := self._asked(keys, since_s, max_age_s):
            if all(self._entries[key].alone for key in old):
                await self._renew_alone(old)
                continue
            if self._reading is None:
                self._reading = asyncio.create_task(self._renew())
            # Waited for, not awaited: one asker that is cancelled must not end the reading that others wait for.
            reading = self._reading
            await asyncio.wait([reading])
            if not reading.cancelled() and (failure := reading.exception()) is not None:
                if not isinstance(failure, KafkaFailure):
                    raise failure
                await self._renew_alone(keys)
        return {key: value for key in keys if (value := self._entries[key].value) is not None}

    def _came(self, keys: Collection[K], max_age_s: float, now_s: float) -> None:
        for key in keys:
            entry = self._entry(key, max_age_s, now_s)
            if now_s - entry.came_s >= max_age_s:
                # Else it has what was read for the one before.
                entry.came_s, entry.gap_s = now_s, now_s - entry.came_s

    def _asked(self, keys: Collection[K], since_s: float, max_age_s: float) -> list[K]:
        """Which of them are to be read; asked for once more, so that none is forgotten while somebody waits for it."""
        now_s, old = asyncio.get_running_loop().time(), []
        for key in keys:
            entry = self._entry(key, max_age_s, now_s)
            entry.asked_s, entry.max_age_s = now_s, max_age_s
            if entry.is_older(since_s):
                entry.since_s = max(entry.since_s, since_s)
                old.append(key)
        return old

    def _entry(self, key: K, max_age_s: float, now_s: float) -> _Entry[V]:
        return self._entries.setdefault(key, _Entry(now_s, max_age_s, now_s, max_age_s))

    async def _renew(self) -> None:
        # One turn of the loop later: those who come with this one are read as well.
        await asyncio.sleep(0)
        now_s = asyncio.get_running_loop().time()
        for key, entry in tuple(self._entries.items()):
            if now_s - entry.asked_s > max(_REMEMBERED_S, _LATELY * entry.max_age_s):
                del self._entries[key]
        due = {key for key, entry in self._entries.items() if entry.is_read_along(now_s)}
        try:
            if due:
                await self._read_again(due)
        finally:
            self._reading = None

    async def _renew_alone(self, keys: Collection[K]) -> None:
        """Together with others it has failed: perhaps for these keys, perhaps for others."""
        try:
            await self._read_again(keys)
        except KafkaFailure:
            for key in keys:
                if key in self._entries:
                    self._entries[key].alone = True
            raise

    async def _read_again(self, keys: Collection[K]) -> None:
        began_s = asyncio.get_running_loop().time()
        found = await in_thread(self._executor, self._read, keys)
        for key in keys:
            if (entry := self._entries.get(key)) is not None:
                entry.began_s, entry.value, entry.alone = began_s, found.get(key), False
