"""Backups are written by real Spark, and groups put back from them, on a real broker."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from pyspark.sql import DataFrameWriter

from apiserver.offsets import commit
from devstack import KafkaCluster
from support.stack_fixtures import MakeTopic, Unique
from tidegate.clock import SystemClock
from tidegate.jobs.storage import Folder
from tidegate.kafka.connection import Connection
from tidegate.kafka.model import TopicPartition
from tidegate.offset_backup.manifest import Keep, Manifest, manifest_name, schedule_folder
from tidegate.offset_backup.order import Order
from tidegate.reset.model.request import RunRequest, Selection
from tidegate.reset.model.targets import FromBackup
from tidegate.reset.planning.refusals import PlanRefused
from tidegate.spark.backup import take_backup
from tidegate.spark.files import Files, StorageFailure
from tidegate.spark.restore import find_backup, manifests_of

DUE = datetime(2020, 1, 1, tzinfo=UTC)


@pytest.fixture
def topic(kafka: KafkaCluster, make_topic: MakeTopic) -> str:
    """Ten records in each of two partitions."""
    name = make_topic(2)
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    for number in range(20):
        producer.produce(name, b"x", partition=number % 2)
    assert producer.flush(30) == 0
    return name


def test_groups_are_found_where_a_backup_has_them(
    spark: Any, kafka: KafkaCluster, topic: str, unique: Unique, tmp_path: Path
) -> None:
    connection, group = Connection(kafka.bootstrap), unique()
    commit(kafka.bootstrap, group, topic, {0: 4, 1: 4})
    place = Folder(tmp_path / "backups")
    order = Order(connection, place, "schedule", DUE, "p-1", (group,), keep=Keep(timedelta(0), timedelta(0)))

    made = take_backup(spark, order, SystemClock()).manifest
    assert (made.groups, made.offsets, made.unread) == (1, 2, {})
    rows = spark.read.parquet(str(place.path / schedule_folder(made.cluster_id, "schedule") / made.data)).collect()
    assert sorted((r["topic"], r["partition"], r["committed"], r["log_end"]) for r in rows) == [
        (topic, 0, 4, 10),
        (topic, 1, 4, 10),
    ]

    commit(kafka.bootstrap, group, topic, {0: 10, 1: 10})
    again = take_backup(spark, replace(order, attempt="p-2"), SystemClock()).manifest
    assert again == made, "a due time that has a backup keeps it"

    target = FromBackup(place, SystemClock().now())
    request = RunRequest(unique(), "back", group, connection, (), target)
    found = find_backup(spark, request, target, SystemClock().now())
    assert found.findings.offsets == {TopicPartition(topic, n): 4 for n in range(2)}
    assert found.selections == (Selection(topic, frozenset({0, 1})),)

    with pytest.raises(PlanRefused, match="BackupNotFound"):
        find_backup(spark, request, FromBackup(place, made.ended_at - timedelta(microseconds=1)), SystemClock().now())

    later = take_backup(spark, replace(order, due=DUE + timedelta(hours=1), attempt="p-3"), SystemClock()).manifest
    files, folder = Files(spark, place), schedule_folder(made.cluster_id, "schedule")
    assert manifests_of(files, made.cluster_id, "schedule") == [later], "what is over is removed"
    assert files.read(f"{folder}/{manifest_name(DUE)}") is None
    assert files.names(f"{folder}/data") == (later.data.removeprefix("data/"),)

    (tmp_path / "file").write_text("where a folder should be")
    says = r"^can't write \S+: \S+ParentNotDirectoryException: Parent path is not a directory: \S+$"
    with pytest.raises(StorageFailure, match=says):
        Files(spark, Folder(tmp_path / "file" / "x")).publish("a/b.json", b"x")
    gone = r"^can't measure \S+/gone: java\.io\.FileNotFoundException: File \S+/gone does not exist$"
    with pytest.raises(StorageFailure, match=gone):
        files.size("gone")


def test_what_an_executor_had_read_and_is_lost_is_not_counted_from_another_look(
    spark: Any,
    kafka: KafkaCluster,
    topic: str,
    unique: Unique,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It dies when all is written and nothing is counted yet, and the group goes on committing."""
    group = unique()
    commit(kafka.bootstrap, group, topic, {0: 4})
    place = Folder(tmp_path / "backups")
    write = DataFrameWriter.parquet

    def write_and_die(writer: Any, path: str) -> None:
        write(writer, path)
        context = spark.sparkContext._jsc
        for number in list(context.getPersistentRDDs().keySet()):
            context.sc().env().blockManager().master().removeRdd(number, True)
        commit(kafka.bootstrap, group, topic, {1: 4})

    monkeypatch.setattr(DataFrameWriter, "parquet", write_and_die)
    order = Order(Connection(kafka.bootstrap), place, "schedule", DUE, "p-1", (group,))

    with pytest.raises(StorageFailure, match=r"^can't write "):
        take_backup(spark, order, SystemClock())

    assert not list(place.path.rglob("*.json"))


def test_of_two_jobs_for_one_due_time_the_quicker_one_has_taken_the_backup(
    spark: Any,
    kafka: KafkaCluster,
    topic: str,
    unique: Unique,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A first attempt that was given up may still run: the group has committed more when the second one looks."""
    group = unique()
    commit(kafka.bootstrap, group, topic, {0: 4})
    place = Folder(tmp_path / "backups")
    due = SystemClock().now().replace(microsecond=0)  # nobody takes what is being written for left-overs
    order = Order(Connection(kafka.bootstrap), place, "schedule", due, "p-1", (group,))
    write = DataFrameWriter.parquet
    quicker: list[Manifest] = []

    def write_after_the_other(writer: Any, path: str) -> None:
        monkeypatch.setattr(DataFrameWriter, "parquet", write)
        write(writer, path)
        commit(kafka.bootstrap, group, topic, {1: 4})
        quicker.append(take_backup(spark, replace(order, attempt="p-2"), SystemClock()).manifest)

    monkeypatch.setattr(DataFrameWriter, "parquet", write_after_the_other)

    told = take_backup(spark, order, SystemClock()).manifest

    assert [told] == quicker
    assert told.offsets == 2
    files, folder = Files(spark, place), schedule_folder(told.cluster_id, "schedule")
    assert manifests_of(files, told.cluster_id, "schedule") == [told]
    assert files.names(f"{folder}/data") == (told.data.removeprefix("data/"),)


def test_a_folder_is_the_one_that_is_named(spark: Any, tmp_path: Path) -> None:
    place = Folder(tmp_path / "all offsets, 100% \u00fc")

    Files(spark, place).publish("a/b.json", b"x")

    assert (place.path / "a" / "b.json").read_bytes() == b"x"
    assert Files(spark, place).read("a/b.json") == b"x"
