"""Why a run ends, waits or is refused, as conditions and Events name it, and what a resource is marked with."""

from __future__ import annotations

from typing import Final

from tidegate.kube import unreadable

FINALIZER: Final = "tidegate.io/reset-under-way"

APPROVE: Final = "tidegate.io/approve"
"""The annotation by which an earlier version was told of an approval: it no longer approves anything."""

ANNOTATION_APPROVES_NOTHING: Final = "AnnotationApprovesNothing"

APPROVED: Final = "Approved"

ABANDON: Final = unreadable.ABANDON

INVALID_SPEC: Final = "InvalidSpec"

ALREADY_RAN: Final = "AlreadyRan"

WAITING_FOR_RESET: Final = "WaitingForReset"

WAITING_FOR_QUOTA: Final = "WaitingForQuota"

QUOTA_EXCEEDED: Final = "QuotaExceeded"

SUSPENDED: Final = "Suspended"

UNREADABLE_STATUS: Final = unreadable.UNREADABLE_STATUS

NOT_ASKED_FOR: Final = "NotAskedFor"

UNDONE_NOT_ENDED: Final = "UndoneResetNotEnded"

WAITING_FOR_CONNECTION: Final = "WaitingForConnection"

DEADLINE_EXCEEDED: Final = "DeadlineExceeded"

REPLAY_TIMED_OUT: Final = "ReplayTimedOut"

DELETED: Final = "Deleted"

RUN_LOST: Final = "RunLost"

FOREIGN_RUN: Final = "ForeignRun"

FORGED: Final = "Forged"

JOB_FAILED: Final = "JobFailed"

READING: Final = "Reading"

NOT_KNOWN_YET: Final = "NotKnownYet"

NOT_LOOKED_AT: Final = "NotLookedAt"

ABANDONED: Final = "Abandoned"
