"""Decoded values as Arrow arrays, a column at a time: what Avro's and Protobuf's documents have in common.

A column takes its values from a list in which ``None`` is null, and raises ``ValueError``, ``TypeError`` or
``OverflowError`` where one of them is not of its type.

An array has a place for each value, also where a value says nothing: a struct that is null has one in each of its
fields' arrays, and a default is there as often as its field. So columns can be larger than their documents by any
factor; how many places there may be is said by ``at_most``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from decimal import Decimal
from itertools import chain
from typing import Any, Final

import pyarrow as pa  # type: ignore[import-untyped,unused-ignore]
import pyarrow.compute as pc  # type: ignore[import-untyped,unused-ignore]

Values = list[Any]

_DIGITS: Final = "0123456789"
PLACE_BYTES: Final = 8


class TooLarge(ValueError):
    """The values take more places than there may be."""


@dataclass(slots=True)
class _Places:
    left: int


_places_left: ContextVar[_Places | None] = ContextVar("places_left", default=None)


@contextmanager
def at_most(places: int) -> Iterator[None]:
    """Columns raise ``TooLarge`` as soon as all that are built within would have more places than these, of about 8
    bytes each."""
    token = _places_left.set(_Places(places))
    try:
        yield
    finally:
        _places_left.reset(token)


def take_places(values: int, kind: pa.DataType) -> None:
    """So many values of a type are about to be built."""
    _take(values * _width(kind))


def _take(places: int) -> None:
    if (allowed := _places_left.get()) is not None:
        allowed.left -= places
        if allowed.left < 0:
            raise TooLarge("they have more places than there may be")


def _width(kind: pa.DataType) -> int:
    """The arrays that have a place for each value: what lists and maps have is counted where these are built."""
    if pa.types.is_struct(kind):
        return 1 + sum(_width(each.type) for each in kind)
    return 1


@dataclass(frozen=True, slots=True)
class Column:
    """``build``: from values to an array of ``type``."""

    type: pa.DataType
    build: Callable[[Values], pa.Array]


@dataclass(frozen=True, slots=True)
class Member:
    """A field of a struct. ``take``: the field's value of each of some values; ``required``: it is never null."""

    name: str
    column: Column
    take: Callable[[Values], Iterable[Any]]
    required: bool = False


def of_type(kind: pa.DataType, convert: Callable[[Any], Any] | None = None) -> Column:
    """Values that Arrow knows, each by way of ``convert``."""
    if convert is None:
        return Column(kind, lambda values: pa.array(values, kind))
    return Column(kind, lambda values: pa.array([None if v is None else convert(v) for v in values], kind))


def integers_as(kind: pa.DataType, by: int = 1) -> Column:
    """Whole numbers that stand for something else, such as the microseconds of a time, ``by`` of them each."""
    width = pa.int32() if kind == pa.date32() else pa.int64()

    def build(values: Values) -> pa.Array:
        numbers = pa.array(values, width)
        return (numbers if by == 1 else pc.multiply_checked(numbers, by)).cast(kind)

    return Column(kind, build)


def decimals(precision: int, scale: int) -> Column:
    """Of an unscaled number each, as big-endian two's complement."""
    beyond = 10**precision

    def convert(encoded: bytes) -> Decimal:
        unscaled = int.from_bytes(encoded, "big", signed=True)
        if not -beyond < unscaled < beyond:
            raise ValueError("it has more digits than its type")
        digits = tuple(_DIGITS.index(digit) for digit in str(abs(unscaled)))
        return Decimal((int(unscaled < 0), digits, -scale))

    return of_type(pa.decimal128(precision, scale), convert)


def structs(members: Sequence[Member]) -> Column:
    fields = [pa.field(member.name, member.column.type) for member in members]

    def build(values: Values) -> pa.Array:
        nulls = values.count(None)
        there = [value for value in values if value is not None] if nulls else values
        arrays = [_member(member, there) for member in members]
        if not nulls:
            return pa.StructArray.from_arrays(arrays, fields=fields)
        places = _places(value is not None for value in values)
        mask = pa.array([value is None for value in values])
        return pa.StructArray.from_arrays([array.take(places) for array in arrays], fields=fields, mask=mask)

    return Column(pa.struct(fields), build)


def _member(member: Member, values: Values) -> pa.Array:
    taken = list(member.take(values))
    if member.required and None in taken:
        raise ValueError(f"{member.name} is null")
    return member.column.build(taken)


def _places(there: Iterable[bool]) -> pa.Array:
    """Where each value is among those that are there."""
    places: list[int | None] = []
    number = 0
    for each in there:
        places.append(number if each else None)
        number += each
    return pa.array(places, pa.int64())


def lists(items: Column, *, required: bool = False) -> Column:
    kind, width = pa.list_(items.type), _width(items.type)

    def build(values: Values) -> pa.Array:
        flat = list(chain.from_iterable(value for value in values if value is not None))
        if required and None in flat:
            raise ValueError("an item is null")
        _take(len(flat) * width)
        return pa.ListArray.from_arrays(_offsets(values), items.build(flat), type=kind)

    return Column(kind, build)


def maps(keys: Column, items: Column, *, required: bool = False) -> Column:
    """Of ``dict``."""
    kind, width = pa.map_(keys.type, items.type), 1 + _width(items.type)

    def build(values: Values) -> pa.Array:
        there = [value for value in values if value is not None]
        names = list(chain.from_iterable(there))
        flat = [each for value in there for each in value.values()]
        if required and None in flat:
            raise ValueError("a map's value is null")
        _take(len(flat) * width)
        return pa.MapArray.from_arrays(_offsets(values), keys.build(names), items.build(flat)).cast(kind)

    return Column(kind, build)


def _offsets(values: Values) -> pa.Array:
    """Where each list begins; null for one that is null."""
    offsets: list[int | None] = []
    end = 0
    for value in values:
        offsets.append(None if value is None else end)
        end += 0 if value is None else len(value)
    offsets.append(end)
    return pa.array(offsets, pa.int32())


def constant(column: Column, value: Any) -> Column:
    """The same value each time. Raises as ``column`` does where it is not of its type."""
    one = column.build([value])

    def build(values: Values) -> pa.Array:
        _take(len(values) * (one.nbytes // PLACE_BYTES))
        return one.take(pa.array([0] * len(values), pa.int64()))

    return Column(column.type, build)


def either(kind: pa.DataType, columns: Sequence[Column | None], which: Callable[[Any], tuple[int, Any]]) -> Column:
    """Each value by one of several columns of the same type: ``which`` tells its number and what it takes. One that has
    no column is not of the type."""

    def build(values: Values) -> pa.Array:
        taken: list[Values] = [[] for _ in columns]
        places: list[tuple[int, int] | None] = []
        for value in values:
            if value is None:
                places.append(None)
                continue
            number, inner = which(value)
            if columns[number] is None:
                raise ValueError("it is of a type that is not read")
            places.append((number, len(taken[number])))
            taken[number].append(inner)
        arrays = [c.build(some) if c is not None else pa.nulls(0, kind) for c, some in zip(columns, taken, strict=True)]
        starts = [0]
        for some in taken:
            starts.append(starts[-1] + len(some))
        where = pa.array([None if p is None else starts[p[0]] + p[1] for p in places], pa.int64())
        return pa.concat_arrays(arrays).take(where)

    return Column(kind, build)
