"""What a policy knows of its topics' partitions, and which of those it finds are new (FLIP-288). Pure.

Flink's enumerator keeps, for each partition, whether it was there at the first discovery (``unassignedInitial``: it
begins as the application says) or is taken care of (``assigned``), and whether a first discovery there was at all, for
one that found nothing is not the same as none. Kafka's partition numbers only grow, so two numbers a topic say nearly
as much: those below ``initial`` were there first, those below ``settled`` are taken care of. The few that are taken
care of above one that is not are named. A topic that was removed and made anew is another topic, by its id (KIP-516).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, Self

from tidegate.kafka.model import Topic, TopicPartition

_MOST_BEFORE: Final = 5


@dataclass(frozen=True, slots=True)
class KnownTopic:
    """``initial``: how many partitions were there at the first discovery. ``settled``: all below it are taken care of.

    ``before``: the ids of the topics of this name that were removed, the newest few; a broker that lags may still show
    one of them.
    ``above``: numbers above ``settled`` that are taken care of: their owners have begun where they should, and must not
    be sent back because of one below.
    """

    topic_id: str
    initial: int
    settled: int
    before: tuple[str, ...] = ()
    above: frozenset[int] = frozenset()

    def is_before(self, topic_id: str) -> bool:
        """Whether a topic of the name had this id before."""
        return topic_id in self.before

    def made_anew(self, topic_id: str) -> Self:
        """Another one took its name."""
        return type(self)(topic_id, 0, 0, before=(*self.before, self.topic_id)[-_MOST_BEFORE:])

    @property
    def known(self) -> int:
        """How many partitions it had, as far as any of them was taken care of."""
        return max(self.settled, *(number + 1 for number in self.above)) if self.above else self.settled

    def is_settled(self, number: int) -> bool:
        """Whether the partition is taken care of."""
        return number < self.settled or number in self.above

    def settle(self, numbers: Collection[int]) -> Self:
        """These are taken care of as well."""
        above, settled = self.above.union(numbers), self.settled
        while settled in above:
            settled += 1
        return replace(self, settled=settled, above=frozenset(number for number in above if number > settled))


@dataclass(frozen=True, slots=True)
class DiscoveryState:
    """Survives a restart in the policy's memory. ``topics`` by name, with those that were removed meanwhile. ``gone``:
    of those that were not seen, or not asked for, for long, how many partitions were known, by topic id."""

    initial_discovery_finished: bool = False
    topics: Mapping[str, KnownTopic] = field(default_factory=dict)
    gone: Mapping[str, int] = field(default_factory=dict)

    def is_initial(self, partition: TopicPartition) -> bool:
        """Whether it was there at the first discovery; not so for what this policy does not know."""
        known = self.topics.get(partition.topic)
        return known is not None and partition.partition < known.initial


@dataclass(frozen=True, slots=True)
class Discovered:
    """One look's outcome. ``new``: partitions that came after the first discovery and are not settled, sorted."""

    state: DiscoveryState
    new: tuple[TopicPartition, ...] = ()


def discover(state: DiscoveryState, seen: Mapping[str, Topic], existed: Mapping[str, int]) -> Discovered:
    """What a look at all guarded topics tells.

    ``existed`` says by topic id how many partitions there were before the policy asked for the topic (which may have
    long been there): they are initial, and so is every partition that the first look shows. A look that shows fewer
    partitions, no topic, or the one before is a broker's that lags behind: nothing is taken back, and what it does not
    show yet of those that existed is none the newer.
    """
    first = not state.initial_discovery_finished
    topics, gone = dict(state.topics), dict(state.gone)
    new: list[TopicPartition] = []
    for name, topic in seen.items():
        known = topics.get(name)
        if first or known is None:
            before = max(existed.get(topic.topic_id, 0), gone.pop(topic.topic_id, 0))
            initial = max(before, topic.partitions if first else 0)
            known = KnownTopic(topic.topic_id, initial, initial)
        elif known.is_before(topic.topic_id):
            continue
        elif known.topic_id != topic.topic_id:
            known = known.made_anew(topic.topic_id)
        topics[name] = known
        unsettled = (number for number in range(known.settled, topic.partitions) if not known.is_settled(number))
        new += [TopicPartition(name, number) for number in unsettled]
    return Discovered(DiscoveryState(True, topics, gone), tuple(sorted(new)))


def grown(sizes: Mapping[str, int], seen: Mapping[str, Topic]) -> dict[str, int]:
    """How many partitions there are, by topic id: what was known and what a look shows.

    Kafka never takes a partition away, so a look that shows fewer is a broker's that lags behind. Of topics that it
    does not show, the newest are remembered.
    """
    there = {t.topic_id: max(t.partitions, sizes.get(t.topic_id, 0)) for t in seen.values()}
    unseen = [(topic_id, size) for topic_id, size in sizes.items() if topic_id not in there]
    return {**dict(unseen[-_MOST_UNSEEN:]), **there}


_MOST_UNSEEN: Final = 50_000
"""More than brokers hide at a time: a cluster may make and remove topics all the time."""

_MOST_GONE: Final = 1000
"""Of so many topics it is remembered what they had: a cluster may make and remove topics all the time."""

_TOPIC_BYTES: Final = 60
_PARTITION_BYTES: Final = 43
"""Of a topic, and of a partition with three replicas, in an answer to Metadata v12."""
_MOST_BYTES_PER_S: Final = 1_048_576


def least_interval_s(topics: Collection[Topic]) -> float:
    """The shortest time between two looks at so many partitions: what they are told by then is 1 MiB a second.

    Below 4,500 partitions that is less than the 200 ms that policies ask for unless they say otherwise; 50,000 take the
    brokers 40 ms of CPU a look, and the network 2.4 MB.
    """
    told = sum(_TOPIC_BYTES + _PARTITION_BYTES * topic.partitions for topic in topics)
    return told / _MOST_BYTES_PER_S


def settle(state: DiscoveryState, partitions: Collection[TopicPartition]) -> DiscoveryState:
    """These new partitions are taken care of."""
    topics = dict(state.topics)
    for name in {p.topic for p in partitions} & topics.keys():
        topics[name] = topics[name].settle([p.partition for p in partitions if p.topic == name])
    return replace(state, topics=topics)


def without(state: DiscoveryState, names: Collection[str]) -> DiscoveryState:
    """Forget topics that have been gone for long: one that comes under such a name is new. What was known of it is old,
    should it be there again: it may only not have been seen, as brokers hide a topic that may not be described."""
    gone = {**state.gone, **{state.topics[name].topic_id: state.topics[name].known for name in names}}
    newest = dict(list(gone.items())[-_MOST_GONE:])
    return replace(state, topics={name: k for name, k in state.topics.items() if name not in names}, gone=newest)
