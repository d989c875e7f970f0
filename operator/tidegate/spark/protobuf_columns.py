"""Protobuf messages as Arrow columns, decoded by Google's protobuf as the reader's message says.

A descriptor comes from whoever may write a ConfigMap or a registry's subject. What a message holds is never more than
some times its bytes, and it is at most 100 levels deep, so protobuf decodes by any descriptor; it is the columns that
have to end: a field inside its own message is left out, and there are at most ``MOST_NODES`` of them.

Types are those that Spark's own module for Protobuf would give, but for presence, which follows Protobuf itself: a
field without presence has its type's default where the message does not say it, and any other one is null. So are the
members of a oneof that is another one. An enum is its value's name, or its number where the descriptor has no name; a
uint64 is a decimal. Timestamp and Duration are times, wrappers are what they wrap, and Struct, Value and ListValue are
JSON as a string.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Collection, Mapping, Sequence
from decimal import Decimal
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa  # type: ignore[import-untyped,unused-ignore]

from tidegate.spark.avro_schema import MOST_NODES, BadSchema
from tidegate.spark.columns import Column, Member, integers_as, lists, maps, of_type, structs

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor, FieldDescriptor

_GOOGLE: Final = "google.protobuf."
_WRAPPERS: Final = frozenset(
    f"{_GOOGLE}{name}Value"
    for name in "Double Float Int64 UInt64 Int32 UInt32 Bool String Bytes".split()  # noqa: SIM905
)
_JSON: Final = frozenset({f"{_GOOGLE}Struct", f"{_GOOGLE}Value", f"{_GOOGLE}ListValue"})
_LARGEST_SCHEMA: Final = 1 << 20
_DEEPEST: Final = 48

_SCALARS: Final = {
    # By FieldDescriptor.CPPTYPE_…
    1: pa.int32(),
    2: pa.int64(),
    3: pa.int64(),  # of uint32
    4: pa.decimal128(20, 0),  # of uint64
    5: pa.float64(),
    6: pa.float32(),
    7: pa.bool_(),
}
_UINT64: Final = 4
_ENUM: Final = 8
_TEXT: Final = 9
_MESSAGE: Final = 10
_BYTES: Final = 12
"""``FieldDescriptor.TYPE_BYTES``, which has the C++ type of a text."""


def message_type(files: Sequence[bytes], name: str) -> type[Any]:
    """The class of messages ``name`` (with its package), or of the first one of the last file where it is empty.

    ``files``: FileDescriptorProtos, each after those that it imports; protobuf's own need not be there. Raises
    ``BadSchema``.
    """
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
    from google.protobuf.message import DecodeError

    pool, own = descriptor_pool.DescriptorPool(), _own_files()
    # What calls itself one of protobuf's own is not believed to be that.
    for known in own.values():
        pool.AddSerializedFile(known.serialized_pb)
    last = None
    try:
        for file in files:
            last = descriptor_pb2.FileDescriptorProto.FromString(file)
            if last.name not in own:
                pool.Add(last)
        if last is None:
            raise BadSchema("the schema has no file")
        found = pool.FindFileByName(last.name)
        if not name and not found.message_types_by_name:
            raise BadSchema("the schema has no message type")
        if not name:
            name = f"{last.package}.{last.message_type[0].name}".lstrip(".")
        descriptor = pool.FindMessageTypeByName(name)
        found_type: type[Any] = message_factory.GetMessageClass(descriptor)
        return found_type
    except KeyError:
        raise BadSchema(f"the schema has no message type {name[:100]}: name one by its package and name") from None
    except (DecodeError, TypeError, ValueError, UnicodeError) as error:
        if isinstance(error, BadSchema):
            raise
        raise BadSchema(f"the schema's files do not fit together: {' '.join(str(error).split())[:300]}") from None


def _own_files() -> dict[str, Any]:
    """Protobuf's own files, by the names under which they are imported."""
    from google.protobuf import (
        any_pb2,
        descriptor_pb2,
        duration_pb2,
        empty_pb2,
        field_mask_pb2,
        struct_pb2,
        timestamp_pb2,
        wrappers_pb2,
    )

    modules = (any_pb2, descriptor_pb2, duration_pb2, empty_pb2, field_mask_pb2)
    return {each.DESCRIPTOR.name: each.DESCRIPTOR for each in (*modules, struct_pb2, timestamp_pb2, wrappers_pb2)}


def files_of_set(text: str) -> tuple[str, ...]:
    """The files of a FileDescriptorSet in base64, as ``protoc --include_imports --descriptor_set_out`` writes it, each
    in base64, in their order there. Raises ``BadSchema``."""
    from google.protobuf import descriptor_pb2
    from google.protobuf.message import DecodeError

    try:
        files = descriptor_pb2.FileDescriptorSet.FromString(from_base64(text)).file
    except DecodeError:
        raise BadSchema(
            "the schema is not a set of file descriptors: protoc --include_imports --descriptor_set_out makes one"
        ) from None
    return tuple(base64.b64encode(file.SerializeToString()).decode() for file in files)


def from_base64(text: str) -> bytes:
    """Raises ``BadSchema``."""
    if len(text) > _LARGEST_SCHEMA:
        raise BadSchema(f"the schema has more than {_LARGEST_SCHEMA:,} characters")
    try:
        return base64.b64decode("".join(text.split()), validate=True)
    except (binascii.Error, ValueError):
        raise BadSchema("the schema is not base64") from None


