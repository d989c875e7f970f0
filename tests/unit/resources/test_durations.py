from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.resources.durations import MAX, format_duration, parse_duration


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("90s", timedelta(seconds=90)),
        ("2h", timedelta(hours=2)),
        ("1h30m", timedelta(minutes=90)),
        ("200ms", timedelta(milliseconds=200)),
        ("1.5h", timedelta(minutes=90)),
        ("0s", timedelta(0)),
        ("3600000ms", timedelta(hours=1)),
        ("0.001ms", timedelta(microseconds=1)),
        ("1.005s", timedelta(seconds=1, milliseconds=5)),
        ("30m1h", timedelta(minutes=90)),
        ("87600h", MAX),
    ],
)
def test_go_durations_are_read_exactly(text: str, expected: timedelta) -> None:
    assert parse_duration(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "0",
        "90",
        "-1s",
        "+1s",
        "1d",
        "1us",
        "1 s",
        "s",
        "1.s",
        ".5s",
        "1.0005s",
        "PT1H",
        "87601h",
        "1h\n",
        "1m" * 17,
    ],
)
def test_a_refusal_says_what_is_accepted(text: str) -> None:
    with pytest.raises(ValueError, match=r"such as 90s, 2h, 1h30m, 200ms or 1\.5h"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (timedelta(0), "0s"),
        (timedelta(seconds=90), "1m30s"),
        (timedelta(days=2), "48h"),
        (timedelta(milliseconds=1500), "1s500ms"),
        (timedelta(microseconds=1500), "1.5ms"),
    ],
)
def test_the_canonical_text(value: timedelta, expected: str) -> None:
    assert format_duration(value) == expected


def test_a_negative_duration_has_no_text() -> None:
    with pytest.raises(ValueError, match="negative"):
        format_duration(timedelta(seconds=-1))


@given(st.timedeltas(min_value=timedelta(0), max_value=MAX))
def test_what_was_written_reads_the_same(value: timedelta) -> None:
    assert parse_duration(format_duration(value)) == value
