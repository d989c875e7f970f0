"""Protobuf messages as columns, against reading each field of each message; and what hostile ones do."""

from __future__ import annotations

import base64
import random
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2
from google.protobuf.descriptor_pb2 import FieldDescriptorProto as Field
from hypothesis import given, settings
from hypothesis import strategies as st

from support.protobuf_files import ORDER_FILE, ORDER_SET, field, file_of, order_type
from tidegate.resources.targets import SchemaFormat
from tidegate.spark import protobuf_columns
from tidegate.spark.avro_schema import BadSchema
from tidegate.spark.decoding import FLAW, MISSING, RECORD, Decoding, Flaw, _Worker
from tidegate.spark.protobuf_columns import columns, decoder, files_of_set, message_type
from tidegate.spark.wire_format import NoHead, message_indexes, message_name

SCALARS = {
    Field.TYPE_INT32: lambda c: c.choice([0, -(2**31), 2**31 - 1]),
    Field.TYPE_SINT64: lambda c: c.choice([0, -(2**63), 2**63 - 1]),
    Field.TYPE_UINT32: lambda c: c.choice([0, 2**32 - 1]),
    Field.TYPE_FIXED64: lambda c: c.choice([0, 2**64 - 1]),
    Field.TYPE_DOUBLE: lambda c: c.uniform(-1e9, 1e9),
    Field.TYPE_FLOAT: lambda c: c.randint(-999, 999) / 8,
    Field.TYPE_BOOL: lambda c: c.random() < 0.5,
    Field.TYPE_STRING: lambda c: c.choice(["", "é\0😀"]),
    Field.TYPE_BYTES: lambda c: c.choice([b"", b"\xff\0"]),
    Field.TYPE_ENUM: lambda c: c.choice([0, 1, 7]),
}


def random_file(chance: random.Random) -> Any:
    """A message M2 of random fields, which has M1 in some, which has M0 in some."""
    file = file_of("random.proto", "r")
    colour = file.enum_type.add(name="Colour")
    for number, name in enumerate(("RED", "GREEN")):
        colour.value.add(name=name, number=number)
    for level in range(3):
        message = file.message_type.add(name=f"M{level}")
        message.oneof_decl.add(name="one")
        members = 0
        for number in range(1, chance.randint(3, 9)):
            name, kind = f"f{number}", chance.choice(list(SCALARS))
            of = ".r.Colour" if kind == Field.TYPE_ENUM else ""
            if level and chance.random() < 0.3:
                kind, of = Field.TYPE_MESSAGE, f".r.M{level - 1}"
            made = field(message, name, number, kind, of, repeated=chance.random() < 0.3)
            if made.label != Field.LABEL_REPEATED and (chance.random() < 0.3 or (number > 1 and not members)):
                made.oneof_index = 0
                members += 1
        if not members:
            field(message, "last", 20, Field.TYPE_INT32).oneof_index = 0
    return file


def filled(chance: random.Random, message: Any) -> Any:
    for each in message.DESCRIPTOR.fields:
        if chance.random() < 0.3:
            continue
        if each.type == Field.TYPE_MESSAGE:
            targets = [getattr(message, each.name)] if not each.is_repeated else []
            more = range(chance.randint(0, 2) if each.is_repeated else 0)
            targets.extend(getattr(message, each.name).add() for _ in more)
            for target in targets:
                target.SetInParent()
                filled(chance, target)
        elif each.is_repeated:
            getattr(message, each.name).extend(SCALARS[each.type](chance) for _ in range(chance.randint(0, 3)))
        else:
            setattr(message, each.name, SCALARS[each.type](chance))
    return message


def as_in_arrow(each: Any, value: Any) -> Any:
    if each.type == Field.TYPE_MESSAGE:
        return spelled(value)
    if each.type == Field.TYPE_ENUM:
        return {0: "RED", 1: "GREEN"}.get(value, str(value))
    return Decimal(value) if each.type == Field.TYPE_FIXED64 else value


