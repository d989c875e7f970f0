"""A mirror's cluster in memory; `tests/contract/test_mirror_cluster.py` runs against it and against a real one."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from support.mirror.target_broker import TargetBroker
from tidegate.kafka.errors import GroupNotEmpty, KafkaFailure, NotAuthorized, Unavailable, UnknownPartitions
from tidegate.kafka.model import LogBounds, Topic, TopicPartition
from tidegate.mirror.model import Appended, Done, Interrupted, Tail
from tidegate.mirror.ports import GroupOffset, GroupOffsets
from tidegate.mirror.source import SourceRead

T = TypeVar("T")

DEFAULTS: Mapping[str, str] = {
    "cleanup.policy": "delete",
    "compression.type": "producer",
    "max.message.bytes": "1048588",
    "message.timestamp.after.max.ms": "3600000",
    "message.timestamp.type": "CreateTime",
    "retention.bytes": "-1",
    "retention.ms": "604800000",
}


@dataclass
class FakeTopic:
    topic_id: str
    settings: dict[str, str]
    logs: list[TargetBroker]


@dataclass
class FakeMirrorCluster:
    """Implements `tidegate.mirror.ports.MirrorCluster`, for both of its roles."""

    id: str = "cluster"
    kept: dict[str, FakeTopic] = field(default_factory=dict)
    offsets: dict[str, dict[TopicPartition, GroupOffset]] = field(default_factory=dict)
    members: set[str] = field(default_factory=set)
    """Groups that have some."""
    failure: KafkaFailure | None = None
    """What every call raises."""
    dies_after: int | None = None
    """So many commits from now on."""
    closed: bool = False
    undecided: set[TopicPartition] = field(default_factory=set)
    """Partitions whose first record is one of a transaction that is open."""
    headless: set[TopicPartition] = field(default_factory=set)
    """Partitions without a leader."""
    hidden: set[str] = field(default_factory=set)
    """Topics that the principal may not describe."""
    may_write: dict[str, frozenset[str]] | None = None
    """By topic, who may by ACLs; ``None``: there is no authorizer."""
    commits: list[str] = field(default_factory=list)
    _numbers: itertools.count[int] = field(default_factory=lambda: itertools.count(1))

    def log(self, topic: str, partition: int = 0) -> TargetBroker:
        return self.kept[topic].logs[partition]

    def write(self, topic: str, records: int, partition: int = 0) -> None:
        for _ in range(records):
            self.log(topic, partition).foreign()

    # --- the port -----------------------------------------------------------------------------------------------------

    def cluster_id(self) -> str:
        self._answer()
        return self.id

    def topics(self) -> Mapping[str, Topic]:
        self._answer()
        return {n: Topic(n, t.topic_id, len(t.logs)) for n, t in self.kept.items() if n not in self.hidden}

    def topic(self, name: str) -> Topic | None:
        self._answer()
        if name in self.hidden:
            raise NotAuthorized(f"look for topic {name}: allow the principal Describe on topic {name}")
        return self.topics().get(name)

    def settings(self, topics: Collection[str]) -> Mapping[str, Mapping[str, str]]:
        self._answer()
        return {name: dict(self.kept[name].settings) for name in topics if name in self.kept}

    def bounds(
        self, partitions: Collection[TopicPartition], *, stable: bool = True
    ) -> Mapping[TopicPartition, LogBounds]:
        self._answer()
        gone = frozenset(p for p in partitions if self._log(p) is None)
        if gone:
            raise UnknownPartitions(gone)
        for partition in self.headless & frozenset(partitions):
            raise Unavailable(f"read the end of the logs: {partition} has no leader at the moment")
        return self.told_bounds(partitions, stable=stable)

    def told_bounds(
        self, partitions: Collection[TopicPartition], *, stable: bool = True
    ) -> Mapping[TopicPartition, LogBounds]:
        self._answer()
        logs = {p: log for p in partitions if (log := self._log(p)) is not None and p not in self.headless}
        return {
            p: LogBounds(log.start, log.start if stable and p in self.undecided else log.end) for p, log in logs.items()
        }

    def create_topic(self, name: str, partitions: int, settings: Mapping[str, str]) -> None:
        self._answer()
        if name not in self.kept:
            logs = [TargetBroker() for _ in range(partitions)]
            self.kept[name] = FakeTopic(f"{self.id}-{next(self._numbers)}", {**DEFAULTS, **settings}, logs)

    def add_partitions(self, name: str, partitions: int) -> None:
        self._answer()
        logs = self.kept[name].logs
        logs += [TargetBroker() for _ in range(partitions - len(logs))]

    def configure(self, name: str, settings: Mapping[str, str]) -> None:
        self._answer()
        self.kept[name].settings |= settings

    def new_producer_id(self) -> int:
        self._answer()
        return next(self._numbers)

    def source(self, partition: TopicPartition, topic_id: str) -> FakeSource:
        return FakeSource(self, partition, topic_id)

    def target(self, partition: TopicPartition) -> FakeTarget:
        return FakeTarget(self, partition)

    def writers(self, topics: Collection[str]) -> Mapping[str, frozenset[str]] | None:
        self._answer()
        return None if self.may_write is None else {topic: self.may_write.get(topic, frozenset()) for topic in topics}

    def group_ids(self) -> frozenset[str]:
        self._answer()
        return frozenset(self.offsets)

    def committed(self, group_ids: Collection[str]) -> Mapping[str, GroupOffsets]:
        self._answer()
        return {group_id: dict(self.offsets.get(group_id, {})) for group_id in group_ids}

    def commit(self, group_id: str, offsets: GroupOffsets) -> None:
        self._answer()
        if self.dies_after is not None:
            if not self.dies_after:
                raise Killed
            self.dies_after -= 1
        if group_id in self.members:
            raise GroupNotEmpty(f"commit {len(offsets)} offset(s) of group {group_id}: it has members")
        self.commits.append(group_id)
        self.offsets.setdefault(group_id, {}).update(offsets)

    def close(self) -> None:
        self.closed = True

    def _answer(self) -> None:
        if self.failure is not None:
            raise self.failure

    def _log(self, partition: TopicPartition) -> TargetBroker | None:
        topic = self.kept.get(partition.topic)
        return topic.logs[partition.partition] if topic and partition.partition < len(topic.logs) else None


class Killed(BaseException):
    """As a process that ends in the middle."""


@dataclass
class FakeSource:
    cluster: FakeMirrorCluster
    partition: TopicPartition
    topic_id: str

    def read(self, offset: int) -> SourceRead | Interrupted:
        topic = self.cluster.kept.get(self.partition.topic)
        if topic is None or topic.topic_id != self.topic_id or self.partition in self.cluster.headless:
            return Interrupted("its leader is not there")
        log = topic.logs[self.partition.partition]
        if not log.start <= offset <= log.end:
            return SourceRead(offset, log.start, log.end)
        data = b"".join(one.data for one in log.log if one.until > offset)
        return SourceRead(offset, log.start, log.end, data=data)


@dataclass
class FakeTarget:
    cluster: FakeMirrorCluster
    partition: TopicPartition

    def tail(self, window: int) -> Tail | Interrupted:
        return self._of(lambda log: log.tail(window))

    def append(self, batches: tuple[bytes, ...]) -> Appended | Interrupted:
        return self._of(lambda log: Appended(tuple(log.produce(data) for data in batches)))

    def write_markers(self, producer_id: int, epoch: int, count: int) -> Done | Interrupted:
        def write(log: TargetBroker) -> Done:
            for _ in range(count):
                log.write_marker(producer_id, epoch)
            return Done()

        return self._of(write)

    def delete_records(self, offset: int) -> Done | Interrupted:
        def delete(log: TargetBroker) -> Done:
            log.delete_records(offset)
            return Done()

        return self._of(delete)

    def _of(self, do: Callable[[TargetBroker], T]) -> T | Interrupted:
        log = self.cluster._log(self.partition)
        if log is None or self.partition in self.cluster.headless:
            return Interrupted(f"{self.partition} is not there, or has no leader")
        return do(log)
