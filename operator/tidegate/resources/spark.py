"""How the Spark applications of a policy run: ``spec.spark``."""

from __future__ import annotations

from typing import Annotated

from pydantic import (
    AfterValidator,
    Field,
    StrictInt,
)

from tidegate.resources import spark_conf
from tidegate.resources.base import (
    ResourceModel,
    matching,
    problem,
)

Cores = Annotated[StrictInt, Field(ge=1, le=512)]

SparkMemory = Annotated[
    str,
    matching(
        r"[1-9][0-9]{0,8}[kmgtKMGT]",
        "must be memory in Spark's form, such as 512m or 2g (k, m, g, t; not Kubernetes' Mi or Gi)",
        most=10,
    ),
]


class DriverSpec(ResourceModel):
    cores: Cores | None = None
    memory: SparkMemory | None = None


class ExecutorSpec(ResourceModel):
    instances: Annotated[StrictInt, Field(ge=1, le=1000)] | None = None
    cores: Cores | None = None
    memory: SparkMemory | None = None


def _spark_value(value: str) -> str:
    if not spark_conf.is_value(value):
        raise problem(f"values must be {spark_conf.VALUE.says}")
    return value


class SparkSpec(ResourceModel):
    """How the Spark application runs; what is absent comes from the chart's defaults."""

    image: (
        Annotated[
            str,
            matching(
                r"[^\x00-\x20\x7f]+",
                "must be a container image reference without spaces, at most 1024 characters",
                most=1024,
            ),
        ]
        | None
    ) = None
    driver: DriverSpec | None = None
    executor: ExecutorSpec | None = None
    spark_conf: Annotated[
        dict[str, Annotated[str, AfterValidator(_spark_value)]],
        Field(max_length=100),
    ] = Field(default_factory=dict)
    """Values are checked here; the names, of which an administrator may have allowed more, where a job is made of them
    (:func:`tidegate.resources.spark_conf.refusals`): one that is refused ends no more than what needs that job."""
