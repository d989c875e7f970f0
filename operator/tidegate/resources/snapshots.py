"""Snapshots of the offsets of all groups: when they are taken, where and how long they are kept; and their status."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated

from pydantic import Field

from tidegate.resources.authentication import SecretKeySource
from tidegate.resources.base import ResourceModel
from tidegate.resources.durations import parse_duration
from tidegate.resources.fields import (
    Count,
    Duration,
    GroupPattern,
    ResourceName,
    Timestamp,
    cel_is_duration,
    duration_must,
)
from tidegate.resources.rules import matching, rule, unique

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
    """The folder, below the claim's root, or below the operator's setting TIDEGATE_SPARK_SNAPSHOTS."""

    claim: ResourceName | None = None
    """The name of the PersistentVolumeClaim in this namespace. Where driver and executors may run on different nodes it
    has to be ReadWriteMany."""


class S3Storage(ResourceModel):
    """Below ``path`` in a bucket."""

    bucket: Annotated[
        str,
        matching(
            r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]",
            "must be a bucket's name: 3 to 63 lower-case letters, digits, '.' and '-'",
            most=63,
        ),
    ]
    """The name of the bucket."""

    path: StoragePath
    """The prefix of the names of all objects."""

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
    """The URL of the service, such as https://minio.storage:9000. Without this field, AWS."""

    region: (
        Annotated[
            str,
            matching(
                r"[a-z0-9-]+", "must be a region such as eu-central-1: lower-case letters, digits and '-'", most=63
            ),
        ]
        | None
    ) = None
    """The region, such as eu-central-1."""

    credentials: SecretKeySource | None = None
    """A Secret's key that holds an AWS credentials file with a [default] profile. Without this field, the job uses the
    identity of its service account."""


class SnapshotStorage(ResourceModel):
    """Where snapshots are kept."""

    folder: FolderStorage | None = None
    """A folder of a PersistentVolumeClaim; or, where Spark runs on one machine without Kubernetes, of that machine."""

    s3: S3Storage | None = None
    """A path in S3, or in a service with its protocol. The job's image has to contain Hadoop's connector
    (hadoop-aws)."""

    @rule(
        "has(self.folder) != has(self.s3)",
        "must have exactly one of folder, s3: keep one and remove the other",
    )
    def _exactly_one(self) -> bool:
        return (self.folder is None) != (self.s3 is None)


class KeepSpec(ResourceModel):
    """Which snapshots are kept."""

    each: Duration = parse_duration("48h")
    """How long each snapshot is kept."""

    daily: Duration = parse_duration("720h")
    """How long the last snapshot of each day (UTC) is kept."""

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
        "must be 5m or longer: each snapshot starts a Spark application",
    ),
    duration_must(
        lambda schedule: not schedule % timedelta(seconds=1),
        "duration(self).getMilliseconds() % 1000 == 0",
        "must be whole seconds: snapshots are named by when they are due",
    ),
]


class SnapshotsSpec(ResourceModel):
    """Where all groups stood, written down at each multiple of ``schedule`` since 1970."""

    schedule: Schedule
    """How often, such as 1h. Snapshots are due at its multiples since 1970-01-01T00:00:00Z."""

    to: SnapshotStorage
    """The storage. Exactly one member is set. Each policy writes below a folder of its own there."""

    groups: (
        Annotated[
            tuple[GroupPattern, ...],
            Field(min_length=1, max_length=100),
            unique("must not repeat a group: remove the second one"),
        ]
        | None
    ) = None
    """The groups, or patterns of them, of those that the connection allows. Without this field, all that it allows."""

    keep: KeepSpec | None = None
    """Which snapshots of this policy are kept when new ones are taken. Without this field, all of them. The newest is
    never removed."""


class SnapshotStatus(ResourceModel):
    """One snapshot."""

    due: Timestamp
    """When it was due."""

    taken_at: Timestamp
    """When all offsets had been read. A restore with an at of this time or later finds it."""

    path: str
    """The folder with its Parquet."""

    groups: Count
    """How many groups it has."""

    partitions: Count
    """How many committed offsets."""

    bytes: Count
    """The size of its Parquet."""

    unread: Count
    """How many groups could not be read. The manifest names them."""


class SnapshotsStatus(ResourceModel):
    """The state of the snapshots."""

    since: Timestamp
    """When they were first requested."""

    last: SnapshotStatus | None = None
    """The newest one."""

    next: Timestamp | None = None
    """When the next one is due. Absent while one is being taken."""

    missed: Count | None = None
    """How many due times before the newest attempt passed without a snapshot being taken."""

    failures: Count | None = None
    """How many attempts in a row have failed."""

    launch: str | None = None
    """The newest launch of a job, by the name of its SparkApplication."""
