"""Trials of live resets: consumers of one kind read a steady flow, their group is reset again and again, and each
reset is judged by what the consumers were given.

`run_trial` does the whole and returns one `Outcome` a reset. `judge` is pure: deliveries in, verdict out; it measures
one reset. The whole trial's history is judged by `support.history_checker`, and kept where the trial fails.
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self, cast
from unittest.mock import patch

from confluent_kafka.admin import AdminClient, NewTopic

from support import recorded
from support.checker import ResetRun, check
from support.clients import (
    ClientKind,
    CommitMode,
    ConsumerFleet,
    Event,
    EventKind,
    FleetError,
    GroupProtocol,
    SteadyProducer,
)
from support.clients.options import WITHOUT_STATIC_MEMBERS
from support.deliveries import Delivery, Partition
from support.history import Begin, Committed, End, History, Operation, Place, ResetBegin, ResetEnd, in_order, write
from support.history import Phase as EndPhase
from support.history_checker import judge as judge_history
from tidegate.clock import SystemClock
from tidegate.kafka.connection import Connection
from tidegate.kafka.model import GroupState, Member, TopicPartition
from tidegate.kafka_client.client import KafkaClient
from tidegate.reset.applying.timing import Tuning
from tidegate.reset.directory_store import DirectoryRunStore
from tidegate.reset.model.progress import Progress
from tidegate.reset.model.request import ApplySettings, RunRequest, Selection
from tidegate.reset.model.result import RunResult
from tidegate.reset.model.targets import FromFile, PartitionOffset, Target
from tidegate.reset.runs import job
from tidegate.reset.store import RunStore
from tidegate.resources.reset import ResetPhase, Way

BACK = (40, 90)
"""How far behind the committed offset a target lies, in records."""
AHEAD_SHORT_OF_END = 5
"""A target ahead of the committed offset stays this far from the end: the owner has read past it for certain."""

PRECISION_S = 0.005
"""One machine's clock, read by several processes; and a library may commit a record just before it hands it out."""
HISTORIES = Path(__file__).resolve().parents[2] / "build" / "histories"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One kind of group and client. ``hold_s`` is a ``worker``'s. ``agent``: the consumers run it. ``beside``: what
    every other member is instead. ``client_version``: Java's, if not the broker's own.
    """

    kind: ClientKind
    protocol: GroupProtocol
    assignor: str | None = None
    static: bool = False
    isolation: str | None = None
    members: int = 4
    commit: CommitMode = CommitMode.AUTO
    auto_commit_interval_s: float | None = None
    hold_s: float = 3.0
    in_flight_s: float = 0.0
    heartbeat_spread: float = 0.0
    stagger_s: float = 0.0
    agent: bool = False
    session_s: float | None = None
    beside: ClientKind | None = None
    client_version: str | None = None

    @property
    def client(self) -> str:
        """The client as a table names it."""
        isolation = {None: "", "read_committed": " rc", "read_uncommitted": " ru"}[self.isolation]
        version = f" {self.client_version}" if self.client_version else ""
        beside = f" and {self.beside}" if self.beside else ""
        return f"{self.kind}{version}{beside}{isolation}{' agent' if self.agent else ''}"

    @property
    def group(self) -> str:
        """The group as a table names it."""
        protocol = {GroupProtocol.CLASSIC: "classic", GroupProtocol.CONSUMER: "KIP-848"}[self.protocol]
        return f"{protocol} {self.assignor or 'default'}{' static' if self.static else ''}"

    @property
    def name(self) -> str:
        """Unique, without spaces: what ``--cells`` and ``-k`` match."""
        parts = [self.client, self.group, f"m{self.members}"]
        if self.commit is not CommitMode.AUTO:
            parts.append(self.commit)
        if self.in_flight_s:
            parts.append(f"inFlight{self.in_flight_s:g}")
        if self.heartbeat_spread or self.stagger_s:
            parts.append("spread")
        return "/".join(str(p).replace(" ", "-") for p in parts)

    @property
    def partitions(self) -> int:
        return 8 if self.members <= 4 else max(16, self.members)

    @property
    def rate(self) -> float:
        """Records a second and partition; few enough in all that the machine stays idle, and that a client keeps up
        which waits for a commit after each record."""
        return 8.0 if self.kind is ClientKind.KAFKA_GO else min(25.0, 400 / self.partitions)


UNSUPPORTED: Mapping[tuple[ClientKind, str], str] = {
    (ClientKind.LIBRDKAFKA, "sticky"): "librdkafka has no eager sticky assignor",
    (ClientKind.AIOKAFKA, "cooperative-sticky"): "aiokafka 0.14 has no incremental rebalancing (KIP-429)",
    (ClientKind.AIOKAFKA, "KIP-848"): "aiokafka 0.14 speaks the classic protocol only",
    (ClientKind.KAFKA_PYTHON, "KIP-848"): "kafka-python 3.0.12 speaks the classic protocol only",
    (ClientKind.SARAMA, "cooperative-sticky"): "sarama 1.61 has no incremental rebalancing (KIP-429)",
    (ClientKind.KAFKA_GO, "sticky"): "kafka-go 0.4 has no sticky assignor",
    (ClientKind.KAFKA_GO, "cooperative-sticky"): "kafka-go 0.4 has no incremental rebalancing (KIP-429)",
    (ClientKind.KAFKA_GO, "KIP-848"): "kafka-go 0.4 speaks the classic protocol only",
    (ClientKind.KAFKAJS, "range"): "kafkajs 2.2 has its own round robin only",
    (ClientKind.KAFKAJS, "sticky"): "kafkajs 2.2 has its own round robin only",
    (ClientKind.KAFKAJS, "cooperative-sticky"): "kafkajs 2.2 has its own round robin only",
    (ClientKind.KAFKAJS, "KIP-848"): "kafkajs 2.2 speaks the classic protocol only",
    (ClientKind.SARAMA, "KIP-848"): "sarama 1.61 speaks the classic protocol only",
    (ClientKind.FRANZ_GO, "KIP-848"): "franz-go 1.22 speaks it only where it is told to; the tests' consumers do not",
}
"""What is left out of `kinds`, and why."""

FIRST_CLIENTS = (
    ClientKind.LIBRDKAFKA,
    ClientKind.JAVA,
    ClientKind.AIOKAFKA,
    ClientKind.KAFKA_PYTHON,
    ClientKind.FRANZ_GO,
)
"""Whose kinds of groups are each tried by themselves; the others by the campaign."""

_CLASSIC = ("range", "roundrobin", "sticky", "cooperative-sticky")
_KIP_848 = ("uniform", "range")


def kinds(of: Collection[ClientKind] = FIRST_CLIENTS) -> list[Cell]:
    """Every kind of group of these clients: assignors, dynamic and static members, librdkafka's isolation levels."""
    clients: list[tuple[ClientKind, str | None]] = [
        (ClientKind.LIBRDKAFKA, "read_committed"),
        (ClientKind.LIBRDKAFKA, "read_uncommitted"),
        *((kind, None) for kind in ClientKind if kind is not ClientKind.LIBRDKAFKA),
    ]
    clients = [(kind, isolation) for kind, isolation in clients if kind in of]
    found = []
    for kind, isolation in clients:
        groups = [(GroupProtocol.CLASSIC, a) for a in _CLASSIC if (kind, a) not in UNSUPPORTED]
        groups += [(GroupProtocol.CONSUMER, a) for a in _KIP_848 if (kind, "KIP-848") not in UNSUPPORTED]
        for protocol, assignor in groups:
            found += [
                Cell(kind=kind, protocol=protocol, assignor=assignor, static=static, isolation=isolation)
                for static in ((False,) if kind in WITHOUT_STATIC_MEMBERS else (False, True))
            ]
    return found


