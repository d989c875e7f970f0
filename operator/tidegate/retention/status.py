"""What a policy's status says about its group's place: conditions, Events. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final

from tidegate.connection.freezing import held_back
from tidegate.kafka.model import GroupState, TopicPartition
from tidegate.kube.ports import EventType, KubeEvent
from tidegate.policy.feature import PolicyView
from tidegate.resources.conditions import RETAINED, ConditionStatus, without_condition
from tidegate.resources.features import RetentionSpec, RetentionStatus
from tidegate.resources.policy import PolicyStatus
from tidegate.retention.plan import Plan, Seen

HAS_MEMBERS: Final = "HasMembers"
GUARDED: Final = "Guarded"
NOT_DUE: Final = "NotDue"
NO_OFFSETS: Final = "NoOffsets"
EXPIRES_SOON: Final = "ExpiresSoon"
EXPIRY_UNKNOWN: Final = "ExpiryUnknown"
OFFSETS_EXPIRED: Final = "OffsetsExpired"
OFFSETS_RESTORED: Final = "OffsetsRestored"
GUARD_REFUSED: Final = "GuardRefused"
STATE_UNKNOWN: Final = "StateUnknown"

_LATEST_MS: Final = 253_402_300_799_000
"""The last second that a ``datetime`` holds."""


@dataclass(frozen=True, slots=True)
class Restored:
    """Offsets put back as they were at ``known_until_ms``. ``clamped``: (was, is) of those beyond today's log."""

    partitions: frozenset[TopicPartition] = frozenset()
    clamped: Mapping[TopicPartition, tuple[int, int]] = field(default_factory=dict)
    known_until_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Done:
    """What a pass did. ``refusal``: why offsets could not be kept, and what to do; ``trouble``: about the snapshot."""

    renewed: int = 0
    restored: Restored = field(default_factory=Restored)
    refusal: str = ""
    trouble: str = ""


def instant(ms: int) -> datetime:
    return datetime.fromtimestamp(min(max(ms, 0), _LATEST_MS) / 1000, UTC)


def without_retention(status: PolicyStatus) -> PolicyStatus:
    """For a policy that asks for none."""
    conditions = without_condition(status.conditions, RETAINED)
    return status.model_copy(update={"retention": None, "conditions": conditions})


def refused(policy: PolicyView, reason: str, message: str) -> PolicyStatus:
    """The connection does not allow it."""
    return policy.told(RETAINED, (ConditionStatus.FALSE, reason, message), retention=RetentionStatus())


def retained(
    policy: PolicyView, spec: RetentionSpec, seen: Seen, plan: Plan, done: Done, snapshot: str | None
) -> tuple[PolicyStatus, tuple[KubeEvent, ...]]:
    """The status with what is kept now, and what to tell, each once."""
    before = policy.status.retention or RetentionStatus()
    retention = RetentionStatus(
        state=seen.group.state.value,
        expires_at=None if plan.expires_ms is None else instant(plan.expires_ms),
        exact=plan.exact,
        guarded=spec.guard and not done.refusal,
        offsets=len(seen.commits.offsets),
        kept=plan.kept,
        renewed_at=policy.now.replace(microsecond=0) if done.renewed else before.renewed_at,
        snapshot=snapshot,
    )
    status, reason, message = _judged(policy, spec, seen, plan, done)
    if done.trouble:
        message = f"{message}. {done.trouble}"
    happenings = tuple(_happenings(policy, spec, seen, plan, done))
    return policy.told(RETAINED, (status, reason, message), retention=retention), happenings


