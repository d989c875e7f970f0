"""Requests about groups, and as members of them: ListGroups, DeleteGroups, DescribeGroups, JoinGroup and LeaveGroup
without being a member (KIP-394, KIP-345), Heartbeat, SyncGroup.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final

from kafka.protocol.admin import DeleteGroupsRequest, DescribeGroupsRequest, ListGroupsRequest
from kafka.protocol.consumer import HeartbeatRequest, JoinGroupRequest, LeaveGroupRequest, SyncGroupRequest

from tidegate.kafka.errors import KafkaFailure, Refused
from tidegate.kafka.model import ListedGroup
from tidegate.kafka.rights import on_group
from tidegate.kafka_client.cluster_requests import each_broker
from tidegate.kafka_client.codes import (
    FENCED_INSTANCE_ID,
    GROUP_ID_NOT_FOUND,
    MEMBER_ID_REQUIRED,
    NO_ERROR,
    UNKNOWN_MEMBER_ID,
    check,
)
from tidegate.kafka_client.connections import Answer
from tidegate.kafka_client.wire import Wire, named

_LONGEST_JOIN_S: Final = 900.0
"""How long a coordinator may take to answer a JoinGroup; whoever waits for it decides when to give up."""


def list_groups(wire: Wire) -> tuple[ListedGroup, ...]:
    """Every group the principal may see, whatever uses it; as the brokers list them (ListGroups)."""

    def request(_: int) -> Any:
        return ListGroupsRequest(states_filter=[], types_filter=[])

    answers = each_broker(wire, request, lambda answer: int(answer.error_code), "list the groups")
    return tuple(
        ListedGroup(
            group_id=g.group_id,
            protocol_type=g.protocol_type or "",
            type=str(getattr(g, "group_type", "") or "").lower(),
            state=str(getattr(g, "group_state", "") or ""),
        )
        for answer in answers
        for g in answer.groups
    )


def group_types(wire: Wire) -> Mapping[str, str]:
    """Type (classic, consumer, streams, share) of every group the principal may see, by group id (KIP-848)."""
    return {row.group_id: row.type for row in list_groups(wire)}


def delete_group(wire: Wire, group_id: str) -> None:
    """Forget a group without members (DeleteGroups); one that is not there is none the less gone."""
    what = f"delete group {group_id}"

    def code_of(answer: Any) -> int:
        return int(answer.results[0].error_code)

    [answer] = wire.exchange(group_id, lambda: DeleteGroupsRequest(groups_names=[group_id]), code_of=code_of, what=what)
    if code_of(answer) != GROUP_ID_NOT_FOUND:
        check(code_of(answer), what, on_group("Delete", group_id))


def join_request(group_id: str, member_id: str, protocols: Iterable[str], session_timeout_ms: int) -> Any:
    """A JoinGroup request of a consumer that subscribes to nothing."""
    protocol_class = JoinGroupRequest.JoinGroupRequestProtocol
    # ConsumerProtocolSubscription v0: version, no topics, no user data.
    subscription = b"\x00\x00" + b"\x00\x00\x00\x00" + b"\xff\xff\xff\xff"
    return JoinGroupRequest(
        group_id=group_id,
        session_timeout_ms=session_timeout_ms,
        rebalance_timeout_ms=session_timeout_ms,
        member_id=member_id,
        group_instance_id=None,
        protocol_type="consumer",
        protocols=[protocol_class(name=name, metadata=subscription) for name in protocols],
        min_version=5,
        max_version=5,
    )


def leave_request(group_id: str, members: Iterable[tuple[str, str | None]]) -> Any:
    """A LeaveGroup request for (member id, group instance id) pairs."""
    return LeaveGroupRequest(
        group_id=group_id,
        members=[
            LeaveGroupRequest.MemberIdentity(member_id=member_id, group_instance_id=instance_id)
            for member_id, instance_id in members
        ],
        min_version=3,
        max_version=3,
    )


def leave_members(wire: Wire, group_id: str, identities: Collection[tuple[str, str | None]]) -> frozenset[str]:
    """Leave in members' names, for (member id, group instance id) pairs; the ids that the coordinator knew."""
    what = f"leave group {group_id} in the name of {len(identities)} member(s)"
    [answer] = wire.exchange(group_id, lambda: leave_request(group_id, identities), what=what)
    if answer.error_code == UNKNOWN_MEMBER_ID:
        return frozenset()
    needs = on_group("Read", group_id)
    check(answer.error_code, what, needs)
    left = set()
    for row in answer.members:
        if row.error_code == NO_ERROR:
            left.add(row.member_id)
        elif row.error_code not in (UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID):
            check(row.error_code, f"{what} ({row.member_id})", needs)
    return frozenset(left)


