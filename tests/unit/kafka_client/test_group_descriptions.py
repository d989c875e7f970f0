"""What is made of a classic member's assignment, which any client may have written, and of groups that are listed as
alive and described as dead."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.protocol.consumer.metadata import ConsumerProtocolAssignment

from tidegate.kafka.model import Group, GroupState, GroupType, ListedGroup, TopicPartition
from tidegate.kafka_client.group_descriptions import alive_by_listing, assigned

VERSION = b"\x00\x00"


def written(*topics: tuple[str, list[int]], version: int = 0) -> bytes:
    rows = [ConsumerProtocolAssignment.TopicPartition(topic=name, partitions=numbers) for name, numbers in topics]
    made = ConsumerProtocolAssignment(version, assigned_partitions=rows, user_data=b"sticky")
    return bytes(made.encode(version=version))


@pytest.mark.parametrize("version", range(4))
def test_an_assignment_is_read(version: int) -> None:
    raw = written(("orders", [0, 2]), ("returns", [1]), version=version)
    assert assigned(raw) == {TopicPartition("orders", 0), TopicPartition("orders", 2), TopicPartition("returns", 1)}
    assert assigned(written(version=version)) == frozenset()


def test_one_of_a_later_version_is_read_as_far_as_it_is_known() -> None:
    assert assigned(struct.pack(">h", 9) + written(("orders", [0]))[2:] + b"more") == {TopicPartition("orders", 0)}


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"\x00",
        b"\xff\xff" + written(("orders", [0]))[2:],
        written(("orders", [0]))[:-12],
        VERSION + struct.pack(">i", 2**31 - 1),
        VERSION + struct.pack(">ihci", 1, 1, b"t", 2**31 - 1),
        VERSION + struct.pack(">ihci", 1, 1, b"\xff", 0) + b"\xff\xff\xff\xff",
        VERSION + struct.pack(">i", -1) + b"\xff\xff\xff\xff",
        VERSION + struct.pack(">ihii", 1, -1, 1, 7) + b"\xff\xff\xff\xff",
    ],
    ids=["none", "cut off", "version", "no partitions", "topics", "partitions", "not UTF-8", "null", "no name"],
)
def test_one_that_cannot_be_read_is_none(raw: bytes) -> None:
    assert assigned(raw) == frozenset()


@given(st.binary(max_size=200))
def test_no_bytes_are_an_error(raw: bytes) -> None:
    assert all(isinstance(p.topic, str) and isinstance(p.partition, int) for p in assigned(VERSION + raw))


@pytest.mark.parametrize(
    ("protocol", "kind", "state", "found"),
    [
        ("streams", "streams", "Stable", GroupType.STREAMS),
        ("share", "share", "", GroupType.SHARE),
        ("consumer", "", "stable", GroupType.CONSUMER),  # as 3.7.2 lists a KIP-848 group
        ("consumer", "", "Empty", None),
        ("consumer", "", "Dead", None),
        ("consumer", "classic", "Stable", None),  # it came to be after it was described
        ("connect", "", "Stable", None),
        ("", "", "", None),
    ],
)
def test_a_group_described_as_dead_is_alive_where_it_is_listed_so(
    protocol: str, kind: str, state: str, found: GroupType | None
) -> None:
    dead = {"a": Group("a", GroupState.DEAD, GroupType.SIMPLE), "b": Group("b", GroupState.DEAD, GroupType.SIMPLE)}
    listed = [ListedGroup("a", protocol, kind, state), ListedGroup("other", "streams", "streams", "Stable")]

    alive = alive_by_listing(dead, listed)

    assert alive == ({} if found is None else {"a": Group("a", GroupState.UNKNOWN, found)})


def test_what_is_described_as_alive_stays_as_it_was_described() -> None:
    stable = {"a": Group("a", GroupState.STABLE, GroupType.CLASSIC)}
    assert alive_by_listing(stable, [ListedGroup("a", "consumer", "", "stable")]) == {}
