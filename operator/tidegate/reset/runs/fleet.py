"""A fleet: one reset of many groups, each with a run and a transaction of its own. What is next, how it ended; pure.

The parent's journal is what has been decided, the groups' documents are what was done; a step is decided from both, so
whoever takes over goes on with the same one. With ``FailurePolicy.ALL`` this is a two-phase commit: each group holds
its result back (``Progress.held``) until the parent notes that all are kept, or put back.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from hashlib import sha256
from itertools import islice
from statistics import median
from typing import Final

from tidegate.kafka.names import is_allowed, is_pattern
from tidegate.reset.applying.apply import APPLIED
from tidegate.reset.binding import digest_of_end
from tidegate.reset.marker import is_marker_group
from tidegate.reset.model.fleet import FleetCounts, FleetPlan, GroupPlan, GroupTrouble, Roster, span
from tidegate.reset.model.plan import Plan
from tidegate.reset.model.progress import Progress
from tidegate.reset.model.request import EvidenceSettings, FleetRequest, RunRequest
from tidegate.reset.model.result import MAX_UNREAD, RunResult, Standstill
from tidegate.reset.model.targets import FromGroup, Target
from tidegate.reset.planning.refusals import PlanRefused
from tidegate.reset.planning.scope import listed
from tidegate.reset.runs.quota import size_of, too_large
from tidegate.reset.runs.request import NOT_PUT_BACK
from tidegate.reset.runs.waves import (
    ROLLOUT_STOPPED,
    BeginWave,
    GoOn,
    Leave,
    Pause,
    Stop,
    next_in_waves,
    shortest,
    stopped_by,
    waves_of,
)
from tidegate.reset.store import Run
from tidegate.resources.reset import FailurePolicy, ResetPhase

MAX_GROUPS: Final = 1_000
MAX_TROUBLES: Final = 20
"""As many groups are named in the status; all of them are in their documents."""

NO_GROUP_MATCHES: Final = "NoGroupMatches"
TOO_MANY_GROUPS: Final = "TooManyGroups"
GROUPS_REFUSED: Final = "GroupsRefused"
GROUPS_FAILED: Final = "GroupsFailed"
OTHER_GROUP_FAILED: Final = "OtherGroupFailed"
ROLLOUT_TOO_LONG: Final = "RolloutTooLong"

# --- who --------------------------------------------------------------------------------------------------------------


def roster_of(request: RunRequest, there: Collection[str], at: datetime) -> Roster:
    """The groups of a fleet. ``there``: those of the cluster. A group that is named need not exist yet.

    Raises ``PlanRefused``.
    """
    fleet = _fleet(request)
    wanted = set(fleet.groups) if fleet.groups is not None else _matching(fleet, there)
    own = {group for group in wanted if is_marker_group(group)}
    forbidden = {group for group in wanted - own if not is_allowed(group, fleet.allowed_groups)}
    source = {request.target.group_id} & wanted if isinstance(request.target, FromGroup) else set()
    groups = tuple(sorted(wanted - own - forbidden - source))
    notes = []
    if forbidden:
        notes.append(f"Left out {_count(forbidden)} that the connection does not allow: {listed(sorted(forbidden))}")
    if source:
        notes.append(f"Left out, because the other groups are reset to its offsets: {listed(sorted(source))}")
    if not groups:
        patterns = ", ".join(fleet.patterns)
        detail = "".join(f". {note}" for note in notes)
        raise PlanRefused(NO_GROUP_MATCHES, f"spec.groups: no group to reset matches {patterns}{detail}")
    if len(groups) > MAX_GROUPS:
        raise PlanRefused(
            TOO_MANY_GROUPS,
            f"spec.groups: {len(groups):,} groups match, but a fleet has at most {MAX_GROUPS:,}: use narrower patterns "
            "in several policies",
        )
    return Roster(at, groups, tuple(notes))


def _matching(fleet: FleetRequest, there: Collection[str]) -> set[str]:
    named = {pattern for pattern in fleet.patterns if not is_pattern(pattern)}
    return named | {group for group in there if is_allowed(group, fleet.patterns)}


def group_run_uid(fleet_run_uid: str, group_id: str) -> str:
    return f"{fleet_run_uid}/{group_id}"


def group_document(fleet_document: str, run_uid: str) -> str:
    """The name of one group's document: ``<fleet's, cut>-<digest>``, a DNS label of at most 52 characters."""
    digest = sha256(run_uid.encode()).hexdigest()[:12]
    return f"{fleet_document[:39].strip('-')}-{digest}"


def group_request(fleet: RunRequest, group_id: str, target: Target) -> RunRequest:
    """The run of one group. The fleet's plan is what is approved, as the group's writer has to know: a group that would
    go another way by then stays where it is. Nothing is gathered beside it."""
    return replace(
        fleet,
        run_uid=group_run_uid(fleet.run_uid, group_id),
        group_id=group_id,
        target=target,
        evidence=EvidenceSettings(),
        fleet=None,
        limits=None,
    )


# --- what -------------------------------------------------------------------------------------------------------------


def group_plan(plan: Plan, digest: str) -> GroupPlan:
    """A group's plan in numbers. ``digest``: of its run."""
    span_from, span_to = span(plan.partitions)
    return GroupPlan(
        group_id=plan.group_id,
        partitions=len(plan.partitions),
        moved=plan.moved,
        clamped=plan.clamped,
        records_replayed=plan.records_replayed,
        records_skipped=plan.records_skipped,
        span_from=span_from,
        span_to=span_to,
        way=plan.way,
        digest=digest,
    )


