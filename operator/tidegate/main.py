"""``tidegate-operator``: puts the parts together and runs kopf."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import functools
import logging
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

import kopf

from tidegate import health
from tidegate.connection import handlers as connection_handlers
from tidegate.connection.control_topics import TopicsOfConnections
from tidegate.connection.files import ConnectionFiles, FilesFailure
from tidegate.connection.live import LiveConnections
from tidegate.connection.reconcile import ConnectionReconciler
from tidegate.connection.reconcile import Parts as ConnectionParts
from tidegate.discovery.keeper import DiscoveryKeeper
from tidegate.discovery.keeper import Parts as DiscoveryParts
from tidegate.http_server import HttpServer
from tidegate.inject.keeper import InjectionKeeper
from tidegate.inject.keeper import Parts as InjectionParts
from tidegate.inject.metrics import InjectionMetrics
from tidegate.inject.neighbours import Neighbours
from tidegate.inject.patch import AgentImage
from tidegate.inject.server import Parts as WebhookParts
from tidegate.inject.server import WebhookServer
from tidegate.inject.trust import FOLDER as WEBHOOK_FILES
from tidegate.inject.trust import Place, WebhookTrust, service_names
from tidegate.kafka.adapter import KafkaClient
from tidegate.kafka.client_config import BadConnection
from tidegate.kafka.errors import KafkaFailure
from tidegate.kube.client import KubeClient
from tidegate.kube.leaving import Named
from tidegate.kube.loop import LevelLoop
from tidegate.kube.pods import PodsClient
from tidegate.kube.ports import CONNECTIONS, PAUSES, POLICIES, Kind, KubeFailure, Object, uid_of
from tidegate.kube.webhooks import WebhookClient
from tidegate.kube.workloads_client import KubeWorkloads
from tidegate.log_lines import OneLine
from tidegate.metrics import Metrics
from tidegate.metrics_access import METRICS_PATH, TokenAccess, metrics_route
from tidegate.observe import NotLookedAt, Observer, Snapshot
from tidegate.pause import handlers as pause_handlers
from tidegate.pause.model import Patience, Tick
from tidegate.pause.reconcile import Parts as PauseParts
from tidegate.pause.reconcile import PauseReconciler
from tidegate.reset import handlers as reset_handlers
from tidegate.reset.clock import SystemClock
from tidegate.reset.direct import DirectRunner
from tidegate.reset.reconcile import Parts as PolicyParts
from tidegate.reset.reconcile import PolicyReconciler
from tidegate.reset.runner import Launch, Runner
from tidegate.reset.store import ForeignRun, RunNotFound, RunStore, StaleAttempt
from tidegate.reset.stores import ConfigMapRunStore, StoreFailure, default_api_client, open_store
from tidegate.resources.policy import Engine
from tidegate.retention.keeper import Parts as RetentionParts
from tidegate.retention.keeper import RetentionKeeper
from tidegate.retention.metrics import RetentionMetrics
from tidegate.settings import Address, BadSettings, MetricsAuthentication, Settings
from tidegate.snapshots.keeper import Parts as SnapshotParts
from tidegate.snapshots.keeper import SnapshotKeeper
from tidegate.snapshots.metrics import SnapshotMetrics
from tidegate.snapshots.places import JobPlaces
from tidegate.spark.application import CLAIMS_FOLDER, SECRETS_FOLDER
from tidegate.spark.errors import RunnerFailure
from tidegate.spark.runner_application import SparkApplicationRunner
from tidegate.spark.runner_local import LocalSparkRunner
from tidegate.spark.settings import RunnerKind
from tidegate.sweep.sweeper import Parts as SweepParts
from tidegate.sweep.sweeper import Sweeper

_log = logging.getLogger("tidegate")

_CHATTY: Final = {
    "kopf": logging.WARNING,
    "urllib3": logging.WARNING,
    "kubernetes": logging.WARNING,
    # It warns of each turn of its own loop that a busy machine made slow.
    "kafka": logging.ERROR,
}
"""Libraries whose log is of use only from this level on."""

_STORE_PATIENCE_S: Final = 10.0
"""A pass is repeated anyway; jobs, which may stand in mid-apply, have more patience."""

_SERVED_AGAIN_S: Final = 1.0

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


def configure(settings: kopf.OperatorSettings) -> None:
    """kopf's settings. It stores nothing on our objects (``tidegate.kube.loop``); should it ever, under our prefix."""
    settings.persistence.finalizer = "tidegate.io/kopf"
    settings.persistence.progress_storage = kopf.AnnotationsProgressStorage(prefix="tidegate.io")
    settings.persistence.diffbase_storage = kopf.AnnotationsDiffBaseStorage(prefix="tidegate.io", key="last-handled")
    settings.networking.request_timeout = 30
    settings.networking.connect_timeout = 10
    settings.watching.server_timeout = 600
    settings.watching.client_timeout = 660
    settings.watching.connect_timeout = 10
    settings.posting.level = logging.WARNING
    settings.peering.standalone = True
    # Whom it serves is told by its environment, and its kinds are waited for: it needs no right to watch all of the
    # cluster's namespaces and CRDs.
    settings.scanning.disabled = True
    settings.process.ultimate_exiting_timeout = 60


