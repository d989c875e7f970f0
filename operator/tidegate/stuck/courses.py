"""How each partition of a group gets on, look by look: how fast it usually does, and since when it stands. Pure.

A partition stands when its committed offset is the same while its log grows and one member owns it. What interrupts
that, such as another owner, a rebalance, a hold or a gap between two looks, lets the time begin anew: a consumer that
could not have gone on is never taken for one that does not.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from tidegate.kafka.model import Group, GroupState, Offsets, TopicPartition

LEAST_MOVES: Final = 5
"""How often a partition's committed offset has to be seen moving before anything is said of it."""
_FORGETS: Final = 0.998
"""What is left of the longest interval at each move that took less: an hour of a bad day does not count for ever."""


@dataclass(frozen=True, slots=True)
class Look:
    """What one look saw of a group. ``at_s``: monotonic. ``owners``: by partition, the member id of whoever
    has it; empty while the group is not stable. ``ends``: where the logs end for readers of
    committed records, read after ``committed``. ``withheld``: what Tidegate keeps from being read. ``elsewhere``: the
    same as ``owners``, of partitions that are not watched and may have something to read."""

    at_s: float
    owners: Mapping[TopicPartition, str]
    committed: Offsets
    ends: Offsets
    withheld: Collection[TopicPartition] = ()
    elsewhere: Mapping[TopicPartition, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Pace:
    """How a partition is usually read: ``moves`` of its committed offset seen, up to ``LEAST_MOVES``, and the longest
    time that one took while there was something to read."""

    moves: int = 0
    longest_s: float = 0.0

    @property
    def is_known(self) -> bool:
        return self.moves >= LEAST_MOVES

    def moved(self, took_s: float) -> Pace:
        return Pace(min(LEAST_MOVES, self.moves + 1), max(took_s, _FORGETS * self.longest_s))


@dataclass(frozen=True, slots=True)
class Course:
    """One partition at one committed offset and with one owner, since ``first_s``.

    ``end``: where the log ended then. ``busy_s``: no later than when there was something to read, for what is learned;
    ``since_s``: the look that saw the log grown beyond ``end``, from which on it stands; ``others``: where all logs of
    the group ended at that look. ``None``: not yet.
    """

    committed: int
    owner: str
    end: int
    first_s: float
    last_s: float
    busy_s: float | None = None
    since_s: float | None = None
    others: Offsets = field(default_factory=dict)

    @property
    def stands(self) -> bool:
        return self.since_s is not None


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """A partition that is not watched. ``moved_s``: the look that saw its committed offset moved; ``None``: none."""

    owner: str
    committed: int | None
    moved_s: float | None = None


@dataclass(slots=True)
class Courses:
    """Those of one group. ``paces`` outlive what interrupts a course."""

    paces: dict[TopicPartition, Pace] = field(default_factory=dict)
    now: dict[TopicPartition, Course] = field(default_factory=dict)
    elsewhere: dict[TopicPartition, Elsewhere] = field(default_factory=dict)
    looked_s: float | None = None

    def begin_anew(self) -> None:
        """What comes next has nothing to do with what was: nobody looked, or the group was reset."""
        self.now, self.elsewhere, self.looked_s = {}, {}, None

    def take(self, look: Look, longest_gap_s: float) -> None:
        """Go on by a look. ``longest_gap_s``: between two looks; a longer one may hide anything, such as brokers that
        nobody could commit to."""
        if self.looked_s is not None and look.at_s - self.looked_s > longest_gap_s:
            self.begin_anew()
        before, self.now = self.now, {}
        for partition, owner in look.owners.items():
            committed, end = look.committed.get(partition), look.ends.get(partition)
            if committed is None or end is None or partition in look.withheld:
                continue
            self.now[partition] = self._next(partition, before.get(partition), committed, end, owner, look)
        self.elsewhere = {p: self._not_watched(p, owner, look) for p, owner in look.elsewhere.items()}
        self.looked_s = look.at_s

    def forget(self, partitions: Collection[TopicPartition]) -> None:
        """They are other partitions now: their topics were created again."""
        for partition in partitions:
            self.paces.pop(partition, None)
            self.now.pop(partition, None)

    @property
    def longest_s(self) -> float:
        """Of all partitions of the group, which are read by the same application."""
        return max((pace.longest_s for pace in self.paces.values() if pace.is_known), default=0.0)

    def _not_watched(self, partition: TopicPartition, owner: str, look: Look) -> Elsewhere:
        before, committed = self.elsewhere.get(partition), look.committed.get(partition)
        if before is None or before.owner != owner:
            return Elsewhere(owner, committed)
        return before if before.committed == committed else Elsewhere(owner, committed, look.at_s)

    def _next(
        self, partition: TopicPartition, before: Course | None, committed: int, end: int, owner: str, look: Look
    ) -> Course:
        if before is None or before.owner != owner or committed < before.committed:
            return _begun(committed, end, owner, look.at_s, look.at_s)
        if committed > before.committed:
            busy_s = before.last_s if before.busy_s is None else before.busy_s
            self.paces[partition] = self.paces.get(partition, Pace()).moved(look.at_s - busy_s)
            return _begun(committed, end, owner, look.at_s, before.last_s)
        if before.since_s is None and end > max(before.end, committed):
            busy_s = before.last_s if before.busy_s is None else before.busy_s
            return replace(before, last_s=look.at_s, busy_s=busy_s, since_s=look.at_s, others=look.ends)
        return replace(before, last_s=look.at_s)


def _begun(committed: int, end: int, owner: str, at_s: float, last_s: float) -> Course:
    # One offset that was there from the beginning may be a transaction's marker, behind which nothing comes.
    busy_s = last_s if end - committed > 1 else None
    return Course(committed, owner, end, first_s=at_s, last_s=at_s, busy_s=busy_s)


def owners_of(group: Group) -> Mapping[TopicPartition, str]:
    """Nobody's while the group is not stable. A static member that restarts is another member."""
    if group.state is not GroupState.STABLE:
        return {}
    return {p: member.member_id for member in group.members for p in member.assignment}
