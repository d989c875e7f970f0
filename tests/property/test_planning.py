"""Properties that planning has for every target, log and group."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from support.fake_kafka import START, FakeClock, FakeKafka
from tidegate.kafka.connection import Connection
from tidegate.kafka.model import LogBounds, TopicPartition
from tidegate.kafka.names import matches
from tidegate.reset.model.plan import Plan
from tidegate.reset.model.request import RunRequest, Selection
from tidegate.reset.model.targets import (
    ByDuration,
    FromFile,
    FromGroup,
    PartitionOffset,
    ShiftBy,
    Target,
    ToEarliest,
    ToLatest,
    ToOffset,
    ToTimestamp,
    Undo,
)
from tidegate.reset.planning.offsets_csv import BadOffsetsFile, parse_offsets, write_group_offsets, write_offsets
from tidegate.reset.planning.planner import make_plan
from tidegate.reset.planning.refusals import PlanRefused
from tidegate.reset.planning.targets import Aim, Seen, aim

PARTITIONS: Final = tuple(TopicPartition(topic, n) for topic in ("a", "b") for n in range(3))
NOW: Final = START + timedelta(minutes=5)

UNHURRIED: Final = settings(deadline=None, max_examples=50)
"""Machines that run tests are busy; how long one example takes says nothing."""

offsets = st.integers(0, 60) | st.integers(0, 2**63 - 1)
times = st.integers(-100, 700).map(lambda tenths: START + timedelta(seconds=tenths / 10))
named_rows = st.dictionaries(st.sampled_from(PARTITIONS), offsets, min_size=1).map(
    lambda rows: tuple(PartitionOffset(p.topic, p.partition, o) for p, o in rows.items())
)

absolute_targets: SearchStrategy[Target] = st.one_of(
    st.just(ToEarliest()),
    st.just(ToLatest()),
    st.builds(ToOffset, offsets),
    st.builds(ToTimestamp, times),
    st.builds(ByDuration, st.timedeltas(timedelta(0), timedelta(minutes=6)) | st.just(timedelta.max)),
    st.builds(FromFile, named_rows, st.just("offsets.csv")),
    st.just(FromGroup("other")),
    st.builds(Undo, st.just("before"), named_rows, st.just(())),
)
targets = absolute_targets | st.builds(ShiftBy, st.integers(-80, 80) | st.integers(-(2**40), 2**40))

selections: SearchStrategy[tuple[Selection, ...]] = st.lists(
    st.builds(
        Selection,
        st.sampled_from(["a", "b", "*", "a*", "*b"]),
        st.none() | st.frozensets(st.integers(0, 2), min_size=1),
    ),
    max_size=3,
).map(tuple)


@st.composite
def clusters(draw: st.DrawFn) -> FakeKafka:
    """Two topics; logs with and without records, with a start above 0 and gaps; commits anywhere, or none."""
    kafka = FakeKafka(FakeClock())
    for topic in ("a", "b"):
        kafka.create_topic(topic, 3)
    for partition in PARTITIONS:
        for seconds in draw(st.lists(st.integers(0, 60), max_size=30)):
            kafka.append(partition, [START + timedelta(seconds=seconds)])
        if draw(st.booleans()):
            kafka.append_gap(partition, draw(st.integers(1, 5)))
        kafka.delete_records(partition, draw(st.integers(0, 35)))
    for group in ("g", "other"):
        kafka.commit_directly(group, draw(st.dictionaries(st.sampled_from(PARTITIONS), offsets)))
    return kafka


def planned(kafka: FakeKafka, target: Target, wanted: tuple[Selection, ...]) -> Plan | None:
    """``None`` for a refusal."""
    asked = RunRequest("uid", "run", "g", Connection("127.0.0.1:9092"), wanted, target)
    try:
        return make_plan(asked, kafka, NOW)
    except PlanRefused:
        return None


@UNHURRIED
@given(clusters(), targets, selections)
def test_targets_are_inside_the_log_and_in_order(
    kafka: FakeKafka, target: Target, wanted: tuple[Selection, ...]
) -> None:
    plan = planned(kafka, target, wanted)
    if plan is None:
        return
    bounds = kafka.log_bounds(PARTITIONS)
    assert plan.partitions
    assert list(plan.targets) == sorted(set(plan.targets))
    for p in plan.partitions:
        log = bounds[p.topic_partition]
        assert log.earliest <= p.target <= log.latest
        assert (p.earliest, p.latest) == (log.earliest, log.latest)
        assert p.replayed == 0 or p.skipped == 0
        assert p.topic_id == kafka.topics()[p.topic].topic_id
        if p.span_from is not None:
            assert p.moves


@UNHURRIED
@given(clusters(), targets, selections)
def test_a_plan_covers_what_was_selected_or_says_what_it_leaves_out(
    kafka: FakeKafka, target: Target, wanted: tuple[Selection, ...]
) -> None:
    plan = planned(kafka, target, wanted)
    if plan is None or not wanted:
        return
    selected = {
        p
        for p in PARTITIONS
        for s in wanted
        if matches(p.topic, s.topic) and (s.partitions is None or p.partition in s.partitions)
    }
    assert set(plan.targets) <= selected
    left_out = selected - set(plan.targets)
    assert all(any(str(p) in note for note in plan.notes) for p in left_out)


@UNHURRIED
@given(clusters(), absolute_targets, selections)
def test_planning_again_after_applying_moves_nothing(
    kafka: FakeKafka, target: Target, wanted: tuple[Selection, ...]
) -> None:
    first = planned(kafka, target, wanted)
    if first is None:
        return
    kafka.commit_directly("g", first.targets)
    again = planned(kafka, target, wanted)
    assert again is not None
    assert {p: o for p, o in again.targets.items() if p in first.targets} == first.targets
    assert not any(p.moves for p in again.partitions if p.topic_partition in first.targets)


@UNHURRIED
@given(clusters(), targets, selections)
def test_undoing_an_applied_plan_goes_back_as_far_as_the_log_reaches(
    kafka: FakeKafka, target: Target, wanted: tuple[Selection, ...]
) -> None:
    first = planned(kafka, target, wanted)
    if first is None:
        return
    before = kafka.committed("g", list(first.targets))
    kafka.commit_directly("g", first.targets)
    undo = Undo(
        run_id="run",
        before=tuple(PartitionOffset(p.topic, p.partition, o) for p, o in before.items()),
        absent=tuple(p for p in first.targets if p not in before),
        topic_ids=tuple((name, t.topic_id) for name, t in kafka.topics().items()),
    )
    back = planned(kafka, undo, ())
    if not before:
        assert back is None
        return
    assert back is not None
    bounds = kafka.log_bounds(PARTITIONS)
    assert back.targets == {p: bounds[p].clamp(o) for p, o in before.items()}


@UNHURRIED
@given(st.integers(0, 1000), st.integers(0, 1000), st.integers(0, 1000), st.integers(-1000, 1000))
def test_shifting_back_undoes_a_shift_that_was_not_clamped(earliest: int, length: int, at: int, by: int) -> None:
    bounds = LogBounds(earliest, earliest + length)
    committed = bounds.clamp(at)
    there = aim(ShiftBy(by), Seen(committed, bounds))
    assert isinstance(there, Aim)
    assert bounds.earliest <= there.offset <= bounds.latest
    if there.clamped is None:
        assert there.offset - committed == by
        assert aim(ShiftBy(-by), Seen(there.offset, bounds)) == Aim(committed)
    else:
        assert not bounds.earliest <= committed + by <= bounds.latest


@UNHURRIED
@given(clusters(), times)
def test_a_timestamp_leaves_no_younger_record_behind_in_an_ordered_log(kafka: FakeKafka, at: datetime) -> None:
    """And none before the target is at or after the time: it is the first such record, or the end."""
    plan = planned(kafka, ToTimestamp(at), (Selection("*"),))
    assert plan is not None
    for p in plan.partitions:
        before = [kafka.record_times({p.topic_partition: o}) for o in range(p.earliest, p.target)]
        stamps = [t for found in before for t in found.values()]
        first = kafka.record_times({p.topic_partition: p.target}).get(p.topic_partition)
        assert first is None or p.target == p.latest or first >= at
        if p.target == p.latest:
            assert all(t < at for t in stamps)


# Kafka's names; quoting is for those that a CSV needs it for, which a topic's name cannot have, but a group's can.
topic_names = st.text("abcXYZ019._-", min_size=1, max_size=20)
group_names = st.text(min_size=1, max_size=20).map(str.strip).filter(bool).filter(lambda g: "\x00" not in g)
csv_rows = st.dictionaries(
    st.tuples(topic_names, st.integers(0, 2**31 - 1)), st.integers(0, 2**63 - 1), min_size=1
).map(lambda rows: tuple(PartitionOffset(t, p, o) for (t, p), o in sorted(rows.items())))


@UNHURRIED
@given(csv_rows, group_names)
def test_offsets_survive_their_csv(rows: tuple[PartitionOffset, ...], group: str) -> None:
    assert parse_offsets(write_offsets(rows), group) == rows
    assert parse_offsets(write_offsets(rows).replace("\n", "\r\n\r\n"), group) == rows


@UNHURRIED
@given(st.dictionaries(group_names, csv_rows, min_size=1, max_size=3))
def test_several_groups_survive_their_csv(groups: dict[str, tuple[PartitionOffset, ...]]) -> None:
    text = write_group_offsets(groups)
    for group, rows in groups.items():
        assert parse_offsets(text, group) == rows


@UNHURRIED
@given(st.text(max_size=60))
def test_any_text_is_offsets_or_a_refusal_that_says_so(text: str) -> None:
    try:
        parsed = parse_offsets(text, "g")
    except BadOffsetsFile:
        return
    assert parse_offsets(write_offsets(parsed), "g") == parsed != ()


@pytest.mark.parametrize("at", [datetime(1969, 12, 31, 23, 59, 59, 999000, tzinfo=UTC)])
def test_a_time_before_the_epoch_is_the_start_of_the_log(at: datetime) -> None:
    kafka = FakeKafka(FakeClock())
    kafka.create_topic("a", 1)
    kafka.fill("a", 3)
    plan = planned(kafka, ToTimestamp(at), (Selection("a"),))
    assert plan is not None
    assert plan.targets == {TopicPartition("a", 0): 0}
