"""How a log record becomes one line, for people or for programs. Pure."""

from __future__ import annotations

import json
import logging
import re
from datetime import UTC, datetime
from typing import Any, Final

FORMAT: Final = "%(asctime)s %(levelname)-7s %(name)s: %(message)s"

_NOT_SHOWN: Final = re.compile("[\x00-\x08\x0a-\x1f\x7f-\x9f\u2028\u2029]")
"""Control characters but the tab, and what else ends a line."""


class OneLine(logging.Formatter):
    """Escapes in messages what would end a line, or drive a terminal: names come from tenants, brokers and clients, and
    none of them may write a record of its own into the log (CWE-117). Tracebacks keep their lines, which are indented.
    """

    def __init__(self) -> None:
        super().__init__(FORMAT)

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - the base class's name
        return _NOT_SHOWN.sub(_escaped, super().formatMessage(record))

    def formatException(self, ei: Any) -> str:  # noqa: N802 - the base class's name
        text = super().formatException(ei)
        return "\n".join(f"    {_NOT_SHOWN.sub(_escaped, line)}" for line in text.split("\n"))


class OneObject(logging.Formatter):
    """A JSON object in a line: ``time`` (RFC 3339, UTC), ``level``, ``logger``, ``message``, and ``exception``.

    All in ASCII, so that no message can end the line or drive a terminal.
    """

    def format(self, record: logging.LogRecord) -> str:
        told = {
            "time": datetime.fromtimestamp(record.created, UTC)
            .isoformat(timespec="milliseconds")
            .replace("+00:00", "Z"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            told["exception"] = self.formatException(record.exc_info)
        return json.dumps(told)


def formatter(name: str) -> logging.Formatter:
    """By the name of ``TIDEGATE_LOG_FORMAT``."""
    return OneObject() if name == "json" else OneLine()


def _escaped(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape").decode()
