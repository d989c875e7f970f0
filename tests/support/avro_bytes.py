"""Parts of Avro documents, written without a library."""

from __future__ import annotations


def number(value: int) -> bytes:
    """An int or a long: zig-zag, in groups of 7 bits."""
    zigzag = (value << 1) ^ (value >> 63)
    found = bytearray()
    while zigzag > 0x7F:
        found.append(zigzag & 0x7F | 0x80)
        zigzag >>= 7
    return bytes([*found, zigzag])
