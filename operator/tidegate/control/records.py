"""The records of the control and ack topics as bytes: ``agents/contract`` says what they mean, and its vectors bind us.

Keys and values are UTF-8 JSON; keys have sorted members and no white space, so that equal keys are equal bytes and
compaction keeps one of them. What cannot be read, or is of a later version's kind, is skipped by whoever reads it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from tidegate.kafka.model import TopicPartition

INITIAL: Final = "initial"
"""``PartitionSeen``: it was there at the first discovery."""


class Unreadable(ValueError):
    """A record that is not of the contract; to be counted and skipped. The message says what is wrong with it."""


@dataclass(frozen=True, slots=True, order=True)
class HoldKey:
    """One holder's hold on one partition of one group."""

    group: str
    topic: str
    partition: int
    holder: str

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


@dataclass(frozen=True, slots=True)
class Hold:
    """Why it is held, for a person, and how long what was handed out may take to finish (milliseconds)."""

    reason: str = ""
    drain_timeout_ms: int = 30_000


@dataclass(frozen=True, slots=True, order=True)
class PartitionKey:
    """A partition that was discovered; ``topic_id`` (KIP-516) tells a recreated topic from the one before."""

    topic: str
    topic_id: str
    partition: int


@dataclass(frozen=True, slots=True)
class PartitionSeen:
    """Bounds of the partition's creation by the broker's clock (epoch milliseconds), or: it was there at the start."""

    seen_ms: int | None = None
    seen_absent_ms: int | None = None
    initial: bool = False


@dataclass(frozen=True, slots=True)
class ClockKey:
    """The record's LogAppendTime is the broker's time."""


@dataclass(frozen=True, slots=True, order=True)
class AckKey:
    """One partition of one group."""

    group: str
    topic: str
    partition: int

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


@dataclass(frozen=True, slots=True)
class Ack:
    """The owner's word. ``offset``: the next record it would deliver; −1 when it has none yet.

    ``member``: its member id; empty for a consumer that assigned the partition itself.
    """

    epoch: int
    offset: int
    member: str


Key = HoldKey | PartitionKey | ClockKey | AckKey
Value = Hold | PartitionSeen | Ack | None


def encode_key(key: Key) -> bytes:
    """The one form of a key."""
    match key:
        case HoldKey():
            body: dict[str, Any] = {
                "group": key.group,
                "holder": key.holder,
                "kind": "hold",
                "partition": key.partition,
                "topic": key.topic,
            }
        case PartitionKey():
            body = {"kind": "partition", "partition": key.partition, "topic": key.topic, "topic_id": key.topic_id}
        case ClockKey():
            body = {"kind": "clock"}
        case AckKey():
            body = {"group": key.group, "kind": "ack", "partition": key.partition, "topic": key.topic}
    return _json(body)


def encode_value(value: Value) -> bytes | None:
    """A value; ``None`` is a tombstone."""
    match value:
        case None:
            return None
        case Hold():
            return _json({"drain_timeout_ms": value.drain_timeout_ms, "reason": value.reason})
        case PartitionSeen(initial=True):
            return _json({INITIAL: True})
        case PartitionSeen():
            return _json({"seen_absent_ms": value.seen_absent_ms, "seen_ms": value.seen_ms})
        case Ack():
            return _json({"epoch": value.epoch, "member": value.member, "offset": value.offset})


CLOCK_VALUE: Final = b"{}"
"""What a clock record carries: nothing, but no tombstone."""


def decode(key: bytes | None, value: bytes | None) -> tuple[Key, Value]:
    """Read one record. Unknown members are passed over, for a later version may add some. Raises ``Unreadable``."""
    if key is None:
        raise Unreadable("it has no key")
    body = _object(key, "key")
    kind = body.get("kind")
    match kind:
        case "hold":
            return _hold_key(body), None if value is None else _hold(_object(value, "value"))
        case "partition":
            return _partition_key(body), None if value is None else _seen(_object(value, "value"))
        case "clock":
            return ClockKey(), None
        case "ack":
            return _ack_key(body), None if value is None else _ack(_object(value, "value"))
        case _:
            raise Unreadable(f"its key is of kind {kind!r}, which this version does not know")


def _hold_key(body: Mapping[str, Any]) -> HoldKey:
    return HoldKey(_text(body, "group"), _text(body, "topic"), _count(body, "partition"), _text(body, "holder"))


def _hold(body: Mapping[str, Any]) -> Hold:
    return Hold(_text(body, "reason", empty=True), _count(body, "drain_timeout_ms"))


def _partition_key(body: Mapping[str, Any]) -> PartitionKey:
    return PartitionKey(_text(body, "topic"), _text(body, "topic_id"), _count(body, "partition"))


def _seen(body: Mapping[str, Any]) -> PartitionSeen:
    if body.get(INITIAL) is True:
        return PartitionSeen(initial=True)
    absent = None if body.get("seen_absent_ms") is None else _count(body, "seen_absent_ms")
    return PartitionSeen(seen_ms=_count(body, "seen_ms"), seen_absent_ms=absent)


def _ack_key(body: Mapping[str, Any]) -> AckKey:
    return AckKey(_text(body, "group"), _text(body, "topic"), _count(body, "partition"))


def _ack(body: Mapping[str, Any]) -> Ack:
    return Ack(_count(body, "epoch"), _count(body, "offset", least=-1), _text(body, "member", empty=True))


def _json(body: Mapping[str, Any]) -> bytes:
    return json.dumps(body, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def _object(data: bytes, what: str) -> dict[str, Any]:
    try:
        body = json.loads(data)
    except (UnicodeDecodeError, ValueError, RecursionError) as error:
        raise Unreadable(f"its {what} is not JSON: {error}") from None
    if not isinstance(body, dict):
        raise Unreadable(f"its {what} is JSON, but no object")
    return body


def _text(body: Mapping[str, Any], name: str, *, empty: bool = False) -> str:
    value = body.get(name)
    if not isinstance(value, str) or not (value or empty):
        raise Unreadable(f"{name} must be a string{'' if empty else ' that is not empty'}, not {value!r}")
    return value


def _count(body: Mapping[str, Any], name: str, *, least: int = 0) -> int:
    value = body.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise Unreadable(f"{name} must be a whole number from {least}, not {value!r}")
    return value
