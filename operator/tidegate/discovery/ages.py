"""When a cluster's partitions were made, by the broker's clock: bounds, from this process's looks and from what others
have written to the control topic."""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass, field
from typing import Final

from tidegate.control.gates import Gates
from tidegate.control.records import PartitionKey, PartitionSeen
from tidegate.discovery.brokertime import BrokerTime
from tidegate.discovery.state import KnownTopic
from tidegate.kafka.model import Topic, TopicPartition

_MANY: Final = 10_000
"""Partitions seen to come, of which those of topics that are gone are not kept."""


@dataclass(frozen=True, slots=True)
class Look:
    """When a look ended; how many partitions all looks before it had shown, by topic id; when the one before began
    (``None``: there was none for the same topics)."""

    at_s: float
    before: Mapping[str, int]
    before_s: float | None

    def shows_the_making_of(self, partition: TopicPartition, topics: Mapping[str, Topic]) -> bool:
        """Whether no look before had shown it."""
        if self.before_s is None:
            return False
        return partition.partition >= self.before.get(topics[partition.topic].topic_id, 0)

    def shows_first(self, partition: TopicPartition, topics: Mapping[str, Topic]) -> bool:
        """Whether no look before had shown any partition of its topic."""
        return topics[partition.topic].topic_id not in self.before


@dataclass(slots=True)
class Ages:
    """``time``: the broker's, once a clock record was written. ``previous_clock_ms``: the last clock record of whoever
    watched before, until which nothing was overlooked. ``seen``: when partitions were made that this process has seen
    come; ``written``: what the control topic has."""

    time: BrokerTime | None = None
    previous_clock_ms: int | None = None
    seen: dict[PartitionKey, PartitionSeen] = field(default_factory=dict)
    written: Mapping[PartitionKey, PartitionSeen] = field(default_factory=dict)

    def note(self, gates: Gates) -> None:
        """What the control topic says."""
        if self.time is None and gates.clock_ms is not None:
            self.previous_clock_ms = gates.clock_ms
        self.written = gates.partitions

    def bounds(self, look: Look, *, just_made: bool) -> PartitionSeen | None:
        """Of a partition that this look shows, and none before if it was ``just_made``.

        ``None`` while the broker's time is not known.
        """
        if self.time is None:
            return None
        absent_ms = self.previous_clock_ms
        if just_made and look.before_s is not None:
            absent_ms = self.time.earliest_ms(look.before_s)
        return PartitionSeen(self.time.latest_ms(look.at_s), absent_ms)

    def lacking(self, topic: str, known: KnownTopic, partitions: int) -> dict[PartitionKey, PartitionSeen]:
        """What the control topic has to be told of a topic's settled partitions. ``partitions``: how many it has, since
        what is settled comes from a ConfigMap, which may say anything.

        Of those that were there at first the highest stands for all below it: every agent reads every record, and a
        cluster may have ten and more times as many partitions as topics.
        """
        keys = [PartitionKey(topic, known.topic_id, number) for number in range(min(known.settled, partitions))]
        untold = [key for key in keys if key not in self.written]
        told = {key: self.seen[key] for key in untold if key in self.seen}
        first = [key for key in untold if key not in told]
        if first and not any(self._is_initial(key) for key in keys[first[-1].partition :]):
            told[first[-1]] = PartitionSeen(initial=True)
        return told

    def forget_others(self, topic_ids: Container[str]) -> None:
        """Of topics that nobody remembers there is nothing to tell."""
        if len(self.seen) > _MANY:
            self.seen = {key: seen for key, seen in self.seen.items() if key.topic_id in topic_ids}

    def _is_initial(self, key: PartitionKey) -> bool:
        return key in self.written and self.written[key].initial

    def least_ms(self, key: PartitionKey, now_s: float) -> int | None:
        """The partition's age, at least; ``now_s``: by the monotonic clock. ``None``: nothing is known of it."""
        seen = self.written.get(key) or self.seen.get(key)
        if seen is None or seen.seen_ms is None:
            return None
        now_ms = self.previous_clock_ms if self.time is None else self.time.earliest_ms(now_s)
        return None if now_ms is None else now_ms - seen.seen_ms
