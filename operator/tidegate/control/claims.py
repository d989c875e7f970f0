"""Whose turn it is with a group, by the claims in the control topic. Pure.

The order is that of the claims' first records; the first claim in force has the group, the others wait behind it. Time
is the broker's: a claim is in force until its lease has passed since its newest record, measured by the timestamps of
the records that follow it. So everybody who has read as far as some record knows the same about the time until then,
and no clock of a client has a say. Where the broker's clock goes back (another broker leads the topic, say), no time
has passed: a clock that was hours ahead for a moment may end claims, but keeps none in force for hours.

A claim that has lapsed stays lapsed: its renewals no longer count, and whoever made it has to make another one. It
stays in the topic until the next run that has the group takes it away, which tells a run that was cut off whether
anybody else had the group since.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from tidegate.control.records import LONGEST_LEASE_MS, Claim, ClaimKey


@dataclass(frozen=True, slots=True)
class Claimed:
    """A claim as the topic tells it. ``epoch``: its place, the offset of its first record. ``at_ms``: the timestamp of
    its newest record, epoch milliseconds; ``until_ms``: how long it is in force unless it is renewed, as ``time_ms``.
    """

    key: ClaimKey
    claim: Claim
    epoch: int
    at_ms: int
    until_ms: int


@dataclass(slots=True)
class Claims:
    """All claims of a cluster, fed with the control topic's records in order.

    ``time_ms``: the time by the records' timestamps. It begins with the first one and goes on by as much as each is
    later than the one before it.
    """

    time_ms: int = 0
    _last_ms: int | None = None
    """The last record's timestamp."""
    _claims: dict[ClaimKey, Claimed] = field(default_factory=dict)
    _withdrawn: dict[ClaimKey, int] = field(default_factory=dict)
    """When, as far as that is not too long ago for a renewal that was on its way."""

    def take(self, key: ClaimKey, claim: Claim | None, offset: int, at_ms: int | None) -> None:
        """One record, at its offset. ``at_ms``: its LogAppendTime; without one a claim says nothing."""
        self.passes(at_ms)
        if claim is None:
            self._claims.pop(key, None)
            self._withdrawn = {k: ms for k, ms in self._withdrawn.items() if ms + LONGEST_LEASE_MS >= self.time_ms}
            self._withdrawn[key] = self.time_ms
            return
        if at_ms is None or key in self._withdrawn:
            return
        known = self._claims.get(key)
        if known is not None and not self.is_in_force(known):
            return
        until_ms = self.time_ms + claim.lease_ms
        if known is not None:
            epoch = known.epoch
        elif claim.epoch is None or claim.renews_ms is None:
            epoch = offset
        else:
            # Compaction has taken what it renews, so that it has to be believed: but no later than it can be, and
            # not where it says itself that it came too late.
            epoch = min(claim.epoch, offset)
            late_ms = at_ms - claim.renews_ms - claim.lease_ms
            if late_ms > 0:
                until_ms = self.time_ms - late_ms
        self._claims[key] = Claimed(key, claim, epoch, at_ms, until_ms)

    def passes(self, at_ms: int | None) -> None:
        """A record of any kind was written at this time."""
        if at_ms is None:
            return
        self.time_ms = at_ms if self._last_ms is None else self.time_ms + max(0, at_ms - self._last_ms)
        self._last_ms = at_ms

    def copy(self) -> Claims:
        return Claims(self.time_ms, self._last_ms, dict(self._claims), dict(self._withdrawn))

    def is_in_force(self, claimed: Claimed) -> bool:
        return claimed.until_ms >= self.time_ms

    def get(self, key: ClaimKey) -> Claimed | None:
        """Whether it is in force or has lapsed."""
        return self._claims.get(key)

    def queue(self, group: str) -> tuple[Claimed, ...]:
        """Those in force, the one that has the group first."""
        return tuple(c for c in self._of(group) if self.is_in_force(c))

    def lapsed(self, group: str) -> tuple[Claimed, ...]:
        """Those whose claimants were not heard of in time, and that nobody has taken away."""
        return tuple(c for c in self._of(group) if not self.is_in_force(c))

    def _of(self, group: str) -> Collection[Claimed]:
        # Two that say the same place differ by their ids: everybody sees the same order.
        return sorted((c for k, c in self._claims.items() if k.group == group), key=lambda c: (c.epoch, c.key))
