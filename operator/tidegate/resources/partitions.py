"""Sets of partition numbers as resources write them: ``[0, 1, "3-5"]``.

Earlier versions wrote ``0,1,3-5``. Resources that were stored so are still read, and mean the same (ADR 24).
"""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Iterable, Sequence
from typing import Any, Final

ACCEPTED: Final = (
    'must be a list of at most 64 partition numbers and ascending ranges, such as [0, 1, "3-5"] (numbers up to 99999; '
    "leave the field out for all partitions)"
)
"""What every refusal says here. The CRDs say it in the field's description."""

MAX_PARTITION: Final = 99_999
"""Bounds the size of a set that a short list can name; no topic comes near it."""

MAX_ENTRIES: Final = 64

ENTRY_PATTERN: Final = r"[0-9]{1,5}(-[0-9]{1,5})?"
"""Of an entry that is a string, as a whole, RE2 and Python alike."""

TEXT_PATTERN: Final = rf"{ENTRY_PATTERN}(,{ENTRY_PATTERN}){{0,{MAX_ENTRIES - 1}}}"
"""Of the text that earlier versions wrote instead of a list."""

MAX_ENTRY_LENGTH: Final = len("00000-99999")

MAX_TEXT_LENGTH: Final = len(",".join(["00000-99999"] * MAX_ENTRIES))
"""Of a text that ``TEXT_PATTERN`` takes."""

Entry = int | str
"""A partition's number, or a range such as ``3-5``."""


def read_entries(written: Any) -> tuple[Entry, ...]:
    """The entries of a list as a resource has it, or of the text of earlier versions; numbers in quotes are numbers.

    Raises ``ValueError`` whose text says what is accepted.
    """
    if isinstance(written, str):
        if re.fullmatch(TEXT_PATTERN, written) is None:
            raise ValueError(ACCEPTED)
        written = written.split(",")
    if not isinstance(written, Sequence) or not 1 <= len(written) <= MAX_ENTRIES:
        raise ValueError(ACCEPTED)
    return tuple(_read_entry(each) for each in written)


def _read_entry(written: Any) -> Entry:
    if isinstance(written, int) and not isinstance(written, bool) and 0 <= written <= MAX_PARTITION:
        return written
    if not isinstance(written, str) or re.fullmatch(ENTRY_PATTERN, written) is None:
        raise ValueError(ACCEPTED)
    first, _, last = written.partition("-")
    if last and int(last) < int(first):
        raise ValueError(ACCEPTED)
    return written if last else int(first)


@functools.lru_cache(maxsize=1024)
def ranges_of(entries: tuple[Entry, ...]) -> tuple[range, ...]:
    """The partition numbers that the entries name, ascending and each once; overlaps and any order are fine."""
    found: list[range] = []
    for first, last in sorted(_ends(entry) for entry in entries):
        if found and first <= found[-1].stop:
            found[-1] = range(found[-1].start, max(found[-1].stop, last + 1))
        else:
            found.append(range(first, last + 1))
    return tuple(found)


def _ends(entry: Entry) -> tuple[int, int]:
    first, _, last = str(entry).partition("-")
    return int(first), int(last or first)


def numbers_of(entries: Iterable[Entry]) -> frozenset[int]:
    """As ``ranges_of``, each number by itself: there may be 100,000 of them."""
    return frozenset(itertools.chain.from_iterable(ranges_of(tuple(entries))))


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
    """The numbers in a message: ascending, each range as long as it can be; empty for no numbers."""
    return ",".join(str(r.start) if len(r) == 1 else f"{r.start}-{r.stop - 1}" for r in partition_ranges(numbers))
