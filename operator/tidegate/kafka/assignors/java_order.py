"""The order in which Java's hash maps and sets name their entries, and in which it sorts texts.

Kafka's sticky assignors visit members in the order of a ``HashMap``, which decides who of several keeps a partition.
Java promises nothing of that order, yet it follows from the keys alone, and has been the same since Java 8
(``HashMap.hash``, ``HashMap.resize``). Java makes trees of buckets of more than eight keys, which we keep as lists: for
keys that were made to collide, the order may be another one than Java's.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from tidegate.kafka.model import TopicPartition

_FIRST_TABLE: Final = 16


def text_order(text: str) -> bytes:
    """Sorts as ``String.compareTo`` does: by UTF-16 code units."""
    return text.encode("utf-16-be", "surrogatepass")


def in_map_order(ids: Iterable[str]) -> list[str]:
    """As a ``HashMap`` names its keys into which they were put in this order."""
    keys = list(ids)
    table = _grown(_FIRST_TABLE, len(keys))
    return sorted(keys, key=lambda key: _bucket(_hash_of_text(key), table))


class PartitionSet:
    """A ``HashSet<TopicPartition>`` as far as its first entry: its table grows and never shrinks."""

    def __init__(self) -> None:
        self._table = _FIRST_TABLE
        self._entries: dict[TopicPartition, None] = {}

    def add(self, partition: TopicPartition) -> None:
        self._entries[partition] = None
        self._table = _grown(self._table, len(self._entries))

    def remove(self, partition: TopicPartition) -> None:
        del self._entries[partition]

    def first(self) -> TopicPartition:
        return min(self._entries, key=lambda partition: _bucket(_hash_of_partition(partition), self._table))

    def __bool__(self) -> bool:
        return bool(self._entries)


def _grown(table: int, entries: int) -> int:
    """A table is doubled when more than three quarters of it are taken."""
    while entries * 4 > table * 3:
        table *= 2
    return table


def _bucket(hashed: int, table: int) -> int:
    return (hashed ^ hashed >> 16) & (table - 1)


def _hash_of_text(text: str) -> int:
    units = text_order(text)
    return _hash(0, [units[i] << 8 | units[i + 1] for i in range(0, len(units), 2)])


def _hash_of_partition(partition: TopicPartition) -> int:
    return _hash(1, [partition.partition, _hash_of_text(partition.topic)])


def _hash(begin: int, parts: Sequence[int]) -> int:
    hashed = begin
    for part in parts:
        hashed = (31 * hashed + part) & 0xFFFFFFFF
    return hashed
