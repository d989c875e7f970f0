"""Owners' first commits since the targets, where each may as well be an old position that came late. Pure.

Only the owner's next commit tells: it goes on from the first one, or steps back to what is read from the target. Of an
owner that is gone before that, nobody knows where its partition's next owner begins.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from tidegate.kafka.model import Group, Member, Offsets, TopicPartition
from tidegate.reset.applying.rounds import NO_PARTITIONS, Partitions
from tidegate.reset.applying.verify import Watched


@dataclass(frozen=True, slots=True)
class _First:
    offset: int
    owner_id: str


@dataclass(slots=True)
class FirstCommits:
    """Of one watch. ``replaced``: where the group was before the targets. ``unseen``: partitions that nobody has
    watched since they were committed, so that what is found at the first look may be what their owner began at.
    """

    targets: Mapping[TopicPartition, int]
    replaced: Mapping[TopicPartition, int]
    unseen: Partitions = NO_PARTITIONS
    _first: dict[TopicPartition, _First] = field(default_factory=dict)
    _known: set[TopicPartition] = field(default_factory=set)
    """Partitions whose owner is known to read from the target on."""
    _lost: set[TopicPartition] = field(default_factory=set)

    def take_up(self, seen: Offsets, look: Callable[[], Group]) -> None:
        """``look``: at the group as it is now. Raises what that raises."""
        progressed = {p: offset for p, offset in seen.items() if offset > self.targets.get(p, offset)}
        in_doubt = set[TopicPartition]()
        for partition, offset in progressed.items():
            if partition in self._first or self._may_be_old(partition, offset):
                in_doubt.add(partition)
            else:
                self._known.add(partition)
        in_doubt -= self._known | self._lost
        if in_doubt:
            group = look()
            for partition in in_doubt:
                self._compare(partition, progressed[partition], group.owner(partition))
        self.unseen = NO_PARTITIONS

    def _compare(self, partition: TopicPartition, offset: int, owner: Member | None) -> None:
        first = self._first.get(partition)
        if first is not None and offset < first.offset:
            self._known.add(partition)
        elif owner is None or (partition in self.unseen if first is None else owner.member_id != first.owner_id):
            self._lost.add(partition)
        elif first is None:
            self._first[partition] = _First(offset, owner.member_id)
        elif offset != first.offset:
            self._known.add(partition)

    @property
    def awaited(self) -> Partitions:
        """Partitions whose owner may yet commit anew."""
        return frozenset(self._first.keys() - self._known - self._lost)

    @property
    def lost(self) -> Partitions:
        """Partitions whose owner has lost them after a first commit that may be old."""
        return frozenset(self._lost)

    def _may_be_old(self, partition: TopicPartition, offset: int) -> bool:
        return Watched(self.replaced.get(partition), self.targets[partition], offset).is_old
