"""What to do next about a policy's reset: a pure function of what was seen, to one action of a closed set.

The status is the record of intent: it is written before the action is carried out, and an action is decided again from
what is written, so a process that dies between the two leaves nothing undecided. The run's own document (plan,
journal, result) is the truth about what was done; the status is a summary of it.

    Pending ─ started ─ finalizer ─ document ─ job launched ─ (phases of the journal) ─ result ─ finalizer gone
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final, TypedDict

from tidegate.jobs.runner import RunnerState, RunnerStatus
from tidegate.kube.ports import EventType, KubeEvent
from tidegate.reset.binding import digest_of, digest_of_end
from tidegate.reset.model import FleetCounts, FleetPlan, Phase, Plan, Progress, RunRequest, RunResult, span
from tidegate.reset.runs.request import (
    NOTHING_TO_UNDO,
    UNDO_RUN_NOT_FOUND,
    Refusal,
    launch_name,
    launch_number,
    run_uid,
)
from tidegate.reset.store import Run
from tidegate.resources.conditions import (
    READ_FROM_TARGET,
    RESET,
    Condition,
    find_condition,
    ready,
    reconciling,
    stalled,
    with_condition,
    without_condition,
)
from tidegate.resources.policy import MAX_HISTORY, OffsetResetPolicySpec, PolicyStatus
from tidegate.resources.reset import (
    MAX_GROUP_FAILURES,
    Engine,
    FleetStatus,
    GroupFailure,
    PlanStatus,
    ResetPhase,
    ResetSpec,
    ResetStatus,
    ResetWay,
    RunHistory,
    SearchStatus,
    StandstillStatus,
)

FINALIZER: Final = "tidegate.io/reset-under-way"
APPROVE: Final = "tidegate.io/approve"
ABANDON: Final = "tidegate.io/abandon"

INVALID_SPEC: Final = "InvalidSpec"
NO_RESET: Final = "NoReset"
ALREADY_RAN: Final = "AlreadyRan"
WAITING_FOR_POLICY: Final = "WaitingForPolicy"
WAITING_FOR_CONNECTION: Final = "WaitingForConnection"
DEADLINE_EXCEEDED: Final = "DeadlineExceeded"
SUPERSEDED: Final = "Superseded"
DELETED: Final = "Deleted"
RUN_LOST: Final = "RunLost"
FOREIGN_RUN: Final = "ForeignRun"
FORGED: Final = "Forged"
JOB_FAILED: Final = "JobFailed"
READING: Final = "Reading"
NOT_KNOWN_YET: Final = "NotKnownYet"
NOT_LOOKED_AT: Final = "NotLookedAt"
ABANDONED: Final = "Abandoned"

DEADLINE_GRACE: Final = timedelta(seconds=5)
"""A job that runs keeps its deadline itself; it gets this long to do so before it is taken over."""

_SHOWN: Final = 80
"""As much of what an annotation says is repeated in a message."""

_LAST_BACKOFF_S: Final = 30.0
_QUEUE_LOOK_S: Final = 2.0
_REST_S: Final = 60.0


# --- what is seen -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RunnerSeen:
    """The runner of this run. ``started_here``: this process launched the newest launch, so LOST means it died.

    ``fenced``: the newest launch that was found dead and whose transaction was ended. ``died_at``: when that was.
    """

    engine: Engine
    status: RunnerStatus = field(default_factory=lambda: RunnerStatus(RunnerState.LOST))
    started_here: bool = False
    fenced: int = 0
    died_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Start:
    """All that a new run needs; or ``refusal``, or ``waits_for``: why it can't begin now.

    ``waits_for`` is a reason and a message too, but of something that passes by itself.
    """

    refusal: Refusal | None = None
    waits_for: Refusal | None = None
    engine: Engine = Engine.DIRECT
    request: RunRequest | None = None


@dataclass(frozen=True, slots=True)
class Seen:
    """One policy as a pass finds it. ``invalid``: why the spec can't be read; then ``spec`` is ``None``.

    ``run``: the document of :attr:`run_id`, ``None`` when there is none, or ``foreign``: why it is not this policy's,
    or ``forged``: why it is not the one that the status knows. ``halted``: everything that worked on the run was ended,
    and its gates opened; ``unhalted``: why a brief try at that failed. ``connected``: whether a job would find its
    connections open. ``approval``: what the annotation says. ``behind``: why a plan that is approved has to wait.
    ``trouble``: why the last effect failed.
    """

    uid: str
    generation: int
    spec: OffsetResetPolicySpec | None
    status: PolicyStatus
    now: datetime
    run_document: str = ""
    run: Run | None = None
    foreign: str = ""
    forged: str = ""
    halted: bool = False
    unhalted: str = ""
    runner: RunnerSeen | None = None
    connected: bool = True
    start: Start | None = None
    behind: Refusal | None = None
    invalid: str = ""
    approval: str | None = None
    abandoned: bool = False
    deleting_since: datetime | None = None
    has_finalizer: bool = False
    deletion_limit: timedelta = timedelta(minutes=2)
    max_launches: int = 12
    tick_s: float = 1.0
    trouble: str = ""

    @property
    def wanted(self) -> ResetSpec | None:
        return self.spec.reset if self.spec is not None else None

    @property
    def under_way(self) -> ResetStatus | None:
        """The run that the status says was started and has not ended."""
        return under_way(self.status)


def under_way(status: PolicyStatus) -> ResetStatus | None:
    reset = status.reset
    if reset is None or reset.started_at is None or Phase(reset.phase.value).is_final:
        return None
    return reset


def awaits_approval(current: ResetStatus) -> bool:
    """Whether a run that is under way has a plan that nobody has approved, or that was not let go ahead yet."""
    return current.phase is ResetPhase.AWAITING_APPROVAL and current.approved_digest is None


def may_hold(current: ResetStatus) -> bool:
    """Whether a job of the run may have closed gates."""
    return current.application is not None and not awaits_approval(current)


def is_settled(status: PolicyStatus, wanted: ResetSpec | None) -> bool:
    """Whether this id has run to its end, by the status."""
    reset = status.reset
    return reset is not None and wanted is not None and reset.id == wanted.id and Phase(reset.phase.value).is_final


# --- what is done -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class AddFinalizer:
    """Keep the policy until its run is settled."""


@dataclass(frozen=True, slots=True)
class RemoveFinalizer:
    """Nothing is under way: the policy may go."""


@dataclass(frozen=True, slots=True)
class CreateRun:
    """Store the request; the job will find it there."""

    request: RunRequest


@dataclass(frozen=True, slots=True)
class Launch:
    """Start the job under this name."""

    name: str


@dataclass(frozen=True, slots=True)
class Approve:
    """Note in the run's document that its plan was approved."""


