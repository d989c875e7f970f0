"""What happens in one trial of the campaign: all of it is drawn from a seed, before anything is carried out. Pure.

Neither what happens on the way nor a clock has a say in what comes next: the same seed is the same schedule, always.
What the clients and brokers make of it is another matter, since their timing is their own.
"""

from __future__ import annotations

import zlib
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from random import Random
from typing import Final

from support.clients import ClientKind, CommitMode, GroupProtocol
from support.clients.options import TRANSACTIONAL
from support.life_story import Target, TargetKind
from support.reset_trial import FIRST_CLIENTS, Cell, kinds, managed
from tidegate.resources.reset import ResetPhase

BROKERS: Final = 3
SESSION_S: Final = 10.0
"""Of members that may crash: by default they would be missed after 45 s only."""
EVERYTHING_FROM: Final = 1000
"""From this seed on all clients and all ways to commit are drawn. The seeds below mean what they meant before there
were some of them."""
_HOLD_S: Final = 2.0
_TRANSACTION_S: Final = (0.3, 2.0)
"""For how long an exactly-once application leaves each of its transactions open."""
_AT_ONCE: Final = 3


class FaultKind(StrEnum):
    """What goes wrong, and to whom."""

    CONSUMER_KILLED = "a consumer is killed, another joins"
    CONSUMER_FROZEN = "a consumer is frozen"
    CONSUMER_JOINS = "a consumer joins"
    WRITER_KILLED = "the writer is killed, a successor goes on"
    WRITER_FROZEN = "the writer is frozen"
    WRITER_SUPERSEDED = "the writer is frozen, a successor goes on, and it awakes"
    BROKER_KILLED = "a broker is killed and comes back"
    BROKER_FROZEN = "a broker is frozen"

    @property
    def is_of_broker(self) -> bool:
        return self in (FaultKind.BROKER_KILLED, FaultKind.BROKER_FROZEN)

    @property
    def is_of_writer(self) -> bool:
        return self in (FaultKind.WRITER_KILLED, FaultKind.WRITER_FROZEN, FaultKind.WRITER_SUPERSEDED)


@dataclass(frozen=True, slots=True)
class Fault:
    """Strikes ``after_s`` seconds after the run ``run`` of its step has begun ``phase``; without a phase, after the
    step itself has begun. Nothing happens where the run is over before.

    ``victim``: which of the members that run then, counted from the eldest; of the brokers, counted on from the one
    that coordinates the group; a writer's is its run's. ``for_s``: for how long somebody is frozen or away.
    """

    kind: FaultKind
    run: int
    phase: ResetPhase | None
    after_s: float
    for_s: float
    victim: int = 0

    def __str__(self) -> str:
        who = "" if self.kind.is_of_writer else f" ({self.victim})"
        when = f"{self.after_s:g} s after {self.phase or 'the start'} of run {self.run}"
        return f"{self.kind}{who}, {when}{f', for {self.for_s:g} s' if self.for_s else ''}"


class Carrier(StrEnum):
    """Who carries a reset out. ``JOB``: a run with a stored document, which a successor finishes. ``BACKFILL``: as
    discovery does, with nothing stored: it is begun anew."""

    JOB = "job"
    BACKFILL = "backfill"


@dataclass(frozen=True, slots=True)
class Run:
    """One reset. `partitions`: numbers within the trial's topic."""

    name: str
    to: Target
    partitions: tuple[int, ...]
    carrier: Carrier = Carrier.JOB

    def __str__(self) -> str:
        by = "" if self.carrier is Carrier.JOB else f" by {self.carrier}"
        return f"{self.name}: {self.to}{by} on {','.join(map(str, self.partitions))}"


@dataclass(frozen=True, slots=True)
class Step:
    """Resets that are asked for at once, none or some; `paused`: partitions that stand still meanwhile.

    `rest_s`: how long the group is left alone before.
    """

    runs: tuple[Run, ...]
    paused: tuple[int, ...]
    faults: tuple[Fault, ...]
    rest_s: float

    def __str__(self) -> str:
        said = [" and ".join(map(str, self.runs))] if self.runs else []
        if self.paused:
            said.insert(0, f"pause {','.join(map(str, self.paused))}")
        return "; ".join([*said, *map(str, self.faults)])


