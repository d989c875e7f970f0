"""Making a plan: read what the request needs of the cluster, in few batched requests, and let the pure part decide."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import Final

from tidegate.kafka.errors import Unavailable
from tidegate.kafka.model import Group, Offsets
from tidegate.kafka.ports import ClusterReader
from tidegate.reset.model.plan import Plan
from tidegate.reset.model.request import RunRequest
from tidegate.reset.model.targets import Findings, FromBackup, FromCluster, FromGroup, ToRecord
from tidegate.reset.planning.checks import Asked, check, kinds_written
from tidegate.reset.planning.dead_letters import with_dead_letters
from tidegate.reset.planning.measured import Measured
from tidegate.reset.planning.plan import build_plan, span_ends, with_spans
from tidegate.reset.planning.refusals import PlanRefused
from tidegate.reset.planning.replays import end_time
from tidegate.reset.planning.scope import is_undecided, scope_of, topics_to_know
from tidegate.reset.planning.stopped_streams import left_by_streams
from tidegate.reset.planning.targets import asked_time

__all__ = ["PlanRefused", "decided_group", "look_around", "make_plan"]

NEEDS_SPARK: Final = "SparkUnavailable"


def make_plan(request: RunRequest, kafka: ClusterReader, now: datetime, *, findings: Findings | None = None) -> Plan:
    """Where the group is, where it would go, and what that would replay or skip. Changes nothing.

    ``now``: aware, UTC; what ``duration`` counts from. ``findings``: what was found beforehand, for a target that
    takes Spark. Raises ``PlanRefused`` for a request that has no plan, and ``KafkaFailure``; of these
    ``Unavailable`` also while a rebalance hides what the group subscribes to.
    """
    target = request.target
    if isinstance(target, FromCluster | FromBackup | ToRecord) and findings is None:
        raise PlanRefused(NEEDS_SPARK, f"target {target.kind} can only be found by Spark: use engine Auto or Spark")
    asked, committed = look_around(request, kafka)
    partitions = asked.scope.partitions
    at = asked_time(target, now)
    # The look-up before the bounds: the log's end only grows, so that what was found is inside.
    found = kafka.offsets_at(dict.fromkeys(partitions, at)) if at is not None else {}
    until = end_time(request.until)
    ends = kafka.offsets_at(dict.fromkeys(partitions, until)) if until is not None else {}
    measured = Measured(committed, kafka.log_bounds(partitions), found, asked.other, findings, ends)
    plan = build_plan(asked, measured, now)
    if request.dead_letter:
        plan = with_dead_letters(plan, request.dead_letter, kafka.topics([request.dead_letter]))

    spans = span_ends(plan)
    if not spans.first:
        return plan
    return with_spans(plan, kafka.record_times(spans.first), kafka.record_times(spans.last))


def look_around(request: RunRequest, kafka: ClusterReader) -> tuple[Asked, Offsets]:
    """What was asked for and what it meets, and the group's committed offsets; no log is looked at.

    Raises as ``make_plan``.
    """
    target = request.target
    group = decided_group(request, kafka)
    committed = kafka.committed(request.group_id)
    other = kafka.committed(target.group_id) if isinstance(target, FromGroup) else None
    topics = kafka.topics(topics_to_know(request, group, committed, other))
    managed = kafka.managed_members(request.group_id) if group.has_members else frozenset()
    scope = scope_of(request, topics, group, committed, other)
    asked = Asked(request, topics, group, scope, other, managed, left_by_streams(group, committed, kafka))
    check(asked)
    # Last, as it may have to be tried with a group of its own.
    asked = replace(asked, capabilities=kafka.capabilities(kinds_written(group), probe=not request.observed))
    check(asked)
    return asked, committed


def decided_group(request: RunRequest, kafka: ClusterReader) -> Group:
    """The request's group. Raises ``Unavailable`` while a rebalance hides what it subscribes to."""
    group = kafka.groups([request.group_id])[request.group_id]
    if is_undecided(request, group):
        raise Unavailable(
            f"group {request.group_id} is {group.state}, so what it subscribes to is known only after the rebalance"
        )
    return group
