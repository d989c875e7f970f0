"""What a mirror's job is asked for, where Spark copies. Pure."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection
from typing import Any

from tidegate.connection.live import Live, unmounted
from tidegate.jobs.availability import SPARK_UNAVAILABLE, why_not
from tidegate.jobs.runner import Launch, merged_secrets
from tidegate.jobs.settings import SparkSettings
from tidegate.kafka.connection import Connection
from tidegate.kafka.model import TopicPartition
from tidegate.kube.ports import Object, name_of, namespace_of, owner_reference, uid_of
from tidegate.offset_mirror.jobs import JobParts, Wanted
from tidegate.offset_mirror.order import MOST_PARTITIONS, MirrorOrder
from tidegate.offset_mirror.partitions import partitions_of
from tidegate.offset_mirror.shares import TOO_MANY_PARTITIONS, Shares, shares
from tidegate.offset_mirror.topics import Copied
from tidegate.resources.conditions import Refusal
from tidegate.resources.mirror_engine import MirrorEngine
from tidegate.resources.offset_mirror import OffsetMirrorSpec


def engine_refusal(spec: OffsetMirrorSpec, pair: Collection[Live], jobs: JobParts) -> Refusal | None:
    """Why no job could copy between these two as it is asked for."""
    if spec.engine is not MirrorEngine.SPARK:
        return None
    if jobs.runner is None:
        says = "spec.engine is Spark, but this operator has no Spark runner: configure one (TIDEGATE_SPARK_RUNNER)"
        return Refusal(SPARK_UNAVAILABLE, f"{says}, or use engine Direct")
    found = why_not(spec.spark, unmounted(pair), jobs.settings, in_pods=jobs.in_pods)
    return None if found is None else Refusal(*found)


def wanted_job(
    body: Object,
    spec: OffsetMirrorSpec,
    pair: tuple[Live, Live],
    topics: Collection[Copied],
    different: Collection[TopicPartition],
    jobs: JobParts,
    *,
    settled: bool,
) -> Wanted | Refusal | None:
    """``None``: there is nothing to copy. ``topics``: those that are ready; ``different``: partitions whose copies are
    known not to be what the source has; ``settled``: see ``Wanted``."""
    ready = partitions_of(topics)
    left_out = tuple(sorted(partition for partition in different if partition in ready))
    count = len(ready) - len(left_out)
    if not count:
        return None
    if len(ready) > MOST_PARTITIONS:
        return Refusal(TOO_MANY_PARTITIONS, f"a mirror copies at most {MOST_PARTITIONS} partitions: create several")
    shared = shares(count, spec.spark, jobs.settings, in_pods=jobs.in_pods)
    if isinstance(shared, Refusal):
        return shared
    spark = {} if spec.spark is None else spec.spark.to_json()
    source, target = pair
    rate = spec.rate_limit
    order = MirrorOrder(
        namespace=namespace_of(body),
        name=name_of(body),
        uid=uid_of(body),
        launch="",
        source=_connection(source, jobs),
        target=_connection(target, jobs),
        clusters=(source.cluster_id, target.cluster_id),
        settings=_settings(pair, spark, jobs.settings, shared),
        topics=tuple(sorted(topics, key=lambda topic: topic.source.name)),
        left_out=left_out,
        tasks=shared.tasks,
        max_fill=spec.seed.max_fill,
        bytes_per_second=None if rate is None else rate.bytes_per_second,
        former_ids=spec.former_producer_ids or (),
    )
    launch = Launch(
        name="",
        namespace=namespace_of(body),
        store="",
        owner=owner_reference(body),
        spark=_with_executors(spark, shared),
        connection_secrets=merged_secrets([source.secrets, target.secrets]) if jobs.in_pods else {},
        job="mirror",
        repeatable=True,
    )
    return Wanted(order, launch, settled)


def _connection(live: Live, jobs: JobParts) -> Connection:
    return live.connection if live.mounted is None or not jobs.in_pods else live.mounted


def _with_executors(spark: dict[str, Any], shared: Shares) -> dict[str, Any]:
    if shared.executors is None:
        return spark
    return {**spark, "executor": {**(spark.get("executor") or {}), "instances": shared.executors}}


def _settings(pair: Collection[Live], spark: object, settings: SparkSettings, shared: Shares) -> str:
    """Another image of the chart's is a reason as well: after an upgrade the job is one of the new version."""
    marks = [[live.uid, live.digest] for live in pair]
    text = json.dumps([marks, spark, settings.image, shared.executors], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