@dataclass(frozen=True, slots=True)
class Servers:
    """``health`` and ``metrics`` are one where the latter has no address of its own."""

    health: HttpServer
    metrics: HttpServer

    def start(self) -> None:
        for server in {self.health, self.metrics}:
            server.start()

    def stop(self) -> None:
        for server in {self.health, self.metrics}:
            server.stop()


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


@dataclass(slots=True)
class Webhook:
    """The server that pods come by, and what keeps its certificates where they are not mounted."""

    server: WebhookServer
    trust: WebhookTrust | None
    interval_s: float
    keeping: asyncio.Task[None] | None = None

    def open(self) -> int:
        """Take the port, and return it."""
        return self.server.open()

    async def start(self) -> None:
        """Answer, now that it is known what is asked for. Idempotent."""
        if self.trust is not None and self.keeping is None:
            # Once before anybody counts on it: who comes by without trusting us goes on uninjected.
            await self.trust.look()
            self.keeping = asyncio.create_task(self.trust.run(self.interval_s), name="webhook certificates")
        await self.server.start()

    async def stop(self) -> None:
        if self.keeping is not None:
            self.keeping.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self.keeping
        await self.server.stop()


@dataclass(slots=True)
class Operator:
    """All parts of one running operator."""

    settings: Settings
    metrics: Metrics
    servers: Servers
    files: ConnectionFiles
    live: LiveConnections
    direct: DirectRunner
    discovery: DiscoveryKeeper
    connections: LevelLoop
    policies: LevelLoop
    pauses: LevelLoop
    sweeper: Sweeper
    webhook: Webhook | None
    neighbours: Neighbours
    kube: KubeClient
    executor: ThreadPoolExecutor
    patient_executor: ThreadPoolExecutor
    freshness: health.Freshness
    watchdog: asyncio.Task[None] | None = None
    sweeping: asyncio.Task[None] | None = None
    stopped: bool = False

    async def start(self) -> None:
        self.servers.start()
        if self.webhook is not None:
            _log.info("webhook on port %d", self.webhook.open())
        self.watchdog = asyncio.create_task(
            health.keep_fresh(self.freshness, self._list_all, self.settings.health_interval_s, self._listed),
            name="freshness",
        )
        self.sweeping = asyncio.create_task(self.sweeper.run(), name="sweep")
        where = ", ".join(self.settings.namespaces) or "the whole cluster"
        _log.info(
            "serving %s; health on port %d, metrics on port %d (authentication: %s)",
            where,
            self.servers.health.port,
            self.servers.metrics.port,
            self.settings.metrics_access,
        )

    async def stop(self) -> None:
        """Stop in the order in which parts use one another; bounded. Idempotent."""
        if self.stopped:
            return
        self.stopped = True
        for task in (self.watchdog, self.sweeping):
            if task is not None:
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await task
        if self.webhook is not None:
            await self.webhook.stop()
        await self.pauses.stop()
        await self.policies.stop()
        await self.connections.stop()
        await self.discovery.stop()
        await asyncio.get_running_loop().run_in_executor(None, self.direct.close)
        for live in self.live:
            live.kafka.close()
        self.executor.shutdown(wait=False, cancel_futures=True)
        self.patient_executor.shutdown(wait=False, cancel_futures=True)
        self.files.close()
        self.servers.stop()
        _log.info("stopped")

    async def _list_all(self) -> list[tuple[Kind, list[Object]]]:
        loop = asyncio.get_running_loop()
        return [
            (kind, list(await loop.run_in_executor(self.executor, self.kube.list, kind)))
            for kind in (CONNECTIONS, POLICIES, PAUSES)
        ]

    async def _listed(self, found: list[tuple[Kind, list[Object]]], unobserved: int) -> None:
        self.metrics.unobserved(unobserved)
        listed = dict(found)
        self.neighbours.listed(listed[POLICIES], listed[CONNECTIONS])
        if self.webhook is not None:
            await self.webhook.start()
        loops = {CONNECTIONS: self.connections, POLICIES: self.policies, PAUSES: self.pauses}
        for kind, objects in found:
            await loops[kind].retain({uid_of(body) for body in objects})


