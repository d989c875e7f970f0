"""Record batches as brokers hold them, written and read by aiokafka and not by the code under test."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import google_crc32c
from aiokafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder

BASE_OFFSET = struct.Struct(">q")
ATTRIBUTES_AT, CRC_AT, AFTER_CRC = 21, 17, 21
LOG_APPEND_TIME, CONTROL, DELETE_HORIZON = 0x08, 0x20, 0x40

Headers = tuple[tuple[str, bytes | None], ...]


@dataclass(frozen=True, slots=True)
class Written:
    """A record as a consumer sees it."""

    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()


def batch(
    base: int,
    records: Mapping[int, Written],
    span: int,
    *,
    codec: int = 0,
    producer: tuple[int, int, int] = (-1, -1, -1),
    transactional: bool = False,
    extra: int = 0,
) -> bytes:
    """``records`` by offset from ``base``; ``span``: of the offsets that the batch stands for."""
    builder = DefaultRecordBatchBuilder(2, codec, transactional, *producer, 1 << 24)
    for offset, record in records.items():
        added = builder.append(offset, record.timestamp, record.key, record.value, list(record.headers))
        assert added is not None
    data = bytearray(builder.build())
    struct.pack_into(">i", data, 23, span - 1)
    if not records:
        struct.pack_into(">qq", data, 27, 0, 0)
    return placed(data, base, extra=extra)


def placed(data: bytes | bytearray, base: int, *, extra: int = 0) -> bytes:
    """A batch where a broker has put it."""
    out = bytearray(data)
    BASE_OFFSET.pack_into(out, 0, base)
    (attributes,) = struct.unpack_from(">h", out, ATTRIBUTES_AT)
    struct.pack_into(">h", out, ATTRIBUTES_AT, attributes | extra)
    return sealed(out)


def sealed(data: bytearray) -> bytes:
    """With the checksum that it should have."""
    struct.pack_into(">I", data, CRC_AT, google_crc32c.value(bytes(data[AFTER_CRC:])))
    return bytes(data)


def marker(base: int, producer_id: int, epoch: int, *, commit: bool) -> bytes:
    """``EndTransactionMarker``."""
    key, value = struct.pack(">hh", 0, commit), struct.pack(">hi", 0, 0)
    control = {0: Written(0, key, value)}
    return batch(base, control, 1, producer=(producer_id, epoch, -1), transactional=True, extra=CONTROL)


def records_in(data: bytes) -> dict[int, Written]:
    """The records of one batch, by offset. Its checksum has to be right."""
    found = DefaultRecordBatch(data)
    assert found.validate_crc()
    return {
        record.offset: Written(record.timestamp, record.key, record.value, tuple(record.headers)) for record in found
    }


def rows(count: int, value: bytes = b"value", start: int = 0) -> Sequence[Written]:
    return [Written(1000 + n, b"key", b"%b %d" % (value, start + n)) for n in range(count)]
