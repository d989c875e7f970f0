"""What assignors are told, and what they answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from tidegate.kafka.assignors.java_order import in_map_order
from tidegate.kafka.model import TopicPartition

Partitions = frozenset[TopicPartition]

NO_GENERATION: Final = -1
"""Where a member does not tell one (``AbstractStickyAssignor.DEFAULT_GENERATION``)."""


@dataclass(frozen=True, slots=True)
class Joined:
    """A member as assignors see it.

    ``claimed``: the partitions that it says it has (``MemberData.partitions``); ``claimed_in``: the generation in
    which it got them (``MemberData.generation``). ``joined_from``: the generation that its subscription names
    (``Subscription.generationId``): for cooperative-sticky the same, for sticky, whose claims are in its user data,
    not always. ``instance_id``: ``group.instance.id`` of a static member (KIP-345).
    """

    topics: frozenset[str]
    claimed: Partitions = frozenset()
    claimed_in: int = NO_GENERATION
    joined_from: int = NO_GENERATION
    instance_id: str | None = None


@dataclass(frozen=True, slots=True)
class Assigned:
    """Who is to own what.

    ``shares``: partitions by member id, for every member. ``moving``: those of them that another member still has; in
    a cooperative group Kafka gives them to nobody in this generation (KIP-429).
    """

    shares: Mapping[str, Partitions]
    moving: Partitions = frozenset()


@dataclass(slots=True)
class Claims:
    """The members' claims, each partition to one member at most (``AbstractStickyAssignor.allSubscriptionsEqual``).

    ``kept``: by member id, in Kafka's order of members. ``disputed``: claimed by two of the same generation.
    ``generation``: the newest of all.
    """

    kept: dict[str, set[TopicPartition]] = field(default_factory=dict)
    disputed: set[TopicPartition] = field(default_factory=set)
    generation: int = NO_GENERATION


def claims_of(members: Mapping[str, Joined], counts: Mapping[str, int]) -> Claims:
    """Of two who claim a partition the one of the newer generation has it; of two of the same generation neither.

    Partitions that do not exist are nobody's; Kafka knows only that their topic is there, and then loses count.
    """
    found = Claims()
    claimers: dict[TopicPartition, str] = {}
    for member_id in in_map_order(members):
        member = members[member_id]
        mine = found.kept[member_id] = set[TopicPartition]()
        found.generation = max(found.generation, member.claimed_in)
        for partition in member.claimed:
            if not 0 <= partition.partition < counts.get(partition.topic, 0):
                continue
            other_id = claimers.get(partition)
            if other_id is None:
                mine.add(partition)
                claimers[partition] = member_id
                continue
            # Kafka compares with what the other's subscription says, be its claims in its user data.
            other_generation = members[other_id].joined_from
            if member.claimed_in < other_generation:
                continue
            found.kept[other_id].discard(partition)
            claimers[partition] = member_id
            if member.claimed_in > other_generation:
                mine.add(partition)
            else:
                found.disputed.add(partition)
    return found
