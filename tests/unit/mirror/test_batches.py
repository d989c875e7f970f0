"""Headers of record batches: read, rewritten, and refused where something in them is not understood."""

from __future__ import annotations

import contextlib
import struct

import pytest
from aiokafka.record.default_records import DefaultRecordBatch
from aiokafka.record.legacy_records import LegacyRecordBatchBuilder
from hypothesis import given
from hypothesis import strategies as st

from support.mirror.written import (
    CONTROL,
    DELETE_HORIZON,
    LOG_APPEND_TIME,
    batch,
    marker,
    placed,
    records_in,
    rows,
    sealed,
)
from tidegate.mirror.batches import Stamp, Unreadable, read_batches, restamped, sequence_after

THREE = dict(enumerate(rows(3)))


def test_a_header_is_read() -> None:
    data = batch(70, THREE, 5, codec=4, producer=(9, 2, 14), transactional=True)

    [found] = read_batches(data)

    assert (found.base_offset, found.span, found.count, found.next_offset) == (70, 5, 3, 75)
    assert (found.codec, found.stamp, found.is_transactional) == (4, Stamp(9, 2, 14), True)
    assert (found.base_timestamp, found.max_timestamp) == (1000, 1002)
    assert not found.is_control
    assert not found.has_log_append_time


def test_what_fetch_cut_off_is_left_out() -> None:
    first, second = batch(0, THREE, 3), batch(3, THREE, 3)

    for length in range(len(second)):
        assert [one.base_offset for one in read_batches(first + second[:length])] == [0]


@pytest.mark.parametrize("codec", range(5))
def test_a_batch_gets_another_stamp_and_keeps_its_records(codec: int) -> None:
    records = dict(enumerate([*rows(40), *rows(1, value=b"")]))
    data = batch(70, records, 41, codec=codec, producer=(9, 2, 14), transactional=True, extra=DELETE_HORIZON)

    again = restamped(data, Stamp(77, 3, 2**31 - 1))

    read = DefaultRecordBatch(placed(again, 500))
    assert records_in(placed(again, 500)) == {500 + n: record for n, record in records.items()}
    assert (read.producer_id, read.producer_epoch, read.base_sequence) == (77, 3, 2**31 - 1)
    assert not read.is_transactional
    assert struct.unpack_from(">i", again, 12) == (-1,)
    assert struct.unpack_from(">h", again, 21) == (codec,)
    assert again[61:] == data[61:]


@pytest.mark.parametrize(
    ("at", "wrong", "said"),
    [
        (16, b"\x01", "format 1"),
        (8, struct.pack(">i", 40), "fewer than its header"),
        (8, struct.pack(">i", -1), "fewer than its header"),
        (22, b"\x05", "attributes"),
        (22, b"\x80", "attributes"),
        (21, b"\x01", "attributes"),
        (57, struct.pack(">i", 4), "claims 4 records"),
        (57, struct.pack(">i", -1), "claims -1 records"),
        (23, struct.pack(">i", -1), "claims 3 records"),
        (23, struct.pack(">i", 1), "claims 3 records"),
        (0, struct.pack(">q", -1), "claims 3 records"),
        (0, struct.pack(">q", 2**63 - 2), "claims 3 records"),
    ],
)
def test_what_is_not_understood_is_refused(at: int, wrong: bytes, said: str) -> None:
    data = bytearray(batch(70, THREE, 3))
    data[at : at + len(wrong)] = wrong

    with pytest.raises(Unreadable, match=said):
        list(read_batches(sealed(data)))


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("before", [b"", batch(0, THREE, 3)])
def test_a_message_of_an_older_format_is_refused_however_short_it_is(magic: int, before: bytes) -> None:
    """As a log's only one, or its last: nothing comes behind it."""
    message = LegacyRecordBatchBuilder(magic, 0, 1 << 16)
    message.append(3, 1000, b"k", b"v")

    with pytest.raises(Unreadable, match=f"at offset 3 has format {magic}"):
        list(read_batches(before + bytes(message.build())))


@given(st.integers(17, len(batch(70, THREE, 3)) - 1), st.integers(0, 7))
def test_a_flipped_bit_is_noticed(place: int, bit: int) -> None:
    data = bytearray(batch(70, THREE, 3))
    data[place] ^= 1 << bit

    with pytest.raises(Unreadable):
        list(read_batches(bytes(data)))


@given(st.binary(max_size=300))
def test_anything_is_read_or_refused(data: bytes) -> None:
    with contextlib.suppress(Unreadable):
        assert sum(len(one.data) for one in read_batches(data)) <= len(data)


def test_markers_and_broker_times_are_told_apart() -> None:
    [ended] = read_batches(marker(5, 9, 1, commit=True))
    [stamped] = read_batches(batch(6, THREE, 3, extra=LOG_APPEND_TIME))

    assert (ended.is_control, ended.stamp.epoch, ended.attributes & CONTROL) == (True, 1, CONTROL)
    assert stamped.has_log_append_time


@pytest.mark.parametrize(("sequence", "count", "following"), [(0, 3, 3), (2**31 - 1, 1, 0), (2**31 - 2, 5, 3)])
def test_after_the_largest_sequence_number_comes_0(sequence: int, count: int, following: int) -> None:
    assert sequence_after(sequence, count) == following
