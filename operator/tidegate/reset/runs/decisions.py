"""What to do next about an ``OffsetReset``: a pure function of what was seen, to one action of a closed set.

The status is the record of intent: it is written before the action is carried out, and an action is decided again from
what is written, so a process that dies between the two leaves nothing undecided. The run's own document (plan,
journal, result) is the truth about what was done; the status is a summary of it.

    Pending ─ started ─ finalizer ─ document ─ job launched ─ (phases of the journal) ─ result ─ finalizer gone
"""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from tidegate.jobs.runner import RunnerState
from tidegate.kube.ports import EventType
from tidegate.reset.binding import digest_of
from tidegate.reset.runs.actions import (
    Action,
    AddFinalizer,
    Approve,
    Decision,
    Draft,
    Fence,
    KeepLimits,
    Launch,
    LiftLimits,
    PauseAtEnd,
    RemoveFinalizer,
    TakeOver,
)
from tidegate.reset.runs.ending import (
    QUEUE_LOOK_S,
    conclude,
    end,
    end_forged,
    finish,
    foreign,
    leave,
    newer,
    why_forged,
    without_document,
)
from tidegate.reset.runs.progress import plan_awaits_approval, report
from tidegate.reset.runs.queue import InLine
from tidegate.reset.runs.reasons import (
    ALREADY_RAN,
    DEADLINE_EXCEEDED,
    INVALID_SPEC,
    JOB_FAILED,
    REPLAY_TIMED_OUT,
    WAITING_FOR_CONNECTION,
    WAITING_FOR_QUOTA,
    WAITING_FOR_RESET,
)
from tidegate.reset.runs.replaying import began, has_to_be_over_by, is_held, is_replaying, why_overdue
from tidegate.reset.runs.request import (
    NOTHING_TO_UNDO,
    UNDO_RUN_NOT_FOUND,
    launch_name,
    launch_number,
    run_uid,
)
from tidegate.reset.runs.seen import RunnerSeen, Seen, is_settled
from tidegate.reset.runs.waves import ROLLOUT_STOPPED, paused_until, pauses
from tidegate.reset.store import Run
from tidegate.resources.conditions import COMPLETE, Refusal, find_condition
from tidegate.resources.offset_reset import OffsetResetStatus
from tidegate.resources.reset import Engine, ResetPhase

DEADLINE_GRACE: Final = timedelta(seconds=5)
"""A job that runs keeps its deadline itself; it gets this long to do so before it is taken over."""


_IN_LINE: Final = (WAITING_FOR_RESET, WAITING_FOR_QUOTA)
"""What a reset waits for that other resets have."""

_LAST_BACKOFF_S: Final = 30.0

_WAITS_S: Final = 600.0
"""Between two looks at a plan that waits for approval, and at a run that has ended. An approval, a change and the end
of a job wake its pass; this is for what nobody tells of, such as a document that was removed."""

_BEFORE_S: Final = 0.85
"""Of the time until a deadline, before which its pass is to come; it asks again for the rest."""


def decide(seen: Seen) -> Decision:
    """The next step. Reads as a list of checks, the first that applies wins."""
    draft = Draft(seen, seen.status.model_copy(update={"observed_generation": seen.generation}))
    if seen.deleting_since is not None:
        return leave(draft, seen.deleting_since)
    current = seen.under_way
    forged = why_forged(seen)
    if forged:
        return end_forged(draft, current, forged)
    if seen.foreign:
        return foreign(draft, current)
    if seen.newer:
        return newer(draft)
    if current is not None:
        return _go_on(draft, current)
    if seen.spec is None:
        draft.stuck(INVALID_SPEC, seen.invalid)
        draft.tell(EventType.WARNING, INVALID_SPEC, seen.invalid, f"{seen.generation}/{INVALID_SPEC}")
        return draft.decide(_finalizer_to_remove(seen))
    if seen.has_finalizer:
        return draft.decide(RemoveFinalizer(), again_after_s=0)
    if is_settled(seen.status):
        return _rest(draft)
    return _begin(draft)


