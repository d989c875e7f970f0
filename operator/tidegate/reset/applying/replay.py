"""A replay that ends: its limits in the control topic, and how far its group has come."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Final

from tidegate.cluster import Kafka
from tidegate.control.gates import Gates, Limited
from tidegate.control.records import Hold, Limit, LimitKey
from tidegate.control.standing import hides_owners, managed_members
from tidegate.kafka.model import Group, TopicPartition
from tidegate.printable import visible
from tidegate.reset.applying.gates import holder, insistently
from tidegate.reset.applying.timing import Pace
from tidegate.reset.model.plan import Plan

RETURNED: Final = "Returned"
"""How a run ends whose replay ended, and whose group goes on where it was before."""

CONTINUED: Final = "Continued"
"""How a run ends whose replay ended, and whose group goes on at its end."""

HELD: Final = "Paused"
"""How a run ends as with ``CONTINUED``, where the group does not go on: limits stay until a ConsumerGroupPause holds
it. Its journal says ``CONTINUED``: that makes no difference to what is committed."""

ENDINGS: Final = (RETURNED, CONTINUED)
"""What a journal says of a run whose replay has ended."""


class RunLimits:
    """The limits of one run; nothing where its plan has no ends. ``hold``: as of its holds."""

    def __init__(self, kafka: Kafka, pace: Pace, plan: Plan, run_uid: str, hold: Hold) -> None:
        self._control = kafka.control
        self._pace = pace
        self._group_id = plan.group_id
        self._holder = holder(run_uid)
        self.stay = False
        """Whether they are not taken back at all: the group is to stay where it is."""
        self._limits = {
            LimitKey(plan.group_id, p.topic, p.partition, self._holder): Limit(
                end, hold.reason, hold.drain_timeout_ms, hold.connection
            )
            for p, end in plan.ends.items()
        }

    def put(self, partitions: Collection[TopicPartition]) -> None:
        """Write them, whether or not they are there. Raises ``Unavailable``; writing again is harmless."""
        limits = {key: limit for key, limit in self._limits.items() if key.topic_partition in partitions}
        if limits:
            self._control.limit(limits)

    def put_all(self) -> None:
        """As ``put``."""
        self.put([key.topic_partition for key in self._limits])

    def lift(self, partitions: Collection[TopicPartition]) -> None:
        """Take them back: owners go on. Raises ``Unavailable``; taking back again is harmless."""
        keys = [key for key in self._limits if key.topic_partition in partitions]
        if keys and not self.stay:
            self._control.release(keys)

    def lift_all(self) -> None:
        """Whatever limits of the run are there. Tries for a while, and raises ``Unavailable`` then."""
        if self._limits and not self.stay:
            insistently(self._pace, self._lift_found)

    def _lift_found(self) -> None:
        found = [
            key for key in self._control.read().limits if (key.holder, key.group) == (self._holder, self._group_id)
        ]
        if found:
            self._control.release(found)


@dataclass(frozen=True, slots=True)
class Replayed:
    """How far a replay has come. ``records``: offsets between targets and ends, and ``read`` of them; ``partitions``,
    and how many have ``reached`` their end. ``missing``: whose limits are not in the control topic. ``waits_for``: why
    the first of the others has not reached its end, for a person. ``beyond``: partitions whose owner runs no agent, so
    that it may read beyond the end.
    """

    records: int
    read: int
    partitions: int
    reached: int
    missing: tuple[TopicPartition, ...] = ()
    waits_for: str = ""
    beyond: tuple[TopicPartition, ...] = ()

    @property
    def is_over(self) -> bool:
        return self.reached == self.partitions and not self.missing

    @property
    def is_unlimited(self) -> bool:
        """Whether no limit is left."""
        return len(self.missing) == self.partitions


def look(kafka: Kafka, plan: Plan, run_uid: str) -> Replayed:
    """Ask the brokers. Raises ``KafkaFailure``."""
    # In this order: what an owner has said is judged by who owned the partition before.
    committed = kafka.committed(plan.group_id, list(plan.ends))
    group = kafka.groups([plan.group_id])[plan.group_id]
    return judge(plan, holder(run_uid), committed, group, kafka.control.read([plan.group_id]))


def judge(plan: Plan, of: str, committed: Mapping[TopicPartition, int], group: Group, gates: Gates) -> Replayed:
    """Pure. ``of``: the holder of the limits; ``gates`` were read after ``group``.

    A partition has reached its end where its owner's agent says so, by the limit that is in force; without an owner,
    or with one that runs no agent, where that is committed (``agents/contract``, Limits).
    """
    managed, hidden = managed_members(gates, plan.group_id), hides_owners(group)
    reached: set[TopicPartition] = set()
    missing: list[TopicPartition] = []
    beyond: list[TopicPartition] = []
    late: list[Callable[[], str]] = []
    read = 0
    for each in plan.partitions:
        partition, end = each.topic_partition, each.end
        if end is None:
            continue
        seen = committed.get(partition, each.target)
        limited = gates.limits.get(LimitKey(plan.group_id, each.topic, each.partition, of))
        owner = group.owner(partition)
        if limited is None:
            missing.append(partition)
        if owner is not None and owner.member_id not in managed:
            beyond.append(partition)
        if _has_reached(gates, group, partition, end, seen, limited, managed, hidden):
            reached.add(partition)
            read += end - each.target
        else:
            read += min(max(seen - each.target, 0), end - each.target)
            late.append(_Late(gates, group, partition, seen, end, hidden, managed))
    first = late[0]() if late else ""
    return Replayed(
        records=sum(p.end - p.target for p in plan.partitions if p.end is not None),
        read=read,
        partitions=len(plan.ends),
        reached=len(reached),
        missing=tuple(missing),
        waits_for=f"{first}{f' and {len(late) - 1:,} more' if len(late) > 1 else ''}" if first else "",
        beyond=tuple(beyond),
    )


def _has_reached(
    gates: Gates,
    group: Group,
    partition: TopicPartition,
    end: int,
    committed: int,
    limited: Limited | None,
    managed: frozenset[str],
    hidden: bool,
) -> bool:
    owner = group.owner(partition)
    if limited is None or hidden:
        return False
    if owner is None or owner.member_id not in managed:
        return committed >= end
    ack = gates.ack(group.group_id, partition, owner.member_id)
    return ack is not None and ack.epoch >= limited.epoch and ack.offset >= end


@dataclass(frozen=True, slots=True)
class _Late:
    """Why a partition has not reached its end; said of the first one only."""

    gates: Gates
    group: Group
    partition: TopicPartition
    committed: int
    end: int
    hidden: bool
    managed: frozenset[str]

    def __call__(self) -> str:
        owner = self.group.owner(self.partition)
        holds = [
            held.hold.reason for _, held in sorted(self.gates.holders(self.group.group_id, self.partition).items())
        ]
        if holds:
            why = f"it is paused ({visible(holds[0])[:200]})"
        elif self.hidden:
            why = "its group is rebalancing"
        elif owner is None:
            why = "nobody owns it"
        elif owner.member_id not in self.managed:
            who = visible(owner.client_id)[:200]
            why = f"{who} owns it, but runs no agent that would stop it at the end, or has only just joined"
        else:
            why = f"{visible(owner.client_id)[:200]} owns it, but has not reached the end yet"
        return f"{self.partition} at {self.committed:,} of {self.end:,}: {why}"
