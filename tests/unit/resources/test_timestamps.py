from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.resources.timestamps import format_timestamp, parse_timestamp

NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-11-20T12:00:00Z", NOON),
        ("2026-11-20T14:30:00+02:30", NOON),
        ("2026-11-20T12:00:00.250Z", NOON + timedelta(milliseconds=250)),
        ("2026-11-20T12:00:00.123456789Z", NOON + timedelta(microseconds=123456)),
        ("1970-01-01T00:00:00Z", datetime(1970, 1, 1, tzinfo=UTC)),
    ],
)
def test_instants_are_read_in_utc(text: str, expected: datetime) -> None:
    assert parse_timestamp(text) == expected
    assert parse_timestamp(text).tzinfo is UTC


@pytest.mark.parametrize(
    "text",
    [
        "",
        "2026-11-20",
        "2026-11-20T12:00:00",
        "2026-11-20 12:00:00Z",
        "2026-02-30T12:00:00Z",
        "2026-13-01T12:00:00Z",
        "2026-11-20T24:00:00Z",
        "2026-11-20T12:00:60Z",
        "1969-12-31T23:59:59Z",
        "1970-01-01T00:00:00+01:00",
        "2026-11-20T12:00:00Z\n",
        "1795176000",
    ],
)
def test_a_refusal_says_what_is_accepted(text: str) -> None:
    with pytest.raises(ValueError, match="such as 2026-11-20T14:00:00Z"):
        parse_timestamp(text)


def test_written_in_utc_with_a_z() -> None:
    assert format_timestamp(NOON.astimezone(timezone(timedelta(hours=2)))) == "2026-11-20T12:00:00Z"
    with pytest.raises(ValueError, match="no time zone"):
        format_timestamp(NOON.replace(tzinfo=None))


@given(st.datetimes(datetime(1970, 1, 1), datetime(2999, 12, 31), timezones=st.just(UTC)))  # noqa: DTZ001
def test_what_was_written_reads_the_same(instant: datetime) -> None:
    assert parse_timestamp(format_timestamp(instant)) == instant
