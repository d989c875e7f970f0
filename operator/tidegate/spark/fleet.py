"""A fleet's run as one Spark job: all groups are planned as one DataFrame, and executors reset them side by side.

The driver decides and writes down (``tidegate.reset.fleet_job``), and has no connection to Kafka. A task takes a few
groups, each through a connection and a transaction of its own: resetting a live group is mostly waiting, so one core
does several at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Final

from tidegate.kafka.adapter import KafkaClient
from tidegate.kafka.connection import Connection
from tidegate.kafka.errors import KafkaFailure
from tidegate.reset import fleet_job
from tidegate.reset.clock import Clock, SystemClock
from tidegate.reset.confined import ConfinedRunStore, Confines
from tidegate.reset.fleet import group_run_uid
from tidegate.reset.fleet_job import Check, Parts, SideBySide, beneath, patiently, side_by_side
from tidegate.reset.model import Plan, RunRequest, RunResult
from tidegate.reset.plan import PlanRefused
from tidegate.reset.store import RunStore, StaleAttempt
from tidegate.reset.stores import open_beside, open_store
from tidegate.spark.executors import in_executor
from tidegate.spark.job import collect_plans, plan_groups

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

AT_ONCE: Final = 8
"""Groups that one task resets side by side. It takes no more, so that none is begun once another has failed."""


def carry_out_fleet(spark: SparkSession, location: str, clock: Clock) -> RunResult | None:
    """``tidegate.reset.fleet_job.carry_out`` of a stored run. ``None``: its plan waits for approval."""
    store = open_store(location)
    request = store.load().request
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
    )
    opened = open_beside(location, owned=True)
    parts = Parts(
        open_group=beneath(_name(location), confines, opened),
        open_undone=beneath(request.fleet.undoes, confines, opened),
        group_ids=lambda: in_executor(spark, partial(_group_ids, request.connection)),
        plan=patiently(partial(_plan, spark), clock),
        resets=InExecutors(spark, Groups(location, confines)),
        clock=clock,
    )
    return fleet_job.carry_out(ConfinedRunStore(store, confines), parts)


def _name(location: str) -> str:
    return location.rpartition("/")[2]


def _group_ids(connection: Connection) -> frozenset[str]:
    with closing(KafkaClient(connection)) as kafka:
        return kafka.group_ids()


def _plan(
    spark: SparkSession, requests: Sequence[RunRequest], now: datetime
) -> Iterator[Plan | PlanRefused | KafkaFailure]:
    # Without the times of records: one would be read for each partition of each group.
    yield from collect_plans(plan_groups(spark, requests, now, spans=False), requests) if requests else ()


@dataclass(frozen=True, slots=True)
class Groups:
    """A fleet's groups, as an executor finds them. Holds no secrets."""

    location: str
    confines: Confines

    def apply(self, group_ids: Sequence[str], *, hold: bool) -> bool | StaleAttempt:
        return self._ended(lambda resets, groups: resets.apply(groups, _no_check, hold=hold), group_ids)

    def settle(self, group_ids: Sequence[str], reason: str, message: str) -> bool | StaleAttempt:
        def end(resets: SideBySide, groups: Mapping[str, RunStore]) -> bool:
            resets.settle(groups, _no_check, reason, message)
            return True

        return self._ended(end, group_ids)

    def _ended(
        self, do: Callable[[SideBySide, Mapping[str, RunStore]], bool], group_ids: Sequence[str]
    ) -> bool | StaleAttempt:
        """An attempt that was followed by another is an answer: whatever is raised here ends the whole Spark job."""
        connection = self.confines.connection
        if connection is None:
            raise ValueError("a fleet's groups are reset through a connection")
        opened = beneath(_name(self.location), self.confines, open_beside(self.location))
        groups = {g: opened(group_run_uid(self.confines.run_uid, g)) for g in group_ids}
        resets = SideBySide(lambda: closing(KafkaClient(connection)), SystemClock(), threads=AT_ONCE)
        try:
            return do(resets, groups)
        except StaleAttempt as stale:
            return stale


def _no_check() -> None:
    """The driver has looked, just before it sent the task."""


class InExecutors:
    """Implements ``tidegate.reset.fleet_job.Resets``: a task for every few groups, as many tasks as there are cores."""

    def __init__(self, spark: SparkSession, groups: Groups) -> None:
        self._spark = spark
        self._groups = groups

    def apply(self, groups: Mapping[str, RunStore], check: Check, *, hold: bool) -> bool:
        def reset(group_ids: Sequence[str]) -> bool:
            check()
            return _fresh(in_executor(self._spark, partial(self._groups.apply, group_ids, hold=hold))) or not hold

        return self._each(groups, reset)

    def settle(self, groups: Mapping[str, RunStore], check: Check, reason: str, message: str) -> None:
        def end(group_ids: Sequence[str]) -> bool:
            check()
            return _fresh(in_executor(self._spark, partial(self._groups.settle, group_ids, reason, message)))

        self._each(groups, end)

    def _each(self, groups: Mapping[str, RunStore], do: Callable[[Sequence[str]], bool]) -> bool:
        names = sorted(groups)
        tasks = [names[n : n + AT_ONCE] for n in range(0, len(names), AT_ONCE)]
        # A driver's thread waits for each task.
        return side_by_side(tasks, do, threads=max(1, self._spark.sparkContext.defaultParallelism))


def _fresh(answer: bool | StaleAttempt) -> bool:
    if isinstance(answer, StaleAttempt):
        raise answer
    return answer
