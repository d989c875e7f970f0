"""RFC 3339 date-times with a zone: what resources carry, against aware UTC ``datetime``, what the code uses."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Final

ACCEPTED: Final = "must be an RFC 3339 date-time with a zone, from 1970 on, such as 2026-11-20T14:00:00Z"
"""What every refusal says, here and by the CRDs' CEL rules."""

PATTERN: Final = (
    r"[12][0-9]{3}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])"
    r"T([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]([.][0-9]{1,9})?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])"
)
"""Whole text, RE2 and Python alike; the 30th of February is found when it is parsed."""

MAX_LENGTH: Final = 40

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def parse_timestamp(text: str) -> datetime:
    """The instant that ``text`` names, in UTC, cut to microseconds. Raises ``ValueError`` saying what is accepted."""
    if re.fullmatch(PATTERN, text) is None:
        raise ValueError(ACCEPTED)
    try:
        instant = datetime.fromisoformat(text)
    except ValueError as error:
        raise ValueError(ACCEPTED) from error
    if instant < EPOCH:
        raise ValueError(ACCEPTED)
    return instant.astimezone(UTC)


def format_timestamp(instant: datetime) -> str:
    """RFC 3339 in UTC with ``Z``; a fraction only where there is one. ``instant`` has to be aware (``ValueError``)."""
    if instant.tzinfo is None:
        raise ValueError(f"{instant.isoformat()} has no time zone")
    return instant.astimezone(UTC).isoformat().replace("+00:00", "Z")
