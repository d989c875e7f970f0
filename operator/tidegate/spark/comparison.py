"""Compares windows of two clusters' topics record by record, for millions of records: where the group's place is here.

Of each record only its offset, its time and a hash (128 bits) of what is to be the same are kept.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tidegate.find.translation import (
    Contribution,
    Found,
    Place,
    Proof,
    TopicPair,
    counted,
    identity,
    is_crossed,
    place,
    proofs,
)
from tidegate.kafka.connection import Connection
from tidegate.kafka.model import Range, TopicPartition
from tidegate.spark.records import read_records

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_SAME: Final = ("pair", "h1", "h2")
_ORIGINS: Final = (
    "topic string, partition int, pair int, with_key boolean, committed bigint, since timestamp, low bigint, "
    "high bigint"
)
_DESTINATIONS: Final = "topic string, partition int, pair int, with_key boolean"
_NEXT: Final = "pair int, partition int, next bigint"
_RULES: Final = (
    "pair int, q int, by_key boolean, first bigint, last bigint, compacted boolean, since timestamp, until timestamp, "
    "high bigint"
)
_PLACES: Final = "pair int, q int, place bigint, reach timestamp"
_FURTHEST: Final = "pair int, partition int, furthest bigint"


@dataclass(frozen=True, slots=True)
class Compared:
    """``places``: one for each partition here. ``crossed``: topics here whose records have changed partitions."""

    places: tuple[Place, ...]
    crossed: frozenset[str]

    @property
    def cut_off(self) -> frozenset[str]:
        """Topics here whose windows ended before the place."""
        return frozenset(p.partition.topic for p in self.places if p.cut_off)


def compare(
    spark: SparkSession, here: Connection, there: Connection, pairs: Sequence[TopicPair], match: Collection[str]
) -> Compared:
    """The places of all pairs of topics. Raises what reading records raises."""
    columns = {"topic", "partition", "offset", "timestamp", *_columns_of(pairs, match)}
    splits = 2 * spark.sparkContext.defaultParallelism
    read_there = read_records(spark, there, _ranges_there(pairs), columns, splits=splits, committed_only=False)
    read_here = read_records(spark, here, _ranges_here(pairs), columns, splits=splits, committed_only=False)
    return compare_records(spark, read_here, read_there, pairs, match)


def compare_records(
    spark: SparkSession, here: DataFrame, there: DataFrame, pairs: Sequence[TopicPair], match: Collection[str]
) -> Compared:
    """As ``compare``, with the records of the windows as they are read from Kafka."""
    with ExitStack() as exit_stack:
        return _Comparison(spark, here, there, pairs, match, exit_stack).result()


def _ranges_there(pairs: Iterable[TopicPair]) -> dict[TopicPartition, Range]:
    return {
        TopicPartition(p.there, o.partition): Range(o.window.start, o.window.stop) for p in pairs for o in p.origins
    }


def _ranges_here(pairs: Iterable[TopicPair]) -> dict[TopicPartition, Range]:
    return {
        TopicPartition(p.here, d.partition): Range(d.window.start, d.window.stop) for p in pairs for d in p.destinations
    }


def _columns_of(pairs: Iterable[TopicPair], match: Collection[str]) -> set[str]:
    names = {name for pair in pairs for name in identity(pair, match)}
    return {"headers" if name.startswith("header:") else name for name in names}


class _Comparison:
    """One comparison: the two tables that are kept, and what is asked of them. Partitions here are called ``q``, and
    offsets here ``at``."""

    def __init__(
        self,
        spark: SparkSession,
        here: DataFrame,
        there: DataFrame,
        pairs: Sequence[TopicPair],
        match: Collection[str],
        exit_stack: ExitStack,
    ) -> None:
        from pyspark.sql import functions as f

        self._spark = spark
        self._pairs = pairs
        self._exit_stack = exit_stack
        hashes = _hashes(match, with_key=any("key" in identity(p, match) for p in pairs))
        self._there = self._kept(
            there.join(self._small(self._origin_rows(), _ORIGINS), ["topic", "partition"]).select(
                "pair",
                "partition",
                "offset",
                f.col("offset").between(f.col("low"), f.col("high") - 1).alias("inside"),
                (f.col("offset") < f.col("committed")).alias("done"),
                (f.col("timestamp") >= f.col("since")).alias("young"),
                *hashes,
            )
        )
        next_open, self._inside = self._look_there()
        self._joined = self._kept(
            here.join(self._small(self._destination_rows(), _DESTINATIONS), ["topic", "partition"])
            .select("pair", f.col("partition").alias("q"), f.col("offset").alias("at"), "timestamp", *hashes)
            .join(self._same(next_open), list(_SAME), "left")
        )

    def result(self) -> Compared:
        contributions, furthest = self._contributions()
        proven = [proofs(pair, contributions[n]) for n, pair in enumerate(self._pairs)]
        found = self._found(proven)
        places = {
            (n, d.partition): place(pair, d, proven[n][d.partition], found[n, d.partition])
            for n, pair in enumerate(self._pairs)
            for d in pair.destinations
        }
        seen, to_come = self._seen(places), self._to_come(furthest)
        return Compared(
            tuple(
                counted(pair, places[n, d.partition], d, seen.get((n, d.partition), 0), to_come[n])
                for n, pair in enumerate(self._pairs)
                for d in pair.destinations
            ),
            frozenset(pair.here for n, pair in enumerate(self._pairs) if is_crossed(pair, contributions[n])),
        )

    # --- tables -------------------------------------------------------------------------------------------------------

    def _kept(self, table: DataFrame) -> DataFrame:
        from pyspark import StorageLevel

        kept = table.persist(StorageLevel.MEMORY_AND_DISK)
        self._exit_stack.callback(kept.unpersist)
        return kept

    def _small(self, rows: Sequence[tuple[object, ...]], columns: str) -> DataFrame:
        from pyspark.sql.functions import broadcast

        return broadcast(self._spark.createDataFrame(rows, columns))

    def _origin_rows(self) -> list[tuple[object, ...]]:
        rows: list[tuple[object, ...]] = []
        for n, pair in enumerate(self._pairs):
            windows = {} if pair.by_key else {d.partition: d.window for d in pair.destinations}
            for o in pair.origins:
                mine = windows.get(o.partition)
                low, high = (mine.start, min(mine.stop, o.window.stop)) if mine is not None else (0, 0)
                rows.append((pair.there, o.partition, n, pair.compacted_there, o.committed, o.window.since, low, high))
        return rows

    def _destination_rows(self) -> list[tuple[object, ...]]:
        return [
            (pair.here, d.partition, n, pair.compacted_there)
            for n, pair in enumerate(self._pairs)
            for d in pair.destinations
        ]

    def _same(self, next_open: Mapping[tuple[int, int], int]) -> DataFrame:
        """What is the same over there is one row: how often it is done and open, and in which partitions."""
        from pyspark.sql import functions as f

        anchors = [
            (n, o.partition, at)
            for n, pair in enumerate(self._pairs)
            for o in pair.origins
            if (at := next_open.get((n, o.partition))) is not None
            and (at == o.committed or (o.committed >= o.window.bounds.earliest and not pair.compacted_there))
        ]
        return (
            self._there.join(self._small(anchors, _NEXT), ["pair", "partition"], "left")
            .groupBy(*_SAME)
            .agg(
                f.count_if("done").alias("done"),
                f.count_if(~f.col("done")).alias("open"),
                f.min("partition").alias("i"),
                f.max("partition").alias("other"),
                f.max("offset").alias("offset"),
                f.bool_and("young").alias("young"),
                f.bool_or(f.col("offset").eqNullSafe(f.col("next"))).alias("anchors"),
            )
        )

    # --- questions ----------------------------------------------------------------------------------------------------

    def _look_there(self) -> tuple[dict[tuple[int, int], int], dict[tuple[int, int], int]]:
        """By pair and partition over there: the first open offset, and how many records should be here at theirs."""
        from pyspark.sql import functions as f

        rows = (
            self._there.groupBy("pair", "partition")
            .agg(f.min(f.when(~f.col("done"), f.col("offset"))).alias("next"), f.count_if("inside").alias("inside"))
            .collect()
        )
        at = {(r["pair"], r["partition"]): r for r in rows}
        return {k: r["next"] for k, r in at.items() if r["next"] is not None}, {k: r["inside"] for k, r in at.items()}

    def _contributions(self) -> tuple[list[list[Contribution]], dict[tuple[int, int], int]]:
        """By pair; and by pair and partition over there, the last record that is surely here, −1 for none."""
        from pyspark.sql import functions as f

        proves = f.col("young") & ((f.col("open") == 0) | ((f.col("done") == 0) & f.col("anchors")))
        rows = (
            self._joined.where(f.col("i") == f.col("other"))
            .groupBy(*_SAME, "q")
            .agg(
                f.min("at").alias("at"),
                f.first("i").alias("i"),
                f.first(proves).alias("proves"),
                f.first(f.when((f.col("done") == 1) & (f.col("open") == 0), f.col("offset"))).alias("copied"),
            )
            .groupBy("pair", "q", "i")
            .agg(
                f.min(f.when(f.col("proves"), f.col("at"))).alias("first"),
                f.max(f.when(f.col("proves"), f.col("at"))).alias("last"),
                f.coalesce(f.max("copied"), f.lit(-1)).alias("furthest"),
            )
            .collect()
        )
        found: list[list[Contribution]] = [[] for _ in self._pairs]
        furthest = {(n, o.partition): -1 for n, pair in enumerate(self._pairs) for o in pair.origins}
        for r in rows:
            found[r["pair"]].append(Contribution(r["q"], r["i"], r["first"], r["last"]))
            furthest[r["pair"], r["i"]] = max(furthest[r["pair"], r["i"]], r["furthest"])
        return found, furthest

    def _found(self, proven: Sequence[Mapping[int, Proof]]) -> dict[tuple[int, int], Found]:
        from pyspark.sql import functions as f

        rules, expected = [], {}
        for n, pair in enumerate(self._pairs):
            stops = {} if pair.by_key else {o.partition: o.window.stop for o in pair.origins}
            for d in pair.destinations:
                proof, window = proven[n][d.partition], d.window
                high = min(window.stop, stops.get(d.partition, 0))
                rules.append(
                    (
                        n,
                        d.partition,
                        pair.by_key,
                        proof.first,
                        proof.last,
                        pair.compacted_there,
                        window.since,
                        window.until,
                        high,
                    )
                )
                expected[n, d.partition] = self._inside.get((n, d.partition), 0)
        at, time = f.col("at"), f.col("timestamp")
        passed_over = (f.col("until").isNull() | (time < f.col("until"))) & (
            (at < f.col("first")) | ((at < f.col("last")) & (f.col("compacted") | (time < f.col("since"))))
        )
        # Also what is the same as a record of another partition, where records stay in theirs: it is none of that.
        foreign = ~f.col("by_key") & ((f.col("i") != f.col("q")) | (f.col("other") != f.col("q")))
        inside = at < f.col("high")
        alone = (f.col("done") + f.col("open") == 1) & (f.col("offset") == at) & (f.col("i") == f.col("q"))
        rows = (
            self._joined.join(self._small(rules, _RULES), ["pair", "q"])
            .groupBy("pair", "q")
            .agg(
                f.min(f.when((f.col("open") > 0) | foreign, at)).alias("open"),
                f.min(f.when(f.col("done").isNull() & ~passed_over, at)).alias("unknown"),
                f.count_if(inside).alias("inside"),
                f.count_if(inside & alone).alias("alone"),
            )
            .collect()
        )
        found = {k: Found(None, None) for k in expected}
        for r in rows:
            k = r["pair"], r["q"]
            same_offsets = r["alone"] > 0 and r["inside"] == r["alone"] == expected[k]
            found[k] = Found(r["open"], r["unknown"], same_offsets)
        return found

    def _seen(self, places: Mapping[tuple[int, int], Place]) -> dict[tuple[int, int], int]:
        """How many records in the window, from the place on, may be done."""
        from pyspark.sql import functions as f

        reach = {(n, d.partition): d.reach for n, pair in enumerate(self._pairs) for d in pair.destinations}
        rules = [(n, q, p.offset, reach[n, q]) for (n, q), p in places.items()]
        unknown = f.col("done").isNull() & (f.col("reach").isNull() | (f.col("timestamp") < f.col("reach")))
        rows = (
            self._joined.join(self._small(rules, _PLACES), ["pair", "q"])
            .where((f.col("at") >= f.col("place")) & ((f.col("done") > 0) | unknown))
            .groupBy("pair", "q")
            .count()
            .collect()
        )
        return {(r["pair"], r["q"]): r["count"] for r in rows}

    def _to_come(self, furthest: Mapping[tuple[int, int], int]) -> list[dict[int, int]]:
        """By pair and partition over there: done records behind the last one that is surely here."""
        from pyspark.sql import functions as f

        rules = [(n, i, offset) for (n, i), offset in furthest.items()]
        found: list[dict[int, int]] = [{} for _ in self._pairs]
        for r in (
            self._there.join(self._small(rules, _FURTHEST), ["pair", "partition"])
            .where(f.col("done") & (f.col("offset") > f.col("furthest")))
            .groupBy("pair", "partition")
            .count()
            .collect()
        ):
            found[r["pair"]][r["partition"]] = r["count"]
        return found


def _header(key: str) -> Column:
    """The value of the last header of this name."""
    from pyspark.sql import functions as f

    return f.try_element_at(f.filter("headers", lambda header: header["key"] == f.lit(key)), f.lit(-1))["value"]


def _hashes(match: Collection[str], *, with_key: bool) -> list[Column]:
    """Two hashes of 64 bits over what is to be the same, each with its own seed. A field that is absent is not one that
    is empty, and no field runs into the next one."""
    from pyspark.sql import functions as f

    fields: list[Column] = []
    for name in sorted(match):
        if name.startswith("header:"):
            fields.append(_header(name.removeprefix("header:")))
        elif name == "timestamp":
            fields.append(f.unix_micros("timestamp"))
        else:
            fields.append(f.col(name))
    if with_key and "key" not in match:
        fields.append(f.when(f.col("with_key"), f.col("key")))
    told = [part for field in fields for part in (field.isNull(), field)]
    return [f.xxhash64(f.lit(seed), *told).alias(name) for seed, name in ((1, "h1"), (2, "h2"))]
