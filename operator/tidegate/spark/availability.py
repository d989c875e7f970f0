"""Whether Spark can do a policy's work here. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from tidegate.connection.live import Live
from tidegate.resources.policy import SparkSpec
from tidegate.spark.application import resources
from tidegate.spark.errors import BadSparkSpec
from tidegate.spark.session import common_options
from tidegate.spark.settings import SparkSettings

SPARK_UNAVAILABLE: Final = "SparkUnavailable"
BAD_SPARK_SPEC: Final = "BadSparkSpec"


def why_not(
    spec: SparkSpec | None, used: Iterable[Live], settings: SparkSettings, *, in_pods: bool
) -> tuple[str, str] | None:
    """Reason and message where a job of this ``spec.spark`` can't be started with these connections."""
    unmounted = [live.name for live in used if live.mounted is None]
    if in_pods and unmounted:
        return (
            SPARK_UNAVAILABLE,
            f"KafkaConnection {unmounted[0]} has several trustedCertificates, which a job in a pod can't be given "
            "as one file: put them into one key",
        )
    try:
        resources(spec.to_json() if spec is not None else {}, settings, common_options())
    except BadSparkSpec as bad:
        return BAD_SPARK_SPEC, str(bad)
    return None
