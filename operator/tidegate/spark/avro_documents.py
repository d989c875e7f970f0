"""Avro documents, decoded by fastavro, each as its writer wrote it.

fastavro could read them as the reader's schema itself, but skips what that lacks without looking at how much is there:
a count of 2^62 booleans would keep it busy for years. So it decodes all of a document, by the writer's schema, and what
the reader's has is taken from that, by the specification's "Schema Resolution".

It is given schemas that are made here, from trees that were found safe (:mod:`tidegate.spark.avro_schema`): without
logical types, since its own readers fail on times that no calendar of Python's has; and with each branch of a union as
a record of one field, which takes no bytes and tells which branch a value was.
"""

from __future__ import annotations

from collections.abc import Callable
from io import BytesIO
from typing import Any

from tidegate.spark.avro_schema import Array, Enumeration, Fixed, Map, Node, Primitive, Record, Union


class _Strict(list[Any]):
    """What an index of a document selects from. A list would take a negative one from its end; and fastavro's compiled
    code adds the length to it before it asks, so that no length is told."""

    def __len__(self) -> int:
        return 0

    def __getitem__(self, index: Any) -> Any:
        if index < 0:
            raise IndexError(index)
        return list.__getitem__(self, index)


def decoder(schema: Record) -> Callable[[bytes, int], Any]:
    """Reads one document, from a position of its bytes to their end.

    What it raises for bytes that are no such document: ``EOFError``, ``ValueError``, ``IndexError``.
    """
    from fastavro import schemaless_reader

    parsed = {**_for_fastavro(schema), "__fastavro_parsed": True, "__named_schemas": {}}

    def decode(value: bytes, start: int) -> Any:
        stream = BytesIO(value)
        stream.seek(start)
        document = schemaless_reader(stream, parsed, None)
        if stream.tell() != len(value):
            raise ValueError("the document ends before its bytes do")
        return document

    return decode


def _for_fastavro(node: Node) -> Any:
    match node:
        case Primitive():
            return node.name
        case Fixed():
            return {"type": "fixed", "name": node.name, "size": node.size}
        case Enumeration():
            return {"type": "enum", "name": node.name, "symbols": _Strict(node.symbols)}
        case Array():
            return {"type": "array", "items": _for_fastavro(node.items)}
        case Map():
            return {"type": "map", "values": _for_fastavro(node.values)}
        case Record():
            return _record(node.name, [(each.name, each.type) for each in node.fields])
        case Union() if is_told(node):
            return _Strict(_record(str(n), [(str(n), branch)]) for n, branch in enumerate(node.branches))
        case Union():
            return _Strict(_for_fastavro(branch) for branch in node.branches)


def _record(name: str, fields: list[tuple[str, Node]]) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [{"name": n, "type": _for_fastavro(node)} for n, node in fields]}


def is_told(union: Union) -> bool:
    """Whether its values have to say which branch they are: ``{"<number>": value}``."""
    return len(union.others) > 1


def told(value: dict[str, Any]) -> tuple[int, Any]:
    ((number, inner),) = value.items()
    return int(number), inner
