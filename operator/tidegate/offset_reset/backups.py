"""Where a reset to a backup reads it: in the storage of the OffsetBackup that it names, or in the one that it gives."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tidegate.connection.allow import STORAGE_NOT_ALLOWED, storage_not_allowed
from tidegate.connection.live import Live
from tidegate.jobs.mounts import BAD_BACKUP_STORAGE, JobPlaces, backup_storage
from tidegate.kube.ports import BACKUPS, Kube, NotFound
from tidegate.reset.model.targets import FromBackup
from tidegate.resources.base import InvalidResource, parse_spec
from tidegate.resources.conditions import Refusal
from tidegate.resources.offset_backup import OffsetBackupSpec
from tidegate.resources.storage import BackupStorage
from tidegate.resources.targets import BackupTarget

OFFSET_BACKUP_NOT_FOUND: Final = "OffsetBackupNotFound"

_PATH: Final = "spec.to.backup"


@dataclass(frozen=True, slots=True)
class Found:
    """``storage``: as its resource has it, for what has to be mounted; ``target``: as the run's job reaches it."""

    storage: BackupStorage
    target: FromBackup


def find(kube: Kube, namespace: str, backup: BackupTarget, live: Live, places: JobPlaces) -> Found | Refusal:
    """What is meant, where the connection allows to read it. Asks the API server where an OffsetBackup is named."""
    named = _named(kube, namespace, backup)
    if isinstance(named, Refusal):
        return named
    storage, where = named
    message = storage_not_allowed(live.name, live.allow, where, storage)
    if message is not None:
        return Refusal(STORAGE_NOT_ALLOWED, message)
    place = backup_storage(storage, where, places)
    if isinstance(place, str):
        return Refusal(BAD_BACKUP_STORAGE, place)
    return Found(storage, FromBackup(place, backup.at))


def _named(kube: Kube, namespace: str, backup: BackupTarget) -> tuple[BackupStorage, str] | Refusal:
    """The storage, and how a message names it."""
    if backup.storage is not None:
        return backup.storage, f"{_PATH}.storage"
    if backup.name is None:
        raise ValueError(f"{_PATH} names no backup")
    where = f"{_PATH}.name: OffsetBackup {backup.name}"
    try:
        spec = parse_spec(OffsetBackupSpec, kube.get(BACKUPS, namespace, backup.name))
    except NotFound:
        return Refusal(
            OFFSET_BACKUP_NOT_FOUND,
            f"{_PATH}.name: there is no OffsetBackup {backup.name} in this namespace: correct the name, or give the "
            f"storage of its backups in {_PATH}.storage",
        )
    except InvalidResource as invalid:
        return Refusal(BAD_BACKUP_STORAGE, f"{where} can't be read: {invalid}")
    return spec.storage, f"{where}: spec.storage"