@dataclass(frozen=True, slots=True)
class Fence:
    """The job of this launch died: end what it left open in Kafka, so that nobody waits for it."""

    launch: int


@dataclass(frozen=True, slots=True)
class TakeOver:
    """Stop the job and settle the run for good: offsets back where needed, final result."""

    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Halt:
    """End the run's job and what that left open in Kafka, and open the run's gates. Nothing is put back: where to is in
    a document that is forged, foreign or gone, or nobody waits for it any more. ``briefly``: once and within moments;
    what it fails to open is left to the sweep.
    """

    briefly: bool = False


Action = AddFinalizer | RemoveFinalizer | CreateRun | Launch | Approve | Fence | TakeOver | Halt


@dataclass(frozen=True, slots=True)
class Decision:
    """The status to write, then what to tell, then at most one action. ``again_after_s`` 0: look again at once."""

    status: PolicyStatus
    action: Action | None = None
    happenings: tuple[KubeEvent, ...] = ()
    again_after_s: float = _REST_S
    waiting: bool = False


class _Stamp(TypedDict):
    generation: int
    now: datetime


@dataclass(slots=True)
class _Draft:
    """A decision in the making."""

    seen: Seen
    status: PolicyStatus
    happenings: list[KubeEvent] = field(default_factory=list)

    def moving(self, reason: str, message: str) -> None:
        self._set(reconciling(self.status.conditions, reason=reason, message=message, **self._stamp()))

    def stuck(self, reason: str, message: str) -> None:
        self._set(stalled(self.status.conditions, reason=reason, message=message, **self._stamp()))

    def well(self, reason: str, message: str) -> None:
        self._set(ready(self.status.conditions, reason=reason, message=message, **self._stamp()))

    def reset_is(self, value: bool | None, reason: str, message: str) -> None:
        self._set(with_condition(self.status.conditions, RESET, value, reason=reason, message=message, **self._stamp()))

    def read_is(self, value: bool | None, reason: str, message: str) -> None:
        self._set(
            with_condition(
                self.status.conditions, READ_FROM_TARGET, value, reason=reason, message=message, **self._stamp()
            )
        )

    def show(self, reset: ResetStatus) -> None:
        """Put another reset into ``status.reset``, and forget what was said of the one there before."""
        self.status = self.status.model_copy(update={"reset": reset})
        self._set(without_condition(self.status.conditions, READ_FROM_TARGET))

    def run(self, **changes: object) -> None:
        """Change ``status.reset``."""
        if self.status.reset is None:
            raise ValueError("there is no run to change")
        self.status = self.status.model_copy(update={"reset": self.status.reset.model_copy(update=changes)})

    def refuse(self, refusal: Refusal) -> None:
        run_id = self.seen.wanted.id if self.seen.wanted is not None else ""
        self.tell(
            EventType.WARNING, refusal.reason, refusal.message, f"{run_id}/{self.seen.generation}/{refusal.reason}"
        )
        self.reset_is(False, refusal.reason, refusal.message)
        self.stuck(refusal.reason, refusal.message)

    def tell(self, kind: EventType, reason: str, message: str, key: str) -> None:
        self.happenings.append(KubeEvent(kind, reason, message, key))

    def decide(
        self, action: Action | None = None, *, again_after_s: float = _REST_S, waiting: bool = False
    ) -> Decision:
        return Decision(self.status, action, tuple(self.happenings), again_after_s, waiting)

    def _set(self, conditions: tuple[Condition, ...]) -> None:
        self.status = self.status.model_copy(update={"conditions": conditions})

    def _stamp(self) -> _Stamp:
        return _Stamp(generation=self.seen.generation, now=self.seen.now)


