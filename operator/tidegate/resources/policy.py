"""``OffsetResetPolicy``: how a group's offsets are kept, and the reset to run now, of one group or of a fleet."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import timedelta
from enum import StrEnum
from typing import Annotated, Any, ClassVar, Final, Self

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    PlainSerializer,
    StrictBool,
    StrictInt,
    WithJsonSchema,
    model_validator,
)

from tidegate.resources import spark_conf
from tidegate.resources.base import (
    ConnectionRef,
    Count,
    Duration,
    GroupId,
    GroupPattern,
    PartitionSelections,
    PositiveDuration,
    Problem,
    ResourceModel,
    ResourceName,
    SecretKey,
    SpecModel,
    StatusModel,
    Timestamp,
    TopicPattern,
    Transition,
    matching,
    problem,
    unique,
)
from tidegate.resources.conditions import Conditions
from tidegate.resources.connection import SecretKeySource
from tidegate.resources.durations import format_duration, parse_duration

# --- what is kept -----------------------------------------------------------------------------------------------------


def _off_or_duration(value: Any) -> timedelta | None:
    if value in (-1, "-1") and not isinstance(value, bool):
        return None
    if isinstance(value, timedelta):
        return value
    try:
        return parse_duration(value if isinstance(value, str) else "")
    except ValueError as error:
        raise problem(f"{error}, or -1 for off") from None


class LatestSpec(ResourceModel):
    """KIP-1327: partitions up to this age begin at their start. ``max_age`` absent, or -1 on the wire: off."""

    max_age: Annotated[
        timedelta | None,
        BeforeValidator(_off_or_duration),
        PlainSerializer(lambda age: None if age is None else format_duration(age), when_used="json"),
        WithJsonSchema({"x-kubernetes-int-or-string": True}),
    ] = None


class NewPartitions(StrEnum):
    """Where a partition found after the first discovery begins."""

    EARLIEST = "earliest"
    LATEST = "latest"
    NONE = "none"


class Repair(StrEnum):
    """What to do where an unmanaged owner began at the end before its start was committed."""

    BACKFILL = "Backfill"
    REPORT = "Report"


class DiscoverySpec(ResourceModel):
    """FLIP-288. ``interval`` 0 turns it off."""

    interval: Duration = parse_duration("200ms")
    new_partitions: NewPartitions = NewPartitions.EARLIEST
    repair: Repair = Repair.BACKFILL


_LABEL_VALUE: Final = matching(
    r"([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?",
    "must be a label value: letters, digits, '-', '_' and '.', at most 63 characters",
    least=0,
    most=63,
)
_LABEL_KEY: Final = matching(
    r"([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?",
    "must be a label key such as app or app.kubernetes.io/name",
    most=317,
)

LabelKey = Annotated[str, _LABEL_KEY]
LabelValue = Annotated[str, _LABEL_VALUE]


class SelectorOperator(StrEnum):
    IN = "In"
    NOT_IN = "NotIn"
    EXISTS = "Exists"
    DOES_NOT_EXIST = "DoesNotExist"


class SelectorRequirement(ResourceModel):
    """``metav1.LabelSelectorRequirement``."""

    key: LabelKey
    operator: SelectorOperator
    values: Annotated[tuple[LabelValue, ...], Field(max_length=64)] = ()

    @model_validator(mode="after")
    def _values_fit_operator(self) -> Self:
        if (self.operator in (SelectorOperator.IN, SelectorOperator.NOT_IN)) != bool(self.values):
            raise problem("operators In and NotIn need values, Exists and DoesNotExist take none: change one of them")
        return self


class Selector(ResourceModel):
    """``metav1.LabelSelector``; an empty one would select every pod of the namespace and is refused."""

    match_labels: Annotated[dict[LabelKey, LabelValue], Field(max_length=32)] = Field(default_factory=dict)
    match_expressions: Annotated[tuple[SelectorRequirement, ...], Field(max_length=16)] = ()

    @model_validator(mode="after")
    def _selects_something(self) -> Self:
        if not self.match_labels and not self.match_expressions:
            raise problem("must not be empty: it would select every pod of the namespace; add matchLabels")
        return self


class Rollout(StrEnum):
    """``RESTART``: workloads are rolled when the setting changes; ``WHEN_NEXT``: it waits for their next pods."""

    RESTART = "Restart"
    WHEN_NEXT = "WhenNext"


class ConsumerFormat(StrEnum):
    """Whose names the settings are given under. ``PYTHON``: Tidegate's agent, which comes with them; ``JAVA``: those of
    the three frameworks at once. ``tidegate.inject.environment`` has the names.
    """

    PYTHON = "Python"
    JAVA = "Java"
    SPRING = "Spring"
    QUARKUS = "Quarkus"
    CONNECT = "Connect"


ContainerName = Annotated[
    str,
    matching(
        r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?",
        "must be a container's name: lower-case letters, digits and '-', at most 63 characters",
        most=63,
    ),
]


class ConsumersSpec(ResourceModel):
    """The pods that get the policy's settings injected. ``containers`` empty: each pod's main container."""

    selector: Selector
    format: ConsumerFormat = ConsumerFormat.PYTHON
    containers: Annotated[
        tuple[ContainerName, ...],
        Field(max_length=16),
        unique(str, "must not repeat a container: remove the second one"),
    ] = ()
    rollout: Rollout = Rollout.RESTART


class RetentionSpec(ResourceModel):
    """KIP-211: ``guard`` keeps the offsets of a group without members; ``warn_before`` their end an Event says so."""

    guard: StrictBool = True
    warn_before: Duration = parse_duration("24h")


# --- snapshots --------------------------------------------------------------------------------------------------------

StoragePath = Annotated[
    str,
    matching(
        r"[A-Za-z0-9][A-Za-z0-9_.=-]*(/[A-Za-z0-9][A-Za-z0-9_.=-]*)*",
        "must be a relative path such as backups/offsets, whose parts begin with a letter or digit and go on with "
        "letters, digits, '-', '_', '.' and '=', at most 512 characters",
        most=512,
    ),
]


class FolderStorage(ResourceModel):
    """A folder of a PersistentVolumeClaim of this namespace; without ``claim``, of the machine that the local runner
    is on, below the one folder that it may write to.
    """

    path: StoragePath
    claim: ResourceName | None = None


class S3Storage(ResourceModel):
    """Below ``path`` in a bucket. ``credentials``: a file as AWS's tools share it; absent: who the job is anyhow."""

    bucket: Annotated[
        str,
        matching(
            r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]",
            "must be a bucket's name: 3 to 63 lower-case letters, digits, '.' and '-'",
            most=63,
        ),
    ]
    path: StoragePath
    endpoint: (
        Annotated[
            str,
            matching(
                r"https?://[A-Za-z0-9.:-]+",
                "must be the http or https URL of an S3 service without a path, such as https://minio.storage:9000, "
                "at most 255 characters",
                most=255,
            ),
        ]
        | None
    ) = None
    region: (
        Annotated[
            str,
            matching(
                r"[a-z0-9-]+", "must be a region such as eu-central-1: lower-case letters, digits and '-'", most=63
            ),
        ]
        | None
    ) = None
    credentials: SecretKeySource | None = None