def _finalizer_to_remove(seen: Seen) -> Action | None:
    return RemoveFinalizer() if seen.has_finalizer else None


def _rest(draft: Draft) -> Decision:
    """It has ended: only the generation may be news."""
    seen, phase = draft.seen, draft.status.phase
    if phase is None:
        raise ValueError("only a run that has ended can rest")
    said = find_condition(draft.status.conditions, COMPLETE)
    reason = said.reason if said is not None else phase.value
    message = said.message if said is not None else f"reset {seen.run_id} ended as {phase.value}"
    conclude(draft, phase, reason, message)
    return draft.decide(again_after_s=_WAITS_S)


def _begin(draft: Draft) -> Decision:
    seen, start = draft.seen, draft.seen.start
    if start is None:
        raise ValueError("a run that is to begin needs to know with what")
    draft.run(run_uid=run_uid(seen.uid, seen.run_id), phase=ResetPhase.PENDING)
    if start.refusal is not None and start.refusal.reason in (UNDO_RUN_NOT_FOUND, NOTHING_TO_UNDO, ALREADY_RAN):
        # It asks for nothing else, and runs that have ended stay as they are: whoever waits for it need not.
        message = f"{start.refusal.message}. Nothing was changed"
        return end(draft, ResetPhase.FAILED, start.refusal.reason, message)
    if start.refusal is not None:
        draft.refuse(start.refusal)
        return draft.decide(again_after_s=10 * seen.tick_s)
    if start.waits_for is not None:
        waits = start.waits_for
        draft.moving(waits.reason, waits.message)
        draft.complete_is(None, waits.reason, waits.message)
        if waits.reason in _IN_LINE:
            draft.tell(EventType.NORMAL, waits.reason, waits.message, _told_of(seen, waits))
        return draft.decide(again_after_s=_look_s(waits), waiting=waits.reason in _IN_LINE)
    if start.request is None:
        raise ValueError("a run that may begin has a request")
    requester = seen.spec.requester if seen.spec is not None else None
    draft.run(started_at=seen.now, engine=start.engine, digest=digest_of(Run(start.request)), requester=requester)
    message = f"reset {seen.run_id} begins, engine {start.engine.value}"
    draft.moving(ResetPhase.PENDING.value, message)
    draft.complete_is(None, ResetPhase.PENDING.value, message)
    draft.tell(EventType.NORMAL, ResetPhase.PENDING.value, message, f"{seen.run_id}/{ResetPhase.PENDING.value}")
    return draft.decide(again_after_s=0)


def _look_s(waits: Refusal) -> float:
    return waits.again_after_s if isinstance(waits, InLine) else QUEUE_LOOK_S


def _told_of(seen: Seen, waits: Refusal) -> str:
    """How many others are in line for the quota changes all the time, and is in the condition."""
    what = waits.reason if waits.reason == WAITING_FOR_QUOTA else waits.message
    return f"{seen.run_id}/{waits.reason}/{what}"


def _go_on(draft: Draft, current: OffsetResetStatus) -> Decision:
    seen, run = draft.seen, draft.seen.run
    if run is None:
        return without_document(draft, current)
    if seen.runner is not None and seen.runner.status.forged:
        # Whatever the document says by now: it is not what the job had been told to find there, or had written.
        return end_forged(draft, current, f"the job of reset {seen.run_id} was ended: {seen.runner.status.message}")
    if run.result is not None:
        return _stay(draft, current, run) if is_held(run) else finish(draft, current, run, run.result)
    report(draft, current, run)
    if not seen.has_finalizer:
        return draft.decide(AddFinalizer(), again_after_s=0)
    over = _overdue(seen, run)
    if over is not None:
        return draft.decide(over, again_after_s=seen.tick_s)
    if plan_awaits_approval(run):
        approval = seen.approval if seen.approval is not None and seen.approval.plan == run.digest else None
        if approval is None and run.digest != current.approved_digest:
            return draft.decide(again_after_s=_until_approved_s(seen, run))
        if seen.behind is not None:
            message = f"reset {seen.run_id} is approved. {seen.behind.message}"
            draft.moving(seen.behind.reason, message)
            draft.complete_is(None, seen.behind.reason, message)
            draft.tell(EventType.NORMAL, seen.behind.reason, seen.behind.message, _told_of(seen, seen.behind))
            return draft.decide(again_after_s=_look_s(seen.behind), waiting=seen.behind.reason in _IN_LINE)
        if approval is not None and run.digest != current.approved_digest:
            draft.approved(approval)
        return draft.decide(Approve(), again_after_s=0)
    if seen.runner is None:
        # Its engine is not to be had now (the operator was restarted without it); the deadline bounds the wait.
        message = f"reset {seen.run_id} waits for its engine, {current.engine.value if current.engine else 'Auto'}"
        draft.moving("EngineUnavailable", message)
        return draft.decide(again_after_s=5 * seen.tick_s)
    return _supervise(draft, current, run, seen.runner)


