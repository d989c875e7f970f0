"""Writes where all groups of a cluster stand to Parquet, and removes what is over.

Groups are spread over the executors, each of which reads commits and log ends of its own. Every step can be done again:
data counts only once the manifest names it, and a due time that has a manifest is done.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tidegate.clock import Clock, SystemClock
from tidegate.jobs.storage import hadoop_options
from tidegate.kafka.errors import KafkaFailure, UnknownPartitions
from tidegate.kafka.model import LogBounds, Topic, TopicPartition
from tidegate.kafka.names import is_allowed, is_internal
from tidegate.kafka_client.client import KafkaClient
from tidegate.kafka_client.group_requests import group_types
from tidegate.kafka_client.settings import BadConnection
from tidegate.kafka_client.wire import Wire
from tidegate.offset_backup.manifest import (
    COLUMNS,
    Manifest,
    data_name,
    encode,
    judged_at,
    manifest_name,
    orphans,
    over,
    schedule_folder,
)
from tidegate.offset_backup.order import Order, wanted_groups
from tidegate.spark.arrow import as_batches
from tidegate.spark.executors import in_executor
from tidegate.spark.files import Files, StorageFailure, why
from tidegate.spark.plan_steps import together_or_each
from tidegate.spark.restore import manifests_of

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped,unused-ignore]
    from pyspark.sql import SparkSession

_READ: Final = f"{COLUMNS}, failure string"
"""As ``COLUMNS``; a group that could not be read has one row, with only its id and why."""

_NOTHING: Final = (None,) * (COLUMNS.count(",") - 1)
_BATCH: Final = 200
_TASK_GROUPS: Final = 500


@dataclass(frozen=True, slots=True)
class Taken:
    """A backup that is there. ``left``: why what is over was not removed; empty where it was."""

    manifest: Manifest
    left: str = ""


def take_backup(spark: SparkSession, order: Order, clock: Clock) -> Taken:
    """The backup of the order's due time: the one that there is, or a new one. Then removes what is over.

    Raises ``KafkaFailure`` and ``StorageFailure``; then there is none, and what was written is left to a later job.
    """
    files = Files(spark, order.storage)
    cluster_id, groups = in_executor(spark, lambda: _list(order))
    manifest = _manifest(files, cluster_id, order) or _made(spark, files, order, clock, cluster_id, groups)
    try:
        _compact(files, cluster_id, order, clock)
    except StorageFailure as failure:
        # Whoever may write and not remove has a backup all the same.
        return Taken(manifest, str(failure))
    return Taken(manifest)


def _made(
    spark: SparkSession, files: Files, order: Order, clock: Clock, cluster_id: str, groups: Sequence[str]
) -> Manifest:
    """A new backup; or that of another job, which was quicker."""
    from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped,unused-ignore]
    from pyspark.errors import PySparkException
    from pyspark.sql.functions import count, count_distinct

    folder = schedule_folder(cluster_id, order.schedule)
    began_at = clock.now()
    data = data_name(order.due, order.attempt)
    tasks = max(1, -(-len(groups) // _TASK_GROUPS))
    looks = spark.range(0, len(groups), 1, tasks).mapInArrow(_Reading(order, groups).read, _READ)
    try:
        # Looked at once, whatever becomes of the executors that have: what is written and what is counted is the same.
        # Spark would look again for what is lost of a mere cache, and count what others have committed since.
        read = looks.localCheckpoint()
        rows = read.where("failure is null").drop("failure")
        # One file: what a thousand groups have committed are some hundred kilobytes.
        rows.coalesce(1).sortWithinPartitions("group_id", "topic", "partition").write.mode("overwrite").options(
            **hadoop_options(order.storage)
        ).parquet(files.uri(f"{folder}/{data}"))
        failed = {r["group_id"]: r["failure"] for r in read.where("failure is not null").collect()}
        [(offsets, with_offsets)] = rows.agg(count("*"), count_distinct("group_id")).collect()
    except (PySparkException, Py4JJavaError) as error:
        raise StorageFailure(f"can't write {files.uri(f'{folder}/{data}')}: {why(error)}") from error
    if groups and len(failed) == len(groups):
        files.remove(f"{folder}/{data}")
        raise KafkaFailure(f"none of {len(groups):,} groups could be read: {next(iter(failed.values()))}")
    manifest = Manifest(
        cluster_id=cluster_id,
        schedule=order.schedule,
        due=order.due,
        began_at=began_at,
        ended_at=clock.now(),
        data=data,
        groups=with_offsets,
        offsets=offsets,
        size=files.size(f"{folder}/{data}"),
        unread=failed,
    )
    name = f"{folder}/{manifest_name(order.due)}"
    if not files.publish(name, encode(manifest)):
        # Another job was quicker: there is one backup of a due time, and this is not it.
        files.remove(f"{folder}/{data}")
        there = _manifest(files, cluster_id, order)
        if there is None:
            raise StorageFailure(f"can't write {files.uri(name)}: something else is there")
        return there
    return manifest


def _manifest(files: Files, cluster_id: str, order: Order) -> Manifest | None:
    """That of the order's due time, where there is one."""
    return next((m for m in manifests_of(files, cluster_id, order.schedule) if m.due == order.due), None)