class SnapshotStorage(ResourceModel):
    """Where snapshots are kept: exactly one member is set."""

    folder: FolderStorage | None = None
    s3: S3Storage | None = None

    @model_validator(mode="after")
    def _exactly_one(self) -> Self:
        if (self.folder is None) == (self.s3 is None):
            raise problem("must have exactly one of folder, s3: keep one and remove the other")
        return self


class KeepSpec(ResourceModel):
    """How long each snapshot is kept, and how long the last one of each day (UTC). The newest always is."""

    each: Duration = parse_duration("48h")
    daily: Duration = parse_duration("720h")

    @model_validator(mode="after")
    def _daily_is_longer(self) -> Self:
        if self.daily < self.each:
            raise problem("daily must not be shorter than each: raise daily, or give both the same value")
        return self


_SHORTEST_SCHEDULE: Final = timedelta(minutes=5)


def _not_too_often(schedule: timedelta) -> timedelta:
    if schedule < _SHORTEST_SCHEDULE:
        raise problem("must be 5m or longer: each snapshot starts a Spark application")
    if schedule % timedelta(seconds=1):
        raise problem("must be whole seconds: snapshots are named by when they are due")
    return schedule


class SnapshotsSpec(ResourceModel):
    """Where all groups stood, written down at each multiple of ``schedule`` since 1970.

    ``groups`` absent: every group that the connection allows. ``keep`` absent: nothing is ever removed.
    """

    schedule: Annotated[Duration, AfterValidator(_not_too_often)]
    to: SnapshotStorage
    groups: (
        Annotated[
            tuple[GroupPattern, ...],
            Field(min_length=1, max_length=100),
            unique(str, "must not repeat a group: remove the second one"),
        ]
        | None
    ) = None
    keep: KeepSpec | None = None