def _until_approved_s(seen: Seen, run: Run) -> float:
    """A job that still runs gathers evidence, and not every runner tells of its end; then only the deadline comes."""
    deadline = run.request.settings.deadline
    if seen.runner is not None and seen.runner.status.state is RunnerState.RUNNING:
        return seen.tick_s
    if deadline is None:
        return _WAITS_S
    return min(_WAITS_S, max(seen.tick_s, _BEFORE_S * (deadline - seen.now).total_seconds()))


def _overdue(seen: Seen, run: Run) -> TakeOver | None:
    deadline = has_to_be_over_by(run)
    if deadline is None or seen.now <= deadline:
        return None
    alive = seen.runner is not None and seen.runner.status.state is RunnerState.RUNNING
    if alive and seen.now <= deadline + DEADLINE_GRACE:
        return None
    if began(run) is not None:
        return TakeOver(REPLAY_TIMED_OUT, why_overdue(run))
    if seen.behind is not None:
        where = f"its plan was approved, but the reset could not go ahead ({seen.behind.message})"
    else:
        where = "its plan was not approved" if plan_awaits_approval(run) else "it had not ended"
    return TakeOver(DEADLINE_EXCEEDED, f"reset {run.request.run_id} passed its deadline: {where} in time")


def _supervise(draft: Draft, current: OffsetResetStatus, run: Run, runner: RunnerSeen) -> Decision:
    """Keep a job at work: launch it, and when it died without a result fence it and launch another."""
    seen, number = draft.seen, launch_number(current.application)
    if runner.status.state is RunnerState.RUNNING:
        return draft.decide(again_after_s=seen.tick_s)
    if not seen.connected:
        # So it is just after this process was started. A job would die at once, and count as one that did.
        draft.moving(WAITING_FOR_CONNECTION, f"reset {seen.run_id} waits until its KafkaConnection is open")
        return draft.decide(again_after_s=seen.tick_s)
    if number == 0:
        return _launch(draft, 1, runner.engine)
    if is_replaying(run):
        return _replay(draft, number, runner)
    # Whose jobs that ended for a pause have not died.
    tries = number - pauses(run)
    until = paused_until(run)
    if until is not None:
        if seen.now < until:
            return draft.decide(again_after_s=min(_WAITS_S, max(seen.tick_s, (until - seen.now).total_seconds())))
        if seen.withdrawn:
            why = "the reset may no longer use its KafkaConnection from this namespace, so no other wave begins"
            return draft.decide(TakeOver(ROLLOUT_STOPPED, why), again_after_s=seen.tick_s)
        if tries < seen.max_launches and _backoff_left_s(seen, runner, tries) <= 0:
            return _launch(draft, number + 1, runner.engine)
    # One for which the last of the jobs that may plan it has made a plan is to be applied as well.
    if _ended_well(run) and tries <= seen.max_launches and _backoff_left_s(seen, runner, tries) <= 0:
        return _launch(draft, number + 1, runner.engine)
    if runner.status.state is RunnerState.LOST and not runner.started_here and run.attempt == 0:
        # Written down, and then this process's predecessor died before it could start it, or just after.
        return draft.decide(Launch(launch_name(seen.run_document, number)), again_after_s=seen.tick_s)
    if runner.fenced < number:
        return draft.decide(Fence(number), again_after_s=0)
    # One that finds that a replay is not over yet, or Kafka away, ends without a result; time bounds that.
    if tries >= seen.max_launches and began(run) is None:
        why = runner.status.message or seen.trouble
        detail = f": {why}" if why else ""
        message = f"the job of reset {seen.run_id} ended {tries} times without a result{detail}"
        return draft.decide(TakeOver(JOB_FAILED, message), again_after_s=seen.tick_s)
    wait_s = _backoff_left_s(seen, runner, tries)
    if wait_s > 0:
        detail = f" ({runner.status.message})" if runner.status.message else ""
        draft.moving(
            "JobRestarting",
            f"the job of reset {seen.run_id} ended without a result{detail}; the operator starts another one",
        )
        return draft.decide(again_after_s=wait_s)
    return _launch(draft, number + 1, runner.engine)


