"""What the sticky assignors' members send with their subscriptions. Any client wrote it."""

from __future__ import annotations

import struct
from typing import Final

from tidegate.kafka.assignors.members import NO_GENERATION
from tidegate.kafka.model import TopicPartition

_INT: Final = struct.Struct(">i")
_SHORT: Final = struct.Struct(">h")


def sticky_claims(raw: bytes | None) -> tuple[frozenset[TopicPartition], int]:
    """The partitions that a member of a sticky group had, and the generation in which it got them, −1 where that is not
    told: ``StickyAssignor``'s user data, version 1 or 0. What cannot be read claims nothing, as in Kafka."""
    if not raw:
        return frozenset(), NO_GENERATION
    try:
        claimed, end = _partitions(raw)
    except (struct.error, ValueError):
        return frozenset(), NO_GENERATION
    generation = _INT.unpack_from(raw, end)[0] if len(raw) >= end + _INT.size else NO_GENERATION
    return claimed, generation


def cooperative_generation(raw: bytes | None) -> int:
    """The generation in the user data of a member of a cooperative-sticky group (``CooperativeStickyAssignor``), for
    clients whose subscriptions do not name it; −1 where there is none."""
    return int(_INT.unpack_from(raw)[0]) if raw is not None and len(raw) >= _INT.size else NO_GENERATION


def _partitions(raw: bytes) -> tuple[frozenset[TopicPartition], int]:
    """From an array of topics with arrays of partition numbers; and where it ends. Raises ``struct.error`` and
    ``ValueError``."""
    found: set[TopicPartition] = set()
    topics, at = _length(raw, 0, _SHORT.size + _INT.size)
    for _ in range(topics):
        [size] = _SHORT.unpack_from(raw, at)
        at += _SHORT.size
        if not 0 <= size <= len(raw) - at:
            raise ValueError("a topic's name ends behind the data")
        topic = raw[at : at + size].decode("utf-8", "replace")
        numbers, at = _length(raw, at + size, _INT.size)
        found.update(TopicPartition(topic, number) for number in struct.unpack_from(f">{numbers}i", raw, at))
        at += numbers * _INT.size
    return frozenset(found), at


def _length(raw: bytes, at: int, least: int) -> tuple[int, int]:
    """Of an array of entries of at least so many bytes, and where it begins."""
    [length] = _INT.unpack_from(raw, at)
    at += _INT.size
    if not 0 <= length <= (len(raw) - at) // least:
        raise ValueError("an array ends behind the data")
    return length, at
