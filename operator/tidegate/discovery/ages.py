"""When a cluster's partitions were made, by the broker's clock: bounds, from this process's looks and from what others
have written to the control topic."""

from __future__ import annotations

from collections.abc import Collection, Container, Mapping
from dataclasses import dataclass, field
from typing import Final

from tidegate.control.gates import Gates
from tidegate.control.records import PartitionKey, PartitionSeen
from tidegate.discovery.brokertime import BrokerTime
from tidegate.discovery.guard import Guard
from tidegate.discovery.remembered import Untold
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
    come, ``undated``: those that it has seen before it knew the broker's time, and when the look that showed each ended
    and the one that did not began (``None``: there was none). ``written``: what the control topic has."""

    time: BrokerTime | None = None
    previous_clock_ms: int | None = None
    seen: dict[PartitionKey, PartitionSeen] = field(default_factory=dict)
    written: Mapping[PartitionKey, PartitionSeen] = field(default_factory=dict)
    undated: dict[PartitionKey, tuple[float, float | None]] = field(default_factory=dict)

    def note(self, gates: Gates) -> None:
        """What the control topic says."""
        if self.time is None and gates.clock_ms is not None:
            self.previous_clock_ms = gates.clock_ms
        self.written = gates.partitions

    def bounds(self, look: Look, *, just_made: bool) -> PartitionSeen | None:
        """Of a partition that this look shows, and none before if it was ``just_made``.

        ``None`` while the broker's time is not known.
        """
        return self._between(look.at_s, look.before_s if just_made else None)

    def _between(self, at_s: float, before_s: float | None) -> PartitionSeen | None:
        if self.time is None:
            return None
        absent_ms = self.previous_clock_ms if before_s is None else self.time.earliest_ms(before_s)
        return PartitionSeen(self.time.latest_ms(at_s), absent_ms)

    def date_later(self, key: PartitionKey, look: Look, *, just_made: bool) -> None:
        """Of a partition for which there are no bounds yet."""
        self.undated.setdefault(key, (look.at_s, look.before_s if just_made else None))

    def date(self) -> dict[PartitionKey, PartitionSeen]:
        """The broker's time is known now: those that it was not known for, with their bounds."""
        found = {key: self._between(*times) for key, times in self.undated.items()}
        self.undated.clear()
        dated = {key: self.seen.setdefault(key, seen) for key, seen in found.items() if seen is not None}
        return {key: seen for key, seen in dated.items() if key not in self.written}

    def go_on_from(self, earlier: Ages) -> None:
        """What another watch of this process has seen come."""
        self.seen, self.undated = dict(earlier.seen), dict(earlier.undated)

    def untold(self, guard: Guard) -> dict[TopicPartition, PartitionSeen | None]:
        """New partitions of which the control topic does not say yet when they were made, and what it is to say."""
        keys = {partition: guard.key_of(partition) for partition in guard.untold}
        guard.untold = {partition for partition, key in keys.items() if key is not None and key not in self.written}
        return {partition: self.seen.get(key) for partition, key in keys.items() if partition in guard.untold and key}

    def recall(self, guard: Guard, topics: Mapping[str, Topic], untold: Untold, now_s: float) -> None:
        """What an earlier process has not come to tell. ``topics``: those there are, since it is from a ConfigMap. Of
        what has no bounds it is not known how young it is: it was new, so it counts as seen just now."""
        for name, first, last, seen in untold:
            there = topics.get(name)
            for number in range(first, min(last + 1, there.partitions if there is not None else 0)):
                partition = TopicPartition(name, number)
                key = guard.key_of(partition)
                if key is None or there is None or key.topic_id != there.topic_id:
                    continue
                guard.untold.add(partition)
                if seen is not None:
                    self.seen.setdefault(key, seen)
                elif key not in self.seen:
                    self.undated.setdefault(key, (now_s, None))

    def unwritten(
        self, guards: Collection[Guard], topics: Mapping[str, Topic], sizes: Mapping[str, int]
    ) -> dict[PartitionKey, PartitionSeen | None]:
        """What the control topic lacks of what guarded topics have, and what it has of topics that are no more.

        ``topics``: as last seen; ``sizes``: by topic id, the most partitions that any look has shown.
        """
        settled: dict[str, KnownTopic] = {}
        for guard in guards:
            for name, known in guard.state.topics.items() if guard.wish.tells_agents else ():
                topic, most = topics.get(name), settled.get(name)
                is_there = topic is not None and topic.topic_id == known.topic_id
                if is_there and (most is None or known.settled > most.settled):
                    settled[name] = known
        found: dict[PartitionKey, PartitionSeen | None] = {}
        for name, known in settled.items():
            found |= self.lacking(name, known, max(topics[name].partitions, sizes.get(known.topic_id, 0)))
        for key in self.written:
            topic = topics.get(key.topic)
            if topic is not None and topic.topic_id != key.topic_id and not _is_newest(key, guards):
                found[key] = None
        return found

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
        if len(self.undated) > _MANY:
            self.undated = {key: times for key, times in self.undated.items() if key.topic_id in topic_ids}

    def _is_initial(self, key: PartitionKey) -> bool:
        return key in self.written and self.written[key].initial

    def least_ms(self, key: PartitionKey, now_s: float) -> int | None:
        """The partition's age, at least; ``now_s``: by the monotonic clock. ``None``: nothing is known of it."""
        seen = self.written.get(key) or self.seen.get(key)
        if seen is None or seen.seen_ms is None:
            return None
        now_ms = self.previous_clock_ms if self.time is None else self.time.earliest_ms(now_s)
        return None if now_ms is None else now_ms - seen.seen_ms


def _is_newest(key: PartitionKey, guards: Collection[Guard]) -> bool:
    """Whether it is of the newest topic of its name that a guard knows: one that lags may show an older one."""
    known = (guard.state.topics.get(key.topic) for guard in guards)
    return any(topic is not None and topic.topic_id == key.topic_id for topic in known)
