"""Is this partition paused? The one answer to it, for whoever waits for a pause or shows one. Pure.

A partition is paused when its owner has acked the hold's epoch or a later one and still owns it, or when nobody owns
it (docs/explanation/pausing.md). When a whole pause is complete is decided from that by ``tidegate.pause``.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from tidegate.control.gates import LEAST_EPOCH, Gates
from tidegate.control.records import Ack
from tidegate.kafka.model import Group, GroupState, GroupType, Member, TopicPartition


class Flow(StrEnum):
    """What a partition does for a group."""

    OPEN = "Open"
    """Nobody holds it."""
    CLOSING = "Closing"
    """Its owner runs the agent and has not obeyed yet: it is finishing what it was given.

    Without an owner in the group it is a consumer that assigned the partition itself. Nobody can tell whether that one
    still lives: do not wait for it longer than the hold's drain time-out.
    """
    CLOSED = "Closed"
    """Its owner has obeyed: nothing is delivered, nothing is committed."""
    UNOWNED = "Unowned"
    """Nobody in the group owns it, so nobody reads it; whoever gets it and runs the agent obeys at once."""
    UNMANAGED = "Unmanaged"
    """Its owner has never said anything: it runs no agent and reads on, or has only just joined."""
    UNDECIDED = "Undecided"
    """Who owns it cannot be seen at the moment: a classic group is rebalancing. Look again."""


_PAUSED: Final = frozenset({Flow.CLOSED, Flow.UNOWNED})


@dataclass(frozen=True, slots=True)
class PartitionStanding:
    """How one partition stands for a group.

    ``epoch``: the hold's that was asked about; ``None`` where the gate is open. ``owner``: by the group's description.
    ``ack``: what the owner has said last, of whatever epoch; of nobody else.
    """

    flow: Flow
    epoch: int | None = None
    owner: Member | None = None
    ack: Ack | None = None

    @property
    def is_paused(self) -> bool:
        return self.flow in _PAUSED

    @property
    def offset(self) -> int | None:
        """The next record that would be delivered, where the owner has said so."""
        return self.ack.offset if self.ack is not None and self.ack.offset >= 0 else None


def managed_members(gates: Gates, group_id: str) -> frozenset[str]:
    """Ids of the members that were heard: an agent acks each partition it is given, open or closed."""
    return frozenset(ack.member for acks in gates.acks_of(group_id).values() for ack in acks if ack.member)


def standings(
    gates: Gates,
    group: Group,
    partitions: Collection[TopicPartition],
    epochs: Mapping[TopicPartition, int] | None = None,
) -> dict[TopicPartition, PartitionStanding]:
    """How partitions stand for a group.

    ``epochs``: those of one holder's holds, for whom it does not matter whether later holds were obeyed; partitions
    that are not in it are judged by their newest hold. ``gates`` must have been read after ``group`` was described, or
    an owner that came in between looks as if it had acked nothing.
    """
    managed = managed_members(gates, group.group_id)
    owners = {p: member for member in group.members for p in member.assignment}
    hidden = hides_owners(group)
    return {p: _standing(gates, group, p, owners.get(p), managed, hidden, (epochs or {}).get(p)) for p in partitions}


def standing(gates: Gates, group: Group, partition: TopicPartition, epoch: int | None = None) -> PartitionStanding:
    """``standings`` of one partition."""
    return standings(gates, group, [partition], None if epoch is None else {partition: epoch})[partition]


def _standing(
    gates: Gates,
    group: Group,
    partition: TopicPartition,
    owner: Member | None,
    managed: frozenset[str],
    hidden: bool,
    epoch: int | None,
) -> PartitionStanding:
    newest = gates.epoch(group.group_id, partition)
    # Whoever assigns partitions itself is in no description, and acks without a member id.
    ack = gates.ack(group.group_id, partition, owner.member_id if owner is not None else "")
    if newest is None:
        return PartitionStanding(Flow.OPEN, None, owner, ack)
    wanted = newest if epoch is None else epoch
    if owner is None and hidden:
        flow = Flow.UNDECIDED
    elif ack is not None:
        flow = Flow.CLOSED if ack.epoch >= max(wanted, LEAST_EPOCH) else Flow.CLOSING
    elif owner is None:
        flow = Flow.UNOWNED
    else:
        flow = Flow.CLOSING if owner.member_id in managed else Flow.UNMANAGED
    return PartitionStanding(flow, wanted, owner, ack)


def hides_owners(group: Group) -> bool:
    """Whether its description does not tell who owns what.

    A classic coordinator leaves assignments out of its answer until the rebalance is over.

    Meanwhile members may still read what they had. A KIP-848 coordinator always tells, revocations under way included.
    A group that could not be described (streams, share) tells nothing.
    """
    if group.type is GroupType.CONSUMER:
        return False
    return group.state.is_rebalancing or group.state is GroupState.UNKNOWN
