"""The parts of one operator, put together: a function for each feature."""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from kubernetes.client import ApiClient

from tidegate.clock import Clock, SystemClock
from tidegate.connection.control_topics import TopicsOfConnections
from tidegate.connection.files import ConnectionFiles, FilesFailure
from tidegate.connection.live import LiveConnections
from tidegate.connection.observer import NotLookedAt, Observer, Snapshot
from tidegate.connection.reconcile import ConnectionReconciler
from tidegate.connection.reconcile import Parts as ConnectionParts
from tidegate.discovery.feature import DiscoveryFeature
from tidegate.discovery.feature import Parts as DiscoveryParts
from tidegate.inject.feature import InjectionFeature
from tidegate.inject.feature import Parts as InjectionParts
from tidegate.inject.index import PolicyIndex
from tidegate.inject.metrics import InjectionMetrics
from tidegate.inject.patch import AgentImage
from tidegate.inject.server import Parts as WebhookParts
from tidegate.inject.server import WebhookServer
from tidegate.inject.trust import FOLDER as WEBHOOK_FILES
from tidegate.inject.trust import Place, WebhookTrust, service_names
from tidegate.jobs.errors import RunnerFailure
from tidegate.jobs.mounts import CLAIMS_FOLDER, SECRETS_FOLDER, JobPlaces
from tidegate.jobs.runner import Launch, Runner
from tidegate.jobs.runner_application import SparkApplicationRunner
from tidegate.jobs.runner_local import LocalSparkRunner
from tidegate.jobs.settings import RunnerKind
from tidegate.kafka.errors import KafkaFailure
from tidegate.kafka_client.client import KafkaClient
from tidegate.kafka_client.fenced_writer import WriterProcess
from tidegate.kafka_client.settings import BadConnection
from tidegate.kube.api import default_api_client
from tidegate.kube.client import KubeClient
from tidegate.kube.loop import LevelLoop, Reconciler
from tidegate.kube.pods import PodsClient
from tidegate.kube.ports import BACKUPS, CONNECTIONS, PAUSES, POLICIES, RESETS, Kind, KubeFailure, Object
from tidegate.kube.webhooks import WebhookClient
from tidegate.kube.workloads_client import KubeWorkloads
from tidegate.offset_backup.attempts import JobParts
from tidegate.offset_backup.metrics import BackupMetrics
from tidegate.offset_backup.reconcile import BackupReconciler
from tidegate.offset_backup.reconcile import Parts as BackupParts
from tidegate.offset_reset.parts import Parts as ResetParts
from tidegate.offset_reset.passes import ResetPasses
from tidegate.offset_reset.reconcile import OffsetResetReconciler
from tidegate.pause.model import Patience, Tick
from tidegate.pause.reconcile import Parts as PauseParts
from tidegate.pause.reconcile import PauseReconciler
from tidegate.policy.feature import Feature
from tidegate.policy.parts import Parts as PolicyParts
from tidegate.policy.reconcile import PolicyReconciler
from tidegate.reset.config_map_store import ConfigMapRunStore
from tidegate.reset.document import StoreFailure
from tidegate.reset.runs.in_process import DirectRunner
from tidegate.reset.store import ForeignRun, RunNotFound, RunStore, StaleAttempt
from tidegate.reset.stores import open_store
from tidegate.resources.reset import Engine
from tidegate.retention.feature import Parts as RetentionParts
from tidegate.retention.feature import RetentionFeature
from tidegate.retention.metrics import RetentionMetrics
from tidegate.running import Operator, Servers, Webhook
from tidegate.service import health
from tidegate.service.http_server import HttpServer
from tidegate.service.metrics import Metrics
from tidegate.service.metrics_access import METRICS_PATH, TokenAccess, metrics_route
from tidegate.service.settings import MetricsAuthentication, Settings
from tidegate.sweep.kept import KeptRuns
from tidegate.sweep.kept import Parts as KeptParts
from tidegate.sweep.sweeper import Parts as SweepParts
from tidegate.sweep.sweeper import Sweeper

_log = logging.getLogger("tidegate")

