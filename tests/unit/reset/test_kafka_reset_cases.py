"""Kafka's own list of cases for resetting offsets, each held against our planning under Kafka's name for it.

The names are those of ``ResetConsumerGroupOffsetTest`` (apache/kafka ``tools``, at 05b504b). Where Kafka executes, the
plan's targets are what is compared: that a plan is committed as it stands is for the tests of applying. Kafka runs each
case with classic and KIP-848 groups that have ended; planning reads the same of both.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

import pytest

from support.fake_kafka import START, FakeClock, FakeKafka
from tidegate.kafka.connection import Connection
from tidegate.kafka.errors import Unavailable
from tidegate.kafka.model import TopicPartition
from tidegate.reset.model.request import RunRequest, Selection
from tidegate.reset.model.targets import (
    ByDuration,
    FromFile,
    ShiftBy,
    Target,
    ToEarliest,
    ToLatest,
    ToOffset,
    ToTimestamp,
)
from tidegate.reset.planning.offsets_csv import parse_offsets, write_group_offsets, write_offsets
from tidegate.reset.planning.planner import make_plan
from tidegate.reset.planning.refusals import NOTHING_MATCHES, UNKNOWN_PARTITION, PlanRefused

NOW: Final = START + timedelta(seconds=10)
"""Records are written at ``START`` unless a case says otherwise."""


@dataclass(frozen=True)
class DoesNotApply:
    """A case about something that this project does not have, and why."""

    because: str


Case = Callable[[FakeKafka], None]


def plan(kafka: FakeKafka, target: Target, *selections: Selection, group: str = "g") -> Mapping[str, int]:
    """The targets; the group's committed offsets are held to be as before: a plan changes nothing."""
    before = kafka.committed(group)
    connection = Connection("127.0.0.1:9092")
    made = make_plan(RunRequest("uid", "run", group, connection, selections, target), kafka, NOW)
    assert kafka.committed(group) == before
    return {str(p): o for p, o in made.targets.items()}


def produced(kafka: FakeKafka, topic: str, records: int = 100, *, at: datetime = START) -> None:
    if topic not in kafka.topics():
        kafka.create_topic(topic, 1)
    kafka.append(TopicPartition(topic, 0), [at] * records)


def consumed(kafka: FakeKafka, topic: str, *groups: str, partitions: int = 1) -> None:
    """Kafka's ``produceConsumeAndShutdown``: 100 records go into partition 0, and the topic is read to its end."""
    if topic not in kafka.topics():
        kafka.create_topic(topic, partitions)
    produced(kafka, topic)
    ends = kafka.log_bounds([TopicPartition(topic, n) for n in range(partitions)])
    for group in groups or ("g",):
        kafka.commit_directly(group, {p: b.latest for p, b in ends.items()})


# --- the cases --------------------------------------------------------------------------------------------------------


def not_existing_group(kafka: FakeKafka) -> None:
    produced(kafka, "foo")
    with pytest.raises(PlanRefused) as refused:  # Kafka's tool resets nothing and says nothing
        plan(kafka, ShiftBy(0), group="missing.group")
    assert refused.value.reason == NOTHING_MATCHES


def offline_partition_not_in_target(kafka: FakeKafka) -> None:
    kafka.create_topic("foo", 2)
    kafka.take_offline(TopicPartition("foo", 1))
    assert plan(kafka, ToEarliest(), Selection("foo", frozenset({0}))) == {"foo-0": 0}


def existing_topic(kafka: FakeKafka) -> None:
    produced(kafka, "foo")
    assert plan(kafka, ToOffset(50), Selection("foo"), group="new.group") == {"foo-0": 50}


def existing_topic_several_groups(kafka: FakeKafka) -> None:
    """One policy is for one group, so several are several plans; the Spark job makes them in one go."""
    consumed(kafka, "foo", "g1", "g2", "g3")
    for group in ("g1", "g2", "g3"):
        assert plan(kafka, ToOffset(50), Selection("foo"), group=group) == {"foo-0": 50}


def all_topics_all_groups(kafka: FakeKafka) -> None:
    for topic in ("foo1", "foo2"):
        consumed(kafka, topic, "g1", "g2")
    for group in ("g1", "g2"):
        assert plan(kafka, ToOffset(50), group=group) == {"foo1-0": 50, "foo2-0": 50}


