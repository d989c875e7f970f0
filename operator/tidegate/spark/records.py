"""Records of Kafka as a DataFrame: given ranges of offsets, by Spark's own connector."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Final

from tidegate.kafka.connection import Connection
from tidegate.kafka.model import Range, TopicPartition
from tidegate.spark.java_client import java_properties

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

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
    # Whole fetches at a time: at its 500 records the client spends more on each poll than on what it returns.
    "max.poll.records": "100000",
    "max.partition.fetch.bytes": str(16 << 20),
    "fetch.max.bytes": str(64 << 20),
    "receive.buffer.bytes": str(1 << 20),
    # A window may be a handful of records: nobody gains by waiting for more.
    "fetch.max.wait.ms": "50",
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
) -> DataFrame:
    """The committed records of these ranges, with the columns asked for, in their order in ``COLUMNS``.

    ``splits``: at least so many tasks, partitions being cut where there are fewer of them, each task a consumer of its
    own. ``fail_on_data_loss``: fail where records of a range are gone, and not only superseded (compaction) or
    aborted; without it, what is left is read. A range must not reach beyond the last stable offset, behind which
    nothing can be read: reading would fail. ``committed_only``: without it, what transactions have left open or aborted
    is read as well, and ranges may reach to the log's end.

    Nothing is read before an action asks for it. Raises ``BadConnection``, and ``ValueError`` for an unknown column.
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
    reader = spark.read.format("kafka")
    isolation = {} if committed_only else {"isolation.level": "read_uncommitted"}
    for key, value in (_TUNING | isolation | java_properties(connection)).items():
        reader = reader.option(f"kafka.{key}", value)
    assigned = {topic: sorted(map(int, partitions)) for topic, partitions in starts.items()}
    return (
        reader.option("assign", json.dumps(assigned))
        .option("startingOffsets", json.dumps(starts))
        .option("endingOffsets", json.dumps(ends))
        .option("minPartitions", str(max(1, splits)))
        .option("failOnDataLoss", str(fail_on_data_loss).lower())
        .option("includeHeaders", str("headers" in columns).lower())
        .load()
        .select(*wanted)
    )
