"""What is known of one Kafka connection, what is wanted of it, and what the next look at it has to do.

No I/O but that of ``look_at``, which belongs into a thread; all else belongs to the event loop's.
"""

from __future__ import annotations

import asyncio
import functools
from collections import defaultdict
from collections.abc import Collection, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass, field, replace
from typing import Final

from tidegate.connection.together import Together
from tidegate.control.gates import Gates
from tidegate.control.ports import ControlTopics
from tidegate.kafka.errors import KafkaFailure, NotAuthorized, Refused, Unavailable, UnknownPartitions
from tidegate.kafka.model import Cluster, Group, Offsets, Topic, TopicPartition
from tidegate.kafka.ports import CommittedReader
from tidegate.kafka_client.settings import BadConnection

_ABOUT_TO_BE: Final = 0.5
"""Of a tick: groups that were described longer ago are described along with one that has to be."""


_ASKED_AGAIN: Final = 2.5
"""Idle ticks after which a group that somebody has asked for is not looked at along with others any more."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What the looks saw. ``failure``: why the newest saw nothing; then the rest is empty. ``refused``: groups that may
    not be described, or whose members are not consumers; to whoever asks for one of them that is the failure.

    ``began_s`` and ``taken_s``, begin and end of the newest look, are the loop's clock. ``gates``: what the control and
    ack topics say, read after the groups were described, where somebody wanted it; ``gates_failure``: why that could
    not be read, while all else could; ``gates_began_s``: when that look began. ``control_topics_exist``: whether both
    are there. ``unreadable``: how many of their records are not of the contract.
    """

    taken_s: float
    began_s: float = 0.0
    cluster: Cluster | None = None
    groups: Mapping[str, Group] = field(default_factory=dict)
    failure: KafkaFailure | None = None
    refused: Mapping[str, NotAuthorized | Refused] = field(default_factory=dict)
    gates: Gates | None = None
    gates_failure: KafkaFailure | None = None
    gates_began_s: float = 0.0
    control_topics_exist: bool = False
    unreadable: int = 0

    @property
    def has_gates(self) -> bool:
        """Whether there was a look at the control and ack topics, successful or not."""
        return self.gates is not None or self.gates_failure is not None or self.failure is not None


@dataclass(frozen=True, slots=True)
class Want:
    group: str | None
    tick_s: float | None
    gates: bool


@dataclass(frozen=True, slots=True)
class Described:
    """When a group was described: begin and end of that look."""

    began_s: float
    taken_s: float


@dataclass(frozen=True, slots=True)
class Ask:
    """What somebody waits for since ``asked_s``. ``tick_s``: how old it may be; a look that has begun since then is an
    answer, however long it takes until that is used."""

    group: str | None
    gates: bool
    since_s: float
    tick_s: float
    asked_s: float

    def is_met(self, began_s: float, taken_s: float, now_s: float) -> bool:
        """Whether a look of these times is an answer."""
        return began_s >= self.since_s and (now_s - taken_s < self.tick_s or began_s >= self.asked_s)


@dataclass(frozen=True, slots=True)
class Task:
    """What one look does. ``apart``: groups that are described one by one, since some can't be."""

    cluster: bool
    groups: frozenset[str]
    apart: frozenset[str]
    control: ControlTopics | None
    gates_of: frozenset[str]


