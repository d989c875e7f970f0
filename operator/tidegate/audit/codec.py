"""Records of the audit topic as bytes, and what is read there as records. Pure.

Whoever may write the topic may write anything, so what is read is bounded and checked, and what is no such record is
counted and left out. Values are UTF-8 JSON. Keys are unique, so that a topic that is compacted by mistake loses none.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any, Final

from tidegate.audit.records import Action, Actor, Attribution, AuditTopic, Change, Moved, Part, State
from tidegate.kafka.model import TopicPartition
from tidegate.kafka.names import TOPIC_NAME
from tidegate.versions import AUDIT, VERSION, check

KIND: Final = "change"

PART_BYTES: Final = 400_000
"""About the most that a record takes, before it is compressed: less than half of ``message.max.bytes`` at its default.
"""
MOST_BYTES: Final = 1_048_576
"""The longest value that is read."""

ATTRIBUTION_VARIABLE: Final = "TIDEGATE_RUN_AUDIT"

_LAST_MS: Final = 253_402_300_799_999
"""The end of the year 9999."""
_INT32: Final = 2**31 - 1
_INT64: Final = 2**63 - 1
_PARTS: Final = 100_000
_ROW_BYTES: Final = 16
"""Of a row beside its numbers."""

_LONGEST: Final = {"id": 34_000, "group": 32_767, "run": 34_000, "way": 64, "plan": 256, "approved": 256}
"""A fleet's runs are named after their groups."""
_LONGEST_NAME: Final = 4096
"""Of who asked, who approved, and of the members of ``by``."""


class Unreadable(ValueError):
    """No record of the audit log, or one that is broken. The message says what is wrong with it."""


# --- writing ----------------------------------------------------------------------------------------------------------


def encode_change(change: Change) -> dict[bytes, bytes]:
    """Keys and values of the parts, in order, each of about ``PART_BYTES`` at most."""
    parts = list(_portions(change.offsets))
    head = _head(change)
    return {
        f"{change.id}:{change.state.value}:{number}".encode(): _json(
            {**head, "part": number, "parts": len(parts), "offsets": offsets}
        )
        for number, offsets in enumerate(parts, 1)
    }


def _head(change: Change) -> dict[str, Any]:
    by = {name: value for name, value in asdict(change.by).items() if value}
    said = {
        "run": change.run,
        "round": change.round,
        "way": change.way,
        "plan": change.plan,
        "requester": change.requester,
        "approver": change.approver,
        "approved": change.approved,
    }
    return {
        "kind": KIND,
        VERSION: AUDIT.version,
        "id": change.id,
        "action": change.action.value,
        "state": change.state.value,
        "group": change.group,
        "by": by,
        **{name: value for name, value in said.items() if value},
    }


def _portions(offsets: Mapping[TopicPartition, Moved]) -> Iterator[dict[str, list[list[int | None]]]]:
    """At least one, with rows of partition, before and after by topic."""
    portion: dict[str, list[list[int | None]]] = {}
    size = 0
    for partition, moved in sorted(offsets.items()):
        row = [partition.partition, moved.before, moved.after]
        takes = len(str(row)) + (0 if partition.topic in portion else len(partition.topic) + _ROW_BYTES)
        if portion and size + takes > PART_BYTES:
            yield portion
            portion, size = {}, 0
            takes = len(str(row)) + len(partition.topic) + _ROW_BYTES
        portion.setdefault(partition.topic, []).append(row)
        size += takes
    yield portion


def _json(body: Mapping[str, Any]) -> bytes:
    return json.dumps(body, separators=(",", ":")).encode()


# --- reading ----------------------------------------------------------------------------------------------------------


def decode_change(value: bytes | None) -> Part:
    """Raises ``Unreadable``, and ``NewerVersion`` for a record of a version that is not known yet."""
    body = _object(_parsed(value), "its value")
    try:
        check(AUDIT, body.get(VERSION), "a record of the audit topic")
    except ValueError as error:
        raise Unreadable(str(error)) from error
    if body.get("kind") != KIND:
        raise Unreadable("it is of another kind")
    number, of = _number(body, "part", 1, _PARTS), _number(body, "parts", 1, _PARTS)
    if number > of:
        raise Unreadable(f"it is part {number} of {of}")
    change = Change(
        id=_text(body, "id", least=1),
        action=_one_of(Action, body, "action"),
        state=_one_of(State, body, "state"),
        group=_text(body, "group", least=1),
        by=_actor(body),
        offsets=dict(_offsets(body)),
        run=_text(body, "run"),
        round=_number(body, "round", 0, _INT32) if "round" in body else 0,
        way=_text(body, "way"),
        plan=_text(body, "plan"),
        requester=_text(body, "requester"),
        approver=_text(body, "approver"),
        approved=_text(body, "approved"),
    )
    return Part(change, number, of)