def refused_fleet(request: RunRequest, plan: FleetPlan, now: datetime) -> PlanRefused | None:
    """Why a fleet with this plan, of which nothing was reset yet, is not to be reset."""
    refused = plan.refused
    if plan.planned and (not refused or _fleet(request).failure_policy is FailurePolicy.ISOLATE):
        return too_large(size_of(plan), request.limits) or _too_long(request, plan, now)
    names = listed([g.group_id for g in refused])
    first = refused[0]
    way_out = ", or set failurePolicy to Isolate" if plan.planned else ""
    return PlanRefused(
        GROUPS_REFUSED,
        f"{len(refused):,} of {len(plan.groups):,} groups cannot be reset ({names}). Group {first.group_id}: "
        f"{first.message}. Leave them out of spec.groups{way_out}",
    )


def _too_long(request: RunRequest, plan: FleetPlan, now: datetime) -> PlanRefused | None:
    waves, deadline = _fleet(request).waves, request.settings.deadline
    if waves is None or deadline is None or now + shortest(waves, plan.planned) < deadline:
        return None
    number, pause_s = len(waves_of(waves, plan.planned)), waves.pause.total_seconds()
    return PlanRefused(
        ROLLOUT_TOO_LONG,
        f"spec.rollout: {number:,} waves with pauses of {pause_s:,.0f} s would end after the deadline, "
        f"which is in {max(0.0, (deadline - now).total_seconds()):,.0f} s: make deadline longer, waveSize larger, or "
        "pause shorter",
    )


# --- what next --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Begin:
    """Note that groups are reset from now on."""


@dataclass(frozen=True, slots=True)
class Apply:
    """Reset these groups; ``hold``: each holds its result back, and after a failure no other is begun; ``stop``: after
    a failure no other is begun."""

    groups: tuple[str, ...]
    hold: bool
    stop: bool = False


@dataclass(frozen=True, slots=True)
class PutBack:
    """Note that the groups are put back: the decision."""

    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Keep:
    """Note that all groups stay where they were sent: the decision, after which nothing is put back."""


@dataclass(frozen=True, slots=True)
class Settle:
    """End these groups' runs, and put back what they committed."""

    groups: tuple[str, ...]
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Release:
    """Let these groups end as they hold that they do."""

    groups: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class End:
    result: RunResult


Step = Begin | BeginWave | Apply | Pause | Stop | Leave | PutBack | Keep | Settle | Release | End


def held_result(run: Run) -> RunResult | None:
    """How a group's run ends if its fleet is kept."""
    return next((line.held for line in reversed(run.journal) if line.held is not None), None)


