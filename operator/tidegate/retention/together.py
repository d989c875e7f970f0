"""What the status of a policy for many groups says of their retention: counts, and the worst of them. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final

from tidegate.policy.feature import NOT_LOOKED_AT, WholeView
from tidegate.resources.conditions import OBSERVING, RETAINED, ConditionStatus, find_condition
from tidegate.resources.features import RetentionStatus
from tidegate.resources.many_groups import TroubledGroup
from tidegate.resources.policy import PolicyStatus
from tidegate.retention.status import (
    EXPIRES_SOON,
    EXPIRY_UNKNOWN,
    GUARD_REFUSED,
    GUARDED,
    NO_OFFSETS,
    NOT_DUE,
    OFFSETS_EXPIRED,
    STATE_UNKNOWN,
)

_TROUBLES: Final = (OFFSETS_EXPIRED, GUARD_REFUSED, EXPIRES_SOON, EXPIRY_UNKNOWN)
"""The worst first."""
_NOTHING_TO_KEEP: Final = (NO_OFFSETS, STATE_UNKNOWN)
_LAST: Final = datetime.max.replace(tzinfo=UTC)
_MESSAGE: Final = 300


def together(whole: WholeView) -> tuple[PolicyStatus, tuple[TroubledGroup, ...]]:
    """The status with the sums, and the groups that need somebody, the worst first."""
    retained = {group: status.retention for group, status in whole.each.items() if status.retention is not None}
    sums = _sums(whole, retained)
    status, reason, message = _verdict(whole, sums, reasons(whole))
    if whole.trouble:
        message += f". A later operator process could not restore all of these offsets: {whole.trouble}"
    return whole.told(RETAINED, (status, reason, message), retention=sums), _troubled(whole)


def reasons(whole: WholeView) -> Counter[str]:
    """How many groups there are by the reason of their condition."""
    found = (find_condition(status.conditions, RETAINED) for status in whole.each.values())
    return Counter(condition.reason for condition in found if condition is not None)


def _sums(whole: WholeView, retained: Mapping[str, RetentionStatus]) -> RetentionStatus:
    rows = retained.values()
    before = whole.status.retention or RetentionStatus()
    return RetentionStatus(
        expires_at=min((row.expires_at for row in rows if row.expires_at is not None), default=None),
        exact=bool(retained) and all(row.exact for row in rows),
        guarded=whole.spec.retention is not None and whole.spec.retention.guard and all(row.guarded for row in rows),
        offsets=sum(row.offsets or 0 for row in rows),
        kept=sum(row.kept or 0 for row in rows),
        # What an earlier process has renewed is in no group's status of this one.
        renewed_at=max((row.renewed_at for row in (before, *rows) if row.renewed_at is not None), default=None),
    )


def _verdict(whole: WholeView, sums: RetentionStatus, counts: Counter[str]) -> tuple[ConditionStatus, str, str]:
    silent = len(whole.each) - counts.total()
    every = {**counts, **({NOT_LOOKED_AT: silent} if silent else {})}
    told = f"of {len(whole.each)} group(s): " + ", ".join(f"{n} {reason}" for reason, n in sorted(every.items()))
    observing = find_condition(whole.status.conditions, OBSERVING)
    if observing is not None:
        told += f". {observing.message}"
    worst = next((reason for reason in _TROUBLES if counts[reason]), None)
    if worst is not None:
        status = ConditionStatus.UNKNOWN if worst == EXPIRY_UNKNOWN else ConditionStatus.FALSE
        return status, worst, f"{told}. status.groups.worst names the groups that need attention most"
    if silent:
        return ConditionStatus.UNKNOWN, NOT_LOOKED_AT, f"{told}. status.groups.worst names those that fail"
    if not counts.keys() - set(_NOTHING_TO_KEEP):
        none = f"none of {len(whole.each)} group(s) has committed offsets to keep in the topics of this policy"
        return ConditionStatus.UNKNOWN, NO_OFFSETS, none
    return ConditionStatus.TRUE, GUARDED if sums.guarded else NOT_DUE, told


def _troubled(whole: WholeView) -> tuple[TroubledGroup, ...]:
    rows = []
    for group, status in whole.each.items():
        condition = find_condition(status.conditions, RETAINED)
        if condition is not None and condition.reason in _TROUBLES:
            expires_at = status.retention.expires_at if status.retention is not None else None
            message = condition.message[:_MESSAGE]
            rows.append(TroubledGroup(group=group, reason=condition.reason, expires_at=expires_at, message=message))
    rows.sort(key=lambda row: (_TROUBLES.index(row.reason), row.expires_at or _LAST, row.group))
    return tuple(rows)
