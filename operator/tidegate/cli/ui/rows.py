"""One line for each resource, as the page lists it. Pure.

Names and messages are others': each text goes through ``visible`` here, and the page only ever sets it as text.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from tidegate.incident.overview import Row, row_of
from tidegate.kube.ports import (
    APPROVALS,
    BACKUPS,
    CONNECTIONS,
    MIRRORS,
    PAUSES,
    POLICIES,
    RESETS,
    Kind,
    Object,
    connection_named,
    name_of,
    namespace_of,
)
from tidegate.printable import visible
from tidegate.resources.base import has_readable_status, read_status
from tidegate.resources.offset_reset import OffsetResetStatus
from tidegate.resources.reset import ResetPhase, has_ended
from tidegate.resources.timestamps import format_timestamp

SHOWN: Final = (CONNECTIONS, RESETS, PAUSES, POLICIES, BACKUPS, MIRRORS)
"""The kinds that have lines. Approvals are told of with their resets."""
WATCHED: Final = (*SHOWN, APPROVALS)

MOST_EXACT: Final = 2**53 - 1
"""What JavaScript still counts exactly: a whole number beyond it is sent as a text, which the page shows as it is."""
_MOST_TEXT: Final = 600
"""Characters of a message in a list; what the resource's own page shows is not cut."""
_FAILED: Final = (ResetPhase.FAILED, ResetPhase.ROLLED_BACK)

Line = Mapping[str, Any]
"""What a line says, as JSON."""


def line_id(kind: Kind, namespace: str, name: str) -> str:
    return f"{kind.plural}/{namespace}/{name}"


def line(kind: Kind, body: Object) -> Line:
    """``groups``: the one that it names, as it is; ``patterns``: whether it names patterns of groups instead."""
    row, spec = row_of(kind, body), body.get("spec") or {}
    group = spec.get("group")
    return {
        "id": line_id(kind, namespace_of(body), name_of(body)),
        "kind": kind.plural,
        "namespace": namespace_of(body),
        "name": name_of(body),
        "connection": _connection(kind, body),
        "groups": [group] if isinstance(group, str) else [],
        "patterns": bool(spec.get("groups")),
        "about": _cut(visible(row.about)),
        "state": visible(row.state),
        "tone": _tone(kind, row),
        "since": time_text(row.since),
        "message": _cut(visible(row.message.removeprefix(f"{row.state.partition(' ')[0]}: "))),
        **(made_visible(_of_reset(body)) if kind == RESETS else {}),
    }


def _cut(text: str) -> str:
    """A longer one ends with an ellipsis."""
    return text if len(text) <= _MOST_TEXT else f"{text[: _MOST_TEXT - 1]}…"


def _connection(kind: Kind, body: Object) -> str:
    if kind == CONNECTIONS:
        return f"{namespace_of(body)}/{name_of(body)}"
    namespace, name = connection_named(body)
    return f"{namespace}/{name}" if name else ""


def _tone(kind: Kind, row: Row) -> str:
    """Which of the page's five colours its state has: good, bad, wait (for a person), busy or idle."""
    state = row.state.partition(" ")[0]
    if kind == RESETS and state == ResetPhase.AWAITING_APPROVAL:
        return "wait"
    if row.troubled or (kind == RESETS and state in _FAILED):
        return "bad"
    if state in ("Ready", "Paused", ResetPhase.SUCCEEDED):
        return "good"
    if state in ("Resumed", "Unknown"):
        return "idle"
    return "busy" if kind in (RESETS, PAUSES) else "idle"


def _of_reset(body: Object) -> dict[str, Any]:
    if not has_readable_status(OffsetResetStatus, body):
        return {"ended": False, "startedAt": None, "finishedAt": None, "moved": None, "partitions": None}
    status = read_status(OffsetResetStatus, body)
    plan = status.plan
    return {
        "ended": has_ended(status.phase),
        "startedAt": time_text(status.started_at),
        "finishedAt": time_text(status.finished_at),
        "moved": plan.moved if plan is not None else None,
        "partitions": plan.partitions if plan is not None else None,
        "replayed": plan.records_replayed if plan is not None else None,
        "skipped": plan.records_skipped if plan is not None else None,
    }


def time_text(at: datetime | None) -> str | None:
    """RFC 3339, to the second."""
    return None if at is None else format_timestamp(at.replace(microsecond=0))


def made_visible(value: Mapping[str, Any]) -> dict[str, Any]:
    """The same JSON, with each text that is not a key made visible, and each number such as a browser can read."""
    return {key: _made_visible(each) for key, each in value.items()}


def _made_visible(value: Any) -> Any:
    match value:
        case str():
            return visible(value)
        case Mapping():
            return made_visible(value)
        case list() | tuple():
            return [_made_visible(each) for each in value]
        case int() if abs(value) > MOST_EXACT:
            return str(value)
        case _:
            return value
