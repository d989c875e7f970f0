"""What is copied of a source's log, and where it has gaps."""

from __future__ import annotations

import random
from itertools import pairwise

import cramjam
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from support.mirror.source_log import SourceLog
from support.mirror.written import LOG_APPEND_TIME, Written, batch, marker, placed, records_in, rows
from tidegate.mirror.batches import read_batches, write_batch
from tidegate.mirror.codecs import ZSTD
from tidegate.mirror.records import read_records, rebuilt
from tidegate.mirror.source import Aborted, Copy, Gap, Piece, SourceRead, pieces


def cut(read: SourceRead) -> list[tuple[int, int, bool]]:
    """Each piece: from, until, and whether it is copied."""
    return [(piece.base, piece.until, isinstance(piece, Copy)) for piece in pieces(read)]


def log(*batches: bytes) -> bytes:
    return b"".join(batches)


TWO = dict(enumerate(rows(2)))
OPEN = (9, 0, 0)


def test_batches_pass_as_they_are() -> None:
    data = batch(10, TWO, 2, codec=4)

    [copy] = pieces(SourceRead(10, 0, 12, data=data))

    assert copy == Copy(10, 2, data)


@pytest.mark.parametrize("commit", [True, False])
def test_markers_are_gaps_and_so_is_what_was_aborted(commit: bool) -> None:
    data = log(batch(0, TWO, 2), batch(2, TWO, 2, producer=OPEN, transactional=True), marker(4, 9, 0, commit=commit))
    aborted = () if commit else (Aborted(9, 2),)

    found = cut(SourceRead(0, 0, 5, aborted, data))

    assert found == ([(0, 2, True), (2, 4, True), (4, 5, False)] if commit else [(0, 2, True), (2, 5, False)])


def test_a_producer_may_commit_after_it_has_aborted() -> None:
    one, two = (batch(base, TWO, 2, producer=OPEN, transactional=True) for base in (0, 3))
    data = log(one, marker(2, 9, 0, commit=False), two, marker(5, 9, 0, commit=True))

    found = cut(SourceRead(0, 0, 6, (Aborted(9, 0),), data))

    assert found == [(0, 3, False), (3, 5, True), (5, 6, False)]


def test_nothing_is_read_beyond_the_last_stable_offset() -> None:
    data = log(batch(0, TWO, 2), batch(2, TWO, 2, producer=OPEN, transactional=True))

    assert cut(SourceRead(0, 0, 2, (), data)) == [(0, 2, True)]


def test_what_compaction_left_is_cut_into_runs() -> None:
    kept = {n: Written(50 + n, b"k", b"v%d" % n) for n in (1, 2, 6)}

    found = pieces(SourceRead(100, 0, 110, data=batch(100, kept, 9, codec=1)))

    assert cut(SourceRead(100, 0, 110, data=batch(100, kept, 9, codec=1))) == [
        (100, 101, False),
        (101, 103, True),
        (103, 106, False),
        (106, 107, True),
        (107, 109, False),
    ]
    copies = [records_in(placed(piece.data, piece.base)) for piece in found if isinstance(piece, Copy)]
    assert copies == [{101: kept[1], 102: kept[2]}, {106: kept[6]}]


def test_a_batch_is_cut_where_reading_begins_within_it() -> None:
    found = pieces(SourceRead(11, 11, 13, data=batch(10, dict(enumerate(rows(3))), 3)))

    [copy] = found
    assert isinstance(copy, Copy)
    assert records_in(placed(copy.data, copy.base)) == {11: rows(3)[1], 12: rows(3)[2]}


def test_what_is_written_anew_is_no_larger_than_it_was() -> None:
    """Its producer compressed it better than is done here, up to what brokers take."""
    chosen = random.Random(7)
    words = [chosen.randbytes(chosen.randrange(3, 9)) for _ in range(3000)]
    content = {n: Written(n, b"k", b" ".join(chosen.choices(words, k=150))) for n in range(300)}
    [plain] = read_batches(batch(0, content, 300))
    times = {"base_timestamp": plain.base_timestamp, "max_timestamp": plain.max_timestamp}
    written = write_batch(bytes(cramjam.zstd.compress(plain.records, level=19)), 300, codec=ZSTD, **times)
    [read] = read_batches(placed(written, 0, extra=LOG_APPEND_TIME))
    assert len(rebuilt(read_records(read), ZSTD)) > len(written) > 64 * 1024

    found = pieces(SourceRead(0, 0, 300, data=read.data))

    copied: dict[int, Written] = {}
    for piece in found:
        assert isinstance(piece, Copy)
        assert len(piece.data) <= len(written)
        copied |= records_in(placed(piece.data, piece.base))
    assert copied == {n: Written(299, one.key, one.value) for n, one in content.items()}


def test_an_emptied_batch_and_what_is_missing_before_it_are_one_gap() -> None:
    data = log(batch(5, {}, 3), batch(10, TWO, 2))

    assert cut(SourceRead(0, 0, 12, data=data)) == [(0, 10, False), (10, 12, True)]


@given(st.integers(0, 2**32 - 1), st.booleans())
@example(62605, True)  # compaction took the last batch before an open transaction: its end is a gap later
def test_pieces_follow_each_other_and_hold_all_that_is_visible(seed: int, compacts: bool) -> None:
    rnd = random.Random(seed)
    source = SourceLog(rnd, compacts=compacts, trims=True)
    for _ in range(40):
        source.grow()
    at, found = source.start, list[Piece]()
    while read_on := pieces(source.read(at, rnd.randint(1, 4))):
        found += read_on
        at = found[-1].until

    assert at == source.last_stable or not source.read(at, 4).data
    assert all(one.until == two.base for one, two in pairwise(found))
    copied: dict[int, Written] = {}
    for piece in found:
        if isinstance(piece, Copy):
            copied |= records_in(placed(piece.data, piece.base))
    assert copied == source.visible()
    assert not any(isinstance(one, Gap) and one.base >= one.until for one in found)
