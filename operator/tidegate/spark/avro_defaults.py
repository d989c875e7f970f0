"""Defaults of fields in Avro schemas: JSON, as a document's decoder would have given the same value.

After the Apache Avro specification 1.12, "Complex Types": a union's default is one of the first branch that it fits.
"""

from __future__ import annotations

from typing import Any, Final

from tidegate.spark.avro_documents import is_told
from tidegate.spark.avro_schema import Array, Enumeration, Fixed, Map, Node, Primitive, Record, Union

_BITS: Final = {"int": 32, "long": 64}


def as_decoded(node: Node, value: Any) -> Any:
    """Raises ``ValueError`` where it is not of the type."""
    match node, value:
        case Union(), _:
            return _of_union(node, value)
        case Primitive(), _:
            return _primitive(node.name, value)
        case Fixed(), str():
            if len(encoded := value.encode("latin-1")) == node.size:
                return encoded
        case Enumeration(), str() if value in node.symbols:
            return value
        case Array(), list():
            return [as_decoded(node.items, each) for each in value]
        case Map(), dict():
            return {name: as_decoded(node.values, each) for name, each in value.items()}
        case Record(), dict():
            return _record(node, value)
    raise ValueError("it is of another type")


def _of_union(union: Union, value: Any) -> Any:
    for number, branch in enumerate(union.branches):
        try:
            inner = as_decoded(branch, value)
        except ValueError:
            continue
        return {str(number): inner} if is_told(union) else inner
    raise ValueError("it is of no type of the union")


def _primitive(name: str, value: Any) -> Any:
    match name, value:
        case ("null", None) | ("boolean", bool()) | ("string", str()):
            return value
        case "int" | "long", int() if not isinstance(value, bool):
            if -1 <= value >> (_BITS[name] - 1) <= 0:
                return value
        case "float" | "double", int() | float() if not isinstance(value, bool):
            try:
                return float(value)
            except OverflowError:
                raise ValueError("it is too large") from None
        case "bytes", str():
            return value.encode("latin-1")
    raise ValueError("it is of another type")


def _record(record: Record, value: dict[str, Any]) -> dict[str, Any]:
    if lacking := [each.name for each in record.fields if each.name not in value and not each.has_default]:
        raise ValueError(f"it lacks {lacking[0]}")
    return {each.name: as_decoded(each.type, value.get(each.name, each.default)) for each in record.fields}
