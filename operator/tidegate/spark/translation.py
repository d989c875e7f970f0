"""Carries a group's place from one cluster to another: windows of both are compared in Spark, offsets come back.

What it means that records are the same, and what follows for the place, is said in ``tidegate.find.translation``; here
windows are chosen, compared (``tidegate.spark.comparison``), and chosen wider where that is not enough. Every step only
reads: an executor that dies costs time.
"""

from __future__ import annotations

from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING, Final

from tidegate.clock import Clock
from tidegate.find.survey import Surveyed, Wider, left_without, survey
from tidegate.find.translation import Place, told
from tidegate.kafka.errors import NotAuthorized, Refused, Unavailable
from tidegate.kafka_client.client import KafkaClient
from tidegate.kafka_client.settings import BadConnection
from tidegate.reset.model.request import RunRequest
from tidegate.reset.model.targets import Findings, FromCluster
from tidegate.spark import find
from tidegate.spark.comparison import compare
from tidegate.spark.executors import in_executor
from tidegate.spark.expression import spoken
from tidegate.spark.search_failures import raise_if_a_time_is_too_large
from tidegate.spark.session import for_joins, with_settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TRIES: Final = 3
"""Of comparing, before the whole plan begins anew."""


def find_place(spark: SparkSession, request: RunRequest, target: FromCluster, clock: Clock) -> find.Found:
    """Where the group goes on here, for each partition that it has a place for over there.

    Raises ``PlanRefused`` and ``KafkaFailure`` as planning does.
    """
    from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped,unused-ignore]
    from pyspark.errors import PySparkException

    wider, failures = Wider(), 0
    places: dict[str, list[Place]] = {}
    topic_ids: dict[str, str] = {}
    with with_settings(spark, for_joins(spark)):
        while True:
            surveyed = in_executor(spark, partial(_survey, request, target, wider))
            left = [pair for pair in surveyed.pairs if pair.here not in places]
            try:
                compared = compare(spark, request.connection, target.connection, left, target.match)
            except BadConnection as bad:
                raise Refused(str(bad)) from bad
            except (PySparkException, Py4JJavaError) as error:
                # An executor was lost, a broker, or records that retention has taken since the survey.
                failures += 1
                _raise_if_final(error, last=failures >= TRIES)
                clock.sleep(float(failures))
                continue
            again = compared.cut_off | compared.crossed
            topic_ids |= {pair.here: pair.topic_id for pair in left}
            for at in compared.places:
                if at.partition.topic not in again:
                    places.setdefault(at.partition.topic, []).append(at)
            if not again:
                break
            wider = Wider(wider.to_the_end | compared.cut_off, wider.by_key | compared.crossed)
    found = [at for topic in sorted(places) for at in places[topic]]
    offsets = {at.partition: at.offset for at in found}
    without = left_without(target, [p for p in surveyed.without if p not in offsets])
    return find.Found(Findings(offsets, (*told(found, target.group_id), *without)), topic_ids)


def _survey(request: RunRequest, target: FromCluster, wider: Wider) -> Surveyed:
    with closing(KafkaClient(request.connection)) as here, closing(KafkaClient(target.connection)) as there:
        return survey(request, target, here, there, wider)


def _raise_if_final(error: Exception, *, last: bool) -> None:
    """Raises ``PlanRefused``, ``NotAuthorized``, or ``Unavailable`` for the last failure."""
    raise_if_a_time_is_too_large(error)
    text = spoken(error)
    if "AuthorizationException" in str(error) or "AuthenticationException" in str(error):
        raise NotAuthorized(f"records can't be read: {text}") from error
    if last:
        raise Unavailable(f"records can't be compared: {text}") from error