def build(settings: Settings, open_kube: Callable[..., KubeClient] = KubeClient) -> Operator:
    """Make the parts. Raises ``StoreFailure``, ``FilesFailure``, ``OSError`` with a message for a person."""
    clock, metrics = SystemClock(), Metrics()
    api_client = default_api_client()
    kube = open_kube(api_client, clock, settings.namespaces)
    executor = ThreadPoolExecutor(settings.threads, thread_name_prefix="call")
    patient_executor = ThreadPoolExecutor(settings.threads, thread_name_prefix="settle")
    observer = Observer(
        executor,
        active_tick_s=settings.active_tick_s,
        idle_tick_s=settings.idle_tick_s,
        looked=functools.partial(_looked, metrics),
    )
    live = LiveConnections()
    files = ConnectionFiles(settings.runtime_directory)

    def store_of(namespace: str, name: str, owner: Mapping[str, Any] | None) -> RunStore:
        return ConfigMapRunStore(
            namespace, name, api_client=api_client, owner=owner, clock=clock, patience_s=_STORE_PATIENCE_S
        )

    wake: list[Callable[[str], None]] = []

    def ended(launch: Launch) -> None:
        for call in wake:
            call(str(launch.owner["uid"]))

    def open_owned(location: str, owner: Mapping[str, Any]) -> RunStore:
        return open_store(location, api_client=api_client, owner=owner)

    direct = DirectRunner(
        functools.partial(open_store, api_client=api_client), KafkaClient, clock, ended=ended, open_owned=open_owned
    )
    runners: dict[Engine, Runner] = {Engine.DIRECT: direct}
    match settings.spark.runner:
        case RunnerKind.LOCAL:
            runners[Engine.SPARK] = LocalSparkRunner(
                settings.spark.runs_directory, settings.spark.local_master, settings=settings.spark, clock=clock
            )
        case RunnerKind.SPARK_APPLICATION:
            runners[Engine.SPARK] = SparkApplicationRunner(settings.spark, api_client=api_client, clock=clock)
        case RunnerKind.NONE:
            pass
    topics = TopicsOfConnections(patient_executor, settings.idle_tick_s, live.topics_checked)
    connections = LevelLoop(
        ConnectionReconciler(
            ConnectionParts(
                kube=kube,
                files=files,
                live=live,
                topics=topics,
                observer=observer,
                open_kafka=KafkaClient,
                executor=executor,
                patient_executor=patient_executor,
                clock=clock,
                metrics=metrics,
                idle_tick_s=settings.idle_tick_s,
            )
        ),
        expected=_EXPECTED,
        observe_pass=lambda seconds, failed: metrics.passed(CONNECTIONS.kind, seconds, failed=failed),
    )

    def wake_policy(uid: str) -> None:
        policies.wake(uid)

    retention = RetentionKeeper(
        RetentionParts(kube, observer, executor, patient_executor, RetentionMetrics(metrics.registry))
    )
    agent, injection_metrics = (
        AgentImage(settings.agent_image, settings.agent_image_pull_policy),
        InjectionMetrics(metrics.registry),
    )
    neighbours = Neighbours(lambda: policies.bodies, lambda: connections.bodies, settings.namespaces)
    injection = InjectionKeeper(
        InjectionParts(
            pods=PodsClient(api_client),
            neighbours=neighbours,
            agent=agent,
            webhook=settings.webhook_address is not None,
            executor=executor,
            clock=clock,
            metrics=injection_metrics,
            rolling_s=2 * settings.active_tick_s,
        )
    )
    in_pods = settings.spark.runner is RunnerKind.SPARK_APPLICATION
    snapshots = SnapshotKeeper(
        SnapshotParts(
            kube=kube,
            runner=runners.get(Engine.SPARK),
            spark=settings.spark,
            places=JobPlaces(in_pods, CLAIMS_FOLDER, SECRETS_FOLDER, settings.spark.snapshots),
            executor=executor,
            patient_executor=patient_executor,
            metrics=SnapshotMetrics(metrics.registry),
        )
    )
    discovery = DiscoveryKeeper(DiscoveryParts(observer, topics, patient_executor, clock, wake_policy, metrics))
    policies = LevelLoop(
        PolicyReconciler(
            PolicyParts(
                kube=kube,
                live=live,
                observer=observer,
                open_store=store_of,
                open_kafka=KafkaClient,
                runners=runners,
                executor=executor,
                patient_executor=patient_executor,
                clock=clock,
                metrics=metrics,
                spark=settings.spark,
                mounts_secrets=in_pods,
                active_tick_s=settings.active_tick_s,
                idle_tick_s=settings.idle_tick_s,
                deletion_limit=timedelta(seconds=settings.deletion_limit_s),
                max_launches=settings.max_launches,
                keepers=(discovery, retention, injection, snapshots),
            )
        ),
        expected=_EXPECTED,
        observe_pass=lambda seconds, failed: metrics.passed(POLICIES.kind, seconds, failed=failed),
    )
    pauses = LevelLoop(
        PauseReconciler(
            PauseParts(
                kube=kube,
                live=live,
                observer=observer,
                executor=executor,
                patient_executor=patient_executor,
                now=clock.now,
                metrics=metrics,
                tick=Tick(settings.pause_tick_s, settings.active_tick_s, settings.idle_tick_s),
                patience=Patience(
                    unmanaged=timedelta(seconds=settings.unmanaged_after_s),
                    deletion=timedelta(seconds=settings.deletion_limit_s),
                ),
                topics=topics,
                workloads=KubeWorkloads(api_client, clock),
            )
        ),
        expected=_EXPECTED,
        observe_pass=lambda seconds, failed: metrics.passed(PAUSES.kind, seconds, failed=failed),
    )
    sweeper = Sweeper(
        SweepParts(
            kube=kube,
            live=live,
            observer=observer,
            backfills=lambda: discovery.backfills.under_way,
            executor=executor,
            patient_executor=patient_executor,
            metrics=metrics,
            interval_s=settings.idle_tick_s,
        )
    )
    wake.append(functools.partial(_wake_from_thread, asyncio.get_running_loop(), policies))
    freshness = health.Freshness(settings.unobserved_limit_s, clock.monotonic)
    webhook = None
    if settings.webhook_address is not None:

        def obeyed(namespace: str, connection: str) -> None:
            open_now = live.get(namespace, connection)
            if topics.want(namespace, connection) and open_now is not None:
                connections.wake(open_now.uid)

        parts = WebhookParts(neighbours, agent, kube.record, executor, injection_metrics, obeyed)
        webhook = _webhook(settings, settings.webhook_address, parts, WebhookClient(api_client), files)
    return Operator(
        settings=settings,
        metrics=metrics,
        servers=_servers(settings, freshness, metrics, TokenAccess(kube, clock.monotonic)),
        files=files,
        live=live,
        direct=direct,
        discovery=discovery,
        connections=connections,
        policies=policies,
        pauses=pauses,
        sweeper=sweeper,
        webhook=webhook,
        neighbours=neighbours,
        kube=kube,
        executor=executor,
        patient_executor=patient_executor,
        freshness=freshness,
    )