def _parsed(value: bytes | None) -> Any:
    if value is None:
        raise Unreadable("it has no value")
    if len(value) > MOST_BYTES:
        raise Unreadable(f"its value has {len(value)} bytes, and at most {MOST_BYTES} are read")
    try:
        return json.loads(value.decode(), parse_constant=_refused)
    except (ValueError, RecursionError) as error:
        raise Unreadable("its value is not JSON") from error


def _refused(constant: str) -> Any:
    raise ValueError(constant)


def _object(value: Any, what: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise Unreadable(f"{what} is not an object")
    return value


def _text(body: Mapping[str, Any], name: str, *, least: int = 0) -> str:
    value, most = body.get(name, ""), _LONGEST.get(name, _LONGEST_NAME)
    if not isinstance(value, str) or not least <= len(value) <= most:
        raise Unreadable(f"{name} must be a text of {least} to {most} characters")
    return value


def _number(body: Mapping[str, Any], name: str, least: int, most: int) -> int:
    value = body.get(name)
    if type(value) is not int or not least <= value <= most:
        raise Unreadable(f"{name} must be a whole number from {least} to {most}")
    return value


def _one_of(kind: Any, body: Mapping[str, Any], name: str) -> Any:
    value = body.get(name)
    if not isinstance(value, str) or value not in {member.value for member in kind}:
        raise Unreadable(f"{name} must be one of {', '.join(member.value for member in kind)}")
    return kind(value)


def _actor(body: Mapping[str, Any]) -> Actor:
    by = _object(body.get("by"), "by")
    return Actor(kind=_text(by, "kind", least=1), name=_text(by, "name", least=1), namespace=_text(by, "namespace"))


def _offsets(body: Mapping[str, Any]) -> Iterator[tuple[TopicPartition, Moved]]:
    for topic, rows in _object(body.get("offsets"), "offsets").items():
        if not TOPIC_NAME.fullmatch(topic) or not isinstance(rows, list):
            raise Unreadable("offsets must have a list for each topic")
        for row in rows:
            if not isinstance(row, list) or len(row) != 3:
                raise Unreadable("offsets must be lists of partition, before and after")
            number, before, after = row
            if type(number) is not int or not 0 <= number <= _INT32:
                raise Unreadable(f"a partition must be a whole number from 0 to {_INT32}")
            yield TopicPartition(topic, number), Moved(_offset(before), _offset(after))


def _offset(value: Any) -> int | None:
    if value is None:
        return None
    if type(value) is not int or not 0 <= value <= _INT64:
        raise Unreadable(f"an offset must be null, or a whole number from 0 to {_INT64}")
    return value


# --- for people and programs ------------------------------------------------------------------------------------------


def line(part: Part, *, at_ms: int, offset: int) -> str:
    """A part as one line of JSON in ASCII, without the line's end: control characters are escaped, DEL among them.

    ``at_ms``: by the broker's clock. ``offset``: where it is in the audit topic.
    """
    change = part.change
    said = {**_head(change), "part": part.number, "parts": part.of}
    rows = [
        {"topic": p.topic, "partition": p.partition, "before": moved.before, "after": moved.after}
        for p, moved in sorted(change.offsets.items())
    ]
    body = {"at": _time(at_ms), "offset": offset, **said, "offsets": rows}
    return json.dumps(body, separators=(",", ":"), ensure_ascii=True).replace("\x7f", "\\u007f")


def _time(ms: int) -> str | None:
    """``None`` for what is no time: where a topic's timestamps are its writers', they may say anything."""
    if not 0 <= ms <= _LAST_MS:
        return None
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


# --- for jobs ---------------------------------------------------------------------------------------------------------


def attribution_said(attribution: Attribution) -> str:
    """For a job, in ``ATTRIBUTION_VARIABLE``."""
    return json.dumps(asdict(attribution), separators=(",", ":"), sort_keys=True)


def attribution_of(environment: Mapping[str, str]) -> Attribution | None:
    """What :func:`attribution_said`; ``None`` where the operator records nothing. Raises ``ValueError``."""
    said = environment.get(ATTRIBUTION_VARIABLE, "")
    if not said:
        return None
    try:
        body = json.loads(said)
        topic, by, action = AuditTopic(**body["topic"]), Actor(**body["by"]), Action(body["action"])
        return Attribution(**{**body, "topic": topic, "by": by, "action": action})
    except (ValueError, TypeError, KeyError) as error:
        raise ValueError(f"{ATTRIBUTION_VARIABLE} is not what the operator says: {error}") from error
