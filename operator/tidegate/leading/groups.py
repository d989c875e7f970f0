"""Which classic groups can be led from outside, by what is known of their assignors and clients. Pure."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from tidegate.kafka.assignments import LEADER_CLIENT_ID
from tidegate.kafka.assignors.assignor import KNOWN, RANGE, ROUND_ROBIN, STICKY
from tidegate.kafka.model import Group, GroupType, Member

EAGER_ASSIGNORS: Final = frozenset({RANGE, ROUND_ROBIN, STICKY})
"""Classic assignors under which every member gives up all partitions before it rejoins (librdkafka, Java, Python)."""

LED_ASSIGNORS: Final = KNOWN
"""Assignors whose members take an assignment that holds nothing of the assignor's own."""

KAFKA_GO: Final = "segmentio/kafka-go"
"""In its default client id. A commit that its application asks for while it joins waits for the next generation, in
which it has asked where to begin by then: its next commit corrects it, unless it dies before."""


def is_cooperative(group: Group) -> bool:
    """Whether members may keep their partitions over a classic group's rebalance; those of an unknown assignor may."""
    return group.type is GroupType.CLASSIC and group.assignor not in EAGER_ASSIGNORS


def is_led(group: Group) -> bool:
    """Whether a member of ours leads it for a pause, or may do so."""
    return any(map(_is_ours, group.members))


def without_leader(group: Group) -> Group:
    """The group's own members."""
    return replace(group, members=tuple(m for m in group.members if not _is_ours(m)))


def why_not_calm(group: Group) -> str:
    """Why one with members that name no topic is not led."""
    if is_led(group):
        return (
            f"group {group.group_id} is already led, by a ConsumerGroupPause that names another KafkaConnection or by "
            "another installation: a group can have only one leader"
        )
    return (
        f"some members of group {group.group_id} join with a subscription that names no topic or that Tidegate cannot "
        "read: it would assign nothing to them"
    )


def _is_ours(member: Member) -> bool:
    """Any client may take the name; whoever reads is none of ours."""
    return member.client_id == LEADER_CLIENT_ID and not member.assignment


def unknown_assignor(group: Group) -> str | None:
    """Why what its members are assigned can't be written by us."""
    if group.assignor in LED_ASSIGNORS:
        return None
    return f"Tidegate cannot write the assignments of assignor {group.assignor or 'unknown'}"


def kafka_go_beside_others(group: Group) -> str | None:
    """Who leads changes when a guest comes and goes, and what segmentio's client assigns makes Java, librdkafka and
    kafka-python fail. By default its client id tells it."""
    told = {KAFKA_GO in m.client_id for m in group.members}
    return f"it has {KAFKA_GO} and other clients, which fail when {KAFKA_GO} leads the group" if len(told) > 1 else None