# --- the decision -----------------------------------------------------------------------------------------------------


def run_id_of(status: PolicyStatus, wanted: ResetSpec | None) -> str | None:
    """Whose document a pass reads: the run under way's, or that of the one asked for and not known to have ended."""
    current = under_way(status)
    if current is not None:
        return current.id
    return None if wanted is None or is_settled(status, wanted) else wanted.id


def history_of(status: PolicyStatus, run_id: str) -> RunHistory | None:
    return next((entry for entry in status.history if entry.id == run_id), None)


def decide(seen: Seen) -> Decision:
    """The next step. Reads as a list of checks, the first that applies wins."""
    draft = _Draft(seen, seen.status.model_copy(update={"observed_generation": seen.generation}))
    if seen.deleting_since is not None:
        return _leave(draft, seen.deleting_since)
    current, wanted = seen.under_way, seen.wanted
    forged = _why_forged(seen)
    if forged:
        return _forged(draft, current, forged)
    if seen.foreign:
        return _foreign(draft, current)
    if current is not None:
        if seen.spec is not None and (wanted is None or wanted.id != current.id):
            return _supersede(draft, current)
        return _go_on(draft, current)
    if seen.spec is None:
        draft.stuck(INVALID_SPEC, seen.invalid)
        draft.tell(EventType.WARNING, INVALID_SPEC, seen.invalid, f"{seen.generation}/{INVALID_SPEC}")
        return draft.decide(_finalizer_to_remove(seen))
    if seen.has_finalizer:
        return draft.decide(RemoveFinalizer(), again_after_s=0)
    if wanted is None:
        return _idle(draft)
    if is_settled(seen.status, wanted):
        return _rest(draft)
    past = history_of(seen.status, wanted.id)
    if past is not None:
        return _ran_before(draft, past)
    return _begin(draft, wanted)


def _finalizer_to_remove(seen: Seen) -> Action | None:
    return RemoveFinalizer() if seen.has_finalizer else None


def _idle(draft: _Draft) -> Decision:
    if draft.status.reset is not None and draft.status.reset.started_at is None:
        # It was asked for, refused or kept waiting, and is no longer asked for.
        draft.status = draft.status.model_copy(
            update={"reset": None, "conditions": without_condition(draft.status.conditions, RESET)}
        )
    draft.well(NO_RESET, "no reset is asked for")
    return draft.decide()


def _rest(draft: _Draft) -> Decision:
    """This id has ended: only the generation may be news."""
    reset = draft.status.reset
    said = find_condition(draft.status.conditions, RESET)
    if reset is None:
        raise ValueError("only a run that has ended can rest")
    reason = said.reason if said is not None else reset.phase.value
    message = said.message if said is not None else f"reset {reset.id} ended as {reset.phase.value}"
    _conclude(draft, reset.phase, reason, message)
    return draft.decide()


def _conclude(draft: _Draft, phase: ResetPhase, reason: str, message: str) -> None:
    succeeded = phase is ResetPhase.SUCCEEDED
    draft.reset_is(succeeded, reason, message)
    (draft.well if succeeded else draft.stuck)(reason, message)


