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

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Final
from uuid import uuid4

from tidegate.clock import Clock
from tidegate.find.windows import Pace, Search, tasks_for
from tidegate.kafka.connection import Connection
from tidegate.kafka.errors import KafkaFailure, Refused, Unavailable, UnknownPartitions
from tidegate.kafka.model import Offsets, Range, TopicPartition
from tidegate.kafka.ports import ClusterReader
from tidegate.kafka_client.client import KafkaClient
from tidegate.kafka_client.settings import BadConnection
from tidegate.reset.model.plan import Plan
from tidegate.reset.model.progress import Searched
from tidegate.reset.model.request import RunRequest
from tidegate.reset.model.targets import Findings, ToRecord
from tidegate.reset.planning.checks import Asked, recreated
from tidegate.reset.planning.cluster_view import read_ahead
from tidegate.reset.planning.planner import look_around
from tidegate.reset.planning.refusals import TOPIC_RECREATED, UNDECODABLE_RECORD, UNKNOWN_PARTITION, PlanRefused
from tidegate.reset.planning.scope import listed
from tidegate.reset.runs.job import Tell
from tidegate.resources.targets import Undecodable
from tidegate.spark import decoding
from tidegate.spark.executors import in_executor
from tidegate.spark.expression import SETTINGS, Condition, bind
from tidegate.spark.flaws import Flaw
from tidegate.spark.looked import Looked, look
from tidegate.spark.records import read_records
from tidegate.spark.search_failures import raise_if_final
from tidegate.spark.session import COMPILED, with_settings
from tidegate.spark.value_schemas import ValueSchemas, value_schemas

if TYPE_CHECKING:
    from pyspark.sql import Column, SparkSession

BEYOND: Final = 10_000
"""Offsets that are looked at behind the first record at or after ``until``, for earlier ones."""

TELL_EVERY_S: Final = 2.0
TRIES: Final = 3
"""Of one window, before the whole plan begins anew."""


