"""Avro documents as Arrow columns: from what their writer's schema gives, by the specification's "Schema Resolution".

Types are those that Spark's own module for Avro would give: enums are strings, fixed is binary, a union of null and
one type is that type, of int and long a bigint, of float and double a double, and any other one a struct of member0,
member1 and so on, of which one is not null.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from operator import itemgetter
from typing import Any, Final

import pyarrow as pa  # type: ignore[import-untyped,unused-ignore]

from tidegate.spark.avro_defaults import as_decoded
from tidegate.spark.avro_documents import is_told, told
from tidegate.spark.avro_schema import (
    MOST_NODES,
    NULL,
    Array,
    BadSchema,
    Enumeration,
    Field,
    Fixed,
    Map,
    Node,
    Primitive,
    Record,
    Union,
    identity,
)
from tidegate.spark.columns import (
    Column,
    Member,
    constant,
    decimals,
    either,
    integers_as,
    lists,
    maps,
    of_type,
    structs,
)

_SCALARS: Final = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "bytes": pa.binary(),
}
_LOGICAL: Final = {
    # (type, how many of it one is)
    "date": (pa.date32(), 1),
    "timestamp-millis": (pa.timestamp("us", tz="UTC"), 1000),
    "timestamp-micros": (pa.timestamp("us", tz="UTC"), 1),
    "local-timestamp-millis": (pa.timestamp("us"), 1000),
    "local-timestamp-micros": (pa.timestamp("us"), 1),
}
_WIDER: Final = {frozenset({"int", "long"}): "long", frozenset({"float", "double"}): "double"}
"""Which unions of two are a type of numbers."""

_PROMOTED: Final = {
    "int": ("long", "float", "double"),
    "long": ("float", "double"),
    "float": ("double",),
    "string": ("bytes",),
    "bytes": ("string",),
}
"""What a value may be read as besides its own type."""

MOST_STEPS: Final = 20 * MOST_NODES
"""To compare two schemas, types with types: a few seconds of them."""


# --- the reader's types -----------------------------------------------------------------------------------------------


def type_of(node: Node) -> pa.DataType | None:
    """``None`` for what holds nothing: null, records without fields, and lists of those."""
    match node:
        case Primitive():
            return _scalar(node).type if node != NULL else None
        case Fixed():
            return _fixed(node).type
        case Enumeration():
            return pa.string()
        case Array():
            items = type_of(node.items)
            return None if items is None else pa.list_(items)
        case Map():
            values = type_of(node.values)
            return None if values is None else pa.map_(pa.string(), values)
        case Record():
            fields = [(each.name, kind) for each in node.fields if (kind := type_of(each.type)) is not None]
            return pa.struct(fields) if fields else None
        case Union():
            return _type_of_union(node)


def _type_of_union(union: Union) -> pa.DataType | None:
    others = union.others
    if len(others) == 1:
        return type_of(others[0])
    if (wider := _wider(union)) is not None:
        return _SCALARS[wider]
    members = [(f"member{n}", kind) for n, each in enumerate(others) if (kind := type_of(each)) is not None]
    return pa.struct(members) if members else None


def _wider(union: Union) -> str | None:
    others = union.others
    plain = all(isinstance(each, Primitive) and not each.logical for each in others)
    return _WIDER.get(frozenset(each.name for each in others if isinstance(each, Primitive))) if plain else None


def _scalar(node: Primitive) -> Column:
    if node.logical == "decimal":
        return decimals(node.precision, node.scale)
    if node.logical:
        return integers_as(*_LOGICAL[node.logical])
    return of_type(_SCALARS[node.name])


def _fixed(node: Fixed) -> Column:
    return decimals(node.precision, node.scale) if node.precision else of_type(pa.binary())


# --- from the writer's schema to the reader's -------------------------------------------------------------------------


def columns(writer: Record, reader: Record, wanted: Collection[str] | None = None) -> Column:
    """Documents of ``writer`` as structs of ``reader``'s fields; of ``wanted`` ones only, in small letters, if given.

    Raises ``BadSchema`` where the reader's schema can't be read from the writer's, or takes too long to compare with.
    """
    resolution = _Resolution()
    fields = tuple(f for f in reader.fields if wanted is None or f.name.lower() in wanted)
    # The reader's other fields count all the same: one that can't be read makes a document one that is not read.
    read = resolution.read_as(writer, reader)
    if wanted is None or not fields:
        return read
    return resolution.structs(writer, Record(reader.name, fields, reader.aliases))


class _Resolution:
    """Of one schema as another one. The branches of unions are tried one after the other, within them those of others,
    so that two schemas may have any number of ways to be compared: they are counted."""

    def __init__(self) -> None:
        self._steps = 0
        self._types: dict[int, tuple[Node, pa.DataType | None]] = {}

    def _count(self, steps: int) -> None:
        self._steps += steps
        if self._steps > MOST_STEPS:
            raise _TooManySteps(f"to compare the schemas' unions takes more than {MOST_STEPS:,} steps")

    def _type_of(self, node: Node) -> pa.DataType | None:
        if id(node) not in self._types:
            self._types[id(node)] = (node, type_of(node))
        return self._types[id(node)][1]

    def read_as(self, writer: Node, reader: Node) -> Column:
        self._count(1)
        if isinstance(writer, Union):
            return self._from_union(writer, reader)
        if isinstance(reader, Union):
            return self._into_union(writer, reader)
        match writer, reader:
            case Primitive(), Primitive():
                return _primitive(writer, reader)
            case Fixed(), Fixed() if _same_name(writer, reader) and writer.size == reader.size:
                if not reader.precision or (writer.precision, writer.scale) in (
                    (0, 0),
                    (reader.precision, reader.scale),
                ):
                    return _fixed(reader)
            case Enumeration(), Enumeration() if _same_name(writer, reader):
                return _enumeration(writer, reader)
            case Array(), Array():
                items = self.read_as(writer.items, reader.items)
                return lists(items, required=_refuses_null(writer.items, reader.items))
            case Map(), Map():
                values = self.read_as(writer.values, reader.values)
                return maps(of_type(pa.string()), values, required=_refuses_null(writer.values, reader.values))
            case Record(), Record() if _same_name(writer, reader):
                return self.structs(writer, reader)
        raise _unreadable(writer, reader)

    def structs(self, writer: Record, reader: Record) -> Column:
        by_name = {each.name: each for each in writer.fields}
        members = []
        for each in reader.fields:
            names = [name for name in (each.name, *each.aliases) if name in by_name]
            written = by_name[names[0]] if names else None
            column = self._default(each) if written is None else self.read_as(written.type, each.type)
            if self._type_of(each.type) is None:
                continue
            if written is None:
                members.append(Member(each.name, column, lambda values: values))
            else:
                required = _refuses_null(written.type, each.type)
                members.append(Member(each.name, column, _taking(written.name), required))
        if not members:
            return _nothing()
        return structs(members)

    def _default(self, field: Field) -> Column:
        """The value of a field that the writer's schema lacks."""
        if not field.has_default:
            raise _Unreadable(f"the writer's schema has no field {field.name}, which has no default")
        column = self.read_as(field.type, field.type)
        try:
            return constant(column, as_decoded(field.type, field.default))
        except (ValueError, TypeError, OverflowError):
            raise _Unreadable(f"the default of field {field.name} is not of its type") from None

    def _from_union(self, writer: Union, reader: Node) -> Column:
        if not is_told(writer):
            return self._from_optional(writer, reader)
        kind = self._type_of(reader)
        read: list[Column | None] = []
        for branch in writer.branches:
            try:
                read.append(self.read_as(branch, reader))
            except _Unreadable:
                read.append(None)
        if not any(read):
            raise _unreadable(writer, reader)
        if kind is None:
            return _nothing()
        nulls = Column(kind, lambda values: pa.nulls(len(values), kind))
        return either(kind, [nulls if c is not None and pa.types.is_null(c.type) else c for c in read], told)

    def _from_optional(self, writer: Union, reader: Node) -> Column:
        """A union of one type, with or without null."""
        if not writer.others:
            return self.read_as(NULL, reader)
        try:
            return self.read_as(writer.others[0], reader)
        except _Unreadable:
            if NULL not in writer.branches or _refuses_null(writer, reader):
                raise
        # Where it is null it can be read all the same.
        return _never_a_value(self.read_as(NULL, reader))

    def _into_union(self, writer: Node, reader: Union) -> Column:
        kind = self._type_of(reader)
        if writer == NULL:
            if NULL not in reader.branches:
                raise _unreadable(writer, reader)
            return _nothing() if kind is None else Column(kind, lambda values: pa.nulls(len(values), kind))
        number, inner = self._branch(writer, reader)
        if kind is None:
            return _nothing()
        if len(reader.others) == 1:
            return inner
        if _wider(reader) is not None:
            return Column(kind, lambda values: inner.build(values).cast(kind))
        return _member_of(kind, number, inner)

    def _branch(self, writer: Node, reader: Union) -> tuple[int, Column]:
        """The first branch of the same kind, else the first that can be read as another one; its number among those
        that are not null."""
        others = reader.others
        self._count(len(others))
        same = [identity(branch) == identity(writer) for branch in others]
        for n, branch in sorted(enumerate(others), key=lambda numbered: not same[numbered[0]]):
            try:
                return n, self.read_as(writer, branch)
            except _Unreadable:
                continue
        raise _unreadable(writer, reader)


