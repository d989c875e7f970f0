"""Where backups of offsets are kept: a folder of a claim or of a machine, or S3."""

from __future__ import annotations

from typing import Annotated

from tidegate.resources.authentication import SecretKeySource
from tidegate.resources.base import ResourceModel
from tidegate.resources.fields import ResourceName
from tidegate.resources.rules import matching, rule

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
    """The folder, below the claim's root or, without claim, below the folder in the operator's setting
    TIDEGATE_SPARK_BACKUPS."""

    claim: ResourceName | None = None
    """The name of the PersistentVolumeClaim in this namespace. If driver and executors may run on different nodes, it
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
    """The URL of the service, such as https://minio.storage:9000. Without this field, it is AWS."""

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


class BackupStorage(ResourceModel):
    """Where backups are kept."""

    folder: FolderStorage | None = None
    """A folder of a PersistentVolumeClaim or, if Spark runs on one machine without Kubernetes, of that machine."""

    s3: S3Storage | None = None
    """A path in S3, or in a service with its protocol. The job's image has to contain Hadoop's connector
    (hadoop-aws)."""

    @rule(
        "has(self.folder) != has(self.s3)",
        "must have exactly one of folder, s3: keep one and remove the other",
    )
    def _exactly_one(self) -> bool:
        return (self.folder is None) != (self.s3 is None)