def send_join(
    wire: Wire, node_id: int, group_id: str, member_id: str, protocols: Iterable[str], session_timeout_ms: int
) -> Answer:
    """Join for real, at the coordinator, and do not wait: it answers only when everybody has rejoined.

    Needs a ``Wire`` of its own: a broker reads no further request from a connection until it has answered.
    """
    request = join_request(group_id, member_id, protocols, session_timeout_ms)
    what = f"join group {group_id}"
    return wire.start(node_id, request, what=what, answer_s=_LONGEST_JOIN_S)


def heartbeat(wire: Wire, group_id: str, generation: int, member_id: str) -> int:
    """The error code that the coordinator answers."""
    [answer] = wire.exchange(
        group_id,
        lambda: HeartbeatRequest(
            group_id=group_id,
            generation_id=generation,
            member_id=member_id,
            group_instance_id=None,
            min_version=3,
            max_version=3,
        ),
        what=f"send a heartbeat to group {group_id}",
    )
    return int(answer.error_code)


def sync_as_leader(wire: Wire, group_id: str, generation: int, member_id: str, shares: Mapping[str, bytes]) -> int:
    """SyncGroup with raw assignments by member id; the error code that the coordinator answers."""
    row_class = SyncGroupRequest.SyncGroupRequestAssignment
    [answer] = wire.exchange(
        group_id,
        lambda: SyncGroupRequest(
            group_id=group_id,
            generation_id=generation,
            member_id=member_id,
            group_instance_id=None,
            assignments=[row_class(member_id=member, assignment=raw) for member, raw in shares.items()],
            min_version=3,
            max_version=3,
        ),
        what=f"assign the partitions of group {group_id}",
    )
    return int(answer.error_code)


def subscriptions(wire: Wire, group_id: str) -> Mapping[str, bytes]:
    """Raw subscription by member id of a stable classic group."""
    [answer] = wire.exchange(
        group_id,
        lambda: DescribeGroupsRequest(groups=[group_id], include_authorized_operations=False, max_version=5),
        code_of=lambda answer: int(answer.groups[0].error_code),
        what=f"describe group {group_id}",
    )
    return {m.member_id: bytes(m.member_metadata) for m in answer.groups[0].members if m.member_metadata}


def subscriptions_of(wire: Wire, group_ids: Collection[str]) -> dict[str, dict[str, bytes]]:
    """As :func:`subscriptions`, of many groups in few requests; a group that may not be described tells nothing."""
    rows = wire.of_coordinators(
        group_ids,
        lambda batch: DescribeGroupsRequest(groups=batch, include_authorized_operations=False, max_version=5),
        what=f"read the subscriptions of {named(group_ids)}",
    )
    return {
        group_id: {m.member_id: bytes(m.member_metadata) for m in row.members if m.member_metadata}
        for group_id, row in rows.items()
    }


def pending_member_id(wire: Wire, group_id: str, protocols: Collection[str], session_s: float) -> str:
    """A member id that the coordinator has handed out and now waits for (KIP-394)."""
    [answer] = wire.exchange(
        group_id,
        lambda: join_request(group_id, "", protocols, int(session_s * 1000)),
        what=f"ask for a member id in group {group_id}",
    )
    return _member_id(answer, group_id)


def _member_id(answer: Any, group_id: str) -> str:
    if answer.error_code != MEMBER_ID_REQUIRED:
        check(answer.error_code, f"ask for a member id in group {group_id}")
        raise Refused(f"ask for a member id in group {group_id}: the broker let a member without id join")
    return str(answer.member_id)


def forget_member(wire: Wire, group_id: str, member_id: str) -> bool:
    """Leave with a member id of ours; whether the coordinator is known to have remembered it until then.

    Where it cannot be told to, it forgets the id after its session timeout.
    """
    try:
        return bool(leave_members(wire, group_id, [(member_id, None)]))
    except KafkaFailure:
        return False
