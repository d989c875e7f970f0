"""The lines of a run's journal, each written before the step that it names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from tidegate.kafka.model import TopicPartition
from tidegate.reset.model.fleet import FleetCounts
from tidegate.reset.model.result import RunResult
from tidegate.reset.model.targets import PartitionOffset
from tidegate.resources.reset import ResetPhase, Way


@dataclass(frozen=True, slots=True)
class Searched:
    """How far a search through records has come: offsets looked at, those there are to look at, and how fast."""

    read: int
    total: int
    per_second: int


@dataclass(frozen=True, slots=True)
class Progress:
    """One line of a run's journal, written *before* the step it names: a successor knows what may have happened.

    ``before``: committed offsets just before the first commit of the run (partitions without one are absent).
    ``releasing``: ids of members made to let go. ``round``: 1 for the first commit, counted up when a partition is done
    again. ``again``: of the round's partitions, those that are known to need another one.
    """

    phase: ResetPhase
    at: datetime
    attempt: int
    way: Way | None = None
    round: int = 0
    before: tuple[PartitionOffset, ...] = ()
    releasing: tuple[str, ...] = ()
    pending: tuple[TopicPartition, ...] = ()
    again: tuple[TopicPartition, ...] = ()
    message: str = ""
    putting_back: str = ""
    """The reason (PascalCase) for which the run's offsets are being put back; empty while it goes forward."""
    redone: int = 0
    """Of a round: how many partitions had been done again by then, by all writers of the run, with this round's."""
    claim: int | None = None
    """Under which claim on the group a round is done, by its epoch; ``None``: by a version that knew none."""
    waits_for: str = ""
    """Why nothing goes on for now, for a person; the next line takes the place of this one."""
    searched: Searched | None = None
    """Takes the place of the line before it, where that tells of the same search."""
    held: RunResult | None = None
    """Of a fleet's group: how it ends if its fleet is kept."""
    counts: FleetCounts | None = None
    wave: int = 0
    """Of a fleet in waves: the one that is reset, from 1. The first line with its number was written before it began.
    """
    paused_until: datetime | None = None
    """The job ends here, and another one begins the next wave then."""
    stopped: bool = False
    """Of a fleet in waves: the decision that no other group is begun."""


def shortened(journal: Sequence[Progress], *, is_over: bool) -> tuple[Progress, ...]:
    """Without what nobody needs of its rounds any more, for where there is no room: a successor goes on from the last
    one, and needs to know of the others only where the group stood before, and what was to be put back. ``is_over``:
    there is none, as the run has its result. So a run that has room to begin has room to end.
    """
    rounds = [line for line in journal if line.round > 0]
    back = [line for line in reversed(rounds) if line.putting_back]
    kept = [*rounds[-1:], *([max(back, key=lambda line: len(line.pending))] if back else [])]

    def short(line: Progress) -> Progress:
        if is_over:
            return replace(line, before=(), releasing=(), pending=(), again=())
        if line.round == 0 or any(line is other for other in kept):
            return line
        return replace(line, releasing=(), pending=(), again=())

    return tuple(map(short, journal))


def noted(journal: Sequence[Progress], progress: Progress) -> tuple[Progress, ...]:
    """The journal with one more line. A step that is tried again is in it once."""
    kept = tuple(journal)
    if not kept:
        return (progress,)
    last = kept[-1]
    if last == progress:
        return kept
    searching = progress.searched is not None and last.searched is not None
    counting = progress.counts is not None and last.counts is not None and not last.message
    pausing = progress.paused_until is not None and last.paused_until is not None
    if searching or counting or pausing or last.waits_for:
        kept = kept[:-1]
    if last.waits_for and kept and progress == replace(kept[-1], at=progress.at, before=progress.before):
        # Where the group stood before may have been looked up anew.
        return (*kept[:-1], progress) if progress.before else kept
    return (*kept, progress)
