"""Histories of simulated groups: correct ones pass, and what is done to them is found."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from random import Random

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from support.deliveries import Partition
from support.history import (
    Commit,
    CommitRow,
    Committed,
    History,
    Hold,
    Operation,
    Ownership,
    Phase,
    Place,
    Poll,
    Record,
    ResetBegin,
    ResetEnd,
    Send,
)
from support.history_checker import Rule, judge
from support.simulated_group import SimulatedGroup

seeds = st.integers(0, 2**32)


def group(seed: int, steps: int = 40, *, resets: bool = True) -> SimulatedGroup:
    found = SimulatedGroup(Random(seed))
    found.live(steps, resets=resets)
    return found


@settings(max_examples=150)
@given(seeds, st.integers(0, 80))
def test_a_correct_history_passes(seed: int, steps: int) -> None:
    assert judge(group(seed, steps).history()).findings == ()


def test_correct_histories_have_all_that_is_counted_apart() -> None:
    """Or else the test above would show little."""
    judged = [judge(group(seed, 60).history()) for seed in range(60)]

    assert sum(sum(one.reread.values()) for one in judged) > 100
    assert sum(sum(one.stale.values()) for one in judged) > 10
    assert sum(len(partitions) for one in judged for partitions in one.begun.values()) > 100


# --- what is done to a history ----------------------------------------------------------------------------------------

Spoil = Callable[[History, Random], tuple[Operation, ...] | None]
"""Makes a history wrong; ``None`` where it has no place for that."""


def _polls(history: History, at_least: int = 1) -> list[tuple[int, Poll]]:
    return [(i, o) for i, o in enumerate(history.operations) if isinstance(o, Poll) and len(o.records) >= at_least]


def _spliced(history: History, i: int, *instead: Operation, count: int = 1) -> tuple[Operation, ...]:
    return (*history.operations[:i], *instead, *history.operations[i + count :])


def _without(history: History, lost: Callable[[Record], bool]) -> tuple[Operation, ...]:
    return tuple(
        replace(o, records=tuple(r for r in o.records if not lost(r))) if isinstance(o, Poll) else o
        for o in history.operations
    )


def _never_given(history: History, random: Random) -> tuple[Operation, ...] | None:
    _, poll = random.choice(_polls(history))
    gone = random.choice(poll.records)
    return _without(history, lambda r: r[:3] == gone[:3])


def _end_never_read(history: History, random: Random) -> tuple[Operation, ...] | None:
    _, poll = random.choice(_polls(history))
    end = max(
        o.offset
        for o in history.operations
        if isinstance(o, Send) and o.offset is not None and o.of == poll.records[0].of
    )
    return _without(history, lambda r: r.of == poll.records[0].of and r.offset == end)


def _left_out_once(history: History, random: Random) -> tuple[Operation, ...] | None:
    long = _polls(history, 3)
    if not long:
        return None
    i, poll = random.choice(long)
    return _spliced(history, i, replace(poll, records=(*poll.records[:1], *poll.records[2:])))


def _given_twice(history: History, random: Random) -> tuple[Operation, ...] | None:
    i, poll = random.choice(_polls(history))
    return _spliced(history, i, poll, replace(poll, records=poll.records[-1:]))


def _backwards_beyond_the_commit(history: History, random: Random) -> tuple[Operation, ...] | None:
    places = [
        (i, commit, row, record)
        for i, commit in enumerate(history.operations)
        if isinstance(commit, Commit) and commit.member is not None
        for row in commit.offsets
        if row.error is None
        for _, poll in _polls(history)
        for record in poll.records
        if poll.t < commit.t and record.of == row.of and record.offset < row.offset
    ]
    if not places:
        return None
    i, commit, row, record = random.choice(places)
    assert commit.member is not None
    changes = [Ownership(commit.t, commit.member, (row.of,), op) for op in ("revoke", "assign")]
    return _spliced(history, i, commit, *changes, Poll(commit.t, commit.member, (record,)))


def _another_value(history: History, random: Random) -> tuple[Operation, ...] | None:
    i, poll = random.choice(_polls(history))
    first, *rest = poll.records
    return _spliced(history, i, replace(poll, records=(first._replace(value="another"), *rest)))


def _given_while_paused(history: History, random: Random) -> tuple[Operation, ...] | None:
    i, poll = random.choice(_polls(history))
    of = (poll.records[0].of,)
    return _spliced(history, i, Hold(poll.t, of, "pause"), poll, Hold(poll.t, of, "resume"))


def _a_strangers_commit(history: History, random: Random) -> tuple[Operation, ...] | None:
    i, poll = random.choice(_polls(history))
    return _spliced(history, i, poll, Commit(poll.t, "stranger", (CommitRow(*poll.records[-1][:3]),)))


def _committed_beyond_the_end(history: History, random: Random) -> tuple[Operation, ...] | None:
    looks = [(i, o) for i, o in enumerate(history.operations) if isinstance(o, Committed)]
    if not looks:
        return None
    i, look = random.choice(looks)
    place = look.offsets[0]
    return _spliced(history, i, replace(look, offsets=(place._replace(offset=place.offset + 10**6),)))


@pytest.mark.parametrize(
    ("spoil", "rules"),
    [
        (_never_given, {Rule.LOST_WRITE, Rule.UNSEEN}),
        (_end_never_read, {Rule.UNSEEN}),
        (_left_out_once, {Rule.LOST_WRITE, Rule.POLL_SKIP}),
        (_given_twice, {Rule.DUPLICATE}),
        (_backwards_beyond_the_commit, {Rule.NONMONOTONIC_POLL}),
        (_another_value, {Rule.INCONSISTENT_OFFSETS}),
        (_a_strangers_commit, {Rule.COMMIT_WITHOUT_OWNERSHIP}),
        (_committed_beyond_the_end, {Rule.MOVED_COMMIT}),
        (_given_while_paused, {Rule.DELIVERED_WHILE_PAUSED}),
    ],
    ids=lambda given: getattr(given, "__name__", ""),
)
@settings(max_examples=60)
@given(seed=seeds)
def test_what_is_done_to_a_history_is_found(spoil: Spoil, rules: set[Rule], seed: int) -> None:
    # Without resets and pauses, which would allow some of it.
    history = _undisturbed(seed)
    spoiled = spoil(history, Random(seed))
    assume(spoiled is not None)
    assert spoiled is not None

    assert judge(History(spoiled)).rules & rules


def _undisturbed(seed: int) -> History:
    found = SimulatedGroup(Random(seed))
    for _ in range(40):
        partition = found.random.choice(found.partitions)
        found.random.choice([found.produce, found.poll, found.poll, found.commit, found.hand_over])(partition)
        if found.random.random() < 0.1:
            found.look()
    return found.history()


# --- what a reset says of itself --------------------------------------------------------------------------------------


BACKWARDS = {Rule.NONMONOTONIC_POLL, Rule.DUPLICATE, Rule.UNTRUE_SUCCESS, Rule.UNTRUE_FAILURE}
"""What an owner at the start can show: an earlier reset may be belied by it as well."""


@dataclass(frozen=True, slots=True)
class _Reset:
    """A history whose last reset goes to the start, from a place that is told and well beyond."""

    history: History
    targeted: Sequence[Partition]


def _with_a_last_reset(seed: int, phase: Phase) -> _Reset:
    found = group(seed)
    for partition in found.partitions:
        found.produce(partition)
        found.poll(partition, 10**6)
        found.commit(partition)
    assume(all(offset > 3 for offset in found.told.values()))
    found.reset(target=0, phase=phase, all_of_them=True)
    for partition in found.partitions:
        found.produce(partition)
    return _Reset(found.history(), found.partitions)


def _with_last(
    history: History, kind: type[ResetBegin | ResetEnd], change: Callable[[Operation], Operation]
) -> History:
    i = max(i for i, operation in enumerate(history.operations) if isinstance(operation, kind))
    return History(_spliced(history, i, change(history.operations[i])))


@settings(max_examples=60)
@given(seeds)
def test_a_success_that_calls_itself_a_failure_is_found(seed: int) -> None:
    told = _with_a_last_reset(seed, Phase.SUCCEEDED).history

    for phase in (Phase.ROLLED_BACK, Phase.FAILED):
        belied = _with_last(told, ResetEnd, lambda o, phase=phase: replace(o, phase=phase))  # type: ignore[misc]
        assert Rule.UNTRUE_FAILURE in judge(belied).rules


@settings(max_examples=60)
@given(seeds, st.sampled_from([Phase.ROLLED_BACK, Phase.FAILED]))
def test_a_failure_that_calls_itself_a_success_is_found(seed: int, phase: Phase) -> None:
    told = _with_a_last_reset(seed, phase).history

    belied = _with_last(told, ResetEnd, lambda o: replace(o, phase=Phase.SUCCEEDED))  # type: ignore[arg-type]

    assert Rule.UNTRUE_SUCCESS in judge(belied).rules


@settings(max_examples=60)
@given(seeds)
def test_a_reset_that_goes_elsewhere_than_to_its_target_is_found(seed: int) -> None:
    reset = _with_a_last_reset(seed, Phase.SUCCEEDED)
    records = {o.of: o.offset for o in reset.history.operations if isinstance(o, Send) and o.offset}
    elsewhere = tuple(Place(*partition, records[partition]) for partition in reset.targeted)

    moved = _with_last(reset.history, ResetBegin, lambda o: replace(o, targets=elsewhere))  # type: ignore[arg-type]

    assert judge(moved).rules & BACKWARDS


@settings(max_examples=60)
@given(seeds)
def test_a_reset_that_nobody_asked_for_is_found(seed: int) -> None:
    reset = _with_a_last_reset(seed, Phase.SUCCEEDED)
    run = max((o for o in reset.history.operations if isinstance(o, ResetBegin)), key=lambda o: o.t).run

    unasked = History(tuple(o for o in reset.history.operations if not _is_of(o, run)))

    assert judge(unasked).rules & BACKWARDS


def _is_of(operation: Operation, run: str) -> bool:
    return isinstance(operation, (ResetBegin, ResetEnd)) and operation.run == run
