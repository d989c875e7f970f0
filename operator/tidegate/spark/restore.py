"""Finds where a group stood in a backup."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING

from tidegate.jobs.storage import hadoop_options
from tidegate.kafka.model import Topic, TopicPartition
from tidegate.kafka_client.client import KafkaClient
from tidegate.offset_backup.manifest import (
    BadManifest,
    Manifest,
    cluster_folder,
    decode,
    due_of,
    newest_first,
    schedule_folder,
)
from tidegate.offset_backup.restore import Restored, Row, none_found, restored
from tidegate.reset.model.request import RunRequest
from tidegate.reset.model.targets import FromBackup
from tidegate.reset.planning.refusals import BACKUP_NOT_FOUND, PlanRefused
from tidegate.spark.executors import in_executor
from tidegate.spark.files import Files, StorageFailure, why

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def find_backup(spark: SparkSession, request: RunRequest, target: FromBackup, now: datetime) -> Restored:
    """Raises ``PlanRefused`` and ``KafkaFailure`` as planning does."""
    cluster_id, topics = in_executor(spark, lambda: _look_around(request))
    try:
        files = Files(spark, target.storage)
        manifests = read_manifests(files, cluster_id)
        best = newest_first(manifests, request.group_id, target.at, now)
        if not best:
            clusters = [n.removeprefix("cluster=") for n in files.names("") if n.startswith("cluster=")]
            raise none_found(cluster_id, request.group_id, target.at, manifests, clusters)
        rows = _read(spark, files, target, best[0], request.group_id)
    except StorageFailure as failure:
        raise PlanRefused(BACKUP_NOT_FOUND, str(failure)) from failure
    return restored(best[0], request.group_id, rows, topics)


def _look_around(request: RunRequest) -> tuple[str, Mapping[str, Topic]]:
    with closing(KafkaClient(request.connection)) as kafka:
        return kafka.cluster().cluster_id, kafka.topics()


def read_manifests(files: Files, cluster_id: str) -> list[Manifest]:
    """Those of all schedules of a cluster. Raises ``StorageFailure``, also for one that can't be understood: a newer
    one may be what was meant."""
    found = []
    for folder in files.names(cluster_folder(cluster_id)):
        if folder.startswith("schedule="):
            found += manifests_of(files, cluster_id, folder.removeprefix("schedule="))
    return found


def manifests_of(files: Files, cluster_id: str, schedule: str) -> list[Manifest]:
    """Those of one schedule, as ``read_manifests``. Where one lies tells whose it is and when it was due, and not what
    it says of that: so its data is looked for there, and nowhere else."""
    found = []
    folder = schedule_folder(cluster_id, schedule)
    for last in files.names(f"{folder}/manifests"):
        name = f"{folder}/manifests/{last}"
        due = due_of(last)
        if due is None or not last.endswith(".json"):
            continue
        text = files.read(name)
        if text is None:  # compacted away meanwhile
            continue
        try:
            found.append(replace(decode(text), cluster_id=cluster_id, schedule=schedule, due=due))
        except BadManifest as bad:
            raise StorageFailure(f"can't use {files.uri(name)}: {bad}") from bad
    return found


def _read(spark: SparkSession, files: Files, target: FromBackup, manifest: Manifest, group_id: str) -> list[Row]:
    from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped,unused-ignore]
    from pyspark.errors import PySparkException
    from pyspark.sql.functions import col

    uri = files.uri(f"{schedule_folder(manifest.cluster_id, manifest.schedule)}/{manifest.data}")
    try:
        table = spark.read.options(**hadoop_options(target.storage)).parquet(uri)
        rows = table.where(col("group_id") == group_id).select("topic", "partition", "committed", "topic_id").collect()
    except (PySparkException, Py4JJavaError) as error:
        raise StorageFailure(f"can't read {uri}: {why(error)}") from error
    return [Row(TopicPartition(r["topic"], r["partition"]), r["committed"], r["topic_id"]) for r in rows]