class _Unreadable(BadSchema):
    """One type can't be read as another one."""


class _TooManySteps(BadSchema):
    """Which no other branch makes good."""


def _unreadable(writer: Node, reader: Node) -> _Unreadable:
    return _Unreadable(f"{_named(writer)} can't be read as {_named(reader)}")


def _named(node: Node) -> str:
    match node:
        case Primitive() | Fixed() | Enumeration() | Record():
            return node.name[:80]
        case _:
            return f"{type(node).__name__.lower()}"


def _same_name(writer: Fixed | Enumeration | Record, reader: Fixed | Enumeration | Record) -> bool:
    short = writer.name.rpartition(".")[2]
    return short == reader.name.rpartition(".")[2] or writer.name in reader.aliases


def _refuses_null(writer: Node, reader: Node) -> bool:
    def may_be_null(node: Node) -> bool:
        return node == NULL or (isinstance(node, Union) and NULL in node.branches)

    return may_be_null(writer) and not may_be_null(reader)


def _primitive(writer: Primitive, reader: Primitive) -> Column:
    if writer.unit and reader.unit and writer.unit != reader.unit:
        raise _unreadable(writer, reader)  # milliseconds read as microseconds would be other times
    if writer.name == reader.name:
        if writer.logical and reader.logical and writer != reader:
            raise _unreadable(writer, reader)
        return _nothing() if reader == NULL else _scalar(reader)
    if reader.name not in _PROMOTED.get(writer.name, ()):
        raise _unreadable(writer, reader)
    if (writer.name, reader.name) == ("string", "bytes") and not reader.logical:
        return of_type(pa.binary(), str.encode)
    if (writer.name, reader.name) == ("bytes", "string") and not writer.logical:
        return of_type(pa.string(), bytes.decode)
    if reader.name in ("float", "double"):
        return _rounded(_SCALARS[writer.name], _SCALARS[reader.name])
    return _scalar(reader)


