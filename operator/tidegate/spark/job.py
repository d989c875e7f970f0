"""The Spark job: plans as a DataFrame, for one group or for thousands, and applies each group as one task.

Whatever talks to Kafka runs in an executor; but where records are searched (``tidegate.spark.find``), Spark's connector
asks the cluster from the driver as well.
Planning itself is ``tidegate.reset.planning.make_plan``, the very same that the operator runs; Spark reads what it
needs, in three steps that are one job:

1. *observe*: the groups are spread over the executors, each of which reads states and committed offsets of its groups.
2. *measure*: the distinct partitions of all groups are spread likewise; their log's bounds (and the offset of the
   asked time) are read once each, however many groups share them.
3. *plan*: both are joined, and each group is planned from what was read.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, Protocol, Self, TypeVar

from pydantic import TypeAdapter

from tidegate.clock import Clock, SystemClock
from tidegate.kafka.connection import Connection
from tidegate.kafka.errors import KafkaFailure, NotAuthorized, Refused, Unavailable, UnknownPartitions
from tidegate.kafka.model import Group, LogBounds, Topic, TopicPartition
from tidegate.kafka_client.client import KafkaClient
from tidegate.kafka_client.settings import BadConnection
from tidegate.reset.binding import Binding
from tidegate.reset.codec import decode_request, encode_request
from tidegate.reset.confined import ConfinedRunStore
from tidegate.reset.document import StoreFailure
from tidegate.reset.model import (
    Clamped,
    Findings,
    FromCluster,
    FromSnapshot,
    PartitionPlan,
    Plan,
    RunRequest,
    RunResult,
    Selection,
    ToRecord,
    Way,
)
from tidegate.reset.planning.cluster_view import Snapshot, concerned
from tidegate.reset.planning.planner import PlanRefused, make_plan
from tidegate.reset.planning.targets import asked_time
from tidegate.reset.runs import job
from tidegate.reset.store import ForgedRun, RunNotFound, RunStore, StaleAttempt
from tidegate.reset.stores import open_store
from tidegate.snapshots.restore import Restored
from tidegate.spark.evidence import gather
from tidegate.spark.find import Found, find_records
from tidegate.spark.restore import find_snapshot
from tidegate.spark.translation import find_place

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped,unused-ignore]
    from pyspark.sql import DataFrame, SparkSession

PLAN_COLUMNS: Final = (
    "run_uid string, run_id string, group string, topic string, partition int, topic_id string, committed bigint, "
    "target bigint, earliest bigint, latest bigint, clamped string, span_from timestamp, span_to timestamp, "
    "replayed bigint, skipped bigint, way string, notes array<string>, made_at timestamp, "
    "refused string, failure string, message string"
)
"""A row for each partition of each group. A group without any has one row with no topic: ``refused`` is then planning's
reason (PascalCase), or ``failure`` the class of ``tidegate.kafka.errors``, and ``message`` says what is wrong; or the
plan is empty, and all three are null. ``way`` and ``notes`` are the plan's, on each of its rows."""

# Columns named alike mean the same. ``request`` and ``cluster`` are numbers into the job's lists; ``at_us`` is the
# asked time in microseconds since 1970, or -1 where none is asked for (a null would not join).
_OBSERVED: Final = (
    "request int, cluster int, topic string, partition int, committed bigint, at_us bigint, group_json string, "
    "failure string, message string"
)
_MEASURED: Final = (
    "cluster int, topic string, partition int, at_us bigint, earliest bigint, latest bigint, found bigint"
)
_JOINED: Final = tuple(
    "request topic partition committed group_json failure message earliest latest found".split()  # noqa: SIM905
)

_GROUP: Final = TypeAdapter(Group)
_RESULT: Final = TypeAdapter(RunResult)
_FAILURES: Final = {c.__name__: c for c in (Unavailable, NotAuthorized, Refused, KafkaFailure)}
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_BATCH_ROWS: Final = 20_000

# --- planning ---------------------------------------------------------------------------------------------------------


