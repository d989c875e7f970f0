"""What the brokers say of the control and ack topics: whether they exist, their ids and their settings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tidegate.control.topics import TopicFacts
from tidegate.kafka.rights import on_topics
from tidegate.kafka_client.cluster_requests import describe_topics, topic_settings
from tidegate.kafka_client.codes import UNKNOWN_PARTITION, check
from tidegate.kafka_client.topic_ids import topic_id_of_bytes
from tidegate.kafka_client.wire import Wire


def topic_facts(wire: Wire, names: Sequence[str]) -> dict[str, TopicFacts]:
    """Of those topics that exist, by name."""
    described = describe_existing(wire, names)
    if not described:
        return {}
    what = "read the settings of topic"
    facts = {}
    for name, (code, config) in topic_settings(wire, described, what=f"{what}s").items():
        if code in UNKNOWN_PARTITION:
            continue  # it was deleted since, or the broker that was asked has not heard of it yet
        check(code, f"{what} {name}", *on_topics("DescribeConfigs", [name]))
        topic = described[name]
        facts[name] = TopicFacts(
            name=name,
            topic_id=topic_id(topic),
            partitions=len(topic.partitions),
            replication_factor=min((len(p.replica_nodes) for p in topic.partitions), default=0),
            config=config,
        )
    return facts


def describe_existing(wire: Wire, names: Sequence[str]) -> dict[str, Any]:
    """Those topics that exist, by name (``MetadataResponseTopic``)."""
    found = {}
    for topic in describe_topics(wire, names, what=f"describe topic {names[0]}").topics:
        if topic.error_code not in UNKNOWN_PARTITION:
            check(topic.error_code, f"describe topic {topic.name}", *on_topics("Describe", [topic.name]))
            found[topic.name] = topic
    return found


def topic_id(topic: Any) -> str:
    """Of a ``MetadataResponseTopic``."""
    return topic_id_of_bytes(topic.topic_id.bytes)