# --- the reset --------------------------------------------------------------------------------------------------------

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


class Approval(StrEnum):
    """``MANUAL`` waits for the annotation ``tidegate.io/approve: <status.reset.digest>`` once the plan is made."""

    AUTOMATIC = "Automatic"
    MANUAL = "Manual"


class Engine(StrEnum):
    """Where a run is carried out. ``AUTO``: by Spark where a runner is configured, otherwise in the operator."""

    AUTO = "Auto"
    SPARK = "Spark"
    DIRECT = "Direct"


class FailurePolicy(StrEnum):
    """What becomes of a fleet's other groups when one fails. ``ISOLATE``: they are reset; ``ALL``: all are put back."""

    ISOLATE = "Isolate"
    ALL = "All"


class EvidenceLevel(StrEnum):
    """``COUNTS``: histograms by the brokers' time index; ``RECORDS``: also what reading records by Spark tells.
    ``AUTO``: as ``RECORDS`` where approval is Manual, as ``NONE`` where nobody waits for it.
    """

    AUTO = "Auto"
    NONE = "None"
    COUNTS = "Counts"
    RECORDS = "Records"


class EvidenceSpec(ResourceModel):
    """What is gathered about a plan for whoever approves it. ``max_records``: how many are read at most, beyond which
    the rest is estimated; ``show_values``: what is in keys and values may be stored in the plan's ConfigMap.
    """

    level: EvidenceLevel = EvidenceLevel.AUTO
    show_values: StrictBool = False
    max_records: Annotated[StrictInt, Field(ge=1, le=1_000_000_000)] = 1_000_000
    timeout: PositiveDuration = parse_duration("1m")

    @model_validator(mode="after")
    def _values_are_of_records(self) -> Self:
        if self.show_values and self.level in (EvidenceLevel.NONE, EvidenceLevel.COUNTS):
            raise problem("showValues needs records to be read: use level Records or Auto, or leave showValues out")
        return self


class ResetSpec(ResourceModel):
    """One run. ``partitions`` absent: all of the policy's topics. ``failure_policy``: a fleet's; else ``ISOLATE``."""

    id: RunId
    partitions: PartitionSelections | None = None
    to: ResetTo
    approval: Approval = Approval.AUTOMATIC
    engine: Engine = Engine.AUTO
    drain_timeout: Duration = parse_duration("30s")
    in_flight: Duration = timedelta(0)
    max_standstill: PositiveDuration = parse_duration("30s")
    deadline: PositiveDuration = parse_duration("15m")
    evidence: EvidenceSpec | None = None
    failure_policy: FailurePolicy | None = None

    @model_validator(mode="after")
    def _fields_fit_together(self) -> Self:
        complaints = tuple(self._complaints())
        if complaints:
            raise problem("; ".join(complaints))
        return self

    def _complaints(self) -> Iterator[str]:
        if self.to.undo == self.id:
            yield "to.undo must name the id of an earlier run, not this reset's own id: give this reset a new id"
        if self.engine is Engine.DIRECT and self.to.kind.needs_spark:
            yield "targets record, cluster and snapshot need Spark: use engine Auto or Spark"
        if self.in_flight and 2 * self.in_flight + timedelta(seconds=30) > self.deadline:
            yield (
                "deadline must be at least twice inFlight plus 30s: owners are held for inFlight, and then watched for "
                "as long; shorten inFlight or raise deadline"
            )


# --- Spark ------------------------------------------------------------------------------------------------------------

Cores = Annotated[StrictInt, Field(ge=1, le=512)]

SparkMemory = Annotated[
    str,
    matching(
        r"[1-9][0-9]{0,8}[kmgtKMGT]",
        "must be memory in Spark's form, such as 512m or 2g (k, m, g, t; not Kubernetes' Mi or Gi)",
        most=10,
    ),
]


class DriverSpec(ResourceModel):
    cores: Cores | None = None
    memory: SparkMemory | None = None


class ExecutorSpec(ResourceModel):
    instances: Annotated[StrictInt, Field(ge=1, le=1000)] | None = None
    cores: Cores | None = None
    memory: SparkMemory | None = None


def _spark_value(value: str) -> str:
    if not spark_conf.is_value(value):
        raise problem(f"values must be {spark_conf.VALUE.says}")
    return value


