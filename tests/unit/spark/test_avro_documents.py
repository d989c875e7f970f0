"""Avro documents as columns, against fastavro reading them by itself; and what hostile ones and their schemas do."""

from __future__ import annotations

import json
import random
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from io import BytesIO
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidegate.resources.targets import SchemaFormat
from tidegate.spark import avro_schema
from tidegate.spark.avro_columns import columns, type_of
from tidegate.spark.avro_documents import decoder
from tidegate.spark.avro_schema import BadSchema, parse
from tidegate.spark.decoding import FLAW, MISSING, RECORD, Decoding, Flaw, _Worker

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


# --- random schemas and documents -------------------------------------------------------------------------------------


class Made:
    """Schemas with names of their own, by one source of chance."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.names = 0

    def name(self) -> str:
        self.names += 1
        return f"N{self.names}"

    def schema(self, depth: int) -> Any:
        simple = ("boolean", "int", "long", "float", "double", "bytes", "string", "date", "time", "millis", "local")
        more = ("decimal", "fixed", "fixed-decimal", "enum", "optional", "union", "numbers")
        deep = ("record", "array", "map") if depth > 0 else ()
        return self.of_kind(self.chance.choice((*simple, *more, *deep, *deep)), depth)

    def of_kind(self, kind: str, depth: int) -> Any:
        match kind:
            case "date":
                return {"type": "int", "logicalType": "date"}
            case "time":
                return {"type": "long", "logicalType": "time-micros"}
            case "millis":
                return {"type": "long", "logicalType": self.chance.choice(["timestamp-millis", "timestamp-micros"])}
            case "local":
                return {"type": "long", "logicalType": "local-timestamp-micros"}
            case "decimal":
                return {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 3}
            case "fixed":
                return {"type": "fixed", "name": self.name(), "size": 5}
            case "fixed-decimal":
                decimal = {"logicalType": "decimal", "precision": 9, "scale": 2}
                return {"type": "fixed", "name": self.name(), "size": 6, **decimal}
            case "enum":
                return {"type": "enum", "name": self.name(), "symbols": ["RED", "GREEN", "BLUE"]}
            case "optional":
                inner = self.schema(depth - 1)
                return ["null", inner] if not isinstance(inner, list) else inner
            case "union":
                # Not bytes beside string: fastavro takes the first that can be read, and not the one that is the same.
                return self.chance.choice([["null", "int", "string"], ["boolean", "string", "int"]])
            case "numbers":
                return self.chance.choice([["int", "long"], ["null", "float", "double"]])
            case "record":
                return self.record(depth)
            case "array":
                return {"type": "array", "items": self.schema(depth - 1)}
            case "map":
                return {"type": "map", "values": self.schema(depth - 1)}
            case _:
                return kind

    def record(self, depth: int) -> Any:
        fields = [{"name": f"f{n}", "type": self.schema(depth - 1)} for n in range(self.chance.randint(1, 5))]
        return {"type": "record", "name": self.name(), "fields": fields}

    def value(self, schema: Any) -> Any:
        c = self.chance
        if isinstance(schema, list):
            return self.value(c.choice(schema))
        kind = schema["type"] if isinstance(schema, dict) else schema
        logical = schema.get("logicalType") if isinstance(schema, dict) else None
        match logical:
            case "date":
                return date(1970, 1, 1) + timedelta(days=c.randint(-9999, 40_000))
            case "timestamp-millis" | "timestamp-micros":
                return EPOCH + timedelta(milliseconds=c.randint(-(10**12), 10**13))
            case "local-timestamp-micros":
                return (EPOCH + timedelta(microseconds=c.randint(0, 10**15))).replace(tzinfo=None)
            case "decimal":
                return Decimal(c.randint(-999_999_999, 999_999_999)).scaleb(-schema["scale"])
            case "time-micros":
                return (EPOCH + timedelta(microseconds=c.randint(0, 86_399_999_999))).time()
        match kind:
            case "null":
                return None
            case "boolean":
                return c.random() < 0.5
            case "int":
                return c.choice([0, -1, 2**31 - 1, -(2**31), c.randint(-99, 99)])
            case "long":
                return c.choice([0, 2**63 - 1, -(2**63), c.randint(-(10**12), 10**12)])
            case "float":
                return float(c.randint(-1000, 1000)) / 8
            case "double":
                return c.uniform(-1e9, 1e9)
            case "bytes":
                return c.randbytes(c.randint(0, 4))
            case "string":
                return "".join(c.choice("aé\0😀 ") for _ in range(c.randint(0, 4)))
            case "fixed":
                return c.randbytes(schema["size"])
            case "enum":
                return c.choice(schema["symbols"])
            case "array":
                return [self.value(schema["items"]) for _ in range(c.randint(0, 3))]
            case "map":
                return {f"k{n}": self.value(schema["values"]) for n in range(c.randint(0, 3))}
            case _:
                return {each["name"]: self.value(each["type"]) for each in schema["fields"]}


def encoded(schema: Any, document: Any) -> bytes:
    stream = BytesIO()
    fastavro.schemaless_writer(stream, schema, document)
    return stream.getvalue()


def as_in_arrow(schema: Any, value: Any) -> Any:
    """What plain fastavro gives, as pyarrow spells it."""
    if isinstance(schema, list):
        others = [each for each in schema if each != "null"]
        if value is None or len(others) == 1:
            return None if value is None else as_in_arrow(others[0], value)
        if set(map(str, others)) in ({"int", "long"}, {"float", "double"}):
            return value
        types = {"int": int, "string": str, "bytes": bytes, "boolean": bool}
        (place,) = [n for n, each in enumerate(others) if type(value) is types[each]]
        return {f"member{n}": value if n == place else None for n in range(len(others))}
    kind = schema["type"] if isinstance(schema, dict) else schema
    if kind == "record":
        return {each["name"]: as_in_arrow(each["type"], value[each["name"]]) for each in schema["fields"]}
    if kind == "array":
        return [as_in_arrow(schema["items"], each) for each in value]
    if kind == "map":
        return [(name, as_in_arrow(schema["values"], each)) for name, each in value.items()]
    if isinstance(schema, dict) and schema.get("logicalType") == "time-micros":
        return (datetime.combine(EPOCH.date(), value, UTC) - EPOCH) // timedelta(microseconds=1)
    return value


def unzoned(value: Any) -> Any:
    """Times without the object that stands for UTC, of which there are several."""
    match value:
        case dict():
            return {name: unzoned(each) for name, each in value.items()}
        case list() | tuple():
            return [unzoned(each) for each in value]
        case datetime() if value.tzinfo is not None:
            return value.astimezone(UTC)
        case _:
            return value


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 2**32))
def test_documents_are_what_fastavro_reads(seed: int) -> None:
    made = Made(seed)
    schema = made.record(3)
    tree = parse(json.dumps(schema))
    values = [encoded(schema, made.value(schema)) for _ in range(8)]
    documents = [None, *(decoder(tree)(b"head" + value, 4) for value in values)]

    array = columns(tree, tree).build(documents)

    array.validate(full=True)
    assert array.type == type_of(tree)
    plain = [as_in_arrow(schema, fastavro.schemaless_reader(BytesIO(value), schema, None)) for value in values]
    assert unzoned(array.to_pylist()) == unzoned([None, *plain])
    for name in [each["name"] for each in schema["fields"]]:
        one = columns(tree, tree, {name}).build(documents)
        assert unzoned(one.to_pylist()[1:]) == unzoned([{name: each[name]} for each in plain])


def evolved(made: Made, schema: Any) -> Any:
    """The same record in a later version: fields in another order, fewer, more, wider, renamed."""
    wider = {"int": "long", "long": "double", "float": "double", "string": "bytes"}
    fields = []
    for each in schema["fields"]:
        if made.chance.random() < 0.2:
            continue
        kind = each["type"]
        if isinstance(kind, dict) and kind["type"] == "record":
            kind = evolved(made, kind)
        elif isinstance(kind, str) and made.chance.random() < 0.5:
            kind = made.chance.choice([["null", kind], wider.get(kind, kind)])
        renamed = {"name": f"{each['name']}_new", "aliases": [each["name"]]} if made.chance.random() < 0.3 else {}
        fields.append({**each, "type": kind, **renamed})
    fields.append({"name": "added", "type": ["null", "string"], "default": None})
    fields.append({"name": "number", "type": "double", "default": 7})
    made.chance.shuffle(fields)
    return {**schema, "fields": fields}


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 2**32))
def test_a_later_schema_reads_what_fastavro_reads_by_it(seed: int) -> None:
    made = Made(seed)
    schema = made.record(2)
    later = evolved(made, schema)
    writer, reader = parse(json.dumps(schema)), parse(json.dumps(later))
    values = [encoded(schema, made.value(schema)) for _ in range(5)]

    array = columns(writer, reader).build([decoder(writer)(value, 0) for value in values])

    array.validate(full=True)
    assert array.type == type_of(reader)
    plain = [as_in_arrow(later, fastavro.schemaless_reader(BytesIO(value), schema, later)) for value in values]
    assert unzoned(array.to_pylist()) == unzoned(plain)


# --- what can't be read -----------------------------------------------------------------------------------------------


def record(*types: Any, **more: Any) -> dict[str, Any]:
    fields = [{"name": f"f{n}", "type": kind} for n, kind in enumerate(types)]
    return {"type": "record", "name": "R", "fields": fields, **more}


def worker(schema: Any, values: list[bytes | None], **settings: Any) -> list[tuple[Any, str | None, int | None]]:
    """Record, flaw and missing id of each value, in their order."""
    batch = pa.RecordBatch.from_pydict({"offset": range(len(values)), "value": pa.array(values, pa.binary())})
    decoding = Decoding(SchemaFormat.AVRO, schema if isinstance(schema, str) else json.dumps(schema), **settings)
    rows = [row for part in _Worker(decoding)([batch]) for row in part.to_pylist()]
    assert sorted(row["offset"] for row in rows) == list(range(len(values)))
    return [(r[RECORD], r[FLAW], r[MISSING]) for r in sorted(rows, key=lambda row: row["offset"])]


LONG = record("long")
MALFORMED = (None, Flaw.MALFORMED, None)


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        pytest.param(LONG, b"", id="nothing"),
        pytest.param(LONG, b"\x02\x02", id="more than the document"),
        pytest.param(LONG, b"\xff\xff", id="a number without an end"),
        pytest.param(record("int"), encoded(LONG, {"f0": 2**31}), id="an int that is none"),
        pytest.param(record("string"), encoded(LONG, {"f0": 2**62}), id="an enormous length"),
        pytest.param(record("string"), encoded(LONG, {"f0": -3}) + b"abc", id="a negative length"),
        pytest.param(record("string"), b"\x02\xff", id="no UTF-8"),
        pytest.param(record(["null", "long"]), b"\x04", id="a branch that is not there"),
        pytest.param(record(["null", "long"]), b"\x01\x02", id="a negative branch"),
        pytest.param(record({"type": "enum", "name": "E", "symbols": ["A", "B"]}), b"\x01", id="a negative symbol"),
        pytest.param(record({"type": "enum", "name": "E", "symbols": ["A", "B"]}), b"\x04", id="an unknown symbol"),
        pytest.param(record({"type": "array", "items": "long"}), encoded(LONG, {"f0": 2**62}), id="a great array"),
        pytest.param(record({"type": "array", "items": "long"}), encoded(LONG, {"f0": -(2**63)}), id="its opposite"),
        pytest.param(record({"type": "map", "values": "long"}), encoded(LONG, {"f0": 2**62}), id="a great map"),
        pytest.param(
            record({"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}),
            encoded(record("bytes"), {"f0": b"\x7f" * 9}),
            id="a decimal with too many digits",
        ),
        pytest.param(
            record({"type": "long", "logicalType": "timestamp-millis"}),
            encoded(LONG, {"f0": 2**60}),
            id="a time that is none",
        ),
    ],
)
def test_a_value_that_is_no_document_is_told(schema: Any, value: bytes) -> None:
    assert worker(schema, [value, None]) == [MALFORMED, (None, None, None)]


def test_one_value_that_is_none_spoils_no_other() -> None:
    schema = record("int")
    values: list[bytes | None] = [encoded(LONG, {"f0": n}) for n in range(100)]
    values[63] = encoded(LONG, {"f0": 2**40})
    assert worker(schema, values) == [MALFORMED if n == 63 else ({"f0": n}, None, None) for n in range(100)]


def test_values_of_a_registry_say_their_schema() -> None:
    later = record(["null", "long"])
    other = json.dumps({**LONG, "name": "Other"})
    head = b"\0\0\0\0"
    body = encoded(LONG, {"f0": 5})
    values = [head + b"\1" + body, b"\1" + head + body, head + b"\2" + body, head + b"\3" + body, body, None]
    values += [b"\0\xff\0\0\0" + body]
    writers = {1: (json.dumps(LONG),), 2: (other,), 3: None}

    told = worker(later, values, framed=True, writers=writers)

    assert told == [
        ({"f0": 5}, None, None),
        (None, Flaw.NO_HEAD, None),
        (None, Flaw.OTHER_SCHEMA, None),
        (None, Flaw.UNKNOWN_SCHEMA, None),
        (None, Flaw.NO_HEAD, None),
        (None, None, None),
        (None, None, 0xFF000000 - (1 << 32)),
    ]
    assert worker(later, values[-1:], framed=True, closed=True) == [(None, Flaw.NOT_ASKED, None)]


def test_made_up_ids_are_not_all_told() -> None:
    values: list[bytes | None] = [b"\0" + n.to_bytes(4, "big") for n in range(5000)]
    missing = {row[2] for row in worker(LONG, values, framed=True)}
    assert None not in missing
    assert len(missing) == 32


NULLS = {"type": "array", "items": "null"}
FEW = {
    "type": "array",
    "items": {
        "type": "record",
        "name": "E",
        "fields": [{"name": "a", "type": "int"}, *({"name": f"n{n}", "type": "null"} for n in range(20))],
    },
}


def doubled(levels: int) -> Any:
    """Each type holds the one before it twice: few lines, and 2^levels values of no bytes."""
    inner: Any = {"type": "record", "name": "L0", "fields": [{"name": "a", "type": "null"}]}
    for n in range(1, levels):
        fields = [{"name": "a", "type": inner}, {"name": "b", "type": f"L{n - 1}"}]
        inner = {"type": "record", "name": f"L{n}", "fields": fields}
    return inner


def nested(levels: int) -> str:
    return '{"type":"array","items":' * levels + '"int"' + "}" * levels


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        pytest.param("nonsense", "not JSON", id="no JSON"),
        pytest.param("[" * 100_000, "nested too deeply", id="brackets"),
        pytest.param('"string"', "not one of records", id="no record"),
        pytest.param(record(NULLS), "takes no or few bytes", id="an array of nulls"),
        pytest.param(record(FEW), "takes no or few bytes", id="an array of almost nothing"),
        pytest.param(
            record({"type": "array", "items": record(name="Empty")}), "no or few bytes", id="of empty records"
        ),
        pytest.param(
            record({"type": "array", "items": {"type": "fixed", "name": "F", "size": 0}}), "few bytes", id="0"
        ),
        pytest.param(record(["null", "R"]), "contain themselves", id="a list of records in one another"),
        pytest.param(doubled(40), "exceeds 10,000", id="doubled again and again"),
        pytest.param(json.dumps(record("x")).replace('"x"', nested(60)), "levels deep", id="deep"),
        pytest.param(record("missing.Type"), "not defined before it", id="an unknown name"),
        pytest.param(record(["int", "int"]), "a type twice", id="a union of one type twice"),
        pytest.param(record(["null", ["int"]]), "of unions", id="a union of unions"),
        pytest.param(record({"type": "fixed", "name": "F", "size": -1}), "without a size", id="a negative size"),
        pytest.param(record({"type": "enum", "name": "E", "symbols": []}), "without symbols", id="no symbols"),
        pytest.param(record(7), "is no type: 7", id="a number"),
        pytest.param(
            {**LONG, "fields": [*LONG["fields"], {"name": "F0", "type": "int"}]}, "in capitals", id="F0 and f0"
        ),
        pytest.param(" " * (avro_schema.LARGEST_TEXT + 1), "more than 1,048,576 characters", id="large"),
    ],
)
def test_a_schema_that_is_not_safe_is_refused(schema: Any, why: str) -> None:
    with pytest.raises(BadSchema, match=why):
        parse(schema if isinstance(schema, str) else json.dumps(schema))


def test_what_a_document_can_become_is_bounded_by_its_bytes() -> None:
    """The largest ratio that is let through: a record of one byte and some nulls."""
    fields = [{"name": "a", "type": "boolean"}, *({"name": f"n{n}", "type": "null"} for n in range(6))]
    schema = record({"type": "array", "items": {"type": "record", "name": "E", "fields": fields}})
    tree = parse(json.dumps(schema))
    value = encoded(schema, {"f0": [{"a": True, **{f"n{n}": None for n in range(6)}}] * 10_000})
    assert len(value) > 10_000
    assert len(decoder(tree)(value, 0)["f0"]) == 10_000
    with pytest.raises(EOFError):
        decoder(tree)(encoded(LONG, {"f0": 2**62}), 0)


@pytest.mark.parametrize(
    ("writer", "reader"),
    [
        (record("string"), record("int")),
        (record("long"), record("int")),
        (record("long"), record("long", "string")),
        (record({"type": "fixed", "name": "F", "size": 2}), record({"type": "fixed", "name": "F", "size": 3})),
        (
            record({"type": "long", "logicalType": "timestamp-millis"}),
            record({"type": "long", "logicalType": "timestamp-micros"}),
        ),
        (record("long"), {**record("long"), "name": "Other"}),
    ],
)
def test_what_a_later_schema_cannot_read_is_said(writer: Any, reader: Any) -> None:
    with pytest.raises(BadSchema):
        columns(parse(json.dumps(writer)), parse(json.dumps(reader)))


def test_a_null_for_a_field_that_has_none_is_told() -> None:
    """An optional field that a later version requires: values with it are read."""
    optional, required = record(["null", "long"]), record("long")
    head = b"\0\0\0\0\1"
    values = [head + encoded(optional, {"f0": n}) for n in (None, 3)]
    told = worker(required, values, framed=True, writers={1: (json.dumps(optional),)})
    assert told == [MALFORMED, ({"f0": 3}, None, None)]


def test_types_of_other_schemas_are_found_by_their_names() -> None:
    address = {"type": "record", "name": "shop.Address", "fields": [{"name": "city", "type": "string"}]}
    schema = record("shop.Address", name="shop.Order")
    tree = parse(json.dumps(schema), (json.dumps(address),))
    value = encoded(record(address), {"f0": {"city": "Oslo"}})
    assert columns(tree, tree).build([decoder(tree)(value, 0)]).to_pylist() == [{"f0": {"city": "Oslo"}}]