def spelled(message: Any) -> dict[str, Any]:
    found = {}
    for each in message.DESCRIPTOR.fields:
        value = getattr(message, each.name)
        if each.is_repeated:
            found[each.name] = [as_in_arrow(each, one) for one in value]
        else:
            there = not each.has_presence or message.HasField(each.name)
            found[each.name] = as_in_arrow(each, value) if there else None
    return found


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 2**32))
def test_messages_are_what_their_fields_say(seed: int) -> None:
    chance = random.Random(seed)
    message = message_type([random_file(chance).SerializeToString()], "r.M2")
    values = [filled(chance, message()).SerializeToString() for _ in range(6)]

    array = columns(message).build([None, *(decoder(message)(b"head" + value, 4) for value in values)])

    array.validate(full=True)
    assert array.to_pylist() == [None, *(spelled(message.FromString(value)) for value in values)]


@pytest.mark.parametrize("syntax", ["proto2", "proto3"])
def test_an_enum_is_its_first_name(syntax: str) -> None:
    """A number of no name: in proto2 the message then does not have it, as protobuf has it everywhere."""
    file = file_of("e.proto", "e")
    file.syntax = syntax
    colour = file.enum_type.add(name="Colour")
    colour.options.allow_alias = True
    for number, name in ((0, "RED"), (1, "GREEN"), (1, "GRUEN")):
        colour.value.add(name=name, number=number)
    message = file.message_type.add(name="M")
    field(message, "one", 1, Field.TYPE_ENUM, ".e.Colour")
    field(message, "some", 2, Field.TYPE_ENUM, ".e.Colour", repeated=True)
    kind = message_type([file.SerializeToString()], "e.M")

    read = [decoder(kind)(value, 0) for value in (b"\x08\x01\x10\x01\x10\x00", b"\x08\x05\x10\x01\x10\x05")]
    rows = columns(kind).build(read).to_pylist()

    assert rows[0] == {"one": "GREEN", "some": ["GREEN", "RED"]}
    unknown = {"one": "5", "some": ["GREEN", "5"]} if syntax == "proto3" else {"one": None, "some": ["GREEN"]}
    assert rows[1] == unknown


def test_types_of_protobufs_own_are_what_they_stand_for() -> None:
    file = file_of("own.proto", "o")
    message = file.message_type.add(name="M")
    kinds = ("Timestamp", "Duration", "Int64Value", "UInt64Value", "StringValue", "Struct", "ListValue", "Any", "Empty")
    for name in ("timestamp", "duration", "wrappers", "struct", "any", "empty"):
        file.dependency.append(f"google/protobuf/{name}.proto")
    for number, kind in enumerate(kinds, 1):
        field(message, kind.lower(), number, Field.TYPE_MESSAGE, f".google.protobuf.{kind}")
    kind = message_type([file.SerializeToString()], "")
    one = kind()
    one.timestamp.seconds, one.timestamp.nanos = 1, 5_000
    one.duration.seconds = -2
    one.uint64value.value = 2**64 - 1
    one.stringvalue.value = ""
    one.struct.fields["a"].number_value = 1
    one.any.type_url = "u"
    odd = kind()
    odd.struct.fields["a"].number_value = float("nan")

    column = columns(kind)
    (row,) = column.build([one]).to_pylist()

    assert row == {
        "timestamp": datetime(1970, 1, 1, 0, 0, 1, 5, tzinfo=UTC),
        "duration": timedelta(seconds=-2),
        "int64value": None,
        "uint64value": Decimal(2**64 - 1),
        "stringvalue": "",
        "struct": '{"a": 1.0}',
        "listvalue": None,
        "any": {"type_url": "u", "value": b""},
    }
    with pytest.raises(ValueError, match="JSON"):
        column.build([odd])