def has_begun(fleet: Run) -> bool:
    """Whether any group may have been touched."""
    return any(line.phase is ResetPhase.APPLYING for line in fleet.journal)


def put_back_by(fleet: Run) -> Progress | None:
    """The decision to put the groups back, if that was taken."""
    return next((line for line in fleet.journal if line.putting_back), None)


def is_kept(fleet: Run) -> bool:
    return any(line.phase is ResetPhase.RESUMING for line in fleet.journal)


def next_step(fleet: Run, groups: Mapping[str, Run], now: datetime) -> Step:
    """``groups``: the runs of those that have a plan; may be empty as long as the fleet has not begun."""
    put_back = put_back_by(fleet)
    if not has_begun(fleet):
        return Begin() if put_back is None else End(_untouched(put_back.putting_back, put_back.message, now))
    left = tuple(name for name in sorted(groups) if groups[name].result is None)
    open_ = tuple(name for name in left if held_result(groups[name]) is None)
    if is_kept(fleet):
        return Release(left) if left else End(_outcome(fleet, groups, now))
    if put_back is not None:
        if left:
            return Settle(left, put_back.putting_back, put_back.message)
        return End(_outcome(fleet, groups, now))
    asked = _fleet(fleet.request)
    hold = asked.failure_policy is FailurePolicy.ALL
    failed = [name for name in sorted(groups) if _ended_badly(groups[name])]
    if hold and failed:
        return PutBack(OTHER_GROUP_FAILED, f"group {failed[0]}: {_message(groups[failed[0]])}")
    if open_ and asked.waves is not None:
        ends = {name: end for name, run in groups.items() if (end := run.result or held_result(run)) is not None}
        step = next_in_waves(fleet, asked.waves, groups, ends, now)
        if isinstance(step, Stop) and hold:
            return PutBack(ROLLOUT_STOPPED, step.message)
        return Apply(step.groups, hold, stop=True) if isinstance(step, GoOn) else step
    if open_:
        return Apply(open_, hold)
    return Keep() if left else End(_outcome(fleet, groups, now))


def _ended_badly(run: Run) -> bool:
    return run.result is not None and run.result.phase is not ResetPhase.SUCCEEDED


def _message(run: Run) -> str:
    return run.result.message if run.result is not None else ""


# --- how it ended -----------------------------------------------------------------------------------------------------


def counts(fleet: Run, groups: Mapping[str, Run]) -> FleetCounts:
    """The groups by outcome. A group that was put back because of another is not one that failed, and one that holds
    its result back counts as reset until the fleet is put back."""
    results = {name: run.result for name, run in groups.items() if run.result is not None}
    decided = put_back_by(fleet)
    reset = {name for name, result in results.items() if result.phase is ResetPhase.SUCCEEDED}
    put_back = {
        name
        for name, result in results.items()
        if name not in reset
        and decided is not None
        # One that had failed by then for that reason, such as its deadline, had failed, and says so in its own words.
        # Not judged by when: it may have ended by the clock of another node.
        and result.reason == decided.putting_back
        and result.message.startswith(decided.message)
    }
    not_begun = {n for n, result in results.items() if result.reason == ROLLOUT_STOPPED and n not in put_back}
    failed = sorted(results.keys() - reset - put_back - not_begun)
    going_back = decided is not None and not is_kept(fleet)
    held = [n for n, run in groups.items() if run.result is None and held_result(run) is not None and not going_back]
    return FleetCounts(
        reset=len(reset) + len(held),
        failed=len(failed),
        put_back=len(put_back),
        troubles=tuple(
            GroupTrouble(name, results[name].reason, results[name].message) for name in failed[:MAX_TROUBLES]
        ),
        not_begun=len(not_begun),
    )


def _untouched(reason: str, message: str, now: datetime) -> RunResult:
    return RunResult(ResetPhase.FAILED, reason, f"{message}. Nothing was changed", now, counts=FleetCounts())


