"""The head of a value by which Confluent's serializers say its schema: a zero, and the schema's id in 4 bytes.

Of a Protobuf message there follows which of the schema's message types it is: by its place in the file, and in each
message type around it. After Confluent's "Wire format" and ``MessageIndexes``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

HEAD_BYTES: Final = 5
_DEEPEST: Final = 32
_LONGEST_NUMBER: Final = 5
FIRST: Final = (0,)


class NoHead(ValueError):
    """The value does not begin as the wire format has it."""


def schema_id(value: bytes) -> int:
    """Raises ``NoHead``."""
    if len(value) < HEAD_BYTES or value[0] != 0:
        raise NoHead
    return int.from_bytes(value[1:HEAD_BYTES], "big")


def message_indexes(value: bytes) -> tuple[tuple[int, ...], int]:
    """Which message type, and where the message begins. Raises ``NoHead``."""
    count, at = _number(value, HEAD_BYTES)
    if count == 0:
        return FIRST, at
    if not 0 < count <= _DEEPEST:
        raise NoHead
    indexes = []
    for _ in range(count):
        index, at = _number(value, at)
        if index < 0:
            raise NoHead
        indexes.append(index)
    return tuple(indexes), at


def _number(value: bytes, at: int) -> tuple[int, int]:
    """A zig-zag number, and where it ends."""
    found = 0
    for n, byte in enumerate(value[at : at + _LONGEST_NUMBER]):
        found |= (byte & 0x7F) << (7 * n)
        if byte < 0x80:
            return (found >> 1) ^ -(found & 1), at + n + 1
    raise NoHead


def message_name(file: Any, indexes: Sequence[int]) -> str | None:
    """The full name of the message type with these indexes in a ``FileDescriptorProto``; ``None`` where it has none."""
    names, types = [file.package] if file.package else [], file.message_type
    for index in indexes:
        if index >= len(types):
            return None
        names.append(types[index].name)
        types = types[index].nested_type
    return ".".join(names)
