"""The records of ``__consumer_offsets`` that say when a group's offsets were committed and when it became Empty. Pure.

``OffsetCommitKey``/``OffsetCommitValue`` (versions 0 to 4 of the value) and ``GroupMetadataKey``/``GroupMetadataValue``
(versions 0 to 4, read as far as the time of the state). KIP-848 groups' own records say nothing of it: their offsets
expire by their commits alone. All numbers are big-endian; the first two bytes of keys and values are a version.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from tidegate.kafka.model import TopicPartition

OFFSETS_TOPIC: Final = "__consumer_offsets"

_OFFSET_COMMIT_KEYS: Final = (0, 1)
_GROUP_METADATA_KEY: Final = 2
_NEWEST_VALUE: Final = 4
_FLEXIBLE_FROM: Final = 4
_WITH_EXPIRY: Final = 1
_WITH_LEADER_EPOCH: Final = 3
_WITH_STATE_TIME: Final = 2
_NONE: Final = -1


class Undecodable(ValueError):
    """Bytes that are not such a record."""


@dataclass(frozen=True, slots=True)
class LoggedCommit:
    """A commit as the log has it; times in ms since the epoch. ``explicit_ms``: the expiry that it asked for."""

    offset: int
    committed_ms: int
    explicit_ms: int | None = None
    leader_epoch: int = _NONE


@dataclass(frozen=True, slots=True)
class GroupLog:
    """What the log says of one group, read from its start to offset ``read_to``.

    ``emptied_ms``: when it became Empty, if it is and was classic. ``tail``: what lies behind ``read_to``, where a
    transaction is open, perhaps another group's; ``None``: a commit that may be a transaction's, decided or not.
    ``complete``: read to the end as it was then; one that is not goes on from ``read_to``. ``unreadable``: records of
    the group in a form that is not known.
    """

    read_to: int = 0
    complete: bool = False
    commits: Mapping[TopicPartition, LoggedCommit] = field(default_factory=dict)
    emptied_ms: int | None = None
    tail: Mapping[TopicPartition, LoggedCommit | None] = field(default_factory=dict)
    unreadable: int = 0

    def commit(self, partition: TopicPartition) -> LoggedCommit | None:
        """The last one; ``None``: there is none, or nobody can tell yet."""
        return self.tail[partition] if partition in self.tail else self.commits.get(partition)


def partition_of(group_id: str, partitions: int) -> int:
    """The partition of ``__consumer_offsets`` that has a group: Java's ``String.hashCode``, made positive."""
    code = 0
    for (unit,) in struct.iter_unpack(">H", group_id.encode("utf-16-be", "surrogatepass")):
        code = (31 * code + unit) & 0xFFFFFFFF
    signed = code - (1 << 32) if code >= 1 << 31 else code
    return (0 if signed == -(1 << 31) else abs(signed)) % partitions


def key_prefixes(group_id: str) -> tuple[bytes, ...]:
    """What the keys begin with that :func:`follow` wants; so all others can be passed over unread."""
    name = group_id.encode()
    return tuple(
        struct.pack(">hh", version, len(name)) + name for version in (*_OFFSET_COMMIT_KEYS, _GROUP_METADATA_KEY)
    )


Records = Iterable[tuple[bytes, bytes | None]]
"""(key, value); a value of ``None`` is a tombstone."""


def follow(log: GroupLog, group_id: str, records: Records, *, read_to: int, complete: bool) -> GroupLog:
    """``log`` after these records, of which those of other groups say nothing; without a tail."""
    commits = dict(log.commits)
    emptied_ms, unreadable = log.emptied_ms, log.unreadable
    for entry in _entries(group_id, records):
        match entry:
            case Undecodable():
                unreadable += 1
            case int() | None:
                emptied_ms = entry
            case (partition, None):
                commits.pop(partition, None)
            case (partition, commit):
                commits[partition] = commit
    return GroupLog(read_to, complete, commits, emptied_ms, unreadable=unreadable)