def test_what_calls_itself_protobufs_own_is_not_believed() -> None:
    """A Timestamp of other fields, in the file of that name and in another one."""
    for name in ("google/protobuf/timestamp.proto", "evil.proto"):
        evil = file_of(name, "google.protobuf")
        field(evil.message_type.add(name="Timestamp"), "gotcha", 1, Field.TYPE_STRING)
        user = file_of("user.proto", "u")
        user.dependency.append(name)
        field(user.message_type.add(name="M"), "at", 1, Field.TYPE_MESSAGE, ".google.protobuf.Timestamp")
        files = [evil.SerializeToString(), user.SerializeToString()]
        if name == "evil.proto":
            with pytest.raises(BadSchema, match="do not fit together"):
                message_type(files, "u.M")
        else:
            assert columns(message_type(files, "u.M")).type.field("at").type == pa.timestamp("us", tz="UTC")


def test_a_message_inside_itself_is_left_out() -> None:
    items = columns(order_type()).type.field("items").type
    assert [each.name for each in items.value_type] == ["sku"]


def test_too_many_fields_are_refused() -> None:
    """Each message has the one before it ten times: 10^8 fields."""
    file = file_of("many.proto", "m")
    field(file.message_type.add(name="M0"), "a", 1, Field.TYPE_INT32)
    for level in range(1, 9):
        message = file.message_type.add(name=f"M{level}")
        for number in range(1, 11):
            field(message, f"f{number}", number, Field.TYPE_MESSAGE, f".m.M{level - 1}")
    with pytest.raises(BadSchema, match="exceeds 10,000"):
        columns(message_type([file.SerializeToString()], "m.M8"))


def test_a_map_without_a_key_is_refused() -> None:
    """Protobuf takes a descriptor whose entries have other names."""
    file = file_of("m.proto", "m")
    message = file.message_type.add(name="M")
    entry = message.nested_type.add(name="TagsEntry")
    entry.options.map_entry = True
    field(entry, "kez", 1, Field.TYPE_STRING)
    field(entry, "value", 2, Field.TYPE_INT32)
    field(message, "tags", 1, Field.TYPE_MESSAGE, ".m.M.TagsEntry", repeated=True)
    with pytest.raises(BadSchema, match="tags is a map without a key"):
        columns(message_type([file.SerializeToString()], "m.M"))


def test_names_that_differ_by_capitals_only_are_refused() -> None:
    file = file_of("c.proto", "c")
    message = file.message_type.add(name="M")
    for number, name in enumerate(("Status", "STATUS"), 1):
        field(message, name, number, Field.TYPE_INT32, json=f"j{number}")
    with pytest.raises(BadSchema, match="in capitals"):
        columns(message_type([file.SerializeToString()], "c.M"))


@pytest.mark.parametrize(
    ("text", "why"),
    [("no base64 !", "is not base64"), ("AAAA", "not a set of file descriptors"), ("", "has no file")],
)
def test_a_schema_that_is_none_is_refused(text: str, why: str) -> None:
    with pytest.raises(BadSchema, match=why):
        message_type([base64.b64decode(file) for file in files_of_set(text)], "M")


def test_a_file_whose_name_is_no_text_is_refused() -> None:
    file = ORDER_FILE.SerializeToString().replace(b"shop/order.proto", b"shop/order\x80proto")
    with pytest.raises(BadSchema, match="not UTF-8"):
        columns(message_type([file], "shop.Order"))


def test_a_message_type_that_is_not_there_is_said() -> None:
    with pytest.raises(BadSchema, match=r"no message type shop\.Missing"):
        message_type([ORDER_FILE.SerializeToString()], "shop.Missing")


def worker(values: list[bytes | None], **settings: Any) -> list[tuple[Any, str | None, int | None]]:
    batch = pa.RecordBatch.from_pydict({"offset": range(len(values)), "value": pa.array(values, pa.binary())})
    decoding = Decoding(SchemaFormat.PROTOBUF, "shop.Order", files_of_set(ORDER_SET), **settings)
    rows = [row for part in _Worker(decoding)([batch]) for row in part.to_pylist()]
    return [(r[RECORD], r[FLAW], r[MISSING]) for r in sorted(rows, key=lambda row: row["offset"])]


