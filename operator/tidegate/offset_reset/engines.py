"""Where a run is carried out: in the operator, or by Spark. Pure."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from tidegate.connection.live import Live, unmounted
from tidegate.jobs.availability import SPARK_UNAVAILABLE, why_not
from tidegate.jobs.settings import SparkSettings
from tidegate.reset.model.request import EvidenceLevel
from tidegate.reset.runs.request import evidence_settings
from tidegate.resources.conditions import Refusal
from tidegate.resources.offset_reset import OffsetResetSpec
from tidegate.resources.reset import Engine

SPARK_NOT_SHARED: Final = "SparkNotShared"


def engine_for(
    spec: OffsetResetSpec,
    live: Live,
    other: Live | None,
    *,
    runners: Collection[Engine],
    spark: SparkSettings,
    in_pods: bool,
) -> Engine | Refusal:
    """``SPARK`` or ``DIRECT``, or why neither can carry it out.

    ``other``: the connection of ``to.cluster``. ``in_pods``: Spark's jobs run in pods of their own.
    """
    kind = spec.to.kind
    if live.is_foreign and (kind.needs_spark or spec.engine is Engine.SPARK):
        what = "spec.engine is Spark" if spec.engine is Engine.SPARK else f"spec.to.{kind.value} needs Spark"
        return Refusal(
            SPARK_NOT_SHARED,
            f"{what}, but a Spark job would need the credentials of KafkaConnection {live.label}, which do not leave "
            "its namespace: use engine Direct and a target that it can find, such as timestamp, or a "
            "KafkaConnection of this namespace",
        )
    if live.is_foreign:
        return Engine.DIRECT
    if kind.needs_spark and Engine.SPARK not in runners:
        return Refusal(
            SPARK_UNAVAILABLE,
            f"spec.to.{kind.value} needs Spark, but this operator has no Spark runner: "
            "configure one (TIDEGATE_SPARK_RUNNER), or use another target, such as timestamp",
        )
    if spec.engine is Engine.DIRECT or spec.until is not None or spec.dead_letter is not None:
        return Engine.DIRECT
    if spec.engine is Engine.AUTO and (Engine.SPARK not in runners or not gains_by_spark(spec)):
        return Engine.DIRECT
    if Engine.SPARK not in runners:
        return Refusal(
            SPARK_UNAVAILABLE,
            "spec.engine is Spark, but this operator has no Spark runner: use engine Auto or Direct, or "
            "configure one (TIDEGATE_SPARK_RUNNER)",
        )
    refused = why_not(spec.spark, unmounted([live] if other is None else [live, other]), spark, in_pods=in_pods)
    if refused is None:
        return Engine.SPARK
    reason, message = refused
    return Refusal(reason, f"{message}, or use engine Direct" if reason == SPARK_UNAVAILABLE else message)


def gains_by_spark(spec: OffsetResetSpec) -> bool:
    """Whether records have to be read, for the target or for the plan's evidence, or Spark was described.

    All else the brokers tell in a few requests, which are answered before a Spark application has started.
    """
    reads_evidence = spec.groups is None and evidence_settings(spec).level is EvidenceLevel.RECORDS
    return spec.to.kind.needs_spark or reads_evidence or spec.spark is not None
