"""What the control topic adds up to: which gates are closed, since when, and why, and when partitions came. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from tidegate_agent.ages import Clock, Discovered
from tidegate_agent.records import Hold, HoldKey, Key, Limit, LimitKey, Value


class Partition(NamedTuple):
    """A topic's partition; equal to the plain tuple."""

    topic: str
    partition: int


@dataclass(frozen=True)
class Gate:
    """A closed gate. ``epoch``: the newest hold's; ``drain_timeout_s``: of the hold that closed it; why, for people."""

    epoch: int
    drain_timeout_s: float
    reasons: tuple[str, ...]


@dataclass(frozen=True)
class LimitGate:
    """Where a gate is to close. ``offset``: the lowest of its limits; the rest as of a ``Gate``."""

    epoch: int
    offset: int
    drain_timeout_s: float
    reasons: tuple[str, ...]


@dataclass(frozen=True)
class Known:
    """What has been read of the control topic at one moment; never changed afterwards.

    ``taken``: the offset of the last record that is in it, −1 when there was none. ``answered``: the newest question
    ("read to the end as it is now") that it answers. ``generation`` counts the control topics there have been: epochs
    of different ones cannot be compared; 0: none has been read.

    ``moved``: the offset of the newest hold or release of each gate that ever had one.

    ``discovered``, by topic name: when partitions were first seen. ``topic_ids``: of the topics that were asked for
    with a question, the id each has now. ``clock``: ``None`` where the topic does not tell the broker's time.
    """

    gates: Mapping[tuple[str, Partition], Gate] = field(default_factory=dict)
    taken: int = -1
    answered: int = 0
    generation: int = 0
    discovered: Mapping[str, tuple[Discovered, ...]] = field(default_factory=dict)
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    clock: Clock | None = None
    moved: Mapping[tuple[str, Partition], int] = field(default_factory=dict)
    limits: Mapping[tuple[str, Partition], LimitGate] = field(default_factory=dict)

    def limit(self, group: str, partition: Partition) -> LimitGate | None:
        """Where the gate is to close, if it is to close somewhere."""
        return self.limits.get((group, partition))

    def gate(self, group: str, partition: Partition) -> Gate | None:
        """The gate if it is closed."""
        return self.gates.get((group, partition))

    def moved_after(self, group: str, partition: Partition, offset: int) -> bool:
        """Whether the gate was closed or opened by a record beyond this offset; it may be open again."""
        return self.moved.get((group, partition), -1) > offset

    @property
    def open_epoch(self) -> int:
        """The epoch that an ack of an open gate carries."""
        return max(0, self.taken)


class GateTable:
    """All holds of one control topic, fed with its records in order.

    ``before``: what an earlier reading of the same topic had come to, where it is read from its start again.
    """

    def __init__(self, before: GateTable | None = None) -> None:
        self._holds: dict[tuple[str, Partition], dict[str, tuple[int, Hold]]] = {}
        self._gates: dict[tuple[str, Partition], Gate] = {}
        self._limits: dict[tuple[str, Partition], dict[str, tuple[int, Limit]]] = {}
        self._moved: dict[tuple[str, Partition], int] = dict(before._moved) if before is not None else {}
        self._closed_before: frozenset[tuple[str, Partition]] = frozenset()
        if before is not None:
            self._closed_before = before._closed_before | before._gates.keys()

    def take(self, key: Key, value: Value, offset: int) -> bool:
        """One record at its offset; whether a hold was set or released. Kinds that are of no gate are passed over."""
        if isinstance(key, LimitKey):
            self._take_limit(key, value, offset)
        if not isinstance(key, HoldKey):
            return False
        where = (key.group, Partition(key.topic, key.partition))
        self._moved[where] = max(offset, self._moved.get(where, -1))
        holds = dict(self._holds.get(where, {}))
        if isinstance(value, Hold):
            holds[key.holder] = (offset, value)
        elif holds.pop(key.holder, None) is None:
            return False
        if holds:
            self._holds[where] = holds
            self._gates[where] = _gate(holds)
        else:
            del self._holds[where], self._gates[where]
        return True

    def _take_limit(self, key: LimitKey, value: Value, offset: int) -> None:
        where = (key.group, Partition(key.topic, key.partition))
        limits = {holder: limit for holder, limit in self._limits.pop(where, {}).items() if holder != key.holder}
        if isinstance(value, Limit):
            limits[key.holder] = (offset, value)
        if limits:
            self._limits[where] = limits

    def limits(self) -> Mapping[tuple[str, Partition], LimitGate]:
        """Where gates are to close as it is now; later records do not change the result."""
        return {where: _limit_gate(limits) for where, limits in self._limits.items()}

    def read_to_end(self, offset: int) -> None:
        """The topic was read from its start up to this offset. Gates that were closed before and are not now have been
        opened by records that are gone from the log."""
        self._moved.update(dict.fromkeys(self._closed_before - self._gates.keys(), offset))
        self._closed_before = frozenset()

    def gates(self) -> Mapping[tuple[str, Partition], Gate]:
        """The closed gates as they are now; later records do not change the result."""
        return dict(self._gates)

    def moved(self) -> Mapping[tuple[str, Partition], int]:
        """The offset of each gate's newest record, open ones too."""
        return dict(self._moved)


