"""How long ago a watch first saw that topics have so many partitions. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Final

from tidegate.kafka.model import Topic

HEARD_OF_S: Final = 600.0
"""Clients have heard of a topic by then: twice the default of their ``metadata.max.age.ms``."""

_SWEEP_AFTER: Final = 10_000
"""So many sightings later, those of topics of which nobody knows any more are forgotten."""


@dataclass(slots=True)
class Sightings:
    """Times are by the monotonic clock."""

    _recent: deque[tuple[float, str, str, int]] = field(default_factory=deque)
    _long: dict[str, dict[str, int]] = field(default_factory=dict)
    _since_swept: int = 0

    def note(self, before: Mapping[str, int], seen: Mapping[str, Topic], now_s: float) -> None:
        """``before``: the most partitions that any look had shown, by topic id."""
        for name, topic in seen.items():
            if topic.partitions > before.get(topic.topic_id, 0):
                self._recent.append((now_s, name, topic.topic_id, topic.partitions))
        self._age(now_s)
        if self._since_swept > _SWEEP_AFTER:
            self._since_swept = 0
            known = before.keys() | {topic.topic_id for topic in seen.values()}
            each = ((name, {i: n for i, n in ids.items() if i in known}) for name, ids in self._long.items())
            self._long = {name: ids for name, ids in each if ids}

    def _age(self, now_s: float) -> None:
        while self._recent and now_s - self._recent[0][0] > HEARD_OF_S:
            _, name, topic_id, partitions = self._recent.popleft()
            self._long.setdefault(name, {})[topic_id] = partitions
            self._since_swept += 1

    def long_ago(self, names: Collection[str], now_s: float) -> dict[str, int]:
        """How many partitions of the topics of these names clients must have heard of, by topic id."""
        self._age(now_s)
        return {topic_id: count for name in names for topic_id, count in self._long.get(name, {}).items()}
