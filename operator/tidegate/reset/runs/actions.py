"""What a pass may do about a run: a closed set of actions, and the decision that names one of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, TypedDict

from tidegate.kube.ports import EventType, KubeEvent
from tidegate.reset.model.request import RunRequest
from tidegate.reset.runs.approval_effect import Approval
from tidegate.reset.runs.reasons import APPROVED
from tidegate.reset.runs.seen import Seen, awaits_approval, under_way
from tidegate.resources.approval import ApprovalStatus
from tidegate.resources.conditions import (
    COMPLETE,
    FAILED,
    READ_FROM_TARGET,
    Condition,
    Refusal,
    ready,
    reconciling,
    stalled,
    with_condition,
)
from tidegate.resources.offset_reset import OffsetResetStatus

_REST_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class AddFinalizer:
    """Keep the resource until its run is settled."""


@dataclass(frozen=True, slots=True)
class RemoveFinalizer:
    """Nothing is under way: the resource may go."""


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
class KeepLimits:
    """Write the limits of a replay again, which are not in the control topic."""


@dataclass(frozen=True, slots=True)
class PauseAtEnd:
    """Create the ``ConsumerGroupPause`` that keeps the group where its replay has ended."""


@dataclass(frozen=True, slots=True)
class LiftLimits:
    """Take the limits of a replay back: that ``ConsumerGroupPause`` holds its group."""


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


Action = (
    AddFinalizer
    | RemoveFinalizer
    | CreateRun
    | Launch
    | Approve
    | Fence
    | KeepLimits
    | PauseAtEnd
    | LiftLimits
    | TakeOver
    | Halt
)


@dataclass(frozen=True, slots=True)
class Decision:
    """The status to write, then what to tell, then at most one action. ``again_after_s`` 0: look again at once."""

    status: OffsetResetStatus
    action: Action | None = None
    happenings: tuple[KubeEvent, ...] = ()
    again_after_s: float = _REST_S
    waiting: bool = False

    def begins(self, seen: Seen) -> bool:
        """Whether a run begins by what the status is about to say, or its plan is taken for approved: what has not
        begun by then does not through a connection that is frozen."""
        before, now = seen.under_way, under_way(self.status)
        return now is not None and (before is None or before.approved_digest != now.approved_digest)

    def goes_ahead(self, seen: Seen) -> bool:
        """Whether others have to wait from now on."""
        before, now = seen.under_way, under_way(self.status)
        return now is not None and not awaits_approval(now) and (before is None or awaits_approval(before))


class _Stamp(TypedDict):
    generation: int
    now: datetime


@dataclass(slots=True)
class Draft:
    """A decision in the making."""

    seen: Seen
    status: OffsetResetStatus
    happenings: list[KubeEvent] = field(default_factory=list)

    def moving(self, reason: str, message: str) -> None:
        self._set(reconciling(self.status.conditions, reason=reason, message=message, **self._stamp()))

    def stuck(self, reason: str, message: str) -> None:
        self.complete_is(False, reason, message)
        self._set(stalled(self.status.conditions, reason=reason, message=message, **self._stamp()))

    def well(self, reason: str, message: str) -> None:
        self._set(ready(self.status.conditions, reason=reason, message=message, **self._stamp()))

    def complete_is(self, value: bool | None, reason: str, message: str) -> None:
        self._say(COMPLETE, value, reason, message)

    def failed(self, reason: str, message: str) -> None:
        """Its run has ended otherwise than was asked for."""
        self._say(FAILED, True, reason, message)

    def read_is(self, value: bool | None, reason: str, message: str) -> None:
        self._say(READ_FROM_TARGET, value, reason, message)

    def run(self, **changes: object) -> None:
        """Change what the status says of the run."""
        self.status = self.status.model_copy(update=changes)

    def approved(self, approval: Approval) -> None:
        """From when the status says so the approval has taken effect, whatever becomes of it."""
        by = ApprovalStatus(name=approval.name, uid=approval.uid, approver=approval.approver, approved_at=self.seen.now)
        self.run(approved_digest=approval.plan, approval=by)
        message = f"OffsetResetApproval {approval.name} of {approval.approver} approves the plan {approval.plan}"
        self.tell(EventType.NORMAL, APPROVED, message, f"{self.seen.run_id}/{APPROVED}/{approval.uid}")

    def refuse(self, refusal: Refusal) -> None:
        self.tell(
            EventType.WARNING,
            refusal.reason,
            refusal.message,
            f"{self.seen.run_id}/{self.seen.generation}/{refusal.reason}",
        )
        self.stuck(refusal.reason, refusal.message)

    def tell(self, kind: EventType, reason: str, message: str, key: str) -> None:
        self.happenings.append(KubeEvent(kind, reason, message, key))

    def decide(
        self, action: Action | None = None, *, again_after_s: float = _REST_S, waiting: bool = False
    ) -> Decision:
        return Decision(self.status, action, tuple(self.happenings), again_after_s, waiting)

    def _say(self, condition: str, value: bool | None, reason: str, message: str) -> None:
        self._set(
            with_condition(self.status.conditions, condition, value, reason=reason, message=message, **self._stamp())
        )

    def _set(self, conditions: tuple[Condition, ...]) -> None:
        self.status = self.status.model_copy(update={"conditions": conditions})

    def _stamp(self) -> _Stamp:
        return _Stamp(generation=self.seen.generation, now=self.seen.now)
