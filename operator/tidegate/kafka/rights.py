"""Kafka's rights (``AclOperation`` on ``ResourceType``) by name, so that a refusal says what to grant. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum


class Resource(StrEnum):
    """As ``kafka-acls`` has them as options."""

    TOPIC = "topic"
    GROUP = "group"
    TRANSACTIONAL_ID = "transactional-id"
    CLUSTER = "cluster"


@dataclass(frozen=True, slots=True)
class Right:
    """``operation``: as ``kafka-acls --operation`` takes it. ``name`` is empty for the cluster.

    ``prefixed``: on all whose names begin with ``name``.
    """

    operation: str
    resource: Resource
    name: str = ""
    prefixed: bool = False

    def __str__(self) -> str:
        what = f"{self.resource.value}s that begin with" if self.prefixed else self.resource.value
        return f"{self.operation} on {what} {self.name}".rstrip()

    @property
    def option(self) -> str:
        """What ``kafka-acls --add --allow-principal …`` takes for it."""
        on = f"--{self.resource.value} {shlex.quote(self.name)}" if self.name else f"--{self.resource.value}"
        how = " --resource-pattern-type prefixed" if self.prefixed else ""
        return f"--operation {self.operation} {on}{how}"


def on_topics(operation: str, names: Iterable[str]) -> tuple[Right, ...]:
    return tuple(Right(operation, Resource.TOPIC, name) for name in sorted(set(names)))


def on_group(operation: str, group_id: str) -> Right:
    return Right(operation, Resource.GROUP, group_id)


def to_grant(needed: Iterable[Right], refused: Resource | None) -> str:
    """What is needed of the kind of resource that was refused (``None``: of any), as a sentence's end; may be empty.

    A broker names the kind, and not always which of several it was.
    """
    rights = [right for right in needed if refused is None or right.resource is refused]
    if not rights:
        return ""
    shown = ", ".join(map(str, rights[:3])) + (f" and {len(rights) - 3} more" if len(rights) > 3 else "")
    return f": allow the principal {shown} (kafka-acls --add --allow-principal User:NAME {rights[0].option})"
