"""What happens in a random sequence: all of it is drawn from a seed, before anything is carried out.

So nothing that happens on the way, and no clock, has a say in what comes next: a seed that failed is lived again
exactly. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from random import Random
from typing import Any, Final, assert_never

PARTITIONS: Final = 4
MEMBERS: Final = 3


class Disturbance(StrEnum):
    """What may go wrong in the midst of a step."""

    OPERATOR_KILLED = "kill -9 of the operator"
    CONSUMER_CRASHES = "a consumer crashes, another joins"
    CONSUMER_JOINS = "a consumer joins"


@dataclass(frozen=True, slots=True)
class Mishap:
    """``victim``: which of the members that run crashes, counted from the eldest."""

    kind: Disturbance
    victim: int = 0


class TargetKind(StrEnum):
    SHIFT_BY = "shiftBy"
    EARLIEST = "earliest"
    LATEST = "latest"
    DURATION = "duration"
    TIMESTAMP = "timestamp"
    UNDO = "undo"


@dataclass(frozen=True, slots=True)
class Target:
    """``value``: records for ``shiftBy``, whole seconds back for ``duration`` and ``timestamp``, a run's id for
    ``undo``."""

    kind: TargetKind
    value: int | str = 0

    def words(self, now: datetime) -> Mapping[str, Any]:
        """As ``spec.reset.to`` says it."""
        match self.kind:
            case TargetKind.SHIFT_BY | TargetKind.UNDO:
                return {self.kind.value: self.value}
            case TargetKind.EARLIEST | TargetKind.LATEST:
                return {self.kind.value: {}}
            case TargetKind.DURATION:
                return {self.kind.value: f"{self.value}s"}
            case TargetKind.TIMESTAMP:
                at = now.astimezone(UTC) - timedelta(seconds=int(self.value))
                return {self.kind.value: at.strftime("%Y-%m-%dT%H:%M:%SZ")}
            case _:
                assert_never(self.kind)

    def __str__(self) -> str:
        return f"{self.kind} {self.value}" if self.value else self.kind.value


@dataclass(frozen=True, slots=True)
class Reset:
    """``planned``: which of the partitions it selects get a target; an undo has none for what the other run left alone.

    ``applied_again_h``: the resource is applied again afterwards, with this many hours in a field that is none of the
    reset's.
    """

    run_id: str
    to: Target
    partitions: tuple[int, ...]
    planned: tuple[int, ...]
    meanwhile: Mishap | None = None
    applied_again_h: int | None = None

    def __str__(self) -> str:
        meanwhile = f", {self.meanwhile.kind}" if self.meanwhile is not None else ""
        again = ", applied again" if self.applied_again_h is not None else ""
        return f"{self.run_id}: {self.to} on {list(self.partitions)}{meanwhile}{again}"


@dataclass(frozen=True, slots=True)
class Pause:
    """Partitions are paused and resumed. ``rest_s``: for how long at least, where nothing else takes its time."""

    partitions: tuple[int, ...]
    meanwhile: Mishap | Reset | None
    rest_s: float

    def __str__(self) -> str:
        match self.meanwhile:
            case None:
                meanwhile = ""
            case Mishap():
                meanwhile = f", {self.meanwhile.kind}"
            case Reset():
                meanwhile = f", {self.meanwhile}"
        return f"pause {list(self.partitions)}{meanwhile}, resume"


@dataclass(frozen=True, slots=True)
class Story:
    """A group and what is done to it. ``managed``: its consumers run the agent; only those can be paused."""

    seed: int
    protocol: str
    assignor: str | None
    managed: bool
    steps: tuple[Reset | Pause, ...]

    @property
    def resets(self) -> tuple[Reset, ...]:
        """All of them, in their order."""
        found = (step if isinstance(step, Reset) else step.meanwhile for step in self.steps)
        return tuple(step for step in found if isinstance(step, Reset))

    @property
    def may_read_again(self) -> bool:
        """A crash, or leaving in an owner's name, costs what was not committed; holding a join does not."""
        mishaps = (step.meanwhile for step in (*self.steps, *self.resets))
        crashes = any(isinstance(m, Mishap) and m.kind is Disturbance.CONSUMER_CRASHES for m in mishaps)
        return crashes or self.protocol == "consumer" or self.assignor == "cooperative-sticky"

    def __str__(self) -> str:
        group = f"{self.protocol} {self.assignor or 'uniform'}{' with the agent' * self.managed}"
        return f"seed {self.seed}: {' → '.join([group, *map(str, self.steps)])}"


def draw(seed: int) -> Story:
    """The story of a seed."""
    return _Drawing(Random(seed)).story(seed)


class _Drawing:
    def __init__(self, random: Random) -> None:
        self._random = random
        self._resets: list[Reset] = []

    def story(self, seed: int) -> Story:
        random = self._random
        protocol = random.choice(["classic", "classic", "consumer"])
        assignor = random.choice(["range", "cooperative-sticky"]) if protocol == "classic" else None
        managed = random.random() < 0.5
        # A KIP-848 member that crashed is missed after 45 s only.
        self._may_crash = protocol == "classic"
        steps = tuple(
            self._pause() if managed and random.random() < 0.5 else self._disturbed_reset()
            for _ in range(random.randint(2, 4))
        )
        return Story(seed, protocol, assignor, managed, steps)

    def _partitions(self) -> tuple[int, ...]:
        return tuple(sorted(self._random.sample(range(PARTITIONS), self._random.randint(1, PARTITIONS))))

    def _mishap(self) -> Mishap:
        kinds = list(Disturbance) if self._may_crash else [Disturbance.OPERATOR_KILLED, Disturbance.CONSUMER_JOINS]
        return Mishap(self._random.choice(kinds), self._random.randrange(MEMBERS))

    def _target(self) -> Target:
        random = self._random
        return random.choice(
            [
                Target(TargetKind.SHIFT_BY, -random.randint(20, 80)),
                Target(TargetKind.SHIFT_BY, random.randint(5, 30)),
                Target(TargetKind.EARLIEST),
                Target(TargetKind.LATEST),
                Target(TargetKind.DURATION, random.randint(2, 6)),
                Target(TargetKind.TIMESTAMP, 4),
            ]
        )

    def _reset(self) -> Reset:
        partitions = self._partitions()
        return self._noted(Reset(f"r{len(self._resets)}", self._target(), partitions, partitions))

    def _undo(self) -> Reset:
        undone = self._random.choice(self._resets)
        partitions = tuple(sorted({*self._partitions(), self._random.choice(undone.planned)}))
        planned = tuple(sorted({*partitions} & {*undone.planned}))
        to = Target(TargetKind.UNDO, undone.run_id)
        return self._noted(Reset(f"r{len(self._resets)}", to, partitions, planned))

    def _noted(self, reset: Reset) -> Reset:
        self._resets.append(reset)
        return reset

    def _disturbed_reset(self) -> Reset:
        random = self._random
        reset = self._undo() if self._resets and random.random() < 0.35 else self._reset()
        meanwhile = self._mishap() if random.random() < 0.6 else None
        return replace(
            reset, meanwhile=meanwhile, applied_again_h=random.randint(1, 9) if random.random() < 0.3 else None
        )

    def _pause(self) -> Pause:
        partitions, rest_s = self._partitions(), round(self._random.uniform(0.5, 2.0), 1)
        what = self._random.choice(("rest", "mishap", "mishap", "mishap", "reset"))
        meanwhile: Mishap | Reset | None = None
        if what == "mishap":
            meanwhile = self._mishap()
        elif what == "reset":
            meanwhile = self._reset()
        return Pause(partitions, meanwhile, rest_s)
