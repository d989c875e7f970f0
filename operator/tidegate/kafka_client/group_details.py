"""What ``kafka-consumer-groups`` shows of groups beyond what a reset or a pause needs to know of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tidegate.kafka.connection import Connection
from tidegate.kafka.model import Broker, ListedGroup, TopicPartition
from tidegate.kafka_client.group_descriptions import target_assignments
from tidegate.kafka_client.group_requests import list_groups
from tidegate.kafka_client.offset_requests import leader_epochs
from tidegate.kafka_client.wire import Wire

_CONSUMERS: Final = ("consumer", "")
"""Protocol types of groups of consumers: ``ConsumerProtocol.PROTOCOL_TYPE``, and none for groups with offsets only."""


class KafkaGroupDetails:
    """Listings, coordinators, target assignments and leader epochs. Connects on first use.

    Calls block and are bounded in time; they raise subclasses of ``tidegate.kafka.errors.KafkaFailure`` only.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._wire = Wire(connection)

    def listing(self) -> tuple[ListedGroup, ...]:
        """The consumer groups, share and streams groups left out; as the brokers list them."""
        rows = list_groups(self._wire)
        return tuple(r for r in rows if r.protocol_type in _CONSUMERS and r.type not in ("share", "streams"))

    def coordinator(self, group_id: str) -> Broker:
        node_id, host, port = self._wire.coordinator(group_id)
        return Broker(node_id, host, port)

    def leader_epochs(self, group_id: str) -> Mapping[TopicPartition, int]:
        """Leader epochs of the committed offsets, where there is one."""
        return leader_epochs(self._wire, group_id)

    def target_assignments(self, group_id: str) -> Mapping[str, frozenset[TopicPartition]]:
        """By member id, what a KIP-848 coordinator means each member to own; nothing for classic groups."""
        return target_assignments(self._wire, group_id)

    def close(self) -> None:
        self._wire.close()
