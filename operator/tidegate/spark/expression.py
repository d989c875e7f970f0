"""The condition of ``to.record``: a Spark SQL expression that may read the record, and nothing else.

It comes from whoever may write a policy, and is evaluated beside the connection's secrets. So what is not known to read
the record alone is refused, before it is analysed (which already looks up tables) and again afterwards:

* *as it is written*: no variables (``${env:NAME}``), no subquery, no name that is computed (``IDENTIFIER``), and of
  functions only those of Spark's own that :mod:`tidegate.spark.functions` allows by their names.
* *as it is understood*: only expressions of Spark's own package; none that is not deterministic, that does not depend
  on the record (times and names of the moment), or that is user-defined.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, assert_never

from tidegate.reset.model.targets import RecordSchema
from tidegate.reset.planning.refusals import BAD_EXPRESSION, BAD_SCHEMA, PlanRefused
from tidegate.resources.targets import SchemaFormat
from tidegate.spark.decoding import RECORD, Decoding
from tidegate.spark.functions import why_not
from tidegate.spark.implied import Implied, holds, implied
from tidegate.spark.records import COLUMNS

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

SETTINGS: Final = {
    # Under these a session has to understand and to evaluate conditions.
    # What can't be cast is null, which does not match: one record that is not what it should be must not end a search.
    "spark.sql.ansi.enabled": "false",
    "spark.sql.session.timeZone": "UTC",
    # Names have one meaning each, whatever session the job runs in.
    "spark.sql.caseSensitive": "false",
    # ${env:NAME} and ${system:NAME} would be replaced by what the job's environment holds, before anything is checked.
    "spark.sql.variable.substitute": "false",
}

_CATALYST: Final = "org.apache.spark.sql.catalyst"
_EXPRESSIONS: Final = f"{_CATALYST}.expressions."
_UNRESOLVED: Final = frozenset(
    f"{_CATALYST}.analysis.{name}"
    for name in ("UnresolvedAttribute", "UnresolvedFunction", "UnresolvedExtractValue", "UnresolvedCollation")
)
_SUBQUERY: Final = f"{_EXPRESSIONS}PlanExpression"
_FUNCTION: Final = f"{_CATALYST}.analysis.UnresolvedFunction"
_ATTRIBUTE: Final = f"{_EXPRESSIONS}AttributeReference"
_NOT_OF_THE_RECORD: Final = (
    # (trait, what it is)
    (_SUBQUERY, "a subquery"),
    (f"{_EXPRESSIONS}aggregate.AggregateExpression", "an aggregate"),
    (f"{_EXPRESSIONS}WindowExpression", "a window function"),
    (f"{_EXPRESSIONS}Generator", "a generator"),
    (f"{_EXPRESSIONS}UserDefinedExpression", "a user-defined function"),
    (f"{_EXPRESSIONS}CallMethodViaReflection", "a call by reflection"),
    (f"{_EXPRESSIONS}Unevaluable", "not a function of the record"),
)
_FILTER: Final = f"{_CATALYST}.plans.logical.Filter"
_CAST: Final = f"{_EXPRESSIONS}Cast"
_FIELD: Final = f"{_EXPRESSIONS}GetStructField"
_MOMENTS: Final = frozenset({"now", "today", "tomorrow", "yesterday"})
"""What Spark reads as a time of the moment, where a time is asked for."""

_MESSAGE_LIMIT: Final = 1000


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition that was found good. ``columns``: those of the record that it reads. ``implied``: what it implies of
    their bytes, which is looked at first. ``decodes``: whether values in Avro or Protobuf have to be decoded for it,
    and ``wanted`` which of their fields; ``None``: all."""

    where: str
    columns: frozenset[str]
    schema: RecordSchema | None = None
    implied: Implied = ()
    decodes: bool = False
    wanted: frozenset[str] | None = None

    def holds(self) -> Column:
        """True or false for a record with :func:`with_value`; a null is false."""
        from pyspark.sql.functions import coalesce, expr, lit

        first, where = holds(self.implied), expr(self.where)
        return coalesce(where if first is None else first & where, lit(False))

    def with_value(self, records: DataFrame) -> DataFrame:
        """Records with the column ``record``, where Spark parses it; where it ``decodes``, they have it before."""
        if self.schema is None or self.schema.format is not SchemaFormat.JSON:
            return records
        return _with_value(records, self.schema, None)


