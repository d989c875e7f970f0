"""Topics of two clusters, as an ordinary client sees them."""

from __future__ import annotations

from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient

from devstack import KafkaCluster
from support.mirror.random_topic import consumed
from support.operator_process import Resources, until

KEPT = {"retention.ms": "-1"}
"""Random logs have records of earlier years."""


def connected_both(resources: Resources, kafka: KafkaCluster, elsewhere: KafkaCluster) -> Resources:
    """The resources, with ready connections `here` and `there`."""
    resources.connection("here", kafka.bootstrap)
    resources.connection("there", elsewhere.bootstrap)
    resources.wait_connection("here")
    resources.wait_connection("there")
    return resources


def end_of(cluster: KafkaCluster, topic: str, partition: int = 0) -> int:
    """0 where there is no such topic, or partition, yet."""
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "looks", "log_level": 0})
    try:
        found = consumer.list_topics(timeout=30).topics.get(topic)
        if found is None or partition not in found.partitions:
            return 0
        return int(consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=30, cached=False)[1])
    finally:
        consumer.close()


def delete(cluster: KafkaCluster, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.delete_topics([topic])[topic].result(30)
    until(lambda: topic not in admin.list_topics(timeout=30).topics, f"{topic} is gone")


def assert_equal(kafka: KafkaCluster, elsewhere: KafkaCluster, topic: str) -> None:
    """Start, end and all that readers of committed records see of partition 0."""
    theirs, ours = consumed(kafka.bootstrap, topic), consumed(elsewhere.bootstrap, topic)
    assert ours[:2] == theirs[:2]
    assert ours[2] == theirs[2]


def has_all(kafka: KafkaCluster, elsewhere: KafkaCluster, topic: str, partition: int = 0) -> bool:
    return end_of(elsewhere, topic, partition) == end_of(kafka, topic, partition)
