"""Properties files, date-times and durations as Java reads them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from tidegate.cli.java_text import parse_datetime, parse_duration, parse_properties


def test_a_properties_file_is_read_as_java_reads_it() -> None:
    text = (
        "# a comment = no key\n! another\n\n"
        "security.protocol=SASL_SSL\r\n"
        "  sasl.mechanism : PLAIN\n"
        "client.id tidegate\n"
        "sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required \\\n"
        '    username="kafka" \\\n'
        '    password="a=b:c";\n'
        "escaped\\:key=tab\\there\\u00e9\\\\\n"
        "empty\n"
        "twice=1\ntwice=2\n"
    )

    assert parse_properties(text) == {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "client.id": "tidegate",
        "sasl.jaas.config": "org.apache.kafka.common.security.plain.PlainLoginModule required "
        'username="kafka" password="a=b:c";',
        "escaped:key": "tab\thereé\\",
        "empty": "",
        "twice": "2",
    }


def test_a_malformed_escape_is_refused_without_its_value() -> None:
    with pytest.raises(ValueError, match="malformed") as error:
        parse_properties("password=secret\\u12zz")

    assert "secret" not in str(error.value)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2023-11-14T22:13:30.000", datetime(2023, 11, 14, 22, 13, 30, tzinfo=UTC)),
        ("2023-11-14T22:13:30.250Z", datetime(2023, 11, 14, 22, 13, 30, 250000, tzinfo=UTC)),
        ("2023-11-14T22:13:30.000+02:00", datetime(2023, 11, 14, 20, 13, 30, tzinfo=UTC)),
        ("2023-11-14T22:13:30", datetime(2023, 11, 14, 22, 13, 30, tzinfo=UTC)),
    ],
)
def test_a_date_time_without_a_zone_is_in_utc(text: str, expected: datetime) -> None:
    assert parse_datetime(text) == expected


@pytest.mark.parametrize("text", ["1969-12-31T23:59:59.999", "1970-01-01T00:30:00+01:00", "0001-01-01T00:00:00"])
def test_before_1970_there_is_no_time_that_means_the_end_of_the_log_to_brokers(text: str) -> None:
    assert parse_datetime(text) == datetime(1970, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize("text", ["yesterday", "2023-11-14 22:13:30", "2023-13-14T22:13:30", "T"])
def test_other_dates_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"Unparseable|does not contain a 'T'"):
        parse_datetime(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("P1D", timedelta(days=1)),
        ("PT36H", timedelta(hours=36)),
        ("p1dt2h3m4.5s", timedelta(days=1, hours=2, minutes=3, seconds=4.5)),
        ("PT-0.5S", timedelta(seconds=-0.5)),
        ("-PT10M", timedelta(minutes=-10)),
    ],
)
def test_durations_are_javas(text: str, expected: timedelta) -> None:
    assert parse_duration(text) == expected


@pytest.mark.parametrize("text", ["", "P", "PT", "P1DT", "1D", "90s", "P1W", "PT1H1D"])
def test_other_durations_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="cannot be parsed to a Duration"):
        parse_duration(text)
