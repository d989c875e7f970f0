"""What two clusters have at the same offsets, compared where it is not the end."""

from __future__ import annotations

from dataclasses import replace

import pytest

from support.mirror.written import Written, batch, marker, placed, rows
from tidegate.mirror.batches import Unreadable
from tidegate.mirror.comparison import Sample, sample
from tidegate.mirror.source import Aborted, SourceRead

THREE = dict(enumerate(rows(3)))
OURS, THEIRS = (900, 3, 40), (7, 0, 0)


def read(*batches: bytes, offset: int = 0, start: int = 0, end: int = 100) -> SourceRead:
    return SourceRead(offset, start, end, data=b"".join(batches))


def test_batches_that_are_the_same_need_not_be_taken_apart() -> None:
    source, copy = read(batch(0, THREE, 3, producer=THEIRS)), read(batch(0, THREE, 3, producer=OURS))

    assert sample(source, copy) == (found := sample(copy, source))
    assert (found.records, found.reason) == (3, None)


def test_records_are_compared_however_they_are_batched_and_compressed() -> None:
    one, two, three = THREE.values()
    apart = read(batch(0, {0: one}, 1, codec=4), batch(1, {0: two, 1: three}, 2, codec=1))

    assert sample(read(batch(0, THREE, 3)), apart).records == 3


@pytest.mark.parametrize("field", ["key", "value", "headers", "timestamp"])
def test_a_record_that_differs_is_named(field: str) -> None:
    other: dict[str, object] = {"key": b"?", "value": b"?", "headers": (("h", b"?"),), "timestamp": 5}
    changed = {**THREE, 1: replace(THREE[1], **{field: other[field]})}

    found = sample(read(batch(0, THREE, 3)), read(batch(0, changed, 3)))

    assert (found.records, found.reason) == (0, "the records at offset 1 differ")


def test_a_record_that_one_of_them_lacks_was_compacted() -> None:
    """Whatever the topic's settings are by now: they may have been others when it was."""
    whole, thin, gone = read(batch(0, THREE, 3)), read(batch(0, {0: THREE[0], 2: THREE[2]}, 3)), batch(2, THREE, 3)

    assert sample(whole, thin) == sample(thin, whole) == Sample(2)
    assert sample(read(batch(0, {0: THREE[0]}, 2), gone), read(gone)) == Sample(3)


def test_a_record_is_not_removed_by_what_comes_in_its_place() -> None:
    whole = read(*(batch(offset, {0: record}, 1) for offset, record in THREE.items()))
    other = read(batch(0, {0: THREE[0]}, 1), marker(1, 9, 0, commit=True), batch(2, {0: THREE[2]}, 1))

    assert sample(whole, other).reason == "the source has a record at offset 1, the target none"
    assert sample(other, whole).reason == "the target has a record at offset 1, the source none"


def test_what_one_replica_of_the_source_has_compacted_its_next_leader_may_still_have() -> None:
    """Replicas compact each for itself: what was a gap as it was copied is none after a change of the leader."""
    whole = read(*(batch(offset, {0: record}, 1) for offset, record in THREE.items()))
    copied = read(batch(0, {0: THREE[0]}, 1), marker(1, 9, 0, commit=True), batch(2, {0: THREE[2]}, 1))
    other = read(batch(0, {0: THREE[0]}, 1), batch(1, {0: THREE[0]}, 1), batch(2, {0: THREE[2]}, 1))

    assert sample(whole, copied, compacts=True) == sample(copied, whole, compacts=True) == Sample(2)
    assert sample(whole, other, compacts=True).reason == "the records at offset 1 differ"


@pytest.mark.parametrize("commits", [True, False])
def test_an_aborted_transaction_is_seen_by_nobody(commits: bool) -> None:
    data = batch(0, THREE, 3, producer=THEIRS, transactional=True) + marker(3, 7, 0, commit=commits)
    aborted = () if commits else (Aborted(7, 0),)
    source, copy = SourceRead(0, 0, 100, aborted, data), read(batch(0, THREE, 3))

    found = sample(source, copy)

    assert found == (Sample(3) if commits else Sample(0, "the target has a record at offset 0, the source none"))


def test_a_gap_of_the_source_is_filled_by_what_nobody_sees() -> None:
    source = read(batch(0, {0: THREE[0]}, 1), marker(1, 7, 0, commit=True), batch(2, {0: THREE[2]}, 1))
    copy = read(batch(0, {0: THREE[0]}, 1), marker(1, 900, 4, commit=False), batch(2, {0: THREE[2]}, 1))

    assert sample(source, copy).records == 2


def test_only_what_both_have_told_of_is_compared() -> None:
    """One answer is longer, and either log may begin later by now."""
    source = read(batch(0, THREE, 3), batch(3, THREE, 3), batch(6, THREE, 3))
    copy = read(batch(0, {0: Written(0, b"deleted", None)}, 1), batch(1, {0: THREE[1], 1: THREE[2]}, 2), start=1)

    assert sample(source, copy).records == 2
    assert sample(read(end=0), copy).records == 0
    assert sample(read(start=50), read(batch(0, THREE, 3))).records == 0
    inside = read(batch(0, THREE, 3), offset=2)
    assert sample(inside, inside).records == 0
    assert sample(inside, replace(inside, data=batch(0, THREE, 3, codec=2))).records == 1


def test_what_cannot_be_read_says_so() -> None:
    spoilt = bytearray(batch(0, THREE, 3, codec=1))
    spoilt[-3] ^= 0xFF

    with pytest.raises(Unreadable):
        sample(read(batch(0, THREE, 3)), read(placed(spoilt, 0)))