def managed(members: int = 4) -> list[Cell]:
    """Consumers that run the agent: the same for every assignor and protocol, since nobody rebalances."""
    classic, consumer = GroupProtocol.CLASSIC, GroupProtocol.CONSUMER
    groups = [
        (ClientKind.LIBRDKAFKA, classic, "range", False),
        (ClientKind.LIBRDKAFKA, classic, "cooperative-sticky", False),
        (ClientKind.LIBRDKAFKA, classic, "range", True),
        (ClientKind.LIBRDKAFKA, consumer, "uniform", False),
        (ClientKind.AIOKAFKA, classic, "roundrobin", False),
        (ClientKind.KAFKA_PYTHON, classic, "range", False),
    ]
    return [
        Cell(kind=kind, protocol=protocol, assignor=assignor, static=static, members=members, agent=True)
        for kind, protocol, assignor, static in groups
    ]


def managed_java(members: int = 4) -> list[Cell]:
    """Java's consumers with the agent, also beside those of the Python agent in one group.

    Apart from `managed`: the campaign draws from that, and its seeds keep their meaning.
    """
    classic, consumer = GroupProtocol.CLASSIC, GroupProtocol.CONSUMER
    groups: list[tuple[GroupProtocol, str, bool, ClientKind | None, str | None]] = [
        (classic, "range", False, None, None),
        (classic, "cooperative-sticky", False, None, "3.9.2"),
        (classic, "range", True, None, "2.8.2"),
        (consumer, "uniform", False, None, None),
        (classic, "range", False, ClientKind.LIBRDKAFKA, None),
        (consumer, "uniform", False, ClientKind.LIBRDKAFKA, None),
    ]
    return [
        Cell(
            kind=ClientKind.JAVA,
            protocol=protocol,
            assignor=assignor,
            static=static,
            members=members,
            agent=True,
            beside=beside,
            client_version=version,
        )
        for protocol, assignor, static, beside, version in groups
    ]


