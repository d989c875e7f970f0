"""Where a reset sends a group: ``reset.to``."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, Final

from pydantic import Field, StrictBool, StrictInt

from tidegate.resources.base import ConnectionRef, ResourceModel
from tidegate.resources.durations import parse_duration
from tidegate.resources.fields import (
    GroupId,
    PositiveDuration,
    ResourceName,
    SecretKey,
    Timestamp,
    cel_is_timestamp,
)
from tidegate.resources.rules import cel_exactly_one, described, gone, matching, must, rule, unique
from tidegate.resources.storage import BackupStorage

RUN_ID: Final = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
LONGEST_RUN_ID: Final = 63

RunId = Annotated[
    str,
    matching(
        RUN_ID,
        "must be a run's id: lower-case letters, digits and '-', beginning and ending with a letter or digit, "
        "1 to 63 characters",
        most=LONGEST_RUN_ID,
    ),
]


class Empty(ResourceModel):
    """``{}``: a target that needs no more said."""


class ConfigMapTarget(ResourceModel):
    """A key of a ConfigMap, and so a text."""

    name: ResourceName
    """The name of the ConfigMap."""

    key: SecretKey
    """The ConfigMap's key that holds the text."""


class NoMatch(StrEnum):
    """What becomes of a partition in which no record is found: it stays, goes to the end, or there is no plan."""

    KEEP = "Keep"
    END = "End"
    FAIL = "Fail"


class SchemaFormat(StrEnum):
    """How a record's value is encoded."""

    JSON = "Json"
    AVRO = "Avro"
    PROTOBUF = "Protobuf"


class Undecodable(StrEnum):
    """What a value that can't be decoded does to a search: no plan, or the column record is null for it."""

    FAIL = "Fail"
    NULL = "Null"


class RegistrySubject(ResourceModel):
    """A subject of the schema registry that the KafkaConnection names."""

    subject: Annotated[
        str,
        matching(
            r"[^\x00-\x1f\x7f]+",
            "must be a subject of the registry: 1 to 512 characters without control characters, such as line breaks",
            most=512,
        ),
    ]
    """The name of the subject, such as orders-value."""

    version: Annotated[StrictInt, Field(ge=1, le=2**31 - 1)] | None = None
    """The version of the schema whose fields the condition names. Without this field, the version that is the latest
    when the search begins."""


class ValueSchema(ResourceModel):
    """What records' values hold."""

    config_map: ConfigMapTarget | None = None
    """The ConfigMap's key that holds the schema: the columns for Json, the schema as JSON for Avro, or a set of file
    descriptors in base64 for Protobuf. A value in Avro or Protobuf then has to be the encoded document and nothing
    else. Set exactly one of configMap and registry."""

    registry: RegistrySubject | None = None
    """For Avro and Protobuf: where the schema is in the KafkaConnection's schema registry (spec.schemaRegistry). Values
    then have to begin with the id of their schema, as Confluent's serializers write it."""

    format: SchemaFormat = SchemaFormat.JSON
    """How values are encoded. For Json the schema is a list of columns as in Spark SQL, such as status INT, customer
    STRUCT<id: STRING>; a value that is not JSON gives null."""

    message: (
        Annotated[
            str,
            matching(
                r"[A-Za-z_][A-Za-z0-9_]*([.][A-Za-z_][A-Za-z0-9_]*)*",
                "must be the name of a message type with its package, such as shop.Order, at most 512 characters",
                most=512,
            ),
        ]
        | None
    ) = None
    """For Protobuf: the message type of the values, with its package. With registry, the default is the first message
    type of the subject's schema."""

    undecodable: Undecodable | None = None
    """For Avro and Protobuf: what happens when a value can't be decoded. With Null, the column record is null for it.
    With Fail, the default, there is no plan if such a record comes before the one that is found (with after: if it
    comes later), because it might have been the one to find."""

    @rule(
        "has(self.configMap) != has(self.registry)",
        "must have exactly one of configMap, registry: keep one and remove the other",
    )
    def _one_place(self) -> bool:
        return (self.config_map is None) != (self.registry is None)

    @rule(
        "self.format != 'Json' || (!has(self.registry) && !has(self.undecodable))",
        "registry and undecodable belong to the formats Avro and Protobuf: remove them or change the format",
    )
    def _json_is_parsed_by_spark(self) -> bool:
        return self.format is not SchemaFormat.JSON or (self.registry is None and self.undecodable is None)

    @rule(
        "self.format == 'Protobuf' || !has(self.message)",
        "message belongs to the format Protobuf only: remove it or change the format",
    )
    def _message_belongs(self) -> bool:
        return self.format is SchemaFormat.PROTOBUF or self.message is None

    @rule(
        "self.format != 'Protobuf' || has(self.message) || has(self.registry)",
        "a ConfigMap may have many message types: name the one of the values in message",
    )
    def _message_is_named(self) -> bool:
        return self.format is not SchemaFormat.PROTOBUF or self.message is not None or self.registry is not None