class KeptGates:
    """Gates and limits of an earlier control topic of which the present one has not spoken yet: they stay, for a while.

    Times are seconds of any clock that only goes forward.
    """

    def __init__(self) -> None:
        self._gates: dict[tuple[str, Partition], Gate] = {}
        self._limits: dict[tuple[str, Partition], LimitGate] = {}
        self._until = 0.0

    @property
    def until(self) -> float | None:
        """Until when they stay; ``None`` where there are none."""
        return self._until if self._gates or self._limits else None

    def keep(self, known: Known, table: GateTable, until: float) -> None:
        """Those of the earlier topic, ``known``, of which the new one's ``table`` has none."""
        gates, limits = table.gates(), table.limits()
        # Their epochs are of the earlier topic; 0 is nobody's.
        self._gates = {g: replace(gate, epoch=0) for g, gate in known.gates.items() if g not in gates}
        self._limits = {g: replace(limit, epoch=0) for g, limit in known.limits.items() if g not in limits}
        self._until = until

    def take(self, key: Key) -> None:
        """A record of the present topic: it speaks of this gate or limit now."""
        if isinstance(key, HoldKey):
            self._gates.pop((key.group, Partition(key.topic, key.partition)), None)
        elif isinstance(key, LimitKey):
            self._limits.pop((key.group, Partition(key.topic, key.partition)), None)

    def release(self) -> None:
        """Keep none any longer."""
        self._gates, self._limits = {}, {}

    def with_gates(self, gates: Mapping[tuple[str, Partition], Gate]) -> Mapping[tuple[str, Partition], Gate]:
        """These, and those that are kept."""
        return {**self._gates, **gates}

    def with_limits(
        self, limits: Mapping[tuple[str, Partition], LimitGate]
    ) -> Mapping[tuple[str, Partition], LimitGate]:
        """These, and those that are kept."""
        return {**self._limits, **limits}


def _limit_gate(limits: Mapping[str, tuple[int, Limit]]) -> LimitGate:
    in_order = sorted(limits.values(), key=lambda limited: limited[0])
    _, lowest = min(in_order, key=lambda limited: limited[1].offset)
    reasons = tuple(dict.fromkeys(limit.reason for _, limit in in_order if limit.reason))
    return LimitGate(in_order[-1][0], lowest.offset, lowest.drain_timeout_ms / 1000, reasons)


def _gate(holds: Mapping[str, tuple[int, Hold]]) -> Gate:
    in_order = sorted(holds.values(), key=lambda held: held[0])
    reasons = tuple(dict.fromkeys(hold.reason for _, hold in in_order if hold.reason))
    return Gate(in_order[-1][0], in_order[0][1].drain_timeout_ms / 1000, reasons)
