"""What a backup is, where its parts lie, which one is meant and which ones are over. Pure.

Below the storage that an ``OffsetBackup`` names::

    cluster=<id>/schedule=<its uid>/manifests/<due>.json
    cluster=<id>/schedule=<its uid>/data/<due>-<attempt>/part-*.parquet

Data counts only when a manifest names it, so a reader never sees a half. Times in names sort as the times do.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Annotated, Final

from pydantic import AfterValidator, TypeAdapter, ValidationError

from tidegate.versions import BACKUP_MANIFEST, NewerVersion, check

FORMAT: Final = BACKUP_MANIFEST.version

COLUMNS: Final = (
    "group_id string, group_type string, group_state string, topic string, topic_id string, partition int, "
    "committed bigint, leader_epoch int, metadata string, log_start bigint, log_end bigint, observed_at timestamp"
)
"""A row is one partition of one group. ``leader_epoch``: KIP-320's, null where the committer told none. ``log_start``
and ``log_end``: null where the partition was gone or could not be read, and ``topic_id`` where the topic was gone."""

ORPHANS_KEPT: Final = timedelta(days=1)
"""Data without a manifest may belong to a job that is still writing; no job lives that long."""

_TIME: Final = "%Y%m%dT%H%M%SZ"


def _moment(at: datetime) -> datetime:
    if at.tzinfo is None or not 1970 <= at.year < 9999:
        raise ValueError("a time must have a zone, and be of a year from 1970 to 9998")
    return at


Moment = Annotated[datetime, AfterValidator(_moment)]
"""A time in what is stored, which anybody may have written: it can be compared with others, and reckoned with."""


class BadManifest(ValueError):
    """Not a manifest that this version reads; the message says why."""


@dataclass(frozen=True, slots=True)
class Manifest:
    """One backup. ``data``: its folder, below the schedule's, with ``size`` bytes in it. ``began_at`` and
    ``ended_at``: when it was read.

    ``unread``: groups that could not be read, and why.
    """

    cluster_id: str
    schedule: str
    due: Moment
    began_at: Moment
    ended_at: Moment
    data: str
    groups: int
    offsets: int
    size: int
    unread: Mapping[str, str] = field(default_factory=dict)
    format: int = FORMAT


_MANIFEST: Final = TypeAdapter(Manifest)
_HEAD: Final = TypeAdapter(dict[str, object])


def encode(manifest: Manifest) -> bytes:
    return _MANIFEST.dump_json(manifest, indent=1)


def decode(text: bytes) -> Manifest:
    """Raises ``BadManifest``, also for one that a later version has written."""
    try:
        written = _HEAD.validate_json(text).get("format")
        if written is None:
            raise BadManifest("it has no format")
        check(BACKUP_MANIFEST, written, "it")
        manifest = _MANIFEST.validate_json(text)
    except NewerVersion as newer:
        raise BadManifest(str(newer)) from newer
    except ValidationError as error:
        raise BadManifest(f"it is not a manifest: {error.errors()[0]['msg']}") from error
    except ValueError as error:
        raise BadManifest(f"it is not a manifest: {error}") from error
    if not re.fullmatch(r"data/[A-Za-z0-9][A-Za-z0-9.-]*", manifest.data):
        raise BadManifest(f"it names data outside its schedule's folder: {manifest.data!r}")
    return manifest


# --- names ------------------------------------------------------------------------------------------------------------


def cluster_folder(cluster_id: str) -> str:
    return f"cluster={cluster_id}"


def schedule_folder(cluster_id: str, schedule: str) -> str:
    return f"{cluster_folder(cluster_id)}/schedule={schedule}"


def manifest_name(due: datetime) -> str:
    """Below the schedule's folder."""
    return f"manifests/{_text(due)}.json"


def data_name(due: datetime, attempt: str) -> str:
    """Below the schedule's folder. ``attempt``: no other has it; letters, digits and ``-``."""
    return f"data/{_text(due)}-{attempt}"


def due_of(name: str) -> datetime | None:
    """The due time in the last part of a manifest's or data folder's name; ``None``: it is neither."""
    found = re.fullmatch(r"(\d{8}T\d{6}Z)(\.json|-[A-Za-z0-9-]+)", name.rpartition("/")[2])
    try:
        return None if found is None else datetime.strptime(found[1], _TIME).replace(tzinfo=UTC)
    except ValueError:
        return None


def _text(due: datetime) -> str:
    return due.astimezone(UTC).strftime(_TIME)


# --- which one --------------------------------------------------------------------------------------------------------


CLOCKS_APART: Final = timedelta(minutes=5)
"""How far the clocks of two nodes may be apart, where nothing is wrong with them."""


def newest_first(
    manifests: Iterable[Manifest], group_id: str, at: datetime | None, now: datetime
) -> tuple[Manifest, ...]:
    """Those that can tell where a group was at ``at``, the best first.

    By when they were read to their end and not by when they were due: one that was made late holds offsets of after its
    due time, and records not yet done at ``at`` would be skipped. One that ends later than ``now`` was made by a clock
    that was ahead: it is the last one to be taken, since others may be newer.
    """
    told = now + CLOCKS_APART
    usable = (m for m in manifests if group_id not in m.unread and (at is None or m.ended_at <= at))
    return tuple(sorted(usable, key=lambda m: (m.ended_at <= told, m.ended_at, m.due, m.schedule), reverse=True))


# --- which are over ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Keep:
    """``each``: how long every backup is kept; ``daily``: how long the last one of each day (UTC) is."""

    each: timedelta
    daily: timedelta


_LATEST: Final = timedelta(hours=1)
"""After its due time a backup is made by then, unless the operator was away."""


def judged_at(due: datetime, now: datetime) -> datetime:
    """By which time a job judges what is over: by its own clock, but by no later one than that of the operator, which
    has asked for the backup of ``due``. A clock that is a year ahead must not have all backups removed."""
    return min(now, due + _LATEST)


def over(dues: Collection[datetime], keep: Keep | None, now: datetime) -> tuple[datetime, ...]:
    """The backups of one schedule, by due time, that are to be removed, the oldest first. Never the newest."""
    if keep is None or not dues:
        return ()
    last_of_day: dict[object, datetime] = {}
    for due in sorted(dues):
        last_of_day[due.astimezone(UTC).date()] = due
    newest, dailies = max(dues), frozenset(last_of_day.values())
    return tuple(
        due for due in sorted(set(dues)) if due != newest and now - due > (keep.daily if due in dailies else keep.each)
    )


def orphans(folders: Iterable[str], named: Collection[str], now: datetime) -> tuple[str, ...]:
    """Data folders that no manifest names and that nobody can be writing any more."""
    found = []
    for folder in folders:
        due = due_of(folder)
        if due is not None and folder not in named and now - due > ORPHANS_KEPT:
            found.append(folder)
    return tuple(sorted(found))
