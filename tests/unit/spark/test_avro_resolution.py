"""What a later version of a schema makes of a document, where Avro's rules and ours are easily got wrong."""

from __future__ import annotations

import json
import struct
from typing import Any

import pytest

from support.avro_bytes import number
from tidegate.spark.avro_columns import columns
from tidegate.spark.avro_documents import decoder
from tidegate.spark.avro_schema import BadSchema, parse


def record(**fields: Any) -> dict[str, Any]:
    return {"type": "record", "name": "R", "fields": [{"name": n, "type": kind} for n, kind in fields.items()]}


def read(writer: Any, reader: Any, document: bytes) -> Any:
    written = parse(json.dumps(writer))
    column = columns(written, parse(json.dumps(reader)))
    (row,) = column.build([decoder(written)(document, 0)]).to_pylist()
    return row


def as_float(value: int) -> float:
    """Rounded once, as Java's ``(float)`` rounds a long."""
    exact = struct.unpack("<f", struct.pack("<f", float(value)))[0]
    bits = struct.unpack("<i", struct.pack("<f", exact))[0]
    near = [struct.unpack("<f", struct.pack("<i", bits + n))[0] for n in (-1, 0, 1)]
    return float(min(near, key=lambda each: abs(int(each) - value)))


PROMOTED = [
    # (the writer's type, the reader's, the number, what it is read as)
    ("long", "double", 2**53 + 1, float(2**53)),
    ("long", "float", 2**60 + 2**36 + 1, as_float(2**60 + 2**36 + 1)),
    # Which of two types of numbers it becomes, the first does say.
    ("long", ["null", "double", "float"], 2**53 + 1, float(2**53)),
    ("int", ["float", "double"], 2**24 + 1, float(2**24)),
    ("int", ["null", "int", "long"], -7, -7),
]


@pytest.mark.parametrize(("writer", "reader", "value", "expected"), PROMOTED)
def test_numbers_become_the_nearest_ones(writer: Any, reader: Any, value: int, expected: float) -> None:
    assert read(record(n=writer), record(n=reader), number(value)) == {"n": expected}


@pytest.mark.parametrize(
    ("writer", "reader"),
    [
        ({"type": "long", "logicalType": "timestamp-nanos"}, {"type": "long", "logicalType": "timestamp-micros"}),
        ({"type": "long", "logicalType": "timestamp-millis"}, {"type": "long", "logicalType": "timestamp-nanos"}),
        ({"type": "int", "logicalType": "date"}, {"type": "long", "logicalType": "timestamp-millis"}),
        ({"type": "int", "logicalType": "time-millis"}, {"type": "long", "logicalType": "time-micros"}),
    ],
)
def test_a_time_is_not_read_in_another_unit(writer: Any, reader: Any) -> None:
    with pytest.raises(BadSchema, match="can't be read as"):
        read(record(at=writer), record(at=reader), number(1))
    assert read(record(at=writer), record(at=writer["type"]), number(1)) == {"at": 1}


def test_a_decimal_is_read_as_the_bytes_that_it_is() -> None:
    """Of a fixed as of bytes."""
    decimal = {"logicalType": "decimal", "precision": 4, "scale": 2}
    fixed = {"type": "fixed", "name": "F", "size": 2}
    assert read(record(n={**fixed, **decimal}), record(n=fixed), b"\1\2") == {"n": b"\1\2"}
    assert read(record(n={"type": "bytes", **decimal}), record(n="bytes"), b"\4\1\2") == {"n": b"\1\2"}


def test_an_optional_field_of_another_type_is_read_where_it_is_null() -> None:
    writer, reader = record(a=["null", "string"], b="long"), record(a=["null", "int"], b="long")
    assert read(writer, reader, b"\0\2") == {"a": None, "b": 1}
    with pytest.raises(ValueError, match="of a type that is not read"):
        read(writer, reader, b"\2\0\2")
    with pytest.raises(BadSchema):
        read(writer, record(a="int", b="long"), b"\0\2")


