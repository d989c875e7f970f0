"""What every feature of one operator is built with."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

from kubernetes.client import ApiClient

from tidegate.clock import Clock, SystemClock
from tidegate.connection.control_topics import TopicsOfConnections
from tidegate.connection.files import ConnectionFiles, FilesFailure
from tidegate.connection.first_looks import LIMIT_S, FirstLooks
from tidegate.connection.live import LiveConnections
from tidegate.connection.observer import NotLookedAt, Observer
from tidegate.connection.shards import Shard
from tidegate.connection.watched import Snapshot
from tidegate.election.elector import Term
from tidegate.jobs.errors import RunnerFailure
from tidegate.jobs.settings import RunnerKind
from tidegate.kafka.errors import KafkaFailure
from tidegate.kafka_client.settings import BadConnection
from tidegate.kube.api import default_api_client
from tidegate.kube.client import KubeClient
from tidegate.kube.leaders_client import LeadersApiClient
from tidegate.kube.loop import LevelLoop, Reconciler
from tidegate.kube.ports import CONNECTIONS, Kind, KubeFailure, Object
from tidegate.reset.document import StoreFailure
from tidegate.reset.store import ForeignRun, RunNotFound, StaleAttempt
from tidegate.service.metrics import Metrics
from tidegate.service.settings import Settings
from tidegate.wiring.sharding import Sharing

_EXPECTED: Final = (
    KubeFailure,
    KafkaFailure,
    StoreFailure,
    RunNotFound,
    StaleAttempt,
    ForeignRun,
    RunnerFailure,
    FilesFailure,
    BadConnection,
    NotLookedAt,
    TimeoutError,
)
"""What a later pass may not meet again."""


@dataclass(frozen=True, slots=True)
class Shared:
    """What every feature is built with.

    ``api_client`` and ``kube`` write only while ``term`` holds; ``serving_client`` and ``serving_kube`` are for what
    each replica does, whether or not it leads. ``term`` ``None``: there is one process only.
    """

    settings: Settings
    clock: Clock
    metrics: Metrics
    api_client: ApiClient
    kube: KubeClient
    serving_client: ApiClient
    serving_kube: KubeClient
    term: Term | None
    looks: FirstLooks
    executor: ThreadPoolExecutor
    patient_executor: ThreadPoolExecutor
    connect_executor: ThreadPoolExecutor
    """For workers of Kafka Connect: those that do not answer hold up nobody else."""
    observer: Observer
    live: LiveConnections
    files: ConnectionFiles
    topics: TopicsOfConnections
    sharing: Sharing

    def may_write(self) -> bool:
        """Whether it is this process's turn; from any thread."""
        return self.term is None or self.term.holds()

    @property
    def in_pods(self) -> bool:
        """Spark's jobs run in pods, not on this machine."""
        return self.settings.spark.runner is RunnerKind.SPARK_APPLICATION

    def looped(
        self, kind: Kind, reconciler: Reconciler, begins: Callable[[Collection[Object]], None] | None = None
    ) -> LevelLoop:
        """The loop over the objects of a kind. ``begins``: as of ``LevelLoop``."""
        return LevelLoop(
            reconciler,
            expected=_EXPECTED,
            observe_pass=lambda seconds, failed: self.metrics.passed(kind.kind, seconds, failed=failed),
            is_ours=self.sharing.is_ours(kind),
            **({"gone": self.sharing.connection_changed} if kind == CONNECTIONS else {"before_first": self.looks.wait}),
            begins=begins,
        )


def share(settings: Settings, open_kube: Callable[..., KubeClient], stirred: Callable[[str], None]) -> Shared:
    """The parts that all features share. ``stirred``: as the ``Observer``'s. Raises ``NoCluster``, ``FilesFailure``,
    ``OSError``."""
    clock, metrics = SystemClock(), Metrics()
    serving_client = default_api_client()
    term = Term(clock.monotonic) if settings.lease else None
    api_client = LeadersApiClient(serving_client, term.holds) if term is not None else serving_client
    executor = ThreadPoolExecutor(settings.threads, thread_name_prefix="call")
    patient_executor = ThreadPoolExecutor(settings.threads, thread_name_prefix="settle")
    live = LiveConnections()
    return Shared(
        settings=settings,
        clock=clock,
        metrics=metrics,
        api_client=api_client,
        kube=open_kube(api_client, clock, settings.namespaces),
        serving_client=serving_client,
        serving_kube=KubeClient(serving_client, clock, settings.namespaces),
        term=term,
        # Nor for longer than a deletion may wait for Kafka, as when all is uninstalled.
        looks=FirstLooks(min(LIMIT_S, settings.deletion_limit_s)),
        executor=executor,
        patient_executor=patient_executor,
        connect_executor=ThreadPoolExecutor(settings.threads, thread_name_prefix="connect"),
        observer=Observer(
            executor,
            active_tick_s=settings.active_tick_s,
            idle_tick_s=settings.idle_tick_s,
            looked=functools.partial(_looked, metrics),
            stirred=stirred,
        ),
        live=live,
        files=ConnectionFiles(settings.runtime_directory),
        topics=TopicsOfConnections(patient_executor, settings.idle_tick_s, live.topics_checked, live.is_frozen),
        sharing=Sharing(Shard(settings.shard, settings.shards), live),
    )


def _looked(metrics: Metrics, connection: str, seconds: float, groups: int, snapshot: Snapshot) -> None:
    unreadable = snapshot.unreadable if snapshot.gates is not None else None
    metrics.looked(connection, seconds, groups=groups, failed=snapshot.failure is not None, unreadable=unreadable)
