"""What is said of a run while it is under way: phases, counts, conditions and Events."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from tidegate.kafka.numbers import OFFSET_MAX
from tidegate.kube.ports import EventType
from tidegate.reset.applying.replay import ENDINGS
from tidegate.reset.model.fleet import FleetCounts, FleetPlan, span
from tidegate.reset.model.plan import Plan
from tidegate.reset.model.progress import Progress
from tidegate.reset.model.request import RunRequest
from tidegate.reset.model.result import RunResult
from tidegate.reset.runs import replaying
from tidegate.reset.runs.actions import Draft
from tidegate.reset.runs.reasons import (
    ANNOTATION_APPROVES_NOTHING,
    APPROVE,
    NOT_KNOWN_YET,
    NOT_LOOKED_AT,
    READING,
)
from tidegate.reset.runs.waves import ROLLOUT_STOPPED, wave_begun, waves_of
from tidegate.reset.store import Run
from tidegate.resources.offset_reset import OffsetResetStatus
from tidegate.resources.reset import (
    MAX_GROUP_FAILURES,
    FleetStatus,
    GroupFailure,
    PlanStatus,
    ResetPhase,
    SearchStatus,
)

_WAVES_TOLD: Final = 20

ANNOTATION_SAYS: Final = (
    f"The annotation {APPROVE} no longer approves anything: remove it, and create an OffsetResetApproval instead"
)


def phase_of(run: Run) -> ResetPhase:
    """The phase of a run that has not ended, from its journal."""
    if plan_awaits_approval(run):
        return ResetPhase.AWAITING_APPROVAL
    if run.last is None or run.last.phase.is_final or run.last.phase is ResetPhase.PENDING:
        return ResetPhase.PLANNING
    return run.last.phase


def report(draft: Draft, current: OffsetResetStatus, run: Run) -> None:
    """Take the phase, the way and the plan over into the status, and tell of every phase that is new."""
    phase = phase_of(run)
    way = run.last.way if run.last is not None else None
    draft.run(
        phase=phase,
        way=way or current.way,
        search=_search_status(current, run),
        fleet=fleet_status(run),
        plan=plan_status(draft.seen.run_document, run.plan or run.fleet),
        digest=run.digest or current.digest,
        replay=replaying.replay_status(run, draft.seen.replay, current.replay, draft.seen.now),
    )
    message = _progress_message(run, phase)
    if phase is ResetPhase.REPLAYING:
        message = replaying.message(run, draft.seen.replay)
    awaits_approval = plan_awaits_approval(run)
    if awaits_approval:
        if draft.seen.no_effect:
            message = f"{message}. {draft.seen.no_effect}"
        if draft.seen.annotated:
            message = f"{message}. {ANNOTATION_SAYS}"
            draft.tell(
                EventType.WARNING,
                ANNOTATION_APPROVES_NOTHING,
                ANNOTATION_SAYS,
                f"{draft.seen.run_id}/{ANNOTATION_APPROVES_NOTHING}",
            )
    waits_for = draft.seen.trouble or (run.last.waits_for if run.last is not None else "")
    if waits_for:
        message = f"{message}. Waiting: {waits_for}"
    tell_phases(draft, run)
    if awaits_approval:
        draft.tell(EventType.NORMAL, phase.value, message, f"{draft.seen.run_id}/{phase.value}")
    draft.moving(phase.value, message)
    draft.complete_is(None, phase.value, message)


def tell_phases(draft: Draft, run: Run) -> None:
    for step in _of_waves(run.journal):
        kind, reason = (EventType.WARNING, ROLLOUT_STOPPED) if step.stopped else (EventType.NORMAL, "WaveBegun")
        draft.tell(kind, reason, step.message, f"{run.request.run_id}/{reason}/{step.wave}")
    for step in _first_of_each(run.journal):
        if step.phase.is_final or step.phase is ResetPhase.AWAITING_APPROVAL:
            continue
        message = step.message or _progress_message(run, step.phase)
        draft.tell(EventType.NORMAL, step.phase.value, message, f"{run.request.run_id}/{step.phase.value}")


def _first_of_each(journal: Sequence[Progress]) -> Iterator[Progress]:
    told: set[ResetPhase] = set()
    for step in journal:
        if step.phase not in told:
            told.add(step.phase)
            yield step


def _of_waves(journal: Sequence[Progress]) -> list[Progress]:
    """The begins of waves, and the stop; the last ones, since each is told again by a process that is new."""
    told: list[Progress] = []
    for line in journal:
        if line.stopped or line.wave > (told[-1].wave if told else 0):
            told.append(line)
    return told[-_WAVES_TOLD:]


def _progress_message(run: Run, phase: ResetPhase) -> str:
    run_id, whose, plan = run.request.run_id, _whose(run.request), run.plan or run.fleet
    match phase:
        case ResetPhase.AWAITING_APPROVAL if not plan_awaits_approval(run):
            return f"reset {run_id} of {whose} is approved ({_effect(plan)}), and a job is about to apply it"
        case ResetPhase.AWAITING_APPROVAL:
            return (
                f"reset {run_id} of {whose} is planned ({_effect(plan)}); "
                f"to approve it, create an OffsetResetApproval with reset: {run_id} and plan: {run.digest}, as "
                f"tidegate approve {run_id} --plan {run.digest} does"
            )
        case ResetPhase.PLANNING | ResetPhase.PENDING:
            return f"reset {run_id} of {whose} is being planned"
        case _:
            waves = next((line.message for line in reversed(run.journal) if line.wave and line.message), "")
            back = next((line for line in run.journal if line.putting_back not in ("", *ENDINGS)), None)
            if back is not None:
                return f"reset {run_id} of {whose} is being rolled back ({phase.value}): {back.message}"
            return f"reset {run_id} of {whose}: {phase.value} ({_effect(plan)}){f'; {waves}' if waves else ''}"


def _whose(request: RunRequest) -> str:
    if request.fleet is None:
        return f"group {request.group_id}"
    return f"groups {', '.join(request.fleet.patterns)}"


def _effect(plan: Plan | FleetPlan | None) -> str:
    match plan:
        case None:
            return "no plan"
        case Plan():
            begins = f"{len(plan.partitions)} partition(s)"
        case FleetPlan():
            refused = f" and {len(plan.refused)} without a plan" if plan.refused else ""
            begins = f"{len(plan.planned)} group(s){refused}, {plan.partitions} partition(s)"
    return (
        f"{begins}, {plan.moved} to move, {plan.records_replayed} record(s) to be read again, "
        f"{plan.records_skipped} skipped"
    )


def fleet_status(run: Run) -> FleetStatus | None:
    """The counts of the run's end, or else the newest in its journal; groups without a plan are told of first."""
    if run.fleet is None:
        return None
    newest = next((line.counts for line in reversed(run.journal) if line.counts is not None), FleetCounts())
    counted = run.result.counts if run.result is not None and run.result.counts is not None else newest
    failures = [
        *(GroupFailure(group=g.group_id, reason=g.refused, message=g.message) for g in run.fleet.refused),
        *(GroupFailure(group=t.group_id, reason=t.reason, message=t.message) for t in counted.troubles),
    ]
    waves = run.request.fleet.waves if run.request.fleet is not None else None
    in_waves = {}
    if waves is not None:
        order, begun = waves_of(waves, run.fleet.planned), wave_begun(run)
        later = sum(map(len, order[begun:]))
        ended = counted.reset + counted.failed + counted.put_back
        in_waves = {
            "wave": begun,
            "waves": len(order),
            "not_begun": later if run.result is None else len(run.fleet.planned) - ended,
        }
    return FleetStatus(
        **in_waves,
        groups=len(run.fleet.groups),
        refused=len(run.fleet.refused),
        reset=counted.reset,
        failed=counted.failed,
        put_back=counted.put_back,
        failures=tuple(failures[:MAX_GROUP_FAILURES]),
    )


