"""Which committed offsets Kafka will remove, when, and how well that is known (KIP-211). Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Final

from tidegate.inspection.findings import Finding, FindingKind, Severity
from tidegate.inspection.partitions import counted, shown
from tidegate.inspection.seen import ClusterSeen, GroupSeen
from tidegate.kafka.model import GroupState, GroupType, TopicPartition
from tidegate.kafka.offset_expiry import CommitTime, GroupFacts, RetentionSettings, expiry_ms
from tidegate.kafka.offset_records import OFFSETS_TOPIC
from tidegate.resources.durations import format_duration
from tidegate.resources.timestamps import format_timestamp

_EXPIRING: Final = (GroupType.CLASSIC, GroupType.CONSUMER, GroupType.SIMPLE)


def expiring(seen: GroupSeen, cluster: ClusterSeen, soon: timedelta) -> Iterator[Finding]:
    """Of a group without members. One whose offsets moved between the looks is in use, by ``assign()``, and has as long
    as the retention from its last commit."""
    group = seen.group
    committed = [p for p in seen.committed if p.topic in cluster.topics]
    if group is None or not group.is_vacant or group.type not in _EXPIRING or not committed:
        return
    if any(map(seen.moved, committed)):
        return
    retention = cluster.retention
    if retention is None:
        yield Finding(
            FindingKind.OFFSETS_EXPIRE,
            Severity.WARNING,
            f"no members; {counted(len(committed), 'committed offset')}, and it is not known when they expire",
            "By OffsetFetch and the group's description. The brokers' retention of offsets was not read",
            seen.group_id,
            shown(seen, committed),
            len(committed),
        )
        return
    ends = _ends(seen, committed, retention)
    if len(ends) == len(committed):
        yield from _exact(seen, ends, retention, cluster.at, soon)
    else:
        yield _estimated(seen, committed, retention, cluster.at)


def _ends(
    seen: GroupSeen, committed: list[TopicPartition], retention: RetentionSettings
) -> Mapping[TopicPartition, int | None]:
    """The millisecond from which each may be removed, ``None``: never; absent are those that the log doesn't tell."""
    group, log = seen.group, seen.log
    if group is None or log is None or not log.complete or log.unreadable:
        return {}
    facts = GroupFacts(group.type, group.state, log.emptied_ms)
    ends: dict[TopicPartition, int | None] = {}
    for p in committed:
        commit = log.commit(p)
        if commit is not None and commit.offset == seen.committed[p]:
            ends[p] = expiry_ms(facts, p.topic, CommitTime(commit.committed_ms, commit.explicit_ms), retention)
    return ends


def _exact(
    seen: GroupSeen,
    ends: Mapping[TopicPartition, int | None],
    retention: RetentionSettings,
    now: datetime,
    soon: timedelta,
) -> Iterator[Finding]:
    """Nothing is found where every offset has a longer retention of its own, as those have that Tidegate keeps."""
    limit_ms = _ms(now) + retention.retention_ms
    due = {p: end for p, end in ends.items() if end is not None and end <= limit_ms}
    if not due:
        return
    first = min(due.values())
    is_soon = first <= _ms(now + soon)
    ends_at = "has been due for removal since" if first <= _ms(now) else "expires at"
    what = f"{counted(len(due), 'committed offset')}, of which the first {ends_at} {_time(max(first, 0))}"
    partitions = tuple(replace(p, expires_ms=due[TopicPartition(p.topic, p.partition)]) for p in shown(seen, due))
    yield Finding(
        FindingKind.OFFSETS_EXPIRE,
        Severity.CRITICAL if is_soon else Severity.WARNING,
        f"no members; {what}",
        f"Exact, by the commits and the time of the group's state in {OFFSETS_TOPIC}. The coordinator "
        f"removes them within {_span(retention.check_interval_ms)} after that",
        seen.group_id,
        partitions,
        len(due),
    )


def _estimated(
    seen: GroupSeen, committed: list[TopicPartition], retention: RetentionSettings, now: datetime
) -> Finding:
    last = now + timedelta(milliseconds=retention.retention_ms)
    why = "was not read for this group" if seen.log is None else "does not tell the time of each commit"
    return Finding(
        FindingKind.OFFSETS_EXPIRE,
        Severity.WARNING,
        f"no members; {counted(len(committed), 'committed offset')}, each of which expires at some time "
        f"before {format_timestamp(last.replace(microsecond=0))}",
        f"Estimated: it is not known when they were committed, because {OFFSETS_TOPIC} {why}. The "
        f"retention is {_span(retention.retention_ms)}. It begins again when the group gets members or, in "
        "a group that never had any, with a commit. An offset with a retention of its own, as Tidegate "
        "gives it, lasts longer",
        seen.group_id,
        shown(seen, committed),
        len(committed),
    )


def unsubscribed(seen: GroupSeen, cluster: ClusterSeen) -> Iterator[Finding]:
    """Of a stable group, the topics with committed offsets that its members leave out."""
    group = seen.group
    if group is None or not group.has_members or group.state is not GroupState.STABLE:
        return
    owned = {p.topic for p in group.assigned}
    told = {topic for said in seen.subscriptions.values() for topic in said.topics}
    is_told = group.type is GroupType.CLASSIC and seen.subscriptions.keys() >= {m.member_id for m in group.members}
    left = [p for p in seen.committed if p.topic in cluster.topics and p.topic not in owned | told]
    if not left:
        return
    names = sorted({p.topic for p in left})
    yield Finding(
        FindingKind.UNSUBSCRIBED,
        Severity.INFO,
        f"{counted(len(left), 'committed offset')} of {counted(len(names), 'topic')}: {', '.join(names[:5])}"
        + (" and more" if len(names) > 5 else ""),
        "By OffsetFetch and the members' subscriptions"
        if is_told
        else (
            "By OffsetFetch and the members' assignments; they may subscribe to a topic and own none of its partitions"
        ),
        seen.group_id,
        shown(seen, left),
        len(left),
    )


def _ms(at: datetime) -> int:
    return int(at.timestamp() * 1000)


def _time(ms: int) -> str:
    try:
        return format_timestamp(datetime.fromtimestamp(ms // 1000, UTC))
    except (ValueError, OverflowError, OSError):
        return "a time that can't be shown"


def _span(ms: int) -> str:
    days, rest = divmod(ms, 86_400_000)
    return counted(days, "day") if days and not rest else format_duration(timedelta(milliseconds=ms))
