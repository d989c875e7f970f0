"""Backups and mirrors: what copies offsets and records elsewhere."""

from __future__ import annotations

import functools

from tidegate.jobs.mounts import CLAIMS_FOLDER, SECRETS_FOLDER, JobPlaces
from tidegate.jobs.runner import Runner
from tidegate.kafka_client.mirror_cluster import KafkaMirrorCluster
from tidegate.kube.loop import LevelLoop
from tidegate.kube.ports import BACKUPS, MIRRORS
from tidegate.offset_backup.attempts import JobParts
from tidegate.offset_backup.metrics import BackupMetrics
from tidegate.offset_backup.reconcile import BackupReconciler
from tidegate.offset_backup.reconcile import Parts as BackupParts
from tidegate.offset_mirror.jobs import JobParts as MirrorJobParts
from tidegate.offset_mirror.metrics import MirrorMetrics
from tidegate.offset_mirror.parts import Parts as MirrorParts
from tidegate.offset_mirror.reconcile import MirrorReconciler
from tidegate.resources.reset import Engine
from tidegate.wiring.shared import Shared


def backups_of(shared: Shared, spark: Runner | None) -> LevelLoop:
    """``spark``: its runner, if there is one."""
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


def mirrors_of(shared: Shared, spark: Runner | None) -> tuple[LevelLoop, MirrorReconciler]:
    """The loop, and what copies between its passes. ``spark``: its runner, if there is one."""
    loops: list[LevelLoop] = []
    parts = MirrorParts(
        kube=shared.kube,
        live=shared.live,
        open_cluster=KafkaMirrorCluster,
        mirrors=lambda: loops[0].bodies,
        may_write=shared.may_write,
        jobs=MirrorJobParts(
            kube=shared.kube,
            runner=spark,
            settings=shared.settings.spark,
            in_pods=shared.in_pods,
            executor=shared.executor,
            patient_executor=shared.patient_executor,
            clock=shared.clock,
            died=functools.partial(shared.metrics.job_died, Engine.SPARK.value),
        ),
        executor=shared.executor,
        patient_executor=shared.patient_executor,
        clock=shared.clock,
        metrics=shared.metrics,
        of_mirrors=MirrorMetrics(shared.metrics.registry),
        active_tick_s=shared.settings.active_tick_s,
        idle_tick_s=shared.settings.idle_tick_s,
    )
    mirroring = MirrorReconciler(parts)
    loops.append(shared.looped(MIRRORS, mirroring))
    return loops[0], mirroring
