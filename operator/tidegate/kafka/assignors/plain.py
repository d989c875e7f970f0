"""Kafka's assignors that ask nobody what he had: range and roundrobin.

Range goes by racks where members name one and replicas are not in all racks (KIP-881); racks are not told here, so
that members with ``client.rack`` get what they would get without it.
"""

from __future__ import annotations

from collections.abc import Mapping

from tidegate.kafka.assignors.java_order import text_order
from tidegate.kafka.assignors.members import Assigned, Joined
from tidegate.kafka.model import TopicPartition


def assign_ranges(members: Mapping[str, Joined], counts: Mapping[str, int]) -> Assigned:
    """``RangeAssignor``: of each topic, one range of partitions for each member that reads it."""
    shares: dict[str, set[TopicPartition]] = {member_id: set() for member_id in members}
    ordered = _in_order(members)
    for topic, count in counts.items():
        readers = [member_id for member_id in ordered if topic in members[member_id].topics]
        each, more = divmod(count, len(readers)) if readers else (0, 0)
        begin = 0
        for place, member_id in enumerate(readers):
            end = begin + each + (place < more)
            shares[member_id].update(TopicPartition(topic, number) for number in range(begin, end))
            begin = end
    return Assigned({member_id: frozenset(share) for member_id, share in shares.items()})


def assign_in_turns(members: Mapping[str, Joined], counts: Mapping[str, int]) -> Assigned:
    """``RoundRobinAssignor``: all partitions, one after the other, each to the next member that reads its topic."""
    shares: dict[str, set[TopicPartition]] = {member_id: set() for member_id in members}
    ordered = _in_order(members)
    read = frozenset[str]().union(*(member.topics for member in members.values()))
    turn = 0
    for topic in sorted(read & counts.keys(), key=text_order):
        for number in range(counts[topic]):
            while topic not in members[ordered[turn]].topics:
                turn = (turn + 1) % len(ordered)
            shares[ordered[turn]].add(TopicPartition(topic, number))
            turn = (turn + 1) % len(ordered)
    return Assigned({member_id: frozenset(share) for member_id, share in shares.items()})


def _in_order(members: Mapping[str, Joined]) -> list[str]:
    """Static members first, by their instance ids, then the others by their member ids (``MemberInfo.compareTo``)."""

    def place(member_id: str) -> tuple[bool, bytes]:
        instance_id = members[member_id].instance_id
        return instance_id is None, text_order(member_id if instance_id is None else instance_id)

    return sorted(members, key=place)
