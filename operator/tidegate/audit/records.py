"""What the audit log says of one change of a group's committed offsets. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from tidegate.kafka.model import TopicPartition

DEFAULT_TOPIC: Final = "__tidegate_audit"


@dataclass(frozen=True, slots=True)
class AuditTopic:
    """Where changes are recorded. ``required``: what can't be recorded is not done."""

    name: str = DEFAULT_TOPIC
    required: bool = False
    replication_factor: int | None = None


class Action(StrEnum):
    """Why offsets are changed."""

    RESET = "reset"
    UNDO = "undo"
    """A reset that goes back to where an earlier one began."""
    ROLLBACK = "rollback"
    """A reset that could not be completed puts back what it has committed."""
    START = "start"
    """A new partition is given its start (discovery)."""
    BACKFILL = "backfill"
    """An owner that began a new partition at its end is sent back to its start."""
    RESTORE = "restore"
    """An offset that has expired is committed again (retention)."""


class State(StrEnum):
    """How certain a record is.

    ``COMMITTED``: it is in the same Kafka transaction as the offsets, so it can be read only if they were committed.
    ``INTENDED`` and ``DONE`` are a pair around a change that no transaction can carry: before it, and once its outcome
    was seen. ``INTENDED`` alone: whether it was done is not known.
    """

    COMMITTED = "committed"
    INTENDED = "intended"
    DONE = "done"


@dataclass(frozen=True, slots=True)
class Actor:
    """What changed the offsets: a resource by kind, namespace and name, or a command by the machine it ran on."""

    kind: str
    name: str
    namespace: str = ""


@dataclass(frozen=True, slots=True)
class Moved:
    """A committed offset as it was read just before the change, and after it; ``None``: there was none, or is none."""

    before: int | None
    after: int | None


@dataclass(frozen=True, slots=True)
class Change:
    """One change of one group. ``id``: unique, but for the two records of a pair. A record of the same id, state and
    part is the same one.

    ``plan``: the digest of the request and the plan that was applied. ``approved``: the digest that ``approver`` has
    approved; of a fleet, that of its plan, which covers the plans of its groups. ``requester`` and ``approver`` are who
    the resources say.
    """

    id: str
    action: Action
    state: State
    group: str
    by: Actor
    offsets: Mapping[TopicPartition, Moved]
    run: str = ""
    round: int = 0
    way: str = ""
    plan: str = ""
    requester: str = ""
    approver: str = ""
    approved: str = ""


@dataclass(frozen=True, slots=True)
class Part:
    """One record: part ``number`` (from 1) of ``of``, with some of the change's offsets. All parts are written at once,
    or none."""

    change: Change
    number: int = 1
    of: int = 1


@dataclass(frozen=True, slots=True)
class Attribution:
    """In whose name a run changes offsets, and where that is recorded.

    Only the operator knows, so it tells its jobs; a run's document says nothing of it.
    """

    topic: AuditTopic
    by: Actor
    requester: str = ""
    approver: str = ""
    approved: str = ""
    action: Action = Action.RESET
