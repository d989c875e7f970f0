"""What carries out a run: a thread of the operator, ``spark-submit`` on this machine, or a SparkApplication.

A runner only starts, watches and ends the process; what was achieved is read from the run's store and from Kafka,
never from the process's exit state (kubeflow/spark-operator #2755, #2872).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, Protocol

FORGED_EXIT: Final = 3
"""A job's exit code where the run's document is not the one that it was started for (``RunnerStatus.forged``)."""


class RunnerState(StrEnum):
    RUNNING = "Running"
    EXITED = "Exited"
    """It ended, one way or the other."""
    LOST = "Lost"
    """It was never started, or nothing is known of it any more."""


@dataclass(frozen=True, slots=True)
class RunnerStatus:
    """``message``: for a person, the last lines of the log where it failed. ``forged``: it ended because the run's
    document is not the one that it was started for."""

    state: RunnerState
    message: str = ""
    forged: bool = False


@dataclass(frozen=True, slots=True)
class Launch:
    """One start of a run's job. ``name`` is unique per run and launch, a DNS label; starting it twice starts it once.

    ``store``: the run store's location (``RunStore.location``). ``connection_secrets``: for runners in a cluster, the
    Secrets (name → keys) to mount where ``Connection`` expects its files; ``driver_secrets``: those that executors do
    not get. ``spark``: ``spec.spark`` as given.
    ``reads_records``: by the million, which takes other settings than planning by what brokers say. ``claims``: for
    runners in a cluster, PersistentVolumeClaims to mount, and whether they may be written to. ``environment``: for
    driver and executors; no secrets. ``job``: which of ``spark_templates/jobs/`` is started. ``repeatable``: its tasks
    may be carried out twice, also at once, so that one that failed is begun again.
    """

    name: str
    namespace: str
    store: str
    owner: Mapping[str, Any] = field(default_factory=dict)
    spark: Mapping[str, Any] = field(default_factory=dict)
    connection_secrets: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    driver_secrets: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    reads_records: bool = False
    claims: Mapping[str, bool] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    job: str = "reset"
    repeatable: bool = False


def merged_secrets(secrets: Sequence[Mapping[str, tuple[str, ...]]]) -> dict[str, tuple[str, ...]]:
    """Keys by Secret, each once: two connections may use keys of the same Secret."""
    names = sorted({name for some in secrets for name in some})
    return {name: tuple(dict.fromkeys(key for some in secrets for key in some.get(name, ()))) for name in names}


class Runner(Protocol):
    """Blocking calls, bounded in time."""

    @property
    def engine(self) -> str:
        """``Spark`` or ``Direct``, for ``status.engine``."""
        ...

    def start(self, launch: Launch) -> None:
        """Idempotent by ``launch.name``."""
        ...

    def status(self, launch: Launch) -> RunnerStatus: ...

    def stop(self, launch: Launch) -> None:
        """End it if it runs; returns once it is gone or raises ``TimeoutError``. Idempotent."""
        ...