def _ran_before(draft: _Draft, past: RunHistory) -> Decision:
    """An id that ran before never runs again."""
    seen = draft.seen
    message = (
        f"reset {past.id} ran before and ended as {past.phase.value}; it does not run again: "
        "give spec.reset.id a new value"
    )
    reset = ResetStatus(
        id=past.id,
        run_uid=run_uid(seen.uid, past.id),
        phase=past.phase,
        finished_at=past.finished_at,
        plan=PlanStatus(
            config_map=past.plan, records_replayed=past.records_replayed, records_skipped=past.records_skipped
        ),
    )
    draft.show(reset)
    draft.tell(EventType.WARNING, ALREADY_RAN, message, f"{past.id}/{seen.generation}/{ALREADY_RAN}")
    _conclude(draft, past.phase, ALREADY_RAN, message)
    return draft.decide()


# --- beginning --------------------------------------------------------------------------------------------------------


def _begin(draft: _Draft, wanted: ResetSpec) -> Decision:
    seen, start = draft.seen, draft.seen.start
    if start is None:
        raise ValueError("a run that is to begin needs to know with what")
    reset = ResetStatus(id=wanted.id, run_uid=run_uid(seen.uid, wanted.id), phase=ResetPhase.PENDING)
    draft.show(reset)
    if start.refusal is not None and start.refusal.reason in (UNDO_RUN_NOT_FOUND, NOTHING_TO_UNDO):
        # Its id asks for nothing else, and runs that have ended stay as they are: whoever waits for it need not.
        message = f"{start.refusal.message}. Nothing was changed"
        return _end(draft, reset, ResetPhase.FAILED, start.refusal.reason, message)
    if start.refusal is not None:
        draft.refuse(start.refusal)
        return draft.decide(again_after_s=10 * seen.tick_s)
    if start.waits_for is not None:
        waits = start.waits_for
        draft.moving(waits.reason, waits.message)
        draft.reset_is(None, waits.reason, waits.message)
        if waits.reason == WAITING_FOR_POLICY:
            draft.tell(EventType.NORMAL, waits.reason, waits.message, f"{wanted.id}/{waits.reason}/{waits.message}")
        return draft.decide(again_after_s=_QUEUE_LOOK_S, waiting=waits.reason == WAITING_FOR_POLICY)
    if start.request is None:
        raise ValueError("a run that may begin has a request")
    draft.run(started_at=seen.now, engine=start.engine, digest=digest_of(Run(start.request)))
    message = f"reset {wanted.id} begins, engine {start.engine.value}"
    draft.moving(ResetPhase.PENDING.value, message)
    draft.reset_is(None, ResetPhase.PENDING.value, message)
    draft.tell(EventType.NORMAL, ResetPhase.PENDING.value, message, f"{wanted.id}/{ResetPhase.PENDING.value}")
    return draft.decide(again_after_s=0)


# --- going on ---------------------------------------------------------------------------------------------------------


def _go_on(draft: _Draft, current: ResetStatus) -> Decision:
    seen, run = draft.seen, draft.seen.run
    if run is None:
        return _without_document(draft, current)
    if seen.runner is not None and seen.runner.status.forged:
        # Whatever the document says by now: it is not what the job had been told to find there, or had written.
        return _forged(draft, current, f"the job of reset {current.id} was ended: {seen.runner.status.message}")
    if run.result is not None:
        return _finish(draft, current, run, run.result)
    _report(draft, current, run)
    if not seen.has_finalizer:
        return draft.decide(AddFinalizer(), again_after_s=0)
    over = _overdue(seen, run)
    if over is not None:
        return draft.decide(over, again_after_s=seen.tick_s)
    if _awaits_approval(run):
        if run.digest not in (seen.approval, current.approved_digest):
            return draft.decide(again_after_s=seen.tick_s)
        if seen.behind is not None:
            draft.moving(seen.behind.reason, f"reset {current.id} is approved. {seen.behind.message}")
            draft.tell(EventType.NORMAL, seen.behind.reason, seen.behind.message, f"{current.id}/{seen.behind.message}")
            return draft.decide(again_after_s=_QUEUE_LOOK_S, waiting=seen.behind.reason == WAITING_FOR_POLICY)
        draft.run(approved_digest=run.digest)
        return draft.decide(Approve(), again_after_s=0)
    if seen.runner is None:
        # Its engine is not to be had now (the operator was restarted without it); the deadline bounds the wait.
        message = f"reset {current.id} waits for its engine, {current.engine.value if current.engine else 'Auto'}"
        draft.moving("EngineUnavailable", message)
        return draft.decide(again_after_s=5 * seen.tick_s)
    return _supervise(draft, current, run, seen.runner)


