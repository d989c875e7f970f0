"""What a job that makes a backup is told. Without secrets: it travels in a document. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from pydantic import TypeAdapter, ValidationError

from tidegate.jobs.storage import Storage
from tidegate.kafka.connection import Connection
from tidegate.kafka.names import is_allowed
from tidegate.offset_backup.manifest import Keep, Moment


@dataclass(frozen=True, slots=True)
class Order:
    """One backup. ``schedule``: the uid of its ``OffsetBackup``; ``attempt``: the launch's name, which no other has.

    ``groups``: patterns of those that are wanted; ``allowed_groups``, ``allowed_topics``: what the connection allows.
    """

    connection: Connection
    storage: Storage
    schedule: str
    due: Moment
    attempt: str
    groups: tuple[str, ...] = ("*",)
    allowed_groups: tuple[str, ...] = ("*",)
    allowed_topics: tuple[str, ...] = ("*",)
    keep: Keep | None = None


_ORDER: Final = TypeAdapter(Order)


def encode_order(order: Order) -> bytes:
    return _ORDER.dump_json(order)


def decode_order(text: bytes) -> Order:
    """Raises ``ValueError`` for what ``encode_order`` did not write."""
    try:
        order = _ORDER.validate_json(text)
    except ValidationError as error:
        raise ValueError(f"it is not an order of a backup: {error.errors()[0]['msg']}") from error
    for name, value in (("schedule", order.schedule), ("attempt", order.attempt)):
        # They become names of folders.
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9-]*", value):
            raise ValueError(f"{name} is {value!r}: letters, digits and '-' only")
    if order.due.microsecond:
        raise ValueError("due has to be whole seconds")
    return order


def wanted_groups(order: Order, groups: Iterable[str]) -> tuple[str, ...]:
    """The groups to be read, sorted: wanted and allowed."""
    return tuple(sorted(g for g in groups if is_allowed(g, order.groups) and is_allowed(g, order.allowed_groups)))
