"""What an ``OffsetBackup``'s status says: conditions, Events. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from tidegate.kube.ports import EventType, KubeEvent
from tidegate.offset_backup.document import Backup, Document
from tidegate.offset_backup.manifest import Keep, judged_at, over
from tidegate.offset_backup.schedule import is_late
from tidegate.resources.conditions import (
    BACKED_UP,
    Conditions,
    ConditionStatus,
    Refusal,
    find_condition,
    ready,
    reconciling,
    stalled,
    with_condition,
)
from tidegate.resources.offset_backup import MOST_LISTED, BackupStatus, OffsetBackupSpec, OffsetBackupStatus
from tidegate.resources.timestamps import format_timestamp

BACKUP_TAKEN: Final = "BackupTaken"
FIRST_BACKUP: Final = "FirstBackup"
BACKUP_LATE: Final = "BackupLate"
BACKUP_FAILED: Final = "BackupFailed"
GROUPS_UNREAD: Final = "GroupsUnread"
SUSPENDED: Final = "Suspended"
WAITING_FOR_CONNECTION: Final = "WaitingForConnection"
ENDING_JOB: Final = "EndingJob"
INVALID_SPEC: Final = "InvalidSpec"
DOCUMENT_NOT_OWNED: Final = "DocumentNotOwned"

_OF_BACKUPS: Final = (BACKUP_TAKEN, FIRST_BACKUP, GROUPS_UNREAD)
"""What is said of the backups, whatever the spec was."""


@dataclass(frozen=True, slots=True)
class Before:
    """The status as it is, and of which generation and when the next one speaks."""

    status: OffsetBackupStatus
    generation: int
    now: datetime

    @property
    def since(self) -> datetime:
        """When backups were first wanted. No later than now, whatever a clock that was ahead has written."""
        now = self.now.replace(microsecond=0)
        return now if self.status.since is None else min(self.status.since, now)

    def saying(
        self,
        tell: Callable[..., Conditions],
        verdict: tuple[ConditionStatus, str, str],
        ready_says: tuple[str, str] | None = None,
        **parts: Any,
    ) -> OffsetBackupStatus:
        """The status with ``parts``; ``verdict``: of BackedUp; ``tell``: how Ready says the same, or ``ready_says``,
        which is a reason and a message."""
        backed_up, reason, message = verdict
        stamp: dict[str, Any] = {"generation": self.generation, "now": self.now}
        why, says = ready_says or (reason, message)
        conditions = tell(self.status.conditions, reason=why, message=says, **stamp)
        conditions = with_condition(conditions, BACKED_UP, backed_up, reason=reason, message=message, **stamp)
        return self.status.model_copy(
            update={"observed_generation": self.generation, "conditions": conditions, **parts}
        )


@dataclass(frozen=True, slots=True)
class Told:
    """The new status, and what to tell, each once."""

    status: OffsetBackupStatus
    happenings: tuple[KubeEvent, ...] = ()


@dataclass(frozen=True, slots=True)
class BackupStanding:
    """How the backups stand. ``made``: the newest in the storage that is asked for; ``next``: when one is begun,
    ``None`` while one is being made; ``trouble``: why the attempt under way does not get on."""

    document: Document | None
    made: Backup | None
    next: datetime | None
    trouble: str = ""


def refused(before: Before, refusal: Refusal) -> Told:
    """Backups can't be made as they are asked for."""
    happening = KubeEvent(EventType.WARNING, refusal.reason, refusal.message, f"{refusal.reason}/{before.generation}")
    verdict = (ConditionStatus.FALSE, refusal.reason, refusal.message)
    # "launch" stays: a number that was used is not used again.
    return Told(before.saying(stalled, verdict, since=before.since, next=None), (happening,))


def suspended(before: Before, spec: OffsetBackupSpec, document: Document | None) -> Told:
    """Nobody wants one for now, so that none is late. One may have been taken just before."""
    made, last, more = document.made if document is not None else None, before.status.last, dict[str, Any]()
    if made is not None and (last is None or last.path != made.path):
        last = _last(made)
        more = {"last": last, "backups": _listed(before, spec, made)}
    newest = "none is known yet" if last is None else f"the newest one was due at {format_timestamp(last.due)}"
    message = f"spec.suspend is true: no backup is taken; {newest}"
    status = before.saying(ready, (ConditionStatus.UNKNOWN, SUSPENDED, message), since=None, next=None, **more)
    return Told(status, tuple(_taken(made, status)) if made is not None and more else ())


def waiting(before: Before, spec: OffsetBackupSpec, why: str) -> Told:
    """Nothing can be begun without the connection. What was said of the backups stays, until one is late."""
    since, last = before.since, before.status.last
    says = (WAITING_FOR_CONNECTION, why)
    verdict = _as_said(before, says, _OF_BACKUPS)
    if is_late(before.now, spec.schedule, last.due if last is not None else None, since):
        verdict = (ConditionStatus.FALSE, BACKUP_LATE, f"a backup is late: {why}")
    return Told(before.saying(reconciling, verdict, says, since=since))


def ending(before: Before) -> Told:
    """A job that nobody wants any more takes its time to end."""
    message = "the operator is ending the job of a backup that is no longer wanted; nothing begins before that"
    says = (ENDING_JOB, message)
    return Told(before.saying(reconciling, _as_said(before, says, (*_OF_BACKUPS, BACKUP_LATE)), says))