def _search_status(current: OffsetResetStatus, run: Run) -> SearchStatus | None:
    searched = next((p.searched for p in reversed(run.journal) if p.searched is not None), None)
    if searched is None:
        return current.search
    return SearchStatus(
        records_read=searched.read,
        records_total=searched.total,
        records_per_second=searched.per_second,
        percent=100 * searched.read // searched.total if searched.total else 100,
    )


def plan_status(document: str, plan: Plan | FleetPlan | None) -> PlanStatus:
    if plan is None:
        return PlanStatus(config_map=document)
    parts = plan.partitions if isinstance(plan, Plan) else plan.groups
    span_from, span_to = span(parts)
    return PlanStatus(
        config_map=document,
        partitions=len(plan.partitions) if isinstance(plan, Plan) else plan.partitions,
        moved=plan.moved,
        unchanged=plan.unchanged,
        clamped=plan.clamped,
        # Offsets that somebody has made up may add up to more than an API server takes.
        records_replayed=min(plan.records_replayed, OFFSET_MAX),
        records_skipped=min(plan.records_skipped, OFFSET_MAX),
        from_=span_from,
        to=span_to,
    )


def tell_reading(draft: Draft, request: RunRequest, result: RunResult) -> None:
    """Whether its consumers read from the targets, as far as that was known at its end: nobody looks afterwards."""
    of = f"when reset {request.run_id} of {_whose(request)} ended"
    if result.begun is None or result.waiting is None:
        draft.read_is(None, NOT_LOOKED_AT, f"{of}, Kafka did not say which partitions were read from their targets")
    elif result.waiting:
        more = result.waiting - len(result.unread)
        named = f": {', '.join(result.unread)}{f' and {more:,} more' if more else ''}" if result.unread else ""
        draft.read_is(
            None,
            NOT_KNOWN_YET,
            f"{of}, it was not yet known whether {result.waiting:,} partition(s) were read from their targets{named}. "
            "These include partitions whose consumers commit rarely, have stopped polling, or are held by a pause",
        )
    else:
        draft.read_is(
            True,
            READING,
            f"{of}, {result.begun:,} partition(s) were read from their targets; any others had no owner, or no records "
            "to read",
        )


def plan_awaits_approval(run: Run) -> bool:
    return run.request.manual_approval and run.is_planned and not run.approved
