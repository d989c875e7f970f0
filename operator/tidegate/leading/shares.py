"""Who gets what in a generation that Tidegate leads for a pause. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from tidegate.kafka.assignments import not_held_by_others
from tidegate.kafka.model import Subscription, Topic, TopicPartition
from tidegate.leading.groups import EAGER_ASSIGNORS

Shares = Mapping[str, frozenset[TopicPartition]]


def given_now(protocol: str, shares: Shares, subscriptions: Mapping[str, Subscription]) -> Shares:
    """What of ``shares`` may be given in this generation: in a cooperative group nothing that another still has."""
    return shares if protocol in EAGER_ASSIGNORS else not_held_by_others(shares, subscriptions)


def read_by(subscriptions: Mapping[str, Subscription], topics: Mapping[str, Topic]) -> frozenset[TopicPartition]:
    """All partitions of the topics that members subscribe to."""
    names = {name for said in subscriptions.values() for name in said.topics}
    return frozenset(p for name in names & topics.keys() for p in topics[name].all_partitions())
