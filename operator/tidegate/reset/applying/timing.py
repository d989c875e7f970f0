"""How long a run waits for what, and until when."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Final, TypeVar

from tidegate.clock import Clock
from tidegate.kafka.errors import Unavailable

T = TypeVar("T")

NOTICED_S: Final = 1.0
"""How much later than a heartbeat an owner that was made to leave is back."""


@dataclass(frozen=True, slots=True)
class Tuning:
    """Times in seconds. The defaults fit brokers and clients at their defaults (heartbeats 3 s and 5 s)."""

    probe_s: float = 0.12
    """Between two looks at whether everybody has rejoined."""
    look_s: float = 0.04
    """Between two looks at committed offsets while watching."""
    visible_s: float = 0.004
    """Between two looks at whether a transaction has become visible (median 10 to 50 ms)."""
    shown_s: float = 0.3
    """By then a transaction of ours shows (at most 250 ms were seen); what is still pending, others hold."""
    hanging_s: float = 3.0
    """By then the outcome of an ended transaction of ours shows also where brokers are slow; where it does not, its
    coordinator may never tell it."""
    visible_limit_s: float = 20.0
    """How long a marker's transaction, which is our own, may take to show."""
    quiet_s: float = 10.0
    """How long a moment is waited for in which no member has a transaction open, before any is made to rejoin."""
    others_limit_s: float = 75.0
    """How long others' transactions are waited for, while nobody is held: the brokers abort those of a dead application
    after a minute by default, and look for them each 10 s."""
    rejoin_limit_s: float = 120.0
    """How long owners that were made to leave a cooperative group may take, and putting back; longer than a dead
    member's session timeout of 45 s."""
    back_limit_s: float = 12.0
    """How long to wait for members that we made leave to come back (KIP-848: within their heartbeat of 5 s)."""
    session_s: float = 45.0
    """``session.timeout.ms`` of clients: one that has not come back to its Empty group by then has ended."""
    fresh_s: float = 0.15
    """How old a look at a classic group's owners may be when its join is held: no rebalance fits into that."""
    dead_hold_s: float = 10.0
    """By then the join that a dead writer held is held no more (``membership.PENDING_SESSION_S``)."""
    settle_limit_s: float = 60.0
    """How long to wait for a group to become stable before the next step: longer than a rebalance waits for a dead
    member, whose session ends after 45 s by default."""
    watch_s: float = 6.5
    """How long to watch for the owners' next commits: past ``auto.commit.interval.ms`` of 5 s."""
    watch_at_least_s: float = 1.0
    heartbeat_s: float = 3.0
    """``heartbeat.interval.ms`` of classic clients: by then an owner has noticed that a rebalance is under way."""
    obey_s: float = 3.0
    """How long managed owners may take to obey, over their drain time-out; one silent for so long runs no agent."""
    open_limit_s: float = 30.0
    """How long a writer tries to open its gates while Kafka is away; then its successor has to."""
    turn_limit_s: float | None = None
    """How long a run waits for its turn with the group; absent: until its deadline."""
    kept_back_s: float = 0.5
    """By then a client that has joined (franz-go) has sent what was committed while it did."""
    margin_s: float = 0.5
    """Added to ``inFlight``."""
    transaction_s: float = 5.0
    """Time-out of a transaction that is open for moments only; the broker looks every 10 s, so 15 s in all."""
    retry_s: float = 0.5
    retry_at_most_s: float = 5.0
    """``retry_s`` is doubled up to that while Kafka stays away."""
    away_limit_s: float = 120.0
    """How long a run without a deadline goes on while Kafka does not answer."""


class DeadlinePassed(Exception):
    """The run's deadline has passed."""


class NotReady(Exception):
    """The group did not reach the state that the next step needs; the message says which."""


class Pace:
    """Waiting within a run's deadline. ``deadline``: by the clock's wall time; ``None``: no end.

    ``still_ours``: raises where the run has to stop for another reason.
    """

    def __init__(self, clock: Clock, tuning: Tuning, deadline: datetime | None) -> None:
        self.clock = clock
        self.tuning = tuning
        self._deadline = deadline
        self._extended: tuple[float, float] | None = None
        """By how many seconds, and until when (monotonic)."""
        self.still_ours: Callable[[], None] = lambda: None

    @property
    def has_deadline(self) -> bool:
        return self._deadline is not None or self._extended is not None

    def extend(self, seconds: float) -> None:
        """A new deadline, that long from now, though the wall clock may be set meanwhile."""
        self._extended = seconds, self.clock.monotonic() + seconds

    @property
    def is_over(self) -> bool:
        if self._extended is not None:
            return self.clock.monotonic() > self._extended[1]
        return self._deadline is not None and self.clock.now() > self._deadline

    def check(self) -> None:
        """Raises ``DeadlinePassed``, and what ``still_ours`` raises."""
        self.still_ours()
        if self.is_over and self._extended is not None:
            raise DeadlinePassed(f"it took longer than {self._extended[0]:.0f} s")
        if self.is_over:
            raise DeadlinePassed(f"the run's deadline {self._deadline:%Y-%m-%dT%H:%M:%SZ} has passed")

    def until(self, reached: Callable[[], bool], limit_s: float, every_s: float) -> bool:
        """Look until it is reached, for at most ``limit_s``; whether it was. Raises ``DeadlinePassed``."""
        limit = self.clock.monotonic() + limit_s
        while not reached():
            if self.clock.monotonic() > limit:
                return False
            self.check()
            self.clock.sleep(every_s)
        return True

    def pause(self, seconds: float) -> None:
        """Wait. Raises ``DeadlinePassed``."""
        if seconds > 0:
            self.until(lambda: False, seconds, self.tuning.look_s)

    def retrying(self, call: Callable[[], T]) -> T:
        """Try again for as long as the deadline allows while Kafka is away; without a deadline, once."""
        while True:
            try:
                return call()
            except Unavailable:
                if not self.has_deadline:
                    raise
                self.check()
                self.clock.sleep(self.tuning.retry_s)
