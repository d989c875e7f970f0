"""The records of the control and ack topics as bytes; ``agents/contract`` says what they mean, its vectors bind us.

A twin of the operator's: the agent runs in other people's processes and shares no code with it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias


class Unreadable(ValueError):
    """A record that is not of the contract, or of a later version's kind; to be counted and skipped."""


@dataclass(frozen=True)
class HoldKey:
    """One holder's hold on one partition of one group."""

    group: str
    topic: str
    partition: int
    holder: str


@dataclass(frozen=True)
class Hold:
    """Why it is held, for a person, and how long what was handed out may take to finish (milliseconds)."""

    reason: str = ""
    drain_timeout_ms: int = 30_000


@dataclass(frozen=True)
class AckKey:
    """One partition of one group."""

    group: str
    topic: str
    partition: int


@dataclass(frozen=True)
class Ack:
    """The owner's word. ``offset``: the next record it would deliver; −1 when it cannot tell yet.

    ``member``: its member id; empty for a consumer that assigned the partition itself.
    """

    epoch: int
    offset: int
    member: str


@dataclass(frozen=True)
class PartitionKey:
    """A partition that was discovered; ``topic_id`` tells a recreated topic from the one before."""

    topic: str
    topic_id: str
    partition: int


@dataclass(frozen=True)
class PartitionSeen:
    """Bounds of its creation by the broker's clock (epoch milliseconds), or: it was there at the first discovery."""

    seen_ms: int | None = None
    seen_absent_ms: int | None = None
    initial: bool = False


@dataclass(frozen=True)
class ClockKey:
    """The record's LogAppendTime is the broker's time."""


Key: TypeAlias = HoldKey | AckKey | PartitionKey | ClockKey
Value: TypeAlias = Hold | Ack | PartitionSeen | None


def encode_key(key: HoldKey | AckKey) -> bytes:
    """The one form of a key."""
    body: dict[str, Any] = {"group": key.group, "partition": key.partition, "topic": key.topic}
    if isinstance(key, HoldKey):
        return _json({**body, "kind": "hold", "holder": key.holder})
    return _json({**body, "kind": "ack"})


def encode_value(value: Hold | Ack | None) -> bytes | None:
    """A value; ``None`` is a tombstone."""
    if value is None:
        return None
    if isinstance(value, Hold):
        return _json({"drain_timeout_ms": value.drain_timeout_ms, "reason": value.reason})
    return _json({"epoch": value.epoch, "member": value.member, "offset": value.offset})


def decode(key: bytes | None, value: bytes | None) -> tuple[Key, Value]:
    """Read one record. Unknown members are passed over, for a later version may add some. Raises ``Unreadable``."""
    if key is None:
        raise Unreadable("it has no key")
    body = _object(key, "key")
    kind = body.get("kind")
    if kind == "hold":
        hold_key = HoldKey(_text(body, "group"), _text(body, "topic"), _count(body, "partition"), _text(body, "holder"))
        return hold_key, None if value is None else _hold(_object(value, "value"))
    if kind == "ack":
        ack_key = AckKey(_text(body, "group"), _text(body, "topic"), _count(body, "partition"))
        return ack_key, None if value is None else _ack(_object(value, "value"))
    if kind == "partition":
        partition_key = PartitionKey(_text(body, "topic"), _text(body, "topic_id"), _count(body, "partition"))
        return partition_key, None if value is None else _seen(_object(value, "value"))
    if kind == "clock":
        return ClockKey(), None
    raise Unreadable(f"its key is of kind {kind!r}, which this version does not know")


def _hold(body: Mapping[str, Any]) -> Hold:
    return Hold(_text(body, "reason", empty=True), _count(body, "drain_timeout_ms"))


def _ack(body: Mapping[str, Any]) -> Ack:
    return Ack(_count(body, "epoch"), _count(body, "offset", least=-1), _text(body, "member", empty=True))


def _seen(body: Mapping[str, Any]) -> PartitionSeen:
    if body.get("initial") is True:
        return PartitionSeen(initial=True)
    absent = None if body.get("seen_absent_ms") is None else _count(body, "seen_absent_ms")
    return PartitionSeen(_count(body, "seen_ms"), absent)


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
