"""A cluster as it was read a moment ago, in the shape planning reads it in.

Planning asks a ``ClusterReader``. Whoever plans many groups reads the offsets of all groups and the log of each
partition once, and then plans every group from what it has; only what was not read beforehand is asked of the cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from fnmatch import fnmatchcase

from tidegate.kafka.capabilities import Capabilities
from tidegate.kafka.errors import UnknownPartitions
from tidegate.kafka.model import Cluster, Group, LogBounds, Offsets, Topic, TopicPartition
from tidegate.kafka.ports import ClusterReader
from tidegate.reset.model.request import RunRequest
from tidegate.reset.model.targets import FromGroup
from tidegate.reset.planning.targets import asked_time
from tidegate.resources.connection import GroupKind


class Snapshot:
    """Implements ``tidegate.kafka.ports.ClusterReader`` for the planning of the groups that it knows.

    ``committed``: by group, all of each. ``by_streams``: those of the groups that Kafka Streams has committed to, where
    that was read. ``found``: the answers of ``offsets_at`` for the time ``at``. ``live`` is
    called for everything else.
    """

    def __init__(
        self,
        *,
        groups: Mapping[str, Group],
        committed: Mapping[str, Offsets],
        by_streams: frozenset[str] | None = None,
        topics: Mapping[str, Topic],
        bounds: Mapping[TopicPartition, LogBounds],
        found: Mapping[TopicPartition, int | None],
        at: datetime | None,
        live: Callable[[], ClusterReader],
        spans: bool,
    ) -> None:
        self._groups = groups
        self._committed = committed
        self._by_streams = by_streams
        self._topics = topics
        self._bounds = bounds
        self._found = found
        self._at = at
        self._live = live
        self._spans = spans

    def cluster(self) -> Cluster:
        return self._live().cluster()

    def capabilities(self, kinds: Collection[GroupKind], *, probe: bool = True) -> Capabilities:
        return self._live().capabilities(kinds, probe=probe)

    def topics(self, names: Collection[str] | None = None) -> Mapping[str, Topic]:
        return self._topics if names is None else {n: self._topics[n] for n in names if n in self._topics}

    def groups(self, group_ids: Collection[str]) -> Mapping[str, Group]:
        missing = [g for g in group_ids if g not in self._groups]
        read = self._live().groups(missing) if missing else {}
        return {g: self._groups[g] if g in self._groups else read[g] for g in group_ids}

    def committed(
        self, group_id: str, partitions: Collection[TopicPartition] | None = None, *, stable: bool = False
    ) -> Offsets:
        if group_id not in self._committed or stable:
            return self._live().committed(group_id, partitions, stable=stable)
        known = self._committed[group_id]
        if partitions is None:
            return known
        return {p: known[p] for p in partitions if p in known}

    def committed_of(self, group_ids: Collection[str]) -> Mapping[str, Offsets]:
        missing = [g for g in group_ids if g not in self._committed]
        read = self._live().committed_of(missing) if missing else {}
        return {g: self._committed[g] if g in self._committed else read[g] for g in group_ids}

    def committed_by_streams(self, group_ids: Collection[str]) -> frozenset[str]:
        if self._by_streams is None or not self._committed.keys() >= set(group_ids):
            return self._live().committed_by_streams(group_ids)
        return self._by_streams & frozenset(group_ids)

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


def read_ahead(kafka: ClusterReader, requests: Sequence[RunRequest], now: datetime) -> Snapshot:
    """What the plans of all requests need, but for the times of records. Raises ``KafkaFailure``."""
    topics = kafka.topics()
    sources = {r.target.group_id for r in requests if isinstance(r.target, FromGroup)}
    names = sorted({*(r.group_id for r in requests), *sources})
    groups, committed = kafka.groups(names), kafka.committed_of(names)
    by_streams = kafka.committed_by_streams([name for name in names if not groups[name].assignor])
    partitions = {p for r in requests for p in concerned(r, groups[r.group_id], committed[r.group_id], topics)}
    partitions |= {p for name in sources for p in committed[name]}
    at = next((at for r in requests if (at := asked_time(r.target, now)) is not None), None)
    # The look-up before the bounds: the log's end only grows, so that what was found is inside.
    try:
        found = kafka.offsets_at(dict.fromkeys(partitions, at)) if at is not None else {}
        bounds = kafka.log_bounds(partitions)
    except UnknownPartitions as unknown:
        # Offsets of partitions that are gone; planning leaves them out.
        partitions -= unknown.partitions
        found = kafka.offsets_at(dict.fromkeys(partitions, at)) if at is not None else {}
        bounds = kafka.log_bounds(partitions)
    return Snapshot(
        groups=groups,
        committed=committed,
        by_streams=by_streams,
        topics=topics,
        bounds=bounds,
        found=found,
        at=at,
        live=lambda: kafka,
        spans=False,
    )


def concerned(
    request: RunRequest, group: Group, committed: Offsets, topics: Mapping[str, Topic]
) -> frozenset[TopicPartition]:
    """Every partition that planning may want to know about: rather too many than too few."""
    found = set(committed)
    for member in group.members:
        found |= member.assignment
    owned = {p.topic for p in found}
    for topic in topics.values():
        if topic.name in owned or any(fnmatchcase(topic.name, s.topic) for s in request.selections):
            found.update(topic.all_partitions())
    return frozenset(found)