def test_types_of_a_union_are_told_apart_by_all_of_their_names() -> None:
    """However long these are."""
    long = "a" * 90

    def branch(name: str, field: str) -> dict[str, Any]:
        return {"type": "record", "name": f"{long}.{name}.T", "fields": [{"name": field, "type": ["null", "int"]}]}

    union = [branch("one", "x"), branch("two", "y")]
    later = [branch("one", "x"), branch("two", "y")]
    for each in later:
        each["fields"] += [{"name": "added", "type": "int", "default": 3}]
    for one in (*union, *later):
        one["fields"][0]["default"] = None
    found = read(record(u=union), record(u=later), number(1) + number(1) + number(8))
    assert found == {"u": {"member0": None, "member1": {"y": 8, "added": 3}}}


@pytest.mark.parametrize(
    ("kind", "default", "expected"),
    [
        pytest.param(["null", "string"], "x", "x", id="of a union's second type"),
        pytest.param(["null", "int", "string"], "x", {"member0": None, "member1": "x"}, id="of its third"),
        pytest.param(["null", "string"], None, None, id="null"),
        pytest.param({"type": "fixed", "name": "F", "size": 2}, "\u00ff\0", b"\xff\0", id="a fixed"),
        pytest.param("double", 2, 2.0, id="a whole double"),
        pytest.param({"type": "map", "values": ["int", "null"]}, {"a": None}, [("a", None)], id="a map"),
        pytest.param(
            {"type": "record", "name": "Q", "fields": [{"name": "z", "type": "int", "default": 4}]},
            {},
            {"z": 4},
            id="a record's own default",
        ),
    ],
)
def test_defaults(kind: Any, default: Any, expected: Any) -> None:
    reader = {**record(), "fields": [{"name": "new", "type": kind, "default": default}]}
    assert read(record(old="int"), reader, b"\2") == {"new": expected}


@pytest.mark.parametrize(
    ("kind", "default"),
    [
        ("int", 1.5),
        ("int", True),
        ("int", 2**31),
        ("long", 2**63),
        ("string", 5),
        ("boolean", 1),
        ("double", 10**400),
        ("null", 0),
        (["null", "int"], "x"),
        ({"type": "fixed", "name": "F", "size": 2}, "abc"),
        ({"type": "array", "items": "string"}, "ab"),
        ({"type": "map", "values": "int"}, []),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, "B"),
        ({"type": "record", "name": "Q", "fields": [{"name": "z", "type": ["null", "int"]}]}, {}),
    ],
)
def test_defaults_of_another_type_are_none(kind: Any, default: Any) -> None:
    """Such as 1.5, which as an int would be 1."""
    reader = {**record(), "fields": [{"name": "new", "type": kind, "default": default}]}
    with pytest.raises(BadSchema, match="the default of field new is not of its type"):
        read(record(old="int"), reader, b"\2")


def test_a_namespace_that_is_null_is_none_of_its_own() -> None:
    inner = {"type": "enum", "name": "E", "namespace": None, "symbols": ["A"]}
    schema = {**record(a=inner, b="shop.E"), "name": "shop.R", "namespace": None}
    assert read(schema, schema, b"\0\0") == {"a": "A", "b": "A"}


def test_unions_in_unions_are_not_compared_without_end() -> None:
    """Each type of one with each of the other, and so for those within them: 10^6 times, of 2,000 types."""

    def nested(depth: int, leaf: str, path: str) -> Any:
        if depth == 0:
            return leaf
        return [
            {
                "type": "record",
                "name": f"{path}{n}.T",
                "fields": [{"name": "f", "type": nested(depth - 1, leaf, f"{path}{n}.n")}],
            }
            for n in range(10)
        ]

    with pytest.raises(BadSchema, match="takes more than 200,000 steps"):
        read(record(u=nested(3, "int", "w")), record(u=nested(3, "string", "r")), b"")
