"""Compares partitions of two clusters offset by offset, in two looks: digests of blocks first, and then, of each
partition, the records of the first block that differs.

Records are those that readers of committed records see, up to the last stable offset: a copy with the same offsets has
what an ``OffsetMirror`` writes where transactions were aborted, which nobody sees either.

A digest is the number of records of a block and an exclusive or over a hash (128 bits) of each, which does not depend
on the order in which tasks see them. Where compaction has removed records, blocks differ without meaning anything:
there every record is looked at.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Final

from tidegate.find.parity import Difference, LogPair, Parity
from tidegate.find.survey import origin_of
from tidegate.kafka.connection import Connection
from tidegate.kafka.model import LogBounds, Range, TopicPartition
from tidegate.kafka_client.client import KafkaClient
from tidegate.reset.model.request import Selection
from tidegate.spark.records import read_records
from tidegate.spark.session import for_joins, with_settings

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

BLOCK: Final = 1 << 16
"""Offsets of one digest."""

_COLUMNS: Final = ("topic", "partition", "offset", "timestamp", "key", "value")


class NothingToCompare(ValueError):
    """The message says what is missing, and where."""


def find_pairs(
    here: Connection, there: Connection, selections: Sequence[Selection], alias: str | None = None
) -> tuple[LogPair, ...]:
    """The partitions here that are selected by name, each with its namesake over there.

    ``alias``: see ``tidegate.find.survey.origin_of``. Raises ``NothingToCompare`` and ``KafkaFailure``.
    """
    with closing(KafkaClient(here)) as ours, closing(KafkaClient(there)) as theirs:
        topics_here, topics_there = ours.topics(), theirs.topics()
        pairs: list[tuple[TopicPartition, TopicPartition]] = []
        for selection in selections:
            topic = topics_here.get(selection.topic)
            if topic is None:
                raise NothingToCompare(f"there is no topic {selection.topic} here, or no right to describe it")
            origin = origin_of(topic.name, topics_here, topics_there, alias)
            if origin is None:
                raise NothingToCompare(f"the other cluster has no topic {topic.name}, or no right to describe it")
            count = topics_there[origin].partitions
            if count != topic.partitions:
                raise NothingToCompare(
                    f"topic {topic.name} has {topic.partitions} partitions here and {count} over there: offsets can't "
                    "be carried over"
                )
            wanted = selection.partitions if selection.partitions is not None else range(topic.partitions)
            missing = [n for n in wanted if not 0 <= n < topic.partitions]
            if missing:
                raise NothingToCompare(f"topic {topic.name} has no partition {missing[0]}")
            pairs += [(TopicPartition(topic.name, n), TopicPartition(origin, n)) for n in sorted(wanted)]
        compacted_here = ours.compacted({p.topic for p, _ in pairs})
        compacted_there = theirs.compacted({p.topic for _, p in pairs})
        bounds_here = _stable_bounds(ours, [p for p, _ in pairs])
        bounds_there = _stable_bounds(theirs, [p for _, p in pairs])
    return tuple(
        LogPair(
            p,
            q,
            bounds_here[p],
            bounds_there[q],
            compacted_here.get(p.topic, False) or compacted_there.get(q.topic, False),
        )
        for p, q in dict.fromkeys(pairs)
    )


def _stable_bounds(kafka: KafkaClient, partitions: Collection[TopicPartition]) -> dict[TopicPartition, LogBounds]:
    """From each log's start to its last stable offset."""
    bounds, stable = kafka.log_bounds(partitions), kafka.last_stable_offsets(partitions)
    return {p: LogBounds(min(found.earliest, stable[p]), stable[p]) for p, found in bounds.items()}


def compare_logs(spark: SparkSession, here: Connection, there: Connection, pairs: Sequence[LogPair]) -> list[Parity]:
    """The parity of each pair, in their order. Raises what reading records raises."""
    with with_settings(spark, for_joins(spark)):
        whole = {n: p.overlap for n, p in enumerate(pairs) if not p.compacted and p.overlap.size}
        looked = {n: p.overlap for n, p in enumerate(pairs) if p.compacted and p.overlap.size}
        counts: dict[int, int] = {}
        if whole:
            digests = [
                _digests(_numbered(spark, connection, pairs, whole, side)) for connection, side in _sides(here, there)
            ]
            counts, blocks = _compare_digests(*digests)
            for n, block in blocks.items():
                overlap = whole[n]
                looked[n] = Range(max(overlap.start, block * BLOCK), min(overlap.end, (block + 1) * BLOCK))
        found: dict[int, dict[Difference, int]] = {}
        if looked:
            records = [
                _hashed(_numbered(spark, connection, pairs, looked, side)) for connection, side in _sides(here, there)
            ]
            common, found = _compare_records(*records)
            counts |= {n: counts.get(n, 0) + count for n, count in common.items()}
    return [Parity(pair, counts.get(n, 0), found.get(n, {})) for n, pair in enumerate(pairs)]


