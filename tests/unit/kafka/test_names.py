"""Patterns of names: what they match, and which have a name in common."""

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.kafka.names import matches, overlap

PATTERN = st.text("ab*", max_size=4)
NAMES = ["".join(letters) for length in range(8) for letters in product("ab", repeat=length)]


@given(PATTERN, PATTERN)
def test_patterns_overlap_where_some_name_matches_both(one: str, other: str) -> None:
    # Two patterns of four characters meet in a name of at most seven, if in any.
    assert overlap(one, other) == any(matches(name, one) and matches(name, other) for name in NAMES)


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ("payments-*", "*-eu", True),
        ("payments-*", "refunds-*", False),
        ("*-eu", "*-us", False),
        ("payments-*", "payments-eu", True),
        ("payments", "payments", True),
        ("payments", "payments-eu", False),
        ("a*b*c", "ab*bc", True),
    ],
)
def test_ends_decide(one: str, other: str, expected: bool) -> None:
    assert overlap(one, other) is overlap(other, one) is expected


def test_no_pattern_takes_long() -> None:
    assert not overlap("*a" * 50_000 + "b", "*a" * 50_000)
