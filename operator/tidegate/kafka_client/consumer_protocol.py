"""What members of a classic group say, and are told, in the bytes of the consumer protocol."""

from __future__ import annotations

import struct
from collections.abc import Collection
from typing import Final

from kafka.protocol.consumer.metadata import ConsumerProtocolAssignment, ConsumerProtocolSubscription

from tidegate.kafka.model import Subscription, TopicPartition
from tidegate.kafka_client.partitions import by_topic

_VERSION_0: Final = b"\x00\x00"


def subscription(raw: bytes) -> Subscription:
    """What a member says as it joins: any client wrote it, so what cannot be read is left out.

    kafka-go writes version 1 without the partitions that it has, so what version 0 has of it is read then.
    """
    version = int.from_bytes(raw[:2], "big", signed=True)
    return (
        _subscription(raw, version)
        or _subscription(_VERSION_0 + raw[2:], version)
        or Subscription(frozenset(), version=version)
    )


def _subscription(raw: bytes, version: int) -> Subscription | None:
    try:
        said = ConsumerProtocolSubscription.decode(raw)
        rows = (row for row in said.owned_partitions or () if row.topic)
        owned = frozenset(TopicPartition(row.topic, n) for row in rows for n in row.partitions or ())
        topics = frozenset(t for t in said.topics or () if t)
        return Subscription(topics, owned, said.generation_id, version, said.user_data)
    except (ValueError, TypeError, IndexError, struct.error):
        return None


def assignment(share: Collection[TopicPartition], version: int) -> bytes:
    """``ConsumerProtocolAssignment``, in a version that a member of this subscription's version reads.

    Without user data: sarama's sticky assignor fails for good as leader where it finds an empty one.
    """
    row_class = ConsumerProtocolAssignment.TopicPartition
    rows = [row_class(topic=topic, partitions=sorted(numbers)) for topic, numbers in sorted(by_topic(share).items())]
    version = min(max(version, 0), 1)
    return bytes(ConsumerProtocolAssignment(assigned_partitions=rows, user_data=None, version=version).encode())
