"""Evidence from the records themselves: bytes, different keys, time, and a few records beside each target.

Contents are measured and hashed where they are read. What the policy does not let be shown leaves no executor.

Everything is bounded (``EvidenceSettings``), and nothing waits for it: once its time is over, or the plan was approved,
its jobs are cancelled, and what is there by then is the evidence.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import reduce
from typing import TYPE_CHECKING, Any, Final, Self

from tidegate.clock import Clock, SystemClock
from tidegate.kafka.errors import KafkaFailure
from tidegate.kafka.model import Offsets, Range, TopicPartition
from tidegate.kafka_client.client import KafkaClient
from tidegate.kafka_client.settings import BadConnection
from tidegate.reset.evidence import (
    KEY_LIMIT,
    SAMPLE_REACH,
    VALUE_LIMIT,
    Amount,
    Evidence,
    Grid,
    Histogram,
    HistogramSource,
    Moving,
    Sample,
    Stretches,
    amounts,
    by_topic,
    content,
    grids,
    movings,
    nearest,
    sampled,
    stretches,
)
from tidegate.reset.model.plan import Plan
from tidegate.reset.model.request import EvidenceLevel, RunRequest
from tidegate.reset.model.targets import ToRecord
from tidegate.reset.planning.counts import failed, gather_counts, histograms_by_index, histograms_of
from tidegate.reset.planning.refusals import PlanRefused
from tidegate.spark.decoding import MISSING, RECORD, unsigned
from tidegate.spark.executors import in_executor
from tidegate.spark.records import read_records
from tidegate.spark.session import COMPILED, with_settings
from tidegate.spark.value_schemas import value_schemas

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_TAG: Final = "tidegate-evidence"
_LOOK_EVERY_S: Final = 2.0
_DIGEST_DIGITS: Final = 12
_UTF8_BYTES: Final = 4
_MESSAGE_LIMIT: Final = 300
_SPELLED: Final = "spelled"
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def gather(
    spark: SparkSession, request: RunRequest, plan: Plan, clock: Clock, approved: Callable[[], bool]
) -> Evidence:
    """As much as was asked for and there is time for; what goes wrong is said in it. ``approved``: enough waited."""
    from py4j.protocol import Py4JError  # type: ignore[import-untyped,unused-ignore]
    from pyspark.errors import PySparkException

    settings = request.evidence
    began = clock.monotonic()
    notes: list[str] = []
    found = _Found()
    with _Bounds(spark, began + settings.timeout.total_seconds(), clock, approved) as bounds:
        try:
            if settings.level is EvidenceLevel.COUNTS:
                return in_executor(spark, lambda: _counts(request, plan))
            ground = in_executor(spark, lambda: _look_around(request, plan))
            found.histograms = dict(ground.histograms)
            notes += ground.notes
            if ground.stable:
                bounds.check()
                found.samples = _samples(spark, request, plan, ground.stable)
                bounds.check()
                _read(spark, request, plan, ground.stable, found, notes)
        except _Over as over:
            notes.append(str(over))
        except PlanRefused as refused:
            notes.append(failed(refused.message))
        except (BadConnection, KafkaFailure, PySparkException, Py4JError) as error:
            notes.append(bounds.over() or failed(_spoken(error)))
    topics, others = by_topic(plan, found.amounts, found.histograms)
    return Evidence(
        gathered_at=clock.now(),
        topics=topics,
        samples=found.samples,
        read=sum(a.records or 0 for a in found.amounts.values()),
        took_s=round(clock.monotonic() - began, 3),
        notes=(*notes, *others),
    )


@dataclass(slots=True)
class _Found:
    """What is there so far."""

    histograms: dict[str, Histogram] = field(default_factory=dict)
    samples: tuple[Sample, ...] = ()
    amounts: dict[tuple[str, bool], Amount] = field(default_factory=dict)


# --- looking around ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Ground:
    """``stable``: where each log ends for readers of committed records; empty where that can't be known, and then
    nothing is read. ``histograms``: by the time index."""

    stable: Offsets
    histograms: Mapping[str, Histogram] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def _counts(request: RunRequest, plan: Plan) -> Evidence:
    clock = SystemClock()
    try:
        with closing(KafkaClient(request.connection)) as kafka:
            return gather_counts(request, plan, kafka, clock)
    except (KafkaFailure, BadConnection) as failure:
        topics, others = by_topic(plan, {}, {})
        return Evidence(clock.now(), topics, notes=(failed(failure), *others))


def _look_around(request: RunRequest, plan: Plan) -> Ground:
    clock = SystemClock()
    concerned = {m.partition for m in movings(plan)} | {p.topic_partition for p in sampled(plan)}
    try:
        with closing(KafkaClient(request.connection)) as kafka:
            stable = kafka.last_stable_offsets(concerned)
            until = clock.monotonic() + request.evidence.timeout.total_seconds()
            histograms, notes = histograms_by_index(plan, kafka, clock, until)
            return Ground(stable, histograms, notes)
    except (KafkaFailure, BadConnection) as failure:
        return Ground({}, notes=(failed(failure),))


# --- samples ----------------------------------------------------------------------------------------------------------


def _samples(spark: SparkSession, request: RunRequest, plan: Plan, stable: Offsets) -> tuple[Sample, ...]:
    from pyspark.sql import functions as f

    targets: dict[TopicPartition, int] = {}
    ranges: dict[TopicPartition, Range] = {}
    for p in sampled(plan):
        partition = p.topic_partition
        if partition in stable:
            start = max(p.earliest, p.target - SAMPLE_REACH)
            targets[partition] = p.target
            ranges[partition] = Range(start, min(stable[partition], p.target + SAMPLE_REACH))
    records = read_records(
        spark,
        request.connection,
        ranges,
        ("topic", "partition", "offset", "timestamp", "key", "value"),
        splits=1,
        fail_on_data_loss=False,
    )
    salt = f.lit(bytearray(secrets.token_bytes(32)))
    shown = request.evidence.show_values
    spelled = _spelled(records, request) if shown else records.withColumn(_SPELLED, f.lit(None).cast("binary"))

    def measured(name: str, limit: int, spelling: str) -> list[Column]:
        digest = f.substring(f.sha2(f.concat(salt, f.col(name)), 256), 1, _DIGEST_DIGITS)
        head = f.substring(f.col(spelling), 1, limit * _UTF8_BYTES) if shown else f.lit(None).cast("binary")
        return [
            f.length(name).alias(f"{name}_bytes"),
            digest.alias(f"{name}_digest"),
            head.alias(f"{name}_head"),
        ]

    rows = spelled.select(
        *("topic", "partition", "offset", f.unix_micros("timestamp").alias("at_us")),
        *measured("key", KEY_LIMIT, "key"),
        *measured("value", VALUE_LIMIT, _SPELLED),
        f.length(_SPELLED).alias("whole"),
    ).toArrow()
    samples = [
        Sample(
            topic=row["topic"],
            partition=row["partition"],
            offset=row["offset"],
            at=_moment(row["at_us"]),
            from_target=row["offset"] >= targets[TopicPartition(row["topic"], row["partition"])],
            key=content(row["key_bytes"], row["key_digest"], row["key_head"], KEY_LIMIT),
            value=content(row["value_bytes"], row["value_digest"], row["value_head"], VALUE_LIMIT, row["whole"]),
        )
        for row in rows.to_pylist()
    ]
    return nearest(samples, targets)


def _spelled(records: DataFrame, request: RunRequest) -> DataFrame:
    """Records with values as a person reads them: as JSON where the target says how they are encoded in Avro or
    Protobuf. One that can't be decoded is spelled by its bytes."""
    from pyspark.sql import functions as f

    target = request.target
    schemas = value_schemas(target.schema) if isinstance(target, ToRecord) else None
    if schemas is None:
        return records.withColumn(_SPELLED, f.col("value"))
    decoded = schemas.decoding.decoded(records)
    rows = decoded.where(f.col(MISSING).isNotNull()).select(MISSING).distinct().collect()
    if rows:
        schemas.learn({unsigned(row[MISSING]) for row in rows})
        decoded = schemas.decoding.decoded(records)
    return decoded.withColumn(_SPELLED, f.coalesce(f.encode(f.to_json(RECORD), "utf-8"), f.col("value")))


