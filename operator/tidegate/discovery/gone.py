"""Topics of which the control topic has records although they are no more: each agent reads them all, and a cluster may
make and remove topics all the time.

A listing does not tell that a topic is gone: it leaves out what may not be described. So topics that no look has shown
for long are asked for by name. Brokers answer that there is none only whoever may describe it, and a topic that is none
by its name is none by its id.
"""

from __future__ import annotations

from collections.abc import Collection, Container
from concurrent.futures import Executor
from typing import Final

from tidegate.clock import Clock
from tidegate.control.records import PartitionKey
from tidegate.kafka.errors import KafkaFailure, Unavailable, UnknownPartitions
from tidegate.kafka.model import TopicPartition
from tidegate.kafka.ports import ClusterReader
from tidegate.threads import in_thread

LOOK_S: Final = 600.0
"""Between two looks for such topics."""
_UNSEEN_S: Final = 3600.0
"""No broker lags behind for so long."""
_MOST: Final = 100
"""That are asked for in one look: those that may not be described are asked for again and again."""


class GoneTopics:
    """Belongs to the event loop's thread."""

    def __init__(self, kafka: ClusterReader, executor: Executor, clock: Clock) -> None:
        self._kafka = kafka
        self._executor = executor
        self._clock = clock
        self._unseen_s: dict[str, float] = {}
        """Since when no look has shown the topic, or since it was asked for."""

    async def look(self, written: Collection[PartitionKey], shown: Container[str]) -> list[PartitionKey]:
        """Of what the control topic has, that of topics that are surely gone. ``shown``: the topics that there are."""
        now_s = self._clock.monotonic()
        names = {key.topic for key in written if key.topic not in shown}
        self._unseen_s = {name: self._unseen_s.get(name, now_s) for name in names}
        due = sorted((since_s, name) for name, since_s in self._unseen_s.items() if now_s - since_s >= _UNSEEN_S)
        gone = set()
        for _, name in due[:_MOST]:
            try:
                await in_thread(self._executor, self._kafka.log_bounds, [TopicPartition(name, 0)])
            except UnknownPartitions:
                gone.add(name)
            except Unavailable:
                break  # nobody answers: the others would wait as long
            except KafkaFailure:
                pass  # it may not be described: whether it is there nobody can tell
            self._unseen_s[name] = now_s
        return [key for key in written if key.topic in gone]
