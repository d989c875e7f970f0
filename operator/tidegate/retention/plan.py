"""What is due to keep a group's place, and when its offsets go: by what was seen and the time as an argument. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from tidegate.kafka.model import Group, GroupState, GroupType, TopicPartition
from tidegate.kafka.offset_expiry import CommitTime, GroupFacts, RetentionSettings, expiry_ms
from tidegate.kafka.offset_records import GroupLog
from tidegate.kafka.offset_retention import Commit, Commits
from tidegate.retention.last_offsets import Place, Places

DAY_MS: Final = 86_400_000

KEPT_FOR_RETENTIONS: Final = 10
"""How many of the brokers' retentions a kept offset lasts. With Kafka's 7 days that is 70: a Tidegate that is away for
a month loses nothing, and one that was removed leaves nothing behind for ever."""

KEPT_FOR_UNKNOWN_MS: Final = 70 * DAY_MS
"""The same where the brokers' retention may not be read: as with Kafka's default. Longer than the retention assumed,
so that keeping an offset never makes it go earlier where brokers keep longer than that."""

ASSUMED: Final = RetentionSettings(DAY_MS, 600_000)
"""Where the brokers' settings may not be read: the shortest retention that was ever a default (Kafka before 2.0)."""


@dataclass(frozen=True, slots=True)
class Seen:
    """One look at a group. ``commits``: those of the topics that the policy covers.

    ``settings``: the brokers', ``None`` if they may not be read. ``log``: what the coordinator's log says, ``None`` if
    that may not be read, or was not read to its end. ``topics``: the ids of those that exist, by name.
    """

    now_ms: int
    group: Group
    commits: Commits
    places: Places
    settings: RetentionSettings | None
    log: GroupLog | None
    guard: bool

    @property
    def retention(self) -> RetentionSettings:
        return self.settings or ASSUMED

    @property
    def is_kept(self) -> bool:
        """Whether the group's offsets are committed again before they end. Those of a group with members are not: what
        no member subscribes to any more may end."""
        return self.guard and self.group.is_vacant

    @property
    def kept_for_ms(self) -> int:
        if self.settings is None:
            return KEPT_FOR_UNKNOWN_MS
        return KEPT_FOR_RETENTIONS * self.settings.retention_ms


@dataclass(frozen=True, slots=True)
class Expiry:
    """When an offset goes: ``at_ms``, exactly or at the earliest. ``None``: never if exact, else unknown.

    ``own_ms``: its own retention, if that is longer than the brokers'.
    """

    at_ms: int | None
    exact: bool
    own_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Prevented:
    """Offsets that are committed again before they end. ``others_ms``: the first end of all others, if any is known;
    ``first_ms``: the first end of these; ``due_ms``: by when the first of them is committed again."""

    others_ms: int | None
    first_ms: int
    due_ms: int


@dataclass(frozen=True, slots=True)
class Plan:
    """``due``: to be committed again now. ``lost``: to be restored. ``next_due_ms``: when the next one will be due.

    ``ends_ms``: when offsets end, as far as that is known. ``exact``: all ends are known exactly. ``kept``: offsets
    with a retention of their own, longer than the brokers'. ``places``: with what is known now. ``prevented``: of those
    ends, which are prevented.
    """

    places: Places
    due: Mapping[TopicPartition, Commit]
    lost: Mapping[TopicPartition, Place]
    ends_ms: frozenset[int]
    exact: bool
    kept: int
    next_due_ms: int | None
    prevented: Prevented | None = None

    @property
    def expires_ms(self) -> int | None:
        """The first offset's end; ``None``: none is known."""
        return min(self.ends_ms, default=None)


def decide(seen: Seen) -> Plan:
    """Nothing is due or restored while the group has members: whatever they commit is newer."""
    offsets = seen.commits.offsets
    ends = {p: expiry(seen, p) for p in offsets}
    vacant = seen.group.is_vacant
    # What a transaction is about to decide is not ours to write; a partition that is gone can't be written.
    mine = {p for p in offsets if seen.is_kept and _is_there(seen.places.rows[p])}
    due_ms = {p: _due_ms(seen, p, ends[p]) for p in mine}
    due = {p: offsets[p] for p, at in due_ms.items() if at is not None and at <= seen.now_ms}
    later = [at for p, at in due_ms.items() if at is not None and p not in due]
    lost = {p: row for p, row in seen.places.rows.items() if row.lost_ms is not None and vacant and _is_there(row)}
    rows = {p: replace(seen.places.rows[p], lasts_until_ms=_lasts_until_ms(seen, p, end)) for p, end in ends.items()}
    return Plan(
        places=seen.places.with_rows(rows),
        due=due,
        lost=lost,
        ends_ms=_known_ms(seen, ends),
        exact=all(end.exact for end in ends.values()),
        kept=sum(end.own_ms is not None for end in ends.values()),
        next_due_ms=min(later, default=None),
        prevented=_prevented(seen, ends, due_ms),
    )


