"""One record, one line: what others name can neither end it nor drive the terminal."""

import io
import logging

import pytest

from tidegate.service.logs import OneLine


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