def _list(order: Order) -> tuple[str, tuple[str, ...]]:
    """The cluster, and its groups that are wanted and allowed; Streams and share groups, which no reset changes, are
    left out."""
    with closing(Wire(order.connection)) as wire:
        groups = [g for g, kind in group_types(wire).items() if kind not in ("streams", "share")]
    with closing(KafkaClient(order.connection)) as kafka:
        return kafka.cluster().cluster_id, wanted_groups(order, groups)


def _compact(files: Files, cluster_id: str, order: Order, clock: Clock) -> None:
    """First the manifest, so that no reader finds one without its data."""
    now, folder = judged_at(order.due, clock.now()), schedule_folder(cluster_id, order.schedule)
    manifests = {m.due: m for m in manifests_of(files, cluster_id, order.schedule)}
    for due in over(manifests.keys(), order.keep, now):
        files.remove(f"{folder}/{manifest_name(due)}")
        files.remove(f"{folder}/{manifests.pop(due).data}")
    named = {m.data for m in manifests.values()}
    for name in orphans((f"data/{last}" for last in files.names(f"{folder}/data")), named, now):
        files.remove(f"{folder}/{name}")


@dataclass(frozen=True, slots=True)
class _Reading:
    """What every task knows. Travels to the executors; holds no secrets."""

    order: Order
    groups: Sequence[str]

    def read(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Numbers of groups → ``_READ``."""
        names = [self.groups[n] for batch in batches for n in batch.column(0).to_pylist()]
        if names:
            yield from as_batches(_READ, self._rows(names))

    def _rows(self, names: Sequence[str]) -> Iterator[tuple[object, ...]]:
        try:
            with closing(KafkaClient(self.order.connection)) as kafka:
                topics = kafka.topics()
                for start in range(0, len(names), _BATCH):
                    yield from self._batch(kafka, topics, names[start : start + _BATCH])
        except (KafkaFailure, BadConnection) as failure:
            # Of those that were told already the manifest says both; a reader takes them for unread.
            for name in names:
                yield (name, *_NOTHING, None, str(failure))

    def _batch(
        self, kafka: KafkaClient, topics: Mapping[str, Topic], names: Sequence[str]
    ) -> Iterator[tuple[object, ...]]:
        seen = together_or_each(lambda some: (kafka.groups(some), kafka.commits_of(some)), names)
        observed_at = SystemClock().now()
        wanted = {
            p
            for found in seen.values()
            if not isinstance(found, KafkaFailure)
            for p in found[1]
            if p.topic in topics and p.partition < topics[p.topic].partitions
        }
        bounds = _bounds(kafka, wanted)
        for name, found in seen.items():
            if isinstance(found, KafkaFailure):
                yield (name, *_NOTHING, None, str(found))
                continue
            group, commits = found
            for p, commit in sorted(commits.items()):
                if is_internal(p.topic) or not is_allowed(p.topic, self.order.allowed_topics):
                    continue
                topic, ends = topics.get(p.topic), bounds.get(p)
                yield (
                    *(name, str(group.type), str(group.state)),
                    *(p.topic, topic.topic_id if topic is not None else None, p.partition),
                    *(commit.offset, commit.leader_epoch, commit.metadata),
                    *((ends.earliest, ends.latest) if ends is not None else (None, None)),
                    *(observed_at, None),
                )


def _bounds(kafka: KafkaClient, partitions: set[TopicPartition]) -> Mapping[TopicPartition, LogBounds]:
    """Of those that can be read: a log without a leader is no reason to lose its offset."""
    try:
        return kafka.log_bounds(partitions)
    except UnknownPartitions as unknown:
        left = partitions - unknown.partitions
        return _bounds(kafka, left) if left != partitions else {}
    except KafkaFailure:
        return {}
