"""From where backups are kept to where a job finds them. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final

from tidegate.jobs.storage import S3, Folder, Storage
from tidegate.resources.storage import BackupStorage

BAD_BACKUP_STORAGE: Final = "BadBackupStorage"


SECRETS_FOLDER: Final = PurePosixPath("/etc/tidegate/secrets")
CLAIMS_FOLDER: Final = PurePosixPath("/var/lib/tidegate/claims")


@dataclass(frozen=True, slots=True)
class JobPlaces:
    """Where a job finds what is kept outside it. ``in_pods``: claims and Secrets are mounted in the two folders;
    ``backups``: the folder of this machine below which a local job may keep backups, where there is one.
    """

    in_pods: bool
    claims: PurePosixPath
    secrets: PurePosixPath
    backups: Path | None = None


def backup_storage(storage: BackupStorage, path: str, places: JobPlaces) -> Storage | str:
    """The place as a job reaches it, or why it can't: for a condition. ``path``: the field that names it."""
    if storage.s3 is not None:
        s3 = storage.s3
        if s3.credentials is not None and not places.in_pods:
            return (
                f"{path}.s3.credentials is a Secret, which Spark on one machine can't be given: leave it out, and put "
                "the credentials into ~/.aws/credentials of the operator's user"
            )
        file = None
        if s3.credentials is not None:
            file = Path(places.secrets / s3.credentials.secret_name / s3.credentials.key)
        return S3(s3.bucket, s3.path, s3.endpoint, s3.region, file)
    if storage.folder is None:
        raise ValueError(f"{path} names no place")
    folder = storage.folder
    if places.in_pods:
        if folder.claim is None:
            return f"{path}.folder: a job in a pod keeps nothing without a PersistentVolumeClaim: name one in claim"
        return Folder(Path(places.claims / folder.claim / folder.path))
    if folder.claim is not None:
        return f"{path}.folder.claim: Spark on one machine has no claims: leave it out"
    if places.backups is None:
        return (
            f"{path}.folder: the operator keeps no backups on this machine: set TIDEGATE_SPARK_BACKUPS to the "
            "folder below which they may be"
        )
    return Folder(places.backups / folder.path)


def secrets_of(storage: BackupStorage | None) -> dict[str, tuple[str, ...]]:
    """The Secrets (name → keys) that a job in a pod needs for it."""
    credentials = storage.s3.credentials if storage is not None and storage.s3 is not None else None
    return {credentials.secret_name: (credentials.key,)} if credentials is not None else {}


def claims_of(storage: BackupStorage | None, *, written: bool) -> dict[str, bool]:
    """The PersistentVolumeClaims, and whether they are written to."""
    claim = storage.folder.claim if storage is not None and storage.folder is not None else None
    return {claim: written} if claim is not None else {}


def secret_file(secret: str, key: str) -> Path:
    """Where a key of a connection's Secret is found as a file, in the operator's Spark driver and executors."""
    return Path(SECRETS_FOLDER / secret / key)
