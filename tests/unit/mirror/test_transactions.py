"""Gaps that are filled by transactions: what is done, what an answer means, and a marker that comes twice."""

from __future__ import annotations

from dataclasses import replace

import pytest

from support.mirror.target_broker import FILLING, TargetBroker
from support.mirror.written import batch, marker, rows
from tidegate.mirror.batches import Stamp
from tidegate.mirror.model import (
    Append,
    Appended,
    Coordinated,
    Done,
    FencePredecessors,
    Interrupted,
    Position,
    ProducerState,
    ReadSource,
    ReadTail,
    Refusal,
    Tail,
    Transact,
)
from tidegate.mirror.source import Gap, SourceRead
from tidegate.mirror.states import (
    FILLERS,
    WINDOW,
    Comparing,
    Confirming,
    Doubting,
    Lost,
    Mirror,
    Ready,
    State,
    Stopped,
    Way,
    fillers_of_transaction,
)
from tidegate.mirror.transitions import after

OURS = 100
FILLER = Coordinated(FILLING, 4)
THREE = dict(enumerate(rows(3)))
DATA = batch(0, THREE, 3, producer=(OURS, 0, 0))
AT_3 = Position(3, Stamp(OURS, 0, 3), fresh=False)
GAP = Gap(3, 13)
READY = Ready(AT_3, 0, (GAP,), proven=True)
MIRROR = Mirror((OURS,), READY, Way.TRANSACTIONS, FILLER)


def aborted(base: int, count: int) -> bytes:
    """Fillers and their marker."""
    fillers = batch(base, dict(enumerate(rows(count))), count, producer=(FILLING, 4, 0), transactional=True)
    return fillers + marker(base + count, FILLING, 4, commit=False)


def test_whoever_begins_ends_what_its_predecessors_left() -> None:
    lost = replace(MIRROR, state=Lost(3), coordinated=None)
    assert lost.action() == FencePredecessors()

    fenced = after(lost, FencePredecessors(), FILLER)

    assert fenced == replace(MIRROR, state=Lost(3, fenced=True))
    assert fenced.action() == ReadTail(WINDOW)


@pytest.mark.parametrize("answer", [Interrupted("under way"), Refusal(47, "INVALID_PRODUCER_EPOCH", lasting=False)])
def test_whoever_does_not_know_what_became_of_a_transaction_begins_again(answer: Interrupted | Refusal) -> None:
    action = MIRROR.action()
    assert isinstance(action, Transact)

    again = after(MIRROR, action, answer)

    assert isinstance(again.state, Lost)
    assert again.action() == FencePredecessors()


@pytest.mark.parametrize(
    ("missing", "fillers"), [(1, 0), (2, 0), (4, 0), (5, 3), (10, 8), (FILLERS + 2, FILLERS), (10**6, FILLERS)]
)
def test_a_marker_that_comes_twice_still_ends_within_a_long_gap(missing: int, fillers: int) -> None:
    assert fillers_of_transaction(missing) == fillers
    assert fillers + 2 <= missing or missing <= 4


def test_what_was_aborted_is_followed_by_what_is_missing() -> None:
    action = MIRROR.action()
    assert action == Transact(FILLER, 8)
    confirming = after(MIRROR, action, Done())
    assert confirming.state == Confirming(READY, 12, 13)

    following = after(confirming, ReadTail(9), Tail(0, 12, aborted(3, 8), 3))

    assert following.state == replace(READY, position=replace(AT_3, offset=12), work=(Gap(12, 13),))


@pytest.mark.parametrize(
    ("data", "state"),
    [
        (batch(3, dict(enumerate(rows(9))), 9, producer=(OURS, 0, 3)), Lost()),
        (aborted(3, 8) + marker(12, FILLING, 4, commit=False) + marker(13, FILLING, 4, commit=False), Lost()),
        (batch(3, dict(enumerate(rows(9))), 9, producer=(999, 0, 3)), Doubting(999, 12)),
    ],
    ids=["our own data", "too many", "a stranger's"],
)
def test_anything_else_in_a_gap_is_looked_into(data: bytes, state: State) -> None:
    confirming = replace(MIRROR, state=Confirming(READY, 12, 13))
    end = 14 if data.startswith(aborted(3, 8)) else 12

    assert after(confirming, ReadTail(9), Tail(0, end, data, 3)).state == state


def test_our_own_last_batch_tells_the_position_however_far_back_it_is() -> None:
    lost = replace(MIRROR, state=Lost(1, fenced=True))
    near, far = Tail(0, 12, aborted(3, 8), 3), Tail(0, 12, DATA + aborted(3, 8), 0)

    wider = after(lost, ReadTail(WINDOW), near)
    assert wider.state == Lost(1, 72, fenced=True)
    assert after(wider, ReadTail(72), far).state == Comparing(far, replace(AT_3, offset=12), 0, 1)


@pytest.mark.parametrize(
    ("producers", "stamp", "fresh"),
    [((ProducerState(OURS, 0, 2),), Stamp(OURS, 0, 3), False), ((), Stamp(OURS, 0, 0), True)],
    ids=["remembered", "nothing yet"],
)
def test_where_none_is_left_the_broker_remembers_it(
    producers: tuple[ProducerState, ...], stamp: Stamp, fresh: bool
) -> None:
    lost = replace(MIRROR, state=Lost(fenced=True))

    found = after(lost, ReadTail(WINDOW), Tail(3, 12, aborted(3, 8), 3, producers)).state

    assert isinstance(found, Comparing)
    assert found.position == Position(12, stamp, fresh)


def test_what_was_aborted_instead_of_a_record_is_drift() -> None:
    comparing = replace(MIRROR, state=Comparing(Tail(0, 12, DATA + aborted(3, 8), 0), AT_3, 0))
    source = batch(0, dict(enumerate(rows(12))), 12)

    found = after(comparing, comparing.action() or ReadTail(0), SourceRead(0, 0, 12, data=source)).state

    assert isinstance(found, Stopped)
    assert found.drifted


@pytest.mark.parametrize("gap", [1, 2, 3, 4, 5, 6, 30])
def test_only_a_last_marker_that_comes_twice_goes_too_far(gap: int) -> None:
    """Every marker is written twice, as by a broker that is killed each time."""
    target = TargetBroker()
    mirror = replace(MIRROR, state=Lost(), coordinated=None)
    source = batch(0, THREE, 3) + b"".join(marker(3 + n, 9, 0, commit=True) for n in range(gap))
    while not (isinstance(mirror.state, Ready) and mirror.state.idle):
        before, action = mirror, mirror.action()
        match action:
            case FencePredecessors():
                mirror = after(mirror, action, target.fence_predecessors())
            case ReadTail(window):
                mirror = after(mirror, action, target.tail(window))
            case Transact(producer, fillers):
                assert target.transact(producer, fillers, doubled=True)
                mirror = after(mirror, action, Done())
            case None:
                break
            case Append(batches):
                mirror = after(mirror, action, Appended(tuple(map(target.produce, batches))))
            case ReadSource(offset):
                left = source if offset < 3 else b"".join(marker(n, 9, 0, commit=True) for n in range(offset, 3 + gap))
                mirror = after(mirror, action, SourceRead(offset, 0, 3 + gap, data=left))
            case _:
                raise AssertionError(action)
        if mirror == before:
            break

    # Two markers each time fill all other gaps: there the last one is not written by itself.
    alone = gap in (1, 3)
    assert target.end == 3 + gap + alone
    assert isinstance(mirror.state, Comparing if alone else Ready)
