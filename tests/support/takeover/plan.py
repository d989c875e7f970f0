"""Which faults come, and in which phases: a table, no more."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class Fault(StrEnum):
    """What becomes of the leader. ``STOP``: frozen, until another one leads and some time more."""

    KILL = "kill -9"
    STOP = "SIGSTOP, SIGCONT"


class Moment(StrEnum):
    """What a reset is at when its leader is struck: phases of its status, and steps within them.

    ``APPROVED``: somebody approves it while nobody leads. ``COMMITTING``: its targets are in a transaction, and its
    journal does not yet say that they are committed. ``ROLLING_BACK``: past its deadline, its offsets are put back.
    """

    PLANNING = "Planning"
    AWAITING = "AwaitingApproval"
    APPROVED = "AwaitingApproval, just approved"
    PAUSING = "Pausing"
    APPLYING = "Applying"
    COMMITTING = "committing"
    VERIFYING = "Verifying"
    ROLLING_BACK = "putting back"
    RESUMING = "Resuming"


class PauseMoment(StrEnum):
    """Which phase a pause is in by then."""

    PAUSING = "Pausing"
    PAUSED = "Paused"
    RESUMING = "Resuming"


class Whose(StrEnum):
    """Which group is reset. ``FLEET``: some groups without members, by a pattern, all of them or none."""

    IDLE = "a group without members"
    PLAIN = "a live classic group"
    MANAGED = "a live group that runs the agent"
    NEW = "a live KIP-848 group"
    FLEET = "three groups by a pattern"


@dataclass(frozen=True, slots=True)
class Episode:
    """One fault, what it is aimed at, and whose offsets are being reset."""

    fault: Fault
    moment: Moment
    pause: PauseMoment
    whose: Whose


_AIMS: Final = (
    (Moment.PLANNING, PauseMoment.PAUSING, Whose.IDLE, Whose.FLEET),
    (Moment.AWAITING, PauseMoment.RESUMING, Whose.PLAIN, Whose.MANAGED),
    (Moment.APPROVED, PauseMoment.PAUSED, Whose.IDLE, Whose.NEW),
    (Moment.PAUSING, PauseMoment.RESUMING, Whose.MANAGED, Whose.PLAIN),
    (Moment.APPLYING, PauseMoment.PAUSED, Whose.IDLE, Whose.IDLE),
    (Moment.COMMITTING, PauseMoment.PAUSED, Whose.PLAIN, Whose.PLAIN),
    (Moment.VERIFYING, PauseMoment.PAUSING, Whose.MANAGED, Whose.PLAIN),
    (Moment.VERIFYING, PauseMoment.RESUMING, Whose.NEW, Whose.MANAGED),
    (Moment.ROLLING_BACK, PauseMoment.PAUSING, Whose.PLAIN, Whose.PLAIN),
    (Moment.RESUMING, PauseMoment.PAUSED, Whose.FLEET, Whose.FLEET),
)

EPISODES: Final = tuple(
    Episode(fault, moment, pause, whose[number])
    for moment, pause, *whose in _AIMS
    for number, fault in enumerate(Fault)
)
"""Twenty of each: resets, pauses and faults."""

SHORT: Final = frozenset({Moment.PLANNING, Moment.APPLYING, Moment.COMMITTING, Moment.RESUMING})
"""Over within moments, so that whatever else is to be under way is begun before."""

MOST_TRIES: Final = 4
"""How often a moment is aimed at that may be over before the signal comes."""