@dataclass(frozen=True, slots=True)
class Found:
    """``findings`` for the plan, and the topics they are about. ``failures``: why nothing was searched for a group, by
    the uid of its run."""

    findings: Findings
    topic_ids: Mapping[str, str]
    failures: Mapping[str, PlanRefused | KafkaFailure] = field(default_factory=dict)

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
    several groups, one that has no plan is left out, and ``failures`` says why: a plan that is made of it later would
    know nothing of partitions that only this group reads.

    ``tell`` hears how far the search has come, at most every ``TELL_EVERY_S``, and at its end. Raises ``PlanRefused``
    and ``KafkaFailure`` as planning does, and what ``tell`` raises.
    """
    with with_settings(spark, {**COMPILED, **SETTINGS, **decoding.SETTINGS}):
        schemas = value_schemas(target.schema)
        condition = bind(spark, target.where, target.schema, None if schemas is None else schemas.decoding)
        ground = in_executor(spark, lambda: _look_around(requests, target))
        teller = _Teller(tell, clock, ground.total)
        scan = _Scan(spark, requests[0].connection, condition, schemas, target, clock, teller)
        order = (ground.beyond, ground.inside) if target.after else (ground.inside, ground.beyond)
        found: dict[TopicPartition, int] = {}
        for ranges in order:
            left = {p: r for p, r in ranges.items() if p not in found}
            found |= scan.search(left, beyond=ranges is ground.beyond, pace=pace)
    teller.ended()
    step = 1 if target.after else 0
    offsets = {p: found[p] + step if p in found else None for p in ground.inside}
    return Found(Findings(offsets, tuple(scan.notes(ground))), ground.topic_ids, ground.failures)


# --- looking around ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Ground:
    """What is to be searched. ``inside``: every partition's offsets between the bounds; ``beyond``: those behind
    ``until`` that are looked at as well. ``pending``: offsets at the end, by partition, which are not looked at, since
    the first of them belongs to an open transaction. ``failures``: as ``Found`` has them.
    """

    inside: Mapping[TopicPartition, Range]
    beyond: Mapping[TopicPartition, Range]
    pending: Mapping[TopicPartition, int]
    topic_ids: Mapping[str, str]
    failures: Mapping[str, PlanRefused | KafkaFailure] = field(default_factory=dict)

    @property
    def total(self) -> int:
        return sum(r.size for ranges in (self.inside, self.beyond) for r in ranges.values())


def _look_around(requests: Sequence[RunRequest], target: ToRecord) -> Ground:
    with closing(KafkaClient(requests[0].connection)) as kafka:
        asked, failures = _asked(requests, kafka)
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
        failures,
    )


def _asked(
    requests: Sequence[RunRequest], kafka: KafkaClient
) -> tuple[list[Asked], Mapping[str, PlanRefused | KafkaFailure]]:
    if len(requests) == 1:
        return [look_around(requests[0], kafka)[0]], {}
    reader: ClusterReader = kafka
    try:
        reader = read_ahead(kafka, requests, datetime.now(UTC))
    except Unavailable:
        raise
    except KafkaFailure:
        reader = kafka  # something of one group may not be read: they are looked at one by one
    found, failures = [], dict[str, PlanRefused | KafkaFailure]()
    for request in requests:
        try:
            found.append(look_around(request, reader)[0])
        except UnknownPartitions as unknown:  # which can't be sent as it is
            failures[request.run_uid] = PlanRefused(UNKNOWN_PARTITION, str(unknown))
        except (KafkaFailure, PlanRefused) as failure:
            failures[request.run_uid] = failure
    return found, failures


def _starts(connection: Connection, partitions: Collection[TopicPartition]) -> Offsets:
    with closing(KafkaClient(connection)) as kafka:
        return {p: bounds.earliest for p, bounds in kafka.log_bounds(partitions).items()}


# --- looking at records -----------------------------------------------------------------------------------------------


class _Scan:
    """The searches of one target, and what there is to say of them."""

    def __init__(
        self,
        spark: SparkSession,
        connection: Connection,
        condition: Condition,
        schemas: ValueSchemas | None,
        target: ToRecord,
        clock: Clock,
        teller: _Teller,
    ) -> None:
        self._spark = spark
        self._connection = connection
        self._condition = condition
        self._schemas = schemas if condition.decodes else None
        self._target = target
        self._clock = clock
        self._teller = teller
        self._reader = f"tidegate-search-{uuid4()}"
        self._early: Counter[TopicPartition] = Counter()
        self._stray: Counter[TopicPartition] = Counter()
        self._trimmed: Counter[TopicPartition] = Counter()
        self._flawed: Counter[TopicPartition] = Counter()

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
            except BadConnection as bad:
                raise Refused(str(bad)) from bad
            except (PySparkException, Py4JJavaError) as error:
                starts = in_executor(self._spark, partial(_starts, self._connection, list(window)))
                gone = {p: starts[p] - r.start for p, r in window.items() if starts[p] > r.start}
                failures += 1
                if gone:
                    self._trimmed.update(gone)
                    search = search.trimmed(starts)
                else:
                    raise_if_final(error, last=failures >= TRIES)
                    self._clock.sleep(float(failures))
                continue
            failures = 0
            if looked.missing and self._schemas is not None:
                self._schemas.learn(looked.missing)
                continue
            self._judge(looked)
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
        if self._schemas is not None:
            records = self._schemas.decoding.narrowed(condition.wanted).decoded(records)
        match = condition.holds()
        odd: Column = f.lit(False)
        counts: Column = f.lit(True)
        if target.since is not None:
            odd = f.col("timestamp") < _moment(target.since)
            counts = ~odd
        if beyond and target.until is not None:
            odd = f.col("timestamp") < _moment(target.until)
            counts = counts & odd
        shown = condition.with_value(records).select(
            *("topic", "partition", "offset", (counts & match).alias("match"), odd.alias("odd")),
            *((counts & f.col(decoding.FLAW).isNotNull()).alias("flawed"), decoding.FLAW, decoding.MISSING)
            if self._schemas is not None
            else (),
        )
        return look(shown, after=target.after, decoded=self._schemas is not None)

    def _judge(self, looked: Looked) -> None:
        """Raises ``PlanRefused`` where a value that can't be decoded comes before what was found, and nobody has said
        what that means; and where nobody knows whether it can."""
        schema = self._target.schema
        before = looked.flawed_up_to_matches(after=self._target.after)
        if not before or schema is None:
            return
        if schema.undecodable is Undecodable.FAIL:
            p, flawed = min(before.items())
            raise PlanRefused(
                UNDECODABLE_RECORD,
                f"spec.to.record.valueSchema: the value of the record of {p} at offset {flawed.offset} can't be "
                f"decoded: {flawed.why}. It might be the one: correct the schema, search elsewhere by from and until, "
                "or let record be null for such values (undecodable: Null)",
            )
        if not_asked := looked.not_asked(after=self._target.after):
            p, offset = min(not_asked.items())
            raise PlanRefused(
                UNDECODABLE_RECORD,
                f"spec.to.record.valueSchema: the value of the record of {p} at offset {offset} was not decoded: "
                f"{Flaw.NOT_ASKED}. It might be the one: search elsewhere by from and until",
            )
        self._flawed.update({p: flawed.count for p, flawed in before.items()})

    def notes(self, ground: Ground) -> Iterator[str]:
        """Sentences for a person: what was looked at, and what may have been overlooked."""
        yield f"Looked at {self._teller.read:,} of {ground.total:,} offsets between the bounds"
        if self._schemas is not None and self._schemas.note:
            yield self._schemas.note
        if self._flawed:
            yield f"Their values can't be decoded, so that record was null for them: {_named(self._flawed)}"
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
