"""What a condition may be, by Spark's own parser and analyser: it reads the record, and nothing else."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tidegate.reset.model.targets import RecordSchema
from tidegate.reset.planning.refusals import PlanRefused
from tidegate.resources.targets import SchemaFormat
from tidegate.spark.expression import RECORD, SETTINGS, bind
from tidegate.spark.functions import ALLOWED, REFUSED
from tidegate.spark.session import with_settings

pytestmark = pytest.mark.spark

ORDERS = RecordSchema(SchemaFormat.JSON, "status INT, items ARRAY<STRUCT<sku: STRING>>", "ConfigMap orders, key v1")


@pytest.fixture(autouse=True, scope="module")
def _settings(spark: Any) -> Iterator[None]:
    with with_settings(spark, SETTINGS):
        yield


GOOD = {
    "value = 'abc'": {"value"},
    "value like '%\"status\":500%'": {"value"},
    "string(value) rlike 'a+b' and partition = 3": {"value", "partition"},
    "get_json_object(string(value), '$.status') >= 500": {"value"},
    "from_json(string(value), 'status INT, at TIMESTAMP').status >= 500": {"value"},
    "try_variant_get(try_parse_json(string(value)), '$.status', 'int') = 500": {"value"},
    "exists(headers, h -> h.key = 'trace' and h.value = '4711')": {"headers"},
    "timestamp > '2026-11-20T14:00:00Z' and offset > 5 and topic = 'a'": {"timestamp", "offset", "topic"},
    "hour(timestamp) = 3 or key is null": {"timestamp", "key"},
    "case when sha2(value, 256) = 'x' then true end": {"value"},
}


@pytest.mark.parametrize("where", list(GOOD))
def test_what_reads_the_record_is_understood(spark: Any, where: str) -> None:
    assert bind(spark, where).columns == GOOD[where]


def test_a_schema_gives_the_value_as_a_column(spark: Any) -> None:
    assert bind(spark, "record.status = 500 and exists(record.items, i -> i.sku = 'x')", ORDERS).columns == {"value"}
    with pytest.raises(PlanRefused, match="FIELD_NOT_FOUND") as unknown:
        bind(spark, "record.colour = 'red'", ORDERS)
    assert unknown.value.reason == "BadExpression"
    with pytest.raises(PlanRefused, match="ConfigMap orders, key v1: ") as bad:
        bind(spark, "true", RecordSchema(SchemaFormat.JSON, "status INTEGRAL", ORDERS.source))
    assert bad.value.reason == "BadSchema"


@pytest.mark.parametrize(
    ("where", "said"),
    [
        ("key =", "[PARSE_SYNTAX_ERROR]"),
        ("offset > 1; select 1", "[PARSE_SYNTAX_ERROR]"),
        ("offset = 1) or (1 = 1", "[PARSE_SYNTAX_ERROR]"),
        ("colour = 'x'", "[UNRESOLVED_COLUMN"),
        ("record.status = 1", "[UNRESOLVED_COLUMN"),
        ("offset", "[DATATYPE_MISMATCH.FILTER_NOT_BOOLEAN]"),
        ("get_json_object(value, '$.a') = 'x'", '"value" has the type "BINARY"'),
        ("mine(value)", "[UNRESOLVED_ROUTINE]"),
    ],
)
def test_a_mistake_is_told_in_sparks_words(spark: Any, where: str, said: str) -> None:
    with pytest.raises(PlanRefused) as refused:
        bind(spark, where)
    assert refused.value.reason == "BadExpression"
    assert refused.value.message.startswith("spec.to.record.where: ")
    assert said in refused.value.message
    assert "\n" not in refused.value.message


@pytest.mark.parametrize(
    "where",
    [
        # other tables
        "offset > (select 1)",
        "offset in (select 1)",
        "exists(select 1)",
        "offset > (select count(*) from parquet.`/etc`)",
        # Java, sessions, files
        "reflect('java.lang.System', 'getProperty', 'user.home') = 'x'",
        "java_method('java.lang.System', 'getProperty', 'user.home') = 'x'",
        "try_reflect('java.lang.System', 'getProperty', 'user.home') = 'x'",
        "identifier('reflect')('java.lang.System', 'getProperty', 'user.home') = 'x'",
        "identifier('offset') > 1",
        "transform(array(1), i -> reflect('java.lang.System', 'getProperty', 'user.home'))[0] = 'x'",
        "system.builtin.reflect('java.lang.System', 'getProperty', 'user.home') = 'x'",
        "default.mine(value)",
        "registered(offset) = 1",
        "current_user() = 'root'",
        "session_user = 'root'",
        "current_database() = 'x'",
        "current_timezone() = 'x'",
        "version() = 'x'",
        "input_file_name() = 'x'",
        "input_file_block_start() = 1",
        "spark_partition_id() = 1",
        "raise_error('x')",
        "assert_true(true)",
        "xpath_string(string(value), 'a/b') = 'x'",
        # another answer the next time
        "rand() > 0.5",
        "uuid() = 'x'",
        "shuffle(array(1, 2))[0] = 1",
        "monotonically_increasing_id() = 1",
        "now() > timestamp",
        "current_timestamp > timestamp",
        "current_date() > date(timestamp)",
        "localtimestamp() > timestamp",
        "unix_timestamp() > offset",
        "timestamp > 'now'",
        "cast('today' as date) > date(timestamp)",
        # more than one record
        "count(*) > 1",
        "max(offset) > 1",
        "row_number() over (order by offset) = 1",
        "lag(offset) over (order by offset) = 1",
        "explode(array(true))",
        "window(timestamp, '1 day').start > timestamp",
        "session_window(timestamp, '1 day').start > timestamp",
        # no condition
        "*",
        ":a = 1",
        "? = 1",
    ],
)
def test_what_reads_more_than_the_record_is_refused(spark: Any, where: str) -> None:
    spark.udf.register("registered", lambda n: n, "bigint")
    with pytest.raises(PlanRefused) as refused:
        bind(spark, where)
    assert refused.value.reason == "BadExpression"


def test_every_function_of_this_spark_is_allowed_or_refused_by_its_name(spark: Any) -> None:
    """A new release of Spark, or a module in the image, adds none without somebody having judged it."""
    there = {row["function"] for row in spark.sql("show system functions").collect()}

    assert len(there) > 500
    assert not there - ALLOWED - REFUSED.keys(), "judge these in tidegate/spark/functions.py"
    assert not (ALLOWED | REFUSED.keys()) - there, "this Spark does not have these"
    assert not ALLOWED & REFUSED.keys()


BY_THE_PARSER = frozenset({"any_value", "first", "last"})
"""Refused functions that SQL has words of its own for: as these they are refused where they are understood."""


def test_a_refused_function_is_refused_however_its_name_is_written(spark: Any) -> None:
    otherwise = set()
    for name, why in REFUSED.items():
        for spelling in (name, name.upper(), f"`{name}`"):
            with pytest.raises(PlanRefused) as refused:
                bind(spark, f"{spelling}(value) = 'x'")
            if f"may not be used: {why}" not in refused.value.message:
                otherwise.add(name)
    assert otherwise == BY_THE_PARSER


SPELLINGS = [
    *(
        "500",
        "5e2",
        "5.0e2",
        "500.0",
        "0500",
        "+500",
        "-500",
        "50",
        "1500",
        "5000",
        "-0",
        "0",
        "0.0",
        "1e999",
        "1e-10",
        "true",
    ),
    *(
        '"500"',
        '"5\\u00300"',
        '"\\u0035\\u0030\\u0030"',
        "'500'",
        '"+500"',
        '" 500"',
        '"5e2"',
        "null",
        '"null"',
        '"NaN"',
    ),
    *(
        '"Infinity"',
        "NaN",
        '["500"]',
        "[500]",
        "[[500]]",
        '["5","00"]',
        '{"a":"500"}',
        '["50", "0"]',
        "[5,0,0]",
        '"-0"',
    ),
    *(
        '"OutOfStock"',
        '"Out\\u004ffStock"',
        '"Out\\OfStock"',
        '"outofstock"',
        "OutOfStock",
        '"Out" "OfStock"',
        "9" * 30,
    ),
]
DOCUMENTS = [
    *(f'{{"n":1,"status":{spelling},"s":{spelling}}}'.encode() for spelling in SPELLINGS),
    *(spelling.encode() for spelling in SPELLINGS),
    b'{"st\\u0061tus":500,"s":"500"}',
    b'{"status":1,"status":500}',
    b'{"tiny":200,"small":500,"big":500}',
    b'{"status":500,"s":"5\xff00"}',
    b'{"s":"500","status":"\xff500"',
    '{"status":500}'.encode("utf-16"),
    b"",
]
TEXT = "get_json_object(string(value), '$.s')"
IMPLYING = [
    *(f"{TEXT} = '{text}'" for text in ("500", "OutOfStock", "0", "-0", "true", "null", "9" * 30)),
    f"{TEXT} <=> '500'",
    f"'500' = {TEXT}",
    f"{TEXT} in ('OutOfStock', '500')",
    f"{TEXT} = '500' or record.status = 500",
    f"{TEXT} = '500' and record.status = 500",
    f"({TEXT} = '500' and offset = 1) or {TEXT} = 'OutOfStock'",
    "get_json_object(string(value), '$') = '500'",
    "get_json_object(string(value), '$[*]') = '500'",
    "get_json_object(string(value), '$.s[*]') = '500'",
    "record.status = 500",
    "record.status = -0",
    "record.s = '500'",
    "record.small = 500S",
    "record.big = 500L",
]
"""Conditions for which bytes are looked at first."""
NOT_IMPLYING = [
    f"{TEXT} = 500",
    f"{TEXT} = '500.0'",
    f"{TEXT} = '[500]'",
    f"{TEXT} = 'NaN'",
    f"{TEXT} = '1E-10'",
    f"{TEXT} = 'Infinity'",
    f"{TEXT} != '500'",
    f"not ({TEXT} = '500')",
    f"{TEXT} = '500' or offset = 1",
    f"lower({TEXT}) = 'outofstock'",
    f"{TEXT} = 'OutOfStock' collate utf8_lcase",
    f"{TEXT} in ('500', null)",
    f"{TEXT} = null",
    "get_json_object(upper(string(value)), '$.S') = 'OUTOFSTOCK'",
    "record.total = 500",
    "record.tiny = -56Y",
]
"""Conditions for which documents have to be read."""


def test_bytes_that_are_looked_at_first_change_no_answer(spark: Any) -> None:
    from pyspark.sql.functions import coalesce, expr, lit

    schema = RecordSchema(
        SchemaFormat.JSON, "status INT, s STRING, total DOUBLE, tiny TINYINT, small SMALLINT, big BIGINT", "the test"
    )
    conditions = {where: bind(spark, where, schema) for where in [*IMPLYING, *NOT_IMPLYING]}
    assert [where for where, condition in conditions.items() if condition.implied] == IMPLYING

    records = spark.createDataFrame(list(enumerate(map(bytearray, DOCUMENTS))), "offset bigint, value binary")
    records = conditions[IMPLYING[0]].with_value(records)
    assert RECORD in records.columns
    rows = records.select(
        "value",
        *(condition.holds().alias(f"first: {where}") for where, condition in conditions.items()),
        *(coalesce(expr(where), lit(False)).alias(f"plain: {where}") for where in conditions),
    ).collect()
    differing = [(w, row["value"]) for row in rows for w in conditions if row[f"first: {w}"] != row[f"plain: {w}"]]
    assert not differing
    never = [where for where in IMPLYING if not any(row[f"plain: {where}"] for row in rows)]
    assert not never

    field = {"name": "status", "type": "integer", "nullable": True, "metadata": {"EXISTS_DEFAULT": "500"}}
    text = json.dumps({"type": "struct", "fields": [field]})
    for filling in (text, text.replace("_", r"\u005f")):
        condition = bind(spark, "record.status = 500", RecordSchema(SchemaFormat.JSON, filling, "the test"))
        nothing = records.where("offset = 0").withColumn("value", expr("binary('{}')")).drop(RECORD)
        found = condition.with_value(nothing).select(condition.holds().alias("found")).collect()
        assert [row["found"] for row in found] == [True]