class SparkSpec(ResourceModel):
    """How the Spark application runs; what is absent comes from the chart's defaults."""

    image: (
        Annotated[
            str,
            matching(
                r"[^\x00-\x20\x7f]+",
                "must be a container image reference without spaces, at most 1024 characters",
                most=1024,
            ),
        ]
        | None
    ) = None
    driver: DriverSpec | None = None
    executor: ExecutorSpec | None = None
    spark_conf: Annotated[
        dict[str, Annotated[str, AfterValidator(_spark_value)]],
        Field(max_length=100),
    ] = Field(default_factory=dict)
    """Values are checked here; the names, of which an administrator may have allowed more, where a job is made of them
    (:func:`tidegate.resources.spark_conf.refusals`): one that is refused ends no more than what needs that job."""


# --- the resource -----------------------------------------------------------------------------------------------------


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
        reset = self.reset
        if (self.group is None) == (self.groups is None):
            yield "must have exactly one of group, for one group, and groups, for a fleet: keep one"
        if self.group is not None and reset is not None and reset.to.group == self.group:
            yield "reset.to.group must name another group: this one already stands where it stands"
        if self.groups is None:
            if reset is not None and reset.failure_policy is not None:
                yield "reset.failurePolicy is for a fleet: remove it, or use groups"
            return
        if self.keeps_something:
            yield (
                "latest, discovery, consumers, retention and snapshots are not for a fleet: give them to a policy with "
                "group, and use groups for resets only"
            )
        if reset is not None and (reset.to.kind in _OF_ONE_GROUP or reset.evidence is not None):
            yield (
                "reset.to.cluster, configMap, snapshot and reset.evidence are for one group: use another target, or a "
                "policy with group for each"
            )


# --- status -----------------------------------------------------------------------------------------------------------


class ResetPhase(StrEnum):
    """The phases of a run, as ``tidegate.reset.model.Phase`` names them."""

    PENDING = "Pending"
    PLANNING = "Planning"
    AWAITING_APPROVAL = "AwaitingApproval"
    PAUSING = "Pausing"
    APPLYING = "Applying"
    VERIFYING = "Verifying"
    RESUMING = "Resuming"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    ROLLED_BACK = "RolledBack"


class ResetWay(StrEnum):
    """How the offsets were changed, as ``tidegate.reset.model.Way`` names it."""

    DIRECT = "Direct"
    GATED = "Gated"
    BARRIER = "Barrier"
    LEADING = "Leading"
    HANDOVER = "Handover"


class PlanStatus(ResourceModel):
    """The plan in numbers. ``config_map`` has all of it; ``from_`` and ``to`` span the records replayed or skipped."""

    config_map: str | None = None
    partitions: Count | None = None
    moved: Count | None = None
    unchanged: Count | None = None
    clamped: Count | None = None
    records_replayed: Count | None = None
    records_skipped: Count | None = None
    from_: Annotated[Timestamp | None, Field(alias="from")] = None
    to: Timestamp | None = None


class StandstillStatus(ResourceModel):
    """How long partitions stood still, measured: the median one and the longest."""

    p50: Duration
    max: Duration


class SearchStatus(ResourceModel):
    """How far a search through records has come: offsets looked at, of those between the bounds, and how fast."""

    records_read: Count
    records_total: Count
    records_per_second: Count
    percent: Count


class GroupFailure(ResourceModel):
    """A group of a fleet that has no plan, or was not reset."""

    group: str
    reason: str
    message: str


MAX_GROUP_FAILURES: Final = 20


class FleetStatus(ResourceModel):
    """A fleet's groups, counted. ``refused``: those without a plan; ``failures``: the first of these and of ``failed``.

    ``reset``: those that stand at their targets; ``put_back``: those that did, or were about to.
    """

    groups: Count
    refused: Count = 0
    reset: Count = 0
    failed: Count = 0
    put_back: Count = 0
    failures: Annotated[tuple[GroupFailure, ...], Field(max_length=MAX_GROUP_FAILURES)] = ()


