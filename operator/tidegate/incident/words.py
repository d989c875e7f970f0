"""How times, partitions and holders are put into words. Pure; foreign text goes through ``visible`` here."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable
from datetime import datetime, timedelta
from typing import Final

from tidegate.incident.holders import Holder, HolderKind
from tidegate.incident.seen import KubeSeen
from tidegate.kafka.model import Member, TopicPartition
from tidegate.printable import visible
from tidegate.resources.partitions import format_partitions
from tidegate.resources.timestamps import format_timestamp

MOST_TOPICS: Final = 10
"""That one sentence names; the JSON has all."""


def time_text(at: datetime | None, now: datetime) -> str:
    """``2026-11-20T14:00:00Z (5 minutes ago)``."""
    if at is None:
        return "an unknown time"
    return f"{format_timestamp(at.replace(microsecond=0))} ({distance(now - at)})"


def distance(age: timedelta) -> str:
    seconds = int(abs(age).total_seconds())
    for size, unit in ((86_400, "day"), (3_600, "hour"), (60, "minute"), (1, "second")):
        if seconds >= size:
            text = counted(seconds // size, unit)
            return f"{text} ago" if age > timedelta() else f"in {text}"
    return "now"


def counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def partitions_text(partitions: Collection[TopicPartition]) -> str:
    """``orders 0-3,5 and refunds 1``."""
    numbers: defaultdict[str, list[int]] = defaultdict(list)
    for p in partitions:
        numbers[p.topic].append(p.partition)
    told = [f"{visible(topic)} {format_partitions(of)}" for topic, of in sorted(numbers.items())]
    if len(told) > MOST_TOPICS:
        return f"{', '.join(told[:MOST_TOPICS])} and {counted(len(told) - MOST_TOPICS, 'topic')} more"
    return listed(told)


def listed(parts: Iterable[str]) -> str:
    *first, last = [*parts] or [""]
    return f"{', '.join(first)} and {last}" if first else last


def member_text(member: Member) -> str:
    """Whom to look for: client.id, host, and the static member's name."""
    static = f", static member {visible(member.group_instance_id)}" if member.group_instance_id else ""
    return f"{visible(member.client_id) or 'a client without client.id'} on {visible(member.host)}{static}"


def quoted(text: str) -> str:
    return f'"{visible(text)}"'


def holder_text(holder: Holder, kube: KubeSeen | None) -> str:
    """Whose hold it is. A name proves nothing: whoever may write the control topic chooses it."""
    match holder.kind:
        case HolderKind.PAUSE:
            found = [p for p in kube.pauses if p.common.uid == holder.uid] if kube is not None else []
            if found:
                return f"ConsumerGroupPause {visible(found[0].common.label)}"
            return f"the ConsumerGroupPause with uid {visible(holder.uid)}{_not_found(kube)}"
        case HolderKind.RESET:
            of = [r for r in kube.resets if r.common.uid == holder.uid] if kube is not None else []
            if of:
                return f"OffsetReset {visible(of[0].common.label)}"
            return f"OffsetReset {visible(holder.run)} with uid {visible(holder.uid)}{_not_found(kube)}"
        case HolderKind.DISCOVERY:
            by = [p for p in kube.policies if p.common.uid == holder.uid] if kube is not None else []
            whose = f"OffsetResetPolicy {visible(by[0].common.label)}" if by else ""
            whose = whose or f"the OffsetResetPolicy with uid {visible(holder.uid)}{_not_found(kube)}"
            return f"the discovery of new partitions for {whose}"
        case HolderKind.RESET_BY_HAND:
            return f"a reset from a command line (`tidegate groups --reset-offsets`, run {visible(holder.run)})"
        case HolderKind.PAUSE_BY_HAND:
            return "a pause from a command line (`tidegate groups --pause`)"
        case HolderKind.PROGRAM:
            return f"a program that names itself {quoted(holder.name)}"


def _not_found(kube: KubeSeen | None) -> str:
    if kube is None:
        return " (its name and state are unknown: Kubernetes was not asked)"
    if not kube.complete:
        return f" (unknown whether it exists: not all of {visible(kube.where)} could be read)"
    return (
        f" (not among this group's resources in {visible(kube.where)}: it may be in another namespace or cluster, "
        "or deleted)"
    )