def to_date_time_before_all_records(kafka: FakeKafka) -> None:
    """A resource's time always has its zone, so there is no local time to guess."""
    consumed(kafka, "foo")
    assert plan(kafka, ToTimestamp(NOW - timedelta(days=1))) == {"foo-0": 0}


def to_date_time_between_records(kafka: FakeKafka) -> None:
    produced(kafka, "foo", 50, at=START - timedelta(seconds=2))
    produced(kafka, "foo", 50, at=START)
    kafka.commit_directly("g", {TopicPartition("foo", 0): 100})
    zoned = datetime.fromisoformat((START - timedelta(seconds=1)).astimezone(UTC).isoformat())
    assert plan(kafka, ToTimestamp(zoned)) == {"foo-0": 50}


def by_duration(kafka: FakeKafka) -> None:
    consumed(kafka, "foo")
    assert plan(kafka, ByDuration(timedelta(minutes=1))) == {"foo-0": 0}


def by_duration_younger_than_all_records(kafka: FakeKafka) -> None:
    """Called "ToEarliest" by Kafka, though its case expects the end, 100."""
    consumed(kafka, "foo")
    assert plan(kafka, ByDuration(timedelta(seconds=0.1))) == {"foo-0": 100}


def by_duration_without_records(kafka: FakeKafka) -> None:
    kafka.create_topic("foo", 1)
    assert plan(kafka, ByDuration(timedelta(minutes=1)), Selection("foo")) == {"foo-0": 0}


def reset_of_all_topics(target: Target, expected: int, *, more: int = 0) -> Case:
    """Read to 100, then ``more`` records come, then the reset."""

    def case(kafka: FakeKafka) -> None:
        consumed(kafka, "foo")
        produced(kafka, "foo", more)
        assert plan(kafka, target) == {"foo-0": expected}

    return case


def earliest_on_one_topic(kafka: FakeKafka) -> None:
    consumed(kafka, "foo")
    consumed(kafka, "bar")
    assert plan(kafka, ToEarliest(), Selection("foo")) == {"foo-0": 0}


def earliest_on_one_topic_and_partition(kafka: FakeKafka) -> None:
    consumed(kafka, "foo", partitions=2)
    assert plan(kafka, ToEarliest(), Selection("foo", frozenset({1}))) == {"foo-1": 0}


def earliest_on_topics(kafka: FakeKafka) -> None:
    consumed(kafka, "foo")
    consumed(kafka, "bar")
    assert plan(kafka, ToEarliest(), Selection("foo"), Selection("bar")) == {"bar-0": 0, "foo-0": 0}


def earliest_on_topics_and_partitions(kafka: FakeKafka) -> None:
    consumed(kafka, "foo", partitions=2)
    consumed(kafka, "bar", partitions=2)
    second = frozenset({1})
    assert plan(kafka, ToEarliest(), Selection("foo", second), Selection("bar", second)) == {"bar-1": 0, "foo-1": 0}


def export_import_single_group(kafka: FakeKafka) -> None:
    """``--to-offset 2 --export``, then ``--from-file``; Kafka's second partition has records, too."""
    consumed(kafka, "foo", partitions=2)
    kafka.append(TopicPartition("foo", 1), [START] * 100)
    offsets = plan(kafka, ToOffset(2))
    assert offsets == {"foo-0": 2, "foo-1": 2}
    text = "foo,0,2\nfoo,1,2\n"
    imported = parse_offsets(text, "g")
    assert write_offsets(imported) == text
    assert plan(kafka, FromFile(imported, "offsets.csv")) == offsets


def export_import_several_groups(kafka: FakeKafka) -> None:
    for topic, group in (("foo", "g1"), ("bar", "g2")):
        kafka.create_topic(topic, 2)
        kafka.append(TopicPartition(topic, 1), [START] * 100)
        consumed(kafka, topic, group, partitions=2)
    text = "g1,foo,0,2\ng1,foo,1,2\ng2,bar,0,2\ng2,bar,1,2\n"
    expected = {"g1": {"foo-0": 2, "foo-1": 2}, "g2": {"bar-0": 2, "bar-1": 2}}
    assert write_group_offsets({g: parse_offsets(text, g) for g in expected}) == text
    for group, offsets in expected.items():
        assert plan(kafka, ToOffset(2), group=group) == offsets
        assert plan(kafka, FromFile(parse_offsets(text, group), "offsets.csv"), group=group) == offsets