def _as_said(before: Before, otherwise: tuple[str, str], reasons: Collection[str]) -> tuple[ConditionStatus, str, str]:
    """What BackedUp says, if it is one of these ``reasons``: another one is of a spec that may be no more."""
    said = find_condition(before.status.conditions, BACKED_UP)
    if said is None or said.reason not in reasons:
        return (ConditionStatus.UNKNOWN, *otherwise)
    return said.status, said.reason, said.message


def backed_up(before: Before, spec: OffsetBackupSpec, standing: BackupStanding) -> Told:
    """How they stand now."""
    document, made, since = standing.document, standing.made, before.since
    verdict = _judged(before.now, spec, standing, since)
    status = before.saying(
        ready if verdict[0] is ConditionStatus.TRUE else reconciling,
        verdict,
        since=since,
        last=None if made is None else _last(made),
        backups=() if made is None else _listed(before, spec, made),
        next=standing.next,
        missed=document.asked.missed if document is not None else None,
        failures=document.failures if document is not None else None,
        launch=document.order.attempt if document is not None else before.status.launch,
    )
    return Told(status, tuple(_happenings(standing, before.status, status)))


def _last(made: Backup) -> BackupStatus:
    return BackupStatus(
        due=made.due,
        taken_at=made.taken_at,
        path=made.path,
        groups=made.groups,
        partitions=made.offsets,
        bytes=made.size,
        unread=made.unread,
    )


def _listed(before: Before, spec: OffsetBackupSpec, made: Backup) -> tuple[BackupStatus, ...]:
    """Those before it that are kept, as its job has judged them by the same rule."""
    newest, folder = _last(made), made.path.rpartition("/data/")[0]
    dues = {newest.due: newest} | {
        one.due: one for one in before.status.backups if one.due < newest.due and one.path.startswith(f"{folder}/")
    }
    keep = None if spec.keep is None else Keep(spec.keep.each, spec.keep.daily)
    for due in over(dues.keys(), keep, judged_at(made.due, made.taken_at)):
        del dues[due]
    return tuple(dues[due] for due in sorted(dues, reverse=True)[:MOST_LISTED])


def _judged(
    now: datetime, spec: OffsetBackupSpec, standing: BackupStanding, since: datetime
) -> tuple[ConditionStatus, str, str]:
    made, trouble = standing.made, _trouble(standing)
    ends = f". {trouble}" if trouble else ""
    told = "no backup of this cluster is known in this storage yet" if made is None else _told(made)
    if is_late(now, spec.schedule, None if made is None else made.due, since):
        return ConditionStatus.FALSE, BACKUP_LATE, f"a backup is late: {told}{ends}"
    if made is None:
        return ConditionStatus.UNKNOWN, FIRST_BACKUP, f"{told}: the first one is to be made{ends}"
    if made.unread:
        return ConditionStatus.FALSE, GROUPS_UNREAD, f"{_unread(made)}; {told}{ends}"
    return ConditionStatus.TRUE, BACKUP_TAKEN, f"{told}{ends}"


def _told(made: Backup) -> str:
    due = format_timestamp(made.due)
    return f"the newest backup, due at {due}, has {made.offsets} offset(s) of {made.groups} group(s)"


def _unread(made: Backup) -> str:
    example = f", such as {made.unread_says}" if made.unread_says else ""
    return f"{made.unread} group(s) could not be read{example}"


def _trouble(standing: BackupStanding) -> str:
    document = standing.document
    if document is None:
        return standing.trouble
    if document.is_under_way:
        return standing.trouble
    result = document.result
    if result is None or result.withdrawn:
        return ""
    if result.backup is not None:
        return f"Backups that are over were not removed: {result.failure}" if result.failure else ""
    again = f" (the next attempt is at {format_timestamp(standing.next)})" if standing.next is not None else ""
    return f"{_failed(document)}{again}: {result.failure}"


def _failed(document: Document) -> str:
    times = f" {document.failures} times" if document.failures > 1 else ""
    return f"The backup due at {format_timestamp(document.order.due)} has failed{times}"


def _happenings(standing: BackupStanding, before: OffsetBackupStatus, now: OffsetBackupStatus) -> list[KubeEvent]:
    told: list[KubeEvent] = []
    document, made = standing.document, standing.made
    if made is not None and now.last != before.last:
        told += _taken(made, now)
    if document is not None and (now.failures or 0) > (before.failures or 0):
        # Of those in a row about one due time the first is told: they begin after the same number.
        row = document.asked.number - document.failures
        key = f"failed/{document.order.due.isoformat()}/{row}"
        told.append(KubeEvent(EventType.WARNING, BACKUP_FAILED, _trouble(standing), key))
    return told


def _taken(made: Backup, now: OffsetBackupStatus) -> Iterator[KubeEvent]:
    key = f"taken/{made.path}"
    missed = f"; {now.missed} due time(s) before it were missed" if now.missed else ""
    yield KubeEvent(EventType.NORMAL, BACKUP_TAKEN, f"{_told(made)}{missed}", key)
    if made.unread:
        yield KubeEvent(EventType.WARNING, GROUPS_UNREAD, _unread(made), f"{key}/unread")
