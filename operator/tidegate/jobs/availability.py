"""Whether Spark can do a policy's work here. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from tidegate.jobs.application import resources
from tidegate.jobs.errors import BadSparkSpec
from tidegate.jobs.options import common_options
from tidegate.jobs.settings import SparkSettings
from tidegate.resources.spark import SparkSpec

SPARK_UNAVAILABLE: Final = "SparkUnavailable"
BAD_SPARK_SPEC: Final = "BadSparkSpec"


def why_not(
    spec: SparkSpec | None, unmounted: Iterable[str], settings: SparkSettings, *, in_pods: bool
) -> tuple[str, str] | None:
    """Reason and message where a job of this ``spec.spark`` can't be started.

    ``unmounted``: names of the connections it needs whose files can't be mounted into a pod.
    """
    first = next(iter(unmounted), None)
    if in_pods and first is not None:
        return (
            SPARK_UNAVAILABLE,
            f"KafkaConnection {first} has several trustedCertificates, which a job in a pod can't be given "
            "as one file: put them into one key",
        )
    try:
        resources(spec.to_json() if spec is not None else {}, settings, common_options())
    except BadSparkSpec as bad:
        return BAD_SPARK_SPEC, str(bad)
    return None