def _moment(microseconds: int | None) -> datetime | None:
    """``None`` also for a time that no calendar of ours has: producers may write any."""
    try:
        return None if microseconds is None else _EPOCH + timedelta(microseconds=microseconds)
    except OverflowError:
        return None


# --- amounts ----------------------------------------------------------------------------------------------------------


def _read(
    spark: SparkSession, request: RunRequest, plan: Plan, stable: Offsets, found: _Found, notes: list[str]
) -> None:
    """Read what moves, or as much of it as may be."""
    moves = movings(plan)
    moving = tuple(_readable(moves, stable))
    read = stretches(moving, request.evidence.max_records)
    grid_of = grids(plan)
    rows = _scanned(spark, request, read, grid_of)
    looked_at = read.looked_at()
    offsets = amounts(moves)
    for (topic, replayed), count in looked_at.items():
        row = rows.get((topic, replayed), {})
        if count:
            found.amounts[topic, replayed] = Amount(
                offsets=offsets[topic][replayed],
                looked_at=count,
                **{name: row.get(name, 0) for name in ("records", "bytes", "keys", "without_key", "tombstones")},
            )
    total, left = sum(m.offsets for m in moving), sum(looked_at.values())
    if left < total:
        notes.append(
            f"Read were {left:,} of {total:,} offsets, spread over {len(read.of):,} of {len(moving):,} partitions "
            "(maxRecords): bytes are estimated by them, and there may be more different keys"
        )
        return
    pending = sum(m.offsets for m in moves) - total
    if pending:
        notes.append(f"{pending:,} offsets at the ends of logs belong to open transactions, and were not read")
    counts: dict[tuple[str, bool], list[list[int]]] = {}
    for (topic, replayed), row in rows.items():
        if topic in grid_of:
            of = [0] * grid_of[topic].count
            for bucket in row["buckets"]:
                of[bucket["bucket"]] += bucket["n"]
            counts[topic, replayed] = [of]
    found.histograms.update(histograms_of(grid_of, counts, HistogramSource.RECORDS))