class RecordTarget(ResourceModel):
    """The first record for which ``where`` holds; or what follows the last one."""

    where: Annotated[
        str,
        Field(min_length=1, max_length=4096),
        must(
            lambda where: "${" not in where,
            "!self.contains('${')",
            "must not have '${', which stands for variables of Spark: a condition reads the record alone",
        ),
    ]
    """A condition in Spark SQL over the record's topic, partition, offset, timestamp, key and value (both binary:
    string(value) is the text), headers (an array of key and value), and record (the value parsed with valueSchema). It
    may read nothing else."""

    from_: Annotated[Timestamp | None, Field(alias="from")] = None
    """Only records at or after this time are searched."""

    until: Timestamp | None = None
    """Only records before this time are searched."""

    after: StrictBool = False
    """If true, the target is the offset after the last record that matches the condition, instead of the first record
    that matches."""

    no_match: NoMatch = NoMatch.KEEP
    """What happens to a partition in which no record is found: Keep leaves its offset as it is, End sets it to the end
    of the log, and with Fail there is no plan."""

    value_schema: ValueSchema | None = None
    """The structure of the records' values, for the column record in where."""

    @rule(
        f"!has(self.from) || !has(self.until) || !{cel_is_timestamp('self.from')} || "
        f"!{cel_is_timestamp('self.until')} || timestamp(self.from) < timestamp(self.until)",
        "from must be before until: exchange them or remove one",
    )
    def _in_order(self) -> bool:
        return self.from_ is None or self.until is None or self.from_ < self.until