class Watched:
    """One connection, what is known of it, and what is wanted."""

    def __init__(self, name: str, kafka: CommittedReader, control: ControlTopics | None, executor: Executor) -> None:
        self.name = name
        self.kafka = kafka
        self.control = control
        self.newest: Snapshot | None = None
        self.wants: dict[str, Want] = {}
        """By holder."""
        self.of_group: defaultdict[str, dict[str, Want]] = defaultdict(dict)
        """Those of a group, by holder."""
        self.under_way: dict[str, Want] = {}
        """Those with a tick of their own, by holder."""
        self._asked_s: dict[str, float] = {}
        """By group, when somebody asked for it last: who does so again and again need not say that it is wanted."""
        self.cluster_s: float | None = None
        """When the cluster itself was looked at."""
        self.described: dict[str, Described] = {}
        self.gates_s = 0.0
        """When the newest gates had been read."""
        self.gates_of: frozenset[str] = frozenset()
        """The groups whose acks are in them."""
        self.asks: list[Ask] = []
        """Those that the next look is for."""
        self.looking: asyncio.Task[Snapshot] | None = None
        self.committed: Together[str, Offsets] = Together(executor, functools.partial(_committed, kafka))
        self.log_ends: Together[TopicPartition, int] = Together(executor, functools.partial(_log_ends, kafka))
        self.stable_ends: Together[TopicPartition, int] = Together(executor, functools.partial(_stable_ends, kafka))
        self.topics: Together[str, Topic] = Together(executor, functools.partial(_topics, kafka))
        self.all_topics: Together[None, Mapping[str, Topic]] = Together(executor, functools.partial(_all_topics, kafka))

    def put(self, holder: str, want: Want) -> None:
        if self.wants.get(holder) == want:
            return
        self.drop(holder)
        self.wants[holder] = want
        if want.group is not None:
            self.of_group[want.group][holder] = want
        if want.tick_s is not None:
            self.under_way[holder] = want

    def drop(self, holder: str) -> None:
        want = self.wants.pop(holder, None)
        self.under_way.pop(holder, None)
        if want is not None and want.group is not None:
            self.of_group[want.group].pop(holder, None)
            if not self.of_group[want.group]:
                del self.of_group[want.group]

    def tick_s(self, group: str | None, idle_tick_s: float) -> float:
        """How old what is known of a group may be; of no single one: of any."""
        wants = self.under_way if group is None else self.of_group.get(group, {})
        return min((want.tick_s for want in wants.values() if want.tick_s is not None), default=idle_tick_s)

    def note_asked(self, group: str | None, now_s: float) -> None:
        """Somebody asks for what is known of this group."""
        if group is not None:
            self._asked_s[group] = now_s

    def has(self, ask: Ask, now_s: float) -> bool:
        """Whether what is known answers it."""
        snapshot = self.newest
        if snapshot is None:
            return False
        if snapshot.failure is not None:
            return ask.is_met(snapshot.began_s, snapshot.taken_s, now_s)
        if ask.group is not None:
            is_seen = self._is_described(ask, now_s)
        else:
            is_seen = ask.is_met(snapshot.began_s, snapshot.taken_s, now_s)
        return is_seen and (not ask.gates or self._has_gates(ask, snapshot, now_s))

    def _has_gates(self, ask: Ask, snapshot: Snapshot, now_s: float) -> bool:
        if not snapshot.has_gates or not ask.is_met(snapshot.gates_began_s, self.gates_s, now_s):
            return False
        if ask.group is None:
            return True
        # Read before the group was described, they would lack what its newest owner has said.
        return ask.group in self.gates_of and snapshot.gates_began_s >= self.described[ask.group].began_s

    def task(self, idle_tick_s: float, now_s: float) -> Task:
        """What the next look has to do for those who wait for it, and what is about to be due as well."""
        asks, self.asks = self.asks, []
        # Or because nobody has looked at those at rest for a tick: all looks may be for somebody who is not.
        at_rest = any(ask.tick_s >= idle_tick_s for ask in asks) or any(
            self._is_older(group, idle_tick_s, now_s) for group in self.of_group
        )
        groups = {ask.group for ask in asks if ask.group is not None and not self._is_described(ask, now_s)}
        if at_rest:
            since_s = now_s - _ASKED_AGAIN * idle_tick_s
            self._asked_s = {group: at_s for group, at_s in self._asked_s.items() if at_s >= since_s}
        for group in self.of_group.keys() | self._asked_s.keys():
            tick_s = self.tick_s(group, idle_tick_s)
            if (at_rest or tick_s < idle_tick_s) and self._is_older(group, _ABOUT_TO_BE * tick_s, now_s):
                groups.add(group)
        if at_rest:
            wanted = self.of_group.keys() | self._asked_s.keys() | groups
            self.described = {group: at for group, at in self.described.items() if group in wanted}
        wanting = {group for group, wants in self.of_group.items() if any(want.gates for want in wants.values())}
        gates = any(ask.gates for ask in asks) or (at_rest and bool(wanting))
        refused = self.newest.refused if self.newest is not None else {}
        return Task(
            cluster=self.cluster_s is None or any(ask.group is None for ask in asks) or at_rest,
            groups=frozenset(groups),
            apart=frozenset(groups & refused.keys()),
            control=self.control if gates else None,
            gates_of=frozenset(wanting | {ask.group for ask in asks if ask.group is not None}),
        )

    def _is_described(self, ask: Ask, now_s: float) -> bool:
        described = self.described.get(ask.group) if ask.group is not None else None
        return described is not None and ask.is_met(described.began_s, described.taken_s, now_s)

    def _is_older(self, group: str, than_s: float, now_s: float) -> bool:
        described = self.described.get(group)
        return described is None or now_s - described.taken_s >= than_s

    def took(self, task: Task, seen: Snapshot, began_s: float, taken_s: float) -> Snapshot:
        """Add what a look has seen to what is known."""
        before = self.newest
        looked_at_gates = task.control is not None
        seen = replace(seen, began_s=began_s, taken_s=taken_s, gates_began_s=began_s if looked_at_gates else 0.0)
        if seen.failure is not None:
            self.described, self.cluster_s = {}, None
            self.newest = seen
            return seen
        if before is not None and before.failure is None:
            kept = self.described.keys() - task.groups
            seen = replace(
                seen,
                cluster=seen.cluster or before.cluster,
                groups={group: before.groups[group] for group in kept if group in before.groups} | dict(seen.groups),
                refused={group: before.refused[group] for group in kept if group in before.refused}
                | dict(seen.refused),
            )
            if not looked_at_gates:
                seen = replace(
                    seen,
                    gates=before.gates,
                    gates_failure=before.gates_failure,
                    gates_began_s=before.gates_began_s,
                    control_topics_exist=before.control_topics_exist,
                    unreadable=before.unreadable,
                )
        self.described |= dict.fromkeys(task.groups, Described(began_s, taken_s))
        if task.cluster:
            self.cluster_s = taken_s
        if looked_at_gates:
            self.gates_s, self.gates_of = taken_s, task.gates_of
        self.newest = seen
        return seen

    def stirred(self, before: Snapshot | None, seen: Snapshot) -> frozenset[str]:
        """Those at rest for whom ``seen`` shows something else than the look ``before``."""
        if before is None or is_other(before.failure, seen.failure):
            return frozenset(self.wants.keys() - self.under_way.keys())
        if seen.failure is not None:
            return frozenset()
        changed = {group for group in self.of_group if before.groups.get(group) != seen.groups.get(group)}
        changed |= before.refused.keys() ^ seen.refused.keys()
        if before.gates is not None and seen.gates is not None and before.gates is not seen.gates:
            changed |= seen.gates.groups_changed_since(before.gates)
        elif before.gates is not seen.gates or is_other(before.gates_failure, seen.gates_failure):
            changed |= self.of_group.keys()
        holders = {holder for group in changed for holder in self.of_group.get(group, {})}
        return frozenset(holders - self.under_way.keys())


