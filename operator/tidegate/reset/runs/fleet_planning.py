"""A fleet's plan: its roster, and a plan for each group that may be reset, made from few reads."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Final

from tidegate.clock import Clock
from tidegate.kafka.errors import KafkaFailure, Unavailable
from tidegate.kafka.ports import ClusterReader
from tidegate.reset.binding import EndBinding, NoBinding
from tidegate.reset.model.fleet import FleetPlan, GroupPlan, Roster
from tidegate.reset.model.plan import Plan
from tidegate.reset.model.progress import Progress, Searched
from tidegate.reset.model.request import RunRequest
from tidegate.reset.model.result import RunResult
from tidegate.reset.model.targets import Undo
from tidegate.reset.planning.cluster_view import read_ahead
from tidegate.reset.planning.planner import make_plan
from tidegate.reset.planning.refusals import PlanRefused
from tidegate.reset.runs import job
from tidegate.reset.runs.fleet import group_plan, group_request, group_run_uid, roster_of
from tidegate.reset.runs.fleet_parts import Parts, PlanGroups, for_all
from tidegate.reset.runs.request import undo_target
from tidegate.reset.store import ForgedRun, Run, RunNotFound, RunStore
from tidegate.resources.conditions import Refusal
from tidegate.resources.reset import ResetPhase


def plan_fleet(store: RunStore, attempt: int, parts: Parts) -> RunResult | None:
    """Make and store the plan; the stored result instead when the fleet was refused."""
    clock, run = parts.clock, store.load()
    store.append(Progress(ResetPhase.PLANNING, clock.now(), attempt), attempt=attempt)

    def tell(searched: Searched) -> None:
        store.append(Progress(ResetPhase.PLANNING, clock.now(), attempt, searched=searched), attempt=attempt)

    try:
        roster = run.roster
        if roster is None:
            # A fleet that undoes another has its groups named.
            named = run.request.fleet is not None and run.request.fleet.groups is not None
            there = () if named else job.while_away(parts.group_ids, run.request, clock)
            roster = roster_of(run.request, there, clock.now())
            store.write_roster(roster, attempt=attempt)
        plan = _planned(run.request, roster, attempt, parts, tell)
        store.write_fleet_plan(plan, attempt=attempt)
    except (PlanRefused, KafkaFailure) as failure:
        result = job.unplanned(failure, clock.now())
    else:
        return None
    store.finish(result, attempt=attempt)
    return result


def _planned(request: RunRequest, roster: Roster, attempt: int, parts: Parts, tell: job.Tell) -> FleetPlan:
    """Every group's plan is in its document before any is in the fleet's.

    What an earlier attempt has planned is kept; the first one finds no plan but its own. Raises ``ForgedRun``.
    """
    found: dict[str, GroupPlan] = {}
    asked: dict[str, tuple[RunRequest, RunStore]] = {}

    def ask(group_id: str) -> None:
        wanted = _group_request(request, group_id, parts)
        if isinstance(wanted, Refusal):
            found[group_id] = GroupPlan(group_id, refused=wanted.reason, message=wanted.message)
            return
        store = parts.open_group(wanted.run_uid, NoBinding())
        there = store.create(wanted)
        if _is_foreign(there, wanted, attempt):
            raise ForgedRun(f"{store.location} was not written by a job of this fleet: find out who wrote it")
        if there.plan is not None:
            found[group_id] = group_plan(there.plan, there.digest)
        else:
            asked[group_id] = (wanted, store)

    def keep(planned: tuple[str, Plan | PlanRefused | KafkaFailure]) -> None:
        group_id, plan = planned
        if isinstance(plan, Plan):
            store = asked[group_id][1]
            store.write_plan(plan, attempt=store.begin_attempt())
            found[group_id] = group_plan(plan, store.load().digest)
        else:
            reason, message = job.why_unplanned(plan)
            found[group_id] = GroupPlan(group_id, refused=reason, message=message)

    for_all(roster.groups, ask, parts)
    names = sorted(asked)
    plans = parts.plan([asked[group_id][0] for group_id in names], roster.at, tell)
    for_all(list(zip(names, plans, strict=True)), keep, parts)
    return FleetPlan(request.run_id, roster.at, tuple(found[group_id] for group_id in roster.groups), roster.notes)


def _is_foreign(there: Run, wanted: RunRequest, attempt: int) -> bool:
    """Whether no job of this fleet has written the run of one of its groups."""
    if attempt == 1:
        return there.request != wanted or there.plan is not None
    # An earlier version of Tidegate, by which an attempt may have begun, did not tell a group's run of the approval.
    return there.request not in (wanted, replace(wanted, manual_approval=False))


def _group_request(request: RunRequest, group_id: str, parts: Parts) -> RunRequest | Refusal:
    target = request.target
    if not isinstance(target, Undo):
        return group_request(request, group_id, target)
    fleet = request.fleet
    if fleet is None:
        raise ValueError("only a fleet's run has groups")
    try:
        undone_uid = group_run_uid(fleet.undoes_uid, group_id)
        undone = parts.open_undone(undone_uid, EndBinding(dict(fleet.ends).get(group_id, ""))).load()
    except RunNotFound:
        undone = None
    back = undo_target(target.run_id, undone)
    return back if isinstance(back, Refusal) else group_request(request, group_id, back)


_PLAN_TRIES: Final = 5


def plan_together(kafka: ClusterReader) -> PlanGroups:
    """States and offsets of all groups are read at once, and each partition's log once. The times of the records that
    would be replayed are not looked up: one would be read for each partition of each group."""

    def plan(
        requests: Sequence[RunRequest], now: datetime, tell: job.Tell
    ) -> Iterator[Plan | PlanRefused | KafkaFailure]:
        if not requests:
            return
        try:
            reader = read_ahead(kafka, requests, now)
        except KafkaFailure as failure:
            if len(requests) == 1 or not _answers(kafka):
                yield from [failure] * len(requests)
                return
            # Whose failure it is, is found by halves.
            half = len(requests) // 2
            yield from plan(requests[:half], now, tell)
            yield from plan(requests[half:], now, tell)
            return
        for request in requests:
            try:
                yield make_plan(request, reader, now)
            except (PlanRefused, KafkaFailure) as failure:
                yield failure

    return plan


def _answers(kafka: ClusterReader) -> bool:
    try:
        kafka.topics()
    except KafkaFailure:
        return False
    return True


def patiently(plan: PlanGroups, clock: Clock) -> PlanGroups:
    """Groups that a rebalance hides, or whose coordinator is away, are planned again, a few times; where nothing is to
    be had of any of them, until the deadline."""

    def again(
        requests: Sequence[RunRequest], now: datetime, tell: job.Tell
    ) -> Iterator[Plan | PlanRefused | KafkaFailure]:
        found = list(plan(requests, now, tell))
        deadline = next((r.settings.deadline for r in requests), None) or now
        tries = 1
        while hidden := [n for n, answer in enumerate(found) if isinstance(answer, Unavailable)]:
            is_away = len(hidden) == len(found) and clock.now() < deadline
            if tries >= _PLAN_TRIES and not is_away:
                break
            tries += 1
            clock.sleep(1.0)
            for n, answer in zip(hidden, plan([requests[n] for n in hidden], now, tell), strict=True):
                found[n] = answer
        yield from found

    return again