def _webhook(
    settings: Settings, address: Address, parts: WebhookParts, objects: WebhookClient, files: ConnectionFiles
) -> Webhook:
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
    trust = WebhookTrust(place, objects, files, parts.executor, SystemClock().now, parts.metrics)
    return Webhook(server, trust, settings.idle_tick_s)


def _looked(metrics: Metrics, connection: str, seconds: float, groups: int, snapshot: Snapshot) -> None:
    unreadable = snapshot.unreadable if snapshot.gates is not None else None
    metrics.looked(connection, seconds, groups=groups, failed=snapshot.failure is not None, unreadable=unreadable)


def _wake_from_thread(loop: asyncio.AbstractEventLoop, policies: LevelLoop, uid: str) -> None:
    if not loop.is_closed():
        loop.call_soon_threadsafe(policies.wake, uid)


async def _served(kube: KubeClient) -> None:
    """Wait until the API server serves our kinds: kopf looks for them once, when it starts."""
    said = ""
    for kind in (CONNECTIONS, POLICIES, PAUSES):
        while True:
            try:
                await asyncio.get_running_loop().run_in_executor(None, kube.list, kind)
                break
            except KubeFailure as failure:
                if str(failure) != said:
                    said = str(failure)
                    _log.warning("%s; install the CRDs, and see docs/reference/permissions.md for rights", failure)
            await asyncio.sleep(_SERVED_AGAIN_S)