def _outcome(fleet: Run, groups: Mapping[str, Run], now: datetime) -> RunResult:
    counted, total = counts(fleet, groups), len(fleet.fleet.groups) if fleet.fleet is not None else len(groups)
    phase, reason, said = _verdict(fleet, groups, counted)
    refused = total - len(groups)
    numbers = [
        f"{counted.reset:,} of {total:,} groups reset",
        *([f"{refused:,} without a plan"] if refused else ()),
        *([f"{counted.failed:,} failed ({listed([t.group_id for t in counted.troubles])})"] if counted.failed else ()),
        *([f"{counted.put_back:,} rolled back or not begun"] if counted.put_back else ()),
        *([f"{counted.not_begun:,} not begun"] if counted.not_begun else ()),
    ]
    message = ". ".join([*([said] if said else ()), ", ".join(numbers)])
    results = [run.result for run in groups.values() if run.result is not None]
    return RunResult(
        phase=phase,
        reason=reason,
        message=message,
        finished_at=now,
        rounds=max((r.rounds for r in results), default=0),
        redone=sum(r.redone for r in results),
        standstill=_standstill(r.standstill for r in results),
        begun=_sum(r.begun for r in results if r.phase is ResetPhase.SUCCEEDED),
        waiting=_sum(r.waiting for r in results if r.phase is ResetPhase.SUCCEEDED),
        unread=tuple(islice(_unread(groups), MAX_UNREAD)),
        counts=counted,
        ends=tuple((n, digest_of_end(run.digest, run.result)) for n, run in sorted(groups.items()) if run.result),
    )


def _verdict(fleet: Run, groups: Mapping[str, Run], counted: FleetCounts) -> tuple[ResetPhase, str, str]:
    """Phase, reason, and what to say before the numbers."""
    lost = [name for name in sorted(groups) if (r := groups[name].result) is not None and r.reason == NOT_PUT_BACK]
    if lost:
        return (
            ResetPhase.FAILED,
            NOT_PUT_BACK,
            f"Not rolled back: {listed(lost)}. Group {lost[0]}: {_message(groups[lost[0]])}",
        )
    put_back = put_back_by(fleet)
    if put_back is not None and not is_kept(fleet):
        changed = any(r.phase is ResetPhase.ROLLED_BACK for run in groups.values() if (r := run.result) is not None)
        phase = ResetPhase.ROLLED_BACK if changed and not counted.reset else ResetPhase.FAILED
        return phase, put_back.putting_back, put_back.message
    stopped = stopped_by(fleet)
    if stopped is not None:
        return ResetPhase.FAILED, ROLLOUT_STOPPED, stopped
    if counted.failed:
        first = counted.troubles[0]
        return ResetPhase.FAILED, GROUPS_FAILED, f"Group {first.group_id}: {first.message}"
    if fleet.fleet is not None and fleet.fleet.refused:
        refused = fleet.fleet.refused[0]
        return ResetPhase.FAILED, GROUPS_REFUSED, f"Group {refused.group_id}: {refused.message}"
    return ResetPhase.SUCCEEDED, APPLIED, ""


def _sum(counted: Iterator[int | None]) -> int | None:
    """``None`` where one is not known, or there is none."""
    known = list(counted)
    return sum(n for n in known if n is not None) if known and None not in known else None


def _unread(groups: Mapping[str, Run]) -> Iterator[str]:
    for name, run in sorted(groups.items()):
        if run.result is not None and run.result.phase is ResetPhase.SUCCEEDED:
            yield from (f"group {name}: {partition}" for partition in run.result.unread)


def _standstill(measured: Iterator[Standstill | None]) -> Standstill | None:
    """The median of the groups' medians, and the longest."""
    known = [standstill for standstill in measured if standstill is not None]
    if not known:
        return None
    return Standstill(median(s.p50_s for s in known), max(s.max_s for s in known))


def _fleet(request: RunRequest) -> FleetRequest:
    if request.fleet is None:
        raise ValueError(f"run {request.run_uid} is of one group")
    return request.fleet


def _count(groups: Collection[str]) -> str:
    return f"{len(groups):,} group{'' if len(groups) == 1 else 's'}"
