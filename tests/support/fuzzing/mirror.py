"""Decoders of what a mirror copies: batches that somebody's producers have written, as their brokers keep them."""

from __future__ import annotations

import struct
from typing import Final

import google_crc32c

from support.fuzzing.target import OFFSET_MAX, NoInput, Target
from support.mirror.written import AFTER_CRC, CONTROL, CRC_AT, Written, batch
from tidegate.mirror.batches import Batch, Unreadable, read_batches
from tidegate.mirror.records import Record, ends_by_abort, read_records

_WRITTEN: Final = {
    0: Written(1_000, b"key", b"value" * 20, (("name", b"value"), ("empty", None))),
    1: Written(1_001, None, None),
    3: Written(1_003, b"", b"x" * 300),
}
_BATCHES: Final = tuple(batch(70, _WRITTEN, 5, codec=codec) for codec in range(5))
_MARKER: Final = batch(9, {0: Written(5, b"\x00\x00\x00\x01", b"\x00\x00\x00\x00\x00\x00")}, 1, extra=CONTROL)


def _records(data: bytes) -> list[tuple[Batch, list[Record]]]:
    """Of one batch with a checksum that is right, as brokers make sure."""
    if len(data) < AFTER_CRC:
        raise NoInput
    whole = bytearray(data)
    struct.pack_into(">I", whole, CRC_AT, google_crc32c.value(bytes(whole[AFTER_CRC:])))
    found = [(each, read_records(each)) for each in read_batches(bytes(whole))]
    for each, _ in found:
        if each.is_control:
            ends_by_abort(each)
    return found


def _check_batches(read: list[Batch]) -> None:
    for each in read:
        assert 0 <= each.base_offset < each.next_offset <= OFFSET_MAX
        assert 0 <= each.count <= each.span


def _check_records(read: list[tuple[Batch, list[Record]]]) -> None:
    _check_batches([each for each, _ in read])
    for each, records in read:
        offsets = [record.offset for record in records]
        assert len(offsets) == each.count
        assert offsets == sorted(set(offsets))
        assert all(each.base_offset <= offset < each.next_offset for offset in offsets)


TARGETS: Final[tuple[Target, ...]] = (
    Target(
        "mirror-batches",
        ("tidegate.mirror.batches:read_batches", "tidegate.mirror.batches:_check_format"),
        (b"".join(_BATCHES), _MARKER),
        lambda data: [*read_batches(data)],
        (Unreadable,),
        _check_batches,
    ),
    Target(
        "mirror-records",
        ("tidegate.mirror.records:read_records", "tidegate.mirror.codecs:_unsnapped"),
        (*_BATCHES, _MARKER),
        _records,
        (Unreadable,),
        _check_records,
    ),
)
