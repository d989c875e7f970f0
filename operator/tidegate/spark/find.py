"""Finds the records that ``to.record`` describes: as many as it takes are read, in growing windows, by Spark.

1. *bind*: the condition is understood before anything is read (``tidegate.spark.expression``).
2. *look around*: which partitions, where their logs begin, and end for readers of committed records; ``from`` and
   ``until`` through the time index. In an executor, as all that uses our own client.
3. *search*: window by window (``tidegate.find.windows``), each one Spark job over Kafka's records, that gives a row for
   each partition in which something was found.

A window is repeatable: when an executor or a broker is lost, or retention takes records away that were about to be
read, it is done again with what there is then.

Times are the producers' (``CreateTime``), and need not rise with the offsets. The time index gives the first offset
whose record is at or after a time: so none before the one of ``from`` matches, and records behind it are compared one
by one. Behind the one of ``until`` there may be earlier records: :data:`BEYOND` more are looked at.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

from tidegate.clock import Clock
from tidegate.find.windows import Pace, Search, tasks_for
from tidegate.kafka.connection import Connection
from tidegate.kafka.errors import KafkaFailure, NotAuthorized, Unavailable
from tidegate.kafka.model import Offsets, Range, TopicPartition
from tidegate.kafka.ports import ClusterReader
from tidegate.kafka_client.client import KafkaClient
from tidegate.reset.model.plan import Plan
from tidegate.reset.model.progress import Searched
from tidegate.reset.model.request import RunRequest
from tidegate.reset.model.targets import Findings, ToRecord
from tidegate.reset.planning.checks import Asked, recreated
from tidegate.reset.planning.cluster_view import read_ahead
from tidegate.reset.planning.planner import look_around
from tidegate.reset.planning.refusals import BAD_EXPRESSION, TOPIC_RECREATED, PlanRefused
from tidegate.reset.planning.scope import listed
from tidegate.reset.runs.job import Tell
from tidegate.spark.executors import in_executor
from tidegate.spark.expression import SETTINGS, Condition, bind, spoken
from tidegate.spark.records import read_records
from tidegate.spark.session import COMPILED, with_settings

if TYPE_CHECKING:
    from pyspark.sql import Column, SparkSession

BEYOND: Final = 10_000
"""Offsets that are looked at behind the first record at or after ``until``, for earlier ones."""

TELL_EVERY_S: Final = 2.0
TRIES: Final = 3
"""Of one window, before the whole plan begins anew."""

_SPARKS: Final = "org.apache.spark."
_NOT_THE_CONDITION: Final = (
    "org.apache.",
    "KAFKA",
    "INTERNAL_ERROR",
    "FAILED_READ",
    "java.io.",
    "java.net.",
    "java.nio.",
    "java.util.concurrent.",
    "java.lang.InterruptedException",
    "java.lang.OutOfMemoryError",
)
"""Whose exceptions tell of brokers, executors and networks. What else is raised while a record is looked at, the
condition raises: a record's value that is no regular expression, for one."""


@dataclass(frozen=True, slots=True)
class Found:
    """``findings`` for the plan, and the topics they are about."""

    findings: Findings
    topic_ids: Mapping[str, str]

    def check(self, plan: Plan) -> None:
        """Raises ``PlanRefused`` if a topic was recreated meanwhile: then the offsets mean other records."""
        if topics := recreated(plan, self.topic_ids):
            raise PlanRefused(
                TOPIC_RECREATED,
                f"deleted and created again while records were searched: {listed(topics)}. "
                "Ask again under a new reset.id",
            )


def find_records(
    spark: SparkSession,
    request: RunRequest,
    target: ToRecord,
    tell: Tell,
    clock: Clock,
    *,
    pace: Pace | None = None,
) -> Found:
    """The offset of the first record by partition for which the condition holds; behind the last one with ``after``.

    Raises as ``find_for_groups``, and as planning of this one group.
    """
    return find_for_groups(spark, [request], target, tell, clock, pace=pace)


def find_for_groups(
    spark: SparkSession,
    requests: Sequence[RunRequest],
    target: ToRecord,
    tell: Tell,
    clock: Clock,
    *,
    pace: Pace | None = None,
) -> Found:
    """``find_records`` for groups of one cluster: a partition is searched once, however many of them read it. Of
    several groups, one that has no plan is left out: its own planning says why.

    ``tell`` hears how far the search has come, at most every ``TELL_EVERY_S``, and at its end. Raises ``PlanRefused``
    and ``KafkaFailure`` as planning does, and what ``tell`` raises.
    """
    with with_settings(spark, {**COMPILED, **SETTINGS}):
        condition = bind(spark, target.where, target.schema)
        ground = in_executor(spark, lambda: _look_around(requests, target))
        teller = _Teller(tell, clock, ground.total)
        scan = _Scan(spark, requests[0].connection, condition, target, clock, teller)
        order = (ground.beyond, ground.inside) if target.after else (ground.inside, ground.beyond)
        found: dict[TopicPartition, int] = {}
        for ranges in order:
            left = {p: r for p, r in ranges.items() if p not in found}
            found |= scan.search(left, beyond=ranges is ground.beyond, pace=pace)
    teller.ended()
    step = 1 if target.after else 0
    offsets = {p: found[p] + step if p in found else None for p in ground.inside}
    return Found(Findings(offsets, tuple(scan.notes(ground))), ground.topic_ids)


