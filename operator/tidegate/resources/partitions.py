"""Sets of partition numbers as resources write them: ``0,3-5``."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

ACCEPTED: Final = (
    "must be at most 64 partition numbers and ascending ranges without spaces, such as 0,3-5 (numbers up to 99999; "
    "leave the field out for all partitions)"
)
"""What every refusal says, here and by the CRDs' CEL rules."""

MAX_PARTITION: Final = 99_999
"""Bounds the size of a set that a short text can name; no topic comes near it."""

MAX_PARTS: Final = 64
"""So that the API server can bound what checking them costs."""

PATTERN: Final = rf"[0-9]{{1,5}}(-[0-9]{{1,5}})?(,[0-9]{{1,5}}(-[0-9]{{1,5}})?){{0,{MAX_PARTS - 1}}}"
"""Whole text, RE2 and Python alike."""

MAX_LENGTH: Final = len(",".join(["00000-99999"] * MAX_PARTS))
"""Of a text that ``PATTERN`` takes."""


def parse_partitions(text: str) -> frozenset[int]:
    """The numbers that ``text`` names; overlaps and any order are fine.

    Raises ``ValueError`` whose text says what is accepted.
    """
    if re.fullmatch(PATTERN, text) is None:
        raise ValueError(ACCEPTED)
    numbers: set[int] = set()
    for part in text.split(","):
        first, _, last = part.partition("-")
        if last and int(last) < int(first):
            raise ValueError(ACCEPTED)
        numbers.update(range(int(first), int(last or first) + 1))
    return frozenset(numbers)


def partition_ranges(numbers: Iterable[int]) -> tuple[range, ...]:
    """The fewest ascending ranges that hold exactly ``numbers``."""
    ranges: list[range] = []
    for number in sorted(set(numbers)):
        if ranges and ranges[-1].stop == number:
            ranges[-1] = range(ranges[-1].start, number + 1)
        else:
            ranges.append(range(number, number + 1))
    return tuple(ranges)


def format_partitions(numbers: Iterable[int]) -> str:
    """The canonical text: ascending, each range as long as it can be; empty for no numbers."""
    return ",".join(str(r.start) if len(r) == 1 else f"{r.start}-{r.stop - 1}" for r in partition_ranges(numbers))
