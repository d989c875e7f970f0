"""Decoders of records' values in Avro and Protobuf, of the schemas that others have written for them, and a registry's
answers."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from io import BytesIO
from typing import Any, Final

import fastavro
import pyarrow as pa

from support.fuzzing.target import NoInput, Target, as_json
from support.protobuf_files import ORDER_FILE, ORDER_SET, order_type
from tidegate.kafka.connection import Registry
from tidegate.reset.planning.refusals import PlanRefused
from tidegate.resources.targets import SchemaFormat
from tidegate.spark.avro_columns import columns as avro_columns
from tidegate.spark.avro_columns import type_of
from tidegate.spark.avro_schema import BadSchema, Record, parse
from tidegate.spark.decoding import FLAW, RECORD, Decoding, _Worker
from tidegate.spark.protobuf_columns import columns, files_of_set, message_type
from tidegate.spark.registry import Found, RegistryClient

_AVRO: Final = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "status", "type": {"type": "enum", "name": "Status", "symbols": ["OPEN", "PAID"], "default": "OPEN"}},
        {"name": "note", "type": ["null", "string"], "default": None},
        {"name": "total", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "any", "type": ["null", "boolean", "string", {"type": "fixed", "name": "F", "size": 3}]},
        {"name": "tags", "type": {"type": "map", "values": {"type": "array", "items": "int"}}},
        {"name": "by", "type": "string", "default": "web"},
    ],
}
_DOCUMENT: Final = {
    "id": 7,
    "status": "PAID",
    "note": "n",
    "total": b"\x01\x02",
    "at": 1_795_176_000_000,
    "any": b"abc",
    "tags": {"a": [1, 2], "b": []},
    "by": "me",
}
_ORDER_TEXT: Final = base64.b64encode(ORDER_FILE.SerializeToString()).decode()
_HEAD: Final = b"\0\0\0\0\1"


def _avro_value() -> bytes:
    stream = BytesIO()
    plain = json.loads(json.dumps(_AVRO))
    for each in plain["fields"]:
        if isinstance(each["type"], dict):
            each["type"].pop("logicalType", None)
    fastavro.schemaless_writer(stream, plain, _DOCUMENT)
    return stream.getvalue()


def _protobuf_value() -> bytes:
    order = order_type()(id=5, status=2, phone="1", tags={"a": 1})
    order.items.add(sku="s").parent.id = 3
    found: bytes = order.SerializeToString()
    return found


def _decoded(decoding: Decoding) -> Callable[[bytes], list[tuple[bool, ...]]]:
    """Of a value and of none: whether there is a value, a record, and a flaw."""

    def decode(data: bytes) -> list[tuple[bool, ...]]:
        batch = pa.RecordBatch.from_pydict({"value": pa.array([data, None], pa.binary())})
        rows: list[tuple[bool, ...]] = []
        for part in _Worker(decoding)([batch]):
            part.validate(full=True)
            # Not as Python's values, which have no times of other calendars' years.
            there = (part.column(name).is_valid().to_pylist() for name in ("value", RECORD, FLAW))
            rows += zip(*there, strict=True)
        return rows

    return decode


def _check_rows(rows: list[tuple[bool, ...]]) -> None:
    """A value is decoded, or it is said why it is not; and never both."""
    assert len(rows) == 2
    assert all(value == (record != flaw) and (value or not record) for value, record, flaw in rows)


def _schema(data: bytes) -> Record:
    return parse(data.decode(errors="replace"))


def _check_schema(schema: Record) -> None:
    if type_of(schema) is None:
        return
    # By itself, and by its defaults alone.
    for writer, documents in ((schema, [None]), (Record(schema.name, ()), [None, {}])):
        try:
            column = avro_columns(writer, schema)
        except BadSchema:
            continue  # a default that is not of its type is none only for who needs it
        # Not as Python's values, which have no times of other calendars' years.
        assert column.build(documents).null_count > 0


def _descriptors(data: bytes) -> Any:
    return columns(
        message_type([base64.b64decode(f) for f in files_of_set(data.decode(errors="replace"))], "shop.Order")
    )


def _answer(kind: SchemaFormat) -> Any:
    def decode(data: bytes) -> Found:
        class Client(RegistryClient):
            def _get(self, path: str) -> tuple[int, bytes]:  # noqa: ARG002 - whatever is asked for
                return 200, data

        return Client(Registry("http://registry"), kind).subject("orders-value", None)

    return decode


def _file(data: bytes) -> Any:
    if len(data) > 1 << 20:
        raise NoInput
    return message_type([data], "shop.Order")


_ANSWER: Final = {"subject": "orders-value", "version": 3, "id": 7, "schema": json.dumps(_AVRO)}
_SERIALIZED: Final = {**_ANSWER, "schema": _ORDER_TEXT, "schemaType": "PROTOBUF"}
_WRITERS: Final = {1: (json.dumps(_AVRO),)}

TARGETS: Final[tuple[Target, ...]] = (
    Target(
        "avro-value",
        (
            "tidegate.spark.avro_documents:decoder.decode",
            "tidegate.spark.columns:decimals.convert",
        ),
        (_avro_value(),),
        _decoded(Decoding(SchemaFormat.AVRO, json.dumps(_AVRO))),
        (),
        _check_rows,
    ),
    Target(
        "avro-value-of-a-registry",
        ("tidegate.spark.wire_format:schema_id",),
        (_HEAD + _avro_value(), b"\0\0\0\0\2" + _avro_value()),
        _decoded(Decoding(SchemaFormat.AVRO, json.dumps(_AVRO), framed=True, writers=_WRITERS, closed=True)),
        (),
        _check_rows,
    ),
    Target(
        "avro-schema",
        ("tidegate.spark.avro_schema:_json", "tidegate.spark.avro_schema:parse"),
        (as_json(_AVRO),),
        _schema,
        (BadSchema,),
        _check_schema,
    ),
    Target(
        "protobuf-value",
        ("tidegate.spark.protobuf_columns:decoder.decode",),
        (_HEAD + b"\x02\x02" + _protobuf_value(), _HEAD + b"\0"),
        _decoded(
            Decoding(
                SchemaFormat.PROTOBUF,
                "shop.Order",
                (_ORDER_TEXT,),
                framed=True,
                writers={1: (_ORDER_TEXT,)},
                closed=True,
            )
        ),
        (),
        _check_rows,
    ),
    Target(
        "protobuf-schema",
        ("tidegate.spark.protobuf_columns:from_base64",),
        (ORDER_SET.encode(),),
        _descriptors,
        (BadSchema,),
    ),
    Target("protobuf-file", (), (ORDER_FILE.SerializeToString(),), _file, (BadSchema,)),
    Target(
        "registry-answer",
        ("tidegate.spark.registry:RegistryClient._ask",),
        (as_json(_ANSWER),),
        _answer(SchemaFormat.AVRO),
        (PlanRefused,),
    ),
    Target(
        "registry-answer-protobuf",
        ("tidegate.spark.registry:_file",),
        (as_json(_SERIALIZED),),
        _answer(SchemaFormat.PROTOBUF),
        (PlanRefused,),
    ),
)
