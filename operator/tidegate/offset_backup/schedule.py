"""When a backup is due: at each multiple of the schedule since 1970, once. Pure; ``now`` is the operator's clock."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

FIRST_RETRY: Final = timedelta(minutes=1)
LONGEST_RETRY: Final = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class Attempt:
    """The newest launch. ``ended_at``: when it was seen to have ended without a backup; ``None``: it runs.

    ``failures``: how many attempts in a row have ended so, this one included.
    """

    due: datetime
    ended_at: datetime | None = None
    failures: int = 0


@dataclass(frozen=True, slots=True)
class Take:
    """Make the backup of ``due`` now. ``missed``: due times since the last one made that nobody will make."""

    due: datetime
    missed: int = 0


@dataclass(frozen=True, slots=True)
class Wait:
    """Nothing is to be begun before ``until``, or before the attempt under way has ended."""

    until: datetime


def due_at(now: datetime, every: timedelta) -> datetime:
    """The newest due time that is not after ``now``."""
    return EPOCH + (now - EPOCH) // every * every


def decide(
    now: datetime,
    every: timedelta,
    made: datetime | None,
    attempt: Attempt | None,
    asked: datetime | None = None,
    since: datetime | None = None,
) -> Take | Wait:
    """What is to be done. ``made``: the due time of the newest backup there is, by whichever schedule it was due.
    ``asked``: when somebody has asked for one beside the schedule; it is due once it is that time. ``since``: when
    backups were first wanted, or wanted again: none was missed before.

    An operator that was away makes one, and not one for each due time it has missed: the offsets of then are gone. A
    clock that was set back waits until it has come by the newest backup again, but for no later one than is due next.
    """
    due = due_at(now, every)
    if made is not None and _is_ahead(now, every, made):
        made = None
    if attempt is not None and attempt.ended_at is None:
        return Wait(due + every)
    if asked is not None and due < asked <= now:
        due = asked
    if made is not None and due <= made:
        return Wait(due_at(made, every) + every)
    if attempt is not None and attempt.ended_at is not None and attempt.due >= due:
        again = min(attempt.ended_at + retry_after(attempt.failures), due_at(due, every) + every)
        # What was seen to end in the future was seen by another clock, or before this one was set back.
        if now < again and attempt.ended_at <= now:
            return Wait(again)
    if made is None:
        return Take(due)
    before = due_at(made if since is None else max(made, since), every)
    return Take(due, max(0, (due - before) // every - 1))


def retry_after(failures: int) -> timedelta:
    """How long after the last failure it is tried again: twice as long each time, up to ``LONGEST_RETRY``."""
    return min(FIRST_RETRY * (1 << min(max(failures - 1, 0), 16)), LONGEST_RETRY)


def is_late(now: datetime, every: timedelta, made: datetime | None, since: datetime) -> bool:
    """Whether there has been no backup for longer than two schedules. ``since``: when backups were first wanted, or
    wanted again."""
    known = made is not None and not _is_ahead(now, every, made)
    return now - (max(made, since) if made is not None and known else since) > 2 * every


def _is_ahead(now: datetime, every: timedelta, made: datetime) -> bool:
    """Whether a backup was due at a time that is farther off than the next due time: then the clock was ahead that made
    it, by a year perhaps, and tells nothing of when there has to be another one."""
    return made > now + every
