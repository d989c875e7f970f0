"""The session that a job runs in, and its settings while it looks through many records."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tidegate.jobs.options import CODEGEN, local_options

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COMPILED: Final = {
    **CODEGEN,
    # What is found is a row a partition.
    "spark.sql.shuffle.partitions": "1",
}
"""Of a session, while it looks through many records for few rows (``with_settings``)."""


def start_session(name: str) -> SparkSession:
    """The session of a job started by ``spark-submit``, which has set the options."""
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName(name)
    # Also where somebody has started the job by hand, with other options than the operator's.
    session = builder.config("spark.sql.variable.substitute", "false").getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session


def local_session(master: str = "local[2]", *, jars: Sequence[Path] = (), reads_records: bool = False) -> SparkSession:
    """A session in this very process, as ``spark-submit`` would set it up."""
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master(master).appName("tidegate")
    if jars:
        builder = builder.config("spark.jars", ",".join(map(str, jars)))
    for key, value in local_options(reads_records=reads_records).items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session


def for_joins(spark: SparkSession) -> dict[str, str]:
    """``COMPILED``, where millions of rows are joined: every core has its part."""
    return {**COMPILED, "spark.sql.shuffle.partitions": str(2 * spark.sparkContext.defaultParallelism)}


@contextmanager
def with_settings(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    before = {key: spark.conf.get(key) for key in settings}
    try:
        for key, value in settings.items():
            spark.conf.set(key, value)
        yield
    finally:
        for key, old in before.items():
            spark.conf.set(key, old or "")
