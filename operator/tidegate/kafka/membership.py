"""Joining without staying and leaving in a member's name (KIP-394, KIP-345): how owners are made to let go."""

from __future__ import annotations

import contextlib
import struct
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from kafka.protocol.consumer.metadata import ConsumerProtocolSubscription

from tidegate.kafka.errors import KafkaFailure, Refused, Unavailable
from tidegate.kafka.model import Group, GroupState, GroupType, Member, TopicPartition
from tidegate.kafka.ports import ClusterReader
from tidegate.kafka.wire import MEMBER_ID_REQUIRED, Wire, check

PENDING_SESSION_S: Final = 8.0
"""Session timeout of the member ids we hold a join with: after our death the group waits no longer than this.

Above the broker's default ``group.min.session.timeout.ms`` of 6 s, below the 15 s that nobody shall wait."""

RENEW_EVERY_S: Final = PENDING_SESSION_S / 3
_ASSIGNORS: Final = ("range", "roundrobin", "sticky", "cooperative-sticky")
"""Offered when we join: the coordinator wants one that all members support, and hides the chosen one in a rebalance."""

_REBALANCE_SEEN_S: Final = 5.0
_LOOK_EVERY_S: Final = 0.005


class KafkaMembership:
    """Implements ``tidegate.kafka.ports.Membership``. ``joiner`` must not be used for anything else."""

    def __init__(self, wire: Wire, joiner: Wire, reader: ClusterReader) -> None:
        self._wire = wire
        self._joiner = joiner
        self._reader = reader

    def leave(self, group_id: str, members: Iterable[Member]) -> frozenset[str]:
        wanted = [(m.member_id, m.group_instance_id) for m in members]
        return self._wire.leave_members(group_id, wanted) if wanted else frozenset()

    def owned_when_joining(self, group_id: str, *, dated: bool = False) -> Mapping[str, frozenset[TopicPartition]]:
        subscriptions = self._wire.subscriptions(group_id)
        return {member: _owned(raw, dated=dated) for member, raw in subscriptions.items()}

    def subscription_versions(self, group_id: str) -> Mapping[str, int]:
        subscriptions = self._wire.subscriptions(group_id)
        return {member: int.from_bytes(raw[:2], "big", signed=True) for member, raw in subscriptions.items()}

    def rebalance(self, group_id: str) -> None:
        self._start_rebalance(self._classic(group_id))

    @contextlib.contextmanager
    def hold(self, group_id: str, *, rebalance: bool = True, assignor: str = "") -> Iterator[KafkaJoinHold]:
        group = self._classic(group_id)
        if not group.assignor:
            group = replace(group, assignor=assignor)
        hold = KafkaJoinHold(self._wire, self._reader, group_id, _protocols(group))
        try:
            # One that is under way will do: perhaps a predecessor of ours began it. Until the id is out it may end at
            # any time, so only a look after that counts.
            if rebalance and self._state(group_id) is not GroupState.PREPARING_REBALANCE:
                self._start_rebalance(group)
            yield hold
        finally:
            hold.release()

    def _state(self, group_id: str) -> GroupState:
        return self._reader.groups([group_id])[group_id].state

    def _classic(self, group_id: str) -> Group:
        group = self._reader.groups([group_id])[group_id]
        if group.type is not GroupType.CLASSIC or not group.has_members:
            raise Refused(
                f"group {group_id} is {group.state} of type {group.type}: only a classic group with members can be "
                "rebalanced"
            )
        return group

    def _start_rebalance(self, group: Group) -> None:
        """One rebalance: a member joins, which makes everybody rejoin, and is gone before they have.

        Facts X3r/XH: the group stays in PreparingRebalance until all its own members have rejoined.
        """
        guest = pending_member_id(self._wire, group.group_id, _protocols(group))
        try:
            coordinator, _, _ = self._wire.coordinator(group.group_id)
            session_ms = int(PENDING_SESSION_S * 1000)
            self._joiner.send_join(coordinator, group.group_id, guest, _protocols(group), session_ms)
            deadline = time.monotonic() + _REBALANCE_SEEN_S
            while self._state(group.group_id) is not GroupState.PREPARING_REBALANCE:
                if time.monotonic() > deadline:
                    raise Unavailable(f"group {group.group_id} did not begin to rebalance within {_REBALANCE_SEEN_S} s")
                time.sleep(_LOOK_EVERY_S)
        finally:
            _forget(self._wire, group.group_id, guest)