async def run(settings: Settings) -> None:
    """Run until told to stop (SIGTERM, SIGINT)."""
    operator = build(settings)
    registry = kopf.OperatorRegistry()
    connection_handlers.register(registry, operator.connections)
    reset_handlers.register(registry, operator.policies)
    pause_handlers.register(registry, operator.pauses)
    kopf_settings = kopf.OperatorSettings()
    configure(kopf_settings)

    @kopf.on.login(registry=registry)
    def login(**arguments: Any) -> Any:
        return kopf.login_via_client(**arguments)

    @kopf.on.cleanup(registry=registry)
    async def stop(**_: Any) -> None:
        # Here and not only below: kopf waits five seconds for whatever still runs on the loop when it has ended.
        await operator.stop()

    await operator.start()
    try:
        await _served(operator.kube)
        await kopf.operator(
            registry=registry,
            settings=kopf_settings,
            clusterwide=not settings.namespaces,
            namespaces=settings.namespaces,
            standalone=True,
        )
    finally:
        await operator.stop()


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point. 0: told to stop, or everything was let go of as far as that was possible; 1: nothing is known, do it
    again; 2: the settings or the cluster can't be used.
    """
    asked = _arguments(arguments)
    try:
        settings = Settings.from_environment(os.environ)
    except BadSettings as bad:
        print(bad, file=sys.stderr)  # noqa: T201 - nothing is set up to log with yet
        return 2
    log = logging.StreamHandler(sys.stderr)
    log.setFormatter(OneLine())
    logging.basicConfig(level=settings.log_level, handlers=[log])
    for chatty, least in _CHATTY.items():
        logging.getLogger(chatty).setLevel(max(least, logging.getLevelName(settings.log_level)))
    try:
        if asked.command == "uninstall":
            # Here, since it is made of this module's parts.
            from tidegate.uninstall import Leave, uninstall

            asyncio.run(uninstall(settings, Leave(asked.deployment, asked.pods_limit)))
        else:
            asyncio.run(run(settings))
    except KubeFailure as failure:
        _log.error("%s", failure)
        return 1
    except (StoreFailure, FilesFailure, OSError) as error:
        _log.error("%s", error)
        return 2
    return 0


def _arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="tidegate-operator", description="Runs the operator. Its settings are in its environment (TIDEGATE_*)."
    )
    commands = parser.add_subparsers(dest="command", metavar="[uninstall]")
    leave = commands.add_parser(
        "uninstall",
        help="end the operator and let go of everything",
        description="Ends the operator, opens all gates, puts back workloads and the offsets of runs in mid-flight, "
        "and takes Tidegate's finalizers off. The resources stay. May be done again.",
    )
    leave.add_argument(
        "--deployment", type=Named.parse, metavar="NAMESPACE/NAME", help="the operator's, to be ended first"
    )
    leave.add_argument(
        "--pods-limit", type=float, default=90.0, metavar="SECONDS", help="how long the operator's pods may take to end"
    )
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
