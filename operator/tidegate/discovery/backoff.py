"""How long discovery waits after failures in a row. Pure."""

from __future__ import annotations

from typing import Final

LONGEST_S: Final = 5.0


def backoff_s(failures: int) -> float:
    return float(min(LONGEST_S, 0.2 * 2 ** min(failures - 1, 6)))