_STORE_PATIENCE_S: Final = 10.0
"""A pass is repeated anyway; jobs, which may stand in mid-apply, have more patience."""

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
class _Shared:
    """What every feature is built with."""

    settings: Settings
    clock: Clock
    metrics: Metrics
    api_client: ApiClient
    kube: KubeClient
    executor: ThreadPoolExecutor
    patient_executor: ThreadPoolExecutor
    observer: Observer
    live: LiveConnections
    files: ConnectionFiles
    topics: TopicsOfConnections

    @property
    def in_pods(self) -> bool:
        """Spark's jobs run in pods, not on this machine."""
        return self.settings.spark.runner is RunnerKind.SPARK_APPLICATION

    def looped(self, kind: Kind, reconciler: Reconciler) -> LevelLoop:
        """The loop over the objects of a kind."""
        return LevelLoop(
            reconciler,
            expected=_EXPECTED,
            observe_pass=lambda seconds, failed: self.metrics.passed(kind.kind, seconds, failed=failed),
        )


def build(settings: Settings, open_kube: Callable[..., KubeClient] = KubeClient) -> Operator:
    """Make the parts, on the running event loop. Raises ``NoCluster``, ``FilesFailure``, ``OSError`` with a message for
    a person."""
    shared = _shared(settings, open_kube)
    wake = _Wake()
    direct, runners = _runners(shared, wake)
    place = _Place()
    connections = _connections(shared, WriterProcess(place.lost))
    index = PolicyIndex(wake.policies, lambda: connections.bodies, settings.namespaces)
    agent = AgentImage(settings.agent_image, settings.agent_image_pull_policy)
    injecting = InjectionMetrics(shared.metrics.registry)
    discovery = _discovery(shared, wake)
    features = (
        discovery,
        _retention(shared),
        _injection(shared, index, agent, injecting),
    )
    policies, resets = _resetting(shared, runners, features)
    wake.loops = (policies, resets)
    freshness = health.Freshness(settings.unobserved_limit_s, shared.clock.monotonic)
    place.operator = Operator(
        settings=settings,
        metrics=shared.metrics,
        servers=_servers(settings, freshness, shared.metrics, TokenAccess(shared.kube, shared.clock.monotonic)),
        files=shared.files,
        live=shared.live,
        direct=direct,
        discovery=discovery,
        connections=connections,
        policies=policies,
        resets=resets,
        pauses=_pauses(shared),
        backups=_backups(shared, runners.get(Engine.SPARK)),
        sweeper=_sweeper(shared, discovery),
        webhook=_webhook(shared, connections, index, agent, injecting),
        index=index,
        kube=shared.kube,
        executor=shared.executor,
        patient_executor=shared.patient_executor,
        freshness=freshness,
    )
    return place.operator


class _Place:
    """Tells the operator, from any thread, that another process has taken its place: what finds that out is built
    before it."""

    def __init__(self) -> None:
        self.operator: Operator | None = None
        self._events = asyncio.get_running_loop()

    def lost(self, why: str) -> None:
        if self.operator is not None and not self._events.is_closed():
            # Before the call that found it out returns: its pass must not write about it.
            self._events.call_soon_threadsafe(self.operator.give_way, why)


class _Wake:
    """Wakes what asks for resets, from any thread, once there are its loops: what they are built with needs it before.

    ``loops``: of policies, and of resets.
    """

    def __init__(self) -> None:
        self.loops: tuple[LevelLoop, ...] = ()
        self._events = asyncio.get_running_loop()

    def requester(self, uid: str) -> None:
        """On the event loop. A uid is known to one of the loops at most."""
        for loop in self.loops:
            loop.wake(uid)

    def policies(self) -> Collection[Object]:
        """Those that are known."""
        return self.loops[0].bodies if self.loops else ()

    def owner(self, launch: Launch) -> None:
        """Of a job that has ended; from the job's thread."""
        if not self._events.is_closed():
            self._events.call_soon_threadsafe(self.requester, str(launch.owner["uid"]))


def _shared(settings: Settings, open_kube: Callable[..., KubeClient]) -> _Shared:
    clock, metrics = SystemClock(), Metrics()
    api_client = default_api_client()
    executor = ThreadPoolExecutor(settings.threads, thread_name_prefix="call")
    patient_executor = ThreadPoolExecutor(settings.threads, thread_name_prefix="settle")
    live = LiveConnections()
    return _Shared(
        settings=settings,
        clock=clock,
        metrics=metrics,
        api_client=api_client,
        kube=open_kube(api_client, clock, settings.namespaces),
        executor=executor,
        patient_executor=patient_executor,
        observer=Observer(
            executor,
            active_tick_s=settings.active_tick_s,
            idle_tick_s=settings.idle_tick_s,
            looked=functools.partial(_looked, metrics),
        ),
        live=live,
        files=ConnectionFiles(settings.runtime_directory),
        topics=TopicsOfConnections(patient_executor, settings.idle_tick_s, live.topics_checked),
    )


