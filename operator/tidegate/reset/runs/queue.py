"""Who may reset a group when several policies would: what is under way goes on, then the older goes first. Pure.

One at a time for each group, whichever partitions they want: a group has one transactional id, and making its owners
let go of one partition moves all of them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime

from tidegate.kafka.names import is_pattern, overlap


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
    namespace: str = ""
    """Of the resource."""
    partitions: int | None = None
    """How many its plan has; ``None``: there is none yet."""
    undoes: bool = False
    """Whether it puts back what another reset has done."""

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


class Queue:
    """Claims by what they want, so that those that meet one are found without a look at all of them."""

    def __init__(self) -> None:
        self._claims: dict[str, Claim] = {}
        self._of_group: defaultdict[tuple[str, str], dict[str, Claim]] = defaultdict(dict)
        """By cluster and the name of a group."""
        self._of_patterns: defaultdict[str, dict[str, Claim]] = defaultdict(dict)
        """By cluster, those that want whatever matches."""

    def put(self, claim: Claim) -> None:
        """Instead of the one that its holder had."""
        self.drop(claim.uid)
        self._claims[claim.uid] = claim
        for place in self._places(claim):
            place[claim.uid] = claim

    def drop(self, uid: str) -> None:
        claim = self._claims.pop(uid, None)
        if claim is None:
            return
        for place in self._places(claim):
            place.pop(uid, None)
        for group in claim.groups:
            if not self._of_group.get((claim.cluster_id, group), True):
                del self._of_group[claim.cluster_id, group]

    def ahead_of(self, mine: Claim) -> Claim | None:
        """The claim to wait for."""
        return blocker(mine, self._candidates(mine))

    def _places(self, claim: Claim) -> Iterator[dict[str, Claim]]:
        for group in claim.groups:
            if is_pattern(group):
                yield self._of_patterns[claim.cluster_id]
            else:
                yield self._of_group[claim.cluster_id, group]

    def _candidates(self, mine: Claim) -> Iterable[Claim]:
        if any(map(is_pattern, mine.groups)):
            return tuple(self._claims.values())
        found = dict(self._of_patterns.get(mine.cluster_id, {}))
        for group in mine.groups:
            found |= self._of_group.get((mine.cluster_id, group), {})
        return found.values()
