"""What a pass has seen of a policy's run, and what that says of where the run stands."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta

from tidegate.jobs.runner import RunnerState, RunnerStatus
from tidegate.reset.model import Phase, RunRequest
from tidegate.reset.runs.request import (
    Refusal,
)
from tidegate.reset.store import Run
from tidegate.resources.policy import OffsetResetPolicySpec, PolicyStatus
from tidegate.resources.reset import (
    Engine,
    ResetPhase,
    ResetSpec,
    ResetStatus,
    RunHistory,
)


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


def has_ended(phase: ResetPhase | None) -> bool:
    """Whether a run in this phase is over; ``None``: it was never told of."""
    return phase is not None and Phase(phase.value).is_final


def under_way(status: PolicyStatus) -> ResetStatus | None:
    reset = status.reset
    if reset is None or reset.started_at is None or has_ended(reset.phase):
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
    return reset is not None and wanted is not None and reset.id == wanted.id and has_ended(reset.phase)


def run_id_of(status: PolicyStatus, wanted: ResetSpec | None) -> str | None:
    """Whose document a pass reads: the run under way's, or that of the one asked for and not known to have ended."""
    current = under_way(status)
    if current is not None:
        return current.id
    return None if wanted is None or is_settled(status, wanted) else wanted.id


def history_of(status: PolicyStatus, run_id: str) -> RunHistory | None:
    return next((entry for entry in status.history if entry.id == run_id), None)


def history_entry(reset: ResetStatus, digest: str | None) -> RunHistory:
    """What is kept of a run that has ended. ``digest``: of how it ended."""
    plan = reset.plan
    return RunHistory(
        id=reset.id,
        phase=reset.phase,
        finished_at=reset.finished_at,
        records_replayed=plan.records_replayed if plan is not None else None,
        records_skipped=plan.records_skipped if plan is not None else None,
        plan=plan.config_map if plan is not None else None,
        digest=digest,
    )
