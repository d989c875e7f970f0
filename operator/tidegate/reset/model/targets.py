"""Where a reset is to: a closed set of targets, matched exhaustively, and what a search for one has found."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

from tidegate.jobs.storage import Storage
from tidegate.kafka.connection import Connection, Registry
from tidegate.kafka.model import TopicPartition
from tidegate.kafka.numbers import Offset, PartitionNumber
from tidegate.resources.targets import NoMatch, SchemaFormat, Undecodable


@dataclass(frozen=True, slots=True)
class ToEarliest:
    kind: Literal["earliest"] = "earliest"


@dataclass(frozen=True, slots=True)
class ToLatest:
    kind: Literal["latest"] = "latest"


@dataclass(frozen=True, slots=True)
class ToOffset:
    offset: int
    kind: Literal["offset"] = "offset"


@dataclass(frozen=True, slots=True)
class ToTimestamp:
    """The first record at or after ``at``; the end of the log when there is none."""

    at: datetime
    kind: Literal["timestamp"] = "timestamp"


@dataclass(frozen=True, slots=True)
class ByDuration:
    """As ``ToTimestamp`` with the time ``ago`` before the plan was made."""

    ago: timedelta
    kind: Literal["duration"] = "duration"


@dataclass(frozen=True, slots=True)
class ShiftBy:
    """Relative to the committed offset; negative goes back."""

    records: int
    kind: Literal["shiftBy"] = "shiftBy"


@dataclass(frozen=True, slots=True)
class PartitionOffset:
    topic: str
    partition: PartitionNumber
    offset: Offset

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


@dataclass(frozen=True, slots=True)
class FromFile:
    """Offsets named one by one: the CSV that ``kafka-consumer-groups --export`` writes."""

    offsets: tuple[PartitionOffset, ...]
    source: str
    kind: Literal["configMap"] = "configMap"


@dataclass(frozen=True, slots=True)
class FromGroup:
    """Where another group of the same cluster stands."""

    group_id: str
    kind: Literal["group"] = "group"


@dataclass(frozen=True, slots=True)
class FromCluster:
    """Where a group of another cluster stands, translated by records that are the same in ``match``: ``timestamp``,
    ``key``, ``value``, ``header:<name>``.

    ``window``: how much time around the group's place is compared at least. ``alias``: MirrorMaker 2's of that cluster.
    ``allowed_topics``: what may be read there.
    """

    connection: Connection
    group_id: str
    match: tuple[str, ...]
    window: timedelta
    alias: str | None = None
    allowed_topics: tuple[str, ...] = ("*",)
    kind: Literal["cluster"] = "cluster"


@dataclass(frozen=True, slots=True)
class FromBackup:
    """Where the group stood in the newest backup that was read to its end by ``at``; ``None``: the newest of all."""

    storage: Storage
    at: datetime | None = None
    kind: Literal["backup"] = "backup"


@dataclass(frozen=True, slots=True)
class Undo:
    """Where the group stood before an earlier run. ``topic_ids`` are those of that run: a recreated topic is refused.

    ``before`` lists only partitions that had a commit; ``absent`` those that had none. ``dead_letter``: where that run
    has copied what it skipped; empty: nowhere.
    """

    run_id: str
    before: tuple[PartitionOffset, ...]
    absent: tuple[TopicPartition, ...] = ()
    topic_ids: tuple[tuple[str, str], ...] = ()
    dead_letter: str = ""
    kind: Literal["undo"] = "undo"


@dataclass(frozen=True, slots=True)
class RecordSchema:
    """What values hold. ``text``: the schema, in the format's words, where it is not in a registry; ``source``: where
    it was read, for a person.

    ``message``: the type of Protobuf's messages; empty: the first one. ``registry``: where ``subject`` has it, in
    ``version``, ``None`` for the latest. ``undecodable``: of values in Avro and Protobuf.
    """

    format: SchemaFormat
    text: str
    source: str
    message: str = ""
    registry: Registry | None = None
    subject: str = ""
    version: int | None = None
    undecodable: Undecodable = Undecodable.FAIL


@dataclass(frozen=True, slots=True)
class ToRecord:
    """The first record for which ``where``, a Spark SQL condition, holds; ``after``: behind the last one.

    ``since`` and ``until`` bound the records looked at by their timestamps, ``until`` excluded.
    """

    where: str
    since: datetime | None = None
    until: datetime | None = None
    after: bool = False
    no_match: NoMatch = NoMatch.KEEP
    schema: RecordSchema | None = None
    kind: Literal["record"] = "record"


Target = (
    ToEarliest
    | ToLatest
    | ToOffset
    | ToTimestamp
    | ByDuration
    | ShiftBy
    | FromFile
    | FromGroup
    | FromCluster
    | FromBackup
    | Undo
    | ToRecord
)


@dataclass(frozen=True, slots=True)
class Findings:
    """What Spark has found, for a target that needs that.

    ``offsets``: by partition, ``None`` where there is no such record; a partition that was not looked at is absent.
    ``notes``: for the plan, sentences for a person without a full stop.
    """

    offsets: Mapping[TopicPartition, int | None]
    notes: tuple[str, ...] = ()
