"""A pattern of names is anybody's to write: none takes long to be matched, whatever name it is matched against."""

from __future__ import annotations

import time

import pytest

from tidegate.kafka.names import is_allowed, matches, overlap

LONGEST_NAME = 255


@pytest.mark.parametrize(
    "pattern",
    [
        pytest.param("a*" * 127, id="a star after each letter"),
        pytest.param("*" * 254 + "b", id="stars alone, and an end that is not there"),
        pytest.param("*a" * 126 + "*b", id="an end that is not there"),
        pytest.param("*" + "a" * 120 + "*" + "a" * 120 + "b*", id="long parts that nearly match"),
    ],
)
def test_the_worst_pattern_takes_less_than_a_millisecond(pattern: str) -> None:
    name = "a" * LONGEST_NAME
    began = time.process_time()
    for _ in range(100):
        matches(name, pattern)
        is_allowed(name, [pattern])
        overlap(pattern, "*" + "a" * 250 + "*c")
    assert time.process_time() - began < 0.3


@pytest.mark.parametrize("name", ["paymentsX", "payments-", "PAYMENTS", "xpayments", "payments\n"])
def test_nothing_but_a_star_stands_for_anything(name: str) -> None:
    for pattern in ("payments", "payment[s]", "payments?", "payments.", "(payments|.*)", "^payments$"):
        assert matches(name, pattern) is (name == pattern)
