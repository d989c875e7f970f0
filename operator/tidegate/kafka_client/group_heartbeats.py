"""The heartbeats by which members join groups of KIP-848 and streams groups (KIP-1071); kafka-python knows neither.

Their schemas lie beside this file, as those of ``tidegate.kafka_client.consumer_group_describe`` do.
"""

from __future__ import annotations

from typing import Final

from kafka.protocol.api_message import ApiMessage

JOIN: Final = 0
LEAVE: Final = -1
"""Member epochs that ask for something."""


class ConsumerGroupHeartbeatRequest(ApiMessage, load_json=__package__):  # type: ignore[misc, call-arg]
    """Join, stay in or leave a group of KIP-848, by the member's epoch."""


class ConsumerGroupHeartbeatResponse(ApiMessage, load_json=__package__):  # type: ignore[misc, call-arg]
    """The member's epoch, and its assignment by topic ids."""


class StreamsGroupHeartbeatRequest(ApiMessage, load_json=__package__):  # type: ignore[misc, call-arg]
    """Join, stay in or leave a streams group; who joins sends its topology."""


class StreamsGroupHeartbeatResponse(ApiMessage, load_json=__package__):  # type: ignore[misc, call-arg]
    """The member's epoch, its tasks, and what keeps the group from running (``status``)."""