def bind(
    spark: SparkSession, where: str, schema: RecordSchema | None = None, decoding: Decoding | None = None
) -> Condition:
    """The condition, understood under the session's ``SETTINGS``; reads nothing. ``decoding``: of values that Spark
    can't parse itself.

    Raises ``PlanRefused``, with Spark's own words where it objects.
    """
    if "${" in where:
        raise _refused("it has '${', which stands for variables of Spark: it may read nothing but the record")
    if schema is not None and "${" in schema.text:
        raise PlanRefused(
            BAD_SCHEMA, f"{schema.source}: it has '${{', which stands for variables of Spark: remove that"
        )
    tree = _Tree(spark)
    with _spark_objects(BAD_EXPRESSION, "spec.to.record.where"):
        parsed = tree.parse(where)
    for node in tree.nodes(parsed):
        _check_written(tree, node)
    nothing = spark.range(0).selectExpr(*(f"cast(null as {kind}) as `{name}`" for name, kind in COLUMNS.items()))
    if schema is not None:
        with _spark_objects(BAD_SCHEMA, schema.source):
            nothing = _with_value(nothing, schema, decoding)
    with _spark_objects(BAD_EXPRESSION, "spec.to.record.where"):
        understood = tree.condition(nothing.where(where))
    if not understood.deterministic() or tree.is_of_the_moment(understood):
        raise _refused("it has another result at each evaluation: write the value, or the time, that you mean")
    columns: set[str] = set()
    for node in tree.nodes(understood):
        _check_understood(tree, node)
        if tree.is_a(node, _ATTRIBUTE):
            columns.add(_column(str(node.name())))
    if decoding is not None:
        decodes = RECORD in columns
        columns = columns - {RECORD} | ({"value"} if decodes else set())
        return Condition(where, frozenset(columns), schema, (), decodes, _fields_of_record(tree, understood))
    if RECORD in columns:
        columns = columns - {RECORD} | {"value"}
    # A schema may have values for fields that documents lack, which no byte of theirs tells of; and say so in escapes.
    defaults = schema is not None and any(sign in schema.text for sign in ("EXISTS_DEFAULT", "\\"))
    return Condition(where, frozenset(columns), schema, () if defaults else implied(tree, understood, record=RECORD))


def _fields_of_record(tree: _Tree, understood: Any) -> frozenset[str] | None:
    """Which fields of the column ``record`` are named; ``None`` where it is used as a whole."""
    whole, named = 0, set()
    for node in tree.nodes(understood):
        if tree.is_a(node, _ATTRIBUTE) and str(node.name()) == RECORD:
            whole += 1
        elif tree.class_of(node) == _FIELD and tree.is_a(node.child(), _ATTRIBUTE):
            whole -= 1
            named.add(str(node.extractFieldName()))
    return None if whole else frozenset(named)


def _with_value(records: DataFrame, schema: RecordSchema, decoding: Decoding | None) -> DataFrame:
    from pyspark.sql.functions import col, from_json, lit

    match schema.format:
        case SchemaFormat.JSON:
            return records.withColumn(RECORD, from_json(col("value").cast("string"), schema.text))
        case SchemaFormat.AVRO | SchemaFormat.PROTOBUF:
            if decoding is None:
                raise ValueError("values of this format are decoded before")
            return records.withColumn(RECORD, lit(None).cast(decoding.record_type()))
        case _:
            assert_never(schema.format)


# --- what may be ------------------------------------------------------------------------------------------------------


def _check_written(tree: _Tree, node: Any) -> None:
    if tree.is_a(node, _SUBQUERY):
        raise _refused("it has a subquery: it may read nothing but the record")
    name = tree.class_of(node)
    if name == _FUNCTION:
        _check_function(tree, [str(part) for part in tree.sequence(node.nameParts())])
    elif not name.startswith(_EXPRESSIONS) and name not in _UNRESOLVED:
        raise _refused(f"{node.sql()} is nothing that reads the record")


