"""Conditions as kstatus reads them: ``Ready``, and ``Reconciling`` and ``Stalled`` while they are true; pure functions.

``Ready=True`` speaks of the generation in ``observedGeneration``. ``Reconciling`` and ``Stalled`` are abnormal-true:
they are there while they hold and gone otherwise. Domain conditions (``Reset``, ``Paused`` ...) are set one by one
with :func:`with_condition`. (Kubernetes API conventions, "Typical status properties"; ``metav1.Condition``.)
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Final

from pydantic import Field

from tidegate.resources.base import ResourceModel
from tidegate.resources.fields import Count, Timestamp
from tidegate.resources.rules import list_map

READY: Final = "Ready"
RECONCILING: Final = "Reconciling"
STALLED: Final = "Stalled"
PAUSED: Final = "Paused"
RESET: Final = "Reset"
COMPLETE: Final = "Complete"
FAILED: Final = "Failed"
READ_FROM_TARGET: Final = "ReadFromTarget"
RETAINED: Final = "Retained"
RECORD_STUCK: Final = "RecordStuck"
INJECTED: Final = "Injected"
OVERRIDDEN: Final = "Overridden"
BACKED_UP: Final = "BackedUp"
EFFECTIVE: Final = "Effective"
IN_SYNC: Final = "InSync"
SEEDING: Final = "Seeding"
DRIFTED: Final = "Drifted"
EXCLUSIVE: Final = "Exclusive"
CONTROL_TOPICS: Final = "ControlTopics"
AUDIT_TOPIC: Final = "AuditTopic"
OBSERVING: Final = "Observing"
FROZEN: Final = "Frozen"
PERMISSIONS: Final = "Permissions"
SHARED_ACK_TOPIC: Final = "SharedAckTopic"
CONNECT_CLUSTERS: Final = "ConnectClusters"

MAX_MESSAGE: Final = 32_768
"""The longest message that ``metav1.Condition`` takes; a longer one is cut."""


class ConditionStatus(StrEnum):
    TRUE = "True"
    FALSE = "False"
    UNKNOWN = "Unknown"


_REASON: Final = "^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$"


class Condition(ResourceModel):
    """One condition, as all Kubernetes resources have them.

    ``metav1.Condition``; times are in whole seconds.
    """

    type: Annotated[str, Field(min_length=1, max_length=316)]
    """The condition's name."""

    status: ConditionStatus
    """Whether the condition holds."""

    reason: Annotated[str, Field(min_length=1, max_length=1024, pattern=_REASON)]
    """Why, in one word for programs."""

    message: Annotated[str, Field(max_length=MAX_MESSAGE)]
    """For people: what the state is, where, and what to do."""

    last_transition_time: Timestamp
    """When the status of this condition last changed."""

    observed_generation: Count | None = None
    """The generation of the spec that this condition describes."""


Conditions = Annotated[tuple[Condition, ...], Field(max_length=16), list_map("type")]
"""At most one of each type, in the order in which they were first set."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why something is not, or not yet, as it was asked for: what a condition says of it. ``reason`` is PascalCase;
    ``message`` says what is wrong, where, and what to do."""

    reason: str
    message: str


def find_condition(conditions: Iterable[Condition], condition_type: str) -> Condition | None:
    return next((condition for condition in conditions if condition.type == condition_type), None)


def is_true(conditions: Iterable[Condition], condition_type: str) -> bool:
    """Whether the condition is there and ``True``."""
    condition = find_condition(conditions, condition_type)
    return condition is not None and condition.status is ConditionStatus.TRUE


def with_condition(
    conditions: tuple[Condition, ...],
    condition_type: str,
    status: ConditionStatus | bool | None,
    *,
    reason: str,
    message: str,
    generation: int | None,
    now: datetime,
) -> tuple[Condition, ...]:
    """``conditions`` with this one set. ``status`` ``None`` is ``Unknown``.

    The transition time moves only when ``status`` does, so that setting the same thing again changes nothing.
    """
    if not isinstance(status, ConditionStatus):
        status = ConditionStatus.UNKNOWN if status is None else ConditionStatus(str(status))
    before = find_condition(conditions, condition_type)
    unchanged = before is not None and before.status is status
    condition = Condition(
        type=condition_type,
        status=status,
        reason=reason,
        message=message if len(message) <= MAX_MESSAGE else f"{message[: MAX_MESSAGE - 3]}...",
        last_transition_time=before.last_transition_time if before and unchanged else now.replace(microsecond=0),
        observed_generation=generation,
    )
    if before is None:
        return (*conditions, condition)
    return tuple(condition if other.type == condition_type else other for other in conditions)


def without_condition(conditions: tuple[Condition, ...], condition_type: str) -> tuple[Condition, ...]:
    return tuple(condition for condition in conditions if condition.type != condition_type)


def ready(
    conditions: tuple[Condition, ...], *, reason: str, message: str, generation: int | None, now: datetime
) -> tuple[Condition, ...]:
    """What was asked for is so: ``Ready=True``, and neither ``Reconciling`` nor ``Stalled``."""
    settled = without_condition(without_condition(conditions, RECONCILING), STALLED)
    return with_condition(settled, READY, True, reason=reason, message=message, generation=generation, now=now)


def reconciling(
    conditions: tuple[Condition, ...], *, reason: str, message: str, generation: int | None, now: datetime
) -> tuple[Condition, ...]:
    """On the way there, without anybody's help: ``Ready=False``, ``Reconciling=True``, not ``Stalled``."""
    moving = without_condition(conditions, STALLED)
    moving = with_condition(moving, READY, False, reason=reason, message=message, generation=generation, now=now)
    return with_condition(moving, RECONCILING, True, reason=reason, message=message, generation=generation, now=now)


def stalled(
    conditions: tuple[Condition, ...], *, reason: str, message: str, generation: int | None, now: datetime
) -> tuple[Condition, ...]:
    """Somebody has to do something: ``Ready=False``, ``Stalled=True``, not ``Reconciling``."""
    stuck = without_condition(conditions, RECONCILING)
    stuck = with_condition(stuck, READY, False, reason=reason, message=message, generation=generation, now=now)
    return with_condition(stuck, STALLED, True, reason=reason, message=message, generation=generation, now=now)