def decoder(message: type[Any]) -> Callable[[bytes, int], Any]:
    """Reads one message, from a position of its bytes to their end.

    What it raises for bytes that are no such message: ``ValueError``.
    """
    from google.protobuf.message import DecodeError

    def decode(value: bytes, start: int) -> Any:
        try:
            found = message.FromString(value[start:] if start else value)
        except DecodeError as error:
            raise ValueError(str(error)) from None
        if not found.IsInitialized():
            raise ValueError("a required field is absent")
        return found

    return decode


# --- columns ----------------------------------------------------------------------------------------------------------


def columns(message: type[Any], wanted: Collection[str] | None = None) -> Column:
    """Messages as structs of their fields; of ``wanted`` ones only, in small letters, if given. Raises ``BadSchema``
    where there are too many, or none."""
    try:
        found = _Columns().message(message.DESCRIPTOR, (), wanted)
    except UnicodeDecodeError:
        raise BadSchema("a name in the schema is not UTF-8") from None
    if found is None:
        raise BadSchema("the message has no field that a condition could name")
    return found


class _Columns:
    """The columns of one message, which are counted."""

    def __init__(self) -> None:
        self._nodes = 0

    def message(
        self, descriptor: Descriptor, above: tuple[str, ...], wanted: Collection[str] | None = None
    ) -> Column | None:
        self._nodes += 1
        if self._nodes > MOST_NODES:
            raise BadSchema(f"the message, written out in full, exceeds {MOST_NODES:,} fields")
        if (own := self._well_known(descriptor)) is not None:
            return own
        if descriptor.full_name in above or len(above) > _DEEPEST:
            return None
        inside = (*above, descriptor.full_name)
        members, seen = [], set()
        for each in descriptor.fields:
            if each.name.lower() in seen:
                raise BadSchema(
                    f"two fields are named {each.name[:80]}, in capitals or not: conditions can't tell them apart"
                )
            seen.add(each.name.lower())
            if (wanted is None or each.name.lower() in wanted) and (column := self._field(each, inside)) is not None:
                members.append(Member(each.name, column, _taking(each)))
        return structs(members) if members else None

    def _field(self, each: FieldDescriptor, inside: tuple[str, ...]) -> Column | None:
        if each.message_type is not None and each.message_type.GetOptions().map_entry:
            key, value = (each.message_type.fields_by_name.get(name) for name in ("key", "value"))
            if key is None or value is None:
                raise BadSchema(f"field {each.name[:80]} is a map without a key or a value")
            values = self._single(value, inside)
            return None if values is None else maps(_scalar(key), values)
        single = self._single(each, inside)
        return lists(single) if single is not None and each.is_repeated else single

    def _single(self, each: FieldDescriptor, inside: tuple[str, ...]) -> Column | None:
        self._nodes += 1
        if each.cpp_type == _MESSAGE:
            return self.message(each.message_type, inside)
        return _scalar(each)

    def _well_known(self, descriptor: Descriptor) -> Column | None:
        if descriptor.file.name not in _own_files():
            return None
        name = descriptor.full_name
        if name == f"{_GOOGLE}Timestamp":
            return _micros(pa.timestamp("us", tz="UTC"))
        if name == f"{_GOOGLE}Duration":
            return _micros(pa.duration("us"))
        if name in _WRAPPERS:
            inner = _scalar(descriptor.fields_by_name["value"])
            return Column(inner.type, lambda values: inner.build([None if v is None else v.value for v in values]))
        return of_type(pa.string(), _as_json) if name in _JSON else None


def _as_json(message: Any) -> str:
    from google.protobuf import json_format

    try:
        return str(json_format.MessageToJson(message, indent=None, ensure_ascii=False))
    except (json_format.Error, ValueError):
        raise ValueError("it has a number that JSON has none for") from None


def _micros(kind: pa.DataType) -> Column:
    inner = integers_as(kind)

    def build(values: list[Any]) -> pa.Array:
        return inner.build([None if v is None else v.seconds * 1_000_000 + v.nanos // 1000 for v in values])

    return Column(kind, build)


def _scalar(each: FieldDescriptor) -> Column:
    if each.cpp_type == _ENUM:
        # Of several names for a number (allow_alias) the first, as Protobuf's JSON has it.
        names: Mapping[int, str] = {v.number: v.name for v in reversed(each.enum_type.values)}
        return of_type(pa.string(), lambda number: names.get(number, str(number)))
    if each.cpp_type == _TEXT:
        return of_type(pa.binary() if each.type == _BYTES else pa.string())
    if each.cpp_type == _UINT64:
        return of_type(_SCALARS[_UINT64], Decimal)
    return of_type(_SCALARS[each.cpp_type])


def _taking(each: FieldDescriptor) -> Callable[[list[Any]], Any]:
    name = each.name
    if not each.has_presence:
        take = attrgetter(name)
        if each.message_type is not None and each.message_type.GetOptions().map_entry:
            return lambda values: [dict(take(value)) for value in values]
        return lambda values: map(take, values)
    return lambda values: [getattr(value, name) if value.HasField(name) else None for value in values]