@dataclass(frozen=True, slots=True)
class Schedule:
    """A group and what is done to it, step by step. `max_standstill_s`: what each reset is told."""

    seed: int
    cell: Cell
    max_standstill_s: float
    steps: tuple[Step, ...]

    @property
    def runs(self) -> tuple[Run, ...]:
        """All of them, in the order in which they are asked for."""
        return tuple(run for step in self.steps for run in step.runs)

    @property
    def faults(self) -> tuple[Fault, ...]:
        return tuple(fault for step in self.steps for fault in step.faults)

    @property
    def wants_brokers_alone(self) -> bool:
        """Whether it does something to brokers, which no other trial may notice."""
        return any(fault.kind.is_of_broker for fault in self.faults)

    @property
    def application(self) -> str:
        """How its consumers commit, as a table names it."""
        return application(self.cell)

    @property
    def digest(self) -> str:
        """Tells whether a seed meant the same schedule when it was tried."""
        return f"{zlib.crc32(str(self).encode()):08x}"

    def __str__(self) -> str:
        cell = self.cell
        group = f"{cell.client} {cell.group}, {cell.members} members, {self.application}"
        standstill = f"maxStandstill {self.max_standstill_s:g} s"
        return f"seed {self.seed}: {' → '.join([f'{group}, {standstill}', *map(str, self.steps)])}"


def application(cell: Cell) -> str:
    """How a cell's consumers commit."""
    match cell.commit:
        case CommitMode.AUTO:
            every = "by default" if cell.auto_commit_interval_s is None else f"each {cell.auto_commit_interval_s:g} s"
            return f"auto-commit {every}"
        case CommitMode.WORKER:
            return f"late commit after {cell.hold_s:g} s"
        case CommitMode.TRANSACTIONS | CommitMode.ABORTS:
            aborts = ", every other aborted" if cell.commit is CommitMode.ABORTS else ""
            return f"transactions of {cell.hold_s:g} s{aborts}"
        case _:
            return f"{cell.commit} commit"


def can_commit_by_transactions(cell: Cell) -> bool:
    """Not librdkafka's at ``read_committed``: rebalanced twice with a transaction open, such a consumer begins at its
    ``auto.offset.reset``, on all of its partitions (ADR 19, ADR 20). A fault beside a reset brings that about."""
    waits = cell.kind is ClientKind.LIBRDKAFKA and cell.isolation != "read_uncommitted"
    return cell.kind in TRANSACTIONAL and not waits


def is_ended_by_late_commits(cell: Cell) -> bool:
    """librdkafka's static members in cooperative groups: a commit while one rejoins is fatal to it (guarantees.md)."""
    return cell.kind is ClientKind.LIBRDKAFKA and cell.static and cell.assignor == "cooperative-sticky"


def draw(seed: int) -> Schedule:
    """The schedule of a seed."""
    return _Drawing(seed).schedule()


