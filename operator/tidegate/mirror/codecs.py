"""Kafka's compression codecs, with an end to how much comes out: a few bytes can promise gigabytes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import cramjam

from tidegate.mirror.batches import Unreadable

NONE: Final = 0
GZIP: Final = 1
SNAPPY: Final = 2
LZ4: Final = 3
ZSTD: Final = 4

LARGEST: Final = 64 * 1024 * 1024
"""Bytes of one batch once it is decompressed."""
_FIRST_GUESS: Final = 16
_TOO_SMALL: Final = "write whole buffer"
"""What cramjam says of the buffer; all else is said of the data."""
_XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
_XERIAL_HEAD: Final = 16
"""Magic, version and oldest compatible version of snappy-java's framing; blocks follow, each after its length."""


def decompressed(codec: int, data: bytes, largest: int = LARGEST) -> bytes:
    """Raises ``Unreadable`` where it is damaged, or larger than ``largest`` bytes."""
    if codec == NONE:
        if len(data) > largest:
            raise Unreadable(f"its records take more than {largest >> 20} MiB")
        return data
    try:
        if codec == SNAPPY:
            return _unsnapped(data, largest)
        into: Callable[[bytes, bytearray], int] = {
            GZIP: cramjam.gzip.decompress_into,
            LZ4: cramjam.lz4.decompress_into,
            ZSTD: cramjam.zstd.decompress_into,
        }[codec]
        return _grown(into, data, largest)
    except (cramjam.DecompressionError, KeyError) as error:
        raise Unreadable(f"its records can't be decompressed (codec {codec}): {error}") from error


def _grown(into: Callable[[bytes, bytearray], int], data: bytes, largest: int) -> bytes:
    """Into a buffer that is made larger until all fits; how large is not known before."""
    size = min(largest, max(1 << 16, _FIRST_GUESS * len(data)))
    while True:
        buffer = bytearray(size)
        try:
            return bytes(memoryview(buffer)[: into(data, buffer)])
        except cramjam.DecompressionError as error:
            if _TOO_SMALL not in str(error):
                raise
            if size >= largest:
                raise Unreadable(
                    f"its records take more than {largest >> 20} MiB once they are decompressed"
                ) from error
        size = min(largest, size * 8)


def _unsnapped(data: bytes, largest: int) -> bytes:
    if not data.startswith(_XERIAL_MAGIC):
        return _block(data, largest)
    blocks, at, left = [], _XERIAL_HEAD, largest
    while at < len(data):
        length = int.from_bytes(data[at : at + 4], "big")
        block = data[at + 4 : at + 4 + length]
        if not length or len(block) < length:
            raise Unreadable("its records end in the middle of a Snappy block")
        blocks.append(_block(block, left))
        left -= len(blocks[-1])
        at += 4 + length
    return b"".join(blocks)


def _block(data: bytes, largest: int) -> bytes:
    if cramjam.snappy.decompress_raw_len(data) > largest:
        raise Unreadable(f"its records take more than {LARGEST >> 20} MiB once they are decompressed")
    return bytes(cramjam.snappy.decompress_raw(data))


def compressed(codec: int, data: bytes) -> bytes:
    match codec:
        case 1:
            return bytes(cramjam.gzip.compress(data, level=6))
        case 2:
            block = bytes(cramjam.snappy.compress_raw(data))
            versions = (1).to_bytes(4, "big") * 2
            return b"".join((_XERIAL_MAGIC, versions, len(block).to_bytes(4, "big"), block))
        case 3:
            return bytes(cramjam.lz4.compress(data))
        case 4:
            return bytes(cramjam.zstd.compress(data, level=3))
        case _:
            return data
