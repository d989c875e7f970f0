"""Requests about one partition of a mirror, at its leader: Fetch, ListOffsets, Produce of whole batches,
WriteTxnMarkers, DeleteRecords, DescribeProducers.
"""

from __future__ import annotations

from typing import Any, Final
from uuid import UUID

from kafka.protocol.admin import DeleteRecordsRequest, DescribeProducersRequest
from kafka.protocol.consumer import FetchRequest, ListOffsetsRequest
from kafka.protocol.metadata import MetadataRequest
from kafka.protocol.producer import ProduceRequest, WriteTxnMarkersRequest

from tidegate.kafka.errors import Unavailable
from tidegate.kafka.model import TopicPartition
from tidegate.kafka.rights import on_topics
from tidegate.kafka_client.cluster_requests import describe_topics
from tidegate.kafka_client.codes import UNKNOWN_PARTITION, check
from tidegate.kafka_client.wire import Wire

READ_UNCOMMITTED: Final = 0
READ_COMMITTED: Final = 1

_BY_NAME: Final = 12
"""The newest version of Fetch that names topics."""
_BY_ID: Final = 13
"""The first version that names them by their ids (KIP-516, Kafka 3.1): a topic that was made anew is another one."""
_NEWEST_PRODUCE: Final = 11
"""The newest version from before transaction version 2 (KIP-890)."""
_FLAT_MARKERS: Final = 1
"""The version of WriteTxnMarkers from before transaction versions (KIP-1228)."""

_CONSUMER: Final = -1
_SOME_REPLICA: Final = 2**31 - 1
"""No consumer: told the log's end, and not the high watermark; and no broker either, so that nothing is noted of it."""


def leader_of(wire: Wire, partition: TopicPartition, what: str) -> int:
    """Raises ``Unavailable`` where there is none just now."""
    [topic] = describe_topics(wire, [partition.topic], what=what).topics
    if topic.error_code in UNKNOWN_PARTITION:
        raise Unavailable(f"{what}: there is no topic {partition.topic}")
    check(topic.error_code, what, *on_topics("Describe", [partition.topic]))
    row = next((row for row in topic.partitions if row.partition_index == partition.partition), None)
    if row is None or row.leader_id < 0:
        raise Unavailable(f"{what}: {partition} has no leader")
    return int(row.leader_id)


def which_cluster() -> Any:
    """A Metadata request about no topic: its answer bears the id of the broker's cluster."""
    return MetadataRequest(topics=[], allow_auto_topic_creation=False, min_version=4, max_version=12)


def fetch(
    partition: TopicPartition,
    offset: int,
    *,
    isolation: int,
    most_bytes: int,
    wait_ms: int,
    topic_id: UUID | None = None,
) -> Any:
    """``topic_id``: answered only where the topic has this id; absent: whichever has the name."""
    topic_class = FetchRequest.FetchTopic
    row = topic_class.FetchPartition(
        partition=partition.partition,
        current_leader_epoch=-1,
        fetch_offset=offset,
        last_fetched_epoch=-1,
        log_start_offset=-1,
        partition_max_bytes=most_bytes,
    )
    named = {"topic": partition.topic} if topic_id is None else {"topic_id": topic_id}
    version = _BY_NAME if topic_id is None else _BY_ID
    return FetchRequest(
        replica_id=_CONSUMER,
        max_wait_ms=wait_ms,
        min_bytes=1,
        max_bytes=most_bytes,
        isolation_level=isolation,
        session_id=0,
        session_epoch=-1,
        topics=[topic_class(**named, partitions=[row])],
        forgotten_topics_data=[],
        rack_id="",
        max_version=version,
        **({} if topic_id is None else {"min_version": version}),
    )


class HeldBack(Unavailable):
    """A quota is used up: the broker has answered at once, without any partition (KIP-219)."""

    def __init__(self) -> None:
        super().__init__("the broker holds back what is read, by a quota")


def fetched(answer: Any) -> Any:
    """The partition's row of a Fetch answer. Raises ``HeldBack``."""
    if answer.error_code:
        return answer
    if not answer.responses:
        raise HeldBack
    [topic] = answer.responses
    [row] = topic.partitions
    return row


def list_offset(partition: TopicPartition, timestamp: int, *, isolation: int = READ_UNCOMMITTED) -> Any:
    return _list_offset(partition, timestamp, _CONSUMER, isolation)


def log_end(partition: TopicPartition, latest: int) -> Any:
    """A ListOffsets request that is answered, by the leader only, with the end of its log: also of what is not
    replicated yet, which consumers are not told of."""
    return _list_offset(partition, latest, _SOME_REPLICA, READ_UNCOMMITTED)


def _list_offset(partition: TopicPartition, timestamp: int, replica: int, isolation: int) -> Any:
    topic_class = ListOffsetsRequest.ListOffsetsTopic
    row = topic_class.ListOffsetsPartition(
        partition_index=partition.partition, current_leader_epoch=-1, timestamp=timestamp
    )
    return ListOffsetsRequest(
        replica_id=replica,
        isolation_level=isolation,
        topics=[topic_class(name=partition.topic, partitions=[row])],
        min_version=2,
        max_version=7,
    )


def listed(answer: Any) -> Any:
    """The partition's row of a ListOffsets answer, and of a DescribeProducers or DeleteRecords answer."""
    [topic] = answer.topics
    [row] = topic.partitions
    return row


def describe_producers(partition: TopicPartition) -> Any:
    topic_class = DescribeProducersRequest.TopicRequest
    return DescribeProducersRequest(topics=[topic_class(name=partition.topic, partition_indexes=[partition.partition])])


def produce(partition: TopicPartition, batch: bytes, timeout_ms: int, transactional_id: str | None = None) -> Any:
    topic_class = ProduceRequest.TopicProduceData
    row = topic_class.PartitionProduceData(index=partition.partition, records=batch)
    return ProduceRequest(
        transactional_id=transactional_id,
        acks=-1,
        timeout_ms=timeout_ms,
        topic_data=[topic_class(name=partition.topic, partition_data=[row])],
        max_version=_NEWEST_PRODUCE,
    )


def produced(answer: Any) -> Any:
    """The partition's row of a Produce answer."""
    [topic] = answer.responses
    [row] = topic.partition_responses
    return row


def write_markers(partition: TopicPartition, producer_id: int, epoch: int, count: int) -> Any:
    marker_class = WriteTxnMarkersRequest.WritableTxnMarker
    topic_class = marker_class.WritableTxnMarkerTopic
    marker = marker_class(
        producer_id=producer_id,
        producer_epoch=epoch,
        transaction_result=True,
        topics=[topic_class(name=partition.topic, partition_indexes=[partition.partition])],
        coordinator_epoch=0,
    )
    return WriteTxnMarkersRequest(markers=[marker] * count, max_version=_FLAT_MARKERS)


def marker_codes(answer: Any) -> set[int]:
    return {int(row.error_code) for m in answer.markers for topic in m.topics for row in topic.partitions}


def delete_records(partition: TopicPartition, offset: int, timeout_ms: int) -> Any:
    topic_class = DeleteRecordsRequest.DeleteRecordsTopic
    row = topic_class.DeleteRecordsPartition(partition_index=partition.partition, offset=offset)
    return DeleteRecordsRequest(topics=[topic_class(name=partition.topic, partitions=[row])], timeout_ms=timeout_ms)
