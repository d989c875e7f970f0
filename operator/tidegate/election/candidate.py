"""What a candidate for the Lease does next: decided from the record as it was last read, and a clock of its own.

As client-go's ``tools/leaderelection`` decides it. A candidate never compares its clock with the holder's: the holder
has ``duration_s`` from when this candidate *saw the record change*, however old the times in it are. The holder counts
from when it *sent* a renewal, and gives up after ``renew_s``, which is less. So the holder has stopped before anybody
can have taken its place, as long as both clocks run equally fast; and whoever was frozen meanwhile knows by the time
that has passed that it leads no more, before it asks anybody.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from tidegate.kube.lease import LeaseRecord

_JITTER: Final = 1.2
"""client-go's: a deadline below this many times the period would hardly allow for one attempt more."""


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds. ``lease_s``: how long a holder that is not heard of any more keeps others waiting. ``renew_s``: how long
    a holder goes without a renewal before it gives up. ``retry_s``: between two attempts.

    Raises ``ValueError`` where a holder could not give up in time.
    """

    lease_s: int
    renew_s: float
    retry_s: float

    def __post_init__(self) -> None:
        if self.renew_s >= self.lease_s:
            raise ValueError(
                f"a leader that can't renew its Lease gives up after {self.renew_s:g} s, but has to do so before the "
                f"Lease expires after {self.lease_s} s"
            )
        if self.retry_s * _JITTER >= self.renew_s:
            raise ValueError(
                f"a leader renews its Lease every {self.retry_s:g} s, and {_JITTER:g} times that has to be less than "
                f"the {self.renew_s:g} s after which it gives up"
            )

    @property
    def call_s(self) -> float:
        """How long a call may take: two fit before the leader gives up."""
        return self.renew_s / 2


@dataclass(frozen=True, slots=True)
class Look:
    """Read the Lease."""


@dataclass(frozen=True, slots=True)
class Create:
    """Create the Lease, of which there is none."""

    record: LeaseRecord


@dataclass(frozen=True, slots=True)
class Update:
    """Write the record over the one that was read."""

    record: LeaseRecord
    over: LeaseRecord


@dataclass(frozen=True, slots=True)
class Wait:
    """Nothing is to be done for so long."""

    seconds: float


@dataclass(frozen=True, slots=True)
class GiveUp:
    """It was leading and leads no more."""

    why: str


Step = Look | Create | Update | Wait | GiveUp


@dataclass(frozen=True, slots=True)
class Identity:
    """Who a process is in the record: ``<replica>_<process>``.

    ``is_alone``: there is never more than one process of this replica, as in a pod. Then a holder of the same replica
    is an earlier process of it, which is over.
    """

    replica: str
    process: str
    is_alone: bool = False

    def __str__(self) -> str:
        return f"{self.replica}_{self.process}"

    def is_predecessor(self, holder: str) -> bool:
        return self.is_alone and holder.startswith(f"{self.replica}_") and holder != str(self)


class Candidate:
    """One process that wants to lead. ``now_s``: a monotonic clock, which also counts while the process is frozen.

    ``step`` says what to do; whoever does it reports by ``looked``, ``wrote`` or ``failed``.
    """

    def __init__(self, identity: Identity, timing: Timing) -> None:
        self._identity = identity
        self.identity = str(identity)
        self.timing = timing
        self._seen: LeaseRecord | None = None
        self._seen_s = 0.0
        self._is_fresh = False
        """Whether ``_seen`` is what a write is to be tried over."""
        self._due_s: float | None = None
        self._renewed_s: float | None = None

    @property
    def until_s(self) -> float | None:
        """Until when this process leads, by its own clock; ``None`` while it never led."""
        return self._renewed_s + self.timing.renew_s if self._renewed_s is not None else None

    @property
    def holder(self) -> str:
        """Who leads, as far as was seen."""
        return self._seen.holder if self._seen is not None else ""

    def step(self, now_s: float, now: datetime) -> Step:
        """``now``: for the record's times, which people read."""
        until_s, seen = self.until_s, self._seen
        if until_s is not None and now_s >= until_s:
            return GiveUp(f"the Lease could not be renewed for {self.timing.renew_s:g} s")
        if self._due_s is not None and now_s < self._due_s:
            return Wait((self._due_s if until_s is None else min(self._due_s, until_s)) - now_s)
        if not self._is_fresh:
            return Look()
        if seen is None:
            return Create(LeaseRecord(self.identity, self.timing.lease_s, 0, now, now))
        if seen.holder == self.identity:
            return Update(replace(seen, duration_s=self.timing.lease_s, renewed=now), seen)
        if until_s is not None:
            return GiveUp(f"the Lease is {f'held by {seen.holder}' if seen.holder else 'no longer held by anybody'}")
        return Update(LeaseRecord(self.identity, self.timing.lease_s, seen.transitions + 1, now, now), seen)

    def looked(self, found: LeaseRecord | None, now_s: float) -> None:
        """The Lease was read; ``now_s``: when the answer was there."""
        if found != self._seen:
            self._seen_s = now_s
        self._seen, self._is_fresh, self._due_s = found, True, None
        if found is None or found.holder in ("", self.identity) or self._renewed_s is not None:
            return
        if self._identity.is_predecessor(found.holder):
            return
        # One without a duration was changed by hand: its holder goes by its own, and does not know of that yet.
        left_s = self._seen_s + (found.duration_s or self.timing.lease_s) - now_s
        if left_s > 0:
            # The moment it ends is looked at again: it may have been renewed.
            self._is_fresh, self._due_s = False, now_s + min(self.timing.retry_s, left_s)

    def wrote(self, record: LeaseRecord, sent_s: float) -> None:
        """This process holds the Lease; ``sent_s``: when the request was sent that was answered by ``record``."""
        self._seen, self._seen_s, self._is_fresh = record, sent_s, True
        self._renewed_s, self._due_s = sent_s, sent_s + self.timing.retry_s

    def failed(self, now_s: float, *, at_once: bool) -> None:
        """Whether the last step was done is not known, or it was refused. ``at_once``: a look will tell more."""
        self._is_fresh = False
        self._due_s = now_s if at_once and self._renewed_s is not None else now_s + self.timing.retry_s / 2

    def release(self, now: datetime) -> Update | None:
        """What lets another one lead at once; ``None`` where the Lease is not this process's."""
        seen = self._seen
        if self._renewed_s is None or seen is None or seen.holder != self.identity:
            return None
        # Not 0, which the API server refuses.
        return Update(LeaseRecord("", 1, seen.transitions, now, now), seen)
