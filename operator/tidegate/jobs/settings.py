"""Which Spark runner is configured, and the defaults under every policy's ``spec.spark``."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from pathlib import Path
from typing import Final

from tidegate.resources.spark_conf import allowed_names

IMAGE_FOLDER = Path("/opt/tidegate/spark")
"""Where ``spark_templates/`` lies in the images of the operator and of the job."""


class RunnerKind(StrEnum):
    NONE = "none"
    LOCAL = "local"
    SPARK_APPLICATION = "sparkapplication"


def _default_templates() -> Path:
    in_tree = Path(__file__).resolve().parents[3] / "spark_templates"
    return in_tree if in_tree.is_dir() else IMAGE_FOLDER


VARIABLES: Final = {"spark_conf": "CONF", "time_to_live": "TIME_TO_LIVE_S", "start_timeout": "START_TIMEOUT_S"}
"""Ends of the variables' names, by field, where they are not the field's own."""


@dataclass(frozen=True, slots=True)
class SparkSettings:
    """Each field is the variable ``TIDEGATE_SPARK_<FIELD>``; :data:`VARIABLES` has those that are named otherwise."""

    runner: RunnerKind = RunnerKind.NONE
    """``none``, ``local`` (spark-submit on this machine) or ``sparkapplication`` (the Kubeflow Spark operator)."""

    templates: Path = field(default_factory=_default_templates)
    """The folder with ``sparkapplication.yaml`` and ``jobs/``."""

    image: str = "tidegate-spark:latest"
    """The job's image."""

    image_pull_policy: str = "IfNotPresent"
    """``Always``, ``IfNotPresent`` or ``Never``."""

    allowed_images: tuple[str, ...] = ()
    """Images that resources may name in ``spec.spark.image`` in addition to ``image``, separated by commas: exactly as
    they are written there, or ``registry.example.com/team/*`` for all images below that path."""

    service_account: str = "tidegate-spark"
    """The ServiceAccount of drivers."""

    executor_service_account: str = ""
    """The ServiceAccount of executors. Empty: that of drivers."""

    driver_cores: int = 1
    """The default of ``spec.spark.driver.cores``."""

    driver_memory: str = "1g"
    """The default of ``spec.spark.driver.memory``."""

    executor_instances: int = 1
    """The default of ``spec.spark.executor.instances``."""

    executor_cores: int = 1
    """The default of ``spec.spark.executor.cores``."""

    executor_memory: str = "1g"
    """The default of ``spec.spark.executor.memory``."""

    spark_conf: Mapping[str, str] = field(default_factory=dict)
    """Default Spark settings below ``spec.spark.sparkConf``, as a JSON object of strings."""

    allowed_conf: frozenset[str] = frozenset()
    """Names of Spark settings that policies may set in addition to those in ``docs/reference/spark-conf.md``, separated
    by commas. Nothing checks them: a setting that names code gives every author of policies the permissions of the
    job."""

    time_to_live: timedelta = timedelta(hours=1)
    """How long an ended SparkApplication is kept."""

    start_timeout: timedelta = timedelta(minutes=5)
    """How long a SparkApplication may go without a driver pod before it counts as lost."""

    runs_directory: Path = Path("/var/lib/tidegate/runs")
    """The local runner's launches: command, pid, log. They are kept for seven days after they have ended."""

    local_master: str = "local[2]"
    """The local runner's master. For searches, two tasks for each core are faster than one: while one waits for the
    broker, the other works. Executors in pods do this automatically."""

    class_archive: Path | None = None
    """An archive of loaded classes from which the local runner's Java starts, made on this machine by ``python -m
    tidegate.jobs.archive``. An archive that does not fit is ignored."""

    jars: tuple[Path, ...] = ()
    """Spark's connector to Kafka for the local runner, which pip's pyspark lacks: the paths of the jars, separated by
    commas. Without it, records can't be read. The job's image has its own."""

    backups: Path | None = None
    """The folder on this machine below which the local runner's jobs keep backups of offsets, and read them. Without
    it, resources can't name folders there."""

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> SparkSettings:
        """From ``TIDEGATE_SPARK_*``; what is absent keeps its default.

        Raises ``ValueError`` naming the variable.
        """
        read = _Environment(environment)
        default = cls()
        return cls(
            runner=RunnerKind(read.one_of("RUNNER", tuple(RunnerKind), default.runner)),
            templates=Path(read.text("TEMPLATES", str(default.templates))),
            image=read.text("IMAGE", default.image),
            image_pull_policy=read.one_of(
                "IMAGE_PULL_POLICY", ("Always", "IfNotPresent", "Never"), default.image_pull_policy
            ),
            allowed_images=tuple(image for image in read.text("ALLOWED_IMAGES", "").split(",") if image),
            service_account=read.text("SERVICE_ACCOUNT", default.service_account),
            executor_service_account=read.text("EXECUTOR_SERVICE_ACCOUNT", default.executor_service_account),
            driver_cores=read.number("DRIVER_CORES", default.driver_cores),
            driver_memory=read.text("DRIVER_MEMORY", default.driver_memory),
            executor_instances=read.number("EXECUTOR_INSTANCES", default.executor_instances),
            executor_cores=read.number("EXECUTOR_CORES", default.executor_cores),
            executor_memory=read.text("EXECUTOR_MEMORY", default.executor_memory),
            spark_conf=read.conf("CONF", default.spark_conf),
            allowed_conf=read.names("ALLOWED_CONF", default.allowed_conf),
            time_to_live=timedelta(seconds=read.number("TIME_TO_LIVE_S", int(default.time_to_live.total_seconds()))),
            start_timeout=timedelta(seconds=read.number("START_TIMEOUT_S", int(default.start_timeout.total_seconds()))),
            runs_directory=Path(read.text("RUNS_DIRECTORY", str(default.runs_directory))),
            local_master=read.text("LOCAL_MASTER", default.local_master),
            class_archive=Path(archive) if (archive := read.text("CLASS_ARCHIVE", "")) else None,
            jars=tuple(Path(jar) for jar in read.text("JARS", "").split(",") if jar),
            backups=Path(folder) if (folder := read.text("BACKUPS", "")) else None,
        )


