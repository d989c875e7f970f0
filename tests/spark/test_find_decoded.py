"""Records found by fields of values in Avro and Protobuf, against a decode of everything by the plain libraries."""

from __future__ import annotations

import base64
import json
import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from io import BytesIO
from typing import Any

import fastavro
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from devstack import KafkaCluster
from support.protobuf_files import ORDER_FILE, ORDER_SET, order_type
from support.schema_registry import fake_registry
from tidegate.clock import SystemClock
from tidegate.find.windows import Pace
from tidegate.kafka.connection import Connection, Registry
from tidegate.reset.model.request import RunRequest, Selection
from tidegate.reset.model.targets import RecordSchema, ToRecord
from tidegate.reset.planning.refusals import PlanRefused
from tidegate.resources.targets import SchemaFormat, Undecodable
from tidegate.spark import registry as registry_module
from tidegate.spark.find import Found, find_records

pytestmark = [pytest.mark.spark, pytest.mark.kafka]

PARTITIONS = 2
RECORDS = 300
PACE = Pace(first=150, growth=4, most=600, least=1)
FIRST = {
    "type": "record",
    "name": "shop.Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "status", "type": {"type": "enum", "name": "Status", "symbols": ["OPEN", "PAID", "LOST"]}},
        {"name": "note", "type": ["null", "string"], "default": None},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "total", "type": {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 2}},
        {"name": "tags", "type": {"type": "map", "values": "int"}},
        {
            "name": "items",
            "type": {
                "type": "array",
                "items": {"type": "record", "name": "Item", "fields": [{"name": "sku", "type": "string"}]},
            },
        },
    ],
}
SECOND = {
    **FIRST,
    "fields": [
        *FIRST["fields"][1:],
        {"name": "id", "type": "double"},
        {"name": "by", "type": "string", "default": "web"},
    ],
}  # type: ignore[index]
"""A later version: the id is a double by now, and there is one field more."""


@pytest.fixture(scope="module")
def broker() -> Iterator[KafkaCluster]:
    with KafkaCluster.start(1) as cluster:
        yield cluster


def fill(bootstrap: str, topic: str, values: dict[int, list[bytes | None]]) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result(20)
    producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0})
    for partition, some in values.items():
        for value in some:
            producer.produce(topic, value, partition=partition)
    assert producer.flush(30) == 0


def search(spark: Any, bootstrap: str, topic: str, target: ToRecord) -> Found:
    request = RunRequest("uid/r", "r", f"group-of-{topic}", Connection(bootstrap), (Selection(topic),), target)
    return find_records(spark, request, target, lambda _: None, SystemClock(), pace=PACE)


def offsets(found: Found) -> dict[int, int | None]:
    return {p.partition: offset for p, offset in found.findings.offsets.items()}


def encoded(schema: Any, document: Any) -> bytes:
    stream = BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(schema), document)
    return stream.getvalue()


def order(chance: random.Random, n: int) -> dict[str, Any]:
    return {
        "id": n,
        "status": chance.choices(["OPEN", "PAID", "LOST"], [60, 30, 1])[0],
        "note": chance.choice([None, "late", "broken"]),
        "at": datetime(2026, 11, 20, 12, n % 60, tzinfo=UTC),
        "total": Decimal(chance.randint(-1000, 100_000)) / 100,
        "tags": {name: chance.randint(0, 9) for name in chance.sample("abc", 2)},
        "items": [{"sku": f"s{chance.randint(0, 150)}"} for _ in range(chance.randint(0, 2))],
        "by": chance.choice(["web", "shop"]),
    }


AVRO_CONDITIONS: dict[str, Callable[[Any], bool]] = {
    "record.note is null and record.id > 200 and exists(record.items, i -> i.sku > 's7')": (
        lambda d: d["note"] is None and d["id"] > 200 and any(i["sku"] > "s7" for i in d["items"])
    ),
    "record.total < 0 and record.at >= timestamp'2026-11-20 12:50:00'": lambda d: (
        d["total"] < 0 and d["at"].minute > 49
    ),
    "record.tags['a'] = 9 and record.tags['b'] > 7": lambda d: d["tags"].get("a") == 9 and d["tags"].get("b", 0) > 7,
    "to_json(record) like '%\"s7\"%'": lambda d: any(i["sku"] == "s7" for i in d["items"]),
}


def oracle(documents: dict[int, list[Any]], matches: Callable[[Any], bool], *, after: bool) -> dict[int, int | None]:
    found: dict[int, int | None] = {}
    for partition, some in documents.items():
        hits = [n for n, document in enumerate(some) if document is not None and matches(document)]
        found[partition] = None if not hits else hits[-1] + 1 if after else hits[0]
    return found


