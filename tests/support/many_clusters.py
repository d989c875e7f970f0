"""One operator over many clusters in memory, in virtual time: what it asks of Kafka and of the API server is counted.

Each cluster has a namespace, a `KafkaConnection` and one policy for all of its groups, with discovery, ages for agents
and retention. The parts are the operator's own, down to the ports; only `kopf` and the clients below are left out.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Callable, Mapping
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
from tidegate.connection.shards import Shard
from tidegate.discovery import watch
from tidegate.discovery.feature import DiscoveryFeature
from tidegate.discovery.feature import Parts as DiscoveryParts
from tidegate.kafka.model import Broker, Cluster, TopicPartition
from tidegate.kube.loop import LevelLoop
from tidegate.kube.ports import CONNECTIONS, POLICIES, Kind, Object
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
from tidegate.wiring.sharding import Sharing

POLICY: Final[Mapping[str, Any]] = {
    "connectionRef": {"name": "kafka"},
    "groups": ["*"],
    "discovery": {},
    "latest": {"maxAge": "24h"},
    "retention": {"guard": True},
}
_CREATED: Final = "2026-01-01T00:00:00Z"
_IDLE_TICK_S: Final = 10.0
_WATCH_S: Final = 0.05


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
        self.told: Callable[[Kind, Object], None] = lambda _kind, _body: None
        self.status_writes = self.documents = self.document_bytes = 0

    def replace_status(self, kind: Any, body: Object, status: Mapping[str, Any]) -> Object:
        written = super().replace_status(kind, body, status)
        self.status_writes += 1
        self.told(kind, written)
        return written

    def put_config_map(self, owner: Object, name: str, data: Mapping[str, str]) -> None:
        self.documents += 1
        self.document_bytes += len(json.dumps(dict(data)))
        super().put_config_map(owner, name, data)


class _NoResets:
    def is_being_reset(self, _live: object, _group: str) -> bool:
        return False


class Process:
    """A process of the operator, of one shard, which leads."""

    def __init__(self, kube: FakeKube, clock: FakeClock, clusters: Mapping[str, FakeKafka], shard: Shard) -> None:
        self.live = LiveConnections()
        self.loops: Mapping[Kind, LevelLoop] = {}
        self._kube, self._clock, self._clusters = kube, clock, clusters
        self._executor = AtOnce()
        self._sharing = Sharing(shard, self.live)

    @property
    def served(self) -> list[str]:
        """The clusters that its connections lead to."""
        return sorted(live.cluster_id for live in self.live)

    def begin(self, folder: Path) -> None:
        """On the event loop."""
        executor, clock, kube, metrics = self._executor, self._clock, self._kube, Metrics()
        live, looks = self.live, FirstLooks()
        observer = Observer(executor, active_tick_s=1.0, idle_tick_s=_IDLE_TICK_S)
        topics = TopicsOfConnections(executor, _IDLE_TICK_S, live.topics_checked, live.is_frozen)
        connecting = ConnectionParts(
            kube=kube,
            files=ConnectionFiles(folder),
            live=live,
            topics=topics,
            observer=observer,
            open_kafka=lambda connection, _uid: self._clusters[connection.bootstrap_servers],
            executor=executor,
            patient_executor=executor,
            clock=clock,
            metrics=metrics,
            idle_tick_s=_IDLE_TICK_S,
            looks=looks,
            is_borrowed=self._sharing.is_borrowed,
        )
        looks.connections = lambda: self.loops[CONNECTIONS].bodies
        retention = RetentionFeature(
            RetentionParts(
                kube, observer, live.is_frozen, executor, executor, RetentionMetrics(CollectorRegistry()), clock.now
            )
        )
        self._discovery = DiscoveryFeature(
            DiscoveryParts(observer, topics, live.is_frozen, executor, clock, self._wake, metrics, executor)
        )
        keeping = PolicyParts(kube, live, executor, executor, clock, metrics)
        both = (self._discovery, retention)
        policies = PolicyReconciler(keeping, cast("ResetPasses", _NoResets()), Features(both, both))
        ours = self._sharing.is_ours
        self._sharing.loops = self.loops = {
            CONNECTIONS: LevelLoop(ConnectionReconciler(connecting), expected=(), is_ours=ours(CONNECTIONS)),
            POLICIES: LevelLoop(policies, expected=(), before_first=looks.wait, is_ours=ours(POLICIES)),
        }
        kept = KeptRuns(KeptParts(kube, executor, executor, clock, timedelta(days=7)))
        sweeping = SweepParts(kube, live, observer, frozenset, executor, executor, metrics, _IDLE_TICK_S, kept)
        for kind in self.loops:
            for body in kube.list(kind):
                self.told(None, kind, body)
        self._sweeping = asyncio.create_task(Sweeper(sweeping).run())

    def told(self, event: str | None, kind: Kind, body: Object) -> None:
        """By a watch."""
        self.loops[kind].notice(event, body)
        if kind == CONNECTIONS:
            self._sharing.connection_changed(body)

    def _wake(self, uid: str) -> None:
        self.loops[POLICIES].wake(uid)

    async def end(self) -> None:
        self._sweeping.cancel()
        await asyncio.wait([self._sweeping])
        for kind in (POLICIES, CONNECTIONS):
            await self.loops[kind].stop()
        await self._discovery.stop()


class ManyClusters:
    """`run` lets the operator work for so many (virtual) seconds and tells what it has asked meanwhile.

    ``shards``: how many processes it has, each of its shard; each is told by its watches what another has written.
    """

    def __init__(self, size: Size, folder: Path, shards: int = 1) -> None:
        self.size = size
        self.clock = FakeClock()
        self.kube = _Kube()
        self.asked: Counter[str] = Counter()
        self.named: Counter[str] = Counter()
        self.processes: list[Process] = []
        self._folder, self._shards, self._begun = folder, shards, 0
        self._loop = VirtualLoop(self.clock)
        self._clusters = {f"127.0.0.1:{9092 + n}": self._cluster(n) for n in range(size.clusters)}
        for number, bootstrap in enumerate(self._clusters):
            namespace = f"ns-{number:03}"
            self.kube.create(CONNECTIONS, namespace, "kafka", {"bootstrapServers": bootstrap}, _CREATED)
            self.kube.create(POLICIES, namespace, "every", POLICY, _CREATED)
        self.kube.told = self._told
        for number in range(shards):
            self.begin(number)

    def begin(self, shard: int) -> Process:
        """Another process, of this shard."""
        process = Process(self.kube, self.clock, self._clusters, Shard(shard, self._shards))
        self._begun += 1
        folder = self._folder / f"{self._begun}"
        folder.mkdir(parents=True)

        async def begin() -> None:
            process.begin(folder)

        with patch.object(watch, "ThreadPoolExecutor", AtOnce):
            self._loop.run_until_complete(begin())
        self.processes.append(process)
        return process

    def end(self, process: Process) -> None:
        self.processes.remove(process)
        self._loop.run_until_complete(process.end())

    def run(self, seconds: float) -> Counted:
        kube, asked, named = self.kube, Counter(self.asked), Counter(self.named)
        before = kube.status_writes, kube.documents, kube.document_bytes
        with patch.object(watch, "ThreadPoolExecutor", AtOnce):
            self._loop.run_until_complete(asyncio.sleep(seconds))
        after = kube.status_writes, kube.documents, kube.document_bytes
        stored = (b - a for a, b in zip(before, after, strict=True))
        return Counted(seconds, self.asked - asked, self.named - named, *stored)

    def statuses(self) -> list[Mapping[str, Any]]:
        """Of the policies."""
        return [dict(body.get("status") or {}) for body in self.kube.list(POLICIES)]

    def move(self, number: int, to: int) -> None:
        """The connection of one namespace leads to the cluster of another one from now on."""
        spec = {"bootstrapServers": list(self._clusters)[to]}
        self._told(CONNECTIONS, self.kube.change(CONNECTIONS, f"ns-{number:03}", "kafka", spec=spec))

    def close(self) -> None:
        for process in tuple(self.processes):
            self.end(process)
        self._loop.close()

    def _told(self, kind: Kind, body: Object) -> None:
        """A moment later, all watches tell of what was written."""
        for process in self.processes:
            self._loop.call_later(_WATCH_S, process.told, "MODIFIED", kind, body)

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
