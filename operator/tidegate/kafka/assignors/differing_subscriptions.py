"""Kafka's sticky assignment where members read different topics
(``AbstractStickyAssignor.GeneralAssignmentBuilder``).

Racks are not told here (see :mod:`tidegate.kafka.assignors.plain`).
"""

from __future__ import annotations

import bisect
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

from tidegate.kafka.assignors.java_order import text_order
from tidegate.kafka.assignors.members import Assigned, Claims, Joined
from tidegate.kafka.assignors.movements import Movements
from tidegate.kafka.model import TopicPartition

MOVES_EACH: Final = 4
"""How often a partition is moved on average, at most. Kafka has no limit, and claims of several generations can make it
move the same partitions again and again without end; in groups where it came to an end it was less than twice."""


def assign_balanced(members: Mapping[str, Joined], claims: Claims, counts: Mapping[str, int]) -> Assigned:
    """Everybody keeps what he claims; the rest goes to who has the fewest; then partitions are moved as long as that
    makes the shares more even, to members that had them earlier rather than to others.

    ``claims`` has every member; ``counts``: of all topics that somebody reads.
    """
    return _Balance(members, claims, counts).assigned()


class _Balance:
    def __init__(self, members: Mapping[str, Joined], claims: Claims, counts: Mapping[str, int]) -> None:
        self._members = members
        self._claims = claims
        self._counts = counts
        self._readers: dict[str, list[str]] = {topic: [] for topic in counts}
        for member_id, member in members.items():
            for topic in member.topics & counts.keys():
                self._readers[topic].append(member_id)
        self._owner: dict[TopicPartition, str] = {}
        self._of_topic: dict[str, Counter[str]] = {topic: Counter() for topic in counts}
        """How many partitions of a topic each member has."""
        self._sizes: dict[str, int] = dict.fromkeys(claims.kept, 0)
        self._fewest: list[tuple[int, bytes, str]] = []
        """Members that may get something or lose something, who has the fewest partitions first."""
        self._movements = Movements()
        self._moves_left = MOVES_EACH * sum(counts.values())
        self._is_even: bool | None = None
        """As far as is known since the last move."""

    def assigned(self) -> Assigned:
        by_readers = sorted(self._counts, key=lambda topic: (len(self._readers[topic]), text_order(topic)))
        everything = [TopicPartition(topic, number) for topic in by_readers for number in range(self._counts[topic])]
        takes_away = self._keep()
        self._fewest = sorted((size, text_order(member_id), member_id) for member_id, size in self._sizes.items())
        begins = not self._fewest[-1][0]
        left = [partition for partition in everything if partition not in self._owner]
        for partition in left:
            self._give(partition, self._emptiest_reader(partition.topic))

        self._set_apart_the_fixed()
        before = dict(self._owner)
        score = self._score()
        if not takes_away:
            self._even_out(self._movable(left))
        if self._even_out(self._movable(everything)) and not begins and self._score() >= score:
            self._owner = before
        return self._answer()

    def _keep(self) -> bool:
        """Whether somebody loses what he claims, as he no longer reads its topic."""
        takes_away = False
        for member_id, kept in self._claims.kept.items():
            for partition in kept:
                if partition.topic in self._members[member_id].topics:
                    self._own(partition, member_id)
                    self._sizes[member_id] += 1
                else:
                    takes_away = True
        return takes_away

    def _set_apart_the_fixed(self) -> None:
        """Members all of whose topics nobody else reads have everything that they can have, and lose nothing."""
        self._fewest = [
            entry for entry in self._fewest if any(self._is_shared(topic) for topic in self._topics_of(entry[2]))
        ]

    def _topics_of(self, member_id: str) -> frozenset[str]:
        return self._members[member_id].topics & self._counts.keys()

    def _is_shared(self, topic: str) -> bool:
        return len(self._readers[topic]) > 1

    def _movable(self, partitions: Sequence[TopicPartition]) -> list[TopicPartition]:
        return [partition for partition in partitions if self._is_shared(partition.topic)]

    def _even_out(self, partitions: Sequence[TopicPartition]) -> bool:
        """Whether anything was moved."""
        former = self._former_owners()
        moved_any, moved = False, True
        while moved:
            moved = False
            for partition in partitions:
                if self._even() or not self._moves_left:
                    return moved_any
                size = self._sizes[self._owner[partition]]
                to = former.get(partition)
                if to is None or size <= self._sizes[to] + 1:
                    to = self._emptiest_reader(partition.topic)
                if size > self._sizes[to] + 1:
                    self._move(partition, to)
                    moved_any = moved = True
        return moved_any

    def _former_owners(self) -> dict[TopicPartition, str]:
        """Who claims a partition from the newest generation before that of the group, and still reads it."""
        found: dict[TopicPartition, tuple[int, str]] = {}
        for member_id in self._claims.kept:
            member = self._members[member_id]
            if member.claimed_in >= self._claims.generation:
                continue
            for partition in member.claimed:
                if partition not in found or member.claimed_in > found[partition][0]:
                    found[partition] = (member.claimed_in, member_id)
        return {p: member_id for p, (_, member_id) in found.items() if p.topic in self._members[member_id].topics}

    def _even(self) -> bool:
        """Whether no partition could go to a member that has two partitions less than its owner."""
        if self._is_even is None:
            self._is_even = self._fewest[0][0] >= self._fewest[-1][0] - 1 or all(
                max(self._sizes[owner] for owner in owners) <= self._sizes[self._emptiest_reader(topic)] + 1
                for topic, owners in self._of_topic.items()
                if owners and self._is_shared(topic)
            )
        return self._is_even

    def _score(self) -> int:
        """The sum of the differences between any two members' numbers of partitions."""
        sizes = [size for size, _, _ in self._fewest]
        return sum((2 * place - len(sizes) + 1) * size for place, size in enumerate(sizes))

    def _emptiest_reader(self, topic: str) -> str:
        return next(member_id for _, _, member_id in self._fewest if topic in self._members[member_id].topics)

    def _move(self, partition: TopicPartition, to: str) -> None:
        instead = self._movements.instead_of(partition, self._owner[partition], to)
        owner = self._owner[instead]
        self._movements.record(instead, owner, to)
        self._of_topic[instead.topic][owner] -= 1
        if not self._of_topic[instead.topic][owner]:
            del self._of_topic[instead.topic][owner]
        self._resized(owner, -1)
        self._give(instead, to)
        self._is_even = None
        self._moves_left -= 1

    def _give(self, partition: TopicPartition, member_id: str) -> None:
        self._own(partition, member_id)
        self._resized(member_id, 1)

    def _own(self, partition: TopicPartition, member_id: str) -> None:
        self._owner[partition] = member_id
        self._of_topic[partition.topic][member_id] += 1

    def _resized(self, member_id: str, by: int) -> None:
        entry = (self._sizes[member_id], text_order(member_id), member_id)
        del self._fewest[bisect.bisect_left(self._fewest, entry)]
        self._sizes[member_id] += by
        bisect.insort(self._fewest, (self._sizes[member_id], *entry[1:]))

    def _answer(self) -> Assigned:
        shares: dict[str, set[TopicPartition]] = {member_id: set() for member_id in self._members}
        for partition, member_id in self._owner.items():
            shares[member_id].add(partition)
        given = {p for m, share in shares.items() for p in share - self._members[m].claimed}
        taken = {p for m, share in shares.items() for p in self._members[m].claimed - share}
        return Assigned({m: frozenset(share) for m, share in shares.items()}, frozenset(given & taken))
