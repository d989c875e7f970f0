"""What a policy's status says about its snapshots: conditions, Events. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Final

from tidegate.kube.ports import EventType, KubeEvent
from tidegate.policy.feature import FeatureOutcome, PolicyView
from tidegate.resources.conditions import BACKED_UP, ConditionStatus, without_condition
from tidegate.resources.policy import PolicyStatus
from tidegate.resources.snapshots import SnapshotsSpec, SnapshotsStatus, SnapshotStatus
from tidegate.resources.timestamps import format_timestamp
from tidegate.snapshots.document import Document, Snapshot
from tidegate.snapshots.schedule import is_late

SNAPSHOT_TAKEN: Final = "SnapshotTaken"
FIRST_SNAPSHOT: Final = "FirstSnapshot"
SNAPSHOT_LATE: Final = "SnapshotLate"
SNAPSHOT_FAILED: Final = "SnapshotFailed"
GROUPS_UNREAD: Final = "GroupsUnread"


@dataclass(frozen=True, slots=True)
class Standing:
    """How a policy's snapshots stand. ``made``: the newest in the place that is asked for; ``next``: when one is begun,
    ``None`` while one is being made; ``trouble``: why the attempt under way does not get on."""

    document: Document | None
    made: Snapshot | None
    next: datetime | None
    trouble: str = ""


def without_snapshots(status: PolicyStatus) -> PolicyStatus:
    """For a policy that asks for none."""
    conditions = without_condition(status.conditions, BACKED_UP)
    return status.model_copy(update={"snapshots": None, "conditions": conditions})


def refused(policy: PolicyView, reason: str, message: str) -> FeatureOutcome:
    """They can't be made as they are asked for."""
    snapshots = (policy.status.snapshots or SnapshotsStatus(since=_seconds(policy.now))).model_copy(
        update={"next": None, "launch": None}
    )
    generation = policy.body["metadata"]["generation"]
    happening = KubeEvent(EventType.WARNING, reason, message, f"snapshots/{reason}/{generation}")
    return FeatureOutcome(
        policy.told(BACKED_UP, (ConditionStatus.FALSE, reason, message), snapshots=snapshots), (happening,)
    )


def backed_up(
    policy: PolicyView, spec: SnapshotsSpec, standing: Standing
) -> tuple[PolicyStatus, tuple[KubeEvent, ...]]:
    """The status with how they stand now, and what to tell, each once."""
    before = policy.status.snapshots or SnapshotsStatus(since=_seconds(policy.now))
    document, made = standing.document, standing.made
    snapshots = SnapshotsStatus(
        since=before.since,
        last=None if made is None else _last(made),
        next=standing.next,
        missed=document.asked.missed if document is not None else None,
        failures=document.failures if document is not None else None,
        launch=document.order.attempt if document is not None else None,
    )
    verdict = _judged(policy, spec, standing, snapshots)
    return policy.told(BACKED_UP, verdict, snapshots=snapshots), tuple(_happenings(standing, before, snapshots))


def _last(made: Snapshot) -> SnapshotStatus:
    return SnapshotStatus(
        due=made.due,
        taken_at=made.taken_at,
        path=made.path,
        groups=made.groups,
        partitions=made.offsets,
        bytes=made.size,
        unread=made.unread,
    )


def _judged(
    policy: PolicyView, spec: SnapshotsSpec, standing: Standing, snapshots: SnapshotsStatus
) -> tuple[ConditionStatus, str, str]:
    made, trouble = standing.made, _trouble(standing)
    ends = f". {trouble}" if trouble else ""
    told = "there is no snapshot yet" if made is None else _told(made)
    if is_late(policy.now, spec.schedule, None if made is None else made.due, snapshots.since):
        return ConditionStatus.FALSE, SNAPSHOT_LATE, f"a snapshot is late: {told}{ends}"
    if made is None:
        return ConditionStatus.UNKNOWN, FIRST_SNAPSHOT, f"{told}: the first one is to be made{ends}"
    if made.unread:
        return ConditionStatus.FALSE, GROUPS_UNREAD, f"{_unread(made)}. {told}{ends}"
    return ConditionStatus.TRUE, SNAPSHOT_TAKEN, f"{told}{ends}"


def _told(made: Snapshot) -> str:
    return (
        f"the newest one, due at {format_timestamp(made.due)}, has {made.offsets} offset(s) of {made.groups} group(s)"
    )


def _unread(made: Snapshot) -> str:
    return f"{made.unread} group(s) could not be read, such as {made.unread_says}"


def _trouble(standing: Standing) -> str:
    document = standing.document
    if document is None:
        return standing.trouble
    if document.is_under_way:
        return standing.trouble
    failed = document.result is not None and document.result.snapshot is None and not document.result.withdrawn
    if not failed or document.result is None:
        return ""
    again = f"; tried again at {format_timestamp(standing.next)}" if standing.next is not None else ""
    return f"{_failed(document)}{again}: {document.result.failure}"


def _failed(document: Document) -> str:
    times = f" {document.failures} times" if document.failures > 1 else ""
    return f"Making the one due at {format_timestamp(document.order.due)} has failed{times}"


def _happenings(standing: Standing, before: SnapshotsStatus, now: SnapshotsStatus) -> list[KubeEvent]:
    told: list[KubeEvent] = []
    document, made = standing.document, standing.made
    if made is not None and now.last != before.last:
        key = f"snapshots/taken/{made.due.isoformat()}"
        missed = f"; {now.missed} due time(s) before it were missed" if now.missed else ""
        told.append(KubeEvent(EventType.NORMAL, SNAPSHOT_TAKEN, f"{_told(made)}{missed}", key))
        if made.unread:
            told.append(KubeEvent(EventType.WARNING, GROUPS_UNREAD, _unread(made), f"{key}/unread"))
    if document is not None and (now.failures or 0) > (before.failures or 0):
        # Of those in a row about one due time the first is told.
        key = f"snapshots/failed/{document.order.due.isoformat()}"
        told.append(KubeEvent(EventType.WARNING, SNAPSHOT_FAILED, _trouble(standing), key))
    return told


def _seconds(at: datetime) -> datetime:
    return at.replace(microsecond=0)
