"""How much the resets of one connection may do: which of them has room to run, and which plans are too large. Pure.

Whoever waits for an undo has offsets that are wrong. So it waits for other undos only, of which as many may run as of
all resets; it counts like any other while it runs; and of its records as many are free as the undone run had skipped.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from math import inf
from typing import Final

from tidegate.reset.model.fleet import FleetPlan
from tidegate.reset.model.plan import Plan
from tidegate.reset.model.request import PlanLimits
from tidegate.reset.planning.refusals import PlanRefused
from tidegate.reset.runs.queue import Claim, InLine
from tidegate.reset.runs.reasons import QUOTA_EXCEEDED, WAITING_FOR_QUOTA
from tidegate.resources.conditions import Refusal
from tidegate.resources.connection import QuotaSpec

PATH: Final = "spec.allow.quota"
_NAMED: Final = 3
"""As many of the resets that run are named to one that waits."""


class Line:
    """The resets of one connection: those that run, and those that wait, the oldest first."""

    def __init__(self) -> None:
        self._running: dict[str, Claim] = {}
        self._waiting: dict[str, Claim] = {}
        self._order: list[tuple[datetime, str]] = []

    def put(self, claim: Claim) -> None:
        """Instead of the one that its holder had."""
        self.drop(claim.uid)
        if claim.under_way:
            self._running[claim.uid] = claim
        else:
            self._waiting[claim.uid] = claim
            insort(self._order, _place(claim))

    def drop(self, uid: str) -> None:
        self._running.pop(uid, None)
        waiting = self._waiting.pop(uid, None)
        if waiting is not None:
            del self._order[bisect_left(self._order, _place(waiting))]

    @property
    def is_empty(self) -> bool:
        return not self._running and not self._waiting

    def no_room(
        self, mine: Claim, quota: QuotaSpec, connection: str, is_held_up: Callable[[Claim], bool]
    ) -> Refusal | None:
        """Why this one has to wait; ``None``: it may run. Those that were there first go first, but for those that are
        held up by something else (``is_held_up``), which is asked only while there is room."""
        if quota.concurrent_resets is None and quota.concurrent_partitions is None:
            return None
        others = (claim for claim in self._running.values() if claim.uid != mine.uid)
        running = [claim for claim in others if claim.undoes or not mine.undoes]
        taken = sum(_partitions(claim, quota) for claim in running)
        resets = _or_any(quota.concurrent_resets) - len(running)
        partitions = _or_any(quota.concurrent_partitions) - taken
        full = _full(mine, quota, resets, partitions)
        if full is None:
            for claim in self._ahead_of(mine):
                if is_held_up(claim):
                    continue
                resets, partitions = resets - 1, partitions - _partitions(claim, quota)
                full = _full(mine, quota, resets, partitions)
                if full is not None:
                    break
            else:
                return None
        older = self.older(mine)
        return InLine(WAITING_FOR_QUOTA, _why(mine, quota, connection, running, taken, older, full), older)

    def older(self, mine: Claim) -> int:
        """How many wait that were there before it, for the same room."""
        return sum(1 for _ in self._ahead_of(mine)) if mine.undoes else bisect_left(self._order, _place(mine))

    def _ahead_of(self, mine: Claim) -> Iterator[Claim]:
        for _, uid in islice(self._order, bisect_left(self._order, _place(mine))):
            if self._waiting[uid].undoes == mine.undoes:
                yield self._waiting[uid]


def _place(claim: Claim) -> tuple[datetime, str]:
    return claim.created, claim.uid


def _or_any(limit: int | None) -> float:
    return inf if limit is None else limit


def _partitions(claim: Claim, quota: QuotaSpec) -> int:
    """How many it takes up: those of its plan, or as many as that may have. An undo may have more than there may be,
    and is carried out all the same."""
    needed = claim.partitions if claim.partitions is not None else quota.partitions_per_reset or 0
    return min(needed, quota.concurrent_partitions or needed) if claim.undoes else needed


def _full(mine: Claim, quota: QuotaSpec, resets: float, partitions: float) -> str | None:
    """The field that leaves no room for it."""
    if resets < 1:
        return "concurrentResets"
    return "concurrentPartitions" if _partitions(mine, quota) > partitions else None


def _why(
    mine: Claim, quota: QuotaSpec, connection: str, running: Iterable[Claim], taken: int, older: int, full: str
) -> str:
    names = sorted(claim.holder for claim in running)
    more = f" and {len(names) - _NAMED:,} more" if len(names) > _NAMED else ""
    who = f" ({', '.join(names[:_NAMED])}{more})" if names else ""
    if full == "concurrentResets":
        what = "reset(s) that undo others" if mine.undoes else "reset(s)"
        run = f"{len(names):,} {'is' if len(names) == 1 else 'are'} running" if names else "none is running yet"
        limit, now = f"{quota.concurrent_resets:,} {what}", f"{run}{who}"
    else:
        needed = _partitions(mine, quota)
        least = "" if mine.partitions is not None else "up to "
        limit = f"{quota.concurrent_partitions:,} partition(s) in running resets"
        use = f"up to {taken:,} are in use" if names else "none is in use yet"
        now = f"{use}{who}, and this reset needs {least}{needed:,}"
    waiting = f"; {older:,} older reset(s) are also waiting" if older else ""
    return f"KafkaConnection {connection} allows {limit} at once ({PATH}.{full}): {now}{waiting}. This reset waits"


# --- plans ------------------------------------------------------------------------------------------------------------


def limits_of(quota: QuotaSpec | None, connection: str) -> PlanLimits | None:
    """What a plan may do through a connection. ``None``: whatever it likes."""
    if quota is None or (quota.partitions_per_reset is None and quota.records_replayed_per_reset is None):
        return None
    return PlanLimits(connection, quota.partitions_per_reset, quota.records_replayed_per_reset)


@dataclass(frozen=True, slots=True)
class Size:
    """What a plan does: partitions, and records that are read again."""

    partitions: int
    records_replayed: int


def size_of(plan: Plan | FleetPlan) -> Size:
    partitions = len(plan.partitions) if isinstance(plan, Plan) else plan.partitions
    return Size(partitions, plan.records_replayed)


def too_large(size: Size, limits: PlanLimits | None) -> PlanRefused | None:
    """Why a plan of this size is not to be applied."""
    if limits is None:
        return None
    beyond = [
        *_beyond(size.partitions, limits.partitions, "partition(s)", "partitionsPerReset"),
        *_beyond(size.records_replayed, limits.records_replayed, "record(s) read again", "recordsReplayedPerReset"),
    ]
    if not beyond:
        return None
    return PlanRefused(
        QUOTA_EXCEEDED,
        f"the plan exceeds the quota of KafkaConnection {limits.set_by}: it has {' and '.join(beyond)}. Reset fewer "
        "groups, topics or partitions at a time, or to a later offset, or ask whoever owns the connection for more",
    )


def _beyond(planned: int, allowed: int | None, what: str, field: str) -> Iterator[str]:
    if allowed is not None and planned > allowed:
        yield f"{planned:,} {what} instead of at most {allowed:,} ({PATH}.{field})"
