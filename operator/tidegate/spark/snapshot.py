"""A cluster as it was read a moment ago, in the shape planning reads it in.

Planning asks a ``ClusterReader``. A Spark job reads the offsets of all groups and the log of each partition once, and
then plans every group from what it has; only what was not read beforehand is asked of the cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from datetime import datetime

from tidegate.kafka.model import Cluster, Group, LogBounds, Offsets, Topic, TopicPartition
from tidegate.kafka.ports import ClusterReader


class Snapshot:
    """Implements ``tidegate.kafka.ports.ClusterReader`` for the planning of one group.

    ``found``: the answers of ``offsets_at`` for the time ``at``. ``live`` is called for everything else.
    """

    def __init__(
        self,
        *,
        group: Group,
        committed: Offsets,
        topics: Mapping[str, Topic],
        bounds: Mapping[TopicPartition, LogBounds],
        found: Mapping[TopicPartition, int | None],
        at: datetime | None,
        live: Callable[[], ClusterReader],
        spans: bool,
    ) -> None:
        self._group = group
        self._committed = committed
        self._topics = topics
        self._bounds = bounds
        self._found = found
        self._at = at
        self._live = live
        self._spans = spans

    def cluster(self) -> Cluster:
        return self._live().cluster()

    def topics(self) -> Mapping[str, Topic]:
        return self._topics

    def groups(self, group_ids: Collection[str]) -> Mapping[str, Group]:
        known = {self._group.group_id: self._group}
        missing = [g for g in group_ids if g not in known]
        return {**{g: known[g] for g in group_ids if g in known}, **(self._live().groups(missing) if missing else {})}

    def committed(
        self, group_id: str, partitions: Collection[TopicPartition] | None = None, *, stable: bool = False
    ) -> Offsets:
        if group_id != self._group.group_id or stable:
            return self._live().committed(group_id, partitions, stable=stable)
        if partitions is None:
            return self._committed
        return {p: self._committed[p] for p in partitions if p in self._committed}

    def committed_of(self, group_ids: Collection[str]) -> Mapping[str, Offsets]:
        missing = [g for g in group_ids if g != self._group.group_id]
        read = self._live().committed_of(missing) if missing else {}
        return {g: self._committed if g == self._group.group_id else read[g] for g in group_ids}

    def managed_members(self, group_id: str) -> frozenset[str]:
        return self._live().managed_members(group_id)

    def pending(self, group_id: str, partitions: Collection[TopicPartition]) -> frozenset[TopicPartition]:
        return self._live().pending(group_id, partitions)

    def log_bounds(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, LogBounds]:
        missing = [p for p in partitions if p not in self._bounds]
        read = self._live().log_bounds(missing) if missing else {}
        return {p: self._bounds[p] if p in self._bounds else read[p] for p in partitions}

    def offsets_at(self, times: Mapping[TopicPartition, datetime]) -> Mapping[TopicPartition, int | None]:
        missing = {p: at for p, at in times.items() if at != self._at or p not in self._found}
        read = self._live().offsets_at(missing) if missing else {}
        return {p: read[p] if p in missing else self._found[p] for p in times}

    def record_times(self, positions: Offsets) -> Mapping[TopicPartition, datetime]:
        # One record is fetched for each partition: for one group's plan, not for a thousand groups'.
        return self._live().record_times(positions) if self._spans else {}