def defaults(members: int) -> list[Cell]:
    """librdkafka and Java as they come, classic and KIP-848, with heartbeats that are out of phase.

    A classic group's heartbeats come into phase with each rebalance, as all members rejoin at once; so the members'
    intervals differ (1.8 to 3 s), and drift apart within a few beats. KIP-848 members keep the phase of their own join.
    """
    found = []
    for kind in (ClientKind.LIBRDKAFKA, ClientKind.JAVA):
        for protocol in GroupProtocol:
            classic = protocol is GroupProtocol.CLASSIC
            found.append(
                Cell(
                    kind=kind,
                    protocol=protocol,
                    members=members,
                    heartbeat_spread=0.4 if classic else 0.0,
                    stagger_s=0.0 if classic else 5.0 / members,
                )
            )
    return found


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the consumers were given around one reset.

    Seconds and numbers of records. ``standstill``: for each partition of the reset, from the last record of the old
    position to the first of the new one. ``exact``: partitions whose first new position was the target, of
    ``targeted``. ``wrong_starts``: positions that were neither the target nor led on from it. ``again``: records read
    twice that nobody asked for, on partitions of the reset and on the others. ``stale``: records of the old position
    after the first of the new one. ``missing``: acknowledged records at or after the target (or, on the other
    partitions, after the last one read) that were never given. ``others``: the longest gap of the other partitions.
    """

    targeted: int
    exact: int
    wrong_starts: int
    standstill: tuple[float, ...]
    others: float
    again: int
    again_elsewhere: int
    stale: int
    missing: int
    unfinished: int
    """Partitions of the reset that never began at their target."""
    elsewhere: tuple[str, ...] = ()
    """Partitions of the reset whose first new position was not the target, as ``topic-number``."""
    handed_on: tuple[str, ...] = ()
    """Those of them that the group's own rebalance had given to another member before anybody was made to leave, or
    may have: it went on exactly where the one before had stopped."""
    faults: tuple[str, ...] = ()

    @property
    def is_clean(self) -> bool:
        """In the end everything from the targets on was read, and nothing is missing anywhere."""
        return self.missing == 0 and self.unfinished == 0


def judge(
    deliveries: Sequence[Delivery],
    began: float,
    partitions: Collection[Partition],
    targets: Mapping[Partition, int],
    acked: Mapping[Partition, Collection[int]],
    events: Sequence[Event] = (),
    released: float | None = None,
) -> Verdict:
    """Judge one reset that began at ``began`` (epoch seconds), by all deliveries up to the moment of judging.

    ``deliveries``: of the whole trial up to now, sorted by time; those since ``began`` are this reset's. ``events``:
    what the members told, sorted by time. ``released``: when an owner was first made to leave (epoch seconds).
    """
    by_partition: dict[Partition, list[Delivery]] = {p: [] for p in partitions}
    for delivery in deliveries:
        by_partition[delivery.topic, delivery.partition].append(delivery)
    seen = [
        _of_target(
            by_partition[p],
            began,
            targets[p],
            acked[p],
            partial(_given_before, events, released),
            partial(_given_since, events),
        )
        if p in targets
        else _of_other(by_partition[p], began, acked[p])
        for p in sorted(partitions)
    ]
    faults = [
        f"{p[0]}-{p[1]}: {fault}" for p, one in zip(sorted(partitions), seen, strict=True) for fault in one.faults
    ]
    ours = [one for one in seen if one.is_target]
    others = [one for one in seen if not one.is_target]
    return Verdict(
        targeted=len(ours),
        exact=sum(one.exact for one in ours),
        wrong_starts=sum(one.wrong_starts for one in seen),
        standstill=tuple(round(one.gap, 3) for one in ours if one.gap is not None),
        others=round(max((one.gap or 0.0 for one in others), default=0.0), 3),
        again=sum(one.again for one in ours),
        again_elsewhere=sum(one.again for one in others),
        stale=sum(one.stale for one in ours),
        missing=sum(one.missing for one in seen),
        unfinished=sum(one.gap is None for one in ours),
        elsewhere=tuple(
            f"{p[0]}-{p[1]}" for p, one in zip(sorted(partitions), seen, strict=True) if one.is_target and not one.exact
        ),
        handed_on=tuple(f"{p[0]}-{p[1]}" for p, one in zip(sorted(partitions), seen, strict=True) if one.handed_on),
        faults=tuple(faults),
    )


@dataclass(slots=True)
class _Seen:
    is_target: bool
    handed_on: bool = False
    gap: float | None = None
    exact: bool = False
    wrong_starts: int = 0
    again: int = 0
    stale: int = 0
    missing: int = 0
    faults: list[str] = field(default_factory=list)


def _given_before(events: Sequence[Event], released: float | None, delivery: Delivery) -> bool:
    """Whether a member had a partition that it began to read before an owner was first made to leave."""
    partition = (delivery.topic, delivery.partition)
    given = [
        e.t
        for e in events
        if e.kind is EventKind.ASSIGN and e.member == delivery.member and partition in e.partitions and e.t < delivery.t
    ]
    return released is not None and bool(given) and given[-1] < released


def _given_since(events: Sequence[Event], since: float, delivery: Delivery) -> bool:
    """Whether the member was given the partition anew after ``since``, so that it went on from the group's offset."""
    partition = (delivery.topic, delivery.partition)
    return any(
        e.kind is EventKind.ASSIGN
        and e.member == delivery.member
        and partition in e.partitions
        and since < e.t <= delivery.t
        for e in events
    )