def test_fields_of_avro_are_found_as_a_full_decode_finds_them(spark: Any, broker: KafkaCluster) -> None:
    """A tombstone each 50 records is no flaw."""
    chance = random.Random(21)
    documents = {p: [None if n % 50 == 49 else order(chance, n) for n in range(RECORDS)] for p in range(PARTITIONS)}
    values = {p: [None if d is None else encoded(FIRST, d) for d in some] for p, some in documents.items()}
    fill(broker.bootstrap, "avro-orders", values)
    schema = RecordSchema(SchemaFormat.AVRO, json.dumps(FIRST), "ConfigMap orders, key v1")

    for n, (where, matches) in enumerate(AVRO_CONDITIONS.items()):
        found = search(spark, broker.bootstrap, "avro-orders", ToRecord(where, after=n % 2 == 1, schema=schema))
        assert offsets(found) == oracle(documents, matches, after=n % 2 == 1), where


def test_each_value_is_read_by_its_own_schema_of_the_registry(
    spark: Any, broker: KafkaCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance = random.Random(22)
    with fake_registry() as registry:
        ids = [registry.register("orders-value", FIRST), registry.register("orders-value", SECOND)]
        versions = {p: [chance.randint(0, 1) for _ in range(RECORDS)] for p in range(PARTITIONS)}
        documents = {p: [order(chance, n) for n in range(RECORDS)] for p in range(PARTITIONS)}
        values: dict[int, list[bytes | None]] = {
            p: [
                b"\0" + ids[v].to_bytes(4, "big") + encoded([FIRST, SECOND][v], document)
                for v, document in zip(versions[p], documents[p], strict=True)
            ]
            for p in documents
        }
        for p, some in documents.items():
            for document, version in zip(some, versions[p], strict=True):
                if version == 0:
                    document["by"] = "web"  # the later version's default
        fill(broker.bootstrap, "avro-versions", values)
        schema = RecordSchema(
            SchemaFormat.AVRO, "", "a registry", registry=Registry(registry.url), subject="orders-value"
        )
        where = "record.by = 'web' and record.status = 'LOST' and record.id > 20.5"
        found = search(spark, broker.bootstrap, "avro-versions", ToRecord(where, schema=schema))

        def matches(d: Any) -> bool:
            return d["by"] == "web" and d["status"] == "LOST" and d["id"] > 20.5

        assert offsets(found) == oracle(documents, matches, after=False)
        assert "record is as version 2 of subject orders-value has it (schema 2)" in found.findings.notes
        assert registry.asked == ["/subjects/orders-value/versions/latest", "/schemas/ids/1"]

        # An id of nobody's is asked for once, and its value is one that can't be decoded.
        unknown: list[bytes | None] = [b"\0\0\0\1\0" + encoded(FIRST, order(chance, 1))] * 3
        fill(broker.bootstrap, "avro-unknown", {0: unknown, 1: []})
        with pytest.raises(PlanRefused, match="offset 0 can't be decoded: the registry has no schema of its id"):
            search(spark, broker.bootstrap, "avro-unknown", ToRecord("record.by = 'x'", schema=schema))
        assert registry.asked.count("/schemas/ids/256") == 1

        # What a null would say of one that was not asked for, nobody knows.
        lenient = replace(schema, undecodable=Undecodable.NULL)
        monkeypatch.setattr(registry_module, "MOST_SCHEMAS", 0)
        with pytest.raises(PlanRefused, match="offset 0 was not decoded: its schema is one of more than"):
            search(spark, broker.bootstrap, "avro-unknown", ToRecord("record.by = 'x'", schema=lenient))


def test_a_value_that_cannot_be_decoded_ends_the_search_or_is_null_and_told(spark: Any, broker: KafkaCluster) -> None:
    chance = random.Random(23)
    documents = [order(chance, n) | {"status": "OPEN"} for n in range(100)]
    documents[60]["status"] = "LOST"
    values: list[bytes | None] = [encoded(FIRST, d) for d in documents]
    values[40], values[80], values[81] = b"\x02nonsense", b"", (values[81] or b"") + b"\0"
    fill(broker.bootstrap, "avro-flawed", {0: values, 1: []})
    strict = RecordSchema(SchemaFormat.AVRO, json.dumps(FIRST), "ConfigMap orders, key v1")
    lenient = replace(strict, undecodable=Undecodable.NULL)
    lost, flawed = "record.status = 'LOST'", "record is null"

    with pytest.raises(PlanRefused, match="avro-flawed-0 at offset 40 can't be decoded: it is not as") as refused:
        search(spark, broker.bootstrap, "avro-flawed", ToRecord(lost, schema=strict))
    assert refused.value.reason == "UndecodableRecord"
    assert "nonsense" not in refused.value.message
    with pytest.raises(PlanRefused, match="offset 81 can't be decoded"):
        search(spark, broker.bootstrap, "avro-flawed", ToRecord(lost, after=True, schema=strict))
    # One that was found because it is null for the condition was not found.
    for after in (False, True):
        with pytest.raises(PlanRefused, match=f"offset {81 if after else 40} can't be decoded"):
            search(spark, broker.bootstrap, "avro-flawed", ToRecord(flawed, after=after, schema=strict))
    # Before the first record with a small id nothing is wrong.
    assert offsets(search(spark, broker.bootstrap, "avro-flawed", ToRecord("record.id = 7", schema=strict))) == {
        0: 7,
        1: None,
    }

    # Where a condition names nothing of the document, none is decoded.
    assert offsets(search(spark, broker.bootstrap, "avro-flawed", ToRecord("offset = 41", schema=strict)))[0] == 41

    found = search(spark, broker.bootstrap, "avro-flawed", ToRecord(lost, schema=lenient))
    assert offsets(found) == {0: 60, 1: None}
    told = "Their values can't be decoded, so that record was null for them"
    assert any(note.startswith(told) for note in found.findings.notes)
    assert offsets(search(spark, broker.bootstrap, "avro-flawed", ToRecord(flawed, schema=lenient))) == {0: 40, 1: None}
    assert offsets(search(spark, broker.bootstrap, "avro-flawed", ToRecord(flawed, after=True, schema=lenient))) == {
        0: 82,
        1: None,
    }


PROTOBUF_CONDITIONS: dict[str, Callable[[Any], bool]] = {
    "record.status = 'LOST'": lambda m: m.status == 2,
    "record.count = 0 and record.phone is null and record.id > 250": (
        lambda m: m.count == 0 and not m.HasField("phone") and m.id > 250
    ),
    "record.size > 18446744073709551000": lambda m: m.size > 18446744073709551000,
    "record.tags['a'] > 8 and exists(record.items, i -> i.sku > 's2')": (
        lambda m: m.tags.get("a", 0) > 8 and any(i.sku > "s2" for i in m.items)
    ),
    "record.at >= timestamp'2026-11-20 12:04:50'": lambda m: m.at.seconds >= 1795176000 + 290,
}


@pytest.mark.parametrize("framed", [False, True], ids=["config-map", "registry"])
def test_fields_of_protobuf_are_found_as_a_full_decode_finds_them(
    spark: Any, broker: KafkaCluster, framed: bool
) -> None:
    chance, message = random.Random(24), order_type()
    messages = {p: [protobuf_order(chance, message, n) for n in range(RECORDS)] for p in range(PARTITIONS)}
    topic = f"protobuf-{framed}"
    with fake_registry() as registry:
        text = base64.b64encode(ORDER_FILE.SerializeToString()).decode()
        number = registry.register("orders-value", "…", kind="PROTOBUF", serialized=text)
        # Order is the second type of its file: indexes [1].
        head = b"\0" + number.to_bytes(4, "big") + b"\x02\x02" if framed else b""
        values: dict[int, list[bytes | None]] = {
            p: [head + each.SerializeToString() for each in some] for p, some in messages.items()
        }
        if framed:
            # Another type of the file (indexes [0]) is none that the condition is about.
            values[1].append(b"\0" + number.to_bytes(4, "big") + b"\0")
            messages[1].append(None)
        fill(broker.bootstrap, topic, values)
        schema = RecordSchema(SchemaFormat.PROTOBUF, ORDER_SET, "ConfigMap orders, key v1", "shop.Order")
        if framed:
            schema = replace(
                schema, text="", registry=Registry(registry.url), subject="orders-value", undecodable=Undecodable.NULL
            )
        for n, (where, matches) in enumerate(list(PROTOBUF_CONDITIONS.items())[: 2 if framed else None]):
            found = search(spark, broker.bootstrap, topic, ToRecord(where, after=n % 2 == 1, schema=schema))
            assert offsets(found) == oracle(messages, matches, after=n % 2 == 1), where


def protobuf_order(chance: random.Random, message: Any, n: int) -> Any:
    found = message(id=n, count=chance.choice([0, 0, 5]), status=chance.choices([0, 1, 2], [60, 30, 1])[0])
    found.size = chance.choice([1, 2**64 - 1]) if n % 40 == 3 else 7
    if chance.random() < 0.7:
        found.phone = "1"
    else:
        found.mail = "m"
    found.tags["a"] = chance.randint(0, 9)
    for _ in range(chance.randint(0, 2)):
        found.items.add(sku=f"s{chance.randint(0, 40)}")
    found.at.seconds = 1795176000 + n
    return found