class ResetStatus(ResourceModel):
    """The newest run. ``run_uid`` tells it from a run of the same id of any other resource.

    ``digest``: SHA-256, in hex, of what was asked and of the plan, as far as there is one; the annotation
    ``tidegate.io/approve`` has to name it. ``approved_digest``: the one that was approved.
    """

    id: str
    run_uid: str | None = None
    phase: ResetPhase
    started_at: Timestamp | None = None
    finished_at: Timestamp | None = None
    engine: Engine | None = None
    way: ResetWay | None = None
    application: str | None = None
    search: SearchStatus | None = None
    fleet: FleetStatus | None = None
    plan: PlanStatus | None = None
    digest: str | None = None
    approved_digest: str | None = None
    standstill: StandstillStatus | None = None
    redone: Count | None = None
    begun: Count | None = None
    waiting: Count | None = None


class RunHistory(ResourceModel):
    """A finished run. ``plan`` is its ConfigMap; ``digest``: SHA-256, in hex, of what that says of the run's request,
    plan and result. An undo of the run goes by nothing else."""

    id: str
    phase: ResetPhase
    finished_at: Timestamp | None = None
    records_replayed: Count | None = None
    records_skipped: Count | None = None
    plan: str | None = None
    digest: str | None = None


class NewPartition(ResourceModel):
    topic: str
    partition: Count
    seen_at: Timestamp | None = None


class DiscoveredTopic(ResourceModel):
    """What is known of one topic: those of its partitions below ``initial`` were there at the first discovery, those
    below ``settled`` are taken care of. ``before``: the id of the topic that had this name before.
    """

    name: str
    topic_id: str
    initial: Count
    settled: Count
    before: str | None = None


MAX_NEWEST: Final = 20
MAX_DISCOVERED_TOPICS: Final = 10_000
"""Keeps the resource below what the API server takes (1.5 MiB) with names of the usual length."""


class DiscoveryStatus(ResourceModel):
    """``selection``: the policy's topics that this is about, absent: those that the group reads.

    ``unassigned_initial``: partitions there at the first discovery that nobody owned yet.

    ``starts_committed``: new partitions whose start was committed for the group; ``began_at_end``: those that an owner
    had begun at the end before; ``backfilled``: those of them that were sent back to their start.
    """

    initial_discovery_finished: StrictBool = False
    selection: Annotated[tuple[str, ...], Field(max_length=100)] | None = None
    assigned: Count | None = None
    unassigned_initial: Count | None = None
    starts_committed: Count | None = None
    began_at_end: Count | None = None
    backfilled: Count | None = None
    newest: Annotated[tuple[NewPartition, ...], Field(max_length=MAX_NEWEST)] = ()
    topics: Annotated[tuple[DiscoveredTopic, ...], Field(max_length=MAX_DISCOVERED_TOPICS)] = ()


class RetentionStatus(ResourceModel):
    """``state`` is the group's, in Kafka's words; ``expires_at`` when the first of its offsets would go if nothing were
    done: ``exact``, or at the earliest.

    ``offsets``: those looked after; ``kept``: those of them with a retention of their own. ``snapshot``: the ConfigMap
    with the last known ones.
    """

    state: str | None = None
    expires_at: Timestamp | None = None
    exact: StrictBool = False
    guarded: StrictBool = False
    offsets: Count | None = None
    kept: Count | None = None
    renewed_at: Timestamp | None = None
    snapshot: str | None = None


class InjectionStatus(ResourceModel):
    """The pods that ``consumers`` selects. ``setting``: what they are to have, by its hash.

    ``stale``: those that have another setting, or none; ``refused``: those that can't have it. ``stale_before``: how
    many were stale when the last one was evicted; ``futile``: how many evictions in a row made no difference, after
    which the next one waits until ``retry_at``.
    """

    setting: str | None = None
    pods: Count | None = None
    injected: Count | None = None
    stale: Count | None = None
    refused: Count | None = None
    stale_before: Count | None = None
    futile: Count | None = None
    retry_at: Timestamp | None = None


class SnapshotStatus(ResourceModel):
    """One snapshot. ``taken_at``: when it was read to its end; ``bytes``: of its Parquet; ``unread``: groups that could
    not be read.
    """

    due: Timestamp
    taken_at: Timestamp
    path: str
    groups: Count
    partitions: Count
    bytes: Count
    unread: Count


class SnapshotsStatus(ResourceModel):
    """``since``: when they were first asked for; ``next``: when one is begun next, absent while one is being made.

    ``missed``: due times before the last one that nobody made; ``failures``: of how many attempts in a row nothing
    came. ``launch``: the newest start of a job.
    """

    since: Timestamp
    last: SnapshotStatus | None = None
    next: Timestamp | None = None
    missed: Count | None = None
    failures: Count | None = None
    launch: str | None = None


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
