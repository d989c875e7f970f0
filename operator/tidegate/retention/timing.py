"""When a group's offsets are to be looked at again, so that what is announced of them comes in time. Pure."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from tidegate.retention.plan import Plan, Seen

_REST_MS: Final = 60_000
_LOOKS_PER_RETENTION: Final = 8
"""The longest time between two looks; shorter where brokers keep offsets for minutes, since a commit of somebody else
drops a kept offset's own retention at any time."""

_LEAST_MS: Final = 1_000
_OVERDUE_MS: Final = 3_000
"""How often an offset that has ended is looked for until the coordinator, which looks now and then, has removed it."""


def next_look_ms(seen: Seen, plan: Plan, warn_before_ms: int, *, refused: bool) -> int:
    """When to look again. ``refused``: the brokers do not let the offsets be kept, so trying soon again is of no use.

    A look is due where something is to be committed, where an end that nobody prevents is to be announced, and where
    it comes; and a group that loses its members right after this look must be seen before its own warning is due.
    """
    now_ms, retention = seen.now_ms, seen.retention
    due = [now_ms + min(_REST_MS, retention.retention_ms // _LOOKS_PER_RETENTION)]
    if plan.next_due_ms is not None and not refused:
        due.append(plan.next_due_ms)
    if not seen.is_kept or refused:
        due += [at for at in _announced_ms(plan.ends_ms, warn_before_ms) if at > now_ms]
        if any(0 <= now_ms - end <= retention.check_interval_ms + _REST_MS for end in plan.ends_ms):
            due.append(now_ms + _OVERDUE_MS)
        if not (seen.group.is_vacant and plan.ends_ms) and retention.retention_ms > warn_before_ms:
            due.append(now_ms + retention.retention_ms - warn_before_ms)
    return max(now_ms + _LEAST_MS, min(due))


def has_come_since(log_ms: int, now_ms: int, ends_ms: Collection[int], warn_before_ms: int) -> bool:
    """Whether an announcement has become due since the log was read.

    Consumers without members may commit the same offset again and again, which moves its end and nothing else that a
    look shows. So the log is read once more before an end is announced.
    """
    return any(log_ms < at <= now_ms for at in _announced_ms(ends_ms, warn_before_ms))


def _announced_ms(ends_ms: Collection[int], warn_before_ms: int) -> set[int]:
    return {at for end in ends_ms for at in (end - warn_before_ms, end)}
