"""Among how many tasks a mirror's partitions are shared, and how many executors they need. Pure.

A task lives for as long as the job: each needs a place of its own, or those without one would never begin.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import Final

from tidegate.jobs.settings import SparkSettings
from tidegate.offset_mirror.report import MOST_OF_A_SHARE
from tidegate.resources.conditions import Refusal
from tidegate.resources.spark import SparkSpec

PARTITIONS_A_TASK: Final = 50
"""Above which another task is added, while there may be more executors."""
MOST_EXECUTORS: Final = 20
"""Unless spec.spark.executor.instances says another number."""
MOST_TASKS: Final = 200
"""However many places there are: the operator reads what each task says, one after the other, within some seconds."""
TOO_MANY_PARTITIONS: Final = "TooManyPartitions"


@dataclass(frozen=True, slots=True)
class Shares:
    """``executors``: absent on this machine, where all tasks are threads of one process."""

    tasks: int
    executors: int | None


def shares(partitions: int, spark: SparkSpec | None, settings: SparkSettings, *, in_pods: bool) -> Shares | Refusal:
    """For so many partitions."""
    wanted = max(1, -(-partitions // PARTITIONS_A_TASK))
    executors = None
    if in_pods:
        asked = spark.executor if spark is not None else None
        cores = (asked.cores if asked is not None else None) or settings.executor_cores
        said = asked.instances if asked is not None else None
        executors = said or min(max(-(-wanted // cores), settings.executor_instances), MOST_EXECUTORS)
        # One for each partition at most: an executor that finds no work is not asked for.
        executors = min(executors, max(1, -(-min(partitions, MOST_TASKS) // cores)))
        places = executors * cores
    else:
        places = _places(settings.local_master)
    tasks = max(1, min(places, partitions, MOST_TASKS))
    most = tasks * MOST_OF_A_SHARE
    if partitions > most:
        says = f"{partitions} partitions are too many for {tasks} task(s), which copy {most} at most"
        how = "raise spec.spark.executor.instances" if in_pods else "use SparkApplications, or make several mirrors"
        return Refusal(TOO_MANY_PARTITIONS, f"{says}: {how}")
    return Shares(tasks, executors)


def _places(master: str) -> int:
    """How many tasks Spark on this machine does at once (``local[N]``, ``local[*]``, ``local``)."""
    found = re.fullmatch(r"local\[(\d+|\*)(,\d+)?\]", master)
    if found is None:
        return 1
    return max(1, os.cpu_count() or 1) if found[1] == "*" else max(1, int(found[1]))
