"""Whose failure a failed look at records is: the condition, which ends the search for good, or the reading."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped,unused-ignore]

from tidegate.kafka.errors import Unavailable
from tidegate.reset.planning.refusals import PlanRefused
from tidegate.spark.search_failures import raise_if_final

OF_SPARK = "org.apache.spark.sql.execution.FilterExec"


def failed(kind: str, *frames: str) -> Any:
    """A job's failure, that began with a Java exception of this kind, thrown in these classes."""
    root = SimpleNamespace(
        getClass=lambda: SimpleNamespace(getName=lambda: kind),
        getCause=lambda: None,
        getMessage=lambda: "what it says",
        getStackTrace=lambda: [SimpleNamespace(getClassName=lambda each=each: each) for each in frames],
    )
    job = SimpleNamespace(_target_id="o1", getCause=lambda: root)
    return Py4JJavaError("the job failed", job)


@pytest.mark.parametrize("kind", ["java.lang.IllegalStateException", "java.lang.AssertionError", "scala.MatchError"])
@pytest.mark.parametrize(
    "thrown_in", ["org.apache.spark.sql.kafka010.consumer.KafkaDataConsumer", "org.apache.kafka.clients.NetworkClient"]
)
def test_what_fails_while_records_are_read_is_not_the_conditions_failure(kind: str, thrown_in: str) -> None:
    error = failed(kind, thrown_in, OF_SPARK)

    raise_if_final(error, last=False)
    with pytest.raises(Unavailable, match="what it says"):
        raise_if_final(error, last=True)


def test_what_fails_while_the_condition_is_evaluated_is_and_is_not_shown() -> None:
    error = failed("java.util.regex.PatternSyntaxException", "java.util.regex.Pattern", OF_SPARK)

    with pytest.raises(PlanRefused, match="PatternSyntaxException") as refused:
        raise_if_final(error, last=False)
    assert "what it says" not in refused.value.message
