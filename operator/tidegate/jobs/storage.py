"""Where backups are kept, as a job reaches it. Values without secrets: they travel in documents."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal


@dataclass(frozen=True, slots=True)
class Folder:
    """A folder that driver and executors have at the same ``path``, which is absolute."""

    path: Path
    kind: Literal["folder"] = "folder"

    @property
    def uri(self) -> str:
        if not self.path.is_absolute():
            raise ValueError(f"folder {self.path} is not absolute")
        # As Hadoop's Path takes it, which decodes no %20.
        return f"file://{self.path}"


@dataclass(frozen=True, slots=True)
class S3:
    """Objects below ``path``. ``credentials_file``: AWS's shared file; absent: the chain of its SDK."""

    bucket: str
    path: str
    endpoint: str | None = None
    region: str | None = None
    credentials_file: Path | None = None
    kind: Literal["s3"] = "s3"

    @property
    def uri(self) -> str:
        return f"s3a://{self.bucket}/{self.path}"


Storage = Folder | S3


def hadoop_options(storage: Storage) -> dict[str, str]:
    """Hadoop's settings for it (``core-default.xml``, ``fs.s3a.*``), none of them a secret.

    The file of credentials itself is named by the environment (``AWS_SHARED_CREDENTIALS_FILE``), as S3A has no setting
    for it.
    """
    match storage:
        case Folder():
            return {}
        case S3(endpoint=endpoint, region=region, credentials_file=file):
            provider = "ProfileCredentialsProvider" if file is not None else "DefaultCredentialsProvider"
            # Named in both cases: S3A's own list knows no web identity and no profile.
            options = {"fs.s3a.aws.credentials.provider": f"software.amazon.awssdk.auth.credentials.{provider}"}
            if endpoint is not None:
                # Services other than AWS's rarely have a DNS name for each bucket.
                options |= {"fs.s3a.endpoint": endpoint, "fs.s3a.path.style.access": "true"}
            if region is not None:
                options["fs.s3a.endpoint.region"] = region
            return options


def environment(storage: Storage) -> dict[str, str]:
    """What driver and executors need in their environment for it."""
    file = storage.credentials_file if isinstance(storage, S3) else None
    return {"AWS_SHARED_CREDENTIALS_FILE": str(file)} if file is not None else {}
