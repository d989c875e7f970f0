"""A group's assignor by the name of its protocol."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tidegate.kafka.assignors.differing_subscriptions import assign_balanced
from tidegate.kafka.assignors.equal_subscriptions import assign_equally
from tidegate.kafka.assignors.members import NO_GENERATION, Assigned, Joined, claims_of
from tidegate.kafka.assignors.plain import assign_in_turns, assign_ranges
from tidegate.kafka.assignors.user_data import cooperative_generation, sticky_claims
from tidegate.kafka.model import Subscription

RANGE: Final = "range"
ROUND_ROBIN: Final = "roundrobin"
STICKY: Final = "sticky"
COOPERATIVE_STICKY: Final = "cooperative-sticky"

STICKY_ASSIGNORS: Final = frozenset({STICKY, COOPERATIVE_STICKY})
"""Those that go by what members have."""

KAFKAS: Final = STICKY_ASSIGNORS | {RANGE, ROUND_ROBIN}
"""Those of Kafka's own clients, under the same names in most others."""

KAFKAJS: Final = "RoundRobinAssigner"
"""kafkajs's only one. It gives what Kafka's round robin would, if all members read the same topics."""

KNOWN: Final = KAFKAS | {KAFKAJS}
"""The protocols of which we know what the group's own assignor would do."""


def assign(protocol: str, members: Mapping[str, Joined], counts: Mapping[str, int]) -> Assigned:
    """What the assignor of this name (``KNOWN``) gives to each member.

    ``members``: by member id, in the order of the JoinGroup answer, which decides where member ids collide in a hash
    map. ``counts``: partitions by topic; topics without any, and those that are not there, are nobody's.
    """
    read = frozenset[str]().union(*(member.topics for member in members.values()))
    counts = {topic: count for topic, count in counts.items() if count > 0 and topic in read}
    if protocol == RANGE:
        return assign_ranges(members, counts)
    if protocol in (ROUND_ROBIN, KAFKAJS):
        return assign_in_turns(members, counts)
    if protocol not in KNOWN:
        raise ValueError(f"{protocol} is none of the assignors {', '.join(sorted(KNOWN))}")
    if not members:
        return Assigned({})
    claims = claims_of(members, counts)
    if len({member.topics for member in members.values()}) == 1:
        return assign_equally(claims, counts)
    return assign_balanced(members, claims, counts)


def joined(protocol: str, said: Subscription, instance_id: str | None = None) -> Joined:
    """A member as its assignor sees it, by what it said as it joined (``memberData``)."""
    if protocol == STICKY:
        claimed, generation = sticky_claims(said.user_data)
        return Joined(said.topics, claimed, generation, said.generation, instance_id)
    generation = said.generation
    if protocol == COOPERATIVE_STICKY and generation == NO_GENERATION:
        generation = cooperative_generation(said.user_data)
    return Joined(said.topics, said.owned, generation, said.generation, instance_id)