def _replay(draft: Draft, number: int, runner: RunnerSeen) -> Decision:
    """No job is at work while the group reads; one moves it on once every partition has reached its end."""
    seen, replayed = draft.seen, draft.seen.replay
    if replayed is not None and replayed.missing:
        return draft.decide(KeepLimits(), again_after_s=seen.tick_s)
    if replayed is not None and replayed.is_over:
        return _launch(draft, number + 1, runner.engine)
    return draft.decide(again_after_s=seen.tick_s)


def _stay(draft: Draft, current: OffsetResetStatus, run: Run) -> Decision:
    """The group's offsets are the ends of its replay, and its limits keep it there until a pause does."""
    seen, replayed, pause = draft.seen, draft.seen.replay, draft.seen.pause
    if run.result is None:
        raise ValueError("a group stays where it is once its run has a result")
    if pause is not None and pause.is_paused and replayed is not None and replayed.is_unlimited:
        return finish(draft, current, run, run.result)
    report(draft, current, run)
    draft.run(phase=ResetPhase.REPLAYING)
    if not seen.has_finalizer:
        return draft.decide(AddFinalizer(), again_after_s=0)
    if replayed is None or pause is None:
        _say_waiting(draft, seen.trouble or "the operator waits until its KafkaConnection is open")
        return draft.decide(again_after_s=seen.tick_s)
    if pause.is_paused:
        return draft.decide(LiftLimits(), again_after_s=seen.tick_s)
    _say_waiting(draft, pause.waits_for or seen.trouble or f"ConsumerGroupPause {pause.name} is being created")
    if replayed.missing:
        return draft.decide(KeepLimits(), again_after_s=seen.tick_s)
    return draft.decide(None if pause.is_there else PauseAtEnd(), again_after_s=seen.tick_s)


def _say_waiting(draft: Draft, why: str) -> None:
    """Of a replay that is over, and whose group is not paused yet."""
    replay = draft.status.replay
    if replay is not None:
        draft.run(replay=replay.model_copy(update={"waits_for": why}))
    draft.moving(ResetPhase.REPLAYING.value, f"the replay of reset {draft.seen.run_id} has reached its end; {why}")


def _ended_well(run: Run) -> bool:
    """Whether the last job that has begun ended as it should: it made the plan that has been approved since."""
    last = run.last
    return (
        run.approved
        and last is not None
        and last.phase is ResetPhase.AWAITING_APPROVAL
        and last.attempt == run.attempt
        # Else it has begun to apply it.
        and not last.waits_for
    )


def _backoff_left_s(seen: Seen, runner: RunnerSeen, tries: int) -> float:
    # The first successor starts at once: mostly it was the operator that was restarted.
    if runner.died_at is None or tries < 2:
        return 0.0
    pause_s = min(_LAST_BACKOFF_S, 2.0 ** (tries - 2))
    return max(0.0, pause_s - (seen.now - runner.died_at).total_seconds())


def _launch(draft: Draft, number: int, engine: Engine) -> Decision:
    name = launch_name(draft.seen.run_document, number)
    draft.run(application=name, engine=engine)
    return draft.decide(Launch(name), again_after_s=draft.seen.tick_s)
