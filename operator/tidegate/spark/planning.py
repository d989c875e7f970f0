"""Plans as a DataFrame, for one group or for thousands.

Planning itself is ``tidegate.reset.planning.planner.make_plan``, the very same that the operator runs; Spark reads what
it needs, in the three steps of ``tidegate.spark.plan_steps`` that are one job.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from tidegate.kafka.errors import KafkaFailure, UnknownPartitions
from tidegate.reset.model.plan import Clamped, PartitionPlan, Plan
from tidegate.reset.model.request import RunRequest
from tidegate.reset.model.targets import Findings
from tidegate.reset.planning.refusals import PlanRefused
from tidegate.resources.reset import Way
from tidegate.spark.plan_steps import FAILURES, JOINED, MEASURED, OBSERVED, PLAN_COLUMNS, PlanJob, Rehearsal, Steps

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_FAILURES: Final = {c.__name__: c for c in FAILURES}


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
    return _planned_by(spark, PlanJob.of(requests, now, spans, findings or {}), len(requests), tasks)


def _planned_by(spark: SparkSession, job: Steps, requests: int, tasks: int) -> DataFrame:
    from pyspark.sql.functions import broadcast

    # Kept: both the measuring and the join read it, and the groups must be observed once only.
    observed = spark.range(0, requests, 1, tasks).mapInArrow(job.observe, OBSERVED).persist()
    partitions = observed.where("topic is not null").select("cluster", "topic", "partition", "at_us").distinct()
    measured = partitions.repartition(tasks).mapInArrow(job.measure, MEASURED)
    joined = observed.join(broadcast(measured), ["cluster", "topic", "partition", "at_us"], "left").select(*JOINED)
    return joined.repartition(tasks, "request").mapInArrow(job.plan, PLAN_COLUMNS)


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