MatchKey = Annotated[
    str,
    matching(
        r"timestamp|key|value|header:[^\x00-\x1f\x7f]{1,249}",
        "must be timestamp, key, value, or header:<name> with a name of at most 249 characters",
        most=256,
    ),
    described("One part of a record, which is timestamp, key, value, or header:<name>."),
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
    """Where a group of another cluster stands, translated by records that are the same in ``match``."""

    connection_ref: ConnectionRef
    """The KafkaConnection of this namespace for the other cluster."""

    group: GroupId
    """The id of the group on the other cluster."""

    match: Annotated[
        tuple[MatchKey, ...],
        Field(min_length=1, max_length=16),
        unique("must not repeat an entry: remove the second one"),
    ]
    """What identifies a record: two records are the same if all of the entries are equal."""

    window: PositiveDuration = parse_duration("1h")
    """The minimum period around the group's committed offsets that is compared in both clusters. It has to be longer
    than the time by which the timestamps of a topic's records may be out of order."""

    alias: MirrorAlias | None = None
    """MirrorMaker 2's alias of the other cluster. Topics are first looked up as <alias>.<topic>, and MirrorMaker's
    checkpoints are read."""


SNAPSHOT_IS_GONE: Final = (
    "has become backup: write to.backup, with the name of an OffsetBackup, or with from as its storage"
)


class BackupTarget(ResourceModel):
    """Where the group stood in a backup."""

    name: ResourceName | None = None
    """The name of an OffsetBackup of this namespace. Backups are looked for in its storage. Set either this field or
    storage."""

    storage: BackupStorage | None = None
    """Where the backups are, written like the storage of the OffsetBackup that made them. This is for backups of an
    OffsetBackup that is in another namespace or no longer exists. Set exactly one of its fields."""

    at: Timestamp | None = None
    """The newest backup whose offsets had all been read by this time is used. Without this field, the newest backup is
    used."""

    @rule(
        "has(self.name) != has(self.storage)",
        "must have exactly one of name, storage: keep one and remove the other",
    )
    def _one_place(self) -> bool:
        return (self.name is None) != (self.storage is None)


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
    BACKUP = "backup"

    @property
    def needs_spark(self) -> bool:
        """Whether it is found by Spark only."""
        return self.reads_records or self is TargetKind.BACKUP

    @property
    def reads_records(self) -> bool:
        """Whether records have to be read to find it."""
        return self in (TargetKind.RECORD, TargetKind.CLUSTER)


_INT64: Final = 2**63 - 1

ShiftRecords = Annotated[
    StrictInt,
    Field(ge=-_INT64, le=_INT64),
    must(
        lambda records: records != 0,
        "self != 0",
        "must not be 0: a positive number goes forward, a negative one back",
    ),
]

Offset = Annotated[StrictInt, Field(ge=0, le=_INT64)]


class ResetTo(ResourceModel):
    """Where the group is sent: exactly one member is set, and :attr:`kind` names it."""

    earliest: Empty | None = None
    """To the first record that is still in the log. It is written as an empty object."""

    latest: Empty | None = None
    """To the end of the log at the time of the plan. It is written as an empty object."""

    offset: Offset | None = None
    """To this offset, in every partition."""

    timestamp: Timestamp | None = None
    """To the first record at or after this time, such as 2026-11-20T14:00:00Z; to the end of the log if there is
    none."""

    duration: PositiveDuration | None = None
    """To the first record of the period of this length, such as 6h, that ends when the plan is made."""

    shift_by: ShiftRecords | None = None
    """By this many records from the committed offset: forward, or back if the number is negative."""

    config_map: ConfigMapTarget | None = None
    """To the offsets that a ConfigMap of this namespace lists, in the CSV that kafka-consumer-groups exports."""

    group: GroupId | None = None
    """To the committed offsets of this other group of the same cluster."""

    undo: RunId | None = None
    """To the committed offsets that the group had before an earlier reset. A policy gives the id of an earlier run of
    its own. An OffsetReset gives the name of another OffsetReset with the same namespace, group and connection."""

    record: RecordTarget | None = None
    """To the first record of each partition that matches a condition. This needs Spark."""

    cluster: ClusterTarget | None = None
    """To the offsets that correspond to those of a group in another cluster. They are translated by means of records
    that both clusters have, and are never past a record that the group has not read. Duplicates are possible; the plan
    counts them. This needs Spark."""

    backup: BackupTarget | None = None
    """To the group's committed offsets in a backup that an OffsetBackup has made. This needs Spark."""

    snapshot: Annotated[dict[str, Any] | None, gone(SNAPSHOT_IS_GONE)] = None
    """Not used any more, and refused: use backup instead."""

    @rule(
        f"has(self.snapshot) || {cel_exactly_one(TargetKind)}",
        f"must have exactly one of {', '.join(TargetKind)}: keep one and remove the others",
    )
    def _exactly_one(self) -> bool:
        return len(self._set()) == 1

    def _set(self) -> tuple[TargetKind, ...]:
        fields = {str(field.alias): name for name, field in type(self).model_fields.items()}
        return tuple(kind for kind in TargetKind if getattr(self, fields[kind]) is not None)

    @property
    def kind(self) -> TargetKind:
        """Which member is set."""
        return self._set()[0]
