"""Where a reset sends a group: ``reset.to``."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Final, Self

from pydantic import (
    AfterValidator,
    Field,
    StrictBool,
    StrictInt,
    model_validator,
)

from tidegate.resources.base import (
    ConnectionRef,
    GroupId,
    PositiveDuration,
    ResourceModel,
    ResourceName,
    SecretKey,
    Timestamp,
    matching,
    problem,
    unique,
)
from tidegate.resources.durations import parse_duration
from tidegate.resources.snapshots import SnapshotStorage

RunId = Annotated[
    str,
    matching(
        r"[a-z0-9]([-a-z0-9]*[a-z0-9])?",
        "must be a run's id: lower-case letters, digits and '-', beginning and ending with a letter or digit, "
        "1 to 63 characters",
        most=63,
    ),
]


class Empty(ResourceModel):
    """``{}``: a target that needs no more said."""


class ConfigMapTarget(ResourceModel):
    """A ConfigMap's key that holds the CSV which ``kafka-consumer-groups --export`` writes."""

    name: ResourceName
    key: SecretKey


class NoMatch(StrEnum):
    """What becomes of a partition in which no record is found, as ``tidegate.reset.model.NoMatch`` names it."""

    KEEP = "Keep"
    END = "End"
    FAIL = "Fail"


class SchemaFormat(StrEnum):
    """How values are encoded, as ``tidegate.reset.model.SchemaFormat`` names it."""

    JSON = "Json"


class ValueSchema(ResourceModel):
    """A ConfigMap's key that says what values hold: for ``Json``, columns and types as Spark's SQL writes them."""

    config_map: ConfigMapTarget
    format: SchemaFormat = SchemaFormat.JSON


def _without_variables(where: str) -> str:
    if "${" in where:
        raise problem("must not have '${', which stands for variables of Spark: a condition reads the record alone")
    return where


class RecordTarget(ResourceModel):
    """The first record for which ``where`` (Spark SQL over the record's columns) holds.

    ``from_`` and ``until`` bound the records looked at, by their timestamps; ``after``: behind the last one instead.
    """

    where: Annotated[str, Field(min_length=1, max_length=4096), AfterValidator(_without_variables)]
    from_: Annotated[Timestamp | None, Field(alias="from")] = None
    until: Timestamp | None = None
    after: StrictBool = False
    no_match: NoMatch = NoMatch.KEEP
    value_schema: ValueSchema | None = None

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.from_ is not None and self.until is not None and self.from_ >= self.until:
            raise problem("from must be before until: exchange them or remove one")
        return self


MatchKey = Annotated[
    str,
    matching(
        r"timestamp|key|value|header:[^\x00-\x1f\x7f]{1,249}",
        "must be timestamp, key, value, or header:<name> with a name of at most 249 characters",
        most=256,
    ),
]

MirrorAlias = Annotated[
    str,
    matching(
        r"[a-zA-Z0-9._-]+",
        "must be MirrorMaker's alias of a cluster: letters, digits, '.', '_' and '-', at most 100 characters",
        most=100,
    ),
]


class ClusterTarget(ResourceModel):
    """Where a group of another cluster stands, translated by records that are the same in ``match``.

    ``window``: how much time around that place is compared at least. ``alias``: MirrorMaker 2's of the other cluster.
    """

    connection_ref: ConnectionRef
    group: GroupId
    match: Annotated[
        tuple[MatchKey, ...],
        Field(min_length=1, max_length=16),
        unique(str, "must not repeat an entry: remove the second one"),
    ]
    window: PositiveDuration = parse_duration("1h")
    alias: MirrorAlias | None = None


class SnapshotTarget(ResourceModel):
    """Where the group stood in a snapshot: the newest one that was read to its end by ``at``; absent: the newest."""

    from_: Annotated[SnapshotStorage, Field(alias="from")]
    at: Timestamp | None = None


class TargetKind(StrEnum):
    """The members of ``reset.to``, as they are written."""

    EARLIEST = "earliest"
    LATEST = "latest"
    OFFSET = "offset"
    TIMESTAMP = "timestamp"
    DURATION = "duration"
    SHIFT_BY = "shiftBy"
    CONFIG_MAP = "configMap"
    GROUP = "group"
    UNDO = "undo"
    RECORD = "record"
    CLUSTER = "cluster"
    SNAPSHOT = "snapshot"

    @property
    def needs_spark(self) -> bool:
        """Whether it is found by Spark only."""
        return self.reads_records or self is TargetKind.SNAPSHOT

    @property
    def reads_records(self) -> bool:
        """Whether records have to be read to find it."""
        return self in (TargetKind.RECORD, TargetKind.CLUSTER)


def _not_zero(value: int) -> int:
    if value == 0:
        raise problem("must not be 0: a positive number goes forward, a negative one back")
    return value


_INT64: Final = 2**63 - 1

ShiftRecords = Annotated[StrictInt, Field(ge=-_INT64, le=_INT64), AfterValidator(_not_zero)]

Offset = Annotated[StrictInt, Field(ge=0, le=_INT64)]


class ResetTo(ResourceModel):
    """Where the group is sent: exactly one member is set, and :attr:`kind` names it."""

    earliest: Empty | None = None
    latest: Empty | None = None
    offset: Offset | None = None
    timestamp: Timestamp | None = None
    duration: PositiveDuration | None = None
    shift_by: ShiftRecords | None = None
    config_map: ConfigMapTarget | None = None
    group: GroupId | None = None
    undo: RunId | None = None
    record: RecordTarget | None = None
    cluster: ClusterTarget | None = None
    snapshot: SnapshotTarget | None = None

    @model_validator(mode="after")
    def _exactly_one(self) -> Self:
        if len(self._set()) != 1:
            raise problem(
                "must have exactly one of earliest, latest, offset, timestamp, duration, shiftBy, configMap, group, "
                "undo, record, cluster, snapshot: keep one and remove the others"
            )
        return self

    def _set(self) -> tuple[TargetKind, ...]:
        fields = type(self).model_fields
        return tuple(TargetKind(str(field.alias)) for name, field in fields.items() if getattr(self, name) is not None)

    @property
    def kind(self) -> TargetKind:
        """Which member is set."""
        return self._set()[0]
