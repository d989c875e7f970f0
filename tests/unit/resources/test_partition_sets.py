from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.resources.partitions import (
    MAX_PARTITION,
    format_partitions,
    numbers_of,
    partition_ranges,
    ranges_of,
    read_entries,
)


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ([0], {0}),
        ([0, "3-5"], {0, 3, 4, 5}),
        ([5, "0-2", 1], {0, 1, 2, 5}),
        (["7-7"], {7}),
        (["7", 99999], {7, 99_999}),
        ("0", {0}),
        ("5,0-2,1", {0, 1, 2, 5}),
    ],
)
def test_sets_are_read(written: Any, expected: set[int]) -> None:
    assert numbers_of(read_entries(written)) == expected


def test_text_of_earlier_versions_means_the_same_as_the_list() -> None:
    assert read_entries("0,3-5,07") == read_entries([0, "3-5", "7"]) == (0, "3-5", 7)


@pytest.mark.parametrize("text", ["", "a", "0, 3", "3-1", "-1", "0-", "0,,1", "0-2-4", "100000", "*", "0\n"])
def test_a_refusal_says_what_is_accepted(text: str) -> None:
    for written in (text, [text], [0, text]):
        with pytest.raises(ValueError, match=r'such as \[0, 1, "3-5"\]'):
            read_entries(written)


@pytest.mark.parametrize("written", [3, True, {}, None, [], [True], [-1], [100_000], [[0]], [None], [1.0], [0] * 65])
def test_other_values_are_refused(written: Any) -> None:
    with pytest.raises(ValueError, match="must be a list of at most 64"):
        read_entries(written)


def test_numbers_in_a_message() -> None:
    assert format_partitions([5, 3, 4, 0, 4]) == "0,3-5"
    assert format_partitions([]) == ""
    assert partition_ranges([1, 2, 9]) == (range(1, 3), range(9, 10))


@given(st.sets(st.integers(0, MAX_PARTITION), min_size=1, max_size=60))
def test_what_was_written_reads_the_same(numbers: set[int]) -> None:
    assert numbers_of(read_entries(format_partitions(numbers))) == numbers
    assert numbers_of(read_entries(sorted(numbers))) == numbers


def test_each_number_is_in_one_range_however_often_it_is_named() -> None:
    assert ranges_of(("4-6", 3, "0-1", "5-9", 9, 12)) == (range(2), range(3, 10), range(12, 13))
    assert ranges_of(("0-99999",) * 64) == (range(100_000),)
