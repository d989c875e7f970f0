"""Record batches as bytes (KIP-98, ``DefaultRecordBatch``): their header is read and rewritten, the records stay as
they are, compressed or not.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import google_crc32c

_HEADER: Final = struct.Struct(">qiibIhiqqqhii")
"""Base offset, length, partition leader epoch, magic, CRC, attributes, last offset delta, base and maximum timestamp,
producer id, producer epoch, base sequence, number of records."""
HEADER_BYTES: Final = _HEADER.size
_BEFORE_LENGTH: Final = 12
_AFTER_CRC: Final = 21
_MAGIC: Final = 2
_MAGIC_AT: Final = 16

CODEC: Final = 0x07
_LOG_APPEND_TIME: Final = 0x08
_TRANSACTIONAL: Final = 0x10
_CONTROL: Final = 0x20
_DELETE_HORIZON: Final = 0x40
"""A note of the broker that compacts: the base timestamp is when tombstones may go. Records count from it as ever."""
_KNOWN: Final = CODEC | _LOG_APPEND_TIME | _TRANSACTIONAL | _CONTROL | _DELETE_HORIZON
_NEWEST_CODEC: Final = 4

_SEQUENCES: Final = 1 << 31
_OFFSETS: Final = 1 << 63


class Unreadable(ValueError):
    """Bytes that are no record batch, a damaged one, or one with something in it that is not understood."""


@dataclass(frozen=True, slots=True)
class Stamp:
    """Whose batch it is: what the broker of an idempotent producer goes by."""

    producer_id: int
    epoch: int
    sequence: int


@dataclass(frozen=True, slots=True)
class Batch:
    """One batch. ``count`` is less than ``span`` where compaction removed records, and 0 where it removed all."""

    base_offset: int
    span: int
    """Offsets from the first to the last record, as the batch had them when it was written."""
    attributes: int
    base_timestamp: int
    max_timestamp: int
    stamp: Stamp
    count: int
    data: bytes

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.span

    @property
    def codec(self) -> int:
        return self.attributes & CODEC

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & _CONTROL)

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & _TRANSACTIONAL)

    @property
    def has_log_append_time(self) -> bool:
        """Its records' timestamps are the batch's maximum, whatever they say of themselves."""
        return bool(self.attributes & _LOG_APPEND_TIME)

    @property
    def records(self) -> bytes:
        """What follows the header."""
        return self.data[HEADER_BYTES:]


def read_batches(data: bytes) -> Iterator[Batch]:
    """The whole batches of a Fetch answer, which may end within one. Raises ``Unreadable``."""
    at = 0
    while at + HEADER_BYTES <= len(data):
        _check_format(data, at)
        fields = _HEADER.unpack_from(data, at)
        length = fields[1] + _BEFORE_LENGTH
        if length < HEADER_BYTES:
            raise Unreadable(f"the record batch at byte {at} has {length} bytes, fewer than its header")
        if at + length > len(data):
            return
        yield _batch(fields, data[at : at + length])
        at += length
    _check_format(data, at)


def _check_format(data: bytes, at: int) -> None:
    """Of what begins there, if it has that much. A message of an older format may be shorter than a header, and would
    be taken for a batch that is not whole."""
    if at + _MAGIC_AT < len(data) and data[at + _MAGIC_AT] != _MAGIC:
        where = f"the record batch at offset {int.from_bytes(data[at : at + 8], 'big', signed=True)}"
        raise Unreadable(
            f"{where} has format {data[at + _MAGIC_AT]}; only format 2 (Kafka 0.11 and later) is supported"
        )


def _batch(fields: tuple[int, ...], data: bytes) -> Batch:
    base, _, _, _, crc, attributes, last_delta, base_time, max_time, producer_id, epoch, sequence, count = fields
    where = f"the record batch at offset {base}"
    if google_crc32c.value(data[_AFTER_CRC:]) != crc:
        raise Unreadable(f"{where} is damaged: its checksum is wrong")
    if attributes & ~_KNOWN or attributes & CODEC > _NEWEST_CODEC:
        raise Unreadable(f"{where} has unknown attributes: {attributes:#06x}")
    if base < 0 or last_delta < 0 or not 0 <= count <= last_delta + 1 or base + last_delta + 1 >= _OFFSETS:
        raise Unreadable(
            f"{where} claims {count} records and a last offset that is {last_delta} higher, which is impossible"
        )
    stamp = Stamp(producer_id, epoch, sequence)
    return Batch(base, last_delta + 1, attributes, base_time, max_time, stamp, count, data)


def write_batch(
    records: bytes, count: int, *, codec: int, base_timestamp: int, max_timestamp: int, stamp: Stamp | None = None
) -> bytes:
    """A batch of ``count`` records at consecutive offsets; ``records``: compressed as ``codec`` says."""
    stamp = stamp or Stamp(-1, -1, -1)
    of_producer = (stamp.producer_id, stamp.epoch, stamp.sequence)
    head = _HEADER.pack(
        0,
        HEADER_BYTES - _BEFORE_LENGTH + len(records),
        -1,
        _MAGIC,
        0,
        codec,
        count - 1,
        base_timestamp,
        max_timestamp,
        *of_producer,
        count,
    )
    return _sealed(head, records)


def restamped(data: bytes, stamp: Stamp, *, transactional: bool = False) -> bytes:
    """The same records as another producer's batch, without what a broker notes: a broker gives them their offsets.

    The batch has to be one that ``read_batches`` yielded, or ``write_batch`` made: its checksum is not looked at.
    """
    fields = list(_HEADER.unpack_from(data))
    fields[0], fields[2], fields[5] = 0, -1, fields[5] & CODEC | (_TRANSACTIONAL if transactional else 0)
    fields[9:12] = stamp.producer_id, stamp.epoch, stamp.sequence
    return _sealed(_HEADER.pack(*fields), data[HEADER_BYTES:])


def sequence_after(sequence: int, count: int) -> int:
    """``DefaultRecordBatch.incrementSequence``: after the largest comes 0."""
    return (sequence + count) % _SEQUENCES


def _sealed(head: bytes, records: bytes) -> bytes:
    crc = google_crc32c.extend(google_crc32c.value(head[_AFTER_CRC:]), records)
    return b"".join((head[: _AFTER_CRC - 4], crc.to_bytes(4, "big"), head[_AFTER_CRC:], records))
