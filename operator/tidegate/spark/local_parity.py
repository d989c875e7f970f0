"""The comparison of two clusters' topics in a Spark of this very process, for the command line."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped,unused-ignore]
from pyspark.errors import PySparkException

from tidegate.find.parity import Parity
from tidegate.jobs.errors import RunnerFailure
from tidegate.jobs.settings import SparkSettings
from tidegate.kafka.connection import Connection
from tidegate.reset.model.request import Selection
from tidegate.reset.planning.refusals import PlanRefused
from tidegate.spark.expression import spoken
from tidegate.spark.parity import compare_logs, find_pairs
from tidegate.spark.session import local_session


def compared(here: Connection, there: Connection, selections: Sequence[Selection], alias: str | None) -> list[Parity]:
    """Of each pair of partitions, whether its offsets may be carried over.

    Raises ``RunnerFailure``, ``KafkaFailure``, ``BadConnection``, and ``ValueError`` where there is nothing to compare.
    """
    pairs = find_pairs(here, there, selections, alias)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    spark = local_session("local[*]", jars=SparkSettings.from_environment(os.environ).jars, reads_records=True)
    try:
        return compare_logs(spark, here, there, pairs)
    except (PySparkException, Py4JJavaError) as error:
        raise RunnerFailure(f"records can't be read: {spoken(error)}") from error
    except PlanRefused as refused:
        raise RunnerFailure(refused.message) from refused
    finally:
        spark.stop()
