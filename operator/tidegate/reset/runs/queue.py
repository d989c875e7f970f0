"""Who may reset a group when several policies would: what is under way goes on, then the older goes first. Pure.

One at a time for each group, whichever partitions they want: a group has one transactional id, and making its owners
let go of one partition moves all of them.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from heapq import merge
from itertools import takewhile
from typing import Final

from tidegate.kafka.names import is_pattern, overlap
from tidegate.resources.conditions import Refusal

_LOOK_S: Final = 2.0
_LAST_LOOK_S: Final = 60.0
_IN_FRONT: Final = 20
"""So many of a line look whether it is their turn as often as one alone; those behind them the more rarely the farther
back they are, so that a long line does not keep the operator busy with itself."""


@dataclass(frozen=True, slots=True)
class InLine(Refusal):
    """Why one waits that others are before: ``older`` of the same namespace and connection."""

    older: int = 0

    @property
    def again_after_s(self) -> float:
        return min(_LAST_LOOK_S, _LOOK_S * max(1.0, self.older / _IN_FRONT))


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


class _Ordered:
    """Claims by their precedence."""

    def __init__(self) -> None:
        self._claims: list[Claim] = []

    def put(self, claim: Claim) -> None:
        insort(self._claims, claim, key=_precedence)

    def drop(self, claim: Claim) -> None:
        del self._claims[bisect_left(self._claims, claim.precedence, key=_precedence)]

    def before(self, precedence: tuple[bool, datetime, str]) -> Iterator[Claim]:
        return takewhile(lambda claim: claim.precedence < precedence, self._claims)

    def __bool__(self) -> bool:
        return bool(self._claims)


def _precedence(claim: Claim) -> tuple[bool, datetime, str]:
    return claim.precedence


@dataclass(frozen=True, slots=True)
class _Answer:
    """Of one claim, the one that it has to wait for, among the first ``puts`` that were put."""

    mine: Claim
    blocker: Claim | None
    puts: int


class Queue:
    """Claims by what they want, so that those that meet one are found without a look at all of them.

    What one has to wait for is remembered for as long as that is there: who asks again has a look only at what was put
    since. So a thousand that wait for one cost little, however often they ask.
    """

    def __init__(self) -> None:
        self._claims: dict[str, Claim] = {}
        """In the order in which they were put."""
        self._put_as: dict[str, int] = {}
        self._puts = 0
        self._answers: dict[str, _Answer] = {}
        self._of_group: defaultdict[tuple[str, str], _Ordered] = defaultdict(_Ordered)
        """By cluster and the name of a group."""
        self._of_patterns: defaultdict[str, _Ordered] = defaultdict(_Ordered)
        """By cluster, those that want whatever matches."""
        self._of_cluster: defaultdict[str, _Ordered] = defaultdict(_Ordered)
        self.compared = 0
        """So many pairs of names and patterns were compared until now."""

    def put(self, claim: Claim) -> None:
        """Instead of the one that its holder had."""
        before = self._claims.get(claim.uid)
        if before == claim:
            return
        if before is not None:
            self._take_out(before)
        self._puts += 1
        self._claims[claim.uid], self._put_as[claim.uid] = claim, self._puts
        for place in self._places(claim):
            place.put(claim)

    def drop(self, uid: str) -> None:
        self._answers.pop(uid, None)
        claim = self._claims.get(uid)
        if claim is not None:
            self._take_out(claim)

    def ahead_of(self, mine: Claim) -> Claim | None:
        """The claim to wait for."""
        known = self._answers.get(mine.uid)
        if known is None or known.mine != mine or not self._is_there(known.blocker):
            first = next(self._meeting(mine, self._candidates(mine)), None)
        else:
            new = self._meeting(mine, self._put_after(known.puts))
            there = [known.blocker] if known.blocker is not None else []
            first = min((*there, *new), key=_precedence, default=None)
        if mine.uid in self._claims:  # and is forgotten with it
            self._answers[mine.uid] = _Answer(mine, first, self._puts)
        return first

    def _is_there(self, blocker: Claim | None) -> bool:
        return blocker is None or self._claims.get(blocker.uid) is blocker

    def _put_after(self, puts: int) -> Iterator[Claim]:
        newest = reversed(self._claims.values())
        return takewhile(lambda claim: self._put_as[claim.uid] > puts, newest)

    def _meeting(self, mine: Claim, others: Iterable[Claim]) -> Iterator[Claim]:
        """Those that mine has to wait for."""
        for other in others:
            if other.uid == mine.uid or not other.precedence < mine.precedence:
                continue
            self.compared += len(mine.groups) * len(other.groups)
            if other.meets(mine):
                yield other

    def _candidates(self, mine: Claim) -> Iterator[Claim]:
        """All that may meet it and go before it, by their precedence."""
        if any(map(is_pattern, mine.groups)):
            return self._before(mine, self._of_cluster.get(mine.cluster_id))
        named = (self._of_group.get((mine.cluster_id, group)) for group in set(mine.groups))
        return merge(
            self._before(mine, self._of_patterns.get(mine.cluster_id)),
            *(self._before(mine, claims) for claims in named),
            key=_precedence,
        )

    def _before(self, mine: Claim, claims: _Ordered | None) -> Iterator[Claim]:
        return iter(()) if claims is None else claims.before(mine.precedence)

    def _take_out(self, claim: Claim) -> None:
        del self._claims[claim.uid], self._put_as[claim.uid]
        for place in self._places(claim):
            place.drop(claim)
        for group in claim.groups:
            if not self._of_group.get((claim.cluster_id, group), True):
                del self._of_group[claim.cluster_id, group]

    def _places(self, claim: Claim) -> Iterator[_Ordered]:
        yield self._of_cluster[claim.cluster_id]
        groups = set(claim.groups)
        if any(map(is_pattern, groups)):
            yield self._of_patterns[claim.cluster_id]
        for group in groups:
            if not is_pattern(group):
                yield self._of_group[claim.cluster_id, group]
