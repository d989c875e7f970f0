"""The records of the control and ack topics as bytes: ``agents/contract`` says what they mean, and its vectors bind us.

Keys and values are UTF-8 JSON; keys have sorted members and no white space, so that equal keys are equal bytes and
compaction keeps one of them. What cannot be read, or is of a later version's kind, is skipped by whoever reads it.

The limits are Kafka's where it has one: topics by ``org.apache.kafka.common.internals.Topic#validate``, partitions
``int32``, offsets ``int64``, topic ids 16 bytes in URL-safe base64. Group and member ids it limits by its protocol only
(32,767 bytes); for groups the limit here is that of the custom resources.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final

from tidegate.control.records import (
    LONGEST_LEASE_MS,
    MOST_PARTITIONS,
    Ack,
    AckKey,
    Claim,
    ClaimKey,
    ClockKey,
    Hold,
    HoldKey,
    Key,
    Limit,
    LimitKey,
    Outcome,
    PartitionKey,
    PartitionSeen,
    Run,
    RunKey,
    Value,
)
from tidegate.kafka.names import TOPIC_NAME
from tidegate.texts import Texts
from tidegate.versions import VERSION, number_of

INITIAL: Final = "initial"
"""``PartitionSeen``: it was there at the first discovery."""

MOST_BYTES: Final = 16_384
"""Of a key, and of a value."""

_INT32: Final = 2**31 - 1

_INT64: Final = 2**63 - 1

_MOST_DIGITS: Final = 20
"""More than this no number here has."""

_DRAIN_MS: Final = 87_600 * 3_600_000
"""The longest duration that a custom resource can name; timers of every client can wait as long."""

_FORMS: Final = {
    "group": (re.compile(r"[^\x00-\x1f\x7f]{1,255}"), "1 to 255 characters, none of them a control character"),
    "topic": (
        TOPIC_NAME,
        "a topic's name: 1 to 249 letters, digits, '.', '_' and '-', and not '.' or '..'",
    ),
    "topic_id": (re.compile(r"[a-zA-Z0-9_-]{1,22}"), "a topic id: at most 22 letters, digits, '_' and '-'"),
    "holder": (re.compile(r"(?s:.){1,1024}"), "1 to 1024 characters"),
    "connection": (re.compile(r"(?s:.){1,1024}"), "1 to 1024 characters"),
    "member": (re.compile(r"(?s:.){0,1024}"), "at most 1024 characters"),
    "reason": (re.compile(r"(?s:.){0,1024}"), "at most 1024 characters"),
    "claim": (re.compile(r"[a-zA-Z0-9-]{1,64}"), "1 to 64 letters, digits and '-'"),
    "run": (re.compile(r"(?s:.){1,1024}"), "1 to 1024 characters"),
    "namespace": (re.compile(r"[a-z0-9-]{1,63}"), "a namespace's name: 1 to 63 lowercase letters, digits and '-'"),
    "policy": (re.compile(r"[a-z0-9.-]{1,253}"), "a resource's name: 1 to 253 lowercase letters, digits, '-' and '.'"),
    "id": (re.compile(r"[a-zA-Z0-9._-]{1,253}"), "1 to 253 letters, digits, '.', '_' and '-'"),
    "uid": (re.compile(r"[^\x00-\x1f\x7f]{1,255}"), "1 to 255 characters, none of them a control character"),
    "digest": (re.compile(r"[a-zA-Z0-9:+/=_-]{0,255}"), "at most 255 letters, digits, ':', '+', '/', '=', '_' and '-'"),
}
"""By a text's name what it may be, and that in words."""


_texts: Final = Texts()


class Unreadable(ValueError):
    """A record that is not of the contract; to be counted and skipped. The message says what is wrong with it."""


