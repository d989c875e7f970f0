"""Joining to leave, or to lead, and leaving in a member's name (KIP-394, KIP-345): how owners are made to let go."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Final

from tidegate.kafka.assignors.assignor import COOPERATIVE_STICKY, KAFKAJS, RANGE, ROUND_ROBIN, STICKY
from tidegate.kafka.errors import GroupNotLive, Unavailable
from tidegate.kafka.model import Generation, Group, GroupState, GroupType, Member, Seat, Subscription, TopicPartition
from tidegate.kafka.ports import ClusterReader
from tidegate.kafka.rights import on_group
from tidegate.kafka_client.codes import (
    ILLEGAL_GENERATION,
    REBALANCE_IN_PROGRESS,
    UNKNOWN_MEMBER_ID,
    check,
)
from tidegate.kafka_client.connections import Answer
from tidegate.kafka_client.consumer_protocol import assignment, subscription
from tidegate.kafka_client.group_requests import (
    forget_member,
    heartbeat,
    leave_members,
    pending_member_id,
    send_join,
    subscriptions,
    sync_as_leader,
)
from tidegate.kafka_client.seated_guest import KafkaSeatedGuest
from tidegate.kafka_client.wire import Wire

PENDING_SESSION_S: Final = 8.0
"""Session timeout of the member ids we hold a join with, and of guests: after our death the group waits no longer than
this.

Above the broker's default ``group.min.session.timeout.ms`` of 6 s, below the 15 s that nobody shall wait."""

RENEW_EVERY_S: Final = PENDING_SESSION_S / 3
_ASSIGNORS: Final = (RANGE, ROUND_ROBIN, STICKY, COOPERATIVE_STICKY, KAFKAJS)
"""Offered when we join: the coordinator wants one that all members support, and hides the chosen one in a rebalance."""

_REBALANCE_SEEN_S: Final = 5.0
_LOOK_EVERY_S: Final = 0.005


class KafkaMembership:
    """Implements ``tidegate.kafka.ports.Membership``. ``joiner`` must not be used for anything else."""

    def __init__(
        self,
        wire: Wire,
        joiner: Wire,
        reader: ClusterReader,
        new_wire: Callable[[], Wire],
        new_leader: Callable[[], Wire] | None = None,
    ) -> None:
        """``new_wire``, ``new_leader``: connections for a guest that comes for moments, and for one that stays."""
        self._new_leader = new_leader or new_wire
        self._wire = wire
        self._joiner = joiner
        self._reader = reader
        self._new_wire = new_wire

    def leave(self, group_id: str, members: Iterable[Member]) -> frozenset[str]:
        wanted = [(m.member_id, m.group_instance_id) for m in members]
        return leave_members(self._wire, group_id, wanted) if wanted else frozenset()

    def owned_when_joining(self, group_id: str, *, dated: bool = False) -> Mapping[str, frozenset[TopicPartition]]:
        none = frozenset[TopicPartition]()
        told = self._subscriptions(group_id)
        return {member: none if dated and said.generation < 0 else said.owned for member, said in told.items()}

    def subscription_versions(self, group_id: str) -> Mapping[str, int]:
        return {member: said.version for member, said in self._subscriptions(group_id).items()}

    def guests(self, group_id: str) -> frozenset[str]:
        return frozenset(member for member, said in self._subscriptions(group_id).items() if not said.topics)

    def _subscriptions(self, group_id: str) -> dict[str, Subscription]:
        return {member: subscription(raw) for member, raw in subscriptions(self._wire, group_id).items()}

    @contextlib.contextmanager
    def guest(self, group_id: str) -> Iterator[KafkaGuest]:
        protocols = _protocols(self._classic(group_id))
        joiner = self._new_wire()
        try:
            # Connected before anybody is disturbed.
            coordinator, _, _ = joiner.coordinator(group_id)
            guest = KafkaGuest(self._wire, joiner, coordinator, group_id, protocols)
            try:
                yield guest
            finally:
                guest.leave()
        finally:
            joiner.close()

    @contextlib.contextmanager
    def seat(self, group_id: str, session_s: float, known: Seat | None = None) -> Iterator[KafkaSeatedGuest]:
        if known is None:
            protocols = _protocols(self._classic(group_id))
        else:
            protocols = list(dict.fromkeys([known.assignor, *_ASSIGNORS]))
        joiner = self._new_leader()
        try:
            joiner.coordinator(group_id)
            yield KafkaSeatedGuest(self._wire, joiner, group_id, protocols, session_s, known, self._said_in)
        finally:
            joiner.close()

    def _said_in(self, group_id: str) -> Mapping[str, Subscription] | None:
        return self._subscriptions(group_id) if self._state(group_id) is GroupState.STABLE else None

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
            raise GroupNotLive(
                f"group {group_id} is {group.state} of type {group.type}: only a classic group with members can be "
                "rebalanced"
            )
        return group

    def _start_rebalance(self, group: Group) -> None:
        """One rebalance: a member joins, which makes everybody rejoin, and is gone before they have.

        The group stays in PreparingRebalance until all its own members have rejoined.
        """
        guest = _pending_id(self._wire, group.group_id, _protocols(group))
        try:
            coordinator, _, _ = self._wire.coordinator(group.group_id)
            session_ms = int(PENDING_SESSION_S * 1000)
            send_join(self._joiner, coordinator, group.group_id, guest, _protocols(group), session_ms)
            deadline = time.monotonic() + _REBALANCE_SEEN_S
            while self._state(group.group_id) is not GroupState.PREPARING_REBALANCE:
                if time.monotonic() > deadline:
                    raise Unavailable(f"group {group.group_id} did not begin to rebalance within {_REBALANCE_SEEN_S} s")
                time.sleep(_LOOK_EVERY_S)
        finally:
            forget_member(self._wire, group.group_id, guest)


