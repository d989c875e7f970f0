"""One record, one line: what others name can neither end it nor drive the terminal."""

import io
import json
import logging

import pytest

from tidegate.service.logs import OneLine, formatter


@pytest.fixture
def log() -> tuple[logging.Logger, io.StringIO]:
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(OneLine())
    logger = logging.Logger("tidegate.test")
    logger.addHandler(handler)
    return logger, stream


@pytest.mark.parametrize("end", ["\n", "\r\n", "\x0b", "\x85", "\u2028", "\x1b[2K"])
def test_a_name_cannot_write_a_record_of_its_own(log: tuple[logging.Logger, io.StringIO], end: str) -> None:
    logger, stream = log

    logger.warning("member %s left", f"consumer{end}2026-01-01 00:00:00,000 INFO    tidegate: all is well")

    text = stream.getvalue()
    assert len(text.splitlines()) == 1
    assert "\x1b" not in text
    assert "all is well left" in text


def test_a_traceback_keeps_its_lines_and_its_message_does_not_begin_one(
    log: tuple[logging.Logger, io.StringIO],
) -> None:
    logger, stream = log
    try:
        raise ValueError("no\n2026-01-01 00:00:00,000 INFO    tidegate: all is well")
    except ValueError:
        logger.exception("failed")

    lines = stream.getvalue().splitlines()
    assert len(lines) > 3
    assert all(line.startswith("    ") for line in lines[1:])


def _told(*, message: str, error: Exception | None = None) -> tuple[str, dict[str, str]]:
    record = logging.LogRecord("tidegate.test", logging.WARNING, "", 0, message, (), None)
    record.created = 1_795_000_000.25
    if error:
        record.exc_info = (type(error), error, None)
    text = formatter("json").format(record)
    return text, json.loads(text)


def test_a_record_for_programs_is_an_object() -> None:
    _, told = _told(message="group payments has no owner")

    assert told == {
        "time": "2026-11-18T11:06:40.250Z",
        "level": "WARNING",
        "logger": "tidegate.test",
        "message": "group payments has no owner",
    }


@pytest.mark.parametrize("end", ["\n", "\r\n", "\x0b", "\x85", "\u2028", "\x1b[2K", '"}{"level": "INFO', "\ud800"])
def test_no_name_ends_an_object_or_drives_a_terminal(end: str) -> None:
    text, told = _told(message=f"member a{end}b left", error=ValueError(f"no{end}"))

    assert text.isascii()
    assert text.isprintable()
    assert told["message"] == f"member a{end}b left"
    assert told["exception"] == f"ValueError: no{end}"


def test_people_get_lines_where_nothing_else_is_asked_for() -> None:
    assert isinstance(formatter("text"), OneLine)
