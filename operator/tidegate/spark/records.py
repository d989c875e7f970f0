"""Records of Kafka as a DataFrame: given ranges of offsets, by Spark's own connector."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Final

from tidegate.kafka.connection import Connection
from tidegate.kafka.model import Range, TopicPartition
from tidegate.reset.planning.planner import NEEDS_SPARK
from tidegate.reset.planning.refusals import PlanRefused
from tidegate.spark.java_client import java_properties

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameReader, SparkSession

__all__ = ["COLUMNS", "Range", "read_records"]

COLUMNS: Final = {
    "topic": "string",
    "partition": "int",
    "offset": "bigint",
    "timestamp": "timestamp",
    "key": "binary",
    "value": "binary",
    "headers": "array<struct<key: string, value: binary>>",
}
"""What a record has, with Spark's types. Times are UTC; a record without headers has none (null)."""

_TUNING: Final = {
    # A transaction's records are there once it is committed, and those of an aborted one never (KIP-98).
    "isolation.level": "read_committed",
    # A fetch a poll, rather than the client's 500 records, since Spark asks the broker twice after each poll where the
    # log begins and ends; and no more than is good for a small heap: what a task leaves of a poll and of a fetch stays
    # with its consumer, for the next task of this partition.
    "max.poll.records": "20000",
    "max.partition.fetch.bytes": str(3 << 20),
    "receive.buffer.bytes": str(1 << 20),
    # What is read is there. At a log's end the client fetches ahead all the same, and whatever Spark asks next, where
    # that log begins and ends, waits behind it.
    "fetch.max.wait.ms": "1",
    "allow.auto.create.topics": "false",
}


def read_records(
    spark: SparkSession,
    connection: Connection,
    ranges: Mapping[TopicPartition, Range],
    columns: Collection[str],
    *,
    splits: int,
    fail_on_data_loss: bool = True,
    committed_only: bool = True,
    reader: str = "",
) -> DataFrame:
    """The committed records of these ranges, with the columns asked for, in their order in ``COLUMNS``.

    ``splits``: at least so many tasks, partitions being cut where there are fewer of them, each task a consumer of its
    own. ``fail_on_data_loss``: fail where records of a range are gone, and not only superseded (compaction) or
    aborted; without it, what is left is read. A range must not reach beyond the last stable offset, behind which
    nothing can be read: reading would fail. ``committed_only``: without it, what transactions have left open or aborted
    is read as well, and ranges may reach to the log's end. ``reader``: whoever reads ranges one after the other under
    the same name, unique as a group id, finds the consumers of before, with what they have fetched ahead.

    Nothing is read before an action asks for it. Raises ``BadConnection``, ``PlanRefused`` where Spark lacks its
    connector to Kafka, and ``ValueError`` for an unknown column.
    """
    unknown = set(columns) - set(COLUMNS)
    if unknown:
        raise ValueError(f"records have no column {', '.join(sorted(unknown))}: use {', '.join(COLUMNS)}")
    ranges = {p: r for p, r in ranges.items() if r.size > 0}
    wanted = [name for name in COLUMNS if name in columns]
    if not ranges:
        return spark.createDataFrame([], ", ".join(f"{name} {COLUMNS[name]}" for name in wanted))
    starts: defaultdict[str, dict[str, int]] = defaultdict(dict)
    ends: defaultdict[str, dict[str, int]] = defaultdict(dict)
    for partition, wanted_range in ranges.items():
        starts[partition.topic][str(partition.partition)] = wanted_range.start
        ends[partition.topic][str(partition.partition)] = wanted_range.end
    properties = _TUNING | java_properties(connection) | ({"group.id": reader} if reader else {})
    if not committed_only:
        properties["isolation.level"] = "read_uncommitted"
    source = spark.read.format("kafka")
    for key, value in properties.items():
        source = source.option(f"kafka.{key}", value)
    assigned = {topic: sorted(map(int, partitions)) for topic, partitions in starts.items()}
    source = (
        source.option("assign", json.dumps(assigned))
        .option("startingOffsets", json.dumps(starts))
        .option("endingOffsets", json.dumps(ends))
        .option("minPartitions", str(max(1, splits)))
        .option("failOnDataLoss", str(fail_on_data_loss).lower())
        .option("includeHeaders", str("headers" in columns).lower())
    )
    return _loaded(source).select(*wanted)


def _loaded(source: DataFrameReader) -> DataFrame:
    """Raises ``PlanRefused`` where Spark lacks its connector to Kafka."""
    from pyspark.errors import AnalysisException

    try:
        return source.load()
    except AnalysisException as error:
        if "data source: kafka" not in str(error):
            raise
        raise PlanRefused(
            NEEDS_SPARK,
            "Spark has no connector to Kafka: name its jars in TIDEGATE_SPARK_JARS where jobs run on this machine, or "
            "bake them into the job's image",
        ) from error
