"""Owners that were made to leave and join again, and what of a cooperative group they keep all the same."""

from __future__ import annotations

from tidegate.cluster import Kafka
from tidegate.kafka.model import Group, GroupState, Member, TopicPartition
from tidegate.leading.joining import not_back
from tidegate.reset.applying.rounds import Partitions


class Rejoins:
    """What members name as their own after owners were made to leave in their names.

    An owner that learns it from a heartbeat gives everything up. One that learns it from a refused commit (franz-go)
    joins anew and names in its subscription what it still has (KIP-429); the assignor lets it keep that, and it never
    reads what is committed. So a partition is kept by whoever names it as it joins for the first time.
    """

    def __init__(self, kafka: Kafka, before: Group, partitions: Partitions) -> None:
        self._kafka = kafka
        self._before = before
        self._partitions = partitions
        self._known = {m.member_id for m in before.members}
        self._kept: set[TopicPartition] = set()
        self.gone: tuple[Member, ...] = ()
        """The owners that were made to leave; only looks after that count."""
        self.seen = False
        """Whether a generation since then has told anything; none does before its join is over."""
        self.are_back = False

    def look(self) -> bool:
        """Take up what the present generation tells; whether the owners are all back in it."""
        group_id = self._before.group_id
        named = self._kafka.membership.owned_when_joining(group_id, dated=True)
        now = self._kafka.groups([group_id])[group_id]
        if named and named.keys() == {m.member_id for m in now.members}:
            new = named.keys() - self._known
            self._known |= new
            self._kept.update(p for member_id in new for p in named[member_id] & self._partitions)
            # A coordinator that has moved since may not know that they were made to leave.
            still = (m for m in self.gone if m.member_id in named)
            self._kept.update(p for m in still for p in m.assignment & self._partitions)
            self.seen = True
            self.are_back = now.state is GroupState.STABLE and self.have_rejoined(now)
        return self.are_back

    def have_rejoined(self, now: Group) -> bool:
        """Whether the owners are members again, of a join that may still be held."""
        return not not_back(now, self.gone, self._before)

    def kept(self) -> Partitions:
        """The partitions that an owner kept, or may have kept."""
        if self.are_back or not self._kafka.groups([self._before.group_id])[self._before.group_id].has_members:
            return frozenset(self._kept)
        # Who is not back yet may come with what it had.
        return self._partitions & frozenset(self._kept).union(*(m.assignment for m in self.gone))
