"""Short documents whose columns would be large: a null struct has a place in each of its fields' arrays, and a default
is there as often as its field."""

from __future__ import annotations

import base64
import json
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf.descriptor_pb2 import FieldDescriptorProto as Field

from support.avro_bytes import number
from support.protobuf_files import field, file_of
from tidegate.resources.targets import SchemaFormat
from tidegate.spark import decoding as module
from tidegate.spark.decoding import FLAW, RECORD, Decoding, Flaw, _Worker

HEAD = b"\0\0\0\0\1"


def record(name: str, **fields: Any) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [{"name": n, "type": kind} for n, kind in fields.items()]}


def wide(fields: int) -> Any:
    """Arrays of an optional record of so many fields."""
    big = record("Big", **{f"f{n}": "long" for n in range(fields)})
    return record("R", a={"type": "array", "items": ["null", big]})


def of_items(count: int, item: bytes = b"\0") -> bytes:
    """An array of so many."""
    return number(count) + item * count + b"\0"


def by_default(characters: int) -> Decoding:
    """Arrays of a record, which in a later version has a field with such a default."""
    item = record("Item", b="boolean")
    later = {**item, "fields": [*item["fields"], {"name": "d", "type": "string", "default": "x" * characters}]}
    writer, reader = (record("R", a={"type": "array", "items": each}) for each in (item, later))
    return Decoding(SchemaFormat.AVRO, json.dumps(reader), framed=True, writers={1: (json.dumps(writer),)})


def of_messages(fields: int) -> Decoding:
    file = file_of("wide.proto", "w")
    big, message = file.message_type.add(name="Big"), file.message_type.add(name="M")
    for n in range(1, fields + 1):
        field(big, f"f{n}", n, Field.TYPE_INT64)
    field(message, "a", 1, Field.TYPE_MESSAGE, ".w.Big", repeated=True)
    return Decoding(SchemaFormat.PROTOBUF, "w.M", (base64.b64encode(file.SerializeToString()).decode(),))


def worked(decoding: Decoding, values: list[bytes | None]) -> list[pa.RecordBatch]:
    return list(_Worker(decoding)([pa.RecordBatch.from_pydict({"value": pa.array(values, pa.binary())})]))


@pytest.mark.parametrize(
    ("decoding", "value", "small"),
    [
        pytest.param(
            Decoding(SchemaFormat.AVRO, json.dumps(wide(2000))), of_items(20_000), of_items(3), id="optional records"
        ),
        pytest.param(by_default(100_000), HEAD + of_items(5000), HEAD + of_items(3), id="a default"),
        pytest.param(of_messages(500), b"\x0a\0" * 50_000, b"\x0a\0" * 3, id="messages"),
    ],
)
def test_a_short_value_takes_no_memory_that_it_has_not_the_bytes_for(
    decoding: Decoding, value: bytes, small: bytes
) -> None:
    """It would be hundreds of megabytes."""
    parts = worked(decoding, [small, value, None, small])
    flaws = {row["value"]: row[FLAW] for part in parts for row in part.select(["value", FLAW]).to_pylist()}
    assert flaws == {small: None, value: Flaw.TOO_LARGE, None: None}
    assert sum(part.num_rows for part in parts) == 4
    assert max(part.nbytes for part in parts) < 20 << 20


def test_many_values_that_are_large_together_are_parts_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where one among them is none, so that the others are found by halves."""
    monkeypatch.setattr(module, "_MOST_PLACES", 2000)
    decoding = Decoding(SchemaFormat.AVRO, json.dumps(wide(9)))
    values: list[bytes | None] = [of_items(n % 50 + 1) for n in range(300)]
    values[77], values[178] = b"\x02", of_items(400)

    parts = worked(decoding, values)

    rows = [row for part in parts for row in part.to_pylist()]
    assert [row["value"] for row in rows] == values
    odd = {77: Flaw.MALFORMED, 178: Flaw.TOO_LARGE}
    assert [row[FLAW] for row in rows] == [odd.get(n) for n in range(300)]
    expected = [None if n in odd else {"a": [None] * (n % 50 + 1)} for n in range(300)]
    assert [row[RECORD] for row in rows] == expected
    assert max(part.column(RECORD).nbytes for part in parts) <= 2 * 2000 * 8


def test_fields_that_take_no_bytes_are_decoded_by_few_values_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MOST_NODES", 1000)
    decoding = Decoding(SchemaFormat.AVRO, json.dumps(record("R", x="int", **{f"f{n}": "null" for n in range(98)})))
    parts = worked(decoding, [b"\2"] * 45)
    assert [part.num_rows for part in parts] == [10, 10, 10, 10, 5]
