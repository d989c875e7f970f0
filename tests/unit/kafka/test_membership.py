"""A join is held from a rebalance that is still under way when it is held: what happens between two requests."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from tidegate.kafka.membership import KafkaMembership
from tidegate.kafka.model import Group, GroupState, GroupType, Member
from tidegate.kafka.wire import MEMBER_ID_REQUIRED

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

    def leave_members(self, _group_id: str, members: list[tuple[str, str | None]]) -> frozenset[str]:
        left = {member_id for member_id, _ in members} & self.pending
        self.pending -= left
        return frozenset(left)


@pytest.mark.parametrize("ends", [True, False])
def test_a_hold_starts_a_rebalance_where_the_one_under_way_has_ended_meanwhile(ends: bool) -> None:
    coordinator: Any = Coordinator(ends_before_the_hold=ends)

    with KafkaMembership(coordinator, coordinator, coordinator).hold(GROUP) as hold:
        assert coordinator.state is GroupState.PREPARING_REBALANCE
        assert coordinator.rebalances == ends
        assert len(coordinator.pending) == 1

    assert not hold.lapsed
    assert not coordinator.pending
