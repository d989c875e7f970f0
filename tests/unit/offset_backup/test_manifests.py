"""Which backup is meant, which are over, and what a manifest may say."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tidegate.jobs.storage import S3, environment, hadoop_options
from tidegate.kafka.connection import Connection
from tidegate.offset_backup.manifest import (
    BadManifest,
    Keep,
    Manifest,
    data_name,
    decode,
    due_of,
    encode,
    manifest_name,
    newest_first,
    orphans,
    over,
    schedule_folder,
)
from tidegate.offset_backup.order import Order, decode_order, encode_order, wanted_groups
from tidegate.spark.files import StorageFailure
from tidegate.spark.restore import manifests_of

NOON = datetime(2026, 11, 22, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
MINUTE = timedelta(minutes=1)


def manifest(due: datetime, *, late: timedelta = MINUTE, schedule: str = "uid", **other: object) -> Manifest:
    made = Manifest("c", schedule, due, due + late, due + late + MINUTE, data_name(due, "p-1"), 3, 12, 4096)
    return replace(made, **other)  # type: ignore[arg-type]


NOW = NOON + 9 * HOUR
ONES = [manifest(NOON + HOUR * n) for n in range(3)]


@pytest.mark.parametrize(
    ("at", "expected"),
    [
        (None, [2, 1, 0]),
        (NOON + 3 * HOUR, [2, 1, 0]),
        (NOON + HOUR + 2 * MINUTE, [1, 0]),
        (NOON + HOUR + 2 * MINUTE - timedelta(microseconds=1), [0]),
        (NOON, []),
    ],
    ids=["newest", "after all", "read to its end just then", "one was not yet read", "before all"],
)
def test_the_newest_that_was_read_by_then_is_taken(at: datetime | None, expected: list[int]) -> None:
    assert newest_first(reversed(ONES), "g", at, NOW) == tuple(ONES[n] for n in expected)


def test_a_backup_made_late_is_not_one_of_its_due_time() -> None:
    late = manifest(NOON + HOUR, late=40 * MINUTE)
    assert newest_first([ONES[0], late], "g", NOON + HOUR + 30 * MINUTE, NOW) == (ONES[0],)


def test_a_backup_of_a_clock_that_was_ahead_is_the_last_to_be_taken() -> None:
    """It tells nothing of whether others are newer."""
    ahead = manifest(NOON + 400 * 24 * HOUR)
    assert newest_first([*ONES, ahead], "g", None, NOW) == (*reversed(ONES), ahead)
    # Two nodes' clocks are never quite the same.
    assert newest_first(ONES, "g", None, ONES[2].ended_at - MINUTE) == tuple(reversed(ONES))


def test_a_backup_that_lacks_the_group_is_passed_over() -> None:
    without = replace(ONES[2], unread={"g": "not authorized"})
    assert newest_first([*ONES[:2], without], "g", None, NOW)[0] == ONES[1]
    assert newest_first([*ONES[:2], without], "other", None, NOW)[0] == without


def test_old_backups_are_thinned_to_one_a_day_and_then_removed() -> None:
    dues = [NOON - 6 * HOUR * n for n in range(40)]  # ten days, four a day, the newest at noon
    kept = sorted(set(dues) - set(over(dues, Keep(timedelta(hours=24), timedelta(days=5)), NOON)))
    assert kept == sorted(
        [
            *(NOON - 6 * HOUR * n for n in range(5)),
            *(datetime(2026, 11, day, 18, tzinfo=UTC) for day in (20, 19, 18, 17)),
        ]
    )


def test_what_was_thinned_stays_thinned() -> None:
    keep = Keep(timedelta(hours=24), timedelta(days=5))
    dues = [NOON - 6 * HOUR * n for n in range(40)]
    left = set(dues) - set(over(dues, keep, NOON))
    assert over(left, keep, NOON) == ()


def test_the_last_backup_is_never_removed() -> None:
    keep = Keep(HOUR, HOUR)
    assert over([NOON, NOON - HOUR], keep, NOON + timedelta(days=1000)) == (NOON - HOUR,)
    assert over([], keep, NOON) == ()


def test_nothing_is_removed_where_nothing_says_so() -> None:
    assert over([NOON, NOON - timedelta(days=9999)], None, NOON) == ()


def test_data_that_nothing_names_goes_after_a_day() -> None:
    old, young, named = data_name(NOON, "a-1"), data_name(NOON + 23 * HOUR, "a-2"), data_name(NOON, "a-3")
    found = orphans([old, young, named, "data/somebody's"], [named], NOON + 25 * HOUR)
    assert found == (old,)


def test_names_tell_their_due_times_and_sort_by_them() -> None:
    assert manifest_name(NOON) == "manifests/20261122T120000Z.json"
    assert due_of(manifest_name(NOON)) == due_of(data_name(NOON, "payments-7")) == NOON
    assert [due_of(n) for n in ("manifests/x.json", "manifests/.20261122T120000Z.json", "99999999T999999Z.json")] == [
        None,
        None,
        None,
    ]


def test_a_manifest_is_read_as_it_was_written() -> None:
    written = manifest(NOON, unread={"g": "not authorized"})
    assert decode(encode(written)) == written


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (b"", "not a manifest"),
        (b"[]", "not a manifest"),
        (b'{"format": 2}', "of version 2, and this version of Tidegate knows versions up to 1"),
        (b'{"format": 1}', "not a manifest"),
        (encode(manifest(NOON, data="data/../../other")), "outside its schedule's folder"),
        (encode(manifest(NOON, data="manifests/x")), "outside its schedule's folder"),
        (encode(manifest(NOON)).replace(b'"2026-11-22T12:02:00Z"', b'"2026-11-22T12:02:00"'), "must have a zone"),
        (encode(manifest(NOON)).replace(b'"2026-11-22T12:02:00Z"', b'"9999-11-22T12:02:00Z"'), "of a year from"),
    ],
)
def test_what_is_no_manifest_is_refused(text: bytes, says: str) -> None:
    with pytest.raises(BadManifest, match=says):
        decode(text)


class Stored:
    """As much of ``tidegate.spark.files.Files`` as finds manifests."""

    def __init__(self, files: dict[str, bytes]) -> None:
        self.files = files

    def names(self, folder: str) -> tuple[str, ...]:
        return tuple(sorted(n.removeprefix(f"{folder}/") for n in self.files if n.startswith(f"{folder}/")))

    def read(self, name: str) -> bytes | None:
        return self.files.get(name)

    def uri(self, name: str) -> str:
        return f"memory:/{name}"


@pytest.mark.parametrize(
    ("cluster_id", "schedule", "due"),
    [("c", "uid", NOON), ("other", "uid", NOON), ("c", "other", NOON), ("c", "uid", NOON + HOUR)],
    ids=["its place", "another cluster's", "another schedule's", "another due time's"],
)
@pytest.mark.parametrize("says", [{}, {"schedule": "../../elsewhere"}, {"cluster_id": "x/../.."}], ids=str)
def test_a_manifest_is_of_the_place_where_it_lies(
    cluster_id: str, schedule: str, due: datetime, says: dict[str, Any]
) -> None:
    name = f"{schedule_folder(cluster_id, schedule)}/{manifest_name(due)}"
    files = Stored({name: encode(manifest(NOON, **says))})
    [found] = manifests_of(files, cluster_id, schedule)  # type: ignore[arg-type]
    assert (found.cluster_id, found.schedule, found.due) == (cluster_id, schedule, due)
    assert found.data == data_name(NOON, "p-1")


def test_a_manifest_that_can_not_be_read_is_named() -> None:
    name = f"{schedule_folder('c', 'uid')}/{manifest_name(NOON)}"
    text = encode(manifest(NOON)).replace(b'"2026-11-22T12:02:00Z"', b'"2026-11-22T12:02:00"')
    with pytest.raises(StorageFailure, match=f"can't use memory:/{name}: .*must have a zone"):
        manifests_of(Stored({name: text}), "c", "uid")  # type: ignore[arg-type]


# --- orders and places ------------------------------------------------------------------------------------------------

ORDER = Order(
    Connection("kafka:9092"),
    S3("backups", "kafka", "https://minio:9000", "eu", Path("/etc/secret/credentials")),
    schedule="5c3e6f0e-8f0e-4d9c-9b61-0d7d1c1f4c11",
    due=NOON,
    attempt="payments-7",
    groups=("payments-*", "billing"),
    allowed_groups=("pay*",),
)


def test_an_order_is_read_as_it_was_written() -> None:
    assert decode_order(encode_order(ORDER)) == ORDER


@pytest.mark.parametrize("bad", [{"schedule": "../x"}, {"attempt": "a/b"}, {"attempt": ""}])
def test_an_order_names_nothing_outside_its_place(bad: dict[str, str]) -> None:
    with pytest.raises(ValueError, match=next(iter(bad))):
        decode_order(encode_order(replace(ORDER, **bad)))  # type: ignore[arg-type]


def test_groups_are_read_that_are_wanted_and_allowed() -> None:
    assert wanted_groups(ORDER, ["payments-b", "billing", "payments-a", "payroll"]) == ("payments-a", "payments-b")


def test_s3_is_told_of_its_credentials_by_the_name_of_a_file() -> None:
    assert ORDER.storage.uri == "s3a://backups/kafka"
    assert environment(ORDER.storage) == {"AWS_SHARED_CREDENTIALS_FILE": "/etc/secret/credentials"}
    assert hadoop_options(ORDER.storage)["fs.s3a.aws.credentials.provider"].endswith("ProfileCredentialsProvider")
    assert hadoop_options(S3("b", "p")).keys() == {"fs.s3a.aws.credentials.provider"}
    assert hadoop_options(S3("b", "p"))["fs.s3a.aws.credentials.provider"].endswith("DefaultCredentialsProvider")
