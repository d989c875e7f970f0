"""The Spark job of a run: its plan is made as a DataFrame, and each group is applied as one task.

Whatever talks to Kafka runs in an executor; but where records are searched (``tidegate.spark.find``), Spark's connector
asks the cluster from the driver as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING

from tidegate.audit.records import Attribution
from tidegate.clock import Clock, SystemClock
from tidegate.kafka_client.client import KafkaClient
from tidegate.offset_backup.restore import Restored
from tidegate.reset.binding import Binding
from tidegate.reset.codec import decode_result, encode_result
from tidegate.reset.confined import ConfinedRunStore
from tidegate.reset.document import StoreFailure
from tidegate.reset.model.plan import Plan
from tidegate.reset.model.request import RunRequest, Selection
from tidegate.reset.model.result import RunResult
from tidegate.reset.model.targets import FromBackup, FromCluster, ToRecord
from tidegate.reset.runs import job
from tidegate.reset.store import ForgedRun, RunNotFound, RunStore, StaleAttempt
from tidegate.reset.stores import open_store
from tidegate.spark.evidence import gather
from tidegate.spark.find import Found, find_records
from tidegate.spark.planning import collect_plan, plan_groups
from tidegate.spark.restore import find_backup
from tidegate.spark.translation import find_place

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def carry_out(
    spark: SparkSession,
    location: str,
    clock: Clock | None = None,
    binding: Binding | None = None,
    attribution: Attribution | None = None,
) -> RunResult | None:
    """``tidegate.reset.runs.job.carry_out`` of a stored run, planned as a DataFrame and applied in an executor.

    Executors read, plan and apply; the driver has a connection to Kafka only while records are read. ``binding``: which
    document it has to be; ``attribution``: in whose name its changes are recorded. Raises ``ForgedRun``.
    """
    stored, clock = open_store(location), clock or SystemClock()
    store = ConfinedRunStore(stored, None, binding)
    return job.carry_out(
        store,
        clock,
        plan=lambda request, now, tell: _plan_one(spark, request, now, tell, clock),
        apply=lambda attempt: apply_groups(spark, [(location, attempt)], [store.load().digest], attribution)[0],
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
        case FromBackup() as target:
            stood = find_backup(spark, request, target, now)
            # Without a selection, what the backup has: an expired group reads nothing that could tell.
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


def apply_groups(
    spark: SparkSession,
    runs: Sequence[tuple[str, int]],
    digests: Sequence[str] = (),
    attribution: Attribution | None = None,
) -> list[RunResult]:
    """Apply the stored plans of runs (store's location, attempt) side by side, one group a task.

    ``digests``: of the runs, in their order, where they have to be as they were read; an empty one binds nothing.
    Raises ``StaleAttempt`` when one was taken over, and ``ForgedRun`` when one has another digest, after all have
    ended.
    """
    tasks = [(*run, digest) for run, digest in zip(runs, digests or [""] * len(runs), strict=True)]
    apply = partial(_apply_one, attribution=attribution)
    answers = spark.sparkContext.parallelize(tasks, len(tasks)).map(apply).collect()
    for failure in (ForgedRun, StaleAttempt):
        messages = [text for kind, text in answers if kind == failure.__name__]
        if messages:
            raise failure("; ".join(messages))
    return [decode_result(result) for _, result in answers]


def _apply_one(run: tuple[str, int, str], attribution: Attribution | None) -> tuple[str, str]:
    """In an executor: the result as JSON after an empty string, or what was raised: its class and its message."""
    location, attempt, digest = run
    store = ConfinedRunStore(open_store(location), None, Binding(digest, digest) if digest else None, attribution)
    try:
        stored = store.load()
        if _is_repeated():
            if stored.result is not None:
                return "", encode_result(stored.result)
            if stored.attempt == attempt:
                attempt = store.begin_attempt()
        with closing(KafkaClient(stored.request.connection)) as kafka:
            return "", encode_result(job.apply_run(store, attempt, kafka, SystemClock()))
    except (StaleAttempt, ForgedRun) as raised:
        return type(raised).__name__, str(raised)


def _is_repeated() -> bool:
    """Whether Spark does the task once more, as it does where it has lost an executor's node or pod, whatever
    ``spark.task.maxFailures`` says. That executor may have ended the run, or be at work still: it is followed by
    another attempt, like the job of a dead driver."""
    from pyspark import TaskContext

    context = TaskContext.get()
    return context is not None and context.attemptNumber() > 0