def _of_target(
    deliveries: Sequence[Delivery],
    began: float,
    target: int,
    acked: Collection[int],
    given_before: Callable[[Delivery], bool],
    given_since: Callable[[float, Delivery], bool],
) -> _Seen:
    """Follow the positions of all members that read the partition: an *old* position leads on from before the reset,
    a *new* one from the target."""
    seen = _Seen(is_target=True)
    # Only who read it last: what others read long ago is no position that they could go on from.
    last = [d for d in deliveries if d.t <= began][-1:]
    position, read_at = {d.member: d.offset + 1 for d in last}, {d.member: d.t for d in last}
    is_new = dict.fromkeys(position, False)
    stood = max(position.values(), default=None)
    last_old: float | None = max((d.t for d in deliveries if d.t <= began), default=None)
    read: set[int] = set()
    started = False
    for d in (d for d in deliveries if d.t > began):
        if position.get(d.member) != d.offset:
            from_target = d.offset == target or (d.offset in range(target, max(read, default=target - 1) + 2))
            if not started:
                seen.exact = d.offset == target
                seen.handed_on = not seen.exact and (d.offset == stood or given_before(d))
                started = True
            if not from_target:
                seen.wrong_starts += 1
                seen.faults.append(f"{d.member} started at {d.offset}, target {target}")
            is_new[d.member] = from_target
        elif not is_new[d.member] and read and d.offset <= max(read) + 1 and given_since(read_at[d.member], d):
            # Its successor had come to the very place at which it had stopped itself, and it follows that one now.
            is_new[d.member] = True
        position[d.member], read_at[d.member] = d.offset + 1, d.t
        if is_new[d.member]:
            if not read:
                seen.gap = d.t - last_old if last_old is not None else 0.0
            seen.again += d.offset in read
            read.add(d.offset)
        else:
            last_old, stood = d.t, d.offset + 1
            seen.stale += bool(read)
    end = max((d.offset for d in deliveries), default=-1)
    missing = sorted(o for o in acked if target <= o <= end and o not in read)
    seen.missing = len(missing)
    if missing:
        seen.faults.append(
            f"{len(missing)} of the records {missing[0]} to {missing[-1]} were not read from target {target}"
        )
    return seen


def _of_other(deliveries: Sequence[Delivery], began: float, acked: Collection[int]) -> _Seen:
    seen = _Seen(is_target=False, gap=0.0)
    before = [d for d in deliveries if d.t <= began]
    after = [d for d in deliveries if d.t > began]
    # A reset before this one may have set the partition back: what counts is where it stood last.
    stood = before[-1].offset + 1 if before else 0
    last = before[-1].t if before else None
    position = {d.member: d.offset + 1 for d in before[-1:]}
    read: set[int] = set()
    for d in after:
        if position.get(d.member) != d.offset and d.offset > max(read, default=stood - 1) + 1:
            seen.wrong_starts += 1
            seen.faults.append(
                f"{d.member} started at {d.offset}, after {max(read, default=stood - 1)}; it was not reset"
            )
        position[d.member] = d.offset + 1
        seen.again += d.offset < stood or d.offset in read
        read.add(d.offset)
        seen.gap = max(seen.gap or 0.0, d.t - last) if last is not None else seen.gap
        last = d.t
    end = max((d.offset for d in after), default=-1)
    missing = sorted(o for o in acked if stood <= o <= end and o not in read)
    seen.missing = len(missing)
    if missing:
        seen.faults.append(
            f"{len(missing)} of the records {missing[0]} to {missing[-1]} were never read; it was not reset"
        )
    return seen


