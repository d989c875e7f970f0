"""Reading the coordinator's log: each version of its records, as Kafka writes them."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.kafka.model import TopicPartition
from tidegate.kafka.offset_records import GroupLog, LoggedCommit, follow, key_prefixes, partition_of, with_tail

ORDERS = TopicPartition("orders", 3)


def text(value: str | None) -> bytes:
    return struct.pack(">h", -1) if value is None else struct.pack(">h", len(value.encode())) + value.encode()


def compact(value: str | None) -> bytes:
    return b"\x00" if value is None else bytes([len(value.encode()) + 1]) + value.encode()


def commit_key(group: str = "payments", partition: TopicPartition = ORDERS, version: int = 1) -> bytes:
    return struct.pack(">h", version) + text(group) + text(partition.topic) + struct.pack(">i", partition.partition)


def group_key(group: str = "payments") -> bytes:
    return struct.pack(">h", 2) + text(group)


def commit_value(version: int, offset: int = 42, metadata: str = "m", explicit: int = 9_000) -> bytes:
    body = struct.pack(">hq", version, offset)
    if version >= 3:
        body += struct.pack(">i", 7)
    body += compact(metadata) if version >= 4 else text(metadata)
    body += struct.pack(">q", 1_000)
    if version == 1:
        body += struct.pack(">q", explicit)
    return body + (b"\x01\x00\x10" + bytes(16) if version >= 4 else b"")


def group_value(version: int, members: int = 0, since: int = 5_000) -> bytes:
    string = compact if version >= 4 else text
    body = struct.pack(">h", version) + string("consumer") + struct.pack(">i", 3) + string(None) + string(None)
    if version >= 2:
        body += struct.pack(">q", since)
    return body + (bytes([members + 1]) if version >= 4 else struct.pack(">i", members))


def read(*records: tuple[bytes, bytes | None], before: GroupLog | None = None) -> GroupLog:
    return follow(before or GroupLog(), "payments", records, read_to=len(records), complete=True)


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        (0, LoggedCommit(42, 1_000)),
        (1, LoggedCommit(42, 1_000, 9_000)),
        (2, LoggedCommit(42, 1_000)),
        (3, LoggedCommit(42, 1_000, None, 7)),
        (4, LoggedCommit(42, 1_000, None, 7)),
    ],
)
@pytest.mark.parametrize("key_version", [0, 1])
def test_a_commit_of_each_version(version: int, expected: LoggedCommit, key_version: int) -> None:
    assert read((commit_key(version=key_version), commit_value(version))).commits == {ORDERS: expected}


def test_an_explicit_expiry_of_minus_one_is_none() -> None:
    assert read((commit_key(), commit_value(1, explicit=-1))).commits[ORDERS].explicit_ms is None


@pytest.mark.parametrize(("version", "expected"), [(0, None), (1, None), (2, 5_000), (3, 5_000), (4, 5_000)])
def test_when_a_classic_group_became_empty(version: int, expected: int | None) -> None:
    assert read((group_key(), group_value(version))).emptied_ms == expected


@pytest.mark.parametrize("version", [2, 3, 4])
def test_a_group_with_members_is_not_empty(version: int) -> None:
    assert read((group_key(), group_value(version)), (group_key(), group_value(version, members=1))).emptied_ms is None


def test_the_last_record_counts_and_a_tombstone_forgets() -> None:
    log = read((commit_key(), commit_value(1, 1)), (commit_key(), commit_value(3, 2)), (group_key(), group_value(3)))
    assert log.commits == {ORDERS: LoggedCommit(2, 1_000, None, 7)}

    after = read((commit_key(), None), (group_key(), None), before=log)

    assert (after.commits, after.emptied_ms) == ({}, None)


def test_behind_an_open_transaction_only_what_no_transaction_writes_counts() -> None:
    kept, moved, ended = (TopicPartition("orders", n) for n in range(3))
    log = read(*((commit_key(partition=p), commit_value(3, 1)) for p in (kept, moved, ended, ORDERS)))
    behind = [
        (commit_key(partition=kept), commit_value(1, 1)),
        (commit_key(partition=moved), commit_value(3, 2)),
        (commit_key(partition=ended), None),
        (group_key(), group_value(3)),
    ]

    tailed = with_tail(log, "payments", behind, complete=True)

    assert tailed.commit(kept) == LoggedCommit(1, 1_000, 9_000)
    assert (tailed.commit(moved), tailed.commit(ended)) == (None, None)
    assert tailed.commit(ORDERS) == LoggedCommit(1, 1_000, None, 7)
    assert tailed.emptied_ms == 5_000
    decided = follow(tailed, "payments", behind, read_to=9, complete=True)
    assert decided.commit(moved) == LoggedCommit(2, 1_000, None, 7)


def test_other_groups_and_other_kinds_of_records_say_nothing() -> None:
    others = [
        (commit_key("payments2"), commit_value(3)),
        (group_key("payment"), group_value(3)),
        (struct.pack(">h", 3) + text("payments"), b"\x00\x00whatever"),
        (struct.pack(">h", 16) + text("payments"), None),
        (b"", None),
    ]

    log = read(*others)

    assert (log.commits, log.emptied_ms) == ({}, None)


def test_metadata_of_any_bytes_is_passed_over() -> None:
    value = struct.pack(">hqi", 3, 5, 7) + struct.pack(">h", 3) + b"\xff\x00\xfe" + struct.pack(">q", 1_000)

    assert read((commit_key(), value)).commits == {ORDERS: LoggedCommit(5, 1_000, None, 7)}


@pytest.mark.parametrize("value", [commit_value(3)[:-1], b"\x00", struct.pack(">h", 5) + bytes(40)], ids=str)
def test_what_cannot_be_read_is_counted_and_not_fatal(value: bytes) -> None:
    log = read((commit_key(), commit_value(2)), (commit_key(), value))

    assert (log.unreadable, log.commits[ORDERS]) == (1, LoggedCommit(42, 1_000))


@given(st.binary(max_size=60), st.binary(max_size=60))
def test_no_bytes_break_it(key: bytes, value: bytes) -> None:
    read((key, value), (commit_key(), value), (group_key(), value))


@pytest.mark.parametrize(
    ("group", "partitions", "expected"),
    # What kafka.utils.Utils.abs("…".hashCode()) % n gives.
    [
        ("payments", 50, 1382682413 % 50),
        ("", 50, 0),
        ("polygenelubricants", 50, 0),
        ("a", 6, 97 % 6),
        ("😀", 50, 1772899 % 50),
    ],
)
def test_the_partition_of_a_group_is_that_of_java(group: str, partitions: int, expected: int) -> None:
    assert partition_of(group, partitions) == expected


def test_the_prefixes_are_those_of_the_keys_wanted() -> None:
    prefixes = key_prefixes("payments")

    assert commit_key().startswith(prefixes)
    assert commit_key(version=0).startswith(prefixes)
    assert group_key().startswith(prefixes)
    assert not commit_key("payments2").startswith(prefixes)
