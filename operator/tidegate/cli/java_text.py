"""Text forms that Kafka's command-line tools take from Java: properties files, date-times, ISO 8601 durations."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Final

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_ESCAPES: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_DURATION: Final = re.compile(
    r"([-+]?)P(?:([-+]?\d+)D)?(?:(T)(?:([-+]?\d+)H)?(?:([-+]?\d+)M)?(?:([-+]?\d+)(?:[.,](\d{0,9}))?S)?)?",
    re.IGNORECASE | re.ASCII,
)


def parse_properties(text: str) -> dict[str, str]:
    """A file of ``java.util.Properties``: of a key that is there twice the last value counts.

    Raises ``ValueError`` for a malformed ``\\u`` escape, naming no value.
    """
    found: dict[str, str] = {}
    for line in _logical_lines(text):
        key, value = _key_and_value(line)
        found[key] = value
    return found


def _logical_lines(text: str) -> list[str]:
    lines: list[str] = []
    pending: str | None = None
    for natural in re.split(r"\r\n|\r|\n", text):
        line = natural.lstrip(" \t\f")
        if pending is None and (not line or line[0] in "#!"):
            continue
        line = line if pending is None else pending + line
        pending = None
        if (len(line) - len(line.rstrip("\\"))) % 2:
            pending = line[:-1]
        else:
            lines.append(line)
    return lines if pending is None else [*lines, pending]


def _key_and_value(line: str) -> tuple[str, str]:
    end = 0
    while end < len(line) and line[end] not in "=: \t\f":
        end += 2 if line[end] == "\\" else 1
    key = line[:end]
    rest = line[end:].lstrip(" \t\f")
    if rest[:1] in ("=", ":"):
        rest = rest[1:].lstrip(" \t\f")
    return _unescaped(key), _unescaped(rest)


def _unescaped(text: str) -> str:
    def replaced(match: re.Match[str]) -> str:
        code = match[1]
        if code.startswith("u"):
            if len(code) != 5:
                raise ValueError("malformed \\uxxxx escape")
            return chr(int(code[1:], 16))
        return _ESCAPES.get(code, code)

    return re.sub(r"\\(u[0-9a-fA-F]{4}|.)", replaced, text, flags=re.DOTALL)


def parse_datetime(text: str) -> datetime:
    """``--to-datetime``: ISO 8601, in UTC where there is no zone; not before 1970, when no record is from. Raises
    ``ValueError`` saying what is expected."""
    if "T" not in text:
        raise ValueError("Error parsing timestamp. It does not contain a 'T' according to ISO8601 format")
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f'Unparseable date: "{text}"; the format is YYYY-MM-DDThh:mm:ss.sss') from None
    try:
        # To brokers the last milliseconds of 1969 are other questions: −1 means the end of the log.
        return max(_EPOCH, at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC))
    except OverflowError:
        raise ValueError(f'Unparseable date: "{text}"; it is before the year 1 or after 9999 in UTC') from None


def parse_duration(text: str) -> timedelta:
    """``java.time.Duration.parse``: ``PnDTnHnMn.nS``. Raises ``ValueError``."""
    match = _DURATION.fullmatch(text)
    if match is None or not any(match.group(n) is not None for n in (2, 4, 5, 6)) or (match[3] and text[-1] in "tT"):
        raise ValueError(f"Text cannot be parsed to a Duration: {text}; the format is PnDTnHnMnS")
    sign, days, _, hours, minutes, seconds, fraction = match.groups()
    try:
        whole = timedelta(
            days=int(days or 0), hours=int(hours or 0), minutes=int(minutes or 0), seconds=int(seconds or 0)
        )
    except (OverflowError, ValueError):  # the latter of thousands of digits
        raise ValueError(f"Text cannot be parsed to a Duration: {text[:80]}; it is too long") from None
    part = timedelta(microseconds=int((fraction or "").ljust(9, "0")) // 1000)
    whole += -part if (seconds or "").startswith("-") else part
    return -whole if sign == "-" else whole
