"""What an application was given, and when: the nouns that the clients report and the checker judges."""

from __future__ import annotations

import zlib
from typing import NamedTuple

Partition = tuple[str, int]
"""A topic and a partition's number."""


class Delivery(NamedTuple):
    """One record handed to an application by its client library.

    `t` is epoch seconds (the consumer's machine's clock) at which the poll that returned it came back. `value`: the
    record's `digest`, where the client took it. A tuple and not a dataclass: a run has hundreds of thousands of them.
    """

    t: float
    member: str
    topic: str
    partition: int
    offset: int
    value: int | None = None


def digest(key: bytes | None, value: bytes | None) -> int:
    """What tells records apart: the CRC-32 of key and value, one after the other; all clients compute it alike."""
    return zlib.crc32(value or b"", zlib.crc32(key or b""))
