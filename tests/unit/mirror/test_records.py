"""Records that are read and written again: cut out of a batch, with the broker's time, compressed by anything."""

from __future__ import annotations

import contextlib
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.mirror.written import LOG_APPEND_TIME, Written, batch, marker, placed, records_in, rows, sealed
from tidegate.mirror import records as records_module
from tidegate.mirror.batches import Unreadable, read_batches
from tidegate.mirror.codecs import GZIP, LZ4, SNAPPY, ZSTD, compressed, decompressed
from tidegate.mirror.records import MOST_RECORDS, ends_by_abort, filler, read_records, rebuilt

CODECS = (0, GZIP, SNAPPY, LZ4, ZSTD)
BOMB = bytes(5_000_000)


@st.composite
def some_records(draw: st.DrawFn) -> dict[int, Written]:
    text = st.text(max_size=5)
    content = st.none() | st.binary(max_size=300)
    headers = st.lists(st.tuples(text, st.none() | st.binary(max_size=9)), max_size=3).map(tuple)
    record = st.builds(Written, st.integers(0, 2**45), content, content, headers)
    offsets = draw(st.sets(st.integers(0, 300), min_size=1, max_size=12))
    return {offset: draw(record) for offset in sorted(offsets)}


@settings(max_examples=40)
@given(some_records(), st.sampled_from(CODECS), st.sampled_from(CODECS))
def test_records_stay_what_they_are(records: dict[int, Written], codec: int, other: int) -> None:
    [read] = read_batches(batch(1000, records, 301, codec=codec))

    found = read_records(read)
    again = placed(rebuilt(found, other), 70)

    assert [record.offset - 1000 for record in found] == list(records)
    assert list(records_in(again)) == list(range(70, 70 + len(records)))
    assert list(records_in(again).values()) == list(records.values())


def test_the_brokers_time_becomes_the_records_own() -> None:
    [read] = read_batches(batch(0, {0: Written(5, b"k", None), 1: Written(9, b"k", None)}, 2, extra=LOG_APPEND_TIME))

    again = placed(rebuilt(read_records(read), 0), 0)

    assert [record.timestamp for record in records_in(again).values()] == [9, 9]


@pytest.mark.parametrize("commit", [True, False])
def test_an_abort_is_told_from_a_commit(commit: bool) -> None:
    [read] = read_batches(marker(5, 9, 1, commit=commit))

    assert ends_by_abort(read) is not commit


def test_a_marker_that_compaction_emptied_ends_nothing() -> None:
    [read] = read_batches(batch(5, {}, 1, extra=0x20))

    assert not ends_by_abort(read)


@pytest.mark.parametrize("key", [None, b"key"])
def test_fillers_take_offsets(key: bytes | None) -> None:
    found = records_in(placed(filler(1000, key), 0))

    assert set(found.values()) == {Written(0, key, None)}
    assert len(found) == 1000


@pytest.mark.parametrize("codec", CODECS[1:])
def test_what_grows_too_large_is_refused(codec: int) -> None:
    small = compressed(codec, BOMB)

    assert decompressed(codec, small) == BOMB
    with pytest.raises(Unreadable):
        decompressed(codec, small, largest=1_000_000)


def test_snappy_without_the_framing_of_java_is_read() -> None:
    framed = compressed(SNAPPY, BOMB)
    raw = framed[20:]

    assert decompressed(SNAPPY, raw) == BOMB
    with pytest.raises(Unreadable, match="in the middle of a Snappy block"):
        decompressed(SNAPPY, framed[:-1])


@pytest.mark.parametrize("codec", CODECS[1:])
@given(data=st.binary(max_size=200))
def test_what_is_not_compressed_is_refused(codec: int, data: bytes) -> None:
    with contextlib.suppress(Unreadable):
        assert isinstance(decompressed(codec, data), bytes)


@given(st.integers(61, len(batch(0, dict(enumerate(rows(3))), 3)) - 1), st.integers(0, 255))
def test_a_batch_that_was_made_up_is_read_or_refused(at: int, byte: int) -> None:
    data = bytearray(batch(0, dict(enumerate(rows(3))), 3))
    data[at] = byte
    [read] = read_batches(sealed(data))

    with contextlib.suppress(Unreadable):
        assert len(read_records(read)) == 3


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"\x02", "an invalid record of 1 bytes"),
        (b"\x00", "an invalid record of 0 bytes"),
        (b"\x80" * 11, "does not end"),
        (b"\x08\x00\x00\x02\x01", "an invalid record at offset 1"),
        (b"\x08\x00\x00\x00\x01\x00", "more than 1 records"),
    ],
)
def test_records_that_lie_about_themselves_are_refused(body: bytes, said: str) -> None:
    data = bytearray(batch(0, dict(enumerate(rows(1))), 1)[:61] + body)
    data[8:12] = (len(data) - 12).to_bytes(4, "big")
    [read] = read_batches(sealed(data))

    with pytest.raises(Unreadable, match=said):
        read_records(read)


def test_a_batch_of_too_many_records_is_not_taken_apart() -> None:
    """A few bytes of a compressed batch may be millions of records, each of which takes memory."""
    [many] = read_batches(filler(MOST_RECORDS + 1, None))

    with pytest.raises(Unreadable, match=r"the record batch at offset 0 has 250001 records.*may have 250000"):
        read_records(many)


@pytest.mark.parametrize("codec", CODECS)
def test_a_batch_that_would_be_too_large_is_named(codec: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records_module, "decompressed", partial(decompressed, largest=1 << 20))
    [large] = read_batches(batch(7, {0: Written(5, b"k", bytes(2 << 20))}, 1, codec=codec))

    with pytest.raises(Unreadable, match=r"the record batch at offset 7 can't be rewritten: its records take more"):
        read_records(large)
