import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.resources.partitions import MAX_PARTITION, format_partitions, parse_partitions, partition_ranges


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0", {0}),
        ("0,3-5", {0, 3, 4, 5}),
        ("5,0-2,1", {0, 1, 2, 5}),
        ("7-7", {7}),
        ("99999", {99_999}),
    ],
)
def test_sets_are_read(text: str, expected: set[int]) -> None:
    assert parse_partitions(text) == expected


@pytest.mark.parametrize(
    "text", ["", "a", "0, 3", "3-1", "-1", "0-", "0,,1", "0-2-4", "100000", "*", "0\n", "0," * 600 + "0"]
)
def test_a_refusal_says_what_is_accepted(text: str) -> None:
    with pytest.raises(ValueError, match="such as 0,3-5"):
        parse_partitions(text)


def test_the_canonical_text() -> None:
    assert format_partitions([5, 3, 4, 0, 4]) == "0,3-5"
    assert format_partitions([]) == ""
    assert partition_ranges([1, 2, 9]) == (range(1, 3), range(9, 10))


@given(st.sets(st.integers(0, MAX_PARTITION), min_size=1, max_size=60))
def test_what_was_written_reads_the_same(numbers: set[int]) -> None:
    assert parse_partitions(format_partitions(numbers)) == numbers