def encode_key(key: Key) -> bytes:
    """The one form of a key."""
    match key:
        case HoldKey() | LimitKey():
            body: dict[str, Any] = {
                "group": key.group,
                "holder": key.holder,
                "kind": "hold" if isinstance(key, HoldKey) else "limit",
                "partition": key.partition,
                "topic": key.topic,
            }
        case PartitionKey():
            body = {"kind": "partition", "partition": key.partition, "topic": key.topic, "topic_id": key.topic_id}
        case ClockKey():
            body = {"kind": "clock"}
        case ClaimKey():
            body = {"claim": key.claim, "group": key.group, "kind": "claim"}
        case RunKey():
            of_policy = {"policy": key.policy} if key.policy else {}
            body = {"id": key.id, "kind": "run", "namespace": key.namespace, **of_policy}
        case AckKey():
            body = {"group": key.group, "kind": "ack", "partition": key.partition, "topic": key.topic}
    return _json(body)


def encode_value(value: Value) -> bytes | None:
    """A value; ``None`` is a tombstone."""
    match value:
        case None:
            return None
        case Hold():
            said: dict[str, Any] = {"connection": value.connection} if value.connection else {}
            said |= _version_said(value.version)
            return _json({"drain_timeout_ms": value.drain_timeout_ms, "reason": value.reason, **said})
        case Limit():
            said = {"connection": value.connection} if value.connection else {}
            said |= _version_said(value.version)
            return _json(
                {"drain_timeout_ms": value.drain_timeout_ms, "offset": value.offset, "reason": value.reason, **said}
            )
        case PartitionSeen(initial=True):
            return _json({INITIAL: True})
        case PartitionSeen():
            return _json({"seen_absent_ms": value.seen_absent_ms, "seen_ms": value.seen_ms})
        case Claim():
            renewal = {} if value.epoch is None else {"epoch": value.epoch, "renews_ms": value.renews_ms}
            return _json({"lease_ms": value.lease_ms, "reason": value.reason, "run": value.run, **renewal})
        case Run():
            whose = {"connection": value.connection} if value.connection else {}
            gone = {} if value.deleted_ms is None else {"deleted_ms": value.deleted_ms}
            return _json(
                {
                    **whose,
                    **gone,
                    **_version_said(value.version),
                    "digest": value.digest,
                    "finished_ms": value.finished_ms,
                    "outcome": value.outcome,
                    "started_ms": value.started_ms,
                    "uid": value.uid,
                }
            )
        case Ack():
            return _json({"epoch": value.epoch, "member": value.member, "offset": value.offset})


CLOCK_VALUE: Final = b"{}"
"""What a clock record carries: nothing, but no tombstone."""


def decode(key: bytes | None, value: bytes | None) -> tuple[Key, Value]:
    """Read one record. A value's unknown members are passed over, for a later version may add some.

    Raises ``Unreadable``, and nothing else whatever the bytes are.
    """
    if key is None:
        raise Unreadable("it has no key")
    ack = _plain_ack(key, value)
    return _long(key, value) if ack is None else ack


def _long(key: bytes, value: bytes | None) -> tuple[Key, Value]:
    read = _key(_object(key, "key"))
    if encode_key(read) != key:
        raise Unreadable("its key is not in the one form: sorted members, no white space, nothing escaped needlessly")
    return read, None if value is None else _value(read, _object(value, "value"))


_ACK_KEY: Final = re.compile(
    rb'\{"group":"([^"\\\x00-\x1f\x7f]{1,1020})","kind":"ack","partition":(0|[1-9][0-9]{0,9}),'
    rb'"topic":"(?!\.{1,2}")([a-zA-Z0-9._-]{1,249})"\}'
)

_ACK_VALUE: Final = re.compile(
    rb'\{"epoch":(0|[1-9][0-9]{0,18}),"member":"([^"\\\x00-\x1f]{0,4096})","offset":(-1|0|[1-9][0-9]{0,18})\}'
)


def _plain_ack(key: bytes, value: bytes | None) -> tuple[AckKey, Ack | None] | None:
    """An ack as agents write it, five times as fast as any JSON: anybody may write millions of them, and they are all
    read. ``None``: it takes a closer look."""
    found, says = _ACK_KEY.fullmatch(key), None if value is None else _ACK_VALUE.fullmatch(value)
    if found is None or (value is not None and says is None):
        return None
    try:
        group, partition = found[1].decode(), int(found[2])
        ack = None if says is None else Ack(int(says[1]), int(says[3]), says[2].decode())
    except UnicodeDecodeError:
        return None
    if len(group) > 255 or partition > _INT32:
        return None
    if ack is not None and (max(ack.epoch, ack.offset) > _INT64 or len(ack.member) > 1024):
        return None
    return AckKey(group, found[3].decode(), partition), ack


