"""What was seen of a group, put together: partition by partition, member by member, holder by holder. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from tidegate.control.claims import Claimed
from tidegate.control.gates import Gates, Limited
from tidegate.control.records import Ack, LimitKey
from tidegate.control.standing import PartitionStanding, managed_members, standings
from tidegate.incident.holders import Holder, holder_named
from tidegate.incident.seen import KafkaSeen, Seen
from tidegate.kafka.model import Group, Member, TopicPartition

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class HoldTold:
    """One hold on one partition. ``since``: by the broker's clock, where it is known."""

    holder: Holder
    reason: str
    since: datetime | None
    epoch: int


@dataclass(frozen=True, slots=True)
class LimitTold:
    """Records from ``offset`` on are not delivered."""

    holder: str
    offset: int
    reason: str


@dataclass(frozen=True, slots=True)
class PartitionTold:
    """One partition. ``None``: there is none, or it is not known; ``KafkaSeen`` tells which.

    ``standing``: ``None`` where holds or the group could not be read.
    """

    partition: TopicPartition
    owner: Member | None
    committed: int | None
    log_start: int | None
    log_end: int | None
    is_gone: bool
    is_pending: bool
    standing: PartitionStanding | None
    holds: tuple[HoldTold, ...]
    limits: tuple[LimitTold, ...]
    ack: Ack | None

    @property
    def lag(self) -> int | None:
        """Records from the committed offset to the log's end, in offsets."""
        return None if self.committed is None or self.log_end is None else max(0, self.log_end - self.committed)


@dataclass(frozen=True, slots=True)
class MemberTold:
    """``runs_agent``: ``True`` where it has acknowledged something; ``None``: acks could not be read."""

    member: Member
    runs_agent: bool | None
    partitions: tuple[PartitionTold, ...]


@dataclass(frozen=True, slots=True)
class ClaimTold:
    """A run that has the group, or waits for it. Times by the brokers' clock."""

    run: str
    reason: str
    renewed_at: datetime
    lease: timedelta
    has_lapsed: bool


@dataclass(frozen=True, slots=True)
class Account:
    """All of it. ``claims``: the one that has the group first."""

    group: Group | None
    partitions: tuple[PartitionTold, ...]
    members: tuple[MemberTold, ...]
    claims: tuple[ClaimTold, ...]

    @property
    def lag(self) -> int:
        """Of the partitions of which it is known."""
        return sum(p.lag or 0 for p in self.partitions)

    @property
    def held(self) -> tuple[PartitionTold, ...]:
        return tuple(p for p in self.partitions if p.holds)


def account_of(seen: Seen) -> Account:
    if seen.kafka is None:
        return Account(None, (), (), ())
    kafka = seen.kafka
    partitions = _partitions(kafka, seen.group_id)
    by_partition = {p.partition: p for p in partitions}
    managed = managed_members(kafka.gates, seen.group_id) if kafka.gates is not None else None
    members = tuple(
        MemberTold(
            member,
            None if managed is None else member.member_id in managed,
            tuple(by_partition[p] for p in sorted(member.assignment)),
        )
        for member in sorted(kafka.group.members if kafka.group else (), key=lambda m: (m.client_id, m.member_id))
    )
    return Account(kafka.group, partitions, members, _claims(kafka.gates, seen.group_id))


def _partitions(kafka: KafkaSeen, group_id: str) -> tuple[PartitionTold, ...]:
    committed, group, gates = kafka.committed or {}, kafka.group, kafka.gates
    limits = _limits(gates, group_id)
    held = {key.topic_partition for key, _ in gates.of_group(group_id)} if gates is not None else set()
    assigned = group.assigned if group is not None else frozenset()
    known = sorted({*assigned, *committed, *held, *limits})
    stand = standings(gates, group, known) if gates is not None and group is not None else {}
    owners = {p: member for member in (group.members if group else ()) for p in member.assignment}
    return tuple(
        PartitionTold(
            partition=p,
            owner=owners.get(p),
            committed=committed.get(p),
            log_start=kafka.bounds[p].earliest if p in kafka.bounds else None,
            log_end=kafka.bounds[p].latest if p in kafka.bounds else None,
            is_gone=p in kafka.gone,
            is_pending=kafka.pending is not None and p in kafka.pending,
            standing=stand.get(p),
            holds=_holds(gates, group_id, p),
            limits=limits.get(p, ()),
            ack=gates.ack(group_id, p, owners[p].member_id if p in owners else "") if gates is not None else None,
        )
        for p in known
    )


def _holds(gates: Gates | None, group_id: str, partition: TopicPartition) -> tuple[HoldTold, ...]:
    """The oldest first."""
    if gates is None:
        return ()
    held = sorted(gates.holders(group_id, partition).items(), key=lambda item: item[1].epoch)
    return tuple(HoldTold(holder_named(key.holder), of.hold.reason, _at(of.since_ms), of.epoch) for key, of in held)


def _limits(gates: Gates | None, group_id: str) -> Mapping[TopicPartition, tuple[LimitTold, ...]]:
    found: dict[TopicPartition, tuple[LimitTold, ...]] = {}
    for key, limited in sorted(gates.limits.items()) if gates is not None else ():
        if key.group == group_id:
            found[key.topic_partition] = (*found.get(key.topic_partition, ()), _limit(key, limited))
    return found


def _limit(key: LimitKey, limited: Limited) -> LimitTold:
    return LimitTold(key.holder, limited.limit.offset, limited.limit.reason)


def _claims(gates: Gates | None, group_id: str) -> tuple[ClaimTold, ...]:
    if gates is None:
        return ()
    queue, lapsed = gates.claims.queue(group_id), gates.claims.lapsed(group_id)
    return (*(_claim(c, has_lapsed=False) for c in queue), *(_claim(c, has_lapsed=True) for c in lapsed))


def _claim(claimed: Claimed, *, has_lapsed: bool) -> ClaimTold:
    return ClaimTold(
        run=claimed.claim.run,
        reason=claimed.claim.reason,
        renewed_at=_at(claimed.at_ms) or _EPOCH,
        lease=timedelta(milliseconds=claimed.claim.lease_ms),
        has_lapsed=has_lapsed,
    )


def _at(ms: int | None) -> datetime | None:
    """``None`` also for a time that no calendar has, which a broker's clock may say."""
    try:
        return None if ms is None else _EPOCH + timedelta(milliseconds=ms)
    except OverflowError:
        return None