def deep(levels: int) -> bytes:
    """A message in itself so many times."""
    inner = b""
    for n in range(levels):
        key, length = (b"\x42" if n % 2 else b"\x12"), len(inner)
        inner = key + varint(length) + inner
    return inner


def varint(number: int) -> bytes:
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*found, number])


@pytest.mark.parametrize(
    "value",
    [
        pytest.param(b"\x42\xff\xff\xff\xff\x0f", id="an enormous length"),
        pytest.param(b"\x08", id="cut off"),
        pytest.param(b"\x2a\x01\xff", id="no UTF-8"),
        pytest.param(deep(20_000), id="deep"),
    ],
)
def test_a_value_that_is_no_message_is_told(value: bytes) -> None:
    assert worker([value, None]) == [(None, Flaw.MALFORMED, None), (None, None, None)]


def test_values_of_a_registry_say_their_message() -> None:
    text = base64.b64encode(ORDER_FILE.SerializeToString()).decode()
    body = order_type()(id=5).SerializeToString()
    head = b"\0\0\0\0"
    values = [head + b"\1\x02\x02" + body, head + b"\1\0", head + b"\1\x02\x08", head + b"\2\0", head + b"\3\x02\x02"]
    values += [head + b"\1", head + b"\1\x01", b"\1"]
    told = worker(values, framed=True, writers={1: (text,), 2: None}, wanted=frozenset({"id"}))
    assert told == [
        ({"id": 5}, None, None),
        (None, Flaw.OTHER_SCHEMA, None),
        (None, Flaw.OTHER_SCHEMA, None),
        (None, Flaw.UNKNOWN_SCHEMA, None),
        (None, None, 3),
        (None, Flaw.NO_HEAD, None),
        (None, Flaw.NO_HEAD, None),
        (None, Flaw.NO_HEAD, None),
    ]


def test_a_schema_is_parsed_once_whatever_indexes_values_claim(monkeypatch: pytest.MonkeyPatch) -> None:
    text = base64.b64encode(ORDER_FILE.SerializeToString()).decode() + "\n"
    parsed: list[str] = []
    real = protobuf_columns.from_base64
    monkeypatch.setattr(protobuf_columns, "from_base64", lambda file: (parsed.append(file), real(file))[1])
    values: list[bytes | None] = [b"\0\0\0\0\1\x02" + varint(2 * n) for n in range(2, 500)]
    told = worker(values, framed=True, writers={1: (text,)})
    assert {flaw for _, flaw, _ in told} == {Flaw.OTHER_SCHEMA}
    assert parsed.count(text) == 1


@given(st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=32), st.binary(max_size=8))
def test_message_indexes_are_read_as_they_are_written(indexes: list[int], rest: bytes) -> None:
    written = b"\0\0\0\0\1" + b"".join(varint(2 * number) for number in (len(indexes), *indexes))
    assert message_indexes(written + rest) == (tuple(indexes), len(written))
    assert message_indexes(b"\0\0\0\0\1\0" + rest) == ((0,), 6)


@given(st.binary(max_size=40))
def test_any_bytes_have_message_indexes_or_none(value: bytes) -> None:
    try:
        indexes, end = message_indexes(b"\0\0\0\0\1" + value)
    except NoHead:
        return
    assert 0 < len(indexes) <= 32
    assert 5 < end <= 5 + len(value)


def test_a_message_is_named_by_its_place() -> None:
    assert message_name(ORDER_FILE, (1,)) == "shop.Order"
    assert message_name(ORDER_FILE, (1, 1)) == "shop.Order.Item"
    assert message_name(ORDER_FILE, (1, 1, 0)) is None
    assert message_name(descriptor_pb2.FileDescriptorProto(message_type=[{"name": "M"}]), (0,)) == "M"
