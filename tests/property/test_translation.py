"""Random mirrors: whatever happened to the copies, no record is skipped, and what comes twice was foretold."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from hypothesis import example, given, settings
from hypothesis import strategies as st

from support.mirrored import FIRST, Log, Shape, SideReader, World, compare
from tidegate.find.survey import Wider, survey
from tidegate.find.translation import Place, TopicPair
from tidegate.kafka.connection import Connection
from tidegate.reset.model.request import RunRequest, Selection
from tidegate.reset.model.targets import FromCluster

OVER_THERE = Connection("there:9092")
MATCHES = (("timestamp", "key", "value"), ("value",), ("key", "value"), ("key",), ("timestamp",))


@st.composite
def shapes(draw: st.DrawFn) -> Shape:
    there = draw(st.integers(1, 3))
    here = draw(st.one_of(st.just(there), st.integers(1, 3)))
    flags = {
        name: draw(st.booleans())
        for name in ("transactions", "compact_there", "compact_here", "trim_there", "trim_here", "behind", "caught_up")
    }
    return Shape(
        there=there,
        here=here,
        records=draw(st.sampled_from((4, 12, 40))),
        keys=draw(st.sampled_from((0, 2, 8))) if not flags["compact_there"] and not flags["compact_here"] else 4,
        repeats=draw(st.booleans()),
        disorder_s=draw(st.sampled_from((0, 5, 100))),
        # Where records change partitions, times that are out of order by more than the window may mislead.
        strays=draw(st.sampled_from((0, 0.05, 0.3))) if there == here else 0,
        restarts=draw(st.integers(0, 3)),
        **flags,
    )


def translated(world: World, match: tuple[str, ...], window: timedelta) -> tuple[TopicPair, list[Place]]:
    """As the Spark job goes about it: again with wider windows where the first ones tell too little."""
    target = FromCluster(OVER_THERE, "g", match, window)
    request = RunRequest("u", "r", "g", Connection("here:9092"), (Selection("t"),), target)
    here = SideReader("t", world.here, {}, compacted=world.compacted_here)
    there = SideReader("t", world.there, world.committed, compacted=world.compacted_there)
    wider = Wider()
    while True:
        [pair] = survey(request, target, here, there, wider).pairs  # type: ignore[arg-type]
        places, crossed = compare(world, pair, match)
        if crossed:
            wider = Wider(wider.to_the_end, frozenset({"t"}))
        elif any(p.cut_off for p in places):
            assert "t" not in wider.to_the_end
            wider = Wider(frozenset({"t"}), wider.by_key)
        else:
            return pair, places


ALL, VALUE = MATCHES[:2]
COMPACTED = Shape(keys=4, compact_there=True)


# Worlds that did break it once: a proof of order that compaction or retention here has broken, a record that compaction
# has taken over there and that looked like one that was read, a place whose neighbours are gone, one that retention has
# passed, equal offsets by chance.
@example(
    replace(
        COMPACTED, there=3, here=1, records=4, repeats=True, transactions=True, trim_there=True, restarts=1, behind=True
    ),
    2,
    ALL,
    200,
)
@example(replace(COMPACTED, there=2, here=2, repeats=True, compact_here=True, restarts=2), 2, ALL, 200)
@example(replace(COMPACTED, trim_here=True, restarts=4), 4, ALL, 200)
@example(
    Shape(there=3, here=3, records=4, keys=2, repeats=True, transactions=True, trim_there=True, restarts=2),
    348,
    VALUE,
    200,
)
@example(replace(COMPACTED, there=1, here=2, records=12, repeats=True, restarts=1), 1_000_000, VALUE, 200)
@example(replace(COMPACTED, there=3, here=1, trim_there=True, behind=True), 1, ALL, 200)
@example(replace(COMPACTED, there=1, here=2, repeats=True, transactions=True), 1, ALL, 200)
@example(
    replace(
        COMPACTED,
        there=3,
        here=3,
        records=12,
        repeats=True,
        transactions=True,
        compact_here=True,
        trim_there=True,
        restarts=3,
    ),
    2,
    ALL,
    200,
)
@given(shapes(), st.integers(0, 10**6), st.sampled_from(MATCHES), st.sampled_from((200, 3600)))
@settings(max_examples=300, deadline=None, derandomize=True)
def test_nothing_is_skipped_and_no_more_comes_twice_than_foretold(
    shape: Shape, seed: int, match: tuple[str, ...], window_s: int
) -> None:
    world = World.make(shape, seed)
    pair, places = translated(world, match, timedelta(seconds=window_s))
    assert world.skipped(places) == []
    # What is the same tells records apart, and times what the group can't have read yet.
    if "value" in match and not shape.repeats and not shape.strays:
        assert world.doubled(pair, places) <= sum(p.twice for p in places)


def test_equal_offsets_hold_only_as_far_as_they_were_compared() -> None:
    """A record whose time is far ahead ends the window here before the place, and offsets differ between the two."""
    there, here = Log(), Log()
    for number in range(60):
        at = FIRST + (timedelta(days=1) if number == 30 else timedelta(seconds=10 * number))
        here.append(at, None, f"v{number}", (0, there.append(at, None, f"v{number}")))
        if number == 35:
            there.end += 5  # what a transaction has written, and aborted
    world = World([there], [here], {0: 55}, [there.end], compacted_there=False, compacted_here=False)

    _, places = translated(world, ALL, timedelta(seconds=100))

    assert world.skipped(places) == []
    assert [p.offset for p in places] == [50]
