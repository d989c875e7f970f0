"""Becoming a group's leader: a guest waits in the join, and all others are made to leave and come back to it.

See ``docs/adr/0017-leading.md``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Final, Protocol

from tidegate.cluster import Kafka
from tidegate.kafka.errors import Refused
from tidegate.kafka.model import Group, GroupState, GroupType, Member
from tidegate.kafka.ports import Guest
from tidegate.leading.groups import why_not_calm
from tidegate.leading.pacing import Pacing

NOTICED_S: Final = 0.5
"""How much later than a heartbeat all members wait in the join."""
_REBALANCING: Final = frozenset({GroupState.PREPARING_REBALANCE, GroupState.COMPLETING_REBALANCE})
_SLACK_S: Final = 6.0
"""How much longer than a session a coordinator may take to forget whoever is heard of no more."""
LAST_JOIN_S: Final = 0.05
"""Clients that were made to leave are members again a moment before their join is complete."""


class Until(Protocol):
    def __call__(self, reached: Callable[[], bool], limit_s: float) -> bool:
        """Look until it is reached, for at most so long; whether it was."""
        ...


class NotLed(Exception):
    """The group could not be led; the message says why. Everybody was let go."""


class NotAllBack(Exception):
    """``missing`` did not come back in time. ``left``: the members as they were made to leave."""

    def __init__(self, missing: tuple[Member, ...], left: Group) -> None:
        names = ", ".join(f"{m.client_id} at {m.host}" for m in missing[:3])
        super().__init__(f"{len(missing)} member(s) did not rejoin: {names}")
        self.missing = missing
        self.left = left


def wait_for_calm(kafka: Kafka, group_id: str, pacing: Pacing, until: Until) -> None:
    """Before our member has an id, for which every join waits until it has come (KIP-394). Raises ``NotLed``, and
    ``Refused`` where somebody names no topic."""

    def now() -> Group:
        return kafka.groups([group_id])[group_id]

    if not until(lambda: now().state not in _REBALANCING, pacing.standstill_s):
        raise NotLed(f"the group was rebalancing for {pacing.standstill_s:g} s")
    # Guests of others, and leaders, go by themselves, or are forgotten.
    if not until(lambda: not kafka.membership.guests(group_id), pacing.session_s + _SLACK_S):
        raise Refused(why_not_calm(now()))


def gather(
    kafka: Kafka,
    group_id: str,
    guest: Guest,
    *,
    heartbeat_s: float,
    back_s: float,
    until: Until,
    leaving: Callable[[], None],
    ignored: frozenset[str] = frozenset(),
) -> int:
    """Have the guest wait in the join first and all others join after it; how many there are. They are in one join
    then, which the coordinator ends at once, and the first to join leads.

    Whoever waits in the join hears at once that he was made to leave, and joins anew. ``heartbeat_s``: by then members
    have heard of the rebalance. ``back_s``: how long they may take to come back. ``leaving``: called as they are made
    to leave. ``ignored``: ids that nobody will come back under. Raises ``NotAllBack``.
    """
    membership = kafka.membership

    def now() -> Group:
        return kafka.groups([group_id])[group_id]

    with membership.hold(group_id, rebalance=False) as hold:
        guest.join()

        def look(reached: Callable[[], bool]) -> Callable[[], bool]:
            def kept() -> bool:
                hold.keep()
                return reached()

            return kept

        until(look(lambda: False), heartbeat_s + NOTICED_S)
        there = now()
        members = tuple(m for m in there.members if m.member_id != guest.member_id)
        leaving()
        membership.leave(group_id, members)
        left = tuple(m for m in members if m.member_id not in ignored)
        if not until(look(lambda: not not_back(now(), left, there)), back_s):
            raise NotAllBack(not_back(now(), left, there), replace(there, members=left))
        until(look(lambda: False), LAST_JOIN_S)
    return len(left)


def not_back(group: Group, left: Iterable[Member], before: Group) -> tuple[Member, ...]:
    """Of those that were made to leave, the ones whose clients are not members again; ``before``: the group then.

    KIP-848 members come back under their own member id, classic ones under a new one; clients are told apart by
    client id and host.
    """
    old_ids = {m.member_id for m in before.members}
    back = Counter(
        (m.client_id, m.host) for m in group.members if group.type is GroupType.CONSUMER or m.member_id not in old_ids
    )
    missing = []
    for member in left:
        client = (member.client_id, member.host)
        back[client] -= 1
        if back[client] < 0:
            missing.append(member)
    return tuple(missing)