def _prevented(
    seen: Seen, ends: Mapping[TopicPartition, Expiry], due_ms: Mapping[TopicPartition, int | None]
) -> Prevented | None:
    """``None``: no known end is."""
    kept = {p: end for p, end in ends.items() if due_ms.get(p) is not None and end.at_ms is not None}
    first_ms = min(_known_ms(seen, kept), default=None)
    if first_ms is None:
        return None
    others_ms = min(_known_ms(seen, {p: end for p, end in ends.items() if p not in kept}), default=None)
    return Prevented(others_ms, first_ms, min(at for p in kept if (at := due_ms[p]) is not None))


def _is_there(place: Place) -> bool:
    """Whether there is the partition, by the last look."""
    return bool(place.topic_id) and place.hidden_ms is None


def ends_ms(seen: Seen) -> frozenset[int]:
    """When the group's offsets end, as far as that is known."""
    return _known_ms(seen, {p: expiry(seen, p) for p in seen.commits.offsets})


def _known_ms(seen: Seen, ends: Mapping[TopicPartition, Expiry]) -> frozenset[int]:
    return frozenset(end.at_ms for p, end in ends.items() if end.at_ms is not None and seen.places.rows[p].topic_id)


def expiry(seen: Seen, partition: TopicPartition) -> Expiry:
    """When an offset of the group goes, as far as that is known."""
    place = seen.places.rows[partition]
    logged = seen.log.commit(partition) if seen.log is not None else None
    if logged is not None and logged.offset == seen.commits.offsets[partition].offset and seen.log is not None:
        at_ms = expiry_ms(
            _facts(seen.group, seen.log.emptied_ms),
            partition.topic,
            CommitTime(logged.committed_ms, logged.explicit_ms),
            seen.retention,
            exists=bool(place.topic_id),
        )
        own_ms = None if logged.explicit_ms is None else logged.explicit_ms - logged.committed_ms
        exact = own_ms is not None or seen.settings is not None
        return Expiry(at_ms, exact=exact, own_ms=own_ms if _is_longer(own_ms, seen) else None)
    return _at_the_earliest(seen, partition, place)


def _is_longer(own_ms: int | None, seen: Seen) -> bool:
    """Than the brokers' retention. Where that is unknown, only what is as long as the retention that we give counts."""
    if own_ms is None:
        return False
    return own_ms >= seen.kept_for_ms if seen.settings is None else own_ms > seen.settings.retention_ms


def _at_the_earliest(seen: Seen, partition: TopicPartition, place: Place) -> Expiry:
    """From looks alone. A commit that drops our retention without moving the offset is not seen, so that one counts as
    if it was dropped at once: from then on the brokers' own retention runs, and no shorter."""
    own_ms = None if place.kept_ms is None else seen.kept_for_ms
    classic = seen.group.type is GroupType.CLASSIC
    since_ms = seen.places.occupied_ms if classic and seen.group.is_vacant else place.committed_after_ms
    times = [at for at in (since_ms, place.kept_ms) if at is not None]
    facts = _facts(seen.group, max(times, default=0))
    at_ms = expiry_ms(
        facts, partition.topic, CommitTime(max(times, default=0)), seen.retention, exists=bool(place.topic_id)
    )
    if at_ms is None:
        return Expiry(None, exact=True, own_ms=own_ms)
    return Expiry(at_ms if times else None, exact=False, own_ms=own_ms)


def _facts(group: Group, emptied_ms: int | None) -> GroupFacts:
    """A stable group's members own all partitions of what they subscribe to; in a rebalance nobody can tell."""
    known = group.state in (GroupState.STABLE, GroupState.EMPTY, GroupState.DEAD)
    subscribed = frozenset(p.topic for p in group.assigned) if known else None
    # A group that nobody knows has no offsets; were there any, they would be without members.
    kind = GroupType.SIMPLE if group.state is GroupState.DEAD else group.type
    return GroupFacts(kind, group.state, emptied_ms, subscribed)


def _due_ms(seen: Seen, partition: TopicPartition, end: Expiry) -> int | None:
    """When the offset is to be committed again: with half of its time left. ``None``: it does not expire."""
    half_ms = seen.retention.retention_ms // 2
    if end.at_ms is None and end.exact:
        return None
    if end.at_ms is not None:
        return end.at_ms - (end.own_ms // 2 if end.own_ms is not None and end.exact else half_ms)
    # Its age is unknown, and it may go at any moment. But a simple consumer's commits come unannounced, and one that
    # still commits needs no help: what it leaves alone for half a retention can be touched.
    if seen.group.type is GroupType.SIMPLE:
        return seen.places.rows[partition].seen_ms + half_ms
    return seen.now_ms


def _lasts_until_ms(seen: Seen, partition: TopicPartition, end: Expiry) -> int | None:
    """Before this the offset cannot have expired, whatever becomes of the group after this look."""
    if end.at_ms is not None:
        return end.at_ms
    if seen.group.type is GroupType.CLASSIC and not seen.group.is_vacant:
        return seen.now_ms + seen.retention.retention_ms
    after_ms = seen.places.rows[partition].committed_after_ms
    return None if after_ms is None else after_ms + seen.retention.retention_ms
