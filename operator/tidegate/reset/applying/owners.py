"""Who may act on partitions: one look at a group, for whoever makes its owners let go or relies on there being none."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from tidegate.cluster import Kafka
from tidegate.kafka.model import Group, GroupState, TopicPartition
from tidegate.leading.groups import is_cooperative


def look(kafka: Kafka, group_id: str, partitions: Collection[TopicPartition]) -> Group:
    """The group, with each of the partitions at the member that may still commit it.

    In a cooperative group a partition that moves is nobody's for a generation: its owner learns at the end of the
    rebalance that it has to give it up, and does so when its application next polls, with a last commit.
    """
    group = kafka.groups([group_id])[group_id]
    if group.state is not GroupState.STABLE or not is_cooperative(group):
        return group
    unowned = frozenset(p for p in partitions if group.owner(p) is None)
    if not unowned:
        return group
    had = kafka.membership.owned_when_joining(group_id)
    none = frozenset[TopicPartition]()
    members = (replace(m, assignment=m.assignment | had.get(m.member_id, none) & unowned) for m in group.members)
    return replace(group, members=tuple(members))