class _Drawing:
    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._draws_everything = seed >= EVERYTHING_FROM
        self._random = Random(f"campaign {seed}")
        self._asked: list[Run] = []

    def schedule(self) -> Schedule:
        random = self._random
        cell = self._cell()
        self._cell_drawn = cell
        # Some schedules leave the brokers alone, so that most trials can run beside one another.
        self._kinds = [k for k in FaultKind if not k.is_of_broker or random.random() < 0.3]
        max_standstill_s = random.choice((5.0, 30.0))
        steps = tuple(self._step() for _ in range(random.choice((1, 2, 2, 3))))
        if any(f.kind is FaultKind.CONSUMER_KILLED for s in steps for f in s.faults) and cell.protocol is (
            GroupProtocol.CLASSIC
        ):
            cell = replace(cell, session_s=SESSION_S)
        return Schedule(self._seed, cell, max_standstill_s, steps)

    # --- the group ----------------------------------------------------------------------------------------------------

    def _cell(self) -> Cell:
        random = self._random
        client = random.choice(list(ClientKind) if self._draws_everything else FIRST_CLIENTS)
        unmanaged = kinds([client])
        # Twice as many: only these can be paused.
        agents = [cell for cell in managed() if cell.kind is client] * 2
        cell = random.choice(unmanaged + agents)
        return self._with_application(replace(cell, members=random.choice((1, 2, 2, 3))))

    def _with_application(self, cell: Cell) -> Cell:
        random = self._random
        modes = ["auto", "auto", "often", "sync", "async", "late"]
        if cell.kind is ClientKind.SARAMA:
            modes = ["auto", "often", "sync"]  # what was marked, while its session lasts
        elif cell.kind is ClientKind.KAFKA_GO:
            # What it was asked to commit before a rebalance it commits after it, also of what it no longer owns; at an
            # interval nobody would be told.
            modes = ["auto", "auto", "sync", "late"]
        elif cell.kind is ClientKind.KAFKAJS:
            modes.remove("async")
        if self._draws_everything and can_commit_by_transactions(cell):
            modes += ["transactions", "transactions", "aborts"]
        mode = random.choice(modes)
        match mode:
            case "auto":
                return cell
            case "often":
                # sarama does so each second by default.
                return replace(cell, auto_commit_interval_s=0.2 if cell.kind is ClientKind.SARAMA else 1.0)
            case "late":
                static = cell.static and not is_ended_by_late_commits(cell)
                return replace(cell, commit=CommitMode.WORKER, hold_s=_HOLD_S, in_flight_s=_HOLD_S + 0.5, static=static)
            case "transactions" | "aborts":
                return replace(cell, commit=CommitMode(mode), hold_s=random.choice(_TRANSACTION_S))
            case _:
                return replace(cell, commit=CommitMode(mode))

    # --- steps --------------------------------------------------------------------------------------------------------

    def _step(self) -> Step:
        random = self._random
        paused = self._partitions() if self._cell_drawn.agent and random.random() < 0.5 else ()
        asked = () if paused and random.random() < 0.4 else self._runs()
        faults = tuple(self._fault(asked) for _ in range(random.choice((0, 1, 1, 2))))
        return Step(asked, paused, _one_broker_at_a_time(faults), round(random.uniform(0.0, 3.0), 1))

    def _runs(self) -> tuple[Run, ...]:
        earlier = tuple(self._asked)
        count = self._random.choice((1, 1, 1, 1, 2, _AT_ONCE))
        runs = tuple(self._run(earlier) for _ in range(count))
        return tuple(_apart(run, [other for other in runs if other is not run]) for run in runs)

    def _run(self, earlier: Collection[Run]) -> Run:
        random = self._random
        name = f"r{len(self._asked)}"
        undoable = [run for run in earlier if run.carrier is Carrier.JOB]
        drawn = random.random()
        if undoable and drawn < 0.3:
            undone = random.choice(undoable)
            run = Run(name, Target(TargetKind.UNDO, undone.name), undone.partitions)
        elif drawn > 0.85 and not self._cell_drawn.agent:
            run = Run(name, Target(TargetKind.EARLIEST), self._partitions()[:2], Carrier.BACKFILL)
        else:
            run = Run(name, self._target(), self._partitions())
        self._asked.append(run)
        return run

    def _target(self) -> Target:
        random = self._random
        return random.choice(
            [
                Target(TargetKind.SHIFT_BY, -random.randint(20, 90)),
                Target(TargetKind.SHIFT_BY, -random.randint(20, 90)),
                Target(TargetKind.SHIFT_BY, random.randint(5, 30)),
                Target(TargetKind.EARLIEST),
                Target(TargetKind.LATEST),
                Target(TargetKind.DURATION, random.randint(2, 6)),
                Target(TargetKind.TIMESTAMP, random.randint(2, 6)),
            ]
        )

    def _partitions(self) -> tuple[int, ...]:
        count = self._cell_drawn.partitions
        return tuple(sorted(self._random.sample(range(count), self._random.randint(1, count // 2))))

    # --- faults -------------------------------------------------------------------------------------------------------

    def _fault(self, asked: tuple[Run, ...]) -> Fault:
        random = self._random
        kinds = [kind for kind in self._kinds if asked or not kind.is_of_writer]
        kind = random.choice(kinds)
        run = random.randrange(len(asked)) if asked else 0
        phase = random.choice((ResetPhase.PLANNING, ResetPhase.PAUSING, ResetPhase.PAUSING, ResetPhase.VERIFYING))
        return Fault(
            kind,
            run,
            phase if asked and asked[run].carrier is Carrier.JOB else None,
            # Most ways take up to some seconds; short delays fall into the middle of what is short.
            round(random.choice((0.0, random.uniform(0.0, 0.5), random.uniform(0.0, 4.0))), 2),
            round(random.uniform(*_LASTS_S[kind]), 1),
            random.randrange(BROKERS if kind.is_of_broker else max(1, self._cell_drawn.members)),
        )


def _apart(run: Run, others: Collection[Run]) -> Run:
    """Nobody tells when a backfill begins to act, so nobody could tell its order among resets of one partition."""
    if run.carrier is not Carrier.BACKFILL:
        return run
    left = tuple(n for n in run.partitions if not any(n in other.partitions for other in others))
    return replace(run, partitions=left) if left else replace(run, carrier=Carrier.JOB)


_LASTS_S: Final = {
    FaultKind.CONSUMER_KILLED: (0.0, 3.0),
    FaultKind.CONSUMER_FROZEN: (1.0, 12.0),
    FaultKind.CONSUMER_JOINS: (0.0, 0.0),
    FaultKind.WRITER_KILLED: (0.0, 5.0),
    FaultKind.WRITER_FROZEN: (0.5, 12.0),
    FaultKind.WRITER_SUPERSEDED: (0.5, 6.0),
    FaultKind.BROKER_KILLED: (4.5, 15.0),  # the controller lets it back when its old session is over, after 4 s
    FaultKind.BROKER_FROZEN: (1.0, 12.0),
}
"""For how long: frozen, away, or until somebody comes in the victim's place."""


def _one_broker_at_a_time(faults: tuple[Fault, ...]) -> tuple[Fault, ...]:
    """Two of three brokers away are an outage of the whole cluster."""
    return tuple(_without_second_broker(faults))


def _without_second_broker(faults: tuple[Fault, ...]) -> Iterator[Fault]:
    is_struck = False
    for fault in faults:
        if not (fault.kind.is_of_broker and is_struck):
            yield fault
        is_struck = is_struck or fault.kind.is_of_broker
