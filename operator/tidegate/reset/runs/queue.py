"""Who may reset a group when several policies would: what is under way goes on, then the older goes first. Pure.

One at a time for each group, whichever partitions they want: a group has one transactional id, and making its owners
let go of one partition moves all of them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from tidegate.kafka.names import overlap


@dataclass(frozen=True, slots=True)
class Claim:
    """A policy that would reset, or is resetting, groups.

    ``groups``: names or patterns. A group whose own name has a ``*`` may wait for more than it has to.
    """

    uid: str
    holder: str
    """Namespace and name, for a person."""
    created: datetime
    cluster_id: str
    groups: tuple[str, ...]
    under_way: bool

    @property
    def precedence(self) -> tuple[bool, datetime, str]:
        """Smaller goes first. A run that has begun is never interrupted by an older policy."""
        return (not self.under_way, self.created, self.uid)

    def meets(self, other: Claim) -> bool:
        """Whether both want the same group of the same cluster."""
        if self.cluster_id != other.cluster_id:
            return False
        return any(overlap(mine, theirs) for mine in self.groups for theirs in other.groups)


def blocker(mine: Claim, others: Iterable[Claim]) -> Claim | None:
    """The claim to wait for: the first of those that meet mine and go before it."""
    ahead = [o for o in others if o.uid != mine.uid and o.meets(mine) and o.precedence < mine.precedence]
    return min(ahead, key=lambda claim: claim.precedence, default=None)
