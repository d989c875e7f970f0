"""Which topics there are, out of the bytes of a Metadata answer. Pure.

Whoever looks several times a second at tens of thousands of partitions cannot afford an object for each: partitions are
skipped and counted. The layout is that of the flexible versions with topic ids (``MetadataResponse`` 10 to 12).
"""

from __future__ import annotations

from typing import Final

from tidegate.kafka.errors import Unavailable
from tidegate.kafka.model import Topic
from tidegate.kafka.names import is_internal
from tidegate.kafka_client.topic_ids import topic_id_of_bytes

OLDEST_VERSION: Final = 10
NEWEST_VERSION: Final = 12

_NO_ERROR: Final = b"\x00\x00"
_PARTITION_HEAD: Final = 14
"""Error code, index, leader and leader epoch of a partition; its replicas follow."""


class Unreadable(Unavailable):
    """The bytes are no such answer: another broker's may be."""


def topics_start(answer: bytes) -> int:
    """Where the topics begin. What lies before changes without them: throttle time, brokers, controller."""
    try:
        brokers, at = _length(answer, 4)
        for _ in range(brokers):
            at = _after_text(answer, at + 4)
            at = _after_text(answer, at + 4)
            at = _after_tags(answer, at)
        return _after_text(answer, at) + 4
    except IndexError:
        raise Unreadable("look at the topics: an answer that ends before them") from None


def read_topics(data: bytes, at: int = 0) -> dict[str, Topic]:
    """The topics whose array begins at ``at``, internal ones and those with an error (unknown, no right) left out.

    Every partition that is listed counts, whatever its own error: they tell that its leader is not there.
    """
    topics: dict[str, Topic] = {}
    try:
        count, at = _length(data, at)
        for _ in range(count):
            error = data[at : at + 2]
            length, at = _length(data, at + 2)
            name = data[at : at + length]
            at += length
            topic_id, marked_internal = data[at : at + 16], data[at + 16]
            partitions, at = _length(data, at + 17)
            at = _after_partitions(data, at, partitions)
            at = _after_tags(data, at + 4)
            if error == _NO_ERROR and not marked_internal and not is_internal(text := name.decode()):
                topics[text] = Topic(text, topic_id_of_bytes(topic_id), partitions)
    except (IndexError, UnicodeDecodeError):
        raise Unreadable("look at the topics: an answer that cannot be read") from None
    return topics


def _after_partitions(data: bytes, at: int, count: int) -> int:
    """Written out for speed: a compact array of n numbers is one byte, n + 1, while n < 127, and 4 n bytes."""
    for _ in range(count):
        start = at
        at += _PARTITION_HEAD
        if 0 < (replicas := data[at]) < 128:
            at += 4 * replicas - 3
            if 0 < (in_sync := data[at]) < 128:
                at += 4 * in_sync - 3
                if 0 < (offline := data[at]) < 128:
                    at += 4 * offline - 3
                    if not data[at]:
                        at += 1
                        continue
        at = _after_partition(data, start)
    return at


def _after_partition(data: bytes, at: int) -> int:
    """Any partition, with very many replicas or tagged fields."""
    at += _PARTITION_HEAD
    for _ in range(3):
        length, at = _length(data, at)
        at += 4 * length
    return _after_tags(data, at)


def _after_text(data: bytes, at: int) -> int:
    length, at = _length(data, at)
    return at + length


def _after_tags(data: bytes, at: int) -> int:
    count, at = _number(data, at)
    for _ in range(count):
        _, at = _number(data, at)
        size, at = _number(data, at)
        at += size
    return at


def _length(data: bytes, at: int) -> tuple[int, int]:
    """Length of a compact array or string, 0 also for one that is null; and where it begins."""
    number, at = _number(data, at)
    return max(number - 1, 0), at


def _number(data: bytes, at: int) -> tuple[int, int]:
    """An unsigned varint, and what follows it."""
    value = 0
    for shift in range(0, 35, 7):
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
    raise Unreadable("look at the topics: an answer with a number of more than five bytes")
