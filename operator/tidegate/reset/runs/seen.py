"""What a pass has seen of an ``OffsetReset``'s run, and what that says of where the run stands."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta

from tidegate.jobs.runner import RunnerState, RunnerStatus
from tidegate.reset.applying.replay import Replayed
from tidegate.reset.model.request import RunRequest
from tidegate.reset.runs.approval_effect import Approval
from tidegate.reset.store import Run
from tidegate.resources.conditions import Refusal
from tidegate.resources.offset_reset import OffsetResetSpec, OffsetResetStatus
from tidegate.resources.reset import Engine, ResetPhase, has_ended


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

    @property
    def has_ended(self) -> bool:
        return self.status.state is not RunnerState.RUNNING


@dataclass(frozen=True, slots=True)
class Start:
    """All that a new run needs; or ``refusal``, or ``waits_for``: why it can't begin now.

    ``waits_for`` is a reason and a message too, but of something that passes by itself. ``ends``: by this refusal one
    ends that has begun, and that others would wait for.
    """

    refusal: Refusal | None = None
    waits_for: Refusal | None = None
    engine: Engine = Engine.DIRECT
    request: RunRequest | None = None
    ends: bool = False


@dataclass(frozen=True, slots=True)
class PauseSeen:
    """The ``ConsumerGroupPause`` that is to keep a group where its replay has ended; ``waits_for``: why it does not
    yet, for a person."""

    name: str
    is_there: bool = False
    is_paused: bool = False
    waits_for: str = ""


@dataclass(frozen=True, slots=True)
class Seen:
    """One ``OffsetReset`` as a pass finds it. ``run_id``: its name. ``invalid``: why the spec can't be read; then
    ``spec`` is ``None``.

    ``run``: the document of the run, ``None`` when there is none, or ``foreign``: why it is not this resource's, or
    ``forged``: why it is not the one that the status knows, or ``newer``: that a newer version of Tidegate has written
    it, which leaves nothing to be done here. ``halted``: everything that worked on the run was ended,
    and its gates opened; ``unhalted``: why a brief try at that failed. ``connected``: whether a job would find its
    connections open, and ``withdrawn``: whether what was begun is only ended through them. ``approval``: the one that
    lets the plan of ``run`` be applied. ``no_effect``: why others that name this plan do not. ``annotated``: it has the
    annotation by which an earlier version was told of an approval.
    ``behind``: why a plan that is approved has to wait. ``trouble``: why the last effect failed.
    """

    uid: str
    run_id: str
    generation: int
    spec: OffsetResetSpec | None
    status: OffsetResetStatus
    now: datetime
    run_document: str = ""
    run: Run | None = None
    foreign: str = ""
    forged: str = ""
    newer: str = ""
    halted: bool = False
    unhalted: str = ""
    runner: RunnerSeen | None = None
    connected: bool = True
    withdrawn: bool = False
    start: Start | None = None
    behind: Refusal | None = None
    invalid: str = ""
    approval: Approval | None = None
    no_effect: str = ""
    annotated: bool = False
    abandoned: bool = False
    deleting_since: datetime | None = None
    has_finalizer: bool = False
    deletion_limit: timedelta = timedelta(minutes=2)
    max_launches: int = 12
    tick_s: float = 1.0
    trouble: str = ""
    replay: Replayed | None = None
    """How far a replay has come, where the brokers told."""
    pause: PauseSeen | None = None
    """Of a group that stays where its replay has ended."""

    @property
    def under_way(self) -> OffsetResetStatus | None:
        """The status, where it says that the run was started and has not ended."""
        return under_way(self.status)


def is_settled(status: OffsetResetStatus) -> bool:
    """Whether the run is over, by the status."""
    return has_ended(status.phase)


def under_way(status: OffsetResetStatus) -> OffsetResetStatus | None:
    """The status, where it says that the run was started and has not ended."""
    return status if status.started_at is not None and not has_ended(status.phase) else None


def awaits_approval(current: OffsetResetStatus) -> bool:
    """Whether a run that is under way has a plan that nobody has approved, or that was not let go ahead yet."""
    return current.phase is ResetPhase.AWAITING_APPROVAL and current.approved_digest is None


def may_hold(current: OffsetResetStatus) -> bool:
    """Whether a job of the run may have closed gates."""
    return current.application is not None and not awaits_approval(current)
