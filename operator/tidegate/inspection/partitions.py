"""How the partitions of one group are doing: lost records, no progress, no owner, no committed offset. Pure.

Each check returns its findings for one group; ``CHECKS`` is all of them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator
from typing import Final

from tidegate.inspection.findings import MOST_PARTITIONS, Finding, FindingKind, PartitionFinding, Severity
from tidegate.inspection.seen import ClusterSeen, GroupSeen
from tidegate.kafka.model import GroupState, Member, TopicPartition


def member_text(member: Member) -> str:
    """As people know it: its client, where it runs, and its id."""
    where = f"{member.client_id} at {member.host.lstrip('/')}"
    static = f", instance {member.group_instance_id}" if member.group_instance_id is not None else ""
    return f"{where} (member {member.member_id}{static})"


def shown(seen: GroupSeen, partitions: Collection[TopicPartition]) -> tuple[PartitionFinding, ...]:
    """Those with the most records to read, as far as findings keep them."""

    def one(partition: TopicPartition) -> PartitionFinding:
        bounds = seen.bounds.get(partition)
        owner = seen.group.owner(partition) if seen.group is not None else None
        return PartitionFinding(
            partition.topic,
            partition.partition,
            seen.committed.get(partition),
            None if bounds is None else bounds.earliest,
            None if bounds is None else bounds.latest,
            seen.grown(partition),
            None if owner is None else member_text(owner),
        )

    return tuple(map(one, sorted(partitions, key=lambda p: (-_waiting(seen, p), p))[:MOST_PARTITIONS]))


def _waiting(seen: GroupSeen, partition: TopicPartition) -> int:
    """Records from the committed offset on, or from the start of the log where there is none."""
    bounds = seen.bounds.get(partition)
    if bounds is None:
        return 0
    return bounds.latest - max(seen.committed.get(partition, bounds.earliest), bounds.earliest)


def _finding(
    seen: GroupSeen,
    kind: FindingKind,
    severity: Severity,
    partitions: Collection[TopicPartition],
    what: str,
    known: str,
) -> Finding:
    return Finding(kind, severity, what, known, seen.group_id, shown(seen, partitions), len(partitions))


def counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


# --- outside of the log -----------------------------------------------------------------------------------------------


def _lost_to_retention(seen: GroupSeen, _: ClusterSeen) -> Iterator[Finding]:
    """A log's start only grows: an offset read later that lies before a start read earlier does so for certain."""
    starts = seen.before.bounds if seen.before is not None else seen.bounds
    lost = {p: starts[p].earliest - at for p, at in seen.committed.items() if p in starts and at < starts[p].earliest}
    if not lost:
        return
    twice = "the start of the log was read before the committed offset" if seen.before is not None else "one look"
    is_read = seen.group is not None and not seen.group.assigned.isdisjoint(lost)
    yield _finding(
        seen,
        FindingKind.LOST_TO_RETENTION,
        Severity.CRITICAL if is_read else Severity.WARNING,
        lost,
        f"{counted(len(lost), 'partition')}: {counted(sum(lost.values()), 'offset')} between the committed offsets and "
        f"the starts of the logs are gone{'' if is_read else '; no member owns these partitions'}",
        f"By OffsetFetch and ListOffsets ({twice}). Compacted offsets are counted too; whether a consumer "
        "had read the records without committing can't be seen",
    )


def _past_log_end(seen: GroupSeen, _: ClusterSeen) -> Iterator[Finding]:
    past = {p: at - seen.bounds[p].latest for p, at in seen.committed.items() if p in seen.bounds}
    past = {p: by for p, by in past.items() if by > 0}
    if past:
        is_read = seen.group is not None and not seen.group.assigned.isdisjoint(past)
        yield _finding(
            seen,
            FindingKind.PAST_LOG_END,
            Severity.CRITICAL if is_read else Severity.WARNING,
            past,
            f"{counted(len(past), 'partition')}: committed up to {counted(max(past.values()), 'offset')} past the end"
            f"{'' if is_read else '; no member owns these partitions'}",
            "By OffsetFetch, and then ListOffsets: an end that is read later is never before an offset that a consumer "
            "of this log had reached",
        )


# --- no progress ------------------------------------------------------------------------------------------------------


def _standing(seen: GroupSeen) -> dict[TopicPartition, int]:
    """Partitions with a record to read at the first look, the same committed offset at both, and a log that has grown;
    with what is waiting now."""
    before = seen.before
    if before is None:
        return {}
    return {
        p: seen.bounds[p].latest - at
        for p, at in seen.committed.items()
        if before.committed.get(p) == at
        and p in before.bounds
        and p in seen.bounds
        and at < before.bounds[p].latest < seen.bounds[p].latest
    }


def _known_standing(seen: GroupSeen) -> str:
    seconds = 0.0 if seen.before is None else seen.before.seconds
    return (
        f"By two looks {seconds:.0f} s apart: the same committed offset, records to read at both, a log that has grown"
    )