def is_other(one: KafkaFailure | None, another: KafkaFailure | None) -> bool:
    """Whether what fails is something else, or fails no more."""
    return type(one) is not type(another) or str(one) != str(another)


def _described(
    kafka: CommittedReader, groups: frozenset[str], apart: frozenset[str]
) -> tuple[Mapping[str, Group], Mapping[str, NotAuthorized | Refused]]:
    """One by one where the principal may not see one of them, or one belongs to Kafka Connect or others that are no
    consumers: whoever names such a group must not blind the others."""
    together = groups - apart
    described: dict[str, Group] = {}
    refused: dict[str, NotAuthorized | Refused] = {}
    try:
        if together:
            described.update(kafka.groups(together))
    except (NotAuthorized, Refused):
        apart = groups
    for group in sorted(apart):
        try:
            described.update(kafka.groups([group]))
        except (NotAuthorized, Refused) as failure:
            refused[group] = failure
    return described, refused


def _committed(kafka: CommittedReader, groups: Collection[str]) -> Mapping[str, Offsets]:
    return kafka.committed_of(groups)


def _topics(kafka: CommittedReader, names: Collection[str]) -> Mapping[str, Topic]:
    return kafka.topics(names)


def _all_topics(kafka: CommittedReader, _: Collection[None]) -> Mapping[None, Mapping[str, Topic]]:
    return {None: kafka.topics()}


def _log_ends(kafka: CommittedReader, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
    return {partition: bounds.latest for partition, bounds in kafka.log_bounds(partitions).items()}


def _stable_ends(kafka: CommittedReader, partitions: Collection[TopicPartition]) -> Offsets:
    try:
        return kafka.last_stable_offsets(partitions)
    except (UnknownPartitions, Unavailable):
        # Members have partitions of a topic that was deleted until they hear of it, and of brokers that are away. What
        # is known of the others is to be told all the same.
        return kafka.last_stable_offsets(partitions, as_told=True)


def look_at(kafka: CommittedReader, task: Task) -> Snapshot:
    try:
        cluster = kafka.cluster() if task.cluster else None
        described, refused = _described(kafka, task.groups, task.apart)
        snapshot = Snapshot(0.0, 0.0, cluster, described, refused=refused)
    except KafkaFailure as failure:
        return Snapshot(0.0, failure=failure)
    except BadConnection as bad:
        return Snapshot(0.0, failure=Refused(str(bad)))
    if task.control is None:
        return snapshot
    try:
        # After the groups: an owner that came in between must not look as if it had said nothing.
        gates = task.control.read(task.gates_of)
    except KafkaFailure as failure:
        return replace(snapshot, gates_failure=failure)
    exist, unreadable = task.control.exist, task.control.unreadable
    return replace(snapshot, gates=gates, control_topics_exist=exist, unreadable=unreadable)
