"""What a pause needs next, and what its status says: a pure function of what was seen.

    Pending ─ partitions known ─ finalizer ─ Pausing: holds written ─ acks ─ Paused       (by_agent)
    Pending ─ replicas recorded ─ finalizer ─ Pausing: scaled to 0 ─ group empty ─ Paused (by_scale)
    Pending ─ state recorded ─ finalizer ─ Pausing: connector stopped ─ group empty ─ Paused (by_connect)
    Pending ─ finalizer ─ Pausing: group led ─ partitions are nobody's, seat noted ─ Paused (by_leading)
    Resuming: workloads scaled back, connector resumed, group left, holds released ─ Resumed                 (release)

Nothing of this is remembered from pass to pass but what the status, the API server and the control topic say; only how
long an owner has been waited for is (:class:`~tidegate.pause.model.Wait`), and losing that costs a little patience.
"""

from __future__ import annotations

from typing import Final

from tidegate.connection.allow import GROUP_NOT_ALLOWED, TOPIC_NOT_ALLOWED, group_not_allowed, topic_not_allowed
from tidegate.kafka.model import GroupType
from tidegate.kafka.names import is_internal
from tidegate.pause import by_agent, by_connect, by_leading, by_scale
from tidegate.pause.model import Decision, Observed, Seen
from tidegate.pause.release import is_led, leave, refuse, resume, start_again
from tidegate.pause.report import UNSUPPORTED_GROUP, paused_is, stamp, warning
from tidegate.resources.conditions import Refusal, reconciling, stalled
from tidegate.resources.pause import ConsumerGroupPauseSpec, PausePhase, PauseStatus

FINALIZER: Final = "tidegate.io/pause"

INVALID_SPEC: Final = "InvalidSpec"
INTERNAL_TOPIC: Final = "InternalTopic"
WAITING_FOR_CONNECTION: Final = "WaitingForConnection"
CONTROL_TOPICS_UNUSABLE: Final = "ControlTopicsUnusable"
SUSPENDED: Final = "Suspended"
TIME_OVER: Final = "TimeOver"


def decide(seen: Seen) -> Decision:
    """The next step. Reads as a list of checks, the first that applies wins."""
    status = seen.status.model_copy(update={"observed_generation": seen.generation})
    if seen.deleting_since is not None:
        return leave(seen, status, seen.deleting_since)
    if seen.spec is None:
        # What it holds stays held: nobody has asked for anything else.
        return _stuck(seen, status, Refusal(INVALID_SPEC, seen.invalid), 60.0)
    status = _with_deadline(seen, seen.spec, status)
    refusal = seen.not_for_it or _refusal(seen.spec, seen.observed)
    # What was stopped already, by a version that did not look, is not started by a refusal.
    stopped = refusal is not None and refusal.reason == UNSUPPORTED_GROUP and bool(status.workloads)
    if refusal is not None and not stopped:
        return refuse(seen, status, refusal)
    over = _over(seen, seen.spec, status)
    if over is not None and (
        status.workloads or status.connector is not None or status.leader is not None or is_led(seen)
    ):
        back = start_again(seen, status, over.message)
        if back is not None:
            return back
        status = status.model_copy(update={"workloads": (), "connector": None, "leader": None})
    if refusal is not None:
        status = status.model_copy(update={"phase": PausePhase.DEGRADED})
        return _stuck(seen, status, refusal, seen.tick.idle_s)
    if seen.observing is not None:
        # It may have been about to begin.
        pending = status.model_copy(update={"phase": PausePhase.PENDING})
        return _wait(seen, pending, seen.observing, seen.tick.idle_s)
    if seen.observed is None and seen.unusable is not None:
        return _stuck(seen, status, seen.unusable, seen.tick.idle_s)
    if seen.waiting is not None or seen.observed is None:
        why = seen.waiting or Refusal(WAITING_FOR_CONNECTION, "the operator has not looked at Kafka yet")
        return _wait(seen, status, why, seen.tick.active_s)
    if over is not None:
        return resume(seen, status, seen.observed, over.reason, over.message)
    if by_connect.is_by_connect(seen.spec):
        return by_connect.pause(seen, seen.spec, status, seen.observed)
    if by_leading.is_by_leading(seen.spec):
        return by_leading.pause(seen, seen.spec, status, seen.observed)
    if by_scale.is_by_scale(seen.spec, status):
        return by_scale.pause(seen, seen.spec, status, seen.observed)
    return by_agent.pause(seen, seen.spec, status, seen.observed)


