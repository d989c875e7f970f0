"""Avro schemas as a tree that is safe to decode by, made from their JSON: what is refused here is never decoded. Pure.

Schemas come from whoever may write a ConfigMap or a registry's subject, and documents from whoever may write the topic.
fastavro follows both wherever they lead, so that a small document may become any amount of memory, or may never end.
What makes that impossible is looked at once, in the schema:

* it does not contain itself: how deep a document goes is known;
* written out in full it has at most ``MOST_NODES`` nodes, and is at most ``DEEPEST`` deep;
* what an array or a map repeats takes bytes: of ``RATIO`` nodes in a document at least one byte is its own. So a
  document has at most ``RATIO`` times its bytes, and ``MOST_NODES`` more.

After the Apache Avro specification 1.12, "Schema Declaration" and "Logical Types".
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

MOST_NODES: Final = 10_000
DEEPEST: Final = 48
RATIO: Final = 8
LARGEST_TEXT: Final = 1 << 20
"""Characters of a schema, as large as a ConfigMap."""

_PRIMITIVES: Final = frozenset("null boolean int long float double bytes string".split())  # noqa: SIM905
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_LONGEST_DECIMAL: Final = 38
"""Digits of a decimal as Spark has them; a longer one stays what it is encoded as, bytes."""
_LOGICAL: Final = {
    "int": frozenset({"date"}),
    "long": frozenset({"timestamp-millis", "timestamp-micros", "local-timestamp-millis", "local-timestamp-micros"}),
}
"""Logical types that have a type of Spark's own, by what they are encoded as. Others stay what they are encoded as, as
the specification demands of those that a reader does not know."""
_UNITS: Final = {
    "int": _LOGICAL["int"] | {"time-millis"},
    "long": _LOGICAL["long"] | {"time-micros", "timestamp-nanos", "local-timestamp-nanos"},
}


class BadSchema(ValueError):
    """A schema that nothing is decoded by. The message says where and why, and what to do."""


@dataclass(frozen=True, slots=True)
class Primitive:
    """``logical``: the logical type, where it has one that changes its type; of a decimal, ``precision`` and
    ``scale``. ``unit``: the logical type of a date or time, also where it stays what it is encoded as."""

    name: str
    logical: str = ""
    precision: int = 0
    scale: int = 0
    unit: str = ""


@dataclass(frozen=True, slots=True)
class Fixed:
    name: str
    size: int
    aliases: tuple[str, ...] = ()
    precision: int = 0
    scale: int = 0


@dataclass(frozen=True, slots=True)
class Enumeration:
    name: str
    symbols: tuple[str, ...]
    aliases: tuple[str, ...] = ()
    default: str | None = None


@dataclass(frozen=True, slots=True)
class Array:
    items: Node


@dataclass(frozen=True, slots=True)
class Map:
    values: Node


@dataclass(frozen=True, slots=True)
class Union:
    branches: tuple[Node, ...]

    @property
    def others(self) -> tuple[Node, ...]:
        """The branches that are not null."""
        return tuple(branch for branch in self.branches if branch != NULL)


@dataclass(frozen=True, slots=True)
class Field:
    """``default``: JSON, where it has one (``has_default``)."""

    name: str
    type: Node
    aliases: tuple[str, ...] = ()
    has_default: bool = False
    default: Any = field(default=None, hash=False)


@dataclass(frozen=True, slots=True)
class Record:
    name: str
    fields: tuple[Field, ...]
    aliases: tuple[str, ...] = ()


Node = Primitive | Fixed | Enumeration | Array | Map | Union | Record
NULL: Final = Primitive("null")


def parse(text: str, references: Sequence[str] = ()) -> Record:
    """The schema of documents, which are records. ``references``: schemas whose named types it uses, each after those
    that it uses itself. Raises ``BadSchema``."""
    parser = _Parser()
    for each in references:
        parser.node(_json(each), "", "a referenced schema", 0)
    parser.nodes = 0
    root = parser.node(_json(text), "", "the schema", 0)
    if not isinstance(root, Record):
        raise BadSchema("the schema is not one of records: documents that are another type have no fields to name")
    _check_sizes(root)
    return root


def _json(text: str) -> Any:
    if len(text) > LARGEST_TEXT:
        raise BadSchema(f"the schema has more than {LARGEST_TEXT:,} characters")
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        said = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise BadSchema(f"the schema is not JSON: {said}") from None


@dataclass(slots=True)
class _Parser:
    """``named``: what a name means by now, ``None`` while it is being read; ``sizes``: how many nodes that is."""

    named: dict[str, Node | None] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)
    nodes: int = 0

    def node(self, schema: Any, namespace: str, where: str, depth: int) -> Node:
        self._count(1, where)
        if depth > DEEPEST:
            raise BadSchema(f"{where} is more than {DEEPEST} levels deep")
        match schema:
            case str():
                return self._by_name(schema, namespace, where)
            case list():
                return self._union(schema, namespace, where, depth)
            case {"type": dict() | list() as inner}:
                return self.node(inner, namespace, where, depth + 1)
            case {"type": str() as kind}:
                return self._typed(kind, schema, namespace, where, depth)
            case _:
                raise BadSchema(f"{where} is no type: {_short(schema)}")

    def _count(self, nodes: int, where: str) -> None:
        self.nodes += nodes
        if self.nodes > MOST_NODES:
            raise BadSchema(f"at {where} the schema, written out in full, exceeds {MOST_NODES:,} types")

    def _by_name(self, name: str, namespace: str, where: str) -> Node:
        if name in _PRIMITIVES:
            return Primitive(name)
        full = _full(name, namespace)
        if full not in self.named and name in self.named:
            full = name
        if full not in self.named:
            raise BadSchema(f"{where} names a type that is not defined before it: {_short(name)}")
        found = self.named[full]
        if found is None:
            raise BadSchema(
                f"{where} is inside type {full} and names it again: schemas that contain themselves are refused"
            )
        self._count(self.sizes[full], where)
        return found

    def _union(self, schema: list[Any], namespace: str, where: str, depth: int) -> Node:
        branches = tuple(self.node(each, namespace, where, depth + 1) for each in schema)
        if not branches or any(isinstance(branch, Union) for branch in branches):
            raise BadSchema(f"{where} is a union of no types, or of unions")
        kinds = [identity(branch) for branch in branches]
        if len(set(kinds)) < len(kinds):
            raise BadSchema(f"{where} is a union that has a type twice")
        return Union(branches)

    def _typed(self, kind: str, schema: Mapping[str, Any], namespace: str, where: str, depth: int) -> Node:
        match kind:
            case "array":
                return Array(self.node(schema.get("items"), namespace, f"{where}[]", depth + 1))
            case "map":
                return Map(self.node(schema.get("values"), namespace, f"{where}{{}}", depth + 1))
            case "record" | "error" | "enum" | "fixed":
                return self._define(kind, schema, namespace, where, depth)
            case _:
                found = self._by_name(kind, namespace, where)
                return _with_logical(found, schema) if isinstance(found, Primitive) else found

    def _define(self, kind: str, schema: Mapping[str, Any], namespace: str, where: str, depth: int) -> Node:
        name, own = schema.get("name"), schema.get("namespace")
        own = namespace if own is None else own
        if not isinstance(name, str) or not isinstance(own, str):
            raise BadSchema(f"{where} is a {kind} without a name")
        full = _full(name, own)
        if full in _PRIMITIVES or not all(_NAME.fullmatch(part) for part in full.split(".")):
            raise BadSchema(f"{where} is a {kind} whose name is none: {_short(full)}")
        if full in self.named:
            raise BadSchema(f"{where} defines type {_short(full)} a second time")
        self.named[full] = None
        before = self.nodes
        inside = full.rpartition(".")[0]
        aliases = tuple(_full(alias, inside) for alias in _names(schema.get("aliases", []), where))
        found: Node
        if kind == "enum":
            found = _enumeration(full, aliases, schema, where)
        elif kind == "fixed":
            found = _fixed(full, aliases, schema, where)
        else:
            found = Record(full, tuple(self._fields(schema.get("fields"), inside, where, depth)), aliases)
        self.named[full] = found
        self.sizes[full] = self.nodes - before
        return found

    def _fields(self, fields: Any, namespace: str, where: str, depth: int) -> Iterator[Field]:
        if not isinstance(fields, list):
            raise BadSchema(f"{where} is a record without fields")
        seen: set[str] = set()
        for each in fields:
            name = each.get("name") if isinstance(each, dict) else None
            if not isinstance(name, str) or not _NAME.fullmatch(name) or "type" not in each:
                raise BadSchema(f"{where} has a field without a name or a type: {_short(each)}")
            if name.lower() in seen:
                raise BadSchema(
                    f"{where} has two fields {_short(name)}, in capitals or not: conditions can't tell them apart"
                )
            seen.add(name.lower())
            inside = f"field {name}" if where == "the schema" else f"{where}.{name}"
            node = self.node(each["type"], namespace, inside[:200], depth + 1)
            aliases = _names(each.get("aliases", []), inside)
            yield Field(name, node, aliases, "default" in each, each.get("default"))


def _full(name: str, namespace: str) -> str:
    return name if "." in name or not namespace else f"{namespace}.{name}"


def _names(names: Any, where: str) -> tuple[str, ...]:
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise BadSchema(f"{where} has aliases that are no names")
    return tuple(names)


def _short(value: object) -> str:
    return repr(value)[:80]


def identity(node: Node) -> str:
    """What a union may have once: a name, or a kind of type."""
    match node:
        case Record() | Enumeration() | Fixed():
            return node.name
        case Primitive():
            return f" {node.name}"
        case _:
            return f" {type(node).__name__}"


def _enumeration(name: str, aliases: tuple[str, ...], schema: Mapping[str, Any], where: str) -> Enumeration:
    symbols, default = _names(schema.get("symbols"), where), schema.get("default")
    if not symbols or len(set(symbols)) < len(symbols) or (default is not None and default not in symbols):
        raise BadSchema(f"{where} is an enum without symbols, with one twice, or with a default that is none of them")
    return Enumeration(name, symbols, aliases, default)


def _fixed(name: str, aliases: tuple[str, ...], schema: Mapping[str, Any], where: str) -> Fixed:
    size = schema.get("size")
    if type(size) is not int or not 0 <= size < 1 << 31:
        raise BadSchema(f"{where} is a fixed without a size")
    precision, scale = _decimal(schema)
    return Fixed(name, size, aliases, precision, scale)


def _with_logical(node: Primitive, schema: Mapping[str, Any]) -> Primitive:
    logical = schema.get("logicalType")
    if node.name == "bytes":
        precision, scale = _decimal(schema)
        return Primitive("bytes", "decimal", precision, scale) if precision else node
    if not isinstance(logical, str) or logical not in _UNITS.get(node.name, ()):
        return node
    return Primitive(node.name, logical if logical in _LOGICAL[node.name] else "", unit=logical)


def _decimal(schema: Mapping[str, Any]) -> tuple[int, int]:
    """Precision and scale; zeros for what is no decimal, or one that Spark has no type for."""
    precision, scale = schema.get("precision"), schema.get("scale", 0)
    if schema.get("logicalType") != "decimal" or type(precision) is not int or type(scale) is not int:
        return 0, 0
    return (precision, scale) if 0 < precision <= _LONGEST_DECIMAL and 0 <= scale <= precision else (0, 0)


def size(node: Node) -> int:
    """Its nodes, written out in full: what a document can have besides what its bytes tell of."""
    match node:
        case Array(items=inner) | Map(values=inner):
            return 1 + size(inner)
        case Union():
            return 1 + sum(map(size, node.branches))
        case Record():
            return 1 + sum(size(each.type) for each in node.fields)
        case _:
            return 1


# --- how much a document can become -----------------------------------------------------------------------------------


def _check_sizes(root: Record) -> None:
    _excess(root, "the schema")


def _excess(node: Node, where: str) -> int:
    """The most by which a value's nodes can exceed ``RATIO`` times its bytes."""
    match node:
        case Primitive(name="null"):
            return 1
        case Primitive(name="float"):
            return 1 - 4 * RATIO
        case Primitive(name="double"):
            return 1 - 8 * RATIO
        case Primitive() | Enumeration():
            return 1 - RATIO
        case Fixed():
            return 1 - node.size * RATIO
        case Union():
            return 1 - RATIO + max(_excess(branch, where) for branch in node.branches)
        case Record():
            return 1 + sum(_excess(each.type, f"{where}, {each.name}") for each in node.fields)
        case Array():
            _check_repeated(_excess(node.items, where), where)
            return 1 - RATIO
        case Map():
            _check_repeated(1 - RATIO + _excess(node.values, where), where)
            return 1 - RATIO


def _check_repeated(excess: int, where: str) -> None:
    if excess > 0:
        raise BadSchema(
            f"{where[:200]}: what an array or a map repeats there takes no or few bytes, so that a short document may "
            "have any number of them: such schemas are refused"
        )
