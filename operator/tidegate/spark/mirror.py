"""Copies a mirror's partitions in Spark's tasks: each has a share of them, for as long as it lives.

A task that is carried out twice, at once or late, does no harm: each append is a compare-and-set.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidegate.clock import SystemClock
from tidegate.kafka_client.mirror_cluster import KafkaMirrorCluster
from tidegate.kube.api import default_api_client
from tidegate.kube.client import KubeClient
from tidegate.kube.ports import MIRRORS, Kube, uid_of
from tidegate.offset_mirror.order import (
    SCHEME,
    BadOrder,
    MirrorOrder,
    decode_document,
    digest,
    name_of_document,
)
from tidegate.offset_mirror.share import copy_share

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class OtherOrder(Exception):
    """The document has another order than the one that the job was started for."""


def ordered(kube: Kube, location: str, expected: str) -> MirrorOrder:
    """The order of that digest. Raises ``OtherOrder``, ``KubeFailure``, ``NewerVersion``, ``ValueError``."""
    namespace, separator, name = location.removeprefix(SCHEME).partition("/")
    if not location.startswith(SCHEME) or not separator:
        raise ValueError(f"{location!r} is not the place of a mirror's order: {SCHEME}namespace/name")
    body = kube.get(MIRRORS, namespace, name)
    document = name_of_document(name, uid_of(body))
    try:
        order = decode_document(kube.own_config_map(body, document), f"ConfigMap {namespace}/{document}")
    except BadOrder as bad:
        raise OtherOrder(str(bad)) from bad
    if digest(order) != expected:
        raise OtherOrder(f"ConfigMap {namespace}/{document} has another order than this job was started with")
    return order


def copy_in_tasks(spark: SparkSession, order: MirrorOrder) -> list[str]:
    """Why each task has ended; all do once it is the turn of none."""
    places = spark.sparkContext.parallelize(range(order.tasks), order.tasks)
    reasons: list[str] = places.mapPartitions(_Share(order).copied).collect()
    return reasons


@dataclass(frozen=True, slots=True)
class _Share:
    """What every task knows. Travels to the executors; holds no secrets."""

    order: MirrorOrder

    def copied(self, places: Iterable[int]) -> list[str]:
        """Of each place, why it has ended."""
        from pyspark import TaskContext

        context = TaskContext.get()
        # Larger for each attempt of the application, whichever task it is of.
        attempt = 1 + (context.taskAttemptId() if context is not None else 0)
        return [self._copied(place, attempt) for place in places]

    def _copied(self, place: int, attempt: int) -> str:
        clock = SystemClock()
        kube = KubeClient(default_api_client(), clock)
        return asyncio.run(copy_share(self.order, place, attempt, kube, KafkaMirrorCluster, clock))
