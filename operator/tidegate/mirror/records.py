"""The records of a batch, where it cannot pass as it is: cut by compaction or by the log's start, or stamped with the
broker's time. Keys, values and headers stay bytes that nobody looks into.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from tidegate.mirror.batches import Batch, Unreadable, write_batch
from tidegate.mirror.codecs import ZSTD, compressed, decompressed

MOST_RECORDS: Final = 250_000
"""Of a batch that is taken apart: each takes some hundred bytes of memory, however short it is."""
FILLER_KEY: Final = b"tidegate.filler"
"""Of records that only take offsets, where the topic takes none without a key."""
_LONGEST_VARINT: Final = 10
_NULL: Final = b"\x01"
"""A length of −1."""


@dataclass(frozen=True, slots=True)
class Record:
    offset: int
    timestamp: int
    content: bytes
    """From the length of its key on: key, value, headers."""


def read_records(batch: Batch) -> list[Record]:
    """Raises ``Unreadable``, also of what would take too much memory."""
    where = f"the record batch at offset {batch.base_offset}"
    if batch.count > MOST_RECORDS:
        raise Unreadable(
            f"{where} has {batch.count} records; a batch that has to be rewritten may have {MOST_RECORDS}. Exclude the "
            "topic, or wait until the source has deleted the batch"
        )
    try:
        data = decompressed(batch.codec, batch.records)
    except Unreadable as error:
        raise Unreadable(f"{where} can't be rewritten: {error}") from error
    records, at, before = [], 0, batch.base_offset - 1
    for _ in range(batch.count):
        length, at = _number(data, at)
        end = at + length
        if not 0 < length <= len(data) - at:
            raise Unreadable(f"{where} has an invalid record of {length} bytes")
        time_delta, start = _number(data, at + 1)
        offset_delta, start = _number(data, start)
        offset = batch.base_offset + offset_delta
        if not before < offset < batch.next_offset or start > end:
            raise Unreadable(f"{where} has an invalid record at offset {offset}")
        timestamp = batch.max_timestamp if batch.has_log_append_time else batch.base_timestamp + time_delta
        records.append(Record(offset, timestamp, data[start:end]))
        at, before = end, offset
    if at != len(data):
        raise Unreadable(f"{where} has more than {batch.count} records")
    return records


def ends_by_abort(batch: Batch) -> bool:
    """Whether a control batch ends an aborted transaction; one that compaction emptied tells nothing any more."""
    if not batch.count:
        return False
    [record, *_] = read_records(batch)
    length, at = _number(record.content, 0)
    if length < 4 or len(record.content) < at + 4:
        raise Unreadable(f"the control record at offset {record.offset} has no type")
    return record.content[at + 2 : at + 4] == b"\x00\x00"


def rebuilt(records: Sequence[Record], codec: int) -> bytes:
    """A batch of records at consecutive offsets."""
    base = records[0].timestamp
    parts = []
    for place, record in enumerate(records):
        body = b"".join((b"\x00", _varint(record.timestamp - base), _varint(place), record.content))
        parts += [_varint(len(body)), body]
    times = [record.timestamp for record in records]
    data = compressed(codec, b"".join(parts))
    return write_batch(data, len(records), codec=codec, base_timestamp=base, max_timestamp=max(times))


@lru_cache(maxsize=4)
def filler(count: int, key: bytes | None, timestamp: int = 0) -> bytes:
    """A batch of records without a value, which only take offsets."""
    content = _filling(key)
    return rebuilt([Record(place, timestamp, content) for place in range(count)], ZSTD)


def fills(batch: Batch) -> bool:
    """Whether it is a ``filler``."""
    if batch.is_control or batch.codec != ZSTD or not batch.count or batch.base_timestamp or batch.max_timestamp:
        return False
    known = (_filling(None), _filling(FILLER_KEY))
    try:
        return all(record.content in known for record in read_records(batch))
    except Unreadable:  # a filler can always be read
        return False


def _filling(key: bytes | None) -> bytes:
    return (_NULL if key is None else _varint(len(key)) + key) + _NULL + b"\x00"


def _number(data: bytes, at: int) -> tuple[int, int]:
    """A zigzag varint, and where what follows it begins."""
    value = 0
    for shift in range(0, 7 * _LONGEST_VARINT, 7):
        if at >= len(data):
            break
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), at
    raise Unreadable("a record has a number that does not end")


def _varint(number: int) -> bytes:
    value = (number << 1) ^ (number >> 63)
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