def _without_document(draft: _Draft, current: ResetStatus) -> Decision:
    seen = draft.seen
    if current.phase is not ResetPhase.PENDING:
        message = (
            f"the ConfigMap {seen.run_document} of reset {current.id} was removed while it was under way: what it has "
            "done is not known. Look at the group's offsets"
        )
        return _halted(draft, current, RUN_LOST, message)
    if seen.wanted is not None and current.started_at is not None and _late(seen, current, seen.wanted):
        message = f"reset {current.id} could not begin within its deadline. Nothing was changed"
        return _end(draft, current, ResetPhase.FAILED, DEADLINE_EXCEEDED, message)
    start = seen.start
    if start is None or start.request is None:
        why = start and (start.refusal or start.waits_for)
        draft.moving(why.reason if why else WAITING_FOR_CONNECTION, why.message if why else "waits for its connection")
        return draft.decide(again_after_s=seen.tick_s)
    if not seen.has_finalizer:
        return draft.decide(AddFinalizer(), again_after_s=0)
    # The request may differ from the one it began with: the connection may have changed since.
    draft.run(digest=digest_of(Run(start.request)))
    return draft.decide(CreateRun(start.request), again_after_s=0)


def _foreign(draft: _Draft, current: ResetStatus | None) -> Decision:
    """Not even put back: where to is in a document that somebody else has written."""
    message = draft.seen.foreign
    if current is None:
        draft.refuse(Refusal(FOREIGN_RUN, message))
        return draft.decide(again_after_s=_QUEUE_LOOK_S)
    message = f"{message}. What reset {current.id} had done is not known: look at the group's offsets"
    return _halted(draft, current, FOREIGN_RUN, message)


def _halted(draft: _Draft, current: ResetStatus, reason: str, message: str) -> Decision:
    """The run ends without its document; nobody is left then to let go of what its job holds."""
    if _is_to_be_halted(draft.seen, current):
        return _halt(draft, current, reason, message, briefly=True)
    return _end(draft, current, ResetPhase.FAILED, reason, f"{message}{_left_closed(draft.seen)}")


def _is_to_be_halted(seen: Seen, current: ResetStatus) -> bool:
    return may_hold(current) and not seen.halted and not seen.unhalted


def _left_closed(seen: Seen) -> str:
    if not seen.unhalted:
        return ""
    return (
        f". Its gates may still be closed ({seen.unhalted}): the operator opens them as soon as Kafka lets it, and "
        "tells so in an Event of the KafkaConnection"
    )


def _why_forged(seen: Seen) -> str:
    """What was found forged stays so, though the document may be put right again before the run has ended."""
    if seen.forged:
        return seen.forged
    said = find_condition(seen.status.conditions, RESET)
    return said.message if seen.under_way is not None and said is not None and said.reason == FORGED else ""


def _forged(draft: _Draft, current: ResetStatus | None, message: str) -> Decision:
    seen = draft.seen
    if current is None:
        draft.refuse(Refusal(FORGED, message))
        return draft.decide(again_after_s=_QUEUE_LOOK_S)
    if not seen.halted:
        return _halt(draft, current, FORGED, message)
    if current.application is None or (current.phase is ResetPhase.AWAITING_APPROVAL and not current.approved_digest):
        done = "Nothing was changed"
    else:
        done = f"What reset {current.id} had done by then is not known: look at the group's offsets"
    return _end(draft, current, ResetPhase.FAILED, FORGED, f"{message}. {done}")


def _halt(draft: _Draft, current: ResetStatus, reason: str, message: str, *, briefly: bool = False) -> Decision:
    waiting = f". Waiting: {draft.seen.trouble}" if draft.seen.trouble else ""
    draft.moving(reason, f"{message}{waiting}")
    draft.reset_is(None, reason, message)
    draft.tell(EventType.WARNING, reason, message, f"{current.id}/{reason}")
    return draft.decide(Halt(briefly), again_after_s=0)


def _late(seen: Seen, current: ResetStatus, wanted: ResetSpec) -> bool:
    return current.started_at is not None and seen.now > current.started_at + wanted.deadline