def is_over(seen: Seen) -> bool:
    """Whether the pause is to let go: deleted, suspended, or over."""
    if seen.deleting_since is not None or seen.spec is None:
        return seen.deleting_since is not None
    return _over(seen, seen.spec, _with_deadline(seen, seen.spec, seen.status)) is not None


def _over(seen: Seen, spec: ConsumerGroupPauseSpec, status: PauseStatus) -> Refusal | None:
    """Why nothing is to be held although it is there."""
    if spec.suspend:
        return Refusal(SUSPENDED, "spec.suspend is true, so this pause holds nothing")
    if status.resumes_at is not None and seen.now >= status.resumes_at:
        return Refusal(
            TIME_OVER, f"the time of this pause was over at {status.resumes_at:%Y-%m-%dT%H:%M:%SZ}, so it holds nothing"
        )
    return None


def _stuck(seen: Seen, status: PauseStatus, refusal: Refusal, again_after_s: float) -> Decision:
    """What is held stays held; somebody has to do something before more can be said."""
    conditions = paused_is(seen, status.conditions, None, refusal)
    conditions = stalled(conditions, reason=refusal.reason, message=refusal.message, **stamp(seen))
    status = status.model_copy(update={"conditions": conditions, "phase": status.phase or PausePhase.PENDING})
    return Decision(status, None, (warning(seen, refusal),), again_after_s, seen.waits)


def _wait(seen: Seen, status: PauseStatus, why: Refusal, again_after_s: float) -> Decision:
    """Agents keep the gates as they know them, and replicas stay 0; whether all stand still can't be seen."""
    conditions = reconciling(status.conditions, reason=why.reason, message=why.message, **stamp(seen))
    conditions = paused_is(seen, conditions, None, why)
    phase = status.phase or PausePhase.PENDING
    status = status.model_copy(update={"conditions": conditions, "phase": phase})
    return Decision(status, None, (), again_after_s, seen.waits)


def _with_deadline(seen: Seen, spec: ConsumerGroupPauseSpec, status: PauseStatus) -> PauseStatus:
    """When it ends. ``resumeAfter`` counts from the resource's creation or, changed later, from when that was seen.

    The status remembers which ``resumeAfter`` its ``resumesAt`` was made of: other changes do not prolong the pause.
    """
    after, at = spec.resume_after, spec.resume_at
    if after is not None:
        if status.resume_after == after and status.resumes_at is not None:
            return status
        # Of a pause that was never looked at, nothing was changed later.
        begin = seen.created if seen.status.observed_generation is None else seen.now
        at = begin + after
    at = at.replace(microsecond=0) if at is not None else None
    return status.model_copy(update={"resume_after": after, "resumes_at": at})


def _refusal(spec: ConsumerGroupPauseSpec, observed: Observed | None) -> Refusal | None:
    for selection in spec.partitions or ():
        if is_internal(selection.topic):
            return Refusal(
                INTERNAL_TOPIC, f"spec.partitions: topic {selection.topic} is an internal topic: name one of yours"
            )
    if observed is None:
        return None
    message = group_not_allowed(observed.connection, observed.allow, "spec.group", spec.group)
    if message is not None:
        return Refusal(GROUP_NOT_ALLOWED, message)
    for selection in spec.partitions or ():
        message = topic_not_allowed(observed.connection, observed.allow, selection.topic)
        if message is not None:
            return Refusal(TOPIC_NOT_ALLOWED, message)
    if observed.group.type in (GroupType.STREAMS, GroupType.SHARE):
        return Refusal(
            UNSUPPORTED_GROUP,
            f"group {spec.group} is a {observed.group.type} group: its members run no agent, and Tidegate can't see "
            "whether any of them is left. Stop the application itself",
        )
    return None
