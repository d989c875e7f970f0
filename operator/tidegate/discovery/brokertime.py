"""The broker's time between two clock records, by this machine's monotonic clock: bounds, never a guess. Pure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class BrokerTime:
    """A clock record was appended at ``at_ms`` (epoch milliseconds, the broker's clock), somewhere between sending it
    and having the answer (seconds of the monotonic clock).
    """

    at_ms: int
    sent_s: float
    answered_s: float

    def latest_ms(self, monotonic_s: float) -> int:
        """The broker's time is at most this."""
        return self.at_ms + round((monotonic_s - self.sent_s) * 1000)

    def earliest_ms(self, monotonic_s: float) -> int:
        """The broker's time is at least this."""
        return self.at_ms + round((monotonic_s - self.answered_s) * 1000)
