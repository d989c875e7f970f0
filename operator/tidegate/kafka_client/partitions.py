"""Partitions as requests name them: by topic."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection

from tidegate.kafka.model import TopicPartition


def by_topic(partitions: Collection[TopicPartition]) -> dict[str, list[int]]:
    topics: defaultdict[str, list[int]] = defaultdict(list)
    for partition in partitions:
        topics[partition.topic].append(partition.partition)
    return dict(topics)
