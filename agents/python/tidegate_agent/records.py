"""The records of the control and ack topics as bytes; ``agents/contract`` says what they mean, its vectors bind us.

A twin of the operator's: the agent runs in other people's processes and shares no code with it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

MOST_BYTES: Final = 16_384
"""Of a key, and of a value."""

MOST_PARTITIONS: Final = 1_000_000
"""Of a topic, beyond which a ``partition`` record is taken for a mistake: agents keep a place for each number below."""

_INT32: Final = 2**31 - 1
_INT64: Final = 2**63 - 1
_MOST_DIGITS: Final = 20
"""More than this no number here has."""
_DRAIN_MS: Final = 87_600 * 3_600_000
"""The longest duration that a custom resource can name; timers of every client can wait as long."""

_FORMS: Final = {
    "group": (re.compile(r"[^\x00-\x1f\x7f]{1,255}"), "1 to 255 characters, none of them a control character"),
    "topic": (
        re.compile(r"(?![.]{1,2}$)[a-zA-Z0-9._-]{1,249}"),
        "a topic's name: 1 to 249 letters, digits, '.', '_' and '-', and not '.' or '..'",
    ),
    "topic_id": (re.compile(r"[a-zA-Z0-9_-]{1,22}"), "a topic id: at most 22 letters, digits, '_' and '-'"),
    "holder": (re.compile(r"(?s:.){1,1024}"), "1 to 1024 characters"),
    "member": (re.compile(r"(?s:.){0,1024}"), "at most 1024 characters"),
    "reason": (re.compile(r"(?s:.){0,1024}"), "at most 1024 characters"),
}
"""By a text's name what it may be, and that in words."""


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
class LimitKey:
    """One holder's limit on one partition of one group."""

    group: str
    topic: str
    partition: int
    holder: str


@dataclass(frozen=True)
class Limit:
    """Deliver the records before this offset, then close the gate. ``reason``: for a person; ``drain_timeout_ms``: how
    long what was handed out may take to finish."""

    offset: int
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


Key: TypeAlias = HoldKey | LimitKey | AckKey | PartitionKey | ClockKey
Value: TypeAlias = Hold | Limit | Ack | PartitionSeen | None


def encode_key(key: Key) -> bytes:
    """The one form of a key."""
    if isinstance(key, ClockKey):
        return _json({"kind": "clock"})
    body: dict[str, Any] = {"partition": key.partition, "topic": key.topic}
    if isinstance(key, (HoldKey, LimitKey)):
        kind = "hold" if isinstance(key, HoldKey) else "limit"
        return _json({**body, "kind": kind, "group": key.group, "holder": key.holder})
    if isinstance(key, AckKey):
        return _json({**body, "kind": "ack", "group": key.group})
    return _json({**body, "kind": "partition", "topic_id": key.topic_id})


def encode_value(value: Hold | Limit | Ack | None) -> bytes | None:
    """A value; ``None`` is a tombstone."""
    if value is None:
        return None
    if isinstance(value, Hold):
        return _json({"drain_timeout_ms": value.drain_timeout_ms, "reason": value.reason})
    if isinstance(value, Limit):
        return _json({"drain_timeout_ms": value.drain_timeout_ms, "offset": value.offset, "reason": value.reason})
    return _json({"epoch": value.epoch, "member": value.member, "offset": value.offset})


def decode(key: bytes | None, value: bytes | None) -> tuple[Key, Value]:
    """Read one record. A value's unknown members are passed over, for a later version may add some.

    Raises ``Unreadable``, and nothing else whatever the bytes are.
    """
    if key is None:
        raise Unreadable("it has no key")
    read = _key(_object(key, "key"))
    if encode_key(read) != key:
        raise Unreadable("its key is not in the one form: sorted members, no white space, nothing escaped needlessly")
    return read, None if value is None else _value(read, _object(value, "value"))