def _judged(
    policy: PolicyView, spec: RetentionSpec, seen: Seen, plan: Plan, done: Done
) -> tuple[ConditionStatus, str, str]:
    count = len(seen.commits.offsets)
    if seen.group.state is GroupState.UNKNOWN:
        return (
            ConditionStatus.UNKNOWN,
            STATE_UNKNOWN,
            f"whether the group has members can't be told for a group of type {seen.group.type}: nothing is kept",
        )
    if done.refusal:
        return ConditionStatus.FALSE, GUARD_REFUSED, done.refusal
    if plan.lost:
        return ConditionStatus.FALSE, OFFSETS_EXPIRED, _expired(policy, seen, plan, spec)
    if not count:
        return ConditionStatus.UNKNOWN, NO_OFFSETS, "the group has no committed offsets in the topics of this policy"
    if not seen.group.is_vacant:
        end = "" if plan.expires_ms is None else f"; {_unsubscribed(plan)}"
        return ConditionStatus.TRUE, HAS_MEMBERS, f"members keep the offsets of what they subscribe to{end}"
    if spec.guard:
        told = f"{plan.kept} of {count} offset(s) have a retention of their own"
        when = "" if plan.expires_ms is None else f"; the first would end {_at(plan)} and is committed again before"
        return ConditionStatus.TRUE, GUARDED, told + when
    if plan.expires_ms is None:
        return (
            ConditionStatus.UNKNOWN,
            EXPIRY_UNKNOWN,
            "when the offsets were committed is not known: they may expire at any time. Allow Read on "
            f"__consumer_offsets, or {_keeping(policy)}",
        )
    if plan.expires_ms - seen.now_ms <= _ms(spec.warn_before):
        return ConditionStatus.FALSE, EXPIRES_SOON, f"the first of {count} offset(s) ends {_at(plan)}"
    return ConditionStatus.TRUE, NOT_DUE, f"the first of {count} offset(s) ends {_at(plan)}"


def _happenings(policy: PolicyView, spec: RetentionSpec, seen: Seen, plan: Plan, done: Done) -> list[KubeEvent]:
    told: list[KubeEvent] = []
    if done.restored.partitions:
        count, clamped = len(done.restored.partitions), done.restored.clamped
        message = f"{count} expired offset(s) of group {seen.group.group_id} were put back"
        if done.restored.known_until_ms is not None:
            message += f", as they were last seen at {_text(done.restored.known_until_ms)}"
        if clamped:
            first, (was, now) = min(clamped.items())
            message += (
                f"; {len(clamped)} to another offset, as their logs no longer reach there ({first}: {was}, now {now})"
            )
        told.append(KubeEvent(EventType.NORMAL, OFFSETS_RESTORED, message, f"retention/restored/{seen.now_ms}"))
    if done.refusal:
        told.append(KubeEvent(EventType.WARNING, GUARD_REFUSED, done.refusal, f"retention/refused/{done.refusal}"))
    elif plan.lost:
        newest = max(row.lost_ms or 0 for row in plan.lost.values())
        told.append(
            KubeEvent(
                EventType.WARNING, OFFSETS_EXPIRED, _expired(policy, seen, plan, spec), f"retention/expired/{newest}"
            )
        )
    guarded = spec.guard and seen.group.is_vacant and not done.refusal
    if not guarded and plan.expires_ms is not None and plan.expires_ms - seen.now_ms <= _ms(spec.warn_before):
        message = _unsubscribed(plan) if not seen.group.is_vacant else f"the first offset ends {_at(plan)}"
        # A minute, so that an end that moves a little from look to look is told once.
        key = f"retention/soon/{plan.expires_ms // 60_000}"
        told.append(KubeEvent(EventType.WARNING, EXPIRES_SOON, f"group {seen.group.group_id}: {message}", key))
    return told


def _expired(policy: PolicyView, seen: Seen, plan: Plan, spec: RetentionSpec) -> str:
    if spec.guard:
        fix = "they are restored as soon as that is possible"
    elif _waits(policy):
        what = "only observes" if policy.live.observes else "is frozen"
        fix = f"they are restored once KafkaConnection {policy.live.label} no longer {what}"
    else:
        fix = "set retention.guard to have them restored"
    return f"{len(plan.lost)} offset(s) of group {seen.group.group_id} are gone; their last values are known: {fix}"


def _keeping(policy: PolicyView) -> str:
    if not _waits(policy):
        return "set retention.guard"
    name = f"KafkaConnection {policy.live.label}"
    return f"let {name} do more than observe" if policy.live.observes else f"thaw {name}"


def _waits(policy: PolicyView) -> bool:
    """Whether the policy asks for more than its connection, which only observes or is frozen, lets it do."""
    return held_back(policy.live) is not None and policy.spec.retention is not None and policy.spec.retention.guard


def _unsubscribed(plan: Plan) -> str:
    return f"offsets of topics that no member subscribes to end {_at(plan)}"


def _at(plan: Plan) -> str:
    if plan.expires_ms is None:
        return "at a time that is not known"
    return f"at {_text(plan.expires_ms)}" if plan.exact else f"at {_text(plan.expires_ms)} at the earliest"


def _text(ms: int) -> str:
    return instant(ms).isoformat(timespec="seconds").replace("+00:00", "Z")


def _ms(duration: timedelta) -> int:
    return duration // timedelta(milliseconds=1)