# --- looking around ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Ground:
    """What is to be searched. ``inside``: every partition's offsets between the bounds; ``beyond``: those behind
    ``until`` that are looked at as well. ``pending``: offsets at the end, by partition, which are not looked at, since
    the first of them belongs to an open transaction.
    """

    inside: Mapping[TopicPartition, Range]
    beyond: Mapping[TopicPartition, Range]
    pending: Mapping[TopicPartition, int]
    topic_ids: Mapping[str, str]

    @property
    def total(self) -> int:
        return sum(r.size for ranges in (self.inside, self.beyond) for r in ranges.values())


def _look_around(requests: Sequence[RunRequest], target: ToRecord) -> Ground:
    with closing(KafkaClient(requests[0].connection)) as kafka:
        asked = _asked(requests, kafka)
        partitions = sorted({p for each in asked for p in each.scope.partitions})
        # Times first: the ends only grow, so that what is found is inside.
        since = kafka.offsets_at(dict.fromkeys(partitions, target.since)) if target.since is not None else None
        until = kafka.offsets_at(dict.fromkeys(partitions, target.until)) if target.until is not None else None
        stable = kafka.last_stable_offsets(partitions)
        bounds = kafka.log_bounds(partitions)
    inside: dict[TopicPartition, Range] = {}
    beyond: dict[TopicPartition, Range] = {}
    for p in partitions:
        end = stable[p]
        first = bounds[p].earliest if since is None else since[p]
        start = end if first is None else min(max(first, bounds[p].earliest), end)
        last = until[p] if until is not None else None
        stop = end if last is None else min(max(last, start), end)
        inside[p] = Range(start, stop)
        beyond[p] = Range(stop, min(stop + BEYOND, end))
    return Ground(
        inside,
        beyond if until is not None else {},
        {p: bounds[p].latest - stable[p] for p in partitions if bounds[p].latest > stable[p]},
        {p.topic: each.topics[p.topic].topic_id for each in asked for p in each.scope.partitions},
    )


def _asked(requests: Sequence[RunRequest], kafka: KafkaClient) -> list[Asked]:
    if len(requests) == 1:
        return [look_around(requests[0], kafka)[0]]
    reader: ClusterReader = kafka
    try:
        reader = read_ahead(kafka, requests, datetime.now(UTC))
    except Unavailable:
        raise
    except KafkaFailure:
        reader = kafka  # something of one group may not be read: they are looked at one by one
    found = []
    for request in requests:
        with suppress(KafkaFailure, PlanRefused):
            found.append(look_around(request, reader)[0])
    return found


def _starts(connection: Connection, partitions: Collection[TopicPartition]) -> Offsets:
    with closing(KafkaClient(connection)) as kafka:
        return {p: bounds.earliest for p, bounds in kafka.log_bounds(partitions).items()}


# --- looking at records -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Looked:
    """What a window has shown, by partition: matches, and how many records were out of order by their times."""

    matches: Mapping[TopicPartition, int]
    disordered: Mapping[TopicPartition, int]