def _key(body: Mapping[str, Any]) -> Key:
    kind = body.get("kind")
    if kind in ("hold", "limit"):
        number = _number(body, "partition", _INT32)
        made = HoldKey if kind == "hold" else LimitKey
        return made(_text(body, "group"), _text(body, "topic"), number, _text(body, "holder"))
    if kind == "ack":
        return AckKey(_text(body, "group"), _text(body, "topic"), _number(body, "partition", _INT32))
    if kind == "partition":
        number = _number(body, "partition", MOST_PARTITIONS - 1)
        return PartitionKey(_text(body, "topic"), _text(body, "topic_id"), number)
    if kind == "clock":
        return ClockKey()
    raise Unreadable(f"its key is of kind {_shown(kind)}, which this version does not know")


def _value(key: Key, body: Mapping[str, Any]) -> Value:
    if isinstance(key, HoldKey):
        return Hold(_text(body, "reason"), _number(body, "drain_timeout_ms", _DRAIN_MS))
    if isinstance(key, LimitKey):
        offset, drain_timeout_ms = _number(body, "offset", _INT64), _number(body, "drain_timeout_ms", _DRAIN_MS)
        return Limit(offset, _text(body, "reason"), drain_timeout_ms)
    if isinstance(key, PartitionKey):
        return _seen(body)
    if isinstance(key, AckKey):
        epoch, offset = _number(body, "epoch", _INT64), _number(body, "offset", _INT64, least=-1)
        return Ack(epoch, offset, _text(body, "member"))
    return None


def _seen(body: Mapping[str, Any]) -> PartitionSeen:
    if body.get("initial") is True:
        return PartitionSeen(initial=True)
    absent = None if body.get("seen_absent_ms") is None else _number(body, "seen_absent_ms", _INT64)
    return PartitionSeen(_number(body, "seen_ms", _INT64), absent)


def _json(body: Mapping[str, Any]) -> bytes:
    return json.dumps(body, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def _object(data: bytes, what: str) -> dict[str, Any]:
    if len(data) > MOST_BYTES:
        raise Unreadable(f"its {what} has {len(data)} bytes, more than {MOST_BYTES}")
    try:
        # Not left to json.loads: that takes UTF-16 as well, and surrogates.
        body = json.loads(data.decode(), object_pairs_hook=_members, parse_int=_whole, parse_constant=_no_number)
    except (ValueError, RecursionError) as error:
        raise Unreadable(f"its {what} is not JSON: {error}") from None
    if not isinstance(body, dict):
        raise Unreadable(f"its {what} is JSON, but no object")
    return body


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    body = dict(pairs)
    if len(body) < len(pairs):
        raise ValueError("an object has two members of one name")
    return body


def _whole(digits: str) -> int | float:
    """Python refuses to read one of thousands of digits, though it may stand where nobody looks for anything."""
    return int(digits) if len(digits) <= _MOST_DIGITS else float(digits)


def _no_number(constant: str) -> Any:
    raise ValueError(f"{constant} is no JSON")


def _text(body: Mapping[str, Any], name: str) -> str:
    value, (form, words) = body.get(name), _FORMS[name]
    if not isinstance(value, str) or form.fullmatch(value) is None:
        raise Unreadable(f"{name} must be {words}, not {_shown(value)}")
    if any("\ud800" <= letter <= "\udfff" for letter in value):
        raise Unreadable(f"{name} has half a character in it (a lone surrogate): {_shown(value)}")
    return value


def _number(body: Mapping[str, Any], name: str, most: int, *, least: int = 0) -> int:
    value = body.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise Unreadable(f"{name} must be a whole number from {least} to {most}, not {_shown(value)}")
    return value


def _shown(value: object) -> str:
    """For a message, whatever it is and however large."""
    if isinstance(value, (dict, list)):
        return "an object" if isinstance(value, dict) else "a list"
    text = ascii(value)
    return text if len(text) <= 60 else f"{text[:60]}…"
