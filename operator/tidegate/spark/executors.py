"""Our own Kafka client is used in executors, which have the connection's secrets; this is how one call gets there."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from tidegate.kafka.errors import KafkaFailure, Refused, UnknownPartitions
from tidegate.kafka_client.settings import BadConnection
from tidegate.reset.planning.refusals import UNKNOWN_PARTITION, PlanRefused

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_T = TypeVar("_T")


def in_executor(spark: SparkSession, call: Callable[[], _T]) -> _T:
    """Call it in an executor; what it raises of Kafka's failures and of refusals is raised here."""

    def run(_: int) -> tuple[list[_T], Exception | None]:
        try:
            return [call()], None
        except UnknownPartitions as unknown:  # which can't be sent as it is
            return [], PlanRefused(UNKNOWN_PARTITION, str(unknown))
        except (KafkaFailure, PlanRefused) as failure:
            return [], failure
        except BadConnection as bad:
            return [], Refused(str(bad))

    answer: list[_T]
    [(answer, failure)] = spark.sparkContext.parallelize([0], 1).map(run).collect()
    if failure is not None:
        raise failure
    return answer[0]
