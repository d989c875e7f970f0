"""A condition stays what it says: nothing of the job's environment gets into it, nor into what is said of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tidegate.reset.model.targets import RecordSchema
from tidegate.reset.planning.refusals import PlanRefused
from tidegate.resources.base import InvalidResource, parse_spec
from tidegate.resources.policy import OffsetResetPolicySpec
from tidegate.resources.targets import SchemaFormat
from tidegate.spark.expression import SETTINGS, bind
from tidegate.spark.session import start_session, with_settings

pytestmark = pytest.mark.spark

SUBSTITUTE = "spark.sql.variable.substitute"


@pytest.fixture(autouse=True)
def _settings(spark: Any) -> Iterator[None]:
    with with_settings(spark, SETTINGS):
        yield


@pytest.fixture
def secret(spark: Any) -> str:
    """What a variable of the environment holds where Spark reads it: in the driver's JVM."""
    value = str(spark._jvm.java.lang.System.getenv("PATH"))
    assert len(value) > 10
    return value


SNEAKY = [
    "`${env:PATH}` = 1",
    "${env:PATH} = 1",
    "value = '${env:PATH}'",
    "value = '${ENV:PATH}' and mine(value)",
    "no_such_function('${env:PATH}')",
    "cast('${env:PATH}' as no_such_type) = 1",
    "get_json_object('${env:PATH}', '$.a') = 1 and",
    "value = '${${x:-env}:PATH}'",
    "offset = ${system:user.home}",
    "offset = ${spark.app.id}",
]


@pytest.mark.parametrize("where", SNEAKY)
def test_a_condition_with_a_variable_is_refused_and_tells_nothing(spark: Any, secret: str, where: str) -> None:
    with pytest.raises(PlanRefused) as refused:
        bind(spark, where)

    assert refused.value.reason == "BadExpression"
    assert "it has '${', which stands for variables of Spark" in refused.value.message
    assert secret not in refused.value.message


def test_so_is_a_schema(spark: Any, secret: str) -> None:
    schema = RecordSchema(SchemaFormat.JSON, "`${env:PATH}` INTEGRAL", "ConfigMap orders, key v1")

    with pytest.raises(PlanRefused) as refused:
        bind(spark, "true", schema)

    assert (refused.value.reason, secret in refused.value.message) == ("BadSchema", False)
    assert refused.value.message.startswith("ConfigMap orders, key v1: it has '${'")


@pytest.mark.parametrize("where", SNEAKY)
def test_a_policy_with_one_is_refused_before_that(where: str) -> None:
    reset = {"id": "a", "to": {"record": {"where": where}}}
    with pytest.raises(InvalidResource, match=r"spec[.]reset[.]to[.]record[.]where: must not have '[$]{'"):
        parse_spec(OffsetResetPolicySpec, {"spec": {"connectionRef": {"name": "a"}, "group": "b", "reset": reset}})


@pytest.mark.parametrize(
    "where",
    [
        "get_json_object(string(value), '$.a.b[0]') = 'x'",
        "string(value) rlike '^{.*}$'",
        "string(value) = concat('$', '{env:PATH}')",
        "string(value) like '%$5%'",
    ],
)
def test_dollars_that_are_no_variables_are_as_they_were(spark: Any, where: str) -> None:
    assert bind(spark, where).where == where


def test_no_session_of_tidegate_replaces_variables(spark: Any, secret: str) -> None:
    def read() -> str:
        return str(spark.sql("select '${env:PATH}' as read").first().read)

    spark.conf.set(SUBSTITUTE, "true")
    assert read() == secret  # what is tried here is what Spark would do
    job = start_session("job")
    assert job.conf.get(SUBSTITUTE) == "false"
    assert read() == "${env:PATH}"


def test_the_session_on_this_machine_begins_without(spark: Any) -> None:
    assert spark.sparkContext.getConf().get(SUBSTITUTE) == "false"