def _runners(shared: _Shared, wake: _Wake) -> tuple[DirectRunner, dict[Engine, Runner]]:
    def open_owned(location: str, owner: Mapping[str, Any]) -> RunStore:
        return open_store(location, api_client=shared.api_client, owner=owner)

    spark = shared.settings.spark
    direct = DirectRunner(
        functools.partial(open_store, api_client=shared.api_client),
        KafkaClient,
        shared.clock,
        ended=wake.owner,
        open_owned=open_owned,
    )
    runners: dict[Engine, Runner] = {Engine.DIRECT: direct}
    match spark.runner:
        case RunnerKind.LOCAL:
            runners[Engine.SPARK] = LocalSparkRunner(
                spark.runs_directory, spark.local_master, settings=spark, clock=shared.clock
            )
        case RunnerKind.SPARK_APPLICATION:
            runners[Engine.SPARK] = SparkApplicationRunner(spark, api_client=shared.api_client, clock=shared.clock)
        case RunnerKind.NONE:
            pass
    return direct, runners


def _connections(shared: _Shared, process: WriterProcess) -> LevelLoop:
    parts = ConnectionParts(
        kube=shared.kube,
        files=shared.files,
        live=shared.live,
        topics=shared.topics,
        observer=shared.observer,
        open_kafka=functools.partial(KafkaClient, process=process),
        executor=shared.executor,
        patient_executor=shared.patient_executor,
        clock=shared.clock,
        metrics=shared.metrics,
        idle_tick_s=shared.settings.idle_tick_s,
    )
    return shared.looped(CONNECTIONS, ConnectionReconciler(parts))


def _discovery(shared: _Shared, wake: _Wake) -> DiscoveryFeature:
    return DiscoveryFeature(
        DiscoveryParts(
            shared.observer, shared.topics, shared.patient_executor, shared.clock, wake.requester, shared.metrics
        )
    )


def _retention(shared: _Shared) -> RetentionFeature:
    metrics = RetentionMetrics(shared.metrics.registry)
    return RetentionFeature(
        RetentionParts(shared.kube, shared.observer, shared.executor, shared.patient_executor, metrics)
    )


def _injection(shared: _Shared, index: PolicyIndex, agent: AgentImage, metrics: InjectionMetrics) -> InjectionFeature:
    return InjectionFeature(
        InjectionParts(
            pods=PodsClient(shared.api_client),
            index=index,
            agent=agent,
            webhook=shared.settings.webhook_address is not None,
            executor=shared.executor,
            clock=shared.clock,
            metrics=metrics,
            rolling_s=2 * shared.settings.active_tick_s,
        )
    )


def _resetting(
    shared: _Shared, runners: Mapping[Engine, Runner], features: Sequence[Feature]
) -> tuple[LevelLoop, LevelLoop]:
    """The loops of policies and of resets. A policy knows from the latter's passes whether its group is being reset."""

    def store_of(namespace: str, name: str, owner: Mapping[str, Any] | None) -> RunStore:
        return ConfigMapRunStore(
            namespace,
            name,
            api_client=shared.api_client,
            owner=owner,
            clock=shared.clock,
            patience_s=_STORE_PATIENCE_S,
        )

    settings = shared.settings
    parts = ResetParts(
        kube=shared.kube,
        live=shared.live,
        observer=shared.observer,
        open_store=store_of,
        open_kafka=KafkaClient,
        runners=runners,
        executor=shared.executor,
        patient_executor=shared.patient_executor,
        clock=shared.clock,
        metrics=shared.metrics,
        spark=settings.spark,
        mounts_secrets=shared.in_pods,
        active_tick_s=settings.active_tick_s,
        idle_tick_s=settings.idle_tick_s,
        deletion_limit=timedelta(seconds=settings.deletion_limit_s),
        max_launches=settings.max_launches,
        undo_kept=timedelta(seconds=settings.undo_kept_s),
    )
    passes = ResetPasses(parts)
    policies = PolicyParts(
        kube=shared.kube,
        live=shared.live,
        executor=shared.executor,
        patient_executor=shared.patient_executor,
        clock=shared.clock,
        metrics=shared.metrics,
    )
    return (
        shared.looped(POLICIES, PolicyReconciler(policies, passes, features)),
        shared.looped(RESETS, OffsetResetReconciler(passes, parts)),
    )


