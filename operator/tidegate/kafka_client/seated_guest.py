"""A member of ours that leads a classic group for longer than a process may live."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from tidegate.kafka.errors import MemberForgotten, Unavailable
from tidegate.kafka.model import Generation, Seat, Subscription, TopicPartition
from tidegate.kafka.rights import on_group
from tidegate.kafka_client.codes import ILLEGAL_GENERATION, REBALANCE_IN_PROGRESS, UNKNOWN_MEMBER_ID, check
from tidegate.kafka_client.connections import Answer
from tidegate.kafka_client.consumer_protocol import assignment, subscription
from tidegate.kafka_client.group_requests import (
    forget_member,
    heartbeat,
    pending_member_id,
    send_join,
    sync_as_leader,
)
from tidegate.kafka_client.wire import Wire

_ANOTHER_GENERATION = (REBALANCE_IN_PROGRESS, ILLEGAL_GENERATION)


class KafkaSeatedGuest:
    """Implements ``tidegate.kafka.ports.SeatedGuest``. ``joiner`` is its own: a join blocks its connection.

    ``said_in``: what the members of a stable group said as they joined; ``None`` where it is not stable.
    """

    def __init__(
        self,
        wire: Wire,
        joiner: Wire,
        group_id: str,
        protocols: list[str],
        session_s: float,
        known: Seat | None,
        said_in: Callable[[str], Mapping[str, Subscription] | None],
    ) -> None:
        self._wire = wire
        self._joiner = joiner
        self._group_id = group_id
        self._protocols = protocols
        self._session_ms = int(session_s * 1000)
        self._said_in = said_in
        self._answer: Answer | None = None
        if known is None:
            # Through the joiner, whose client id the member gets.
            known = Seat(pending_member_id(joiner, group_id, protocols, session_s), -1, protocols[0])
        self._seat = known
        self._heard = time.monotonic()

    @property
    def seat(self) -> Seat:
        return self._seat

    @property
    def member_id(self) -> str:
        return self._seat.member_id

    def present(self) -> Generation | None:
        said = self._said_in(self._group_id)
        if said is None:
            return None
        others = {member: subscription for member, subscription in said.items() if member != self.member_id}
        return Generation(self._seat.generation, self.member_id, others)

    def join(self) -> None:
        if self._answer is not None:
            # It keeps a connection to itself, of which nothing more is wanted.
            self._answer = None
            self._joiner.close()
        # Asked for each time, as it may have moved.
        coordinator, _, _ = self._wire.coordinator(self._group_id)
        self._answer = send_join(
            self._joiner, coordinator, self._group_id, self.member_id, self._protocols, self._session_ms
        )

    def joined(self) -> Generation | None:
        try:
            answer = None if self._answer is None else self._answer.get()
        except Unavailable:
            self._answer = None
            raise
        if answer is None:
            return None
        self._answer = None
        self._check(answer.error_code, f"join group {self._group_id}")
        self._heard = time.monotonic()
        self._seat = Seat(self.member_id, answer.generation_id, answer.protocol_name or self._seat.assignor)
        told = {m.member_id: subscription(bytes(m.metadata)) for m in answer.members}
        told.pop(self.member_id, None)
        return Generation(answer.generation_id, answer.leader, told)

    def rebalances(self) -> bool:
        code = heartbeat(self._wire, self._group_id, self._seat.generation, self.member_id)
        if code not in _ANOTHER_GENERATION:
            self._check(code, f"send a heartbeat to group {self._group_id}")
        self._heard = time.monotonic()
        return code in _ANOTHER_GENERATION

    def keep(self) -> None:
        # Whoever waits in a join is not forgotten.
        if self._answer is None and time.monotonic() - self._heard > self._session_ms / 3000:
            self.rebalances()

    def assign(self, generation: Generation, shares: Mapping[str, frozenset[TopicPartition]]) -> bool:
        raw = {member: assignment(share, generation.subscriptions[member].version) for member, share in shares.items()}
        code = sync_as_leader(self._wire, self._group_id, generation.number, self.member_id, raw)
        if code not in _ANOTHER_GENERATION:
            self._check(code, f"assign the partitions of group {self._group_id}")
        self._heard = time.monotonic()
        return code not in _ANOTHER_GENERATION

    def leave(self) -> None:
        forget_member(self._wire, self._group_id, self.member_id)

    def _check(self, code: int, what: str) -> None:
        if code == UNKNOWN_MEMBER_ID:
            raise MemberForgotten(f"{what}: its coordinator has forgotten our member there")
        check(code, what, on_group("Read", self._group_id))
