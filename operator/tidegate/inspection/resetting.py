"""Whether Tidegate could reset a group, by which strategy (``way``), and why not. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from tidegate.inspection.findings import Finding, FindingKind, Severity
from tidegate.inspection.partitions import counted
from tidegate.inspection.seen import ClusterSeen, GroupSeen
from tidegate.kafka.capabilities import kind_of
from tidegate.kafka.model import Group, GroupState, GroupType
from tidegate.reset.planning.checks import not_taken, unsupported
from tidegate.reset.ways import Owners, choose_way
from tidegate.resources.connection import GroupKind, Support
from tidegate.resources.reset import Way

_CONSUMERS: Final = ("", "consumer")
"""Protocol types of groups of consumers, and of those with offsets only."""

_BY_DESCRIPTION: Final = (
    "By the group's kind, protocol and assignor, as its coordinator reports them, and by the brokers' versions"
)
_BY_WHAT_IS_LEFT: Final = "By the metadata of its commits, and the names of topics"


class Possible(StrEnum):
    YES = "yes"
    WHEN_STOPPED = "whenStopped"
    NO = "no"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Verdict:
    """``way``: what a reset of all its partitions would take without the agent; ``None`` where there is none, or it is
    not known.

    ``because``: why this and no stronger one, or why not at all, for a person. ``known``: how that is known.
    """

    group: str
    possible: Possible
    way: Way | None
    because: str
    known: str = _BY_DESCRIPTION


def verdict(seen: GroupSeen, cluster: ClusterSeen) -> Verdict:
    """As a reset would judge that is asked for now."""
    group = _judged(seen)
    if group is None:
        why = f"its members are not consumers: their protocol is {seen.listed.protocol_type}"
        return Verdict(seen.group_id, Possible.NO, None, why)
    refusal = unsupported(group)
    if refusal is not None:
        return Verdict(seen.group_id, Possible.NO, None, refusal.message)
    refusal = unsupported(group, seen.left)
    if refusal is not None:
        return Verdict(seen.group_id, Possible.NO, None, refusal.message, _BY_WHAT_IS_LEFT)
    refusal = not_taken(group, cluster.capabilities)
    if refusal is not None:
        empty = cluster.capabilities.get(GroupKind.EMPTY)
        is_refused_in_any_case = empty is not None and empty.support is Support.UNSUPPORTED
        possible = Possible.NO if is_refused_in_any_case else Possible.WHEN_STOPPED
        return Verdict(seen.group_id, possible, None, refusal.message)
    if group.state is GroupState.UNKNOWN:
        return Verdict(seen.group_id, Possible.UNKNOWN, None, "its coordinator does not describe it")
    way, because = _strategy(group, seen)
    unknown = [
        f"{kind} ({found.message})"
        for kind in (GroupKind.EMPTY, kind_of(group))
        if kind is not None
        and (found := cluster.capabilities.get(kind)) is not None
        and found.support is Support.UNKNOWN
    ]
    if unknown:
        told = f"whether the brokers accept offsets for groups of kind {', '.join(unknown)} is not known"
        return Verdict(seen.group_id, Possible.UNKNOWN, way, told)
    return Verdict(seen.group_id, Possible.YES, way, because)


def _judged(seen: GroupSeen) -> Group | None:
    """The group, also of a kind that is only listed; ``None``: its members are no consumers."""
    kinds = {kind.value: kind for kind in (GroupType.STREAMS, GroupType.SHARE)}
    if seen.listed.type in kinds:
        return Group(seen.group_id, GroupState.UNKNOWN, kinds[seen.listed.type])
    if seen.listed.protocol_type not in _CONSUMERS:
        return None
    return seen.group or Group(seen.group_id, GroupState.UNKNOWN, GroupType.UNKNOWN)


def _strategy(group: Group, seen: GroupSeen) -> tuple[Way | None, str]:
    if group.state is GroupState.PREPARING_REBALANCE:
        return Way.BARRIER, "a rebalance of this group is in progress"
    partitions = group.assigned | seen.committed.keys()
    versions = {member: said.version for member, said in seen.subscriptions.items()}
    if group.type is GroupType.CLASSIC and any(m.member_id not in versions for m in group.owners(partitions)):
        return None, "what its members sent when they joined was not read, and the strategy depends on it"
    choice = choose_way(Owners(group, partitions, versions))
    return choice.way, choice.because


def not_resettable(found: Verdict) -> Iterator[Finding]:
    if found.possible is Possible.WHEN_STOPPED:
        kind, severity = FindingKind.NOT_RESETTABLE_LIVE, Severity.WARNING
    elif found.possible is Possible.NO:
        kind, severity = FindingKind.NOT_RESETTABLE, Severity.INFO
    else:
        return
    yield Finding(kind, severity, found.because, found.known, found.group)


def full(seen: GroupSeen, cluster: ClusterSeen) -> Iterator[Finding]:
    limits = cluster.numbers("group.max.size")
    members = 0 if seen.group is None or seen.group.type is not GroupType.CLASSIC else len(seen.group.members)
    if limits and members >= limits[0] > 0:
        yield Finding(
            FindingKind.GROUP_FULL,
            Severity.WARNING,
            f"{counted(members, 'member')}, and group.max.size is {limits[0]:,}",
            "By the group's description and the brokers' settings",
            seen.group_id,
        )
