"""What the two topics add up to: who holds which gate since when, what the owners have said to it, which partitions
were seen when, and which run has which group. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, TypeVar

from tidegate.control.claims import Claims
from tidegate.control.records import (
    Ack,
    AckKey,
    Claim,
    ClaimKey,
    ClockKey,
    Hold,
    HoldKey,
    Key,
    Limit,
    LimitKey,
    PartitionKey,
    PartitionSeen,
    Run,
    RunKey,
    Value,
)
from tidegate.kafka.model import TopicPartition

K = TypeVar("K", HoldKey, AckKey, LimitKey)

LEAST_EPOCH: Final = 1
"""Of a hold: agents ack epoch 0 for gates that they know nothing of."""


@dataclass(frozen=True, slots=True)
class Held:
    """A hold in force; ``epoch`` is the control topic's offset of its record.

    ``since_ms``: that record's LogAppendTime, where the reader told it.
    """

    epoch: int
    hold: Hold
    since_ms: int | None = None

    def says(self, hold: Hold) -> bool:
        """Whether it need not be rewritten to say this: what a newer version has written is left as it is.

        No hold may have epoch 0. One that does has lost its writer before that could write it again.
        """
        return (self.hold == hold and self.epoch >= LEAST_EPOCH) or self.hold.is_newer


@dataclass(frozen=True, slots=True)
class Limited:
    """A limit in force; ``epoch`` is the control topic's offset of its record."""

    epoch: int
    limit: Limit

    def says(self, limit: Limit) -> bool:
        """As of a hold."""
        return (self.limit == limit and self.epoch >= LEAST_EPOCH) or self.limit.is_newer


