"""The second act: a group whose consumers run the agent, one in Python and one in Java. A partition of each is paused,
reset while it stands, let go."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from demo.stage import WATCHERS
from demo.verdict import Finding
from support.checker import ResetRun, check
from support.clients import Event, EventKind
from support.deliveries import Delivery, Partition

STANDS_S: Final = 3.0
"""For the spectator: how long the partitions stand still after their reset, while the others flow."""

_MOVES: Final = (EventKind.ASSIGN, EventKind.REVOKE, EventKind.LOST)


@dataclass(frozen=True, slots=True)
class PauseFacts:
    """What was done to the group. Times are epoch seconds.

    ``owners``: of the partitions that are paused, when the pause was applied. ``applied_at``: just before that;
    ``paused_at``: its status said Paused; ``released_at``: just before it was deleted; ``flowed_at``: all partitions
    had delivered since. ``stopped_at``: the offsets the status gave. ``reset_began``: before the reset in between was
    applied; ``phase``, ``way``, ``message``, ``targets``: how it ended. ``expected``: the targets by the records.
    ``ends``: the topic's ends when it was over, by what the broker had acknowledged.
    """

    owners: Mapping[Partition, str]
    applied_at: float
    paused_at: float
    stopped_at: Mapping[Partition, int]
    reset_began: float
    phase: str
    way: str
    message: str
    targets: Mapping[Partition, int]
    expected: Mapping[Partition, int]
    ends: Mapping[Partition, int]
    released_at: float
    flowed_at: float


@dataclass(frozen=True, slots=True)
class Reading:
    """What the group's consumers were given and told, what the broker acknowledged, and what is committed in the
    end."""

    deliveries: Sequence[Delivery]
    events: Sequence[Event]
    acked: Mapping[Partition, Collection[int]]
    committed: Mapping[Partition, int]


def judge_pause(facts: PauseFacts, read: Reading) -> tuple[Finding, ...]:
    """Hold it against what a pause promises. Pure."""
    return (
        *(_stood_still(facts, read, partition) for partition in facts.owners),
        _others_flowed(facts, read),
        *(_went_on(facts, read, partition) for partition in facts.owners),
        _nobody_moved(facts, read),
        _nothing_lost(facts, read),
    )


def _stood_still(facts: PauseFacts, read: Reading, partition: Partition) -> Finding:
    topic, number = partition
    within = [
        d
        for d in read.deliveries
        if (d.topic, d.partition) == partition and facts.paused_at <= d.t <= facts.released_at
    ]
    if within:
        return Finding(False, f"{len(within)} records of {topic}-{number} were delivered while it was paused")
    took, stood = facts.paused_at - facts.applied_at, facts.released_at - facts.paused_at
    where = f" at offset {facts.stopped_at[partition]:,}" if partition in facts.stopped_at else ""
    return Finding(
        True,
        f"partition {number} of {WATCHERS}, with a {facts.owners[partition]} consumer, was paused{where} "
        f"for {stood:.1f} s, {took:.1f} s after kubectl apply",
    )


def _others_flowed(facts: PauseFacts, read: Reading) -> Finding:
    """All that was written to the others meanwhile was delivered: not every one had a request in so short a time."""
    before_release = [
        d for d in read.deliveries if (d.topic, d.partition) not in facts.owners and d.t <= facts.released_at
    ]
    given: dict[Partition, int] = {}
    for d in before_release:
        given[d.topic, d.partition] = max(d.offset, given.get((d.topic, d.partition), -1))
    others = {p: end for p, end in facts.ends.items() if p not in facts.owners}
    stood = [f"{topic}-{number}" for (topic, number), end in others.items() if given.get((topic, number), -1) < end - 1]
    times = sorted(d.t for d in before_release if d.t >= facts.paused_at)
    if stood or not times:
        return Finding(False, f"other partitions stalled meanwhile: {', '.join(stood) or 'nothing was delivered'}")
    gap = max((b - a for a, b in pairwise(times)), default=0.0)
    told = f"its {len(others)} other partitions went on meanwhile: {len(times):,} records, the longest gap {gap:.1f} s"
    return Finding(True, told)


def _went_on(facts: PauseFacts, read: Reading, partition: Partition) -> Finding:
    number, target, expected = partition[1], facts.targets.get(partition), facts.expected[partition]
    if facts.phase != "Succeeded" or target != expected:
        return Finding(False, f"replay-while-paused: {facts.phase}, target {target}: {facts.message}")
    first = next(
        (d.offset for d in read.deliveries if (d.topic, d.partition) == partition and d.t > facts.released_at), None
    )
    if first is None or first != target:
        return Finding(False, f"partition {number} went on at {first}, not at its target {target}")
    return Finding(
        True,
        f"partition {number} was reset while paused (strategy {facts.way}): when it was resumed, it went "
        f"on exactly at {first:,}",
    )


def _nobody_moved(facts: PauseFacts, read: Reading) -> Finding:
    """By the consumers' own word: each tells what is assigned to it, and what is revoked."""
    moves = [e for e in read.events if e.kind in _MOVES and facts.applied_at <= e.t <= facts.flowed_at]
    if moves:
        told = ", ".join(sorted({f"{e.member}: {e.kind}" for e in moves}))
        return Finding(False, f"{WATCHERS}: a rebalance moved partitions meanwhile: {told}")
    return Finding(True, f"{WATCHERS}: no rebalance, from kubectl apply until both were resumed")


def _nothing_lost(facts: PauseFacts, read: Reading) -> Finding:
    # Until the pause was taken away nothing could begin at the targets.
    run = ResetRun(facts.reset_began, facts.released_at, facts.targets)
    verdict = check(read.deliveries, read.acked, [run])
    ends = {partition: max(offsets) + 1 for partition, offsets in read.acked.items() if offsets}
    if not verdict.clean:
        return Finding(False, f"{WATCHERS}: {'; '.join(verdict.complaints()) or 'records were read again'}")
    behind = [p for p, end in ends.items() if read.committed.get(p) != end]
    if behind:
        return Finding(False, f"{WATCHERS}: the end of these partitions was not committed: {behind}")
    return Finding(True, f"{WATCHERS}: nothing lost, nothing else read again, the end of every partition committed")
