"""``OffsetBackup``: where the groups of a cluster stand, written down on a schedule."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Final

from pydantic import Field, StrictBool

from tidegate.resources.base import ConnectionRef, ResourceModel, SpecModel, StatusModel
from tidegate.resources.conditions import Conditions
from tidegate.resources.durations import parse_duration
from tidegate.resources.fields import Count, Duration, GroupPattern, Timestamp, cel_is_duration, duration_must
from tidegate.resources.rules import rule, unique
from tidegate.resources.spark import SparkSpec
from tidegate.resources.storage import BackupStorage

TAKE: Final = "tidegate.io/take-backup"
"""The annotation by which a backup is asked for beside the schedule: when, in ``ASKED_FORMAT``. One is taken if the
newest backup was due before that."""

ASKED_FORMAT: Final = "%Y-%m-%dT%H:%M:%SZ"

MOST_LISTED: Final = 100


class KeepSpec(ResourceModel):
    """Which backups are kept."""

    each: Duration = parse_duration("48h")
    """How long each backup is kept."""

    daily: Duration = parse_duration("720h")
    """How long the last backup of each day (UTC) is kept."""

    @rule(
        f"!{cel_is_duration('self.each')} || !{cel_is_duration('self.daily')} || "
        "duration(self.daily) >= duration(self.each)",
        "daily must not be shorter than each: raise daily, or give both the same value",
    )
    def _daily_is_longer(self) -> bool:
        return self.daily >= self.each


Schedule = Annotated[
    Duration,
    duration_must(
        lambda schedule: schedule >= timedelta(minutes=5),
        "duration(self) >= duration('5m')",
        "must be 5m or longer: each backup starts a Spark application",
    ),
    duration_must(
        lambda schedule: not schedule % timedelta(seconds=1),
        "duration(self).getMilliseconds() % 1000 == 0",
        "must be whole seconds: backups are named by when they are due",
    ),
]


class OffsetBackupSpec(SpecModel):
    """Which groups' committed offsets are backed up, how often, and where the backups are kept."""

    connection_ref: ConnectionRef
    """The KafkaConnection of this namespace through which the groups are reached."""

    groups: (
        Annotated[
            tuple[GroupPattern, ...],
            Field(min_length=1, max_length=100),
            unique("must not repeat a group: remove the second one"),
        ]
        | None
    ) = None
    """The groups to back up, as names or patterns with '*', out of those that the connection allows. Without this
    field, all groups that it allows."""

    schedule: Schedule
    """The interval of the backups, such as 1h. Backups are due at multiples of it since 1970-01-01T00:00:00Z."""

    storage: BackupStorage
    """Where the backups are kept. Set exactly one of its fields. Each OffsetBackup writes below a folder of its own
    there."""

    keep: KeepSpec | None = None
    """Which backups of this OffsetBackup are kept when new ones are taken. Without this field, all backups are kept.
    The newest one is never removed."""

    spark: SparkSpec | None = None
    """How Spark applications that take backups run. The chart's defaults apply to fields that are absent."""

    suspend: StrictBool = False
    """If true, no backups are taken for now. A backup that is being taken is ended. What was written stays."""


class BackupStatus(ResourceModel):
    """One backup."""

    due: Timestamp
    """When the backup was due."""

    taken_at: Timestamp
    """When all offsets had been read. A restore whose at is this time or later finds this backup."""

    path: str
    """The folder with its Parquet files."""

    groups: Count
    """How many groups it has."""

    partitions: Count
    """How many committed offsets it has."""

    bytes: Count
    """The size of its Parquet files."""

    unread: Count
    """How many groups could not be read. The manifest names them."""


class OffsetBackupStatus(StatusModel):
    """The state of the backups."""

    since: Timestamp | None = None
    """When backups were first requested, or last resumed."""

    last: BackupStatus | None = None
    """The newest backup."""

    backups: Annotated[tuple[BackupStatus, ...], Field(max_length=MOST_LISTED)] = ()
    """The backups in the current storage that this version or a later one has taken, and that spec.keep keeps: the
    newest first, at most 100. The storage may have older ones as well."""

    next: Timestamp | None = None
    """When the next backup is due. Absent while one is being taken."""

    missed: Count | None = None
    """How many due times before the newest attempt passed without a backup being taken."""

    failures: Count | None = None
    """How many attempts in a row have failed."""

    launch: str | None = None
    """The newest launch of a job, by the name of its SparkApplication."""

    conditions: Conditions = ()
    """Ready is True while backups are taken as this generation asks for, and while they are suspended. Reconciling and
    Stalled are present while they are true. BackedUp is True while the newest backup has all groups and is no older
    than two intervals of the schedule."""
