"""What a policy's status says about its group's place: conditions, Events. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Final

from tidegate.connection.freezing import held_back
from tidegate.kafka.model import GroupState, TopicPartition
from tidegate.kube.ports import EventType, KubeEvent
from tidegate.policy.feature import PolicyView
from tidegate.resources.conditions import RETAINED, ConditionStatus, without_condition
from tidegate.resources.features import RetentionSpec, RetentionStatus
from tidegate.resources.policy import PolicyStatus
from tidegate.retention.last_offsets import is_within
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

_TOLD_MS: Final = 600_000
"""How long it is told that offsets were put back. An Event is recorded once, and the API server may be away."""

_LATEST_MS: Final = 253_402_300_799_000
"""The last second that a ``datetime`` holds."""


@dataclass(frozen=True, slots=True)
class Restored:
    """Offsets put back at ``at_ms``. ``seen_ms``: the looks that saw them last, where that is known of all of them.
    ``clamped``: (was, is) of those beyond today's log."""

    at_ms: int
    partitions: frozenset[TopicPartition]
    seen_ms: frozenset[int] = frozenset()
    clamped: Mapping[TopicPartition, tuple[int, int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Done:
    """What this process has done. ``renewed_ms``: when it last committed offsets again; ``restored``: what it has put
    back lately. ``refusal``: why offsets can't be kept, and what to do; ``trouble``: about the snapshot."""

    renewed_ms: int | None = None
    restored: tuple[Restored, ...] = ()
    refusal: str = ""
    trouble: str = ""

    def lately(self, now_ms: int) -> Done:
        """Without what was put back long ago: whoever tells of it has had the time to."""
        lately = tuple(each for each in self.restored if is_within(each.at_ms, now_ms, _TOLD_MS))
        return self if len(lately) == len(self.restored) else replace(self, restored=lately)


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
        renewed_at=before.renewed_at if done.renewed_ms is None else instant(done.renewed_ms).replace(microsecond=0),
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
            f"the operator can't tell whether a group of type {seen.group.type} has members, so it keeps no offsets",
        )
    if done.refusal:
        return ConditionStatus.FALSE, GUARD_REFUSED, done.refusal
    if plan.lost:
        return ConditionStatus.FALSE, OFFSETS_EXPIRED, _expired(policy, seen, plan, spec)
    if not count:
        return ConditionStatus.UNKNOWN, NO_OFFSETS, "the group has no committed offsets in the topics of this policy"
    if not seen.group.is_vacant:
        end = "" if plan.expires_ms is None else f"; {_unsubscribed(plan)}"
        return ConditionStatus.TRUE, HAS_MEMBERS, f"offsets of topics that members subscribe to do not expire{end}"
    if spec.guard:
        told = f"{plan.kept} of {count} offset(s) have a retention of their own"
        if plan.expires_ms is not None:
            told += f"; the first would expire {_at(plan)}, and the operator commits it again before then"
        return ConditionStatus.TRUE, GUARDED, told
    if plan.expires_ms is None:
        return (
            ConditionStatus.UNKNOWN,
            EXPIRY_UNKNOWN,
            "it is not known when the offsets were committed, so they may expire at any time. Allow Read on "
            f"__consumer_offsets, or {_keeping(policy)}",
        )
    if plan.expires_ms - seen.now_ms <= _ms(spec.warn_before):
        return ConditionStatus.FALSE, EXPIRES_SOON, f"the first of {count} offset(s) expires {_at(plan)}"
    return ConditionStatus.TRUE, NOT_DUE, f"the first of {count} offset(s) expires {_at(plan)}"


def _happenings(policy: PolicyView, spec: RetentionSpec, seen: Seen, plan: Plan, done: Done) -> list[KubeEvent]:
    told: list[KubeEvent] = []
    told += [_restored(seen.group.group_id, restored) for restored in done.restored]
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
        message = _unsubscribed(plan) if not seen.group.is_vacant else f"the first offset expires {_at(plan)}"
        # A minute, so that an end that moves a little from look to look is told once.
        key = f"retention/soon/{plan.expires_ms // 60_000}"
        told.append(KubeEvent(EventType.WARNING, EXPIRES_SOON, f"group {seen.group.group_id}: {message}", key))
    return told


def _restored(group_id: str, restored: Restored) -> KubeEvent:
    clamped, seen_ms = restored.clamped, restored.seen_ms
    message = f"{len(restored.partitions)} expired offset(s) of group {group_id} were restored"
    if seen_ms:
        first, last = _text(min(seen_ms)), _text(max(seen_ms))
        message += f", as they were last seen {f'at {first}' if first == last else f'between {first} and {last}'}"
    if clamped:
        first_clamped, (was, now) = min(clamped.items())
        message += (
            f"; {len(clamped)} of them to another offset, because their logs no longer have the old one "
            f"({first_clamped}: {was}, now {now})"
        )
    return KubeEvent(EventType.NORMAL, OFFSETS_RESTORED, message, f"retention/restored/{restored.at_ms}")


def _expired(policy: PolicyView, seen: Seen, plan: Plan, spec: RetentionSpec) -> str:
    if spec.guard:
        fix = "The operator restores them as soon as possible"
    elif _waits(policy):
        until = "no longer only observes" if policy.live.observes else "is no longer frozen"
        fix = f"The operator restores them once KafkaConnection {policy.live.label} {until}"
    else:
        fix = "Set retention.guard to have them restored"
    return f"{len(plan.lost)} offset(s) of group {seen.group.group_id} are gone, but their last values are known. {fix}"


def _keeping(policy: PolicyView) -> str:
    if not _waits(policy):
        return "set retention.guard"
    name = f"KafkaConnection {policy.live.label}"
    return f"let {name} do more than observe" if policy.live.observes else f"thaw {name}"


def _waits(policy: PolicyView) -> bool:
    """Whether the policy asks for more than its connection, which only observes or is frozen, lets it do."""
    return held_back(policy.live) is not None and policy.spec.retention is not None and policy.spec.retention.guard


def _unsubscribed(plan: Plan) -> str:
    return f"offsets of topics that no member subscribes to expire {_at(plan)}"


def _at(plan: Plan) -> str:
    if plan.expires_ms is None:
        return "at an unknown time"
    return f"at {_text(plan.expires_ms)}" if plan.exact else f"at {_text(plan.expires_ms)} at the earliest"


def _text(ms: int) -> str:
    return instant(ms).isoformat(timespec="seconds").replace("+00:00", "Z")


def _ms(duration: timedelta) -> int:
    return duration // timedelta(milliseconds=1)
