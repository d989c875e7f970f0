"""Who gets what in a generation that Tidegate leads for a pause. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from tidegate.kafka.assignments import claimed, not_held_by_others
from tidegate.kafka.model import Generation, Seat, Subscription, Topic, TopicPartition
from tidegate.leading.groups import EAGER_ASSIGNORS

Shares = Mapping[str, frozenset[TopicPartition]]


def given_now(protocol: str, shares: Shares, subscriptions: Mapping[str, Subscription]) -> Shares:
    """What of ``shares`` may be given in this generation: in a cooperative group nothing that another still has."""
    return shares if protocol in EAGER_ASSIGNORS else not_held_by_others(shares, subscriptions)


def still_named(seat: Seat, generation: Generation) -> frozenset[TopicPartition]:
    """What members of a cooperative group named as their own as they joined; in an eager one they had given up all."""
    return frozenset() if seat.assignor in EAGER_ASSIGNORS else claimed(generation.subscriptions)


def read_by(subscriptions: Mapping[str, Subscription], topics: Mapping[str, Topic]) -> frozenset[TopicPartition]:
    """All partitions of the topics that members subscribe to."""
    names = {name for said in subscriptions.values() for name in said.topics}
    return frozenset(p for name in names & topics.keys() for p in topics[name].all_partitions())