class _Scan:
    """The searches of one target, and what there is to say of them."""

    def __init__(
        self,
        spark: SparkSession,
        connection: Connection,
        condition: Condition,
        target: ToRecord,
        clock: Clock,
        teller: _Teller,
    ) -> None:
        self._spark = spark
        self._connection = connection
        self._condition = condition
        self._target = target
        self._clock = clock
        self._teller = teller
        self._reader = f"tidegate-search-{uuid4()}"
        self._early: Counter[TopicPartition] = Counter()
        self._stray: Counter[TopicPartition] = Counter()
        self._trimmed: Counter[TopicPartition] = Counter()

    def search(
        self, ranges: Mapping[TopicPartition, Range], *, beyond: bool, pace: Pace | None
    ) -> Mapping[TopicPartition, int]:
        from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped,unused-ignore]
        from pyspark.errors import PySparkException

        search = Search.over(ranges, backwards=self._target.after, pace=pace)
        failures = 0
        while window := search.next_window():
            try:
                looked = self._look_at(window, beyond=beyond)
            except (PySparkException, Py4JJavaError) as error:
                starts = in_executor(self._spark, partial(_starts, self._connection, list(window)))
                gone = {p: starts[p] - r.start for p, r in window.items() if starts[p] > r.start}
                failures += 1
                if gone:
                    self._trimmed.update(gone)
                    search = search.trimmed(starts)
                else:
                    _raise_if_final(error, last=failures >= TRIES)
                    self._clock.sleep(float(failures))
                continue
            failures = 0
            search = search.looked_at(window, looked.matches)
            (self._stray if beyond else self._early).update(looked.disordered)
            self._teller.looked_at(sum(r.size for r in window.values()))
        return search.found

    def _look_at(self, window: Mapping[TopicPartition, Range], *, beyond: bool) -> Looked:
        from pyspark.sql import functions as f

        target, condition = self._target, self._condition
        timed = target.since is not None or beyond
        wanted = {"topic", "partition", "offset", *condition.columns, *(["timestamp"] if timed else [])}
        tasks = tasks_for(window, self._spark.sparkContext.defaultParallelism)
        records = read_records(self._spark, self._connection, window, wanted, splits=tasks, reader=self._reader)
        match = condition.holds()
        odd: Column = f.lit(False)
        if target.since is not None:
            early = f.col("timestamp") < _moment(target.since)
            match, odd = ~early & match, early
        if beyond and target.until is not None:
            stray = f.col("timestamp") < _moment(target.until)
            match, odd = stray & match, stray
        best = f.max if target.after else f.min
        rows = (
            condition.with_value(records)
            .select("topic", "partition", "offset", match.alias("match"), odd.alias("odd"))
            .where("match or odd")
            .groupBy("topic", "partition")
            .agg(best(f.when(f.col("match"), f.col("offset"))).alias("match"), f.count_if("odd").alias("odd"))
            .collect()
        )
        matches = {TopicPartition(r["topic"], r["partition"]): r["match"] for r in rows if r["match"] is not None}
        return Looked(matches, {TopicPartition(r["topic"], r["partition"]): r["odd"] for r in rows if r["odd"]})

    def notes(self, ground: Ground) -> Iterator[str]:
        """Sentences for a person: what was looked at, and what may have been overlooked."""
        yield f"Looked at {self._teller.read:,} of {ground.total:,} offsets between the bounds"
        if self._trimmed:
            yield (
                f"Deleted while they were searched: records of {_named(self._trimmed)}; the search went on from where "
                "the log begins now"
            )
        if ground.pending:
            yield f"Not looked at, the last offsets from an open transaction on: {_named(ground.pending)}"
        if self._early:
            yield (
                f"Times are not in order: {_named(self._early)} behind the first record at or after from are earlier, "
                "and do not count"
            )
        if self._stray:
            yield (
                f"Times are not in order: {_named(self._stray)} behind the first record at or after until are earlier, "
                f"and count; farther behind than {BEYOND:,} offsets nothing was looked at"
            )


def _named(counts: Mapping[TopicPartition, int]) -> str:
    partitions = [f"{p} ({n:,})" for p, n in sorted(counts.items()) if n]
    return f"{sum(counts.values()):,} in {len(partitions):,} partition(s): {listed(partitions)}"


def _moment(at: datetime) -> Column:
    from pyspark.sql.functions import lit, timestamp_micros

    return timestamp_micros(lit(round(at.timestamp() * 1_000_000)))


def _raise_if_final(error: Exception, *, last: bool) -> None:
    """Raises ``PlanRefused`` for a condition that can't be evaluated, and a ``KafkaFailure`` after the last try.

    What the condition fails on may be in the exception's message, so that one is never told.
    """
    kind, text = _root(error)
    if "AuthorizationException" in kind or "AuthenticationException" in kind:
        raise NotAuthorized(f"records can't be read: {text}") from error
    if not kind.startswith(_NOT_THE_CONDITION):
        raise PlanRefused(
            BAD_EXPRESSION, f"spec.to.record.where fails on a record, which is not shown: {kind}"
        ) from None
    if last:
        raise Unavailable(f"records can't be read: {text}") from error


def _root(error: Exception) -> tuple[str, str]:
    """Class and message of the Java exception that began it, or Spark's name for what went wrong."""
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    if isinstance(error, PySparkException):
        return error.getCondition() or _SPARKS, spoken(error)
    if not isinstance(error, Py4JJavaError):
        return _SPARKS, str(error)
    found: Any = error.java_exception
    while found.getCause() is not None:
        found = found.getCause()
    kind = str(found.getClass().getName())
    # SparkArithmeticException, SparkRuntimeException and the like are an expression's; SparkException is a job's.
    of_expressions = re.fullmatch(r"org\.apache\.spark\.(Spark\w+Exception)", kind)
    return of_expressions[1] if of_expressions else kind, " ".join(str(found.getMessage()).split())


class _Teller:
    """Tells how far the search has come, not more often than anybody wants to hear it."""

    def __init__(self, tell: Tell, clock: Clock, total: int) -> None:
        self._tell = tell
        self._clock = clock
        self._total = total
        self._began = self._told = clock.monotonic()
        self.read, self._said = 0, -1

    def looked_at(self, offsets: int) -> None:
        self.read += offsets
        now = self._clock.monotonic()
        if now - self._told >= TELL_EVERY_S:
            self._told = now
            self._say(now)

    def ended(self) -> None:
        if self.read != self._said:
            self._say(self._clock.monotonic())

    def _say(self, now: float) -> None:
        self._said = self.read
        self._tell(Searched(self.read, self._total, round(self.read / max(now - self._began, 0.001))))
