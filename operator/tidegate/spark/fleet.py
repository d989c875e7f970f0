"""A fleet's run as one Spark job: all groups are planned as one DataFrame, and executors reset them side by side.

The driver decides and writes down (``tidegate.reset.runs.fleet_job``), and has no connection to Kafka. A task takes a
few groups, each through a connection and a transaction of its own: resetting a live group is mostly waiting, so one
core does several at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING

from tidegate.audit.records import Attribution
from tidegate.clock import Clock, SystemClock
from tidegate.kafka.connection import Connection
from tidegate.kafka.errors import KafkaFailure
from tidegate.kafka_client.client import KafkaClient
from tidegate.reset.binding import Binding
from tidegate.reset.confined import ConfinedRunStore, Confines
from tidegate.reset.model.plan import Plan
from tidegate.reset.model.request import RunRequest
from tidegate.reset.model.result import RunResult
from tidegate.reset.model.targets import ToRecord
from tidegate.reset.planning.refusals import PlanRefused
from tidegate.reset.runs import fleet_job
from tidegate.reset.runs.fleet import group_run_uid
from tidegate.reset.runs.fleet_groups import FLEET_THREADS, Coordinator, SideBySide, side_by_side
from tidegate.reset.runs.fleet_parts import Parts, beneath
from tidegate.reset.runs.fleet_planning import patiently
from tidegate.reset.runs.job import Tell
from tidegate.reset.store import ForgedRun, RunStore, StaleAttempt
from tidegate.reset.stores import open_beside, open_store
from tidegate.spark.executors import in_executor
from tidegate.spark.find import Found, find_for_groups
from tidegate.spark.planning import collect_plans, plan_groups

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def carry_out_fleet(
    spark: SparkSession,
    location: str,
    clock: Clock,
    binding: Binding | None = None,
    attribution: Attribution | None = None,
) -> RunResult | None:
    """``tidegate.reset.runs.fleet_job.carry_out`` of a stored run. ``None``: its plan waits for approval.

    ``binding``: which document it has to be; ``attribution``: in whose name its changes are recorded. Raises
    ``ForgedRun``.
    """
    store = open_store(location)
    request = ConfinedRunStore(store, None, binding).load().request
    if request.fleet is None:
        raise ValueError(f"{location} is not of a fleet")
    # A group's document is believed no further than the fleet's.
    confines = Confines(
        request.run_uid,
        "",
        connection=request.connection,
        groups=request.fleet.allowed_groups,
        topics=request.allowed_topics,
        patterns=request.fleet.patterns,
        attribution=attribution,
    )
    opened = open_beside(location, owned=True)
    bound = ConfinedRunStore(store, confines, binding)
    parts = Parts(
        open_group=beneath(_name(location), confines, opened),
        open_undone=beneath(request.fleet.undoes, confines, opened),
        group_ids=lambda: in_executor(spark, partial(_group_ids, request.connection)),
        plan=patiently(partial(_plan, spark, clock), clock),
        resets=InExecutors(spark, Groups(location, confines), lambda: _digests(bound)),
        clock=clock,
    )
    return fleet_job.carry_out(bound, parts)


def _digests(fleet: RunStore) -> Mapping[str, str]:
    plan = fleet.load().fleet
    return plan.digests if plan is not None else {}


def _name(location: str) -> str:
    return location.rpartition("/")[2]


def _group_ids(connection: Connection) -> frozenset[str]:
    with closing(KafkaClient(connection)) as kafka:
        return kafka.group_ids()


def _plan(
    spark: SparkSession, clock: Clock, requests: Sequence[RunRequest], now: datetime, tell: Tell
) -> Iterator[Plan | PlanRefused | KafkaFailure]:
    """Records are searched once for all groups of a topic. Raises ``PlanRefused`` for a bad condition."""
    target = requests[0].target if requests else None
    found: Found | None = None
    if isinstance(target, ToRecord):
        try:
            found = find_for_groups(spark, requests, target, tell, clock)
        except KafkaFailure as failure:
            yield from [failure] * len(requests)
            return
        except PlanRefused as refused:
            if len(requests) > 1:
                raise
            yield refused  # which may be this group's only
            return
    failures = found.failures if found is not None else {}
    left = [r for r in requests if r.run_uid not in failures]
    findings = {r.run_uid: found.findings for r in left} if found is not None else {}
    # Without the times of records: one would be read for each partition of each group.
    rows = plan_groups(spark, left, now, spans=False, findings=findings) if left else None
    plans = iter(collect_plans(rows, left) if rows is not None else ())
    for request in requests:
        if request.run_uid in failures:
            yield failures[request.run_uid]
            continue
        plan = next(plans)
        try:
            if isinstance(plan, Plan) and found is not None:
                found.check(plan)
        except PlanRefused as refused:
            yield refused
        else:
            yield plan


@dataclass(slots=True)
class _Ended:
    """Implements ``Coordinator`` in an executor; the driver has checked just before it sent the task."""

    outcomes: list[bool] = field(default_factory=list)

    def check(self) -> None:
        pass

    def ended(self, succeeded: bool) -> None:
        self.outcomes.append(succeeded)


@dataclass(frozen=True, slots=True)
class _Answer:
    """Of a task: whether all its groups stand at their targets, and how each of those that have ended did."""

    all_well: bool
    outcomes: tuple[bool, ...]
    raised: StaleAttempt | ForgedRun | None = None


@dataclass(frozen=True, slots=True)
class Groups:
    """A fleet's groups, as an executor finds them. Holds no secrets."""

    location: str
    confines: Confines

    def apply(self, digests: Mapping[str, str], *, hold: bool, stop: bool = False) -> _Answer:
        """``digests``: of the groups' runs, by group."""
        return self._ended(lambda resets, groups, told: resets.apply(groups, told, hold=hold, stop=stop), digests)

    def settle(self, digests: Mapping[str, str], reason: str, message: str) -> _Answer:
        def end(resets: SideBySide, groups: Mapping[str, RunStore], told: _Ended) -> bool:
            resets.settle(groups, told, reason, message)
            return True

        return self._ended(end, digests)

    def _ended(
        self, do: Callable[[SideBySide, Mapping[str, RunStore], _Ended], bool], digests: Mapping[str, str]
    ) -> _Answer:
        """That an attempt was followed by another, or a document is forged, is an answer: whatever is raised here ends
        the whole Spark job."""
        connection = self.confines.connection
        if connection is None:
            raise ValueError("a fleet's groups are reset through a connection")
        opened = beneath(_name(self.location), self.confines, open_beside(self.location))
        uid = self.confines.run_uid
        groups = {g: opened(group_run_uid(uid, g), Binding(digest)) for g, digest in digests.items()}
        resets = SideBySide(lambda: closing(KafkaClient(connection)), SystemClock(), threads=FLEET_THREADS)
        told = _Ended()
        try:
            all_well = do(resets, groups, told)
        except (StaleAttempt, ForgedRun) as raised:
            return _Answer(False, tuple(told.outcomes), raised)
        return _Answer(all_well, tuple(told.outcomes))