# --- one reset --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Outcome:
    """One reset of a trial: what the run said of itself, and what the consumers saw.

    ``done_again``: partitions that a round after the first had to do, by the run's journal, as ``topic-number``.
    """

    cell: str
    run: int
    phase: str
    reason: str
    message: str
    way: str
    rounds: int
    redone: int
    done_again: tuple[str, ...]
    said_p50_s: float | None
    said_max_s: float | None
    took_s: float
    verdict: Verdict

    @property
    def is_good(self) -> bool:
        """Succeeded, each partition began anew at its target, and nothing is missing."""
        return self.phase == ResetPhase.SUCCEEDED and self.verdict.is_clean

    def as_row(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return asdict(self)

    def __str__(self) -> str:
        v = self.verdict
        return (
            f"{self.cell} #{self.run}: {self.phase} {self.reason} by {self.way}, {self.rounds} round(s), "
            f"redone {self.redone}, done again {self.done_again}, "
            f"first record at the target {v.exact}/{v.targeted}, "
            f"standstill {sorted(v.standstill)}, others {v.others}, again {v.again}+{v.again_elsewhere}, "
            f"stale {v.stale}, missing {v.missing}, unfinished {v.unfinished}; {self.message}; {'; '.join(v.faults)}"
        )


def create_topic(bootstrap: str, topic: str, partitions: int) -> None:
    """Make a topic, with as many replicas as the brokers give it by default, and wait until it is told of."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, partitions, -1)])[topic].result(30)
    deadline = time.monotonic() + 20
    while len(getattr(admin.list_topics(timeout=10).topics.get(topic), "partitions", ())) != partitions:
        if time.monotonic() > deadline:
            raise AssertionError(f"topic {topic} did not appear")
        time.sleep(0.02)


class Trial:
    """A topic with a steady flow and one group that reads it, from entering the ``with`` block until leaving it."""

    def __init__(
        self,
        bootstrap: str,
        cell: Cell,
        folder: Path,
        *,
        processes: int | None = None,
        seed: int = 0,
        commits: bool = True,
        config: Mapping[str, str | int | float | bool | list[str]] | None = None,
        name: str = "trial",
    ) -> None:
        self.bootstrap = bootstrap
        self.cell = cell
        self.folder = folder
        self.group = self.topic = f"{name}-{uuid.uuid4().hex[:10]}"
        self.partitions: list[Partition] = [(self.topic, n) for n in range(cell.partitions)]
        self.random = random.Random(seed)
        self._processes = processes or min(cell.members, 2)
        self._commits = commits
        self._config = config
        self._number = 0
        self._before_restart: list[Delivery] = []
        self._told_before_restart: list[Event] = []
        self._told: list[Operation] = []
        self._ended: set[str] = set()
        self._released: float | None = None
        """When the last run first made an owner leave, if that is how it began."""
        self.kept: Path | None = None
        """Where the history was kept last."""
        self._runs: list[ResetRun] = []
        self._stack = contextlib.ExitStack()
        self.kafka = KafkaClient(Connection(bootstrap))

    def __enter__(self) -> Self:
        cell = self.cell
        with contextlib.ExitStack() as stack:
            stack.callback(self.kafka.close)
            self._began = time.time()
            create_topic(self.bootstrap, self.topic, cell.partitions)
            self.producer = stack.enter_context(
                SteadyProducer(
                    self.bootstrap, self.topic, cell.partitions, rate_per_partition=cell.rate, keeps_sends=True
                )
            )
            if cell.agent and (complaints := self.kafka.control.ensure()):
                raise FleetError("; ".join(complaints))
            self.fleet = self._start_fleet()
            stack.callback(self.stop_fleet)
            try:
                self.fleet.wait_assigned(self.partitions, 60)
            except FleetError:
                if not self._hangs_by_itself():
                    raise
                self.stop_fleet()
                self.start_fleet()
                self.fleet.wait_assigned(self.partitions, 60)
            self.wait_current(120)
            if cell.agent:
                self._wait_managed(30)
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            if error is not None:
                error.add_note(f"history: {self.keep_history()}")
        finally:
            self._stack.close()

    def _start_fleet(self) -> ConsumerFleet:
        cell = self.cell
        others = cell.members // 2 if cell.beside else 0
        fleet = ConsumerFleet(
            cell.kind,
            self.bootstrap,
            self.group,
            [self.topic],
            members=cell.members - others,
            processes=min(self._processes, cell.members - others),
            protocol=cell.protocol,
            assignor=cell.assignor,
            static=cell.static,
            isolation=cell.isolation,
            commit=cell.commit,
            auto_commit_interval_s=cell.auto_commit_interval_s,
            hold_s=cell.hold_s,
            heartbeat_spread=cell.heartbeat_spread,
            stagger_s=cell.stagger_s,
            session_s=cell.session_s,
            config=self._config,
            agent=cell.agent,
            client_version=cell.client_version,
        ).__enter__()
        for _ in range(others):
            fleet.add(kind=cell.beside)
        return fleet

    def _hangs_by_itself(self) -> bool:
        """Whether it is kafka-python that leaves a member hanging; nothing was reset yet.

        The coordinator has given out all partitions, yet a static member never takes its own up, with its join done by
        its own word (3.0.12 logs ``need_rejoin: False``): 3 of 26 starts of four members at once, on a busy machine.
        Seen once with the cooperative assignor: all partitions stayed with three of the four.
        """
        if self.cell.kind is not ClientKind.KAFKA_PYTHON:
            return False
        group = self.kafka.groups([self.group])[self.group]
        given = {(p.topic, p.partition) for member in group.members for p in member.assignment}
        return group.state is GroupState.STABLE and given == set(self.partitions)

    def _wait_managed(self, timeout: float) -> None:
        """Until the agent of every member was heard."""
        deadline = time.monotonic() + timeout
        while True:
            members = {m.member_id for m in self.kafka.groups([self.group])[self.group].members}
            silent = members - self.kafka.managed_members(self.group)
            if members and not silent:
                return
            if time.monotonic() > deadline:
                raise FleetError(f"no word from the agents of {silent or 'anybody'}")
            time.sleep(0.1)

    def stop_fleet(self) -> None:
        """Close all consumers gracefully, as one does to use Kafka's own tool, and keep what they were given."""
        self.fleet.stop()
        self._before_restart += self.fleet.records()
        self._told_before_restart += self.fleet.events()

    def start_fleet(self) -> None:
        """Start the consumers anew, under the same names."""
        self.fleet = self._start_fleet()

    def records(self) -> list[Delivery]:
        """All deliveries of the trial so far, in the order of their time."""
        return self._before_restart + self.fleet.records()

    def wait_current(self, timeout: float = 60) -> None:
        """Until the consumers have read all that is there, every partition flows and has a commit."""
        self.fleet.wait_flowing(self.partitions, timeout=timeout)
        self.fleet.wait_read_to(self.producer.ends(), timeout)
        deadline = time.monotonic() + timeout
        while self._commits and len(self.committed()) < len(self.partitions):
            if time.monotonic() > deadline:
                raise FleetError(f"committed: {self.committed()}, of {len(self.partitions)} partitions")
            time.sleep(0.1)

    def committed(self) -> dict[Partition, int]:
        """The group's committed offsets."""
        began = time.time()
        found = {(p.topic, p.partition): o for p, o in self.kafka.committed(self.group).items()}
        at = time.time()
        self.tell(Committed(at, at - began, tuple(Place(*p, o) for p, o in sorted(found.items()))))
        return found

    def draw_targets(self) -> dict[Partition, int]:
        """New places for half of the partitions, of several members: 40 to 90 records back for most, ahead for some."""
        owners = self.fleet.owners()
        count = max(2, len(self.partitions) // 2)
        chosen = self.random.sample(self.partitions, count)
        for _ in range(50):
            if len({owners.get(p) for p in chosen}) > 1 or len(set(owners.values())) == 1:
                break
            chosen = self.random.sample(self.partitions, count)
        committed = self.committed()
        bounds = self.kafka.log_bounds([TopicPartition(*p) for p in chosen])
        targets: dict[Partition, int] = {}
        for partition in chosen:
            at, end = committed[partition], bounds[TopicPartition(*partition)].latest - AHEAD_SHORT_OF_END
            if end > at and self.random.random() < 0.25:
                targets[partition] = self.random.randint(at + 1, end)
            else:
                targets[partition] = max(0, at - self.random.randint(*BACK))
        return targets

    def last_reset(self) -> tuple[float, Mapping[Partition, int]]:
        """When the newest reset began to touch the group (epoch seconds), and its targets."""
        return self._runs[-1].t_start, self._runs[-1].targets

    def request(self, targets: Mapping[Partition, int], name: str = "", **settings: Any) -> RunRequest:
        """A run's request that names each partition's offset. ``settings`` go into ``ApplySettings``."""
        self._number += 1
        name = name or f"r{self._number}"
        offsets = tuple(PartitionOffset(*p, o) for p, o in sorted(targets.items()))
        self.tell(ResetBegin(time.time(), name, tuple(Place(*p, o) for p, o in sorted(targets.items()))))
        return self.ask(name, FromFile(offsets, "trial"), **settings)

    def ask(self, name: str, target: Target, selections: tuple[Selection, ...] = (), **settings: Any) -> RunRequest:
        """A run's request of which the history knows nothing yet. ``settings`` go into ``ApplySettings``."""
        given = ApplySettings(in_flight=timedelta(seconds=self.cell.in_flight_s))
        return RunRequest(
            run_uid=f"{self.group}/{name}",
            run_id=name,
            group_id=self.group,
            connection=Connection(self.bootstrap),
            selections=selections,
            target=target,
            settings=replace(given, **settings),
        )

    def store(self, request: RunRequest) -> DirectoryRunStore:
        """A new run's document in the trial's folder."""
        store = DirectoryRunStore(self.folder, request.run_uid.replace("/", "-"))
        store.create(request)
        return store

    def execute(self, request: RunRequest, tuning: Tuning | None = None) -> RunResult:
        """Carry a new run out, with a Kafka client of its own, as a Spark executor does."""
        kafka = KafkaClient(request.connection)
        store = self.store(request)
        left: list[float] = []
        leave = kafka.membership.leave

        def noted(group_id: str, members: Iterable[Member]) -> frozenset[str]:
            left.append(time.time())
            return leave(group_id, members)

        try:
            with patch.object(kafka.membership, "leave", noted):
                result = job.execute(store, kafka, SystemClock(), tuning=tuning)
        finally:
            kafka.close()
        assert result is not None
        handed_over = any(p.way is Way.HANDOVER for p in store.load().journal if p.round == 1)
        self._released = left[0] if left and handed_over else None
        if request.run_id not in self._ended:
            self._ended.add(request.run_id)
            self.tell(ResetEnd(time.time(), request.run_id, EndPhase(result.phase), result.message))
        return result

    def judge(self, began: float, targets: Mapping[Partition, int], timeout: float = 20) -> Verdict:
        """Judge what came since ``began``, once everything flows and is read; owners get ``timeout`` to begin anew."""
        deadline = time.monotonic() + timeout
        while True:
            self.fleet.wait_flowing(self.partitions, timeout=60)
            self.fleet.wait_read_to(self.producer.ends(), 60)
            verdict = judge(
                self.records(),
                began,
                self.partitions,
                targets,
                self.producer.acked_offsets(),
                self.fleet.events(began - 60),
                self._released,
            )
            if verdict.is_clean or time.monotonic() > deadline:
                self._runs.append(ResetRun(began, time.time(), targets))
                return verdict

    def reset(
        self, targets: Mapping[Partition, int] | None = None, *, tuning: Tuning | None = None, **settings: Any
    ) -> Outcome:
        """One reset, judged."""
        targets = self.draw_targets() if targets is None else targets
        request = self.request(targets, **settings)
        start = time.monotonic()
        result = self.execute(request, tuning)
        took = time.monotonic() - start
        return self.outcome(request, result, took, self.judge(self.touched_at(request), targets))

    def touched_at(self, request: RunRequest) -> float:
        """When a run was about to touch the group for the first time (epoch seconds); before that it only planned."""
        journal = self.store(request).load().journal
        return next((p.at.timestamp() for p in journal if p.round > 0), time.time())

    def outcome(self, request: RunRequest, result: RunResult, took: float, verdict: Verdict) -> Outcome:
        said = result.standstill
        journal = self.store(request).load().journal
        again = {p for entry in journal if entry.round > 1 for p in entry.pending}
        return Outcome(
            cell=self.cell.name,
            run=self._number,
            phase=result.phase,
            reason=result.reason,
            message=result.message,
            way=result.way or "",
            rounds=result.rounds,
            redone=result.redone,
            done_again=tuple(f"{p.topic}-{p.partition}" for p in sorted(again)),
            said_p50_s=round(said.p50_s, 3) if said else None,
            said_max_s=round(said.max_s, 3) if said else None,
            took_s=round(took, 3),
            verdict=verdict,
        )

    def wait_settled(self, quiet_s: float = 0.0, timeout: float = 60) -> None:
        """Until the coordinator calls the group stable and every partition has an owner, for ``quiet_s`` seconds."""
        deadline = time.monotonic() + timeout
        since: float | None = None
        owners: dict[Partition, str] = {}
        while True:
            group = self.kafka.groups([self.group])[self.group]
            now = time.monotonic()
            still = (
                group.state is GroupState.STABLE
                and self.fleet.owners() == owners
                and len(owners) == len(self.partitions)
            )
            since = (since if since is not None else now) if still else None
            owners = self.fleet.owners()
            if since is not None and now - since >= quiet_s:
                return
            if now > deadline:
                raise FleetError(f"the group is {group.state}, owners {owners}")
            time.sleep(0.1)

    def tell(self, operation: Operation) -> None:
        """Add to the history what no consumer and no producer tells; from any thread."""
        self._told.append(operation)

    @property
    def told(self) -> tuple[Operation, ...]:
        """What was added by `tell`."""
        return tuple(self._told)

    def history(self, *, drained: bool) -> History:
        """All that has happened up to now. `drained`: the producer was stopped, and everything was read since."""
        options = self.fleet.options
        begin = Begin(
            self._began,
            self.group,
            PRECISION_S,
            recorded.unaware_s(options),
            tuple(Place(*p, 0) for p in self.partitions),
            recorded.untold(options),
        )
        ends = tuple(Place(*p, end) for p, end in sorted(self.producer.ends().items()))
        events = self._told_before_restart + self.fleet.events()
        consumed = recorded.of_fleet(self.records(), events)
        operations = [*self.producer.sends(), *self.told, *consumed]
        return in_order([begin, *operations, End(time.time(), ends, drained)], self.group)

    def keep_history(self, history: History | None = None) -> Path:
        """Write it where it stays when the trial is over, beside the documents of its runs; returns where."""
        self.kept = HISTORIES / f"{self.group}.jsonl"
        write(self.kept, history or self.history(drained=False))
        shutil.copytree(self.folder, self.kept.with_suffix(""), dirs_exist_ok=True)
        return self.kept

    def complaints(self, timeout: float = 60) -> tuple[str, ...]:
        """What is wrong with the whole trial, once all that was produced is read; if anything, its history is kept.

        The history's rules tell members, commits and what a run said apart. `check` sees each partition as one sequence
        of records: a second opinion on what was lost.
        """
        acked = self.producer.stop()
        self.fleet.wait_read_to(self.producer.ends(), timeout)
        history = self.history(drained=True)
        found = [str(finding) for finding in judge_history(history).findings]
        verdict = check(self.records(), acked, self._runs)
        if verdict.missing or verdict.targets_lost:
            found += verdict.complaints()
        return (*found, f"history: {self.keep_history(history)}") if found else ()

    def rest(self, at_least: float, at_most: float) -> None:
        """Let the consumers go on for a random while, so that the next reset meets other phases of their timers."""
        threading.Event().wait(self.random.uniform(at_least, at_most))


def run_trial(
    bootstrap: str,
    cell: Cell,
    resets: int,
    *,
    seed: int = 0,
    rest_s: tuple[float, float] = (0.5, 3.5),
    config: Mapping[str, str | int | float | bool | list[str]] | None = None,
) -> Iterator[Outcome]:
    """Do resets of one live group of this kind, each judged, in one go of producer and consumers.

    ``config``: further settings of the consumers, in their library's spelling.
    Raises `FleetError` in the end when the whole trial's history breaks a rule; it is kept then, or where a reset was
    not good.
    """
    with (
        tempfile.TemporaryDirectory(prefix="tidegate-trial-") as folder,
        Trial(bootstrap, cell, Path(folder), seed=seed, config=config) as trial,
    ):
        outcomes = []
        for _ in range(resets):
            trial.wait_settled(0.5)
            trial.rest(*rest_s)
            outcomes.append(trial.reset())
            yield outcomes[-1]
        complaints = trial.complaints()
        if complaints:
            raise FleetError("; ".join([*map(str, outcomes), *complaints]))
        if not all(outcome.is_good for outcome in outcomes):
            trial.keep_history()


# --- a writer that dies -----------------------------------------------------------------------------------------------


class _Mortal:
    """A run store whose process dies by SIGKILL ``delay_s`` after the journal got its first entry of a phase.

    At the latest it dies where it would write the result: how long a run takes is up to the members.
    """

    def __init__(self, store: DirectoryRunStore, phase: ResetPhase, delay_s: float) -> None:
        self._store = store
        self._phase = phase
        self._delay_s = delay_s

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def append(self, progress: Progress, *, attempt: int) -> None:
        self._store.append(progress, attempt=attempt)
        if progress.phase is self._phase:
            if self._delay_s == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            threading.Timer(self._delay_s, os.kill, (os.getpid(), signal.SIGKILL)).start()

    def finish(self, result: RunResult, *, attempt: int) -> None:  # noqa: ARG002 - the store's
        os.kill(os.getpid(), signal.SIGKILL)


def execute_and_die(folder: Path, run_uid: str, phase: ResetPhase, delay_s: float = 0.0) -> None:
    """Begin the stored run in a process of its own, which is killed ``delay_s`` after it wrote that it is in ``phase``.

    Returns when the process is dead. Raises ``AssertionError`` when it ended in another way.
    """
    command = [sys.executable, str(Path(__file__)), str(folder), run_uid, phase, str(delay_s)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    if done.returncode != -signal.SIGKILL:
        raise AssertionError(
            f"the writer was to die in {phase}, and ended with {done.returncode}: {done.stderr[-2000:]}"
        )


def _die(arguments: Sequence[str]) -> None:
    folder, run_uid, phase, delay_s = arguments
    store = DirectoryRunStore(Path(folder), run_uid.replace("/", "-"))
    mortal = _Mortal(store, ResetPhase(phase), float(delay_s))
    job.execute(cast("RunStore", mortal), KafkaClient(store.load().request.connection), SystemClock())


if __name__ == "__main__":
    _die(sys.argv[1:])
