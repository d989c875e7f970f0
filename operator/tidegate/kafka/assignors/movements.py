"""Which partitions an assignment has moved so far (``AbstractStickyAssignor.PartitionMovements``)."""

from __future__ import annotations

from tidegate.kafka.assignors.java_order import PartitionSet
from tidegate.kafka.model import TopicPartition

_Pair = tuple[str, str]


class Movements:
    """Two partitions of a topic are not exchanged between two members: the one that went there comes back instead."""

    def __init__(self) -> None:
        self._moved: dict[TopicPartition, _Pair] = {}
        """From whom, in the end, to whom."""
        self._of_topic: dict[str, dict[_Pair, PartitionSet]] = {}

    def instead_of(self, partition: TopicPartition, owner: str, to: str) -> TopicPartition:
        """What to move so that ``owner`` has one less and ``to`` one more."""
        came_from = self._moved[partition][0] if partition in self._moved else owner
        way_back = self._of_topic.get(partition.topic, {}).get((to, came_from))
        return partition if way_back is None else way_back.first()

    def record(self, partition: TopicPartition, owner: str, to: str) -> None:
        source = owner
        if partition in self._moved:
            source = self._moved[partition][0]
            self._forget(partition)
            if source == to:
                return
        self._moved[partition] = (source, to)
        self._of_topic.setdefault(partition.topic, {}).setdefault((source, to), PartitionSet()).add(partition)

    def _forget(self, partition: TopicPartition) -> None:
        pair = self._moved.pop(partition)
        pairs = self._of_topic[partition.topic]
        pairs[pair].remove(partition)
        if not pairs[pair]:
            del pairs[pair]