@dataclass(slots=True)
class Gates:
    """All holds of a cluster, fed with the control topic's records in order, and what discovery has written there.

    A gate is closed while somebody holds it. Its epoch is that of its newest hold: an ack of that epoch, or a later
    one, is about all of them.

    ``clock_ms``: the broker's time when the newest ``clock`` record was written, epoch milliseconds; ``None``: there is
    none, or its time was not the broker's.

    ``runs``: the resets that are known to have been executed (``control.run_records``).

    ``acks``: those that are believed, of the groups that were asked about, one of each member and the newest last
    (``control.acks``); ``heard``: whether any agent of any group has ever said anything.
    """

    holds: dict[HoldKey, Held] = field(default_factory=dict)
    limits: dict[LimitKey, Limited] = field(default_factory=dict)
    runs: dict[RunKey, Run] = field(default_factory=dict)
    acks: Mapping[AckKey, tuple[Ack, ...]] = field(default_factory=dict)
    heard: bool = False
    clock_ms: int | None = None
    claims: Claims = field(default_factory=Claims)
    _by_gate: dict[AckKey, Mapping[HoldKey, Held]] = field(default_factory=dict)
    _by_tail: dict[str, dict[HoldKey, Held]] = field(default_factory=dict)
    """``holds`` by the last part of their holders' names."""
    _own_tails: set[str] = field(default_factory=set, compare=False)
    """Those of which no copy has the holds."""
    _acks_by_group: dict[str, dict[AckKey, tuple[Ack, ...]]] = field(default_factory=dict)
    """The same for ``acks``, by group."""
    _partitions: dict[PartitionKey, PartitionSeen] = field(default_factory=dict)
    _lent: bool = False
    """Whether what is held, limited and run is a copy's as well: at rest nothing changes from look to look."""
    _lent_partitions: bool = False
    """The same for ``_partitions``: there may be tens of thousands, and they hardly ever change."""

    @property
    def partitions(self) -> Mapping[PartitionKey, PartitionSeen]:
        """When the partitions that discovery has found were made."""
        return self._partitions

    def take(self, key: Key, value: Value, offset: int, at_ms: int | None = None) -> None:
        """One record of the control topic, at its offset there; an ack says nothing there.

        ``at_ms``: its LogAppendTime, epoch milliseconds; ``None`` where its timestamp is not the broker's.
        """
        self.claims.passes(at_ms)
        match key:
            case ClaimKey():
                self.claims.take(key, value if isinstance(value, Claim) else None, offset, at_ms)
            case HoldKey():
                self._take_hold(key, Held(offset, value, at_ms) if isinstance(value, Hold) else None)
            case LimitKey():
                self._make_own()
                if isinstance(value, Limit):
                    self.limits[key] = Limited(offset, value)
                else:
                    self.limits.pop(key, None)
            case RunKey():
                self._take_run(key, value if isinstance(value, Run) else None)
            case AckKey():
                pass
            case PartitionKey():
                if self._lent_partitions:
                    self._partitions, self._lent_partitions = dict(self._partitions), False
                if isinstance(value, PartitionSeen):
                    self._partitions[key] = value
                else:
                    self._partitions.pop(key, None)
            case ClockKey():
                self.clock_ms = at_ms

    def _take_hold(self, key: HoldKey, held: Held | None) -> None:
        self._make_own()
        if held is None:
            self.holds.pop(key, None)
        else:
            self.holds[key] = held
        gate = AckKey(key.group, key.topic, key.partition)
        holders = {other: h for other, h in self._by_gate.get(gate, {}).items() if other != key}
        if held is not None:
            holders[key] = held
        if holders:
            self._by_gate[gate] = holders
        else:
            self._by_gate.pop(gate, None)
        self._index_by_tail(key, held)

    def _index_by_tail(self, key: HoldKey, held: Held | None) -> None:
        tail = key.holder.rpartition("/")[2]
        if tail not in self._own_tails:
            # Once for all of a holder's thousands of holds.
            self._by_tail[tail] = dict(self._by_tail.get(tail, {}))
            self._own_tails.add(tail)
        if held is not None:
            self._by_tail[tail][key] = held
        else:
            self._by_tail[tail].pop(key, None)
        if not self._by_tail[tail]:
            del self._by_tail[tail]
            self._own_tails.discard(tail)

    def _make_own(self) -> None:
        """What changes from here on must not change in the copies."""
        if self._lent:
            self.holds, self.limits, self.runs = dict(self.holds), dict(self.limits), dict(self.runs)
            self._by_gate, self._by_tail, self._own_tails = dict(self._by_gate), dict(self._by_tail), set()
            self._lent = False

    def _take_run(self, key: RunKey, run: Run | None) -> None:
        self._make_own()
        known = self.runs.get(key)
        if run is None:
            self.runs.pop(key, None)
        elif known is None or run.uid == known.uid or run.outcome is not None:
            self.runs[key] = run
        # Else somebody begins what another has begun before: the log's order decides whose it is.

    def copy(self, acks: Mapping[AckKey, tuple[Ack, ...]], *, heard: bool) -> Gates:
        """One that goes its own way from here, with these acks."""
        self._lent = self._lent_partitions = True
        return replace(self, acks=acks, heard=heard, claims=self.claims.copy(), _acks_by_group={})

    def groups_changed_since(self, before: Gates) -> set[str]:
        """Groups of which holds, limits or acks differ. ``before``: an earlier copy of the same gates."""
        changed = set[str]()
        if self.holds is not before.holds:
            changed |= _groups_of_other(self.holds, before.holds)
        if self.limits is not before.limits:
            changed |= _groups_of_other(self.limits, before.limits)
        if self.acks != before.acks:
            changed |= _groups_of_other(self.acks, before.acks)
        return changed

    def held_by(self, tail: str) -> Mapping[HoldKey, Held]:
        """The holds whose holder's name ends in ``/`` and this."""
        return self._by_tail.get(tail, {})

    def acks_of(self, group: str) -> Mapping[AckKey, tuple[Ack, ...]]:
        """What the members of a group have said, of each partition the newest last."""
        if not self._acks_by_group and self.acks:
            found: defaultdict[str, dict[AckKey, tuple[Ack, ...]]] = defaultdict(dict)
            for key, acks in self.acks.items():
                found[key.group][key] = acks
            self._acks_by_group = dict(found)
        return self._acks_by_group.get(group, {})

    def holders(self, group: str, partition: TopicPartition) -> Mapping[HoldKey, Held]:
        """Who holds this gate; empty: it is open."""
        return self._by_gate.get(AckKey(group, partition.topic, partition.partition), {})

    def epoch(self, group: str, partition: TopicPartition) -> int | None:
        """The newest hold's epoch; ``None``: the gate is open."""
        return max((held.epoch for held in self.holders(group, partition).values()), default=None)

    def ack(self, group: str, partition: TopicPartition, member: str) -> Ack | None:
        """What this member has said last of the partition; ``""``: a consumer that assigns partitions itself."""
        acks = self.acks.get(AckKey(group, partition.topic, partition.partition), ())
        return next((ack for ack in acks if ack.member == member), None)

    def of_group(self, group: str) -> Iterator[tuple[HoldKey, Held]]:
        return ((key, held) for key, held in self.holds.items() if key.group == group)


def _groups_of_other(one: Mapping[K, object], another: Mapping[K, object]) -> set[str]:
    """The groups of which one has something else than another."""
    changed = {key.group for key, value in one.items() if another.get(key) != value}
    return changed | {key.group for key in another.keys() - one.keys()}