@dataclass(frozen=True, slots=True)
class _Environment:
    values: Mapping[str, str]

    def text(self, name: str, default: str) -> str:
        return self.values.get(f"TIDEGATE_SPARK_{name}", "") or default

    def one_of(self, name: str, choices: tuple[str, ...], default: str) -> str:
        value = self.text(name, default)
        if value not in choices:
            raise ValueError(f"TIDEGATE_SPARK_{name} is {value!r}: it has to be one of {', '.join(choices)}")
        return value

    def number(self, name: str, default: int) -> int:
        value = self.text(name, str(default))
        if not value.isdecimal() or int(value) < 1:
            raise ValueError(f"TIDEGATE_SPARK_{name} is {value!r}: it has to be a whole number above 0")
        return int(value)

    def names(self, name: str, default: frozenset[str]) -> frozenset[str]:
        try:
            return allowed_names(self.text(name, "")) or default
        except ValueError as error:
            raise ValueError(f"TIDEGATE_SPARK_{name}: {error}") from None

    def conf(self, name: str, default: Mapping[str, str]) -> Mapping[str, str]:
        value = self.text(name, "")
        if not value:
            return default
        try:
            conf = json.loads(value)
        except ValueError as error:
            raise ValueError(f"TIDEGATE_SPARK_{name} is not JSON: {error}") from error
        if not isinstance(conf, dict) or not all(isinstance(v, str) for v in conf.values()):
            raise ValueError(f"TIDEGATE_SPARK_{name} has to be a JSON object of strings")
        return conf
