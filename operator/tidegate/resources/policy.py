"""``OffsetResetPolicy``: how a group's offsets are kept, and the reset to run now, of one group or of a fleet."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, ClassVar, Final, Self

from pydantic import (
    Field,
    model_validator,
)

from tidegate.resources.base import (
    ConnectionRef,
    GroupId,
    GroupPattern,
    Problem,
    SpecModel,
    StatusModel,
    TopicPattern,
    Transition,
    problem,
    unique,
)
from tidegate.resources.conditions import Conditions
from tidegate.resources.features import (
    ConsumersSpec,
    DiscoverySpec,
    DiscoveryStatus,
    InjectionStatus,
    LatestSpec,
    RetentionSpec,
    RetentionStatus,
)
from tidegate.resources.reset import ResetOptions, ResetSpec, ResetStatus, RunHistory
from tidegate.resources.snapshots import SnapshotsSpec, SnapshotsStatus
from tidegate.resources.spark import SparkSpec
from tidegate.resources.targets import TargetKind


def _group_is_immutable(old: Mapping[str, Any], new: Mapping[str, Any]) -> Problem | None:
    before, after = old.get("group"), new.get("group")
    if before == after or (before is None) != (after is None):
        return None
    return Problem("spec.group", "is immutable: make another OffsetResetPolicy for the other group")


def _groups_are_immutable(old: Mapping[str, Any], new: Mapping[str, Any]) -> Problem | None:
    before, after = old.get("groups"), new.get("groups")
    if before == after:
        return None
    if before is None or after is None:
        return Problem("spec", "group and groups cannot take each other's place: make another OffsetResetPolicy")
    return Problem("spec.groups", "is immutable: make another OffsetResetPolicy for other groups")


def _reset_is_immutable_under_one_id(old: Mapping[str, Any], new: Mapping[str, Any]) -> Problem | None:
    before, after = old.get("reset"), new.get("reset")
    if before is None or after is None or before["id"] != after["id"] or before == after:
        return None
    return Problem(
        "spec.reset", "is immutable under one id, since it runs once: give reset.id a new value to run another reset"
    )


MAX_GROUP_PATTERNS: Final = 20

_ONE_BY_ONE: Final = {"reset.": "a policy with group for each", "": "an OffsetReset with group for each"}

_OF_ONE_GROUP: Final = (TargetKind.CLUSTER, TargetKind.CONFIG_MAP, TargetKind.SNAPSHOT)


class OffsetResetPolicySpec(SpecModel):
    """``OffsetResetPolicy.spec``. ``topics`` absent: what the group subscribes to.

    Either ``group`` is set, or ``groups``: a fleet, which can be reset and nothing else.
    """

    connection_ref: ConnectionRef
    group: GroupId | None = None
    groups: (
        Annotated[
            tuple[GroupPattern, ...],
            Field(min_length=1, max_length=MAX_GROUP_PATTERNS),
            unique(str, "must not repeat a pattern: remove the second one"),
        ]
        | None
    ) = None
    topics: (
        Annotated[
            tuple[TopicPattern, ...],
            Field(min_length=1, max_length=100),
            unique(str, "must not repeat a topic: remove the second one"),
        ]
        | None
    ) = None
    latest: LatestSpec | None = None
    discovery: DiscoverySpec | None = None
    consumers: ConsumersSpec | None = None
    retention: RetentionSpec | None = None
    snapshots: SnapshotsSpec | None = None
    reset: ResetSpec | None = None
    spark: SparkSpec | None = None

    transitions: ClassVar[tuple[Transition, ...]] = (
        _group_is_immutable,
        _groups_are_immutable,
        _reset_is_immutable_under_one_id,
    )

    @property
    def only_group(self) -> str:
        """``group``. Raises ``ValueError`` for a fleet, for which nothing but a reset can be asked."""
        if self.group is None:
            raise ValueError("a fleet has no group of which something could be kept")
        return self.group

    @property
    def group_patterns(self) -> tuple[str, ...]:
        """The groups that it is about: the name of one, or a fleet's patterns."""
        return self.groups if self.groups is not None else (self.only_group,)

    @property
    def keeps_something(self) -> bool:
        """Whether it asks for more than a reset."""
        parts = (self.latest, self.discovery, self.consumers, self.retention, self.snapshots)
        return any(part is not None for part in parts)

    @model_validator(mode="after")
    def _fields_fit_together(self) -> Self:
        complaints = tuple(self._complaints())
        if complaints:
            raise problem("; ".join(complaints))
        return self

    def _complaints(self) -> Iterator[str]:
        yield from fleet_complaints(self.group, self.groups, self.reset, path="reset.")
        if self.groups is not None and self.keeps_something:
            yield (
                "latest, discovery, consumers, retention and snapshots are not for a fleet: give them to a policy with "
                "group, and use groups for resets only"
            )


def fleet_complaints(
    group: str | None, groups: tuple[str, ...] | None, reset: ResetOptions | None, path: str
) -> Iterator[str]:
    """What is wrong with a reset of one group, or of a fleet. ``path``: of the reset's members in the spec."""
    if (group is None) == (groups is None):
        yield "must have exactly one of group, for one group, and groups, for a fleet: keep one"
    if reset is None:
        return
    if group is not None and reset.to.group == group:
        yield f"{path}to.group must name another group: this one already stands where it stands"
    if groups is None:
        if reset.failure_policy is not None:
            yield f"{path}failurePolicy is for a fleet: remove it, or use groups"
    elif reset.to.kind in _OF_ONE_GROUP or reset.evidence is not None:
        yield (
            f"{path}to.cluster, configMap, snapshot and {path}evidence are for one group: use another target, or "
            f"{_ONE_BY_ONE[path]}"
        )


MAX_HISTORY: Final = 10


class PolicyStatus(StatusModel):
    """``OffsetResetPolicy.status``. ``history``: the last runs, the newest first."""

    reset: ResetStatus | None = None
    history: Annotated[tuple[RunHistory, ...], Field(max_length=MAX_HISTORY)] = ()
    discovery: DiscoveryStatus | None = None
    retention: RetentionStatus | None = None
    injection: InjectionStatus | None = None
    snapshots: SnapshotsStatus | None = None
    conditions: Conditions = ()
