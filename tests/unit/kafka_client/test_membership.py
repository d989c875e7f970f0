"""A join is held from a rebalance that is still under way when it is held: what happens between two requests.

And what members say and are told as they join, as Kafka's own clients write and read it.
"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from tidegate.kafka.model import Group, GroupState, GroupType, Member, Subscription, TopicPartition
from tidegate.kafka_client import group_requests, membership
from tidegate.kafka_client.codes import MEMBER_ID_REQUIRED
from tidegate.kafka_client.consumer_protocol import assignment, subscription
from tidegate.kafka_client.group_descriptions import assigned
from tidegate.kafka_client.membership import KafkaMembership

GROUP = "payments"


class Coordinator:
    """A group of one classic member, and stands for both connections to its coordinator and for who describes it.

    ``ends_before_the_hold``: the rebalance that is under way at the first look is over when a member id is asked for.
    """

    def __init__(self, *, ends_before_the_hold: bool) -> None:
        self.state = GroupState.PREPARING_REBALANCE
        self.pending: set[str] = set()
        self.rebalances = 0
        self._ends = ends_before_the_hold

    def groups(self, group_ids: list[str]) -> dict[str, Group]:
        member = Member("member", "client", "/127.0.0.1", None, frozenset())
        return {g: Group(g, self.state, GroupType.CLASSIC, "", (member,)) for g in group_ids}

    def exchange(self, _group_id: str, request: Callable[[], Any], **_: str) -> list[Any]:
        return [request()]

    def join(self, *_: Any) -> Any:
        if self._ends and not self.pending:
            self.state = GroupState.STABLE
        self.pending.add(f"pending-{len(self.pending)}")
        return SimpleNamespace(error_code=MEMBER_ID_REQUIRED, member_id=max(self.pending))

    def coordinator(self, _group_id: str) -> tuple[int, str, int]:
        return 0, "127.0.0.1", 9092

    def send_join(self, *_: Any) -> None:
        self.rebalances += 1
        self.state = GroupState.PREPARING_REBALANCE

    def leave_members(self, _: Any, _group_id: str, members: list[tuple[str, str | None]]) -> frozenset[str]:
        left = {member_id for member_id, _ in members} & self.pending
        self.pending -= left
        return frozenset(left)


@pytest.mark.parametrize("ends", [True, False])
def test_a_hold_starts_a_rebalance_where_the_one_under_way_has_ended_meanwhile(
    ends: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    coordinator: Any = Coordinator(ends_before_the_hold=ends)
    monkeypatch.setattr(group_requests, "join_request", coordinator.join)
    monkeypatch.setattr(membership, "send_join", coordinator.send_join)
    monkeypatch.setattr(group_requests, "leave_members", coordinator.leave_members)

    with KafkaMembership(coordinator, coordinator, coordinator, lambda: coordinator).hold(GROUP) as hold:
        assert coordinator.state is GroupState.PREPARING_REBALANCE
        assert coordinator.rebalances == ends
        assert len(coordinator.pending) == 1

    assert not hold.lapsed
    assert not coordinator.pending


NOTHING = b"\xff\xff\xff\xff"
ORDERS_1 = b"\x00\x00\x00\x01" + b"\x00\x06orders" + b"\x00\x00\x00\x01" + b"\x00\x00\x00\x01"


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (b"\x00\x00" + b"\x00\x00\x00\x01\x00\x06orders" + NOTHING, Subscription(frozenset({"orders"}))),
        (
            b"\x00\x01" + b"\x00\x00\x00\x01\x00\x06orders" + NOTHING + ORDERS_1,
            Subscription(frozenset({"orders"}), frozenset({TopicPartition("orders", 1)}), version=1),
        ),
        (
            b"\x00\x03" + b"\x00\x00\x00\x01\x00\x06orders" + NOTHING + ORDERS_1 + b"\x00\x00\x00\x07" + b"\xff\xff",
            Subscription(frozenset({"orders"}), frozenset({TopicPartition("orders", 1)}), 7, 3),
        ),
        (
            b"\x00\x01" + b"\x00\x00\x00\x01\x00\x06orders" + NOTHING,
            Subscription(frozenset({"orders"}), version=1),
        ),
        (b"\x00\x03" + b"\x00\x00\x00\x09", Subscription(frozenset(), version=3)),
        (b"", Subscription(frozenset())),
    ],
    ids=["eager", "KIP-429", "KIP-792", "kafka-go", "cut off", "empty"],
)
def test_what_a_member_says_as_it_joins(raw: bytes, expected: Subscription) -> None:
    assert subscription(raw) == expected


@pytest.mark.parametrize(("version", "written"), [(-1, 0), (0, 0), (1, 1), (3, 1)])
def test_an_assignment_has_no_user_data_and_a_version_that_the_member_reads(version: int, written: int) -> None:
    share = {TopicPartition("orders", 1)}

    raw = assignment(share, version)

    assert raw == bytes([0, written]) + ORDERS_1 + NOTHING
    assert assigned(raw) == share
    assert assigned(assignment(frozenset(), version)) == frozenset()


def test_topics_without_a_name_are_left_out_of_a_subscription() -> None:
    """No client sends them, and whoever may join can."""
    named, nameless = b"\x00\x01t", b"\xff\xff"
    numbers = (1).to_bytes(4, "big") + (0).to_bytes(4, "big")
    two = (2).to_bytes(4, "big")
    raw = b"\x00\x01" + two + nameless + named + b"\xff\xff\xff\xff" + two + nameless + numbers + named + numbers
    said = subscription(raw)
    assert (said.topics, said.owned) == (frozenset({"t"}), frozenset({TopicPartition("t", 0)}))
