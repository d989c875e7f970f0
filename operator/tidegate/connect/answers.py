"""What Connect's workers answer, as hostile as any other input: of it only states and a group's id are taken. Pure."""

from __future__ import annotations

import json
import re
from http import HTTPStatus
from typing import Any, Final

from tidegate.connect.ports import Connector

MOST_TASKS: Final = 10_000

_STATE: Final = re.compile(r"[A-Z_]{1,32}")
_MOST_GROUP: Final = 249
_GROUP: Final = "consumer.override.group.id"


class BadAnswer(ValueError):
    """No worker answers like this. Has nothing of what was answered: a configuration may have secrets."""


def decode_connector(name: str, described: bytes, status: bytes) -> Connector:
    """From the answers to ``/connectors/X`` and ``/connectors/X/status``; empty ``status``: it has none yet.

    Raises ``BadAnswer``.
    """
    told = _object(described)
    said = _object(status) if status else {}
    config, tasks, state = told.get("config"), said.get("tasks", []), said.get("connector")
    if not isinstance(config, dict) or not isinstance(tasks, list) or len(tasks) > MOST_TASKS:
        raise BadAnswer
    group, kind = config.get(_GROUP, ""), told.get("type")
    # It is told in messages, which people read in terminals. Nor is half a character of UTF-16 any text.
    if not isinstance(group, str) or len(group) > _MOST_GROUP or not group.isprintable():
        raise BadAnswer
    return Connector(
        name=name,
        kind=kind if kind in ("sink", "source") else "unknown",
        state=_state(state) if status else "",
        tasks=tuple(_state(task) for task in tasks),
        group=group,
    )


def says_not_found(answer: bytes) -> bool:
    """Whether it is a worker who answers 404. One that starts has a web server already, and that answers 404 for a few
    seconds, with a page."""
    try:
        return _object(answer).get("error_code") == HTTPStatus.NOT_FOUND
    except BadAnswer:
        return False


def _object(answer: bytes) -> dict[str, Any]:
    try:
        parsed = json.loads(answer)
    except (ValueError, RecursionError):
        raise BadAnswer from None
    if not isinstance(parsed, dict):
        raise BadAnswer
    return parsed


def _state(told: object) -> str:
    state = told.get("state") if isinstance(told, dict) else None
    if not isinstance(state, str) or _STATE.fullmatch(state) is None:
        raise BadAnswer
    return state
