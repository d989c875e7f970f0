"""What is known of one partition of a consumer, and what it needs next."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Final

from tidegate_agent.effects import Effect

DRAIN_POLL_S: Final = 0.02


class Stage(enum.Enum):
    UNREAD = "unread"
    OPEN = "open"
    DRAINING = "draining"
    CLOSED = "closed"
    OPENING = "opening"


class Step(enum.IntEnum):
    """What a partition needs next; of several partitions' needs the smallest is done first."""

    PAUSE = 1
    SEEK = 2
    BEGIN = 3
    RESUME = 4
    POSITION = 5
    COMMIT = 6
    DRAINED = 7  # committed offset: has what was delivered been committed?
    RECHECK = 8  # position once more, now that no commit passes
    FORGET = 9
    BARRIER = 10  # committed offset after the last commit that passed
    TARGET = 11  # committed offset to go on from
    PLACE = 12  # committed offset: is there one to begin at?
    ACK = 13
    JUDGE = 14  # no effect: what would decide where to begin may still come
    LOOK = 15  # position: has it come to its limit?


@dataclass
class PartitionState:
    stage: Stage
    ticket: int
    since: float
    step: Step | None = None
    due: float = 0.0
    tries: int = 0
    wait: float = DRAIN_POLL_S
    effect: Effect | None = None
    app_paused: bool = False
    app_sought: bool = False
    sealed: bool = False
    read: bool = False
    """Its gate was read since it was assigned."""
    next_at: int | None = None
    """The offset of the next record that it would deliver, where that was the limit's or beyond."""
    next_known: tuple[int, int] = (0, -1)
    """``read_to`` at that time: once it was held since, the group may have been reset."""
    passed: int | None = None
    """The offset after the last record that was delivered below a limit, since it was opened or sought."""
    known: tuple[int, int] = (0, -1)
    """``read_to`` from before the client could ask where to begin."""
    position: int | None = None
    committed: int | None = None
    was_closed: bool = False
    """Whether it has been closed since it was last open."""
    before: int | None = None
    """The committed offset when it was closed, kept through later holds."""
    target: int | None = None
    deadline: float = 0.0
    give_up: float = 0.0
    """When the ack goes without the committed offset."""
    timed_out: bool = False
    running: frozenset[int] = frozenset()
    """The application's commit calls that were under way when it was sealed."""
    unplaced: bool = False
    """The rule for new partitions has not said yet where it begins."""
    judge_by: float = 0.0
    tell_again: float | None = None
    """When the client is told once more what it was told last: to pause it, or to resume it."""
    acked: tuple[int, int] | None = None
    """Generation and epoch of the newest ack."""
    warned: bool = False
    lost: Lost | None = None
    """When it was this consumer's before."""
    in_hand: int | None = None
    """The offset after the last record that may still be in hand from before a rebalance, or from before a closing
    that did not wait for it, as long as its commit may come."""
    late_from: int | None = None
    """Where it goes on since, if the group may have been reset after those were handed out; 0: not known yet."""

    def need(self, step: Step | None, due: float = 0.0) -> None:
        if step is not self.step:
            self.tries = 0
        self.step, self.due = step, due


@dataclass(frozen=True)
class Lost:
    """A partition that was taken away: what was handed out of it (``in_hand``), and whether it was closed since.

    ``generation`` and ``taken``: what was known of the control topic at that time.
    """

    in_hand: int | None
    was_gated: bool
    generation: int
    taken: int
