"""Kafka's sticky assignment where all members read the same topics
(``AbstractStickyAssignor.ConstrainedAssignmentBuilder``).

Racks are not told here (see :mod:`tidegate.kafka.assignors.plain`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

from tidegate.kafka.assignors.java_order import text_order
from tidegate.kafka.assignors.members import Assigned, Claims
from tidegate.kafka.model import TopicPartition


def assign_equally(claims: Claims, counts: Mapping[str, int]) -> Assigned:
    """Everybody keeps what he claims up to his quota; the rest is shared out in turns, the emptiest first.

    ``claims`` has every member, one at least; ``counts``: of all topics that they read.
    """
    return _Quotas(claims, counts).assigned()


class _Quotas:
    """The total leaves each member ``least`` partitions, and ``extra`` of the members one more."""

    def __init__(self, claims: Claims, counts: Mapping[str, int]) -> None:
        self._claims = claims
        self._counts = counts
        self._least, self._extra = divmod(sum(counts.values()), len(claims.kept))
        self._most = self._least + (self._extra > 0)
        self._full = 0
        """How many members have one more."""
        self._shares: dict[str, list[TopicPartition]] = {member_id: [] for member_id in claims.kept}
        self._taken: dict[TopicPartition, str] = {}
        """What members claim beyond their quota, and whose it was."""
        self._below: list[str] = []
        self._at_least: list[str] = []
        """Members that have the least, and may get one more as long as there is more to give."""

    def assigned(self) -> Assigned:
        for member_id in self._claims.kept:
            self._keep(member_id)
        moving = self._share_out()
        return Assigned({member_id: frozenset(share) for member_id, share in self._shares.items()}, moving)

    def _keep(self, member_id: str) -> None:
        claimed = self._claims.kept[member_id] - self._claims.disputed
        # By number first, so that members keep partitions of all their topics.
        owned = sorted(claimed, key=lambda p: (p.partition, text_order(p.topic)))
        quota = self._least
        if len(owned) < self._least:
            self._below.append(member_id)
        elif len(owned) >= self._most and self._full < self._extra:
            quota = self._most
            self._full += 1
        else:
            self._at_least.append(member_id)
        self._shares[member_id] = owned[:quota]
        self._taken.update(dict.fromkeys(owned[quota:], member_id))

    def _share_out(self) -> frozenset[TopicPartition]:
        """Give out what nobody keeps; what of it somebody claims."""
        kept = {partition for share in self._shares.values() for partition in share}
        self._below.sort(key=text_order)
        waiting = deque(sorted(self._at_least, key=text_order))
        moving = set()
        turn = 0
        for topic in sorted(self._counts, key=text_order):
            for number in range(self._counts[topic]):
                partition = TopicPartition(topic, number)
                if partition in kept:
                    continue
                if not self._below:
                    member_id = waiting.popleft()
                else:
                    turn %= len(self._below)
                    member_id = self._below[turn]
                    turn += 1
                self._shares[member_id].append(partition)
                if len(self._shares[member_id]) == self._least:
                    turn -= 1
                    del self._below[turn]
                    waiting.append(member_id)
                if self._taken.get(partition, member_id) != member_id or partition in self._claims.disputed:
                    moving.add(partition)
        return frozenset(moving)