class KafkaJoinHold:
    """Implements ``tidegate.kafka.ports.JoinHold`` with a pending member id: the join waits for it to come."""

    def __init__(self, wire: Wire, reader: ClusterReader, group_id: str, protocols: Collection[str]) -> None:
        self._wire = wire
        self._reader = reader
        self._group_id = group_id
        self._protocols = protocols
        self._pending: str | None = _pending_id(wire, group_id, protocols)
        self._renewed = time.monotonic()
        self._lapsed = False

    @property
    def lapsed(self) -> bool:
        return self._lapsed

    def keep(self) -> None:
        if self._pending is None or time.monotonic() - self._renewed < RENEW_EVERY_S:
            return
        # The new id before the old one goes: at no moment is the join unheld.
        old, self._pending = self._pending, _pending_id(self._wire, self._group_id, self._protocols)
        self._renewed = time.monotonic()
        self._let_go_of(old)

    def blink(self) -> bool:
        # To leave with a pending id once the join is over would start another rebalance, so there must be none then:
        # the next id is asked for only if the join is still waiting. An owner that commits an old offset and comes
        # back in the few milliseconds between is found by reading the offsets back.
        self.release()
        if self._reader.groups([self._group_id])[self._group_id].state is not GroupState.PREPARING_REBALANCE:
            return True
        self._pending = _pending_id(self._wire, self._group_id, self._protocols)
        self._renewed = time.monotonic()
        return False

    def release(self) -> None:
        if self._pending is not None:
            held, self._pending = self._pending, None
            self._let_go_of(held)

    def _let_go_of(self, member_id: str) -> None:
        self._lapsed |= not forget_member(self._wire, self._group_id, member_id)


class KafkaGuest:
    """Implements ``tidegate.kafka.ports.Guest``. ``joiner`` is its own, and connected: a join blocks its connection."""

    def __init__(self, wire: Wire, joiner: Wire, coordinator: int, group_id: str, protocols: Collection[str]) -> None:
        self._wire = wire
        self._joiner = joiner
        self._coordinator = coordinator
        self._group_id = group_id
        self._protocols = protocols
        self._member_id = _pending_id(wire, group_id, protocols)
        self._is_member = True
        self._answer: Answer | None = None
        self._generation = -1
        self._heard = time.monotonic()

    @property
    def member_id(self) -> str:
        return self._member_id

    def join(self) -> None:
        session_ms = int(PENDING_SESSION_S * 1000)
        self._answer = send_join(
            self._joiner, self._coordinator, self._group_id, self._member_id, self._protocols, session_ms
        )

    def joined(self) -> Generation | None:
        answer = None if self._answer is None else self._answer.get()
        if answer is None:
            return None
        self._answer = None
        self._check(answer.error_code, f"join group {self._group_id}")
        self._generation, self._heard = answer.generation_id, time.monotonic()
        told = {m.member_id: subscription(bytes(m.metadata)) for m in answer.members}
        told.pop(self._member_id, None)
        return Generation(answer.generation_id, answer.leader, told)

    def rebalances(self) -> bool:
        code = heartbeat(self._wire, self._group_id, self._generation, self._member_id)
        self._heard = time.monotonic()
        if code == REBALANCE_IN_PROGRESS:
            return True
        self._check(code, f"send a heartbeat to group {self._group_id}")
        return False

    def keep(self) -> None:
        # Whoever waits in a join is not forgotten.
        if self._answer is None and time.monotonic() - self._heard > RENEW_EVERY_S:
            self.rebalances()

    def assign(self, generation: Generation, shares: Mapping[str, frozenset[TopicPartition]]) -> bool:
        raw = {member: assignment(share, generation.subscriptions[member].version) for member, share in shares.items()}
        code = sync_as_leader(self._wire, self._group_id, generation.number, self._member_id, raw)
        self._heard = time.monotonic()
        if code == REBALANCE_IN_PROGRESS:
            return False
        self._check(code, f"assign the partitions of group {self._group_id}")
        return True

    def leave(self) -> None:
        if self._is_member:
            self._is_member = False
            forget_member(self._wire, self._group_id, self._member_id)

    def _check(self, code: int, what: str) -> None:
        if code in (UNKNOWN_MEMBER_ID, ILLEGAL_GENERATION):
            raise Unavailable(f"{what}: its coordinator has forgotten our member there")
        check(code, what, on_group("Read", self._group_id))


def _protocols(group: Group) -> list[str]:
    return list(dict.fromkeys([*([group.assignor] if group.assignor else []), *_ASSIGNORS]))


def _pending_id(wire: Wire, group_id: str, protocols: Collection[str]) -> str:
    return pending_member_id(wire, group_id, protocols, PENDING_SESSION_S)