def _overdue(seen: Seen, run: Run) -> TakeOver | None:
    deadline = run.request.settings.deadline
    if deadline is None or seen.now <= deadline:
        return None
    alive = seen.runner is not None and seen.runner.status.state is RunnerState.RUNNING
    if alive and seen.now <= deadline + DEADLINE_GRACE:
        return None
    where = "its plan was not approved" if _awaits_approval(run) else "it was not over"
    return TakeOver(DEADLINE_EXCEEDED, f"reset {run.request.run_id} passed its deadline: {where} in time")


def _awaits_approval(run: Run) -> bool:
    return run.request.manual_approval and run.is_planned and not run.approved


def _supervise(draft: _Draft, current: ResetStatus, run: Run, runner: RunnerSeen) -> Decision:
    """Keep a job at work: launch it, and when it died without a result fence it and launch another."""
    seen, number = draft.seen, launch_number(current.application)
    if runner.status.state is RunnerState.RUNNING:
        return draft.decide(again_after_s=seen.tick_s)
    if not seen.connected:
        # So it is just after this process was started. A job would die at once, and count as one that did.
        draft.moving(WAITING_FOR_CONNECTION, f"reset {current.id} waits until its KafkaConnection is open")
        return draft.decide(again_after_s=seen.tick_s)
    if number == 0:
        return _launch(draft, 1, runner.engine)
    if _ended_well(run):
        return _launch(draft, number + 1, runner.engine)
    if runner.status.state is RunnerState.LOST and not runner.started_here and run.attempt == 0:
        # Written down, and then this process's predecessor died before it could start it, or just after.
        return draft.decide(Launch(launch_name(seen.run_document, number)), again_after_s=seen.tick_s)
    if runner.fenced < number:
        return draft.decide(Fence(number), again_after_s=0)
    if number >= seen.max_launches:
        why = runner.status.message or seen.trouble
        detail = f": {why}" if why else ""
        message = f"the job of reset {current.id} ended {number} times without a result{detail}"
        return draft.decide(TakeOver(JOB_FAILED, message), again_after_s=seen.tick_s)
    wait_s = _backoff_left_s(seen, runner, number)
    if wait_s > 0:
        detail = f" ({runner.status.message})" if runner.status.message else ""
        draft.moving(
            "JobRestarting", f"the job of reset {current.id} ended without a result{detail}; another one is started"
        )
        return draft.decide(again_after_s=wait_s)
    return _launch(draft, number + 1, runner.engine)


def _ended_well(run: Run) -> bool:
    """Whether the last job ended as it should: it made the plan that has been approved since."""
    return run.approved and run.last is not None and run.last.phase is Phase.AWAITING_APPROVAL


def _backoff_left_s(seen: Seen, runner: RunnerSeen, number: int) -> float:
    # The first successor starts at once: mostly it was the operator that was restarted.
    if runner.died_at is None or number < 2:
        return 0.0
    pause_s = min(_LAST_BACKOFF_S, 2.0 ** (number - 2))
    return max(0.0, pause_s - (seen.now - runner.died_at).total_seconds())


def _launch(draft: _Draft, number: int, engine: Engine) -> Decision:
    name = launch_name(draft.seen.run_document, number)
    draft.run(application=name, engine=engine)
    return draft.decide(Launch(name), again_after_s=draft.seen.tick_s)


# --- reporting --------------------------------------------------------------------------------------------------------


def phase_of(run: Run) -> Phase:
    """The phase of a run that has not ended, from its journal."""
    if _awaits_approval(run):
        return Phase.AWAITING_APPROVAL
    if run.last is None or run.last.phase.is_final or run.last.phase is Phase.PENDING:
        return Phase.PLANNING
    return run.last.phase


def _report(draft: _Draft, current: ResetStatus, run: Run) -> None:
    """Take the phase, the way and the plan over into the status, and tell of every phase that is new."""
    phase = phase_of(run)
    way = run.last.way if run.last is not None else None
    draft.run(
        phase=ResetPhase(phase.value),
        way=current.way if way is None else ResetWay(way.value),
        search=_search_status(current, run),
        fleet=_fleet_status(run),
        plan=plan_status(draft.seen.run_document, run.plan or run.fleet),
        digest=run.digest or current.digest,
    )
    message = _progress_message(run, phase)
    if phase is Phase.AWAITING_APPROVAL and draft.seen.approval not in (None, run.digest):
        named = (draft.seen.approval or "")[:_SHOWN]
        message = f"{message}. As it is now, {named!r}, it approves nothing: a plan is approved by its digest"
    waits_for = draft.seen.trouble or (run.last.waits_for if run.last is not None else "")
    if waits_for:
        message = f"{message}. Waiting: {waits_for}"
    _tell_phases(draft, run)
    if phase is Phase.AWAITING_APPROVAL:
        draft.tell(EventType.NORMAL, phase.value, message, f"{current.id}/{phase.value}")
    draft.moving(phase.value, message)
    draft.reset_is(None, phase.value, message)


