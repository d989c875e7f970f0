"""What evidence is computed of, what bounds it, and that it is in no run's way."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.fake_kafka import START, FakeClock, FakeKafka
from support.planned_runs import FROM, a_plan, sample, some_evidence
from tidegate.kafka.connection import Connection
from tidegate.kafka.errors import Unavailable
from tidegate.kafka.model import TopicPartition
from tidegate.reset.directory_store import DirectoryRunStore
from tidegate.reset.evidence import (
    MAX_BUCKETS,
    Amount,
    Content,
    Evidence,
    Histogram,
    HistogramSource,
    Moving,
    by_topic,
    content,
    counted_by_index,
    fitted,
    grid,
    movings,
    nearest,
    sampled,
    stretches,
)
from tidegate.reset.model.plan import PartitionPlan, Plan
from tidegate.reset.model.request import EvidenceLevel, EvidenceSettings, RunRequest, Selection
from tidegate.reset.model.result import RunResult
from tidegate.reset.model.targets import ToOffset
from tidegate.reset.planning.counts import RECORDS_NOT_READ
from tidegate.reset.runs import job
from tidegate.reset.runs.request import evidence_settings
from tidegate.reset.store import RunStore
from tidegate.resources.reset import ResetPhase, ResetSpec

T0 = TopicPartition("orders", 0)
TIMES = st.datetimes(datetime(1971, 1, 1), datetime(2100, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001


@given(TIMES, TIMES)
def test_a_grid_covers_both_ends_in_few_buckets(one: datetime, other: datetime) -> None:
    found = grid(one, other)

    assert 1 <= found.count <= MAX_BUCKETS
    assert found.start <= min(one, other)
    assert max(one, other) < found.start + found.count * found.width


def test_a_producer_whose_clock_is_millennia_ahead_gets_few_buckets_as_well() -> None:
    one, other = datetime(1970, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)

    found = grid(one, other)

    assert (found.start, found.count) == (one, MAX_BUCKETS)
    histogram = Histogram(found.start, found.width, (1,) * found.count, (0,) * found.count, HistogramSource.INDEX)
    assert histogram.end == datetime.max.replace(tzinfo=UTC)


def test_buckets_have_a_width_that_people_count_in() -> None:
    assert grid(FROM, FROM + timedelta(hours=19, minutes=13)).width == timedelta(minutes=30)
    assert grid(FROM, FROM).count == 1
    odd = grid(FROM + timedelta(minutes=7), FROM + timedelta(hours=20))
    assert odd.start == FROM


@given(
    st.integers(0, 1_000),
    st.integers(1, 1_000),
    st.lists(st.one_of(st.none(), st.integers(0, 3_000)), max_size=MAX_BUCKETS - 1),
)
def test_counts_by_the_index_add_up_whatever_it_answers(start: int, size: int, found: list[int | None]) -> None:
    counts = counted_by_index(Moving(T0, start, start + size, replayed=True), found)

    assert len(counts) == len(found) + 1
    assert min(counts) >= 0
    assert sum(counts) == size


def test_counts_by_the_index_are_exact_where_times_rise() -> None:
    assert counted_by_index(Moving(T0, 10, 40, replayed=True), [5, 15, 15, 39, None]) == (0, 5, 0, 24, 1, 0)


@given(st.lists(st.integers(1, 10**9), min_size=1, max_size=20), st.integers(1, 10**6))
def test_stretches_stay_within_what_moves_and_within_the_bound(sizes: list[int], most: int) -> None:
    moving = [Moving(TopicPartition("t", n), 5, 5 + size, replayed=True) for n, size in enumerate(sizes)]
    found = stretches(moving, most)

    read = sum(found.looked_at().values())
    assert read == sum(sizes) or read <= most
    assert read == sum(r.size for ranges in found.rounds(replayed=True) for r in ranges.values())
    assert all(r.size for ranges in found.rounds(replayed=True) for r in ranges.values()), "each is a task of its own"
    assert found.rounds(replayed=False) == ()
    for m, ranges in found.of.items():
        assert all(m.start <= r.start <= r.end <= m.end for r in ranges)
        assert all(one.end <= other.start for one, other in pairwise(ranges))
        assert not ranges or (ranges[0].start, ranges[-1].end) == (m.start, m.end)


def test_only_so_many_partitions_are_read() -> None:
    moving = [Moving(TopicPartition("t", n), 0, 1_000 - n, replayed=True) for n in range(300)]

    assert [m.partition.partition for m in stretches(moving, 10**9).of] == list(range(256))


def test_what_moves_is_what_the_log_still_has() -> None:
    rows = (
        PartitionPlan("t", 0, "id", 5, 90, 20, 100),
        PartitionPlan("t", 1, "id", 500, 40, 0, 100),
        PartitionPlan("t", 2, "id", None, 40, 0, 100),
        PartitionPlan("t", 3, "id", 7, 7, 0, 100),
    )
    found = movings(Plan("r", "g", FROM, rows))

    assert [(m.partition.partition, m.start, m.end, m.replayed) for m in found] == [
        (0, 20, 90, False),
        (1, 40, 100, True),
    ]


def test_samples_are_the_nearest_on_each_side() -> None:
    samples = [replace(sample(n, n - 500, None, None), from_target=n >= 500) for n in (480, 497, 499, 500, 503, 510)]

    assert [s.offset for s in nearest(samples, {T0: 500})] == [497, 499, 500, 503]


def test_partitions_that_move_furthest_are_sampled() -> None:
    assert [str(p.topic_partition) for p in sampled(a_plan())] == [
        *("orders-0", "orders-1", "orders-3", "refunds-1", "refunds-0"),
    ]


def test_many_topics_are_cut_and_counted() -> None:
    rows = tuple(PartitionPlan(f"t{n:03}", 0, "id", n + 1, 0, 0, 1_000) for n in range(100))
    topics, notes = by_topic(Plan("r", "g", FROM, rows), {}, {})

    assert [t.topic for t in topics[:2]] == ["t099", "t098"]
    assert topics[0].replayed == Amount(100)
    assert notes == ("Only 40 of 100 topics are shown: those in which the most moves",)


@pytest.mark.parametrize(
    ("length", "digest", "head", "whole", "expected"),
    [
        (None, None, None, None, None),
        (5, "d", None, None, Content(5, "d")),
        (5, "d", b"hello", None, Content(5, "d", "hello", cut=False)),
        (9, "d", b"hello", None, Content(9, "d", "hello", cut=True)),
        (9, "d", b"hello", 5, Content(9, "d", "hello", cut=False)),
        (5, "d", b"hello", 9, Content(5, "d", "hello", cut=True)),
        (8, "d", b"hello wo", None, Content(8, "d", "hello w", cut=True)),
    ],
    ids=["null", "not to be shown", "all of it", "its beginning", "all as JSON", "JSON's beginning", "long"],
)
def test_a_value_is_shown_as_far_as_it_may_be_and_says_whether_there_is_more(
    length: int | None, digest: str | None, head: bytes | None, whole: int | None, expected: Content | None
) -> None:
    assert content(length, digest, head, 7, whole) == expected


def test_samples_are_left_out_before_topics() -> None:
    def size(evidence: Evidence) -> int:
        return len(evidence.samples) * 10 + len(evidence.topics) * 100

    some = some_evidence()
    assert fitted(some, size, 240) == some
    halved, bare, nothing = (fitted(some, size, limit) for limit in (230, 200, 50))
    assert (len(halved.samples), len(halved.topics)) == (2, 2)
    assert halved.notes == (*some.notes, "Left out because there is no room for more: 2 sample records")
    assert (len(bare.samples), len(bare.topics)) == (0, 2)
    assert (len(nothing.samples), len(nothing.topics)) == (0, 0)
    assert nothing.notes[-1] == "Left out because there is no room for more: 2 topics"


@pytest.mark.parametrize(
    ("approval", "asked", "level"),
    [
        ("Manual", {}, EvidenceLevel.RECORDS),
        ("Automatic", {}, EvidenceLevel.NONE),
        ("Manual", {"evidence": {"level": "None"}}, EvidenceLevel.NONE),
        ("Automatic", {"evidence": {"level": "Counts"}}, EvidenceLevel.COUNTS),
    ],
)
def test_by_itself_it_is_gathered_where_a_person_waits(
    approval: str, asked: dict[str, object], level: EvidenceLevel
) -> None:
    reset = ResetSpec.model_validate({"id": "a", "to": {"offset": 1}, "approval": approval, **asked})

    assert evidence_settings(reset) == EvidenceSettings(level)


# --- in a run ---------------------------------------------------------------------------------------------------------


class World:
    """A run that is to send a group from 90 to 30 in a log with a record a minute."""

    def __init__(self, folder: Path, level: EvidenceLevel, *, manual: bool = True, timeout_s: float = 60) -> None:
        self.clock = FakeClock()
        self.kafka = FakeKafka(self.clock)
        self.kafka.create_topic("orders", 1)
        self.kafka.append(T0, [START + timedelta(minutes=n) for n in range(100)])
        self.kafka.commit_directly("payments", {T0: 90})
        self.store: RunStore = DirectoryRunStore(folder, "run", clock=self.clock)
        settings = EvidenceSettings(level, timeout=timedelta(seconds=timeout_s))
        self.store.create(
            RunRequest(
                *("uid/1", "1", "payments", Connection("nowhere:9092"), (Selection("orders"),), ToOffset(30)),
                manual_approval=manual,
                evidence=settings,
            )
        )

    def execute(self) -> RunResult | None:
        return job.execute(self.store, self.kafka, self.clock)

    @property
    def evidence(self) -> Evidence:
        found = self.store.load().evidence
        assert found is not None
        return found


def test_counts_are_gathered_while_the_plan_waits_and_change_nothing_of_it(tmp_path: Path) -> None:
    world = World(tmp_path, EvidenceLevel.COUNTS)
    assert world.execute() is None

    run, [topic] = world.store.load(), world.evidence.topics
    assert run.last is not None
    assert run.last.phase is ResetPhase.AWAITING_APPROVAL
    assert topic.replayed == Amount(60)
    assert topic.histogram is not None
    assert topic.histogram.source is HistogramSource.INDEX
    assert (topic.histogram.start, topic.histogram.width) == (START + timedelta(minutes=30), timedelta(minutes=2))
    assert topic.histogram.replayed == (2,) * 30
    assert world.evidence.notes == ()
    world.store.approve()
    result = world.execute()
    assert result is not None
    assert result.phase is ResetPhase.SUCCEEDED
    assert world.store.load().evidence == world.evidence


def test_records_without_spark_are_counted_and_it_is_said(tmp_path: Path) -> None:
    world = World(tmp_path, EvidenceLevel.RECORDS)
    world.execute()

    assert world.evidence.notes == (RECORDS_NOT_READ,)
    assert world.evidence.topics[0].histogram is not None


def test_none_gathers_nothing(tmp_path: Path) -> None:
    world = World(tmp_path, EvidenceLevel.NONE)
    world.execute()

    assert world.store.load().evidence is None


def test_without_an_approval_to_wait_for_it_is_gathered_after_the_run(tmp_path: Path) -> None:
    world = World(tmp_path, EvidenceLevel.COUNTS, manual=False)
    world.kafka.offsets_at = no_answer  # type: ignore[method-assign]
    result = world.execute()

    assert result is not None
    assert result.phase is ResetPhase.SUCCEEDED
    assert world.store.load().result == result
    assert world.kafka.committed("payments") == {T0: 30}
    assert world.evidence.topics[0].replayed == Amount(60)
    assert world.evidence.notes == (
        "Some of the evidence could not be gathered, which does not affect the plan: the broker is away",
    )


def no_answer(_times: object) -> dict[TopicPartition, int | None]:
    raise Unavailable("the broker is away")


def test_it_ends_with_its_time(tmp_path: Path) -> None:
    world = World(tmp_path, EvidenceLevel.COUNTS, timeout_s=1)
    ask = world.kafka.offsets_at

    def slowly(times: dict[TopicPartition, datetime]) -> object:
        world.clock.sleep(0.4)
        return ask(times)

    world.kafka.offsets_at = slowly  # type: ignore[method-assign,assignment]
    assert world.execute() is None
    assert world.evidence.took_s < 2
    assert world.evidence.topics[0].histogram is None
    assert "took longer than the evidence's timeout" in world.evidence.notes[0]


def test_approved_while_it_is_gathered_the_next_job_goes_on(tmp_path: Path) -> None:
    world = World(tmp_path, EvidenceLevel.COUNTS)
    ask = world.kafka.offsets_at

    def meanwhile(times: dict[TopicPartition, datetime]) -> object:
        world.store.approve()
        return ask(times)

    world.kafka.offsets_at = meanwhile  # type: ignore[method-assign,assignment]
    assert world.execute() is None
    assert world.kafka.committed("payments") == {T0: 90}, "what the document says of approval is no approval"
    result = world.execute()
    assert result is not None
    assert result.phase is ResetPhase.SUCCEEDED


def test_a_job_that_dies_while_gathering_has_lost_nothing(tmp_path: Path) -> None:
    world = World(tmp_path, EvidenceLevel.COUNTS)

    def die(_times: object) -> dict[TopicPartition, int | None]:
        raise KeyboardInterrupt

    world.kafka.offsets_at, ask = die, world.kafka.offsets_at  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        world.execute()
    assert world.execute() is None, "it waits, and does not gather again"
    world.kafka.offsets_at = ask  # type: ignore[method-assign]
    world.store.approve()
    result = world.execute()
    assert result is not None
    assert result.phase is ResetPhase.SUCCEEDED
