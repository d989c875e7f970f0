"""The search in growing windows against looking at everything."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidegate.find.windows import Pace, Search, tasks_for
from tidegate.kafka.model import Range, TopicPartition

Log = dict[int, bool]
"""Whether the record matches, by its offset; offsets have gaps, as compaction and transactions leave them."""


@st.composite
def logs(draw: st.DrawFn) -> dict[TopicPartition, tuple[Range, Log]]:
    found = {}
    for number in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, 50))
        end = start + draw(st.integers(0, 60))
        offsets = draw(st.sets(st.integers(start, end - 1))) if end > start else set()
        log = {offset: draw(st.integers(0, 9)) == 0 for offset in sorted(offsets)}
        found[TopicPartition("t", number)] = Range(start, end), log
    return found


def matches_in(log: Log, window: Range, *, backwards: bool) -> int | None:
    hits = [offset for offset, hit in log.items() if hit and window.start <= offset < window.end]
    return None if not hits else max(hits) if backwards else min(hits)


paces = st.builds(
    Pace, first=st.integers(1, 20), growth=st.integers(1, 4), most=st.integers(20, 60), least=st.integers(1, 5)
)


@settings(max_examples=150)
@given(logs=logs(), backwards=st.booleans(), pace=paces, data=st.data())
def test_it_finds_what_looking_at_everything_finds(
    logs: dict[TopicPartition, tuple[Range, Log]], backwards: bool, pace: Pace, data: st.DataObject
) -> None:
    search = Search.over({p: r for p, (r, _) in logs.items()}, backwards=backwards, pace=pace)
    starts = {p: r.start for p, (r, _) in logs.items()}
    rounds = 0
    while window := search.next_window():
        rounds += 1
        assert sum(r.size for r in window.values()) <= max(search.size, pace.least * len(window))
        trim = data.draw(st.integers(0, 9), "trim")
        if trim == 0:  # retention takes records away while they are looked for, and the round is done again
            partition = data.draw(st.sampled_from(sorted(window)), "of")
            starts[partition] += data.draw(st.integers(0, 30), "by")
            search = search.trimmed(starts)
            continue
        matches = {}
        for partition, seen in window.items():
            assert seen.size > 0
            hit = matches_in(logs[partition][1], seen, backwards=backwards)
            if hit is not None:
                matches[partition] = hit
        search = search.looked_at(window, matches)

    for partition, (asked, log) in logs.items():
        oracle = matches_in(log, asked, backwards=backwards)
        found = search.found.get(partition)
        # What was found before it was taken away stays found: planning moves it to the log's start.
        left = matches_in(log, Range(starts[partition], asked.end), backwards=backwards)
        assert found in (oracle, left)
        assert found is None or found == oracle or oracle is None or oracle < starts[partition]
    assert search.read <= search.total


@given(distance=st.integers(0, 500), pace=paces)
def test_a_match_costs_in_proportion_to_how_far_it_is(distance: int, pace: Pace) -> None:
    partition = TopicPartition("t", 0)
    search = Search.over({partition: Range(0, 10**9)}, pace=pace)
    while window := search.next_window():
        seen = window[partition]
        search = search.looked_at(window, {partition: distance} if seen.start <= distance < seen.end else {})
    assert search.found == {partition: distance}
    assert search.read <= max(pace.first, pace.least) + (1 + pace.growth) * distance + pace.growth


def test_what_small_partitions_leave_goes_to_a_hot_one() -> None:
    hot, small = TopicPartition("t", 0), TopicPartition("t", 1)
    search = Search.over({hot: Range(0, 1_000), small: Range(5, 7)}, pace=Pace(first=100, least=1))
    assert search.next_window() == {hot: Range(0, 98), small: Range(5, 7)}


@pytest.mark.parametrize(
    ("sizes", "cores", "cut"),
    [
        ([1000], 2, True),
        ([1000] * 8, 2, False),
        ([1000, 10, 10, 10], 2, True),
        ([1000] * 3, 2, True),
        ([1000, 1100] * 8, 4, False),
    ],
)
def test_partitions_are_cut_where_cores_would_wait(sizes: list[int], cores: int, cut: bool) -> None:
    window = {TopicPartition("t", n): Range(0, size) for n, size in enumerate(sizes)}
    tasks = tasks_for(window, cores)
    # Spark's connector cuts nothing when it is asked for no more tasks than there are partitions.
    assert (tasks > len(sizes)) == cut
    if cut:
        parts = round(tasks * max(sizes) / sum(sizes))
        assert max(sizes) / parts <= 1.25 * sum(sizes) / cores
