"""Durations as Go writes them (``90s``, ``1h30m``): what resources carry, against ``timedelta``, what the code uses."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Final

ACCEPTED: Final = "must be a duration such as 90s, 2h, 1h30m, 200ms or 1.5h (units ms, s, m, h; at most 87600h)"
"""What every refusal says, here and by the CRDs' CEL rules."""

MAX_LENGTH: Final = 32
MAX: Final = timedelta(hours=87_600)
"""Ten years: far from where Go's 64-bit nanoseconds or ``timedelta`` overflow."""

PATTERN: Final = r"([0-9]{1,9}([.][0-9]{1,3})?(ms|s|m|h))+"
"""Whole text, RE2 and Python alike. Three decimals at most, so that nothing is finer than a microsecond."""

_PART: Final = re.compile(r"([0-9]+)(?:[.]([0-9]{1,3}))?(ms|s|m|h)")
_MICROSECONDS: Final = {"ms": 1_000, "s": 1_000_000, "m": 60_000_000, "h": 3_600_000_000}


def parse_duration(text: str) -> timedelta:
    """The duration that ``text`` names, exactly.

    Parts may come in any order and repeat, as in Go's ``time.ParseDuration``; signs, other units and a bare ``0`` are
    refused. Raises ``ValueError`` whose text says what is accepted.
    """
    if len(text) > MAX_LENGTH or re.fullmatch(PATTERN, text) is None:
        raise ValueError(ACCEPTED)
    microseconds = 0
    for whole, fraction, unit in _PART.findall(text):
        scale = _MICROSECONDS[unit]
        microseconds += int(whole) * scale + int((fraction or "0").ljust(3, "0")) * scale // 1_000
    if microseconds > MAX // timedelta(microseconds=1):
        raise ValueError(ACCEPTED)
    return timedelta(microseconds=microseconds)


def format_duration(value: timedelta) -> str:
    """The canonical text: units from large to small, each below the next larger one; ``0s`` for nothing.

    Raises ``ValueError`` for a negative value, which no resource can carry.
    """
    microseconds = value // timedelta(microseconds=1)
    if microseconds < 0:
        raise ValueError(f"a duration cannot be negative, this one is {value}")
    parts: list[str] = []
    for unit in ("h", "m", "s"):
        count, microseconds = divmod(microseconds, _MICROSECONDS[unit])
        if count:
            parts.append(f"{count}{unit}")
    if microseconds:
        whole, fraction = divmod(microseconds, 1_000)
        decimals = f".{fraction:03d}".rstrip("0") if fraction else ""
        parts.append(f"{whole}{decimals}ms")
    return "".join(parts) or "0s"
