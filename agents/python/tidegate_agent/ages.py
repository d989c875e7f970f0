"""Since when partitions exist by the broker's clock, as discovery says it in the control topic. Pure."""

from __future__ import annotations

import math
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from tidegate_agent.records import PartitionKey, PartitionSeen, Value

NEVER: Final = -1
"""In the place of a time: no record says anything of this partition."""

INITIAL: Final = -2
"""In the place of a time: it was there at the first discovery."""


@dataclass(frozen=True)
class Clock:
    """The newest clock record.

    ``broker_ms``: the broker's time when it was appended (epoch milliseconds); ``arrived``: when it came here, in
    seconds of the driver's clock. ``is_live``: it came to a reader that was waiting for it. A record that was in the
    topic already is older by an unknown time, and what it reads is the least that the broker's clock can show.
    """

    broker_ms: int
    arrived: float
    is_live: bool

    def reads(self, now: float) -> int:
        """The broker's time (epoch milliseconds), rounded down."""
        return self.broker_ms + math.floor((now - self.arrived) * 1000)


@dataclass(frozen=True)
class Discovered:
    """What is said of the partitions of one topic. ``newest``: which record said something last, counted over all.

    ``seen_ms``, by partition: when it was first seen by the broker's clock (epoch milliseconds), or one of the above.
    ``initial``: partitions below this number of which nothing else is said were there at the first discovery, since
    partitions are only ever added at the end.
    """

    topic_id: str
    newest: int
    seen_ms: Sequence[int]
    initial: int = 0

    def seen(self, partition: int) -> int:
        said = self.recorded(partition)
        return INITIAL if said == NEVER and partition < self.initial else said

    def recorded(self, partition: int) -> int:
        """What a record of its own says."""
        return self.seen_ms[partition] if partition < len(self.seen_ms) else NEVER


@dataclass
class _Topic:
    newest: int
    seen_ms: array[int]


class PartitionTable:
    """All partition records, fed in order: eight bytes a partition, for there may be many.

    What they say stays true also where the control topic is lost and made anew.
    """

    def __init__(self) -> None:
        self._taken = 0
        self._topics: dict[str, dict[str, _Topic]] = {}
        self._changed: set[str] = set()
        self._view: dict[str, tuple[Discovered, ...]] = {}

    def take(self, key: PartitionKey, value: Value) -> None:
        """One record; ``None`` takes back what was said."""
        self._taken += 1
        ids = self._topics.setdefault(key.topic, {})
        topic = ids.setdefault(key.topic_id, _Topic(self._taken, array("q")))
        missing = key.partition + 1 - len(topic.seen_ms)
        if isinstance(value, PartitionSeen):
            topic.seen_ms.extend([NEVER] * missing)
            topic.seen_ms[key.partition] = INITIAL if value.seen_ms is None else value.seen_ms
            topic.newest = self._taken
        elif missing <= 0:
            topic.seen_ms[key.partition] = NEVER
            while topic.seen_ms and topic.seen_ms[-1] == NEVER:
                topic.seen_ms.pop()
        if not topic.seen_ms:
            del ids[key.topic_id]
        if not ids:
            del self._topics[key.topic]
        self._changed.add(key.topic)

    def view(self) -> Mapping[str, tuple[Discovered, ...]]:
        """By topic name what is said of the topics that have had it; later records do not change the result."""
        if self._changed:
            self._view = dict(self._view)
            for name in self._changed:
                self._view.pop(name, None)
                if name in self._topics:
                    ids = self._topics[name].items()
                    self._view[name] = tuple(
                        Discovered(i, t.newest, array("q", t.seen_ms), _initial(t.seen_ms)) for i, t in ids
                    )
            self._changed.clear()
        return self._view


def _initial(seen_ms: array[int]) -> int:
    """One more than the highest partition that is said to have been there at the first discovery."""
    try:
        return len(seen_ms) - seen_ms[::-1].index(INITIAL)
    except ValueError:
        return 0
