"""What a backup's rows become for the plan of a reset."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from support.fake_kafka import START, FakeClock, FakeKafka
from tidegate.jobs.storage import S3
from tidegate.kafka.connection import Connection
from tidegate.kafka.model import TopicPartition
from tidegate.offset_backup.manifest import Manifest
from tidegate.offset_backup.restore import Restored, Row, none_found, restored
from tidegate.reset.model.plan import Plan
from tidegate.reset.model.request import RunRequest, Selection
from tidegate.reset.model.targets import FromBackup
from tidegate.reset.planning.planner import make_plan
from tidegate.reset.planning.refusals import PlanRefused

DUE = datetime(2026, 11, 22, 12, tzinfo=UTC)
MADE = Manifest("c", "uid", DUE, DUE + timedelta(seconds=7), DUE + timedelta(seconds=9), "data/x", 1, 2, 4096)
ORDERS = [TopicPartition("orders", n) for n in range(3)]
TARGET = FromBackup(S3("backups", "kafka"))
REQUEST = RunRequest("uid", "run", "g", Connection("kafka:9092"), (), TARGET)


@pytest.fixture
def kafka() -> FakeKafka:
    """``orders`` with 10..110 in two partitions and nothing in the third; the group has lost its offsets."""
    kafka = FakeKafka(FakeClock())
    kafka.create_topic("orders", 3)
    for partition in ORDERS[:2]:
        kafka.append(partition, (START + timedelta(seconds=n) for n in range(110)))
        kafka.delete_records(partition, 10)
    return kafka


def planned(kafka: FakeKafka, rows: list[Row]) -> tuple[Restored, Plan]:
    found = restored(MADE, "g", rows, kafka.topics())
    request = replace(REQUEST, selections=found.selections)
    return found, make_plan(request, kafka, START + timedelta(hours=1), findings=found.findings)


def test_an_expired_group_is_put_back_where_the_backup_has_it(kafka: FakeKafka) -> None:
    topic_id = kafka.topics()["orders"].topic_id
    found, plan = planned(kafka, [Row(ORDERS[0], 60, topic_id), Row(ORDERS[1], 3, topic_id)])
    found.check(plan)
    assert plan.targets == {ORDERS[0]: 60, ORDERS[1]: 10}
    assert [p.clamped for p in plan.partitions] == [None, "Earliest"]
    assert any("due at 2026-11-22T12:00:00Z, read from 2026-11-22T12:00:07Z" in note for note in plan.notes)


def test_partitions_that_are_gone_are_left_out_and_said(kafka: FakeKafka) -> None:
    _, plan = planned(kafka, [Row(ORDERS[0], 60, None), Row(TopicPartition("gone", 0), 5, "x")])
    assert plan.targets == {ORDERS[0]: 60}
    assert any("no longer exist: gone-0" in note for note in plan.notes)


def test_a_selected_partition_that_the_backup_lacks_stays(kafka: FakeKafka) -> None:
    found = restored(MADE, "g", [Row(ORDERS[0], 60, None)], kafka.topics())
    request = replace(REQUEST, selections=(Selection("orders"),))
    plan = make_plan(request, kafka, START + timedelta(hours=1), findings=found.findings)
    assert plan.targets == {ORDERS[0]: 60}
    assert any("not in the backup: 2 partitions (orders-1, orders-2)" in note for note in plan.notes)


def test_offsets_of_a_topic_that_was_made_anew_are_refused(kafka: FakeKafka) -> None:
    found, plan = planned(kafka, [Row(ORDERS[0], 60, "the id before")])
    with pytest.raises(PlanRefused, match=r"TopicRecreated: .* created again since the backup: orders"):
        found.check(plan)


def test_offsets_of_a_topic_that_was_not_there_when_they_were_read_are_refused(kafka: FakeKafka) -> None:
    """It was deleted before the offsets were, so that the one of now was created since."""
    found, plan = planned(kafka, [Row(ORDERS[0], 60, None)])
    with pytest.raises(PlanRefused, match=r"TopicRecreated: .* did not exist when it was read: orders"):
        found.check(plan)


@pytest.mark.parametrize(
    ("rows", "says"),
    [([], "It has no offset of group g"), ([Row(TopicPartition("gone", 0), 5, "x")], "All of its offsets of")],
)
def test_a_backup_without_the_group_gives_no_plan(kafka: FakeKafka, rows: list[Row], says: str) -> None:
    with pytest.raises(PlanRefused, match=says):
        restored(MADE, "g", rows, kafka.topics())


def test_where_there_is_no_backup_it_is_said_why() -> None:
    unread = replace(MADE, unread={"g": "not authorized"})
    refused = none_found("c", "g", DUE, [MADE, unread], ["c", "d"])
    assert refused.reason == "BackupNotFound"
    assert "no backup of cluster c with group g that was made by 2026-11-22T12:00:00Z" in refused.message
    assert (
        "could not be read for 1 backup(s), the last of them due at 2026-11-22T12:00:00Z: not authorized"
        in refused.message
    )
    assert "Backups of clusters d are not used" in refused.message


def test_without_spark_there_is_no_plan_from_a_backup(kafka: FakeKafka) -> None:
    with pytest.raises(PlanRefused, match="target backup can only be found by Spark"):
        make_plan(REQUEST, kafka, START)