def _key(body: Mapping[str, Any]) -> Key:
    kind = body.get("kind")
    match kind:
        case "hold" | "limit":
            number = _number(body, "partition", _INT32)
            made = HoldKey if kind == "hold" else LimitKey
            return made(_text(body, "group"), _text(body, "topic"), number, _text(body, "holder"))
        case "partition":
            number = _number(body, "partition", MOST_PARTITIONS - 1)
            return PartitionKey(_text(body, "topic"), _text(body, "topic_id"), number)
        case "clock":
            return ClockKey()
        case "claim":
            return ClaimKey(_text(body, "group"), _text(body, "claim"))
        case "run":
            policy = _text(body, "policy") if "policy" in body else ""
            return RunKey(_text(body, "namespace"), policy, _text(body, "id"))
        case "ack":
            return AckKey(_text(body, "group"), _text(body, "topic"), _number(body, "partition", _INT32))
        case _:
            raise Unreadable(f"its key is of kind {_shown(kind)}, which this version does not know")


def _value(key: Key, body: Mapping[str, Any]) -> Value:
    match key:
        case HoldKey():
            drain_timeout_ms = _number(body, "drain_timeout_ms", _DRAIN_MS)
            return Hold(_text(body, "reason"), drain_timeout_ms, _connection(body), _version(body))
        case LimitKey():
            offset, drain_timeout_ms = _number(body, "offset", _INT64), _number(body, "drain_timeout_ms", _DRAIN_MS)
            return Limit(offset, _text(body, "reason"), drain_timeout_ms, _connection(body), _version(body))
        case PartitionKey():
            return _seen(body)
        case ClockKey():
            return None
        case ClaimKey():
            return _claim(body)
        case RunKey():
            return _run(body)
        case AckKey():
            epoch, offset = _number(body, "epoch", _INT64), _number(body, "offset", _INT64, least=-1)
            return Ack(epoch, offset, _text(body, "member"))


def _connection(body: Mapping[str, Any]) -> str:
    """Agents pass it over, so whatever is written there the gate is closed for them: it must be so for readers, too."""
    try:
        return _text(body, "connection")
    except Unreadable:
        return ""


def _version(body: Mapping[str, Any]) -> int:
    """For the same reason as of ``connection``, what is no version is passed over."""
    try:
        return number_of(body.get(VERSION))
    except ValueError:
        return 1


def _version_said(version: int) -> dict[str, Any]:
    """What says none is of version 1."""
    return {VERSION: version} if version > 1 else {}


def _claim(body: Mapping[str, Any]) -> Claim:
    run, reason, lease_ms = _text(body, "run"), _text(body, "reason"), _number(body, "lease_ms", LONGEST_LEASE_MS)
    if body.get("epoch") is None:
        return Claim(run, reason, lease_ms)
    return Claim(run, reason, lease_ms, _number(body, "epoch", _INT64), _number(body, "renews_ms", _INT64))


def _run(body: Mapping[str, Any]) -> Run:
    uid, started_ms = _text(body, "uid"), _number(body, "started_ms", _INT64)
    if body.get("outcome") is None:
        return Run(uid, started_ms, version=_version(body))
    try:
        outcome = Outcome(body["outcome"])
    except ValueError:
        raise Unreadable(f"outcome must be one of {', '.join(Outcome)}, not {_shown(body['outcome'])}") from None
    deleted_ms = None if body.get("deleted_ms") is None else _number(body, "deleted_ms", _INT64)
    finished_ms, digest = _number(body, "finished_ms", _INT64), _text(body, "digest")
    return Run(uid, started_ms, outcome, finished_ms, digest, _connection(body), deleted_ms, _version(body))


def _seen(body: Mapping[str, Any]) -> PartitionSeen:
    if body.get(INITIAL) is True:
        return PartitionSeen(initial=True)
    absent = None if body.get("seen_absent_ms") is None else _number(body, "seen_absent_ms", _INT64)
    return PartitionSeen(seen_ms=_number(body, "seen_ms", _INT64), seen_absent_ms=absent)


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
    return _texts.once(value)


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