def _tell_phases(draft: _Draft, run: Run) -> None:
    for step in _first_of_each(run.journal):
        if step.phase.is_final or step.phase is Phase.AWAITING_APPROVAL:
            continue
        message = step.message or _progress_message(run, step.phase)
        draft.tell(EventType.NORMAL, step.phase.value, message, f"{run.request.run_id}/{step.phase.value}")


def _first_of_each(journal: Sequence[Progress]) -> Iterator[Progress]:
    told: set[Phase] = set()
    for step in journal:
        if step.phase not in told:
            told.add(step.phase)
            yield step


def _progress_message(run: Run, phase: Phase) -> str:
    run_id, whose, plan = run.request.run_id, _whose(run.request), run.plan or run.fleet
    match phase:
        case Phase.AWAITING_APPROVAL:
            return (
                f"reset {run_id} of {whose} is planned ({_effect(plan)}); "
                f"to approve it, set the annotation {APPROVE}: {run.digest}"
            )
        case Phase.PLANNING | Phase.PENDING:
            return f"reset {run_id} of {whose} is being planned"
        case _:
            return f"reset {run_id} of {whose}: {phase.value} ({_effect(plan)})"


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


def _fleet_status(run: Run) -> FleetStatus | None:
    """The counts of the run's end, or else the newest in its journal; groups without a plan are told of first."""
    if run.fleet is None:
        return None
    newest = next((line.counts for line in reversed(run.journal) if line.counts is not None), FleetCounts())
    counted = run.result.counts if run.result is not None and run.result.counts is not None else newest
    failures = [
        *(GroupFailure(group=g.group_id, reason=g.refused, message=g.message) for g in run.fleet.refused),
        *(GroupFailure(group=t.group_id, reason=t.reason, message=t.message) for t in counted.troubles),
    ]
    return FleetStatus(
        groups=len(run.fleet.groups),
        refused=len(run.fleet.refused),
        reset=counted.reset,
        failed=counted.failed,
        put_back=counted.put_back,
        failures=tuple(failures[:MAX_GROUP_FAILURES]),
    )


def _search_status(current: ResetStatus, run: Run) -> SearchStatus | None:
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
        records_replayed=plan.records_replayed,
        records_skipped=plan.records_skipped,
        from_=span_from,
        to=span_to,
    )


# --- ending -----------------------------------------------------------------------------------------------------------


def _finish(draft: _Draft, current: ResetStatus, run: Run, result: RunResult) -> Decision:
    standstill = None
    if result.standstill is not None:
        standstill = StandstillStatus(
            p50=timedelta(milliseconds=round(result.standstill.p50_s * 1000)),
            max=timedelta(milliseconds=round(result.standstill.max_s * 1000)),
        )
    draft.run(
        way=ResetWay(result.way.value) if result.way is not None else current.way,
        fleet=_fleet_status(run),
        plan=plan_status(draft.seen.run_document, run.plan or run.fleet),
        standstill=standstill,
        redone=result.redone,
        begun=result.begun,
        waiting=result.waiting,
        digest=run.digest or current.digest,
    )
    if result.phase is Phase.SUCCEEDED:
        _tell_reading(draft, run.request, result)
    _tell_phases(draft, run)
    return _end(draft, current, ResetPhase(result.phase.value), result.reason, result.message, result)


def _tell_reading(draft: _Draft, request: RunRequest, result: RunResult) -> None:
    """Whether its consumers read from the targets, as far as that was known at its end: nobody looks afterwards."""
    of = f"when reset {request.run_id} of {_whose(request)} ended"
    if result.begun is None or result.waiting is None:
        draft.read_is(None, NOT_LOOKED_AT, f"{of}, Kafka did not tell which partitions were read from their targets")
    elif result.waiting:
        more = result.waiting - len(result.unread)
        named = f": {', '.join(result.unread)}{f' and {more:,} more' if more else ''}" if result.unread else ""
        draft.read_is(
            None,
            NOT_KNOWN_YET,
            f"{of}, {result.waiting:,} partition(s) were not known to be read from their targets{named}. Consumers "
            "that commit rarely, have stopped polling, or are held by a pause are among them",
        )
    else:
        draft.read_is(
            True,
            READING,
            f"{of}, {result.begun:,} partition(s) were read from their targets; any others had no owner, or no records "
            "to read",
        )


