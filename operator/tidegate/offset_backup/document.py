"""What the operator asks a job for, and what came of it: one ConfigMap of an
``OffsetBackup``, under attempt numbers. Pure.

The operator writes an order; the job of that order, and no older one, writes the result beside it. Whoever may write
ConfigMaps can write here too: so a job obeys only the order whose digest it was started with, and what a result says
is taken for no more than a report.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Final

from pydantic import Field, TypeAdapter, ValidationError

from tidegate.jobs.naming import document_name as jobs_document_name
from tidegate.jobs.storage import Storage
from tidegate.offset_backup.manifest import Manifest, Moment, schedule_folder
from tidegate.offset_backup.order import Order, decode_order, encode_order
from tidegate.versions import BACKUP_ORDER, VERSION, check, said

MOST_ATTEMPTS: Final = 9_999_999
"""For as many has a job's name room (``tidegate.jobs.naming``)."""

_Number = Annotated[int, Field(ge=0, lt=1 << 63)]
"""As a status may say it."""

_Path = Annotated[str, Field(max_length=4096)]


class BadDocument(ValueError):
    """Nothing that this version has written; the message says why."""


@dataclass(frozen=True, slots=True)
class Backup:
    """What is to be known of one that was made. ``unread``: how many groups could not be read, ``unread_says`` which
    one, for example, and why: the manifest has them all."""

    storage: Storage
    cluster_id: str
    due: Moment
    taken_at: Moment
    path: _Path
    groups: _Number
    offsets: _Number
    size: _Number
    unread: _Number = 0
    unread_says: str = ""


def backup_of(manifest: Manifest, storage: Storage) -> Backup:
    example = min(manifest.unread.items(), default=None)
    return Backup(
        storage=storage,
        cluster_id=manifest.cluster_id,
        due=manifest.due,
        taken_at=manifest.ended_at,
        path=f"{storage.uri}/{schedule_folder(manifest.cluster_id, manifest.schedule)}/{manifest.data}",
        groups=manifest.groups,
        offsets=manifest.offsets,
        size=manifest.size,
        unread=len(manifest.unread),
        unread_says="" if example is None else f"{example[0]}: {example[1]}"[:500],
    )


@dataclass(frozen=True, slots=True)
class Result:
    """How an attempt ended: with a backup, or why without. ``failure`` of one with a backup: why what is over was not
    removed. ``withdrawn``: by the operator, for another one."""

    ended_at: Moment
    backup: Backup | None = None
    failure: str = ""
    withdrawn: bool = False


@dataclass(frozen=True, slots=True)
class Asked:
    """The newest attempt. ``missed``: due times before it that nobody will make; ``failures``: of attempts before it
    in a row; ``made``: the newest backup before it."""

    number: int
    asked_at: Moment
    missed: int = 0
    failures: int = 0
    made: Backup | None = None


@dataclass(frozen=True, slots=True)
class Document:
    order: Order
    asked: Asked
    result: Result | None = None

    @property
    def is_under_way(self) -> bool:
        return self.result is None

    @property
    def made(self) -> Backup | None:
        """The newest backup there is."""
        return self.asked.made if self.result is None or self.result.backup is None else self.result.backup

    @property
    def failures(self) -> int:
        """Of attempts in a row, up to the newest that has ended."""
        if self.result is None or self.result.withdrawn:
            return self.asked.failures
        return 0 if self.result.backup is not None else self.asked.failures + 1


_ASKED: Final = TypeAdapter(Asked)
_RESULT: Final = TypeAdapter(Result)

RESULT_KEY: Final = "result.json"


def encode_document(document: Document) -> dict[str, str]:
    """The ConfigMap's ``data``."""
    data = {
        VERSION: said(BACKUP_ORDER),
        "order.json": encode_order(document.order).decode(),
        "asked.json": _ASKED.dump_json(document.asked).decode(),
    }
    return data if document.result is None else data | {RESULT_KEY: encode_result(document.result)}


def encode_result(result: Result) -> str:
    return _RESULT.dump_json(result).decode()


def decode_document(data: Mapping[str, str], where: str = "it") -> Document:
    """Raises ``NewerVersion`` and ``BadDocument``."""
    try:
        check(BACKUP_ORDER, data.get(VERSION), where)
        result = data.get(RESULT_KEY)
        return _checked(
            Document(
                decode_order(data["order.json"].encode()),
                _ASKED.validate_json(data["asked.json"]),
                None if result is None else _RESULT.validate_json(result),
            )
        )
    except KeyError as error:
        raise BadDocument(f"it has no {error}") from error
    except ValidationError as error:
        raise BadDocument(f"it can't be read: {error.errors()[0]['msg']}") from error
    except ValueError as error:
        raise BadDocument(str(error)) from error


def _checked(document: Document) -> Document:
    """Raises ``ValueError`` where its result is not one of its order."""
    order, made = document.order, document.result.backup if document.result is not None else None
    if made is not None and (made.due, made.storage) != (order.due, order.storage):
        raise ValueError("its result does not belong to its order")
    return document


def attempt_name(document: str, number: int) -> str:
    """Of the job of an attempt. ``document``: the ConfigMap's name."""
    return f"{document}-{number}"


def has_its_name(document: Document, name: str) -> bool:
    """Whether its attempt is called as the operator calls those of the ConfigMap ``name``. It stops jobs by that: with
    any other name, whoever may write ConfigMaps could have it stop another one's."""
    number = document.asked.number
    return 1 <= number <= MOST_ATTEMPTS and document.order.attempt == attempt_name(name, number)


def digest(order: Order) -> str:
    """What tells an order from all others."""
    return hashlib.sha256(encode_order(order)).hexdigest()


def document_name(name: str, uid: str) -> str:
    """The ConfigMap's."""
    return jobs_document_name(name, uid, "backup")
