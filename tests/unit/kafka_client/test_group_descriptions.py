"""What is made of a classic member's assignment, which any client may have written."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.protocol.consumer.metadata import ConsumerProtocolAssignment

from tidegate.kafka.model import TopicPartition
from tidegate.kafka_client.group_descriptions import assigned

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