def _end(
    draft: _Draft,
    current: ResetStatus,
    phase: ResetPhase,
    reason: str,
    message: str,
    result: RunResult | None = None,
) -> Decision:
    at = result.finished_at if result is not None else draft.seen.now
    draft.run(phase=phase, finished_at=at)
    reset = draft.status.reset
    plan = reset.plan if reset is not None else None
    digest = reset.digest if reset is not None else None
    entry = RunHistory(
        id=current.id,
        phase=phase,
        finished_at=at,
        records_replayed=plan.records_replayed if plan is not None else None,
        records_skipped=plan.records_skipped if plan is not None else None,
        plan=plan.config_map if plan is not None else None,
        digest=digest_of_end(digest, result) if digest is not None and result is not None else None,
    )
    history = (entry, *(h for h in draft.status.history if h.id != current.id))[:MAX_HISTORY]
    draft.status = draft.status.model_copy(update={"history": history})
    kind = EventType.NORMAL if phase is ResetPhase.SUCCEEDED else EventType.WARNING
    draft.tell(kind, phase.value, message, f"{current.id}/{phase.value}")
    _conclude(draft, phase, reason, message)
    return draft.decide(again_after_s=0)


def _supersede(draft: _Draft, current: ResetStatus) -> Decision:
    """Another reset is asked for, or none: the one under way is settled first."""
    seen, run = draft.seen, draft.seen.run
    wanted = f"reset {seen.wanted.id} is asked for" if seen.wanted is not None else "no reset is asked for any more"
    message = f"{wanted} while reset {current.id} was under way"
    if run is None:
        if current.phase is not ResetPhase.PENDING:
            return _without_document(draft, current)
        return _end(draft, current, ResetPhase.FAILED, SUPERSEDED, f"{message}. Nothing was changed")
    if run.result is not None:
        return _finish(draft, current, run, run.result)
    _report(draft, current, run)
    return draft.decide(TakeOver(SUPERSEDED, message), again_after_s=seen.tick_s)


def _leave(draft: _Draft, since: datetime) -> Decision:
    """The policy is being deleted: settle what is under way, within bounds, then let go."""
    seen, current, run = draft.seen, draft.seen.under_way, draft.seen.run
    if not seen.has_finalizer:
        return draft.decide()
    if current is None:
        return draft.decide(RemoveFinalizer(), again_after_s=0)
    forged = _why_forged(seen)
    if run is None and not forged and not may_hold(current):
        return draft.decide(RemoveFinalizer(), again_after_s=0)
    if seen.halted if forged else run is None and not _is_to_be_halted(seen, current):
        _unbelieved(draft, current, forged)
        return draft.decide(RemoveFinalizer(), again_after_s=0)
    if run is not None and run.result is not None and not forged:
        _finish(draft, current, run, run.result)
        return draft.decide(RemoveFinalizer(), again_after_s=0)
    if seen.abandoned:
        message = f"reset {current.id} was abandoned in {current.phase.value}, as {ABANDON} asks"
        return _give_up(draft, current, message)
    if seen.now > since + seen.deletion_limit:
        message = f"reset {current.id} could not be settled within {seen.deletion_limit}: {seen.trouble or 'no answer'}"
        return _give_up(draft, current, message)
    if run is None or forged:
        return _unbelieved(draft, current, forged)
    message = f"the policy was deleted while reset {current.id} was under way"
    draft.moving(DELETED, message)
    return draft.decide(TakeOver(DELETED, message), again_after_s=seen.tick_s)


def _unbelieved(draft: _Draft, current: ResetStatus, forged: str) -> Decision:
    """The run's document is not there, or is not to be believed."""
    if forged:
        return _forged(draft, current, forged)
    return _foreign(draft, current) if draft.seen.foreign else _without_document(draft, current)


def _give_up(draft: _Draft, current: ResetStatus, message: str) -> Decision:
    """The policy goes with its run in mid-flight, but its consumers shall not stand still for that."""
    if _is_to_be_halted(draft.seen, current):
        return draft.decide(Halt(briefly=True), again_after_s=0)
    message = f"{message}{_left_closed(draft.seen)}"
    draft.tell(EventType.WARNING, ABANDONED, message, f"{current.id}/{ABANDONED}")
    return draft.decide(RemoveFinalizer(), again_after_s=0)
