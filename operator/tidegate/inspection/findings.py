"""What an audit finds: what was seen, how it is known, what it means and for whom, and what to do about it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

MOST_PARTITIONS: Final = 20
"""Of one finding that are kept one by one, those with the most records first; the rest are counted."""


class Severity(StrEnum):
    """From the worst down."""

    CRITICAL = "critical"
    """Records are lost or not being processed now, or will be within the time that was asked about."""
    WARNING = "warning"
    """Records will be lost or not processed if nothing changes, or that may be the case already."""
    INFO = "info"
    """Good to know before an incident."""

    @property
    def rank(self) -> int:
        """0 is the worst."""
        return list(Severity).index(self)


class Audience(StrEnum):
    ON_CALL = "whoever is on call"
    APPLICATION = "the team of the consumers"
    PLATFORM = "whoever runs the brokers"


class FindingKind(StrEnum):
    """Stable names: programs compare them."""

    LOST_TO_RETENTION = "LostToRetention"
    PAST_LOG_END = "PastLogEnd"
    NO_PROGRESS = "NoProgress"
    NOT_OWNED = "NotOwned"
    NOT_CONSUMED = "NotConsumed"
    OFFSETS_EXPIRE = "OffsetsExpire"
    WITHOUT_COMMIT = "WithoutCommit"
    REBALANCING = "Rebalancing"
    UNSUBSCRIBED = "Unsubscribed"
    NOT_RESETTABLE_LIVE = "NotResettableLive"
    NOT_RESETTABLE = "NotResettable"
    SHORT_RETENTION = "ShortRetention"
    BROKERS_DIFFER = "BrokersDiffer"
    GROUP_FULL = "GroupFull"
    BROKER_CAPABILITY = "BrokerCapability"


@dataclass(frozen=True, slots=True)
class About:
    """What all findings of one kind have in common. ``resource``: what of Tidegate would help; empty: nothing does.

    ``guide``: the document about it, below ``docs``.
    """

    title: str
    meaning: str
    audience: Audience
    remedy: str
    resource: str = ""
    guide: str = ""


@dataclass(frozen=True, slots=True)
class PartitionFinding:
    """One partition of a finding; ``None``: not known, or there is none. ``owner`` is a member as people know it."""

    topic: str
    partition: int
    committed: int | None = None
    log_start: int | None = None
    log_end: int | None = None
    grown: int = 0
    owner: str | None = None
    expires_ms: int | None = None

    @property
    def lag(self) -> int | None:
        if self.committed is None or self.log_end is None:
            return None
        return max(0, self.log_end - self.committed)


@dataclass(frozen=True, slots=True)
class Finding:
    """``group`` is ``None`` for what concerns the brokers. ``what`` and ``known`` are sentences without a full stop.

    ``partitions``: at most ``MOST_PARTITIONS`` of ``partition_count``.
    """

    kind: FindingKind
    severity: Severity
    what: str
    known: str
    group: str | None = None
    partitions: tuple[PartitionFinding, ...] = ()
    partition_count: int = 0


ABOUT: Final[Mapping[FindingKind, About]] = {
    FindingKind.LOST_TO_RETENTION: About(
        "Committed offset before the start of the log",
        "Records that the group had not committed as read were removed from the log. A consumer that "
        "starts there continues where auto.offset.reset says, at the end or at the start of the log",
        Audience.ON_CALL,
        "Decide where the group is to continue, and reset it there; raise the topic's retention if "
        "consumers may lag that far again",
        "OffsetReset",
        "how-to/reset-a-live-group.md",
    ),
    FindingKind.PAST_LOG_END: About(
        "Committed offset past the end of the log",
        "The log is shorter than it was when the offset was committed, because the topic was recreated or "
        "truncated; or the offset was set by hand. A consumer that starts there continues where "
        "auto.offset.reset says",
        Audience.ON_CALL,
        "Find out what happened to the topic, and reset the group to a record that is there",
        "OffsetReset",
        "how-to/reset-a-live-group.md",
    ),
    FindingKind.NO_PROGRESS: About(
        "Assigned partitions without progress",
        "A member owns the partition, there are records to read, and nothing was committed. The member "
        "may be stuck, for instance at a record that it can't process; or it commits so rarely that there "
        "was no commit between the two looks",
        Audience.ON_CALL,
        "Look at the log of the owner. If it commits rarely, audit again with a longer --watch. A poison "
        "record can be skipped while the other partitions go on",
        "ConsumerGroupPause, then OffsetReset",
        "how-to/skip-a-poison-record.md",
    ),
    FindingKind.NOT_OWNED: About(
        "Partitions that no member owns",
        "The group has members, is stable, and reads other partitions of the topic, but no member is "
        "assigned these. Their records wait",
        Audience.ON_CALL,
        "Find out what keeps them from being assigned: an assignor of the application's own, or consumers "
        "that take their partitions with assign() under the same group id",
    ),
    FindingKind.NOT_CONSUMED: About(
        "Groups without members whose topics grow",
        "The group has committed offsets but no members, and records keep coming. They wait until "
        "consumers start, unless the topic's retention removes them before that",
        Audience.APPLICATION,
        "Start the consumers, or delete the group if nobody needs it any more",
    ),
    FindingKind.OFFSETS_EXPIRE: About(
        "Committed offsets that expire",
        "Kafka removes the committed offsets of a group without members (KIP-211). Consumers that start "
        "later begin where auto.offset.reset says: they skip what was written meanwhile, or read "
        "everything again",
        Audience.APPLICATION,
        "Start the consumers before that, or keep the offsets",
        "OffsetResetPolicy with spec.retention.guard",
        "how-to/keep-committed-offsets.md",
    ),
    FindingKind.WITHOUT_COMMIT: About(
        "Partitions without a committed offset",
        "The group has committed offsets for other partitions of the topic, so these may have been added "
        "later. Consumers with auto.offset.reset=latest skip everything that is in these partitions when "
        "they find them. The setting is in the clients' configuration, which brokers don't see",
        Audience.APPLICATION,
        "Check auto.offset.reset of the consumers. If it is latest, reset these partitions to their start, and let "
        "Tidegate commit the start of new partitions from now on",
        "OffsetResetPolicy with spec.discovery",
        "how-to/expand-a-topic.md",
    ),
    FindingKind.REBALANCING: About(
        "Groups in a rebalance at both looks",
        "While members join, a classic group commits and reads little or nothing. Members that are slow, "
        "that crash, or that are scaled up and down keep it in that state",
        Audience.ON_CALL,
        "Look at the members' logs; check max.poll.interval.ms and session.timeout.ms",
    ),
    FindingKind.UNSUBSCRIBED: About(
        "Committed offsets of topics that no member reads",
        "The members do not subscribe to the topic any more. Each of its offsets expires when the "
        "brokers' retention has passed since its last commit",
        Audience.APPLICATION,
        "Nothing, if that is intended. A consumer that subscribes to the topic again after that begins "
        "where auto.offset.reset says",
    ),
    FindingKind.NOT_RESETTABLE_LIVE: About(
        "Groups that can be reset only when they are stopped",
        "While such a group has members, the brokers refuse offsets for it from outside the group",
        Audience.PLATFORM,
        "Stop the consumers before a reset, or upgrade the brokers",
        "",
        "reference/brokers.md",
    ),
    FindingKind.NOT_RESETTABLE: About(
        "Groups that Tidegate cannot reset",
        "The committed offsets are not all of the group's state, or its members are not consumers",
        Audience.APPLICATION,
        "Find out which tool resets such a group before you need it",
        "",
        "explanation/live-reset.md",
    ),
    FindingKind.SHORT_RETENTION: About(
        "Short retention of committed offsets",
        "A group that is stopped for longer than offsets.retention.minutes loses its committed offsets. Kafka's "
        "default is 7 days",
        Audience.PLATFORM,
        "Raise offsets.retention.minutes, or keep the offsets of the groups that matter",
        "OffsetResetPolicy with spec.retention.guard",
        "explanation/expiration.md",
    ),
    FindingKind.BROKERS_DIFFER: About(
        "Brokers that are configured differently",
        "What happens to a group depends on which broker coordinates it",
        Audience.PLATFORM,
        "Give all brokers the same settings",
    ),
    FindingKind.GROUP_FULL: About(
        "Groups that can take no more members",
        "The group has as many members as group.max.size allows. No further consumer can join, and "
        "neither can Tidegate if the strategy Leading is needed",
        Audience.PLATFORM,
        "Raise group.max.size, or run fewer consumers",
        "",
        "explanation/live-reset.md",
    ),
    FindingKind.BROKER_CAPABILITY: About(
        "What the brokers allow a reset",
        "A reset ends with a transaction that commits offsets from outside the group. Not every release of Kafka "
        "accepts that for every kind of group",
        Audience.PLATFORM,
        "Look up which releases accept it",
        "",
        "reference/brokers.md",
    ),
}