def with_tail(log: GroupLog, group_id: str, records: Records, *, complete: bool) -> GroupLog:
    """``log`` with the records behind it, those of open and of aborted transactions among them.

    A transaction's commits look like any other, but never carry an expiry; and only the coordinator itself writes
    tombstones and groups.
    """
    tail: dict[TopicPartition, LoggedCommit | None] = {}
    emptied_ms, unreadable = log.emptied_ms, log.unreadable
    for entry in _entries(group_id, records):
        match entry:
            case Undecodable():
                unreadable += 1
            case int() | None:
                emptied_ms = entry
            case (partition, commit):
                tail[partition] = commit if commit is not None and commit.explicit_ms is not None else None
    return replace(log, complete=complete, emptied_ms=emptied_ms, tail=tail, unreadable=unreadable)


_Entry = tuple[TopicPartition, LoggedCommit | None] | int | None | Undecodable
"""A commit or its end; when the group became Empty, or that it is not; or what can't be read."""


def _entries(group_id: str, records: Records) -> Iterator[_Entry]:
    for key, value in records:
        try:
            reader = _Reader(key)
            version = reader.int16()
            if version not in (*_OFFSET_COMMIT_KEYS, _GROUP_METADATA_KEY) or reader.string() != group_id:
                continue
            if version == _GROUP_METADATA_KEY:
                yield None if value is None else _emptied_ms(value)
            else:
                partition = TopicPartition(reader.string(), reader.int32())
                yield partition, None if value is None else _commit(value)
        except Undecodable as error:
            yield error


def _commit(value: bytes) -> LoggedCommit:
    reader = _Reader(value)
    version = _version(reader)
    offset = reader.int64()
    leader_epoch = reader.int32() if version >= _WITH_LEADER_EPOCH else _NONE
    _ = reader.compact_string() if version >= _FLEXIBLE_FROM else reader.string()
    committed_ms = reader.int64()
    explicit_ms = reader.int64() if version == _WITH_EXPIRY else _NONE
    return LoggedCommit(offset, committed_ms, None if explicit_ms == _NONE else explicit_ms, leader_epoch)


def _emptied_ms(value: bytes) -> int | None:
    reader = _Reader(value)
    version = _version(reader)
    flexible = version >= _FLEXIBLE_FROM
    text = reader.compact_string if flexible else reader.string
    text()  # the protocol type
    reader.int32()  # the generation
    text()  # the protocol
    text()  # the leader
    since_ms = reader.int64() if version >= _WITH_STATE_TIME else _NONE
    members = reader.varint() - 1 if flexible else reader.int32()
    return None if members > 0 or since_ms == _NONE else since_ms


def _version(reader: _Reader) -> int:
    version = reader.int16()
    if not 0 <= version <= _NEWEST_VALUE:
        raise Undecodable(f"version {version} is not known")
    return version


class _Reader:
    """Kafka's primitive types, one after the other. Raises ``Undecodable``."""

    def __init__(self, raw: bytes) -> None:
        self._raw = raw
        self._at = 0

    def int16(self) -> int:
        return int.from_bytes(self._take(2), "big", signed=True)

    def int32(self) -> int:
        return int.from_bytes(self._take(4), "big", signed=True)

    def int64(self) -> int:
        return int.from_bytes(self._take(8), "big", signed=True)

    def varint(self) -> int:
        value = 0
        for shift in range(0, 35, 7):
            byte = self._take(1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
        raise Undecodable(f"has a length of more than five bytes before byte {self._at}")

    def string(self) -> str:
        """A null string is empty: nothing here needs to tell them apart."""
        return self._text(self.int16())

    def compact_string(self) -> str:
        return self._text(self.varint() - 1)

    def _text(self, length: int) -> str:
        # Metadata is whatever a client wrote: it must not make its record unreadable.
        return self._take(max(length, 0)).decode(errors="replace")

    def _take(self, count: int) -> bytes:
        taken = self._raw[self._at : self._at + count]
        if len(taken) < count:
            raise Undecodable(f"ends at byte {len(self._raw)}, in the middle of a field")
        self._at += count
        return taken
