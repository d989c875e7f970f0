"""How Spark is set up for jobs that live for seconds: quiet, without a UI, and tuned for a fast start.

Jobs that read records have settings of their own: they live as long as there are records to read.

Most of such a job's time is the JVM warming up. The first tier of the compiler alone, and expressions that are
interpreted instead of being compiled for the occasion, save more than the slower code costs on tens of thousands of
rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from tidegate.jobs.errors import RunnerFailure

_COMMON: Final = {
    # A second copy of a slow task would apply a run twice; the operator decides about a second try.
    "spark.speculation": "false",
    "spark.task.maxFailures": "1",
    # Or ${env:NAME} in a policy's condition would stand for what the job's environment holds.
    "spark.sql.variable.substitute": "false",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.eventLog.enabled": "false",
    "spark.python.worker.reuse": "true",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "4",
    # All that Spark reads by its first interface for sources, but for Kafka: there each record would become a row of
    # Java's objects first, and then one of Spark's. By its second one it is Spark's at once.
    "spark.sql.sources.useV1SourceList": "avro,csv,json,orc,parquet,text",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}

CODEGEN: Final = {
    # Millions of records are worth compiling for: what planning gains by interpreting a few rows, they would lose.
    "spark.sql.codegen.wholeStage": "true",
    "spark.sql.codegen.factoryMode": "FALLBACK",
}

# The JVM's second compiler is for what is done a record at a time, four times later than it would begin by itself: what
# is done once a poll or once a window costs a third of the processors for the length of the search, and gains nothing.
_FOR_RECORDS: Final = " ".join(
    (
        "-XX:+UseParallelGC",
        "-XX:Tier4InvocationThreshold=20000",
        "-XX:Tier4MinInvocationThreshold=2400",
        "-XX:Tier4CompileThreshold=60000",
        "-XX:Tier4BackEdgeThreshold=160000",
    )
)

TASKS_A_CORE: Final = 2
"""Of jobs that read records: while one task waits for the broker, another one looks at what it was given."""

_READING: Final = {
    **CODEGEN,
    "spark.driver.extraJavaOptions": _FOR_RECORDS,
    "spark.executor.extraJavaOptions": _FOR_RECORDS,
    # Consumers of a window that is over hold what they fetched ahead: enough for the next window, not for minutes. And
    # whoever makes one too many, 64, closes all that are idle first.
    "spark.kafka.consumer.cache.timeout": "5s",
    "spark.kafka.consumer.cache.evictorThreadRunInterval": "2s",
    "spark.kafka.consumer.fetchedData.cache.timeout": "5s",
    "spark.kafka.consumer.fetchedData.cache.evictorThreadRunInterval": "2s",
}

_LOCAL: Final = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.warehouse.dir": "spark-warehouse",
    "spark.log.level": "ERROR",
}


_REPEATABLE: Final = {
    # A task that lives for weeks is begun again where it died; once so often, the operator starts the job anew.
    "spark.task.maxFailures": "100",
}


def common_options(*, reads_records: bool = False, repeatable: bool = False) -> dict[str, str]:
    """What a job runs with, wherever it runs. ``reads_records``: by the million; ``repeatable``: see ``Launch``."""
    return {**_COMMON, **(_READING if reads_records else {}), **(_REPEATABLE if repeatable else {})}


def local_options(*, reads_records: bool = False, repeatable: bool = False) -> dict[str, str]:
    """The options of a job on this machine alone."""
    return {**common_options(reads_records=reads_records, repeatable=repeatable), **_LOCAL}


def with_java_options(options: Mapping[str, str], *java_options: str) -> dict[str, str]:
    """``options`` with more for the driver's JVM."""
    known = options.get("spark.driver.extraJavaOptions", "")
    return {**options, "spark.driver.extraJavaOptions": " ".join([known, *java_options]).strip()}


def with_archive(options: Mapping[str, str], archive: Path | None) -> dict[str, str]:
    """``options`` with the archive of loaded classes (``tidegate.jobs.archive``), where there is one."""
    if archive is None or not archive.is_file():
        return dict(options)
    # Silent where it does not fit: then the JVM starts as it would without.
    return with_java_options(options, f"-XX:SharedArchiveFile={archive}", "-Xshare:auto", "-Xlog:disable")


def spark_home() -> Path:
    """The folder of pip's pyspark, which holds Spark itself. Raises ``RunnerFailure`` where it is not installed."""
    spec = find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise RunnerFailure("pyspark is not installed here: install tidegate[spark], or use another runner")
    return Path(spec.origin).parent