def plan_groups(
    spark: SparkSession,
    requests: Sequence[RunRequest],
    now: datetime,
    *,
    spans: bool = True,
    tasks: int | None = None,
    findings: Mapping[str, Findings] | None = None,
) -> DataFrame:
    """The plans of all requests, as ``PLAN_COLUMNS``; nothing is read before an action asks for it.

    ``now``: the time a duration counts back from. ``spans``: also look up the timestamps of the records that would be
    replayed or skipped, which reads records. ``tasks``: how many tasks the groups and the partitions are spread over;
    without it, Spark's default parallelism. ``findings``: what reading records has found, by ``run_uid``. What
    goes wrong with one group is in its row and leaves the others alone.
    """
    tasks = max(1, min(tasks or spark.sparkContext.defaultParallelism, len(requests)))
    return _planned_by(spark, _PlanJob.of(requests, now, spans, findings or {}), len(requests), tasks)


def _planned_by(spark: SparkSession, job: Steps, requests: int, tasks: int) -> DataFrame:
    from pyspark.sql.functions import broadcast

    # Kept: both the measuring and the join read it, and the groups must be observed once only.
    observed = spark.range(0, requests, 1, tasks).mapInArrow(job.observe, _OBSERVED).persist()
    partitions = observed.where("topic is not null").select("cluster", "topic", "partition", "at_us").distinct()
    measured = partitions.repartition(tasks).mapInArrow(job.measure, _MEASURED)
    joined = observed.join(broadcast(measured), ["cluster", "topic", "partition", "at_us"], "left").select(*_JOINED)
    return joined.repartition(tasks, "request").mapInArrow(job.plan, PLAN_COLUMNS)


class Steps(Protocol):
    """The three steps of a planning job, batches of rows in and out."""

    def observe(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]: ...

    def measure(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]: ...

    def plan(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]: ...


