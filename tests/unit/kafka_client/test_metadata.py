"""Metadata answers as a broker writes them (kafka-python's encoder), read without an object for each partition."""

from __future__ import annotations

import string
import uuid
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.protocol.metadata import MetadataResponse

from tidegate.kafka.model import Topic
from tidegate.kafka_client.metadata import NEWEST_VERSION, OLDEST_VERSION, Unreadable, read_topics, topics_start
from tidegate.kafka_client.topic_ids import topic_id_of_bytes

TOPIC: Final = MetadataResponse.MetadataResponseTopic
PARTITION: Final = TOPIC.MetadataResponsePartition
LEADER_NOT_AVAILABLE: Final = 5

nodes = st.lists(st.integers(0, 1000), max_size=4) | st.sampled_from([126, 127, 128, 300]).map(lambda n: [7] * n)
partitions = st.builds(
    lambda error, leader, replicas, in_sync, offline: PARTITION(
        error_code=error,
        partition_index=0,
        leader_id=leader,
        leader_epoch=0,
        replica_nodes=replicas,
        isr_nodes=in_sync,
        offline_replicas=offline,
    ),
    st.sampled_from([0, LEADER_NOT_AVAILABLE]),
    st.integers(-1, 5),
    nodes,
    nodes,
    nodes,
)
topics = st.builds(
    lambda error, name, topic_id, internal, rows: TOPIC(
        error_code=error,
        name=name,
        topic_id=topic_id,
        is_internal=internal,
        partitions=rows,
        authorized_operations=None,
    ),
    st.sampled_from([0, 0, 0, 3, 29]),
    st.text(string.ascii_letters + "._-", min_size=1, max_size=200) | st.just("__tidegate"),
    st.uuids(),
    st.sampled_from([False, False, True]),
    st.lists(partitions, max_size=5),
)
brokers = st.builds(
    MetadataResponse.MetadataResponseBroker,
    st.integers(0, 5),
    st.text(string.ascii_lowercase, max_size=150),
    st.just(9092),
    st.none() | st.text(max_size=5),
)


def encoded(found: list[Any], version: int = NEWEST_VERSION, **head: Any) -> bytes:
    """As it comes behind the answer's header."""
    head = {"throttle_time_ms": 0, "brokers": [], "cluster_id": "c", "controller_id": 0, **head}
    return bytes(MetadataResponse(topics=found, authorized_operations=None, version=version, **head).encode())


def expected(found: list[Any]) -> dict[str, Topic]:
    return {
        t.name: Topic(t.name, topic_id_of_bytes(t.topic_id.bytes), len(t.partitions))
        for t in found
        if t.error_code == 0 and not t.is_internal and not t.name.startswith("__")
    }


@settings(deadline=None, max_examples=150)
@given(
    found=st.lists(topics, max_size=5, unique_by=lambda t: t.name),
    version=st.integers(OLDEST_VERSION, NEWEST_VERSION),
    known=st.lists(brokers, max_size=3),
    cluster_id=st.none() | st.text(max_size=30),
)
def test_topics_are_counted_whatever_their_partitions_look_like(
    found: list[Any], version: int, known: list[Any], cluster_id: str | None
) -> None:
    data = encoded(found, version, brokers=known, cluster_id=cluster_id, controller_id=4, throttle_time_ms=9)
    assert read_topics(data, topics_start(data)) == expected(found)


@settings(deadline=None, max_examples=50)
@given(found=st.lists(topics, min_size=1, max_size=3), data=st.data())
def test_an_answer_that_ends_early_is_not_taken_for_a_whole_one(found: list[Any], data: st.DataObject) -> None:
    whole = encoded(found, version=11)
    cut = whole[: data.draw(st.integers(0, len(whole) - 2))]  # the last byte is of the answer's own tagged fields
    with pytest.raises(Unreadable):
        read_topics(cut, topics_start(cut))


def test_what_lies_before_the_topics_does_not_change_them() -> None:
    found = [TOPIC(0, "orders", uuid.uuid4(), False, [], None)]
    broker = MetadataResponse.MetadataResponseBroker(1, "kafka-1.example", 9092, "zone-a")
    one, other = encoded(found), encoded(found, brokers=[broker], controller_id=1, throttle_time_ms=50)
    assert one != other
    assert one[topics_start(one) :] == other[topics_start(other) :]


def test_tagged_fields_of_a_later_broker_are_passed_over() -> None:
    partition = bytes.fromhex("0000 00000000 00000001 00000005 0200000001 0200000001 01") + b"\x01\x00\x03abc"
    topic = b"\x00\x00\x07orders" + bytes(16) + b"\x00\x03" + partition * 2 + bytes(4) + b"\x02\x00\x01x\x80\x01\x02yz"
    assert read_topics(b"\x02" + topic) == {"orders": Topic("orders", topic_id_of_bytes(bytes(16)), 2)}