class KafkaJoinHold:
    """Implements ``tidegate.kafka.ports.JoinHold`` with a pending member id: the join waits for it to come."""

    def __init__(self, wire: Wire, reader: ClusterReader, group_id: str, protocols: Collection[str]) -> None:
        self._wire = wire
        self._reader = reader
        self._group_id = group_id
        self._protocols = protocols
        self._pending: str | None = pending_member_id(wire, group_id, protocols)
        self._renewed = time.monotonic()
        self._lapsed = False

    @property
    def lapsed(self) -> bool:
        return self._lapsed

    def keep(self) -> None:
        if self._pending is None or time.monotonic() - self._renewed < RENEW_EVERY_S:
            return
        # The new id before the old one goes: at no moment is the join unheld.
        old, self._pending = self._pending, pending_member_id(self._wire, self._group_id, self._protocols)
        self._renewed = time.monotonic()
        self._let_go_of(old)

    def blink(self) -> bool:
        # To leave with a pending id once the join is over would start another rebalance, so there must be none then:
        # the next id is asked for only if the join is still waiting. An owner that commits an old offset and comes
        # back in the few milliseconds between is found by reading the offsets back.
        self.release()
        if self._reader.groups([self._group_id])[self._group_id].state is not GroupState.PREPARING_REBALANCE:
            return True
        self._pending = pending_member_id(self._wire, self._group_id, self._protocols)
        self._renewed = time.monotonic()
        return False

    def release(self) -> None:
        if self._pending is not None:
            held, self._pending = self._pending, None
            self._let_go_of(held)

    def _let_go_of(self, member_id: str) -> None:
        self._lapsed |= not _forget(self._wire, self._group_id, member_id)


def _owned(raw: bytes, *, dated: bool) -> frozenset[TopicPartition]:
    """``ownedPartitions`` of a member's subscription; none where it tells none, or no client could read it."""
    try:
        subscription = ConsumerProtocolSubscription.decode(raw)
        if dated and subscription.generation_id < 0:
            return frozenset()
        told = subscription.owned_partitions or ()
        return frozenset(TopicPartition(row.topic, number) for row in told for number in row.partitions)
    except (ValueError, TypeError, IndexError, struct.error):
        return frozenset()


def _protocols(group: Group) -> list[str]:
    return list(dict.fromkeys([*([group.assignor] if group.assignor else []), *_ASSIGNORS]))


def pending_member_id(wire: Wire, group_id: str, protocols: Collection[str]) -> str:
    """A member id that the coordinator has handed out and now waits for (KIP-394)."""
    [answer] = wire.exchange(
        group_id,
        lambda: wire.join(group_id, "", protocols, int(PENDING_SESSION_S * 1000)),
        what=f"ask for a member id in group {group_id}",
    )
    return _member_id(answer, group_id)


def _member_id(answer: Any, group_id: str) -> str:
    if answer.error_code != MEMBER_ID_REQUIRED:
        check(answer.error_code, f"ask for a member id in group {group_id}")
        raise Refused(f"ask for a member id in group {group_id}: the broker let a member without id join")
    return str(answer.member_id)


def _forget(wire: Wire, group_id: str, member_id: str) -> bool:
    """Leave with a member id of ours; whether the coordinator is known to have remembered it until then.

    Where it cannot be told to, it forgets the id after its session timeout.
    """
    try:
        return bool(wire.leave_members(group_id, [(member_id, None)]))
    except KafkaFailure:
        return False