def _pauses(shared: _Shared) -> LevelLoop:
    settings = shared.settings
    parts = PauseParts(
        kube=shared.kube,
        live=shared.live,
        observer=shared.observer,
        executor=shared.executor,
        patient_executor=shared.patient_executor,
        now=shared.clock.now,
        metrics=shared.metrics,
        tick=Tick(settings.pause_tick_s, settings.active_tick_s, settings.idle_tick_s),
        patience=Patience(
            unmanaged=timedelta(seconds=settings.unmanaged_after_s),
            deletion=timedelta(seconds=settings.deletion_limit_s),
        ),
        topics=shared.topics,
        workloads=KubeWorkloads(shared.api_client, shared.clock),
    )
    return shared.looped(PAUSES, PauseReconciler(parts))


def _backups(shared: _Shared, spark: Runner | None) -> LevelLoop:
    settings = shared.settings.spark
    jobs = JobParts(
        kube=shared.kube,
        runner=spark,
        spark=settings,
        places=JobPlaces(shared.in_pods, CLAIMS_FOLDER, SECRETS_FOLDER, settings.backups),
        executor=shared.executor,
        patient_executor=shared.patient_executor,
    )
    backups = BackupMetrics(shared.metrics.registry)
    return shared.looped(
        BACKUPS, BackupReconciler(BackupParts(jobs, shared.live, shared.clock.now, shared.metrics, backups))
    )


def _sweeper(shared: _Shared, discovery: DiscoveryFeature) -> Sweeper:
    return Sweeper(
        SweepParts(
            kube=shared.kube,
            live=shared.live,
            observer=shared.observer,
            backfills=lambda: discovery.backfills.under_way,
            executor=shared.executor,
            patient_executor=shared.patient_executor,
            metrics=shared.metrics,
            interval_s=shared.settings.idle_tick_s,
            kept=_kept_runs(shared),
        )
    )


def _kept_runs(shared: _Shared) -> KeptRuns:
    kept_for = timedelta(seconds=shared.settings.undo_kept_s)
    return KeptRuns(KeptParts(shared.kube, shared.executor, shared.patient_executor, shared.clock, kept_for))


def _webhook(
    shared: _Shared, connections: LevelLoop, index: PolicyIndex, agent: AgentImage, metrics: InjectionMetrics
) -> Webhook | None:
    settings, files = shared.settings, shared.files
    address = settings.webhook_address
    if address is None:
        return None

    def obeyed(namespace: str, connection: str) -> None:
        open_now = shared.live.get(namespace, connection)
        if shared.topics.want(namespace, connection) and open_now is not None:
            connections.wake(open_now.uid)

    parts = WebhookParts(index, agent, shared.kube.record, shared.executor, metrics, obeyed)
    mounted = settings.webhook_certificates
    server = WebhookServer(address, mounted or files.folder(WEBHOOK_FILES), parts)
    if mounted is not None:
        return Webhook(server, None, settings.idle_tick_s)
    names = service_names(settings.webhook_service, settings.namespace)
    # An address of its own is for those who reach the operator by it, as in tests and on one machine.
    place = Place(
        namespace=settings.namespace,
        secret=settings.webhook_secret,
        configuration=settings.webhook_configuration,
        names=names if address.is_any else (*names, address.host),
    )
    objects = WebhookClient(shared.api_client)
    trust = WebhookTrust(place, objects, files, shared.executor, shared.clock.now, metrics)
    return Webhook(server, trust, settings.idle_tick_s)


def _looked(metrics: Metrics, connection: str, seconds: float, groups: int, snapshot: Snapshot) -> None:
    unreadable = snapshot.unreadable if snapshot.gates is not None else None
    metrics.looked(connection, seconds, groups=groups, failed=snapshot.failure is not None, unreadable=unreadable)


def _servers(settings: Settings, freshness: health.Freshness, metrics: Metrics, access: TokenAccess) -> Servers:
    checks_tokens = settings.metrics_access is MetricsAuthentication.KUBERNETES
    read = {METRICS_PATH: metrics_route(metrics.registry, access if checks_tokens else None)}
    routes = {
        health.HEALTH_PATH: health.health_route(freshness),
        health.READY_PATH: health.ready_route(freshness),
    }
    if settings.metrics_address is None:
        both = HttpServer("TIDEGATE_HEALTH_ADDRESS", settings.health_address, routes | read)
        return Servers(both, both)
    return Servers(
        HttpServer("TIDEGATE_HEALTH_ADDRESS", settings.health_address, routes),
        HttpServer("TIDEGATE_METRICS_ADDRESS", settings.metrics_address, read, settings.metrics_certificates),
    )