def partition_without_leader(kafka: FakeKafka) -> None:
    """Kafka's tool fails with ``LeaderNotAvailableException``; a run asks again until its deadline."""
    consumed(kafka, "foo", partitions=3)
    kafka.take_offline(TopicPartition("foo", 1))
    with pytest.raises(Unavailable):
        plan(kafka, ToEarliest(), Selection("foo", frozenset({0, 1, 2})))


def partition_that_does_not_exist(kafka: FakeKafka) -> None:
    consumed(kafka, "foo")
    with pytest.raises(PlanRefused) as refused:
        plan(kafka, ToEarliest(), Selection("foo", frozenset({2, 3})))
    assert refused.value.reason == UNKNOWN_PARTITION


CASES: Final[Mapping[str, Case | DoesNotApply]] = {
    "testResetOffsetsNotExistingGroup": not_existing_group,
    "testResetOffsetsWithOfflinePartitionNotInResetTarget": offline_partition_not_in_target,
    "testResetOffsetsExistingTopic": existing_topic,
    "testResetOffsetsExistingTopicSelectedGroups": existing_topic_several_groups,
    "testResetOffsetsExistingTopicAllGroups": existing_topic_several_groups,
    "testResetOffsetsAllTopicsAllGroups": all_topics_all_groups,
    "testResetOffsetsToLocalDateTime": to_date_time_before_all_records,
    "testResetOffsetsToZonedDateTime": to_date_time_between_records,
    "testResetOffsetsByDuration": by_duration,
    "testResetOffsetsByDurationToEarliest": by_duration_younger_than_all_records,
    "testResetOffsetsByDurationFallbackToLatestWhenNoRecords": by_duration_without_records,
    "testResetOffsetsToEarliest": reset_of_all_topics(ToEarliest(), 0),
    "testResetOffsetsToLatest": reset_of_all_topics(ToLatest(), 200, more=100),
    # There is no target "current": nobody needs a reset that moves nothing, and shifting by 0 says it.
    "testResetOffsetsToCurrentOffset": reset_of_all_topics(ShiftBy(0), 100, more=100),
    "testResetOffsetsToSpecificOffset": reset_of_all_topics(ToOffset(1), 1),
    "testResetOffsetsShiftPlus": reset_of_all_topics(ShiftBy(50), 150, more=100),
    "testResetOffsetsShiftMinus": reset_of_all_topics(ShiftBy(-50), 50, more=100),
    "testResetOffsetsShiftByLowerThanEarliest": reset_of_all_topics(ShiftBy(-150), 0, more=100),
    "testResetOffsetsShiftByHigherThanLatest": reset_of_all_topics(ShiftBy(150), 200, more=100),
    "testResetOffsetsToEarliestOnOneTopic": earliest_on_one_topic,
    "testResetOffsetsToEarliestOnOneTopicAndPartition": earliest_on_one_topic_and_partition,
    "testResetOffsetsToEarliestOnTopics": earliest_on_topics,
    "testResetOffsetsToEarliestOnTopicsAndPartitions": earliest_on_topics_and_partitions,
    "testResetOffsetsExportImportPlanSingleGroupArg": export_import_single_group,
    "testResetOffsetsExportImportPlan": export_import_several_groups,
    "testResetWithUnrecognizedNewConsumerOption": DoesNotApply(
        "CLI only: an option that kafka-consumer-groups dropped; `tidegate groups` comes later and never had it"
    ),
    "testResetOffsetsWithPartitionNoneLeader": partition_without_leader,
    "testResetOffsetsWithPartitionNotExist": partition_that_does_not_exist,
}


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if not isinstance(case, DoesNotApply)])
def test_kafkas_case(name: str) -> None:
    case = CASES[name]
    assert not isinstance(case, DoesNotApply)
    case(FakeKafka(FakeClock()))


def test_every_case_is_held_or_says_why_not() -> None:
    assert len(CASES) == 28
    assert [
        c.because for c in CASES.values() if isinstance(c, DoesNotApply) and not c.because.startswith("CLI only")
    ] == []
