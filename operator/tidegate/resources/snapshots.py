"""Snapshots of the offsets of all groups: when they are taken, where and how long they are kept; and their status."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Final, Self

from pydantic import (
    AfterValidator,
    Field,
    model_validator,
)

from tidegate.resources.base import (
    Count,
    Duration,
    GroupPattern,
    ResourceModel,
    ResourceName,
    Timestamp,
    matching,
    problem,
    unique,
)
from tidegate.resources.connection import SecretKeySource
from tidegate.resources.durations import parse_duration

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
