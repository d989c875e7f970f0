"""What a backup's job removes once it is over, and what it says where it can't."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, cast

import pytest

from support.fake_kafka import FakeClock
from tidegate.jobs.storage import Folder
from tidegate.kafka.connection import Connection
from tidegate.offset_backup.manifest import Keep, Manifest, data_name, encode, manifest_name, schedule_folder
from tidegate.offset_backup.order import Order
from tidegate.spark import backup
from tidegate.spark.backup import take_backup
from tidegate.spark.files import StorageFailure
from tidegate.spark.restore import manifests_of

DUE = datetime(2026, 11, 20, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
FOLDER = schedule_folder("c", "s")
NO_SPARK: Any = None
"""What is there already is not written again."""


class Files:
    """A storage in memory. ``refuses``: nothing may be removed."""

    def __init__(self) -> None:
        self.there: dict[str, bytes] = {}
        self.refuses = False

    def __call__(self, _spark: Any, _storage: Any) -> Files:
        return self

    def uri(self, name: str) -> str:
        return f"s3a://b/{name}"

    def names(self, folder: str) -> tuple[str, ...]:
        below = (name.removeprefix(f"{folder}/") for name in self.there if name.startswith(f"{folder}/"))
        return tuple(sorted({name.partition("/")[0] for name in below}))

    def read(self, name: str) -> bytes | None:
        return self.there.get(name)

    def remove(self, name: str) -> None:
        if self.refuses:
            raise StorageFailure(f"can't remove {self.uri(name)}: AccessDenied")
        self.there = {n: c for n, c in self.there.items() if n != name and not n.startswith(f"{name}/")}

    def backup(self, due: datetime) -> Manifest:
        made = Manifest("c", "s", due, due, due, data_name(due, "p-1"), groups=1, offsets=2, size=3)
        self.there[f"{FOLDER}/{manifest_name(due)}"] = encode(made)
        self.there[f"{FOLDER}/{made.data}/part-0.parquet"] = b"rows"
        return made

    @property
    def dues(self) -> list[datetime]:
        """Of the backups that are there."""
        return sorted(m.due for m in manifests_of(cast("Any", self), "c", "s"))


@pytest.fixture
def files(monkeypatch: pytest.MonkeyPatch) -> Files:
    pytest.importorskip("pyspark")
    made = Files()
    monkeypatch.setattr(backup, "Files", made)
    monkeypatch.setattr(backup, "in_executor", lambda _spark, _call: ("c", ("g",)))
    return made


def order(due: datetime = DUE) -> Order:
    keep = Keep(timedelta(days=1), timedelta(days=2))
    return Order(Connection("127.0.0.1:9092"), Folder(Path("/b")), "s", due, "p-2", keep=keep)


def test_what_is_over_is_removed_with_its_data(files: Files) -> None:
    made = [files.backup(DUE - n * HOUR) for n in range(60)]
    files.there[f"{FOLDER}/data/20261118T000000Z-p-9/part-0.parquet"] = b"left over"

    taken = take_backup(NO_SPARK, order(), FakeClock(DUE + HOUR / 2))

    assert (taken.manifest, taken.left) == (made[0], "")
    assert files.dues[0] == datetime(2026, 11, 18, 23, tzinfo=UTC)
    assert [due for due in files.dues if DUE - due > timedelta(days=1)] == files.dues[:1]
    assert len(files.names(f"{FOLDER}/data")) == len(files.dues)


@pytest.mark.parametrize("ahead", [timedelta(days=400), timedelta(days=3)])
def test_a_job_whose_clock_is_ahead_removes_nothing_that_is_to_be_kept(files: Files, ahead: timedelta) -> None:
    for n in range(20):
        files.backup(DUE - n * HOUR)
    before = files.dues

    take_backup(NO_SPARK, order(), FakeClock(DUE + ahead))

    assert files.dues == before


def test_an_operator_whose_clock_is_ahead_has_nothing_removed_that_is_to_be_kept(files: Files) -> None:
    for n in range(20):
        files.backup(DUE - n * HOUR)
    before = [*files.dues, DUE + timedelta(days=400)]
    files.backup(before[-1])

    take_backup(NO_SPARK, order(before[-1]), FakeClock(DUE))

    assert files.dues == before


def test_a_backup_that_is_there_is_told_though_nothing_can_be_removed(files: Files) -> None:
    made = [files.backup(DUE - n * HOUR) for n in (0, 100)]
    files.refuses = True

    taken = take_backup(NO_SPARK, order(), FakeClock(DUE))

    assert taken.manifest == made[0]
    assert taken.left.startswith("can't remove s3a://b/cluster=c/schedule=s/manifests/")