def _no_progress(seen: GroupSeen, _: ClusterSeen) -> Iterator[Finding]:
    """A finding for each owner. That it has committed on other partitions meanwhile tells a partition that is stuck
    from a consumer that commits rarely."""
    if seen.group is None:
        return
    by_owner: defaultdict[str, set[TopicPartition]] = defaultdict(set)
    standing = _standing(seen)
    for member in seen.group.members:
        by_owner[member.member_id] |= member.assignment & standing.keys()
    for member in seen.group.members:
        stuck = by_owner[member.member_id]
        if not stuck:
            continue
        moved = sum(seen.moved(p) for p in member.assignment & seen.committed.keys())
        also = (
            f"The same member committed on {counted(moved, 'other partition')} meanwhile"
            if moved
            else "No partition of this member moved, so it is also possible that it commits less often"
        )
        yield _finding(
            seen,
            FindingKind.NO_PROGRESS,
            Severity.CRITICAL if moved else Severity.WARNING,
            stuck,
            f"{counted(len(stuck), 'partition')} of {member_text(member)}: nothing committed while "
            f"{counted(sum(map(seen.grown, stuck)), 'record')} arrived, "
            f"{counted(sum(standing[p] for p in stuck), 'record')} to read",
            f"{_known_standing(seen)}; the owner is the one that the coordinator named at the second look. {also}",
        )


def _not_owned(seen: GroupSeen, _: ClusterSeen) -> Iterator[Finding]:
    """Only of topics of which members own other partitions: those of another topic are nobody's on purpose."""
    group = seen.group
    if group is None or not group.has_members or group.state is not GroupState.STABLE:
        return
    read = {p.topic for p in group.assigned}
    standing = _standing(seen)
    without = [p for p in standing if p.topic in read and group.owner(p) is None]
    if without:
        yield _finding(
            seen,
            FindingKind.NOT_OWNED,
            Severity.CRITICAL,
            without,
            f"{counted(len(without), 'partition')} without an owner, "
            f"{counted(sum(standing[p] for p in without), 'record')} to read",
            f"{_known_standing(seen)}; the assignment is the one that the coordinator reported at the "
            "second look, in state Stable",
        )


def _not_consumed(seen: GroupSeen, _: ClusterSeen) -> Iterator[Finding]:
    standing = _standing(seen)
    if standing and seen.group is not None and seen.group.is_vacant:
        yield _finding(
            seen,
            FindingKind.NOT_CONSUMED,
            Severity.WARNING,
            standing,
            f"no members; {counted(sum(map(seen.grown, standing)), 'record')} arrived in "
            f"{counted(len(standing), 'partition')}, {counted(sum(standing.values()), 'record')} to read",
            f"{_known_standing(seen)}; the coordinator reported no members. A consumer that takes "
            "partitions with assign() is not a member, and would be seen only by its commits",
        )


def _rebalancing(seen: GroupSeen, _: ClusterSeen) -> Iterator[Finding]:
    group = seen.group
    states = {state.value for state in GroupState if state.is_rebalancing}
    if group is None or not group.state.is_rebalancing or seen.listed.state not in states or seen.before is None:
        return
    yield Finding(
        FindingKind.REBALANCING,
        Severity.WARNING,
        f"{counted(len(group.members), 'member')}, state {seen.listed.state} at first and then {group.state}",
        f"By ListGroups and, {seen.before.seconds:.0f} s later, DescribeGroups. During a rebalance it "
        "can't be seen who owns what. The group may have been stable in between",
        seen.group_id,
    )


# --- no committed offset ----------------------------------------------------------------------------------------------


def _without_commit(seen: GroupSeen, cluster: ClusterSeen) -> Iterator[Finding]:
    """Of topics with committed offsets for some partitions. One without a record in it loses none by ``latest``."""
    highest: dict[str, int] = {}
    for p in seen.committed:
        highest[p.topic] = max(highest.get(p.topic, -1), p.partition)
    topics = [cluster.topics[name] for name in highest if name in cluster.topics]
    without = [
        p
        for topic in topics
        for p in topic.all_partitions()
        if p not in seen.committed and p in seen.bounds and seen.bounds[p].earliest < seen.bounds[p].latest
    ]
    if not without:
        return
    added = sum(p.partition > highest[p.topic] for p in without)
    numbers = (
        "their numbers are above those of all partitions with a committed offset, as is the case for "
        "partitions that were added"
    )
    others = f"numbers above those of all partitions with a committed offset: {added:,} of {len(without):,}"
    owned = len(seen.group.assigned & set(without)) if seen.group is not None else 0
    yield _finding(
        seen,
        FindingKind.WITHOUT_COMMIT,
        Severity.WARNING,
        without,
        f"{counted(len(without), 'partition')} with records and no committed offset"
        + (f", {owned:,} of them owned by a member" if owned else "")
        + f": {counted(sum(_waiting(seen, p) for p in without), 'record')} in the logs now",
        "By OffsetFetch, Metadata and ListOffsets; "
        + (numbers if added == len(without) else others)
        + ". It can't be seen where a consumer of such a partition has begun",
    )


CHECKS: Final[tuple[Callable[[GroupSeen, ClusterSeen], Iterator[Finding]], ...]] = (
    _lost_to_retention,
    _past_log_end,
    _no_progress,
    _not_owned,
    _not_consumed,
    _rebalancing,
    _without_commit,
)