def _check_function(tree: _Tree, parts: list[str]) -> None:
    if len(parts) != 1:
        raise _refused(f"{'.'.join(parts)} is not one of Spark's own functions")
    why = why_not(parts[0])
    # One that Spark does not know is left for Spark to name.
    if why is not None and tree.knows(parts[0]):
        raise _refused(f"function {parts[0]} may not be used: {why}")


def _check_understood(tree: _Tree, node: Any) -> None:
    if tree.is_a(node, _ATTRIBUTE):
        return
    for trait, what in _NOT_OF_THE_RECORD:
        if tree.is_a(node, trait):
            raise _refused(f"{node.prettyName()} is {what}: it may read nothing but the record")
    if not tree.class_of(node).startswith(_EXPRESSIONS):
        raise _refused(f"{node.prettyName()} is not one of Spark's own functions")

    if tree.is_a(node, _CAST) and str(node.child().sql()).strip("' ").lower() in _MOMENTS:
        raise _refused(f"{node.child().sql()} is another time at each evaluation: write the time that is meant")


def _column(name: str) -> str:
    """A window over time is written as a function, and understood as a column that none of the record's is."""
    if name not in COLUMNS and name != RECORD:
        raise _refused(f"{name} is not a column of the record: it has {', '.join(COLUMNS)}")
    return name


def _refused(why: str) -> PlanRefused:
    return PlanRefused(BAD_EXPRESSION, f"spec.to.record.where: {why}")


@contextmanager
def _spark_objects(reason: str, where: str) -> Iterator[None]:
    from pyspark.errors import PySparkException

    try:
        yield
    except PySparkException as error:
        raise PlanRefused(reason, f"{where}: {spoken(error)}") from None


def spoken(error: Exception) -> str:
    """What Spark says of a mistake, without the plan and the query that it repeats."""
    text = str(error).partition("\n\nJVM stacktrace")[0].partition("\n\n== SQL")[0].partition(";\n")[0]
    return " ".join(text.split()).rstrip(".;")[:_MESSAGE_LIMIT]


# --- Catalyst's trees -------------------------------------------------------------------------------------------------


class _Tree:
    """Spark's parser and its expressions, which Python's API has no words for."""

    def __init__(self, spark: SparkSession) -> None:
        self._session: Any = spark._jsparkSession
        jvm: Any = spark.sparkContext._jvm
        self._catalyst: Any = jvm.org.apache.spark.sql.catalyst
        self._class: Any = jvm.java.lang.Class
        self._classes: dict[str, Any] = {}

    def parse(self, where: str) -> Any:
        return self._session.sessionState().sqlParser().parseExpression(where)

    def condition(self, filtered: DataFrame) -> Any:
        plan: Any = filtered._jdf.queryExecution().analyzed()
        if self.class_of(plan) != _FILTER:
            raise _refused("it is more than a condition: it may read nothing but the record")
        return plan.condition()

    def knows(self, function: str) -> bool:
        """Whether Spark has a function of this name, for values or for tables."""
        analysis, name = self._catalyst.analysis, self._catalyst.FunctionIdentifier.apply(function)
        registries = (getattr(getattr(analysis, f"{kind}FunctionRegistry$"), "MODULE$") for kind in ("", "Table"))
        return any(bool(registry.builtin().functionExists(name)) for registry in registries)

    def is_of_the_moment(self, expression: Any) -> bool:
        """Whether the current time or date is in it, or who and where the session is."""
        patterns = getattr(getattr(self._catalyst.trees, "TreePattern$"), "MODULE$")
        return bool(expression.containsPattern(patterns.CURRENT_LIKE()))

    def nodes(self, root: Any) -> Iterator[Any]:
        waiting = [root]
        while waiting:
            node = waiting.pop()
            yield node
            waiting += self.sequence(node.children())

    @staticmethod
    def sequence(found: Any) -> list[Any]:
        return [found.apply(n) for n in range(found.size())]

    def is_a(self, node: Any, name: str) -> bool:
        if name not in self._classes:  # to look one up takes longer than to ask it
            self._classes[name] = self._class.forName(name)
        return bool(self._classes[name].isInstance(node))

    @staticmethod
    def class_of(node: Any) -> str:
        return str(node.getClass().getName())