def _rounded(kind: pa.DataType, to: pa.DataType) -> Column:
    """Numbers as the nearest ones of another type: in one step, as by way of a double a long's float may be another."""
    return Column(to, lambda values: pa.array(values, kind).cast(to, safe=False))


def _nothing() -> Column:
    return Column(pa.null(), lambda values: pa.nulls(len(values)))


def _never_a_value(column: Column) -> Column:
    def build(values: list[Any]) -> pa.Array:
        if values.count(None) < len(values):
            raise ValueError("it is of a type that is not read")
        return column.build(values)

    return Column(column.type, build)


def _enumeration(writer: Enumeration, reader: Enumeration) -> Column:
    known = frozenset(reader.symbols)
    if writer.symbols == reader.symbols or known.issuperset(writer.symbols):
        return of_type(pa.string())

    def convert(symbol: str) -> str:
        if symbol in known:
            return symbol
        if reader.default is None:
            raise ValueError("it is no symbol of the reader's")
        return reader.default

    return of_type(pa.string(), convert)


def _taking(name: str) -> Callable[[list[Any]], Any]:
    take = itemgetter(name)
    return lambda values: map(take, values)


def _member_of(kind: pa.StructType, number: int, inner: Column) -> Column:
    def build(values: list[Any]) -> pa.Array:
        arrays = [
            inner.build(values) if field.name == f"member{number}" else pa.nulls(len(values), field.type)
            for field in kind
        ]
        mask = pa.array([value is None for value in values], pa.bool_())
        return pa.StructArray.from_arrays(arrays, fields=list(kind), mask=mask)

    return Column(kind, build)
