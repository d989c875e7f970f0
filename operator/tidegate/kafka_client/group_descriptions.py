"""What coordinators tell of groups (ConsumerGroupDescribe, DescribeGroups), as Kafka's admin client puts it together.

``org.apache.kafka.clients.admin.internals.DescribeConsumerGroupsHandler``: a coordinator that knows the consumer
protocol is asked for groups of that first, and those that are none are described as classic groups.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final

from kafka.protocol.admin import DescribeGroupsRequest
from kafka.protocol.consumer.metadata import ConsumerProtocolAssignment

from tidegate.kafka.errors import Refused
from tidegate.kafka.model import Group, GroupState, GroupType, ListedGroup, Member, TopicPartition
from tidegate.kafka.rights import on_group
from tidegate.kafka_client.codes import GROUP_ID_NOT_FOUND, check
from tidegate.kafka_client.consumer_group_describe import ConsumerGroupDescribeRequest
from tidegate.kafka_client.wire import Wire

_UNSUPPORTED_VERSION: Final = 35
_NOT_OF_THE_CONSUMER_PROTOCOL: Final = frozenset({GROUP_ID_NOT_FOUND, _UNSUPPORTED_VERSION})
_CONSUMER_GROUP_DESCRIBE: Final = 69
"""Its API key."""
_CLASSIC_VERSION: Final = 5
"""Of DescribeGroups: from the next one on an unknown group is an error, no dead one."""
_CONSUMERS: Final = "consumer"
"""``ConsumerProtocol.PROTOCOL_TYPE``"""


def describe_groups(wire: Wire, group_ids: Collection[str]) -> dict[str, Group]:
    """A group nobody knows is ``DEAD``. Raises ``Refused`` for groups of others than consumers."""
    described = _of_the_consumer_protocol(wire, group_ids)
    groups = {group_id: _group(row) for group_id, row in described.items()}
    left = [group_id for group_id in group_ids if group_id not in groups]
    return groups | {group_id: _classic(row) for group_id, row in _as_classic(wire, left).items()}


def target_assignments(wire: Wire, group_id: str) -> dict[str, frozenset[TopicPartition]]:
    """By member id, what a KIP-848 coordinator means each member to own; nothing for other groups."""
    return {
        member.member_id: _partitions(member.target_assignment)
        for row in _of_the_consumer_protocol(wire, [group_id]).values()
        for member in row.members
    }


def alive_by_listing(groups: Mapping[str, Group], listed: Iterable[ListedGroup]) -> dict[str, Group]:
    """Those that are described as dead and listed all the same: their kind cannot be described this way, so all that is
    known of them is that they are there.

    Brokers before 3.8 list groups without their kind: what they list as alive there is a KIP-848 group of 3.7's early
    access, which has no ConsumerGroupDescribe.
    """
    dead = {group_id for group_id, group in groups.items() if group.state is GroupState.DEAD}
    kinds = {row.group_id: _kind(row) for row in listed if row.group_id in dead}
    return {group_id: Group(group_id, GroupState.UNKNOWN, kind) for group_id, kind in kinds.items() if kind is not None}


def _kind(row: ListedGroup) -> GroupType | None:
    if row.type in (GroupType.STREAMS, GroupType.SHARE):
        return GroupType(row.type)
    hidden = not row.type and row.protocol_type == _CONSUMERS and row.state.lower() not in ("", "empty", "dead")
    return GroupType.CONSUMER if hidden else None


def _of_the_consumer_protocol(wire: Wire, group_ids: Collection[str]) -> dict[str, Any]:
    if not group_ids or not wire.supports(_CONSUMER_GROUP_DESCRIBE):
        return {}
    rows = wire.of_coordinators(
        group_ids,
        lambda batch: ConsumerGroupDescribeRequest(group_ids=batch, include_authorized_operations=False),
        what=_what(group_ids),
    )
    found = {group_id: row for group_id, row in rows.items() if row.error_code not in _NOT_OF_THE_CONSUMER_PROTOCOL}
    _check(found)
    return found


def _as_classic(wire: Wire, group_ids: Collection[str]) -> dict[str, Any]:
    if not group_ids:
        return {}
    rows = wire.of_coordinators(
        group_ids,
        lambda batch: DescribeGroupsRequest(
            groups=batch, include_authorized_operations=False, max_version=_CLASSIC_VERSION
        ),
        what=_what(group_ids),
    )
    _check(rows)
    return rows


def _check(rows: Mapping[str, Any]) -> None:
    for group_id, row in rows.items():
        check(row.error_code, f"describe group {group_id}", on_group("Describe", group_id))


def _what(group_ids: Collection[str]) -> str:
    return f"describe group {next(iter(group_ids))}" if len(group_ids) == 1 else f"describe {len(group_ids)} groups"


def _group(row: Any) -> Group:
    members = tuple(
        Member(m.member_id, m.client_id, m.client_host, m.instance_id or None, _partitions(m.assignment))
        for m in row.members
    )
    return Group(row.group_id, _state(row.group_state), GroupType.CONSUMER, row.assignor_name, members)


def _partitions(assignment: Any) -> frozenset[TopicPartition]:
    return frozenset(
        TopicPartition(topic.topic_name, number) for topic in assignment.topic_partitions for number in topic.partitions
    )


def _classic(row: Any) -> Group:
    if row.protocol_type not in ("", _CONSUMERS):
        raise Refused(f"describe group {row.group_id}: its members are no consumers ({row.protocol_type})")
    members = tuple(
        Member(m.member_id, m.client_id, m.client_host, m.group_instance_id or None, assigned(m.member_assignment))
        for m in row.members
    )
    kind = GroupType.CLASSIC if row.protocol_type or members else GroupType.SIMPLE
    return Group(row.group_id, _state(row.group_state), kind, row.protocol_data, members)


_STATES: Final = {state.value: state for state in GroupState}


def _state(name: str) -> GroupState:
    return _STATES.get(name, GroupState.UNKNOWN)


def assigned(raw: bytes) -> frozenset[TopicPartition]:
    """A classic member's partitions out of ``ConsumerProtocolAssignment``: the group's leader wrote it, any client.

    Nothing where it cannot be read, or is not told, as during a rebalance.
    """
    try:
        topics = ConsumerProtocolAssignment.decode(bytes(raw)).assigned_partitions
        return frozenset(TopicPartition(t.topic, n) for t in topics or () if t.topic for n in t.partitions or ())
    except (ValueError, TypeError, IndexError, struct.error):
        return frozenset()
