"""How the Spark applications of a policy run: ``spec.spark``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Final

from pydantic import Field, StrictInt

from tidegate.resources import spark_conf
from tidegate.resources.base import ResourceModel
from tidegate.resources.rules import Facet, Rule, cel_list, cel_matches, described, matching, must

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
    """How many cores the driver has."""

    memory: SparkMemory | None = None
    """How much memory the driver has, in Spark's form such as 512m or 2g."""


class ExecutorSpec(ResourceModel):
    instances: Annotated[StrictInt, Field(ge=1, le=1000)] | None = None
    """How many executors run."""

    cores: Cores | None = None
    """How many cores each executor has."""

    memory: SparkMemory | None = None
    """How much memory each executor has, in Spark's form such as 512m or 2g."""


SettingValue = Annotated[
    str,
    must(
        spark_conf.is_value,
        f"{cel_matches('self', spark_conf.VALUE.pattern)} && !self.contains('${{')",
        f"values must be {spark_conf.VALUE.says}",
        maxLength=spark_conf.MAX_VALUE,
    ),
    described("The setting's value."),
]

_IS_NODE_SELECTOR: Final = cel_matches("name", spark_conf.NODE_SELECTOR)


def _name_is_in(names: list[str]) -> str:
    return f"name in {cel_list(names)}"


def _rules() -> Iterator[Rule]:
    """Which settings there are, and how the values of each form look. The chart adds names to the first."""
    every = [setting.name for setting in spark_conf.ALLOWED]
    yield Rule(
        f"self.all(name, {_name_is_in(every)} || {_IS_NODE_SELECTOR})",
        "only the settings of Spark that docs/reference/spark-conf.md lists can be given, and those that the chart's "
        "spark.allowedConf adds: remove the others",
    )
    for form in dict.fromkeys(setting.form for setting in spark_conf.ALLOWED):
        whose = _name_is_in([setting.name for setting in spark_conf.ALLOWED if setting.form is form])
        if form is spark_conf.NAME:
            whose += f" || {_IS_NODE_SELECTOR}"
        yield Rule(
            f"self.all(name, !({whose}) || {cel_matches('self[name]', form.pattern)})",
            f"{form.kind} must be {form.says}",
        )


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
    """The container image with Spark and Tidegate's jobs."""

    driver: DriverSpec | None = None
    """The driver's resources."""

    executor: ExecutorSpec | None = None
    """The executors' number and resources."""

    # Of the names, of which an administrator may have allowed more, the operator judges where a job is made of them
    # (:func:`tidegate.resources.spark_conf.refusals`): one that is refused ends no more than what needs that job.
    spark_conf: Annotated[
        dict[str, SettingValue],
        Field(max_length=100),
        Facet(tuple(_rules())),
    ] = Field(default_factory=dict)
    """Further settings of Spark, from a list of those that cannot name code, files, accounts or addresses
    (docs/reference/spark-conf.md)."""