class Rehearsal:
    """Implements ``Steps`` without a cluster: one partition a request. Makes Spark do what it does for a real plan."""

    def observe(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        numbers = [n for batch in batches for n in batch.column(0).to_pylist()]
        yield from as_batches(_OBSERVED, ((n, 0, "t", n, 0, -1, "{}", None, None) for n in numbers))

    def measure(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rows = (row for batch in batches for row in _rows(batch))
        yield from as_batches(_MEASURED, ((0, "t", row["partition"], -1, 0, 1, None) for row in rows))

    def plan(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rows = (row for batch in batches for row in _rows(batch))
        nothing = (None,) * (PLAN_COLUMNS.count(",") - 4)
        yield from as_batches(PLAN_COLUMNS, (("", "", "", "t", row["partition"], *nothing) for row in rows))


def rehearse(spark: SparkSession, requests: int = 100) -> DataFrame:
    """A plan of nothing, as ``PLAN_COLUMNS``."""
    return _planned_by(spark, Rehearsal(), requests, 2)


def summarise(plans: DataFrame) -> DataFrame:
    """A row a group: partitions, moved, clamped, replayed and skipped records, and what was refused."""
    from pyspark.sql.functions import col, count, first
    from pyspark.sql.functions import sum as total

    moves = col("topic").isNotNull() & ~col("committed").eqNullSafe(col("target"))
    return (
        plans.groupBy("run_uid", "group")
        .agg(
            count("topic").alias("partitions"),
            total(moves.cast("int")).alias("moved"),
            count("clamped").alias("clamped"),
            total("replayed").alias("replayed"),
            total("skipped").alias("skipped"),
            first("refused").alias("refused"),
            first("failure").alias("failure"),
            first("message").alias("message"),
        )
        .orderBy("group")
    )


def collect_plan(plans: DataFrame, request: RunRequest) -> Plan:
    """One group's plan from its rows. Raises what its planning raised: ``PlanRefused`` or a ``KafkaFailure``."""
    from pyspark.sql.functions import col

    found = _plan_of(request, plans.where(col("run_uid") == request.run_uid).toArrow().to_pylist())
    if not isinstance(found, Plan):
        raise found
    return found


def collect_plans(plans: DataFrame, requests: Sequence[RunRequest]) -> list[Plan | PlanRefused | KafkaFailure]:
    """Each group's plan, or why it has none, in the requests' order."""
    rows: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in plans.toArrow().to_pylist():
        rows[row["run_uid"]].append(row)
    return [_plan_of(request, rows[request.run_uid]) for request in requests]


def _plan_of(request: RunRequest, rows: Sequence[Mapping[str, Any]]) -> Plan | PlanRefused | KafkaFailure:
    if not rows:
        return KafkaFailure(f"Spark returned no rows for run {request.run_uid}")
    head = rows[0]
    if head["refused"] is not None:
        return PlanRefused(head["refused"], head["message"])
    if head["failure"] is not None:
        return _revived(head["failure"], head["message"])
    partitions = sorted(
        (
            PartitionPlan(
                topic=row["topic"],
                partition=row["partition"],
                topic_id=row["topic_id"],
                committed=row["committed"],
                target=row["target"],
                earliest=row["earliest"],
                latest=row["latest"],
                clamped=None if row["clamped"] is None else Clamped(row["clamped"]),
                span_from=_utc(row["span_from"]),
                span_to=_utc(row["span_to"]),
            )
            for row in rows
            if row["topic"] is not None
        ),
        key=lambda p: (p.topic, p.partition),
    )
    made_at = _utc(head["made_at"])
    assert made_at is not None, "every row of a plan says when it was made"  # noqa: S101 - PLAN_COLUMNS
    way = None if head["way"] is None else Way(head["way"])
    return Plan(request.run_id, request.group_id, made_at, tuple(partitions), way, tuple(head["notes"] or ()))


def _revived(name: str, message: str) -> KafkaFailure:
    if name == UnknownPartitions.__name__:
        unknown = UnknownPartitions(frozenset())
        unknown.args = (message,)
        return unknown
    return _FAILURES.get(name, KafkaFailure)(message)


def _utc(at: datetime | None) -> datetime | None:
    return None if at is None else at.astimezone(UTC)


@dataclass(frozen=True, slots=True)
class _PlanJob:
    """What every task of a planning job knows. Travels to the executors; holds no secrets."""

    requests: tuple[str, ...]
    clusters: tuple[Connection, ...]
    cluster_of: tuple[int, ...]
    now: datetime
    spans: bool
    findings: Mapping[str, Findings]

    @classmethod
    def of(
        cls, requests: Sequence[RunRequest], now: datetime, spans: bool, findings: Mapping[str, Findings]
    ) -> _PlanJob:
        clusters: list[Connection] = []
        numbers: dict[str, int] = {}
        cluster_of = []
        for request in requests:
            key = repr(request.connection)  # its properties are a mapping, which does not hash
            if key not in numbers:
                numbers[key] = len(clusters)
                clusters.append(request.connection)
            cluster_of.append(numbers[key])
        return cls(tuple(map(encode_request, requests)), tuple(clusters), tuple(cluster_of), now, spans, findings)

    # --- step 1 -------------------------------------------------------------------------------------------------------

    def observe(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Numbers of requests → ``_OBSERVED``: a head row for the group, then one for each partition it may concern."""
        with _Clients(self.clusters) as clients:
            for batch in batches:
                by_cluster: defaultdict[int, list[int]] = defaultdict(list)
                for number in batch.column(0).to_pylist():
                    by_cluster[self.cluster_of[number]].append(number)
                for cluster, numbers in by_cluster.items():
                    requests = {number: decode_request(self.requests[number]) for number in numbers}
                    yield from as_batches(_OBSERVED, self._observed(clients, cluster, requests))

    def _observed(
        self, clients: _Clients, cluster: int, requests: Mapping[int, RunRequest]
    ) -> Iterator[tuple[object, ...]]:
        names = sorted({r.group_id for r in requests.values()})
        try:
            client = clients[cluster]
            topics = clients.topics(cluster)
            seen = together_or_each(lambda some: (client.groups(some), client.committed_of(some)), names)
        except (KafkaFailure, BadConnection) as failure:
            for number in requests:
                yield (number, cluster, None, None, None, -1, None, *_told(failure))
            return
        for number, request in requests.items():
            found = seen[request.group_id]
            if isinstance(found, KafkaFailure):
                yield (number, cluster, None, None, None, -1, None, *_told(found))
                continue
            group, committed = found
            yield (number, cluster, None, None, None, -1, _GROUP.dump_json(group).decode(), None, None)
            at = asked_time(request.target, self.now)
            at_us = -1 if at is None else _microseconds(at)
            for p in sorted(concerned(request, group, committed, topics)):
                yield (number, cluster, p.topic, p.partition, committed.get(p), at_us, None, None, None)

    # --- step 2 -------------------------------------------------------------------------------------------------------

    def measure(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Distinct partitions → ``_MEASURED``. What does not exist, or can't be read now, is left out: its groups ask
        again while they are planned, and get the error that is theirs."""
        with _Clients(self.clusters) as clients:
            for batch in batches:
                by_cluster: defaultdict[tuple[int, int], list[TopicPartition]] = defaultdict(list)
                for row in _rows(batch):
                    by_cluster[row["cluster"], row["at_us"]].append(TopicPartition(row["topic"], row["partition"]))
                for (cluster, at_us), partitions in by_cluster.items():
                    yield from as_batches(_MEASURED, self._measured(clients, cluster, at_us, partitions))

    def _measured(
        self, clients: _Clients, cluster: int, at_us: int, partitions: Sequence[TopicPartition]
    ) -> Iterator[tuple[object, ...]]:
        left = set(partitions)
        try:
            try:
                bounds = clients[cluster].log_bounds(left)
            except UnknownPartitions as unknown:
                left -= unknown.partitions
                bounds = clients[cluster].log_bounds(left)
            found: Mapping[TopicPartition, int | None] = {}
            if at_us >= 0:
                found = clients[cluster].offsets_at(dict.fromkeys(left, _time(at_us)))
        except (KafkaFailure, BadConnection):
            return
        for p in left:
            offset = found.get(p)
            yield (cluster, p.topic, p.partition, at_us, bounds[p].earliest, bounds[p].latest, offset)

    # --- step 3 -------------------------------------------------------------------------------------------------------

    def plan(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """``_JOINED`` → ``PLAN_COLUMNS``. All rows of a request are in one task, in any order."""
        by_request: defaultdict[int, list[dict[str, Any]]] = defaultdict(list)
        for batch in batches:
            for row in _rows(batch):
                by_request[row["request"]].append(row)
        with _Clients(self.clusters) as clients:
            yield from as_batches(
                PLAN_COLUMNS, (out for n, rows in by_request.items() for out in self._planned(clients, n, rows))
            )

    def _planned(
        self, clients: _Clients, number: int, rows: Sequence[Mapping[str, Any]]
    ) -> Iterator[tuple[object, ...]]:
        request = decode_request(self.requests[number])
        head = next(row for row in rows if row["topic"] is None)
        name = (request.run_uid, request.run_id, request.group_id)
        nothing = (None,) * 14
        if head["failure"] is not None:
            yield (*name, *nothing, self.now, None, head["failure"], head["message"])
            return
        try:
            snapshot = self._snapshot(clients, number, request, head, rows)
            plan = make_plan(request, snapshot, self.now, findings=self.findings.get(request.run_uid))
        except PlanRefused as refused:
            yield (*name, *nothing, self.now, refused.reason, None, refused.message)
            return
        except (KafkaFailure, BadConnection) as failure:
            yield (*name, *nothing, self.now, None, *_told(failure))
            return
        way, notes = None if plan.way is None else str(plan.way), list(plan.notes)
        if not plan.partitions:
            yield (*name, *nothing[:12], way, notes, plan.made_at, None, None, None)
        for p in plan.partitions:
            yield (
                *name,
                *(p.topic, p.partition, p.topic_id, p.committed, p.target, p.earliest, p.latest),
                None if p.clamped is None else str(p.clamped),
                *(p.span_from, p.span_to, p.replayed, p.skipped, way, notes, plan.made_at, None, None, None),
            )

    def _snapshot(
        self,
        clients: _Clients,
        number: int,
        request: RunRequest,
        head: Mapping[str, Any],
        rows: Sequence[Mapping[str, Any]],
    ) -> Snapshot:
        cluster = self.cluster_of[number]
        at = asked_time(request.target, self.now)
        committed: dict[TopicPartition, int] = {}
        bounds: dict[TopicPartition, LogBounds] = {}
        found: dict[TopicPartition, int | None] = {}
        for row in rows:
            if row["topic"] is None:
                continue
            partition = TopicPartition(row["topic"], row["partition"])
            if row["committed"] is not None:
                committed[partition] = row["committed"]
            if row["earliest"] is not None:
                bounds[partition] = LogBounds(row["earliest"], row["latest"])
                if at is not None:
                    found[partition] = row["found"]
        return Snapshot(
            groups={request.group_id: _GROUP.validate_json(head["group_json"])},
            committed={request.group_id: committed},
            topics=clients.topics(cluster),
            bounds=bounds,
            found=found,
            at=at,
            live=lambda: clients[cluster],
            spans=self.spans,
        )


_A = TypeVar("_A")
_B = TypeVar("_B")


def together_or_each(
    read: Callable[[Sequence[str]], tuple[Mapping[str, _A], Mapping[str, _B]]], names: Sequence[str]
) -> dict[str, tuple[_A, _B] | KafkaFailure]:
    """Two things of each group; one by one where they can't be read together, so that each has its own failure."""
    try:
        first, second = read(names)
    except KafkaFailure as failure:
        if len(names) == 1:
            return {names[0]: failure}
        return {name: found for n in names for name, found in together_or_each(read, [n]).items()}
    return {name: (first[name], second[name]) for name in names}


# --- one run ----------------------------------------------------------------------------------------------------------


def carry_out(
    spark: SparkSession, location: str, clock: Clock | None = None, binding: Binding | None = None
) -> RunResult | None:
    """``tidegate.reset.runs.job.carry_out`` of a stored run, planned as a DataFrame and applied in an executor.

    Executors read, plan and apply; the driver has a connection to Kafka only while records are read. ``binding``: which
    document it has to be. Raises ``ForgedRun``.
    """
    stored, clock = open_store(location), clock or SystemClock()
    store = ConfinedRunStore(stored, None, binding)
    return job.carry_out(
        store,
        clock,
        plan=lambda request, now, tell: _plan_one(spark, request, now, tell, clock),
        apply=lambda attempt: apply_groups(spark, [(location, attempt)], [store.load().digest])[0],
        # As it is stored: what is approved while this job is at work is applied by the next one.
        gather=lambda request, plan: gather(spark, request, plan, clock, lambda: _approved(stored)),
    )


def _plan_one(spark: SparkSession, request: RunRequest, now: datetime, tell: job.Tell, clock: Clock) -> Plan:
    """The plan of one run, after whatever its target has to find in records. Raises as ``make_plan``."""
    match request.target:
        case ToRecord() as target:
            return _plan_with(spark, request, find_records(spark, request, target, tell, clock), now)
        case FromCluster() as target:
            place = find_place(spark, request, target, clock)
            # What was compared, and no partition that came up since.
            named = replace(
                request, selections=tuple(Selection(p.topic, frozenset({p.partition})) for p in place.findings.offsets)
            )
            return _plan_with(spark, named, place, now)
        case FromSnapshot() as target:
            stood = find_snapshot(spark, request, target)
            # Without a selection, what the snapshot has: an expired group reads nothing that could tell.
            named = request if request.selections else replace(request, selections=stood.selections)
            return _plan_with(spark, named, stood, now)
        case _:
            return collect_plan(plan_groups(spark, [request], now), request)


def _plan_with(spark: SparkSession, request: RunRequest, found: Found | Restored, now: datetime) -> Plan:
    """With what was found beforehand, unless that is of other topics by now."""
    plan = collect_plan(plan_groups(spark, [request], now, findings={request.run_uid: found.findings}), request)
    found.check(plan)
    return plan


def _approved(store: RunStore) -> bool:
    """Whether somebody waits for the plan to be applied; nobody does where that can't be read just now."""
    try:
        run = store.load()
    except (StoreFailure, RunNotFound):
        return False
    return run.request.manual_approval and run.approved and run.result is None


def apply_groups(spark: SparkSession, runs: Sequence[tuple[str, int]], digests: Sequence[str] = ()) -> list[RunResult]:
    """Apply the stored plans of runs (store's location, attempt) side by side, one group a task.

    ``digests``: of the runs, in their order, where they have to be as they were read; an empty one binds nothing.
    Raises ``StaleAttempt`` when one was taken over, and ``ForgedRun`` when one has another digest, after all have
    ended.
    """
    tasks = [(*run, digest) for run, digest in zip(runs, digests or [""] * len(runs), strict=True)]
    answers = spark.sparkContext.parallelize(tasks, len(tasks)).map(_apply_one).collect()
    for failure in (ForgedRun, StaleAttempt):
        messages = [text for kind, text in answers if kind == failure.__name__]
        if messages:
            raise failure("; ".join(messages))
    return [_RESULT.validate_json(result) for _, result in answers]


def _apply_one(run: tuple[str, int, str]) -> tuple[str, str]:
    """In an executor: the result as JSON after an empty string, or what was raised: its class and its message."""
    location, attempt, digest = run
    store = ConfinedRunStore(open_store(location), None, Binding(digest, digest) if digest else None)
    try:
        with closing(KafkaClient(store.load().request.connection)) as kafka:
            return "", _RESULT.dump_json(job.apply_run(store, attempt, kafka, SystemClock())).decode()
    except (StaleAttempt, ForgedRun) as raised:
        return type(raised).__name__, str(raised)


# --- what tasks share -------------------------------------------------------------------------------------------------


class _Clients:
    """The clients of one task, each connected when it is first needed."""

    def __init__(self, clusters: Sequence[Connection]) -> None:
        self._clusters = clusters
        self._clients: dict[int, KafkaClient] = {}
        self._topics: dict[int, Mapping[str, Topic]] = {}
        self._exit = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._exit.close()

    def __getitem__(self, cluster: int) -> KafkaClient:
        if cluster not in self._clients:
            self._clients[cluster] = self._exit.enter_context(closing(KafkaClient(self._clusters[cluster])))
        return self._clients[cluster]

    def topics(self, cluster: int) -> Mapping[str, Topic]:
        if cluster not in self._topics:
            self._topics[cluster] = self[cluster].topics()
        return self._topics[cluster]


def _told(failure: KafkaFailure | BadConnection) -> tuple[str, str]:
    """Class and message, as columns."""
    return (type(failure).__name__ if isinstance(failure, KafkaFailure) else Refused.__name__), str(failure)


def _microseconds(at: datetime) -> int:
    return (at - _EPOCH) // timedelta(microseconds=1)


def _time(microseconds: int) -> datetime:
    return _EPOCH + timedelta(microseconds=microseconds)


def _rows(batch: pa.RecordBatch) -> Iterator[dict[str, Any]]:
    names = batch.schema.names
    for values in zip(*(column.to_pylist() for column in batch.columns), strict=True):
        yield dict(zip(names, values, strict=True))


def as_batches(columns: str, rows: Iterable[tuple[object, ...]]) -> Iterator[pa.RecordBatch]:
    """Rows as Arrow batches with the given columns (Spark's DDL, of the few types used here)."""
    import pyarrow as pa  # type: ignore[import-untyped,unused-ignore]

    types = {
        "string": pa.string(),
        "int": pa.int32(),
        "bigint": pa.int64(),
        "timestamp": pa.timestamp("us", tz="UTC"),
        "array<string>": pa.list_(pa.string()),
    }
    schema = pa.schema([(name, types[kind]) for name, kind in (c.split() for c in columns.split(", "))])
    rows = iter(rows)
    while chunk := list(islice(rows, _BATCH_ROWS)):
        arrays = [pa.array(values, field.type) for values, field in zip(zip(*chunk, strict=True), schema, strict=True)]
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)
