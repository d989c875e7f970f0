"""Random logs, copied by writers that die, freeze and come back: the target is equal, or seen to differ."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.mirror.simulation import Faults, World
from support.mirror.source_log import SourceLog
from support.mirror.written import batch, records_in
from tidegate.mirror import comparison, source
from tidegate.mirror.states import Way

STEPS = 100
WAYS = st.sampled_from(Way)
SEEDS = st.integers(0, 2**32 - 1)

ONE_WRITER = Faults(unsent=0.05, unanswered=0.08, dies=0.06, forgets=0.02, refused=0.05)
"""It dies and is followed by another one; what it has sent was carried out by then, or never is."""
LATE_DATA = Faults(unsent=0.05, unanswered=0.05, late_data=0.05, dies=0.05, freezes=0.08, refused=0.05)
"""Several writers at once, whose data may arrive at any time later; markers do not. No broker forgets the producer:
of an empty log two writers would then have different ideas of its last sequence number."""
ANYTHING = Faults(
    unsent=0.05,
    unanswered=0.05,
    late_data=0.05,
    late_markers=0.15,
    dies=0.05,
    freezes=0.08,
    freezes_before_markers=True,
    foreign=0.004,
    doubled=0.05,
    forgets=0.02,
    refused=0.05,
)


def run(seed: int, faults: Faults, *, compacts: bool, trims: bool, way: Way = Way.MARKERS) -> World:
    rnd = random.Random(seed)
    world = World(rnd, faults, SourceLog(rnd, compacts=compacts, trims=trims), compacts=compacts, way=way)
    for _ in range(rnd.randrange(60)):
        world.source.grow()
    world.run(STEPS)
    return world


@given(seed=SEEDS, compacts=st.booleans(), trims=st.booleans(), way=WAYS)
@settings(max_examples=20)
def test_with_one_writer_at_a_time_the_target_is_equal(seed: int, compacts: bool, trims: bool, way: Way) -> None:
    world = run(seed, ONE_WRITER, compacts=compacts, trims=trims, way=way)

    assert not world.stopped
    world.assert_equal()


@given(seed=SEEDS, trims=st.booleans(), way=WAYS)
@settings(max_examples=20)
def test_late_data_of_any_writer_harms_nothing(seed: int, trims: bool, way: Way) -> None:
    world = run(seed, LATE_DATA, compacts=False, trims=trims, way=way)

    assert not world.stopped
    world.assert_equal()


@given(seed=SEEDS, compacts=st.booleans(), trims=st.booleans(), way=WAYS)
@settings(max_examples=20)
def test_drift_is_seen_before_a_second_append(seed: int, compacts: bool, trims: bool, way: Way) -> None:
    world = run(seed, ANYTHING, compacts=compacts, trims=trims, way=way)

    if world.stopped:
        assert all(stopped.drifted for stopped in world.stopped), world.stopped
    else:
        world.assert_equal()


@given(seed=SEEDS, compacts=st.booleans(), trims=st.booleans())
@settings(max_examples=20)
def test_a_sample_from_anywhere_finds_what_differs_and_nothing_else(seed: int, compacts: bool, trims: bool) -> None:
    world = run(seed, ONE_WRITER, compacts=compacts, trims=trims)
    log, rnd = world.target.log, random.Random(seed)
    start, seen = max(world.source.start, world.target.start), world.source.visible()

    def reason(offset: int) -> str | None:
        whole = b"".join(one.data for one in log if one.until > offset)
        copy = source.SourceRead(offset, world.target.start, world.target.end, data=whole)
        return comparison.sample(world.source.read(offset, 5), copy).reason

    assert {reason(rnd.randrange(start, world.target.end)) for _ in range(10)} == {None}

    changed = rnd.choice([offset for offset in seen if offset >= start])
    [at] = [at for at, one in enumerate(log) if one.base <= changed < one.until]
    records = {offset - log[at].base: record for offset, record in records_in(log[at].data).items()}
    records[changed - log[at].base] = replace(seen[changed], value=b"somebody else's")
    log[at] = replace(log[at], data=batch(log[at].base, records, log[at].until - log[at].base))
    assert reason(changed) == f"the records at offset {changed} differ"


@given(seed=SEEDS, compacts=st.booleans(), trims=st.booleans())
@settings(max_examples=20)
def test_what_is_compared_in_parts_is_equal_as_well(seed: int, compacts: bool, trims: bool) -> None:
    with pytest.MonkeyPatch.context() as patch:
        for module in (source, comparison):
            patch.setattr(module, "ENOUGH_RECORDS", 2)
        world = run(seed, ANYTHING, compacts=compacts, trims=trims)

    if world.stopped:
        assert all(stopped.drifted for stopped in world.stopped), world.stopped
    else:
        world.assert_equal()


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(2000))
def test_many_seeds(seed: int) -> None:
    rnd = random.Random(seed)
    compacts, trims = rnd.random() < 0.5, rnd.random() < 0.5
    faults = rnd.choice([ONE_WRITER, LATE_DATA, ANYTHING])
    world = run(seed, faults, compacts=compacts, trims=trims, way=rnd.choice(list(Way)))

    if faults is ANYTHING or (faults is LATE_DATA and compacts):
        assert all(stopped.drifted for stopped in world.stopped), world.stopped
    else:
        assert not world.stopped
    if not world.stopped:
        world.assert_equal()
