"""One operator over many clusters in memory, in virtual time: what it asks of Kafka and of the API server is counted.

Each cluster has a namespace, a `KafkaConnection` and one policy for all of its groups, with discovery, ages for agents
and retention. The parts are the operator's own, down to the ports; only `kopf` and the clients below are left out.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Final, cast
from unittest.mock import patch

from prometheus_client import CollectorRegistry

from support.fake_kafka import FakeClock, FakeKafka
from support.fake_kube import FakeKube
from support.virtual_time import AtOnce, VirtualLoop
from tidegate.connection.control_topics import TopicsOfConnections
from tidegate.connection.files import ConnectionFiles
from tidegate.connection.first_looks import FirstLooks
from tidegate.connection.live import LiveConnections
from tidegate.connection.observer import Observer
from tidegate.connection.reconcile import ConnectionReconciler
from tidegate.connection.reconcile import Parts as ConnectionParts
from tidegate.discovery import watch
from tidegate.discovery.feature import DiscoveryFeature
from tidegate.discovery.feature import Parts as DiscoveryParts
from tidegate.kafka.connection import Connection
from tidegate.kafka.model import Broker, Cluster, TopicPartition
from tidegate.kube.loop import LevelLoop
from tidegate.kube.ports import CONNECTIONS, POLICIES, Object
from tidegate.offset_reset.passes import ResetPasses
from tidegate.policy.keeping import Features
from tidegate.policy.parts import Parts as PolicyParts
from tidegate.policy.reconcile import PolicyReconciler
from tidegate.retention.feature import Parts as RetentionParts
from tidegate.retention.feature import RetentionFeature
from tidegate.retention.metrics import RetentionMetrics
from tidegate.service.metrics import Metrics
from tidegate.sweep.kept import KeptRuns
from tidegate.sweep.kept import Parts as KeptParts
from tidegate.sweep.sweeper import Parts as SweepParts
from tidegate.sweep.sweeper import Sweeper

POLICY: Final[Mapping[str, Any]] = {
    "connectionRef": {"name": "kafka"},
    "groups": ["*"],
    "discovery": {},
    "latest": {"maxAge": "24h"},
    "retention": {"guard": True},
}
_CREATED: Final = "2026-01-01T00:00:00Z"
_IDLE_TICK_S: Final = 10.0


@dataclass(frozen=True, slots=True)
class Size:
    """All groups are without members, which costs the most: what they have may expire."""

    clusters: int
    groups: int
    topics: int = 20
    partitions: int = 5


@dataclass(frozen=True, slots=True)
class Counted:
    """What was asked in so many seconds. ``kafka``: calls of the ports by name; ``named``: how many groups those named
    that take many. ``status_writes``, ``documents``, ``document_bytes``: what went to the API server to be stored."""

    seconds: float
    kafka: Counter[str]
    named: Counter[str]
    status_writes: int
    documents: int
    document_bytes: int

    def per_s(self, call: str) -> float:
        return self.kafka[call] / self.seconds

    @property
    def calls_per_s(self) -> float:
        return self.kafka.total() / self.seconds


class _Kafka(FakeKafka):
    """A cluster with an id of its own, which counts."""

    def __init__(self, clock: FakeClock, number: int, counts: Counter[str], named: Counter[str]) -> None:
        super().__init__(clock)
        self._number, self._counts, self._named = number, counts, named
        write_clock, read = self.control.write_clock, self.control.read

        def counted_write() -> int:
            counts["write_clock"] += 1
            return write_clock()

        def counted_read(*arguments: Any, **options: Any) -> Any:
            counts["control_read"] += 1
            return read(*arguments, **options)

        self.control.write_clock = counted_write  # type: ignore[method-assign]
        self.control.read = counted_read  # type: ignore[method-assign]

    def _called(self, name: str) -> None:
        self._counts[name] += 1

    def cluster(self) -> Cluster:
        found = super().cluster()
        return Cluster(f"cluster-{self._number}", (Broker(0, "127.0.0.1", 9092),), found.features)

    def groups(self, group_ids: Any) -> Any:
        self._named["groups"] += len(group_ids)
        return super().groups(group_ids)

    def committed_of(self, group_ids: Any) -> Any:
        self._named["committed_of"] += len(group_ids)
        return super().committed_of(group_ids)


class _Kube(FakeKube):
    def __init__(self) -> None:
        super().__init__()
        self.status_writes = self.documents = self.document_bytes = 0

    def replace_status(self, kind: Any, body: Object, status: Mapping[str, Any]) -> Object:
        self.status_writes += 1
        return super().replace_status(kind, body, status)

    def put_config_map(self, owner: Object, name: str, data: Mapping[str, str]) -> None:
        self.documents += 1
        self.document_bytes += len(json.dumps(dict(data)))
        super().put_config_map(owner, name, data)


class _NoResets:
    def is_being_reset(self, _live: object, _group: str) -> bool:
        return False


class ManyClusters:
    """`run` lets the operator work for so many (virtual) seconds and tells what it has asked meanwhile."""

    def __init__(self, size: Size, folder: Path) -> None:
        self.size = size
        self.clock = FakeClock()
        self.kube = _Kube()
        self.asked: Counter[str] = Counter()
        self.named: Counter[str] = Counter()
        self._loop = VirtualLoop(self.clock)
        self._executor = AtOnce()
        self._clusters = {f"127.0.0.1:{9092 + n}": self._cluster(n) for n in range(size.clusters)}
        for number, bootstrap in enumerate(self._clusters):
            namespace = f"ns-{number:03}"
            self.kube.create(CONNECTIONS, namespace, "kafka", {"bootstrapServers": bootstrap}, _CREATED)
            self.kube.create(POLICIES, namespace, "every", POLICY, _CREATED)
        with patch.object(watch, "ThreadPoolExecutor", AtOnce):
            self._loop.run_until_complete(self._begin(folder))

    def run(self, seconds: float) -> Counted:
        kube, asked, named = self.kube, Counter(self.asked), Counter(self.named)
        before = kube.status_writes, kube.documents, kube.document_bytes
        with patch.object(watch, "ThreadPoolExecutor", AtOnce):
            self._loop.run_until_complete(asyncio.sleep(seconds))
        after = kube.status_writes, kube.documents, kube.document_bytes
        return Counted(
            seconds, self.asked - asked, self.named - named, *(b - a for a, b in zip(before, after, strict=True))
        )

    def statuses(self) -> list[Mapping[str, Any]]:
        """Of the policies."""
        return [dict(body.get("status") or {}) for body in self.kube.list(POLICIES)]

    def close(self) -> None:
        self._loop.run_until_complete(self._end())
        self._loop.close()

    def _cluster(self, number: int) -> FakeKafka:
        size = self.size
        kafka = _Kafka(self.clock, number, self.asked, self.named)
        for topic in range(size.topics):
            kafka.create_topic(f"topic-{topic}", size.partitions)
        kafka.control.ensure()
        for group in range(size.groups):
            partition = TopicPartition(f"topic-{group % size.topics}", group % size.partitions)
            kafka.commit_directly(f"group-{group:05}", {partition: 0})
        return kafka

    async def _begin(self, folder: Path) -> None:
        executor, clock, kube, metrics = self._executor, self.clock, self.kube, Metrics()
        live, looks = LiveConnections(), FirstLooks()
        observer = Observer(executor, active_tick_s=1.0, idle_tick_s=_IDLE_TICK_S)
        topics = TopicsOfConnections(executor, _IDLE_TICK_S, live.topics_checked)
        connecting = ConnectionParts(
            kube=kube,
            files=ConnectionFiles(folder),
            live=live,
            topics=topics,
            observer=observer,
            open_kafka=lambda connection, _uid: self._open(connection),
            executor=executor,
            patient_executor=executor,
            clock=clock,
            metrics=metrics,
            idle_tick_s=_IDLE_TICK_S,
            looks=looks,
        )
        self._connections = LevelLoop(ConnectionReconciler(connecting), expected=())
        looks.connections = lambda: self._connections.bodies
        retention = RetentionFeature(
            RetentionParts(kube, observer, executor, executor, RetentionMetrics(CollectorRegistry()), clock.now)
        )
        self._discovery = DiscoveryFeature(DiscoveryParts(observer, topics, executor, clock, self._wake, metrics))
        keeping = PolicyParts(kube, live, executor, executor, clock, metrics)
        both = (self._discovery, retention)
        policies = PolicyReconciler(keeping, cast("ResetPasses", _NoResets()), Features(both, both))
        self._policies = LevelLoop(policies, expected=(), before_first=looks.wait)
        kept = KeptRuns(KeptParts(kube, executor, executor, clock, timedelta(days=7)))
        sweeping = SweepParts(kube, live, observer, frozenset, executor, executor, metrics, _IDLE_TICK_S, kept)
        for loop, kind in ((self._connections, CONNECTIONS), (self._policies, POLICIES)):
            for body in kube.list(kind):
                loop.notice(None, body)
        self._sweeping = asyncio.create_task(Sweeper(sweeping).run())

    def _wake(self, uid: str) -> None:
        self._policies.wake(uid)

    def _open(self, connection: Connection) -> FakeKafka:
        return self._clusters[connection.bootstrap_servers]

    async def _end(self) -> None:
        self._sweeping.cancel()
        await asyncio.wait([self._sweeping])
        await self._policies.stop()
        await self._connections.stop()
        await self._discovery.stop()