class InExecutors:
    """Implements ``fleet_groups.Resets``: a task for every few groups, as many tasks as there are cores."""

    def __init__(self, spark: SparkSession, groups: Groups, digests: Callable[[], Mapping[str, str]]) -> None:
        self._spark = spark
        self._groups = groups
        self._digests = digests

    def apply(
        self, groups: Mapping[str, RunStore], coordinator: Coordinator, *, hold: bool, stop: bool = False
    ) -> bool:
        tasks = [partial(self._groups.apply, names, hold=hold, stop=stop) for names in self._by_task(groups)]
        return self._each(tasks, coordinator, stop=hold or stop)

    def settle(self, groups: Mapping[str, RunStore], coordinator: Coordinator, reason: str, message: str) -> None:
        tasks = [partial(self._groups.settle, names, reason, message) for names in self._by_task(groups)]
        self._each(tasks, coordinator, stop=False)

    def _by_task(self, groups: Mapping[str, RunStore]) -> list[dict[str, str]]:
        """Digests by group: as many a task as it begins at once, and no more, since none is begun once another has
        failed."""
        names, digests = sorted(groups), self._digests()
        tasks = [names[n : n + FLEET_THREADS] for n in range(0, len(names), FLEET_THREADS)]
        return [{name: digests[name] for name in task} for task in tasks]

    def _each(self, tasks: Sequence[Callable[[], _Answer]], coordinator: Coordinator, *, stop: bool) -> bool:
        failed: list[_Answer] = []

        def one(task: Callable[[], _Answer]) -> bool:
            coordinator.check()
            answer = in_executor(self._spark, task)
            for succeeded in answer.outcomes:
                coordinator.ended(succeeded)
            if answer.raised is not None:
                raise answer.raised
            if not answer.all_well:
                failed.append(answer)
            return answer.all_well or not stop

        # A driver's thread waits for each task.
        side_by_side(tasks, one, threads=max(1, self._spark.sparkContext.defaultParallelism))
        return not failed
