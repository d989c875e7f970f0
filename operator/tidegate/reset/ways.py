"""Which way a live group's offsets can be changed: the strongest that its owners allow. Pure.

Documents call it the strategy. A client library that misbehaves is known here, by its default client id or by the
version of its subscription: in a function that says why a way is no use, or is needed, and that is in a list below.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from tidegate.kafka.model import Group, GroupType, TopicPartition
from tidegate.leading.groups import (
    EAGER_ASSIGNORS,
    KAFKA_GO,
    is_cooperative,
    kafka_go_beside_others,
    unknown_assignor,
)
from tidegate.resources.reset import Way

FRANZ_GO: Final = "kgo"
"""Its default client id. While it joins it keeps commits back, and sends them before it asks where to begin."""

COOPERATIVE_SUBSCRIPTION: Final = 1
"""``ConsumerProtocolSubscription`` version since KIP-429. Older clients may keep positions over a rebalance."""


def keeps_commits_back(group: Group) -> bool:
    """Whether what a member's application commits while its client joins may be sent only after the join. A rebalance
    hides who owns what, so any member counts."""
    return group.type is GroupType.CLASSIC and any(
        m.client_id == FRANZ_GO or KAFKA_GO in m.client_id for m in group.members
    )


def may_begin_at_what_it_kept_back(group: Group) -> bool:
    """Whether what it sends so late may come before it asks where to begin, and not just after that."""
    return group.type is GroupType.CLASSIC and any(m.client_id == FRANZ_GO for m in group.members)


@dataclass(frozen=True, slots=True)
class Owners:
    """What is known of those who own the partitions to reset.

    ``subscription_versions`` by member id, empty where they were not asked. ``managed``: ids of members that run the
    agent. ``disobeyed``: why gates were no use in this run. ``kept_position``: an owner was seen to carry an old
    position through a rebalance; ``kept_after_leaving``: or to keep it although it was made to leave.
    ``handed_in``: an application may have committed in a later transaction what it had in hand when it lost partitions.
    ``transaction_open``: one stays open that has offsets of these partitions. ``in_flight``: their applications commit
    late. ``not_led``: why the group cannot be led, as was found out in this run.
    """

    group: Group
    partitions: frozenset[TopicPartition]
    subscription_versions: Mapping[str, int]
    kept_position: bool = False
    kept_after_leaving: bool = False
    handed_in: bool = False
    transaction_open: bool = False
    in_flight: bool = False
    not_led: str | None = None
    managed: frozenset[str] = frozenset()
    disobeyed: str | None = None


@dataclass(frozen=True, slots=True)
class Choice:
    """The way, and why not a stronger one, for a person."""

    way: Way
    because: str


def choose_way(owners: Owners) -> Choice:
    """The first obstacle to each way decides; see docs/explanation/live-reset.md."""
    if not owners.group.owners(owners.partitions):
        return Choice(Way.UNOWNED, "no member owns the partitions")
    if all(obstacle(owners) is None for obstacle in GATED_OBSTACLES):
        return Choice(Way.GATED, "every owner runs the agent")
    needed = _first(LEADING_REASONS, owners)
    not_led = _first(LEADING_OBSTACLES, owners) if needed is not None else None
    if needed is not None and not_led is None:
        return Choice(Way.LEADING, needed)
    reason = _first(BARRIER_OBSTACLES, owners)
    if reason is not None:
        return Choice(
            Way.HANDOVER, reason if not_led in (None, reason) else f"{reason}; the group cannot be led: {not_led}"
        )
    return Choice(Way.BARRIER, "a classic group whose members give up all partitions in a rebalance")


def _first(obstacles: Iterable[Callable[[Owners], str | None]], owners: Owners) -> str | None:
    return next((reason for obstacle in obstacles if (reason := obstacle(owners)) is not None), None)


def _unmanaged(owners: Owners) -> str | None:
    without = [m for m in owners.group.owners(owners.partitions) if m.member_id not in owners.managed]
    return f"{len(without)} owner(s) run no agent" if without else None


def _disobeyed(owners: Owners) -> str | None:
    return owners.disobeyed


def _not_classic(owners: Owners) -> str | None:
    if owners.group.type is GroupType.CLASSIC:
        return None
    return f"members of a group of type {owners.group.type} keep their partitions in a rebalance"


def _not_eager(owners: Owners) -> str | None:
    if owners.group.assignor in EAGER_ASSIGNORS:
        return None
    return f"members with assignor {owners.group.assignor or 'unknown'} keep their partitions in a rebalance"


def _old_client(owners: Owners) -> str | None:
    old = [
        m.client_id
        for m in owners.group.owners(owners.partitions)
        if owners.subscription_versions.get(m.member_id, 0) < COOPERATIVE_SUBSCRIPTION
    ]
    if not old:
        return None
    return (
        f"{len(old)} owner(s) use a subscription from before KIP-429 and may keep their positions: {', '.join(old[:3])}"
    )


def _kept(owners: Owners) -> str | None:
    return "an owner kept its position through the rebalance" if owners.kept_position else None


def _in_transaction(owners: Owners) -> str | None:
    """It may outlast a ``Barrier`` and have an old offset. To do that over takes a second rebalance, and librdkafka,
    which waits for the transaction by then, begins at ``auto.offset.reset`` after it."""
    return "an owner's transaction stays open" if owners.transaction_open else None


def _kept_after_leaving(owners: Owners) -> str | None:
    return "an owner that was made to leave has kept its position" if owners.kept_after_leaving else None


def _handed_in(owners: Owners) -> str | None:
    """One of the members stays in the group in each round of a ``Handover``, and each round takes long enough for the
    others to be judged anew; all are led at once."""
    return "an owner's next transaction may hold offsets from before it was made to leave" if owners.handed_in else None


def _alone_and_old(owners: Owners) -> str | None:
    """A heartbeat may tell it of the rebalance before it is made to leave. Then it is rejoining when it becomes
    unknown, and kafka-python goes on from its position. Where there are others, the rebalance begins as it leaves."""
    group = owners.group
    if group.type is not GroupType.CLASSIC or is_cooperative(group) or len(group.members) > 1:
        return None
    return _old_client(owners)


def _keeps_commits_back(owners: Owners) -> str | None:
    """So what its application holds (``inFlight``) cannot be waited for in a join.

    aiokafka's waits for the join, and may be sent before its consumer has asked where to begin.
    """
    if not owners.in_flight:
        return None
    if keeps_commits_back(owners.group):
        return "a member's client (franz-go, kafka-go) holds late commits back until its join is over"
    old = _old_client(owners) if owners.group.type is GroupType.CLASSIC and not is_cooperative(owners.group) else None
    return None if old is None else f"an application's late commits may wait until its join is over: {old}"


def _unknown_assignor(owners: Owners) -> str | None:
    return unknown_assignor(owners.group)


def _kafka_go_beside_others(owners: Owners) -> str | None:
    return kafka_go_beside_others(owners.group)


def _not_led(owners: Owners) -> str | None:
    return owners.not_led


GATED_OBSTACLES: Final[tuple[Callable[[Owners], str | None], ...]] = (_unmanaged, _disobeyed)

BARRIER_OBSTACLES: Final[tuple[Callable[[Owners], str | None], ...]] = (
    _not_classic,
    _not_eager,
    _old_client,
    _kept,
    _in_transaction,
)

LEADING_REASONS: Final[tuple[Callable[[Owners], str | None], ...]] = (
    _kept_after_leaving,
    _handed_in,
    _keeps_commits_back,
    _alone_and_old,
)

LEADING_OBSTACLES: Final[tuple[Callable[[Owners], str | None], ...]] = (
    _not_classic,
    _unknown_assignor,
    _kafka_go_beside_others,
    _not_led,
)
