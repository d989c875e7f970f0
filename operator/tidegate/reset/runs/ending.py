"""How a run ends: with its result, or given up, left or halted without one."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

from tidegate.kube.ports import EventType
from tidegate.reset.binding import digest_of, digest_of_end
from tidegate.reset.model.fleet import FleetPlan
from tidegate.reset.model.plan import Plan
from tidegate.reset.model.result import RunResult
from tidegate.reset.runs.actions import (
    AddFinalizer,
    CreateRun,
    Decision,
    Draft,
    Halt,
    LiftLimits,
    RemoveFinalizer,
    TakeOver,
)
from tidegate.reset.runs.progress import fleet_status, plan_status, tell_phases, tell_reading
from tidegate.reset.runs.reasons import (
    ABANDON,
    ABANDONED,
    ALREADY_RAN,
    DEADLINE_EXCEEDED,
    DELETED,
    FOREIGN_RUN,
    FORGED,
    RUN_LOST,
    WAITING_FOR_CONNECTION,
)
from tidegate.reset.runs.replaying import ended_status, is_held
from tidegate.reset.runs.seen import Seen, may_hold
from tidegate.reset.store import Run
from tidegate.resources.conditions import COMPLETE, Refusal, find_condition
from tidegate.resources.offset_reset import OffsetResetSpec, OffsetResetStatus
from tidegate.resources.reset import ResetPhase, StandstillStatus
from tidegate.versions import WRITTEN_BY_NEWER_VERSION

QUEUE_LOOK_S: Final = 2.0

NEWER_LOOK_S: Final = 60.0
"""That version comes back by another process than this one."""


def foreign(draft: Draft, current: OffsetResetStatus | None) -> Decision:
    """Not even put back: where to is in a document that somebody else has written."""
    message = draft.seen.foreign
    if current is None:
        draft.refuse(Refusal(FOREIGN_RUN, message))
        return draft.decide(again_after_s=QUEUE_LOOK_S)
    message = f"{message}. Tidegate does not know what reset {draft.seen.run_id} had done: look at the group's offsets"
    return halted(draft, current, FOREIGN_RUN, message)


def newer(draft: Draft) -> Decision:
    """A newer version of Tidegate has the run: its document, its job and its holds are left to that."""
    message = draft.seen.newer
    draft.refuse(Refusal(WRITTEN_BY_NEWER_VERSION, message))
    draft.complete_is(None, WRITTEN_BY_NEWER_VERSION, message)
    return draft.decide(again_after_s=NEWER_LOOK_S)


def halted(draft: Draft, current: OffsetResetStatus, reason: str, message: str) -> Decision:
    """The run ends without its document; nobody is left then to let go of what its job holds."""
    if _is_to_be_halted(draft.seen, current):
        return _halt(draft, reason, message, briefly=True)
    return end(draft, ResetPhase.FAILED, reason, f"{message}{left_closed(draft.seen.unhalted)}")


def _is_to_be_halted(seen: Seen, current: OffsetResetStatus) -> bool:
    return may_hold(current) and not seen.halted and not seen.unhalted


def left_closed(unhalted: str) -> str:
    """The rest of a message. ``unhalted``: why a try to open its gates failed; empty: they are open."""
    if not unhalted:
        return ""
    return (
        f". Its gates may still be closed ({unhalted}): the operator opens them as soon as Kafka lets it, and then "
        "says so in an Event of the KafkaConnection"
    )


def why_forged(seen: Seen) -> str:
    """What was found forged stays so, though the document may be put right again before the run has ended."""
    if seen.forged:
        return seen.forged
    said = find_condition(seen.status.conditions, COMPLETE)
    return said.message if seen.under_way is not None and said is not None and said.reason == FORGED else ""


def end_forged(draft: Draft, current: OffsetResetStatus | None, message: str) -> Decision:
    seen = draft.seen
    if current is None:
        draft.refuse(Refusal(FORGED, message))
        return draft.decide(again_after_s=QUEUE_LOOK_S)
    if not seen.halted:
        return _halt(draft, FORGED, message)
    if current.application is None or (current.phase is ResetPhase.AWAITING_APPROVAL and not current.approved_digest):
        done = "Nothing was changed"
    else:
        done = f"Tidegate does not know what reset {draft.seen.run_id} had done by then: look at the group's offsets"
    return end(draft, ResetPhase.FAILED, FORGED, f"{message}. {done}")


def _halt(draft: Draft, reason: str, message: str, *, briefly: bool = False) -> Decision:
    waiting = f". Waiting: {draft.seen.trouble}" if draft.seen.trouble else ""
    draft.moving(reason, f"{message}{waiting}")
    draft.complete_is(None, reason, message)
    draft.tell(EventType.WARNING, reason, message, f"{draft.seen.run_id}/{reason}")
    return draft.decide(Halt(briefly), again_after_s=0)


def finish(draft: Draft, current: OffsetResetStatus, run: Run, result: RunResult) -> Decision:
    standstill = None
    if result.standstill is not None:
        standstill = StandstillStatus(
            p50=timedelta(milliseconds=round(result.standstill.p50_s * 1000)),
            max=timedelta(milliseconds=round(result.standstill.max_s * 1000)),
        )
    draft.run(
        way=result.way or current.way,
        fleet=fleet_status(run),
        plan=plan_status(draft.seen.run_document, _carried_out(run, result)),
        standstill=standstill,
        redone=result.redone,
        begun=result.begun,
        waiting=result.waiting,
        replay=ended_status(current.replay, result),
        digest=run.digest or current.digest,
    )
    if result.phase is ResetPhase.SUCCEEDED:
        tell_reading(draft, run.request, result)
    tell_phases(draft, run)
    return end(draft, result.phase, result.reason, result.message, result)


def _carried_out(run: Run, result: RunResult) -> Plan | FleetPlan | None:
    """A fleet's is as planned: what each of its groups came to is in that group's document."""
    if run.plan is None:
        return run.fleet
    if result.phase is not ResetPhase.SUCCEEDED:
        return run.plan
    return run.plan.from_offsets({b.topic_partition: b.offset for b in result.before})


def end(
    draft: Draft,
    phase: ResetPhase,
    reason: str,
    message: str,
    result: RunResult | None = None,
) -> Decision:
    at = result.finished_at if result is not None else draft.seen.now
    digest = draft.status.digest
    draft.run(
        phase=phase,
        finished_at=at,
        result_digest=digest_of_end(digest, result) if digest is not None and result is not None else None,
    )
    kind = EventType.NORMAL if phase is ResetPhase.SUCCEEDED else EventType.WARNING
    draft.tell(kind, phase.value, message, f"{draft.seen.run_id}/{phase.value}")
    conclude(draft, phase, reason, message)
    return draft.decide(again_after_s=0)


def leave(draft: Draft, since: datetime) -> Decision:
    """The resource is being deleted: settle what is under way, within bounds, then let go."""
    seen, current, run = draft.seen, draft.seen.under_way, draft.seen.run
    if not seen.has_finalizer:
        return draft.decide()
    if current is None:
        return draft.decide(RemoveFinalizer(), again_after_s=0)
    forged = why_forged(seen)
    if run is None and not forged and not may_hold(current):
        return draft.decide(RemoveFinalizer(), again_after_s=0)
    if seen.newer:
        return _leave_newer(draft, current, since)
    if seen.halted if forged else run is None and not _is_to_be_halted(seen, current):
        _unbelieved(draft, current, forged)
        return draft.decide(RemoveFinalizer(), again_after_s=0)
    if run is not None and run.result is not None and not forged:
        if is_held(run) and seen.replay is not None and not seen.replay.is_unlimited and not seen.trouble:
            return draft.decide(LiftLimits(), again_after_s=seen.tick_s)
        # What could not be taken back is swept.
        finish(draft, current, run, run.result)
        return draft.decide(RemoveFinalizer(), again_after_s=0)
    if seen.abandoned:
        phase = current.phase or ResetPhase.PENDING
        message = f"reset {seen.run_id} was abandoned in phase {phase.value}, as {ABANDON} asks"
        return _give_up(draft, current, message)
    if seen.now > since + seen.deletion_limit:
        why = seen.trouble or "no answer"
        message = f"reset {seen.run_id} could not be ended within {seen.deletion_limit}: {why}"
        return _give_up(draft, current, message)
    if run is None or forged:
        return _unbelieved(draft, current, forged)
    message = f"OffsetReset {draft.seen.run_id} was deleted before its run had ended"
    draft.moving(DELETED, message)
    return draft.decide(TakeOver(DELETED, message), again_after_s=seen.tick_s)


def _leave_newer(draft: Draft, current: OffsetResetStatus, since: datetime) -> Decision:
    """For as long as a deletion may take, the version that can settle the run may come back."""
    seen = draft.seen
    if not seen.abandoned and seen.now <= since + seen.deletion_limit:
        decision = newer(draft)
        left_s = (since + seen.deletion_limit - seen.now).total_seconds()
        return replace(decision, again_after_s=min(decision.again_after_s, max(1.0, left_s)))
    why = f"as {ABANDON} asks" if seen.abandoned else f"after {seen.deletion_limit}"
    return _give_up(draft, current, f"reset {seen.run_id} was given up without being rolled back, {why}: {seen.newer}")


def _unbelieved(draft: Draft, current: OffsetResetStatus, forged: str) -> Decision:
    """The run's document is not there, or is not to be believed."""
    if forged:
        return end_forged(draft, current, forged)
    return foreign(draft, current) if draft.seen.foreign else without_document(draft, current)


