"""How fast is a search by a field of values in Avro and in Protobuf, beside the same values in JSON?

Ours: a search that finds nothing, so that every value is decoded, by a condition on a number, and by one on everything
in it. Anchor: the same condition on the same documents as JSON, which Spark itself parses (``valueSchema`` of format
Json); a number that the bytes of a document can't have is ruled out there without parsing it, so the condition is one
that no bytes rule out. In turns on the same broker. A record of each has about the same fields: ``bytes`` says how long
it is.
"""

from __future__ import annotations

import argparse
import base64
import json
from io import BytesIO
from typing import Any

import fastavro
from google.protobuf import descriptor_pb2
from google.protobuf.descriptor_pb2 import FieldDescriptorProto as Field

from perf.record_stage import broker, fill, search, session
from perf.report import Report, Row
from support.protobuf_files import class_of, field, file_of
from tidegate.reset.model.targets import RecordSchema, ToRecord
from tidegate.resources.targets import SchemaFormat

FIELDS = {"order": "long", "status": "int", "customer": "string", "items": "int", "total": "double", "note": "string"}
CONDITIONS = {"one field": "record.status > 500", "the whole document": "to_json(record) like '%OutOfStock%'"}
DISTINCT = 5000


def documents() -> list[dict[str, Any]]:
    return [
        {
            "order": 1_000_000 + n,
            "status": 200 if n % 49 else 404,
            "customer": f"c-{n * 7919 % 99991:05d}",
            "items": n % 9,
            "total": n * 37 % 100_000 / 100,
            "note": "packed and sent " * 2,
        }
        for n in range(DISTINCT)
    ]


def avro() -> tuple[list[bytes], RecordSchema]:
    fields = [{"name": name, "type": kind} for name, kind in FIELDS.items()]
    schema = {"type": "record", "name": "Order", "fields": fields}
    parsed, values = fastavro.parse_schema(schema), []
    for document in documents():
        stream = BytesIO()
        fastavro.schemaless_writer(stream, parsed, document)
        values.append(stream.getvalue())
    return values, RecordSchema(SchemaFormat.AVRO, json.dumps(schema), "the bench")


def protobuf() -> tuple[list[bytes], RecordSchema]:
    kinds = {
        "long": Field.TYPE_INT64,
        "int": Field.TYPE_INT32,
        "string": Field.TYPE_STRING,
        "double": Field.TYPE_DOUBLE,
    }
    file = file_of("order.proto", "bench")
    message = file.message_type.add(name="Order")
    for number, (name, kind) in enumerate(FIELDS.items(), 1):
        field(message, name, number, kinds[kind])
    order = class_of([file], "bench.Order")
    text = base64.b64encode(descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString()).decode()
    values = [order(**document).SerializeToString() for document in documents()]
    return values, RecordSchema(SchemaFormat.PROTOBUF, text, "the bench", "bench.Order")


def as_json() -> tuple[list[bytes], RecordSchema]:
    kinds = {"long": "BIGINT", "int": "INT", "string": "STRING", "double": "DOUBLE"}
    columns = ", ".join(f"`{name}` {kinds[kind]}" for name, kind in FIELDS.items())
    values = [json.dumps(document, separators=(",", ":")).encode() for document in documents()]
    return values, RecordSchema(SchemaFormat.JSON, columns, "the bench")


def main(arguments: list[str]) -> None:
    """``--records N --partitions N --cores N --runs N``."""
    parser = argparse.ArgumentParser("decode", description=__doc__)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--partitions", type=int, default=8)
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args(arguments)
    made = {"Json": as_json(), "Avro": avro(), "Protobuf": protobuf()}
    rates: dict[tuple[str, str], list[float]] = {(f, c): [] for f in made for c in CONDITIONS}
    with broker() as bootstrap:
        stages = {
            name: fill(bootstrap, name.lower(), options.records, options.partitions, values=values)
            for name, (values, _) in made.items()
        }
        spark = session(options.cores)
        try:
            for run in range(options.runs + 1):
                for condition, where in CONDITIONS.items():
                    for name, (_, schema) in made.items():
                        seconds, found = search(spark, stages[name], ToRecord(where, schema=schema))
                        if set(found.findings.offsets.values()) != {None}:
                            raise SystemExit(f"{name} has found {found.findings}, and there is nothing to be found")
                        if run:  # the first one is for Spark to warm up
                            rates[name, condition].append(options.records / seconds)
                print(f"run {run}: " + ", ".join(f"{k}: {v[-1]:,.0f}" for k, v in rates.items() if v), flush=True)
        finally:
            spark.stop()
    rows = [
        Row(
            f"{name}: {condition}",
            tuple(rates[name, condition]),
            tuple(rates["Json", condition]),
            {"bytes": round(sum(map(len, made[name][0])) / DISTINCT)},
        )
        for name in ("Avro", "Protobuf")
        for condition in CONDITIONS
    ]
    Report("decode", "records/s", "the same values in JSON", rows, lower_is_better=False).publish()