def _readable(moving: Sequence[Moving], stable: Offsets) -> Iterator[Moving]:
    for m in moving:
        end = min(m.end, stable.get(m.partition, m.start))
        if m.start < end:
            yield replace(m, end=end)


def _scanned(
    spark: SparkSession, request: RunRequest, read: Stretches, grid_of: Mapping[str, Grid]
) -> dict[tuple[str, bool], dict[str, Any]]:
    """A row by topic and ``replayed``."""
    from pyspark.sql import functions as f

    frames: list[DataFrame] = [
        read_records(
            spark,
            request.connection,
            ranges,
            ("topic", "timestamp", "key", "value"),
            splits=spark.sparkContext.defaultParallelism,
            fail_on_data_loss=False,
        ).withColumn("replayed", f.lit(replayed))
        for replayed in (True, False)
        for ranges in read.rounds(replayed)
    ]
    if not frames:
        return {}
    micro = timedelta(microseconds=1)
    buckets = spark.createDataFrame(
        [(topic, (g.start - _EPOCH) // micro, g.width // micro, g.count - 1) for topic, g in grid_of.items()],
        "topic string, start bigint, width bigint, last bigint",
    )
    with with_settings(spark, COMPILED):
        records = reduce(lambda one, other: one.unionAll(other), frames)
        nth = f.floor((f.unix_micros("timestamp") - f.col("start")) / f.col("width"))
        by_bucket = (
            records.join(f.broadcast(buckets), "topic", "left")
            .withColumn("bucket", f.greatest(f.lit(0), f.least(f.col("last"), nth)).cast("int"))
            .groupBy("topic", "replayed", "bucket")
            .agg(
                f.count("*").alias("n"),
                f.sum(f.coalesce(f.length("key"), f.lit(0)) + f.coalesce(f.length("value"), f.lit(0))).alias("bytes"),
                f.count_if(f.col("key").isNull()).alias("without_key"),
                f.count_if(f.col("value").isNull()).alias("tombstones"),
                f.hll_sketch_agg("key").alias("sketch"),
            )
        )
        rows = (
            by_bucket.groupBy("topic", "replayed")
            .agg(
                f.sum("n").alias("records"),
                f.sum("bytes").alias("bytes"),
                f.sum("without_key").alias("without_key"),
                f.sum("tombstones").alias("tombstones"),
                f.hll_sketch_estimate(f.hll_union_agg("sketch")).alias("keys"),
                f.collect_list(f.struct("bucket", "n")).alias("buckets"),
            )
            .toArrow()
            .to_pylist()
        )
    return {(row["topic"], row["replayed"]): row for row in rows}


# --- bounds -----------------------------------------------------------------------------------------------------------


class _Over(Exception):
    """Nobody waits for more; the message says why."""


class _Bounds:
    """Until when evidence is gathered. While entered, a thread cancels this thread's jobs once it is over."""

    def __init__(self, spark: SparkSession, until_s: float, clock: Clock, approved: Callable[[], bool]) -> None:
        self._context = spark.sparkContext
        self._until_s = until_s
        self._clock = clock
        self._approved = approved
        self._left = threading.Event()
        self._watching = threading.Thread(target=self._watch, name=_TAG, daemon=True)

    def over(self) -> str:
        """Why, or empty."""
        if self._clock.monotonic() > self._until_s:
            return "Not all was gathered within the evidence's timeout"
        return "Not all was gathered, since the plan was approved meanwhile" if self._approved() else ""

    def check(self) -> None:
        """Raises ``_Over``."""
        why = self.over()
        if why:
            raise _Over(why)

    def __enter__(self) -> Self:
        self._context.addJobTag(_TAG)
        self._context.setInterruptOnCancel(True)
        self._watching.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._left.set()
        self._watching.join(_LOOK_EVERY_S)  # it may be asking a store that does not answer
        self._context.removeJobTag(_TAG)
        self._context.setInterruptOnCancel(False)

    def _watch(self) -> None:
        while not self._left.wait(_LOOK_EVERY_S):
            if self.over():
                # Again and again: the next job may just have been about to begin.
                self._context.cancelJobsWithTag(_TAG)


def _spoken(error: Exception) -> str:
    """Spark's complaint, without its stack."""
    java = getattr(error, "java_exception", None)
    text = str(error) if java is None else str(java.getMessage() or java.toString())
    return text.strip().partition("\n")[0][:_MESSAGE_LIMIT]