def _sides(here: Connection, there: Connection) -> tuple[tuple[Connection, str], ...]:
    return (here, "here"), (there, "there")


def _numbered(
    spark: SparkSession, connection: Connection, pairs: Sequence[LogPair], ranges: Mapping[int, Range], side: str
) -> DataFrame:
    """The records of one side, with their pair's number ``n`` in place of topic and partition."""
    from pyspark.sql.functions import broadcast

    names = {n: pairs[n].here if side == "here" else pairs[n].there for n in ranges}
    numbers = spark.createDataFrame(
        [(p.topic, p.partition, n) for n, p in names.items()], "topic string, partition int, n int"
    )
    records = read_records(
        spark,
        connection,
        {names[n]: r for n, r in ranges.items()},
        _COLUMNS,
        splits=2 * spark.sparkContext.defaultParallelism,
    )
    return records.join(broadcast(numbers), ["topic", "partition"])


def _digests(records: DataFrame) -> DataFrame:
    from pyspark.sql import functions as f

    told = [f.col("offset"), f.unix_micros("timestamp"), *_field("key"), *_field("value")]
    return (
        records.select(
            "n",
            f.floor(f.col("offset") / BLOCK).alias("block"),
            f.xxhash64(f.lit(1), *told).alias("h1"),
            f.xxhash64(f.lit(2), *told).alias("h2"),
        )
        .groupBy("n", "block")
        .agg(f.count("*").alias("count"), f.bit_xor("h1").alias("h1"), f.bit_xor("h2").alias("h2"))
    )


def _field(name: str) -> list[Column]:
    from pyspark.sql import functions as f

    return [f.col(name).isNull(), f.col(name)]


def _compare_digests(here: DataFrame, there: DataFrame) -> tuple[dict[int, int], dict[int, int]]:
    """By pair: how many records are in blocks that are the same, and the first block that is not."""
    from pyspark.sql import functions as f

    same = f.lit(True)
    for name in ("count", "h1", "h2"):
        same = same & f.col(f"here.{name}").eqNullSafe(f.col(f"there.{name}"))
    rows = (
        here.alias("here")
        .join(there.alias("there"), ["n", "block"], "full")
        .groupBy("n")
        .agg(
            f.sum(f.when(same, f.col("here.count")).otherwise(0)).alias("count"),
            f.min(f.when(~same, f.col("block"))).alias("block"),
        )
        .collect()
    )
    return {r["n"]: r["count"] for r in rows}, {r["n"]: r["block"] for r in rows if r["block"] is not None}


def _hashed(records: DataFrame) -> DataFrame:
    from pyspark.sql import functions as f

    return records.select(
        "n",
        "offset",
        f.unix_micros("timestamp").alias("timestamp"),
        *(f.struct(*(f.xxhash64(f.lit(s), *_field(name)) for s in (1, 2))).alias(name) for name in ("key", "value")),
    )


def _compare_records(here: DataFrame, there: DataFrame) -> tuple[dict[int, int], dict[int, dict[Difference, int]]]:
    """By pair: how many offsets both have a record at, and the first ones that differ, by how."""
    from pyspark.sql import functions as f

    ours, theirs = here.withColumn("side", f.lit(True)), there.withColumn("side", f.lit(True))
    both = f.col("here.side").isNotNull() & f.col("there.side").isNotNull()
    differs = {
        Difference.ONLY_HERE: f.col("there.side").isNull(),
        Difference.ONLY_THERE: f.col("here.side").isNull(),
        **{
            what: both & (f.col(f"here.{name}") != f.col(f"there.{name}"))
            for what, name in (
                (Difference.TIMESTAMP, "timestamp"),
                (Difference.KEY, "key"),
                (Difference.VALUE, "value"),
            )
        },
    }
    rows = (
        ours.alias("here")
        .join(theirs.alias("there"), ["n", "offset"], "full")
        .groupBy("n")
        .agg(
            f.count_if(both).alias("both"),
            *(f.min(f.when(when, f.col("offset"))).alias(what.value) for what, when in differs.items()),
        )
        .collect()
    )
    return (
        {r["n"]: r["both"] for r in rows},
        {r["n"]: {what: r[what.value] for what in Difference if r[what.value] is not None} for r in rows},
    )
