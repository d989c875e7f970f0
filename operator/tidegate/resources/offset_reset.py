"""``OffsetReset``: one reset of one group or of a fleet, which runs once, as a ``Job`` does."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated, Final

from pydantic import Field, StrictBool

from tidegate.resources.base import (
    ConnectionRef,
    Duration,
    GroupId,
    GroupPattern,
    InvalidResource,
    Problem,
    SpecModel,
    StatusModel,
    TopicPattern,
    unique,
)
from tidegate.resources.conditions import Conditions
from tidegate.resources.policy import MAX_GROUP_PATTERNS, OffsetResetPolicySpec, fleet_complaints
from tidegate.resources.reset import ResetOptions, ResetPhase, ResetSpec, RunStatus
from tidegate.resources.spark import SparkSpec

NAME: Final = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
MAX_NAME: Final = 63
NAME_MESSAGE: Final = (
    "must have at most 63 lower-case letters, digits and '-', and begin and end with a letter or digit: choose another "
    "name, or use generateName"
)


class OffsetResetSpec(ResetOptions, SpecModel):
    """``OffsetReset.spec``. ``topics`` absent: what the group subscribes to.

    Either ``group`` is set, or ``groups``: a fleet. ``suspend``: it does not begin, nor is an approved plan applied.
    ``ttl_after_finished``: how long the resource is kept after its end; absent: until somebody deletes it.
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
    spark: SparkSpec | None = None
    suspend: StrictBool = False
    ttl_after_finished: Duration | None = None

    def _complaints(self) -> Iterator[str]:
        yield from super()._complaints()
        yield from fleet_complaints(self.group, self.groups, self, path="")

    def as_policy(self, name: str) -> OffsetResetPolicySpec:
        """What is asked for, as a policy would ask for it under the id ``name``. Raises :class:`InvalidResource` for a
        name that is no id of a run."""
        if len(name) > MAX_NAME or re.fullmatch(NAME, name) is None:
            raise InvalidResource((Problem("metadata.name", NAME_MESSAGE),))
        return OffsetResetPolicySpec(
            connection_ref=self.connection_ref,
            group=self.group,
            groups=self.groups,
            topics=self.topics,
            spark=self.spark,
            reset=ResetSpec(id=name, **{member: getattr(self, member) for member in ResetOptions.model_fields}),
        )


class OffsetResetStatus(RunStatus, StatusModel):
    """``OffsetReset.status``. ``result_digest``: SHA-256, in hex, of the stored request, plan and result; an undo goes
    by nothing else."""

    phase: ResetPhase | None = None
    result_digest: str | None = None
    conditions: Conditions = ()
