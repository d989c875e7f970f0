"""What copies for an ``OffsetMirror``, and its job where that is not the operator itself."""

from __future__ import annotations

from enum import StrEnum

from tidegate.resources.base import ResourceModel
from tidegate.resources.fields import Count


class MirrorEngine(StrEnum):
    """What copies."""

    DIRECT = "Direct"
    """The operator's own process."""
    SPARK = "Spark"
    """A SparkApplication, whose tasks share the partitions."""


class MirrorJob(ResourceModel):
    """The job that copies, where that is not the operator itself."""

    name: str
    """The name of the SparkApplication. Each start has another name, and tasks of earlier starts end on their own."""

    tasks: Count
    """How many tasks share the partitions."""

    heard: Count = 0
    """How many tasks reported within the last ten seconds."""

    message: str = ""
    """What keeps the job from running, or the tasks from copying, if anything does."""
