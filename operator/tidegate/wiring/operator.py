"""One operator, put together: a function for each feature."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any, Final

from tidegate.approval.reconcile import ApprovalReconciler
from tidegate.approval.reconcile import Parts as ApprovalParts
from tidegate.connect.rest import RestConnectWorkers
from tidegate.connection.reconcile import ConnectionReconciler
from tidegate.connection.reconcile import Parts as ConnectionParts
from tidegate.discovery.feature import DiscoveryFeature
from tidegate.discovery.feature import Parts as DiscoveryParts
from tidegate.election.elector import Told
from tidegate.inject.feature import InjectionFeature
from tidegate.inject.feature import Parts as InjectionParts
from tidegate.inject.index import PolicyIndex
from tidegate.inject.metrics import InjectionMetrics
from tidegate.inject.patch import AgentImage
from tidegate.jobs.runner import Runner
from tidegate.jobs.runner_application import SparkApplicationRunner
from tidegate.jobs.runner_local import LocalSparkRunner
from tidegate.jobs.settings import RunnerKind
from tidegate.kafka_client.client import KafkaClient
from tidegate.kafka_client.client_pool import ClientPool
from tidegate.kafka_client.fenced_writer import WriterProcess
from tidegate.kube.client import KubeClient
from tidegate.kube.loop import LevelLoop
from tidegate.kube.pods import PodsClient
from tidegate.kube.ports import APPROVALS, CONNECTIONS, PAUSES, POLICIES, RESETS, Object
from tidegate.kube.workloads_client import KubeWorkloads
from tidegate.leading.leaders import Leaders
from tidegate.leading.pacing import Pacing
from tidegate.offset_reset.parts import Parts as ResetParts
from tidegate.offset_reset.passes import ResetPasses
from tidegate.offset_reset.reconcile import OffsetResetReconciler
from tidegate.pause.model import Patience, Tick
from tidegate.pause.parts import Parts as PauseParts
from tidegate.pause.reconcile import PauseReconciler
from tidegate.policy.keeping import Features
from tidegate.policy.parts import Parts as PolicyParts
from tidegate.policy.reconcile import PolicyReconciler
from tidegate.reset.config_map_store import ConfigMapRunStore
from tidegate.reset.runs.in_process import DirectRunner
from tidegate.reset.store import RunStore
from tidegate.reset.stores import open_store
from tidegate.resources.reset import Engine
from tidegate.retention.feature import Parts as RetentionParts
from tidegate.retention.feature import RetentionFeature
from tidegate.retention.metrics import RetentionMetrics
from tidegate.running import Operator
from tidegate.service import health
from tidegate.service.settings import Settings
from tidegate.stuck.feature import Parts as StuckParts
from tidegate.stuck.feature import StuckRecordsFeature
from tidegate.stuck.metrics import StuckMetrics
from tidegate.sweep.kept import KeptRuns
from tidegate.sweep.kept import Parts as KeptParts
from tidegate.sweep.sweeper import Parts as SweepParts
from tidegate.sweep.sweeper import Sweeper
from tidegate.wiring.copying import backups_of, mirrors_of
from tidegate.wiring.electing import elector
from tidegate.wiring.serving import own_certificates, servers, wanting_topics, webhook
from tidegate.wiring.shared import Shared, share
from tidegate.wiring.waking import Turns, Wake

_log = logging.getLogger("tidegate")

_STORE_PATIENCE_S: Final = 10.0
"""A pass is repeated anyway; jobs, which may stand in mid-apply, have more patience."""


def build(settings: Settings, open_kube: Callable[..., KubeClient] = KubeClient) -> Operator:
    """Make the parts, on the running event loop. Raises ``NoCluster``, ``FilesFailure``, ``OSError`` with a message for
    a person."""
    wake, turns = Wake(), Turns()
    shared = share(settings, open_kube, wake.stirred)
    process = WriterProcess(turns.lost, shared.may_write)
    clients = ClientPool(functools.partial(KafkaClient, process=process))
    direct, runners = _runners(shared, wake, clients)
    connections = _connections(shared, process, wake)
    shared.looks.connections = lambda: connections.bodies
    index = PolicyIndex(wake.policies, lambda: connections.bodies, settings.namespaces, observe=settings.observe)
    agent = AgentImage(settings.agent_image, settings.agent_image_pull_policy)
    injecting = InjectionMetrics(shared.metrics.registry)
    obeyed = wanting_topics(shared, connections)
    discovery, retention = _discovery(shared, wake), _retention(shared)
    injection = _injection(shared, index, agent, injecting, obeyed)
    stuck, leaders = _stuck_records(shared), _leaders(shared)
    features = Features(all=(discovery, retention, stuck, injection), of_groups=(discovery, retention, stuck))
    approvals, pauses = _approvals(shared), _pauses(shared, leaders)
    wake.pauses = pauses
    policies, resets = _resetting(shared, runners, clients, features, lambda: approvals.bodies)
    wake.loops = (policies, resets)
    mirrors, mirroring = mirrors_of(shared, runners.get(Engine.SPARK))
    freshness = health.Freshness(settings.unobserved_limit_s, shared.clock.monotonic)
    turns.operator = Operator(
        settings=settings,
        metrics=shared.metrics,
        servers=servers(shared, freshness),
        own_certificates=own_certificates(shared, injecting),
        files=shared.files,
        live=shared.live,
        direct=direct,
        clients=clients,
        discovery=discovery,
        connections=connections,
        policies=policies,
        resets=resets,
        approvals=approvals,
        pauses=pauses,
        leaders=leaders,
        backups=backups_of(shared, runners.get(Engine.SPARK)),
        mirrors=mirrors,
        mirroring=mirroring,
        sweeper=_sweeper(shared, discovery, lambda: pauses.bodies),
        webhook=webhook(shared, index, agent, injecting, obeyed),
        index=index,
        kube=shared.kube,
        executor=shared.executor,
        patient_executor=shared.patient_executor,
        connect_executor=shared.connect_executor,
        freshness=freshness,
        # Whose term is over writes nothing to the control topic either.
        elector=elector(shared, Told(turns.elected, process.replaced, freshness.troubled)),
        connection_changed=shared.sharing.connection_changed,
        reset_changed=shared.sharing.reset_changed,
        mirror_changed=shared.sharing.mirror_changed,
        observes=shared.sharing.observes,
    )
    shared.sharing.loops = turns.operator.loops
    return turns.operator


def _runners(shared: Shared, wake: Wake, clients: ClientPool) -> tuple[DirectRunner, dict[Engine, Runner]]:
    def open_owned(location: str, owner: Mapping[str, Any]) -> RunStore:
        return open_store(location, api_client=shared.api_client, owner=owner)

    spark = shared.settings.spark
    direct = DirectRunner(
        functools.partial(open_store, api_client=shared.api_client, remembers=True),
        clients.open,
        shared.clock,
        ended=wake.owner,
        open_owned=open_owned,
        is_our_turn=shared.may_write,
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


def _connections(shared: Shared, process: WriterProcess, wake: Wake) -> LevelLoop:
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
        observe=shared.settings.observe,
        quota=shared.settings.quota,
        looks=shared.looks,
        is_borrowed=shared.sharing.is_borrowed,
        changed=wake.users,
    )
    return shared.looped(CONNECTIONS, ConnectionReconciler(parts))


def _discovery(shared: Shared, wake: Wake) -> DiscoveryFeature:
    return DiscoveryFeature(
        DiscoveryParts(
            shared.observer,
            shared.topics,
            shared.live.is_frozen,
            shared.patient_executor,
            shared.clock,
            wake.requester,
            shared.metrics,
            ThreadPoolExecutor(shared.settings.threads, thread_name_prefix="backfill"),
        )
    )


def _retention(shared: Shared) -> RetentionFeature:
    metrics = RetentionMetrics(shared.metrics.registry)
    return RetentionFeature(
        RetentionParts(
            shared.kube,
            shared.observer,
            shared.live.is_frozen,
            shared.executor,
            shared.patient_executor,
            metrics,
            shared.clock.now,
        )
    )


def _stuck_records(shared: Shared) -> StuckRecordsFeature:
    return StuckRecordsFeature(
        StuckParts(
            shared.kube,
            shared.observer,
            shared.executor,
            shared.patient_executor,
            StuckMetrics(shared.metrics.registry),
            shared.clock.now,
            shared.clock.monotonic,
        )
    )


def _injection(
    shared: Shared,
    index: PolicyIndex,
    agent: AgentImage,
    metrics: InjectionMetrics,
    obeyed: Callable[[str, str], None],
) -> InjectionFeature:
    return InjectionFeature(
        InjectionParts(
            pods=PodsClient(shared.api_client),
            is_frozen=shared.live.is_frozen,
            index=index,
            agent=agent,
            webhook=shared.settings.webhook_address is not None,
            executor=shared.executor,
            clock=shared.clock,
            metrics=metrics,
            rolling_s=2 * shared.settings.active_tick_s,
            obeyed=obeyed,
        )
    )


def _approvals(shared: Shared) -> LevelLoop:
    parts = ApprovalParts(
        kube=shared.kube,
        executor=shared.executor,
        now=shared.clock.now,
        metrics=shared.metrics,
        separate_approver=shared.settings.separate_approver,
    )
    return shared.looped(APPROVALS, ApprovalReconciler(parts))


def _resetting(
    shared: Shared,
    runners: Mapping[Engine, Runner],
    clients: ClientPool,
    features: Features,
    approvals: Callable[[], Collection[Object]],
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
        open_kafka=clients.open,
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
        approvals=approvals,
        separate_approver=settings.separate_approver,
        undo_kept=timedelta(seconds=settings.undo_kept_s),
    )
    passes = ResetPasses(parts)
    resets = shared.looped(RESETS, OffsetResetReconciler(passes, parts), begins=passes.expect)
    policy_parts = PolicyParts(
        kube=shared.kube,
        live=shared.live,
        executor=shared.executor,
        patient_executor=shared.patient_executor,
        clock=shared.clock,
        metrics=shared.metrics,
        told_of_reset=resets.named,
    )
    policies = PolicyReconciler(policy_parts, passes, features)
    return shared.looped(POLICIES, policies, begins=policies.expect), resets


def _leaders(shared: Shared) -> Leaders:
    # A session lasts twice as long as a standby may take to lead.
    session_s = 2.0 * shared.settings.election.lease_s if shared.settings.lease else 0.0
    return Leaders(shared.clock, Pacing(session_s=max(Pacing().session_s, session_s)), shared.may_write)


def _pauses(shared: Shared, leaders: Leaders) -> LevelLoop:
    settings = shared.settings
    unmanaged, deletion = timedelta(seconds=settings.unmanaged_after_s), timedelta(seconds=settings.deletion_limit_s)
    parts = PauseParts(
        kube=shared.kube,
        live=shared.live,
        observer=shared.observer,
        executor=shared.executor,
        patient_executor=shared.patient_executor,
        now=shared.clock.now,
        metrics=shared.metrics,
        tick=Tick(settings.pause_tick_s, settings.active_tick_s, settings.idle_tick_s),
        patience=Patience(unmanaged=unmanaged, deletion=deletion),
        topics=shared.topics,
        workloads=KubeWorkloads(shared.api_client, shared.clock),
        connect_executor=shared.connect_executor,
        connect=RestConnectWorkers(may_write=shared.may_write),
        leaders=leaders,
    )
    return shared.looped(PAUSES, PauseReconciler(parts))


def _sweeper(shared: Shared, discovery: DiscoveryFeature, pauses: Callable[[], Collection[Object]]) -> Sweeper:
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
            pauses=pauses,
        )
    )


def _kept_runs(shared: Shared) -> KeptRuns:
    kept_for = timedelta(seconds=shared.settings.undo_kept_s)
    return KeptRuns(KeptParts(shared.kube, shared.executor, shared.patient_executor, shared.clock, kept_for))
