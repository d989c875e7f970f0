"""Looking at a whole cluster (``tidegate.kafka.survey``) by raw requests."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final

from tidegate.kafka.connection import Connection
from tidegate.kafka.model import ListedGroup, LogBounds, Subscription, TopicPartition
from tidegate.kafka.rights import Resource, Right
from tidegate.kafka_client.cluster_requests import broker_settings
from tidegate.kafka_client.consumer_protocol import subscription
from tidegate.kafka_client.group_requests import list_groups, subscriptions_of
from tidegate.kafka_client.log_offsets import EARLIEST, LATEST, LogOffsets
from tidegate.kafka_client.wire import Wire

_PARTITIONS: Final = 5_000
"""In one request to each leader."""


class KafkaSurvey:
    """Implements ``tidegate.kafka.survey.Survey``. Connects on first use; thread-safe."""

    def __init__(self, connection: Connection) -> None:
        self._wire = Wire(connection)
        self._log_offsets = LogOffsets(self._wire)

    def listed(self) -> tuple[ListedGroup, ...]:
        return list_groups(self._wire)

    def bounds(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, LogBounds]:
        found: dict[TopicPartition, LogBounds] = {}
        wanted = list(partitions)
        for at in range(0, len(wanted), _PARTITIONS):
            some = wanted[at : at + _PARTITIONS]
            starts = self._log_offsets.told(dict.fromkeys(some, EARLIEST), "read the start of the logs")
            ends = self._log_offsets.told(dict.fromkeys(starts, LATEST), "read the end of the logs")
            found |= {p: LogBounds(min(starts[p], end), end) for p, end in ends.items()}
        return found

    def subscriptions(self, group_ids: Collection[str]) -> Mapping[str, Mapping[str, Subscription]]:
        told = subscriptions_of(self._wire, group_ids)
        return {group: {m: subscription(raw) for m, raw in members.items()} for group, members in told.items()}

    def broker_settings(self) -> Sequence[Mapping[str, str]]:
        needs = Right("DescribeConfigs", Resource.CLUSTER)
        return broker_settings(self._wire, what="read the brokers' settings", needs=needs)

    def close(self) -> None:
        self._wire.close()
