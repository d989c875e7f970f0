"""A copy that was fenced takes nothing of its writers any more, whatever they do next and whatever comes late."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from property.test_mirror import ANYTHING
from support.mirror.simulated_target import SimulatedTarget
from support.mirror.simulation import Faults, World, Writer
from support.mirror.source_log import SourceLog
from tidegate.mirror import transitions
from tidegate.mirror.batches import Stamp
from tidegate.mirror.fencing import LAST_EPOCH, Fenced, fence
from tidegate.mirror.model import ClaimProducerId, Interrupted, Position
from tidegate.mirror.states import Stopped
from tidegate.mirror.transitions import after

FENCE = 7
FROZEN = replace(ANYTHING, foreign=0.0, doubled=0.0, freezes=0.2)


class Fencing(World):
    """Once it has begun no producer id is given any more."""

    ended = False

    def act(self, writer: Writer) -> None:
        action = writer.in_hand or writer.mirror.action()
        writer.in_hand = None
        if action is None:
            return
        refuses = self.ended and isinstance(action, ClaimProducerId)
        answer = Interrupted("it has failed over") if refuses else self._carried_out(action, Faults())
        writer.mirror = after(writer.mirror, action, answer)

    def meanwhile(self) -> None:
        """Between two requests of the fence something of the writers may come."""
        if self.frozen and self.rnd.random() < 0.3:
            self.act(self.rnd.choice(self.frozen))
        if self.late and self.rnd.random() < 0.3:
            self.late.pop(self.rnd.randrange(len(self.late)))()


def copied(seed: int) -> Fencing:
    """With writers in any state, and requests that are still on their way."""
    rnd = random.Random(seed)
    compacts, trims = rnd.random() < 0.3, rnd.random() < 0.3
    world = Fencing(rnd, FROZEN, SourceLog(rnd, compacts=compacts, trims=trims), compacts=compacts)
    for _ in range(rnd.randrange(5, 60)):
        world.source.grow()
    for _ in range(rnd.randrange(5, 80)):
        world._disturb()
        if world._step(FROZEN):
            break
    return world


def assert_fenced(seed: int) -> None:
    world = copied(seed)
    world.ended = True
    agreed = world.drifted_at is None
    found = fence(SimulatedTarget(world.target, world.meanwhile), world.ids, FENCE)
    assert isinstance(found, Fenced)
    assert found.strange is None, "nobody else writes here"

    log = list(world.target.log)
    while world.late:
        world.late.pop(world.rnd.randrange(len(world.late)))()
    for writer in (*world.frozen, world.writer):
        for _ in range(60):
            world.act(writer)
    assert world.target.log == log

    beyond = [one for one in log if one.base > found.end and not one.is_hidden]
    assert found.displaced == (beyond[0].base if beyond else None)
    if agreed and world.drifted_at is None:
        theirs = world.source.visible()
        for offset, record in world.target.visible().items():
            if offset < found.end and offset >= world.source.start and (offset in theirs or not world.compacts):
                assert record == theirs.get(offset)


@given(seed=st.integers(0, 2**32 - 1))
@settings(max_examples=60)
def test_nothing_is_appended_behind_the_fence(seed: int) -> None:
    assert_fenced(seed)


@given(seed=st.integers(0, 2**32 - 1))
@example(seed=50)
@settings(max_examples=60)
def test_a_writer_that_has_used_up_its_epochs_is_fenced_as_well(seed: int) -> None:
    def almost_used_up(offset: int, producer_id: int) -> Position:
        return Position(offset, Stamp(producer_id, LAST_EPOCH - 2, 0), fresh=True)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(transitions, "first_position", almost_used_up)
        assert_fenced(seed)


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(2000))
def test_nothing_is_appended_behind_the_fence_with_many_seeds(seed: int) -> None:
    assert_fenced(seed)


def test_a_writer_that_looks_at_the_end_finds_somebody_else() -> None:
    world = copied(3)
    world.ended = True
    fence(SimulatedTarget(world.target), world.ids, FENCE)
    writer = world._new_writer()
    for _ in range(20):
        action = writer.mirror.action()
        if action is None:
            break
        # As a store would have it that does not know of the failover.
        writer.mirror = after(writer.mirror, action, world._carried_out(action, Faults()))

    assert isinstance(writer.mirror.state, Stopped)
    assert writer.mirror.state.drifted


def test_a_fence_is_set_up_again_at_the_same_end() -> None:
    world = copied(5)
    first = fence(SimulatedTarget(world.target), world.ids, FENCE)
    again = SimulatedTarget(world.target)
    ended = again.tail(1)
    second = fence(SimulatedTarget(world.target), world.ids, FENCE)
    assert again.tail(1) == ended, "or the fence would be pushed out of the window"

    assert isinstance(first, Fenced)
    assert first == second
