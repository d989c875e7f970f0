"""A fleet's groups in waves: which are next, when, and what stops them. Pure.

Which groups are in which wave follows from the plan, and how far they are from the groups' own documents. So the next
step is the same whoever asks, and no group is reset twice. The fleet's journal tells people of it, and has the decision
to stop.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from tidegate.reset.model.request import Waves
from tidegate.reset.model.result import RunResult
from tidegate.reset.store import Run
from tidegate.resources.reset import ResetPhase

ROLLOUT_STOPPED: Final = "RolloutStopped"

PAUSED_HERE: Final = timedelta(seconds=30)
"""A pause of which so much is left is waited for by the job itself. One with more is left to the next job, so that it
takes up no thread and no Spark application."""

_NAMED: Final = 3


def waves_of(waves: Waves, groups: Sequence[str]) -> tuple[tuple[str, ...], ...]:
    """The groups in waves, in their order; the last one may be smaller."""
    ordered = sorted(groups)
    size = waves.groups or max(1, -(-len(ordered) * waves.percent // 100))
    return tuple(tuple(ordered[n : n + size]) for n in range(0, len(ordered), size))


def shortest(waves: Waves, groups: Sequence[str]) -> timedelta:
    """How long the pauses take alone."""
    return waves.pause * max(0, len(waves_of(waves, groups)) - 1)


def wave_begun(fleet: Run) -> int:
    """The number of the wave that was begun last, by the fleet's journal; 0: none was."""
    return max((line.wave for line in fleet.journal), default=0)


def stopped_by(fleet: Run) -> str | None:
    """Why no other group is begun, if that was decided."""
    return next((line.message for line in fleet.journal if line.stopped), None)


def paused_until(fleet: Run) -> datetime | None:
    """When the next wave begins, where the newest job has ended for that."""
    last = fleet.last
    return last.paused_until if last is not None and last.attempt == fleet.attempt else None


def pauses(fleet: Run) -> int:
    """How many jobs have ended because of a pause."""
    return sum(line.paused_until is not None for line in fleet.journal)


# --- what next --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class BeginWave:
    """Note that a wave is reset from now on."""

    wave: int
    message: str


@dataclass(frozen=True, slots=True)
class Pause:
    """Nothing is reset before then. ``wave``: the one that is over."""

    wave: int
    until: datetime
    message: str


@dataclass(frozen=True, slots=True)
class Stop:
    """Note that no other group is begun: the decision."""

    wave: int
    message: str


@dataclass(frozen=True, slots=True)
class Leave:
    """End the runs of these groups, none of which was begun."""

    groups: tuple[str, ...]
    message: str


@dataclass(frozen=True, slots=True)
class GoOn:
    """Reset these groups, and begin none of them once another one has failed."""

    groups: tuple[str, ...]


WaveStep = BeginWave | Pause | Stop | Leave | GoOn


def next_in_waves(
    fleet: Run, waves: Waves, groups: Mapping[str, Run], ends: Mapping[str, RunResult], now: datetime
) -> WaveStep:
    """What is next while there are groups that have not ended. ``ends``: how groups have ended, or would if their fleet
    is kept."""
    order = waves_of(waves, tuple(groups))
    stopped = stopped_by(fleet)
    if stopped is not None:
        begun = tuple(n for n in sorted(groups) if n not in ends and groups[n].journal)
        left = tuple(n for n in sorted(groups) if n not in ends)
        return GoOn(begun) if begun else Leave(left, stopped)
    number, wave = next((n, names) for n, names in enumerate(order, 1) if any(name not in ends for name in names))
    why = trouble(order, ends)
    if why is not None:
        return Stop(wave_begun(fleet), f"{why}. No other group is begun")
    if wave_begun(fleet) < number:
        before = order[number - 2] if number > 1 else ()
        until = max((ends[name].finished_at for name in before), default=now) + waves.pause
        if before and now < until:
            at = until.isoformat(timespec="seconds")
            message = f"wave {number - 1} of {len(order)} is done, wave {number} begins at {at}"
            return Pause(number - 1, until, message)
        return BeginWave(number, f"wave {number} of {len(order)} begins: {_named(wave)}")
    return GoOn(tuple(name for name in wave if name not in ends))


def trouble(order: Sequence[Sequence[str]], ends: Mapping[str, RunResult]) -> str | None:
    """What keeps further groups from being begun. A wave that is over has to have told of how many partitions it is not
    seen yet that they are read from their targets."""
    for number, wave in enumerate(order, 1):
        ended = [(name, ends[name]) for name in wave if name in ends]
        of = f"Wave {number} of {len(order)}: group"
        for name, end in ended:
            if end.phase is not ResetPhase.SUCCEEDED and end.reason != ROLLOUT_STOPPED:
                return f"{of} {name}: {end.message}"
        unknown = [name for name, end in ended if end.waiting is None and end.phase is ResetPhase.SUCCEEDED]
        if unknown and len(ended) == len(wave):
            return f"{of} {unknown[0]} was reset, but Kafka did not say who reads from the targets"
    return None


def _named(groups: Sequence[str]) -> str:
    if len(groups) == 1:
        return f"group {groups[0]}"
    more = f" and {len(groups) - _NAMED:,} more" if len(groups) > _NAMED else ""
    return f"{len(groups):,} groups, {', '.join(groups[:_NAMED])}{more}"
