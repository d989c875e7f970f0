"""Whether a partition is paused: every combination of holds, owner and acks that matters."""

from __future__ import annotations

import pytest

from tidegate.control.gates import Gates
from tidegate.control.records import Ack, AckKey, Hold, HoldKey
from tidegate.control.standing import Flow, managed_members, standing, standings
from tidegate.kafka.model import Group, GroupState, GroupType, Member, TopicPartition

GROUP = "payments"
ORDERS = TopicPartition("orders", 0)
OTHER = TopicPartition("orders", 1)


def _gates(holds: dict[str, int] | None = None, acks: dict[TopicPartition, Ack] | None = None) -> Gates:
    """``holds``: epochs of the holds on ORDERS, by holder."""
    gates = Gates()
    for holder, epoch in (holds or {}).items():
        gates.take(HoldKey(GROUP, ORDERS.topic, ORDERS.partition, holder), Hold(), epoch)
    gates.acks = {AckKey(GROUP, p.topic, p.partition): (ack,) for p, ack in (acks or {}).items()}
    return gates


def _member(member_id: str, *partitions: TopicPartition) -> Member:
    return Member(member_id, "app", "/10.0.0.1", None, frozenset(partitions))


def _group(
    *members: Member, state: GroupState = GroupState.STABLE, kind: GroupType = GroupType.CLASSIC, name: str = GROUP
) -> Group:
    return Group(name, state, kind, "range", members)


OWNED = _group(_member("m1", ORDERS), _member("m2", OTHER))


def test_a_partition_that_nobody_holds_is_open() -> None:
    acked = Ack(7, 12, "m1")

    seen = standing(_gates(acks={ORDERS: acked}), OWNED, ORDERS)

    assert (seen.flow, seen.epoch, seen.ack, seen.offset) == (Flow.OPEN, None, acked, 12)
    assert not seen.is_paused


@pytest.mark.parametrize("epoch", [40, 41])
def test_it_is_closed_when_its_owner_has_acked_the_hold_or_something_later(epoch: int) -> None:
    seen = standing(_gates({"cli": 40}, {ORDERS: Ack(epoch, 12, "m1")}), OWNED, ORDERS)

    assert (seen.flow, seen.epoch, seen.offset) == (Flow.CLOSED, 40, 12)
    assert seen.owner is not None
    assert seen.owner.member_id == "m1"
    assert seen.is_paused


def test_it_is_closing_while_its_owner_has_acked_only_what_was_before_the_hold() -> None:
    seen = standing(_gates({"cli": 40}, {ORDERS: Ack(39, 12, "m1")}), OWNED, ORDERS)

    assert seen.flow is Flow.CLOSING
    assert not seen.is_paused


def test_an_ack_of_epoch_0_has_obeyed_nothing() -> None:
    """It is what an agent says of an open gate that has found no control record."""
    assert standing(_gates({"cli": 0}, {ORDERS: Ack(0, 12, "m1")}), OWNED, ORDERS).flow is Flow.CLOSING
    assert standing(_gates({"cli": 0}, {ORDERS: Ack(1, 12, "m1")}), OWNED, ORDERS).flow is Flow.CLOSED


def test_the_ack_of_an_earlier_owner_counts_no_more() -> None:
    gates = _gates({"cli": 40}, {ORDERS: Ack(50, 12, "m1"), OTHER: Ack(50, 3, "m2")})

    seen = standing(gates, _group(_member("m1"), _member("m2", ORDERS, OTHER)), ORDERS)

    assert (seen.flow, seen.ack) == (Flow.CLOSING, None)


def test_an_owner_that_was_never_heard_is_unmanaged() -> None:
    gates = _gates({"cli": 40}, {OTHER: Ack(50, 3, "m2")})

    assert standing(gates, OWNED, ORDERS).flow is Flow.UNMANAGED
    assert not standing(gates, OWNED, ORDERS).is_paused


def test_an_owner_that_was_heard_on_another_group_only_is_unmanaged() -> None:
    gates = _gates({"cli": 40})
    gates.acks = {**gates.acks, AckKey("refunds", "orders", 1): (Ack(50, 3, "m1"),)}

    assert standing(gates, OWNED, ORDERS).flow is Flow.UNMANAGED


@pytest.mark.parametrize(
    "group",
    [
        _group(_member("m2", OTHER)),
        _group(state=GroupState.EMPTY),
        _group(state=GroupState.DEAD, kind=GroupType.UNKNOWN),
        _group(_member("m1"), state=GroupState.RECONCILING, kind=GroupType.CONSUMER),
    ],
)
def test_it_is_paused_when_nobody_owns_it(group: Group) -> None:
    seen = standing(_gates({"cli": 40}, {ORDERS: Ack(50, 12, "m1")}), group, ORDERS)

    assert (seen.flow, seen.owner, seen.ack) == (Flow.UNOWNED, None, None)
    assert seen.is_paused


@pytest.mark.parametrize(
    "group",
    [
        _group(_member("m1"), state=GroupState.PREPARING_REBALANCE),
        _group(_member("m1"), state=GroupState.COMPLETING_REBALANCE),
        _group(state=GroupState.UNKNOWN, kind=GroupType.STREAMS),
    ],
)
def test_what_is_hidden_is_never_called_paused(group: Group) -> None:
    seen = standing(_gates({"cli": 40}, {ORDERS: Ack(50, 12, "m1")}), group, ORDERS)

    assert seen.flow is Flow.UNDECIDED
    assert not seen.is_paused


@pytest.mark.parametrize(("acked", "flow"), [(39, Flow.CLOSING), (40, Flow.CLOSED)])
def test_a_consumer_that_assigned_the_partition_itself_is_believed(acked: int, flow: Flow) -> None:
    seen = standing(_gates({"cli": 40}, {ORDERS: Ack(acked, 12, "")}), _group(state=GroupState.EMPTY), ORDERS)

    assert seen.flow is flow


def test_such_a_consumer_does_not_speak_for_a_member_that_owns_the_partition() -> None:
    assert standing(_gates({"cli": 40}, {ORDERS: Ack(50, 12, "")}), OWNED, ORDERS).flow is Flow.UNMANAGED


def test_one_holders_pause_does_not_wait_for_the_acks_of_later_holds() -> None:
    gates = _gates({"cli": 40, "pause/a/b": 60}, {ORDERS: Ack(45, 12, "m1")})

    assert standing(gates, OWNED, ORDERS, epoch=40).flow is Flow.CLOSED
    assert standing(gates, OWNED, ORDERS).flow is Flow.CLOSING
    assert standings(gates, OWNED, [ORDERS], {ORDERS: 60})[ORDERS].flow is Flow.CLOSING


def test_an_owner_that_cannot_tell_its_position_yet_has_none() -> None:
    seen = standing(_gates({"cli": 40}, {ORDERS: Ack(40, -1, "m1")}), OWNED, ORDERS)

    assert (seen.flow, seen.offset) == (Flow.CLOSED, None)


def test_members_that_were_heard_are_told_group_by_group() -> None:
    gates = _gates(acks={ORDERS: Ack(1, 0, "m1"), OTHER: Ack(1, 0, "")})
    gates.acks = {**gates.acks, AckKey("refunds", "orders", 0): (Ack(1, 0, "r1"),)}

    assert managed_members(gates, GROUP) == {"m1"}