def _give_up(draft: Draft, current: OffsetResetStatus, message: str) -> Decision:
    """The resource goes with its run in mid-flight, but its consumers shall not stand still for that."""
    if _is_to_be_halted(draft.seen, current):
        return draft.decide(Halt(briefly=True), again_after_s=0)
    message = f"{message}{left_closed(draft.seen.unhalted)}"
    draft.tell(EventType.WARNING, ABANDONED, message, f"{draft.seen.run_id}/{ABANDONED}")
    return draft.decide(RemoveFinalizer(), again_after_s=0)


def conclude(draft: Draft, phase: ResetPhase, reason: str, message: str) -> None:
    succeeded = phase is ResetPhase.SUCCEEDED
    if succeeded:
        draft.complete_is(True, reason, message)
        draft.well(reason, message)
    else:
        draft.stuck(reason, message)
        draft.failed(reason, message)


def without_document(draft: Draft, current: OffsetResetStatus) -> Decision:
    seen = draft.seen
    if current.phase is not ResetPhase.PENDING:
        message = (
            f"the ConfigMap {seen.run_document} of reset {seen.run_id} was removed before the run had ended, so "
            "Tidegate does not know what the run has done: look at the group's offsets"
        )
        return halted(draft, current, RUN_LOST, message)
    if seen.spec is not None and current.started_at is not None and _late(seen, current, seen.spec):
        trouble = f": {seen.trouble}" if seen.trouble else ""
        message = f"reset {draft.seen.run_id} could not begin within its deadline{trouble}. Nothing was changed"
        return end(draft, ResetPhase.FAILED, DEADLINE_EXCEEDED, message)
    start = seen.start
    refusal = start.refusal if start is not None else None
    if start is not None and refusal is not None and (start.ends or refusal.reason == ALREADY_RAN):
        return end(draft, ResetPhase.FAILED, refusal.reason, f"{refusal.message}. Nothing was changed")
    if start is None or start.request is None:
        why = start and (start.refusal or start.waits_for)
        reason, message = (
            (why.reason, why.message) if why else (WAITING_FOR_CONNECTION, "this reset waits for its KafkaConnection")
        )
        draft.moving(reason, message)
        draft.complete_is(None, reason, message)
        return draft.decide(again_after_s=seen.tick_s)
    if seen.trouble:
        message = f"reset {seen.run_id} could not begin yet: {seen.trouble}. This is retried"
        draft.moving(WAITING_FOR_CONNECTION, message)
        draft.complete_is(None, WAITING_FOR_CONNECTION, message)
    if not seen.has_finalizer:
        return draft.decide(AddFinalizer(), again_after_s=0)
    # The request may differ from the one it began with: the connection may have changed since.
    draft.run(digest=digest_of(Run(start.request)))
    return draft.decide(CreateRun(start.request), again_after_s=0)


def _late(seen: Seen, current: OffsetResetStatus, wanted: OffsetResetSpec) -> bool:
    return current.started_at is not None and seen.now > current.started_at + wanted.deadline
