"""When the coordinator lets a committed offset go (KIP-211, as Kafka 4.3 does it). Pure.

The rules are those of ``OffsetMetadataManager.cleanupExpiredOffsets``, ``OffsetExpirationConditionImpl``,
``ClassicGroup.offsetExpirationCondition`` and ``ModernGroup``. Times are the coordinator's, in milliseconds since the
epoch, as it writes and compares them. It looks once per ``offsets.retention.check.interval.ms``: an offset may live
that much longer than is said here, never shorter.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Final

from tidegate.kafka.model import GroupState, GroupType

AT_ONCE: Final = -(2**63)
"""An expiry before every time: the offset goes with the coordinator's next look, or is gone already."""

_LONG: Final = 2**64
_LONG_HALF: Final = 2**63
_MODERN: Final = (GroupType.CONSUMER, GroupType.STREAMS)


@dataclass(frozen=True, slots=True)
class RetentionSettings:
    """The brokers' ``offsets.retention.minutes`` and ``offsets.retention.check.interval.ms``, both in ms."""

    retention_ms: int
    check_interval_ms: int

    @classmethod
    def of_minutes(cls, minutes: int, check_interval_ms: int) -> RetentionSettings:
        """``minutes`` up to 2³¹−1, which is no overflow in ms: Kafka multiplies as 64-bit numbers, too."""
        return cls(minutes * 60_000, check_interval_ms)


@dataclass(frozen=True, slots=True)
class CommitTime:
    """When an offset was committed, and the explicit expiry that its commit asked for, if it did.

    Where it is not known exactly: a time before which it was not committed.
    """

    committed_ms: int
    explicit_ms: int | None = None


@dataclass(frozen=True, slots=True)
class GroupFacts:
    """What of a group decides about its offsets.

    ``emptied_ms``: when a classic group became Empty (``GroupMetadataValue.currentStateTimestamp``); ``None``: not
    written, as by brokers before 2.1. ``subscribed``: the topics that members subscribe to; ``None``: the coordinator
    can't tell (members of a classic group that do not speak the consumer protocol, such as Connect's).
    """

    type: GroupType
    state: GroupState
    emptied_ms: int | None = None
    subscribed: AbstractSet[str] | None = frozenset()


def explicit_expiry_ms(committed_ms: int, retention_ms: int) -> int | None:
    """The expiry that a commit with ``retention_time_ms`` (OffsetCommit v2 to v4) gets; −1 asks for none.

    Kafka adds 64-bit numbers without a check: a retention that reaches beyond their end lies in the far past, and the
    offset goes at once.
    """
    if retention_ms == -1:
        return None
    return (committed_ms + retention_ms + _LONG_HALF) % _LONG - _LONG_HALF


def expiry_ms(
    group: GroupFacts,
    topic: str,
    commit: CommitTime,
    settings: RetentionSettings,
    *,
    pending: bool = False,
    exists: bool = True,
) -> int | None:
    """The first millisecond at which the offset counts as expired; ``None``: never, while all stays as it is.

    ``pending``: a transaction that commits an offset of this partition is open. ``exists``: the partition does; the
    offsets of deleted ones go with them.
    """
    if not exists:
        return AT_ONCE
    base_ms = _base_ms(group, commit)
    if base_ms is None or pending or _keeps(group, topic):
        return None
    if commit.explicit_ms is not None:
        return commit.explicit_ms
    return base_ms + settings.retention_ms


def _base_ms(group: GroupFacts, commit: CommitTime) -> int | None:
    """What the retention counts from; ``None``: nothing of the group expires now."""
    if group.type in _MODERN:
        # Whatever the state: a KIP-848 group that rebalances is no exception.
        return commit.committed_ms
    if group.type is GroupType.SIMPLE:
        return commit.committed_ms
    if group.type is not GroupType.CLASSIC:
        return None
    if group.state is GroupState.EMPTY:
        return commit.committed_ms if group.emptied_ms is None else group.emptied_ms
    if group.state is GroupState.STABLE and group.subscribed is not None:
        return commit.committed_ms
    return None


def _keeps(group: GroupFacts, topic: str) -> bool:
    """Whether a member's subscription keeps the topic's offsets. Without members nothing is subscribed to."""
    if group.state in (GroupState.EMPTY, GroupState.DEAD):
        return False
    return group.subscribed is None or topic in group.subscribed
