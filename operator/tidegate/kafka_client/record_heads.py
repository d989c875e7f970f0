"""The first records at positions, without what is in them."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Message
from confluent_kafka import TopicPartition as ClientTopicPartition

from tidegate.kafka.model import Offsets, RecordHead, TopicPartition
from tidegate.kafka_client.librdkafka import failure, headers_of, is_about_its_group

_QUIET_POLLS: Final = 5
_POLL_S: Final = 1.0


def heads_of(reader: Consumer, positions: Offsets) -> Mapping[TopicPartition, RecordHead]:
    """Reads one record a partition, and closes ``reader``, which tells where logs end. Partitions that have none from
    their position on, or whose leader does not answer, are absent. Raises ``KafkaFailure``."""
    found: dict[TopicPartition, RecordHead] = {}
    left, quiet = set(positions), 0
    try:
        reader.assign([ClientTopicPartition(p.topic, p.partition, at) for p, at in positions.items()])
        while left and quiet < _QUIET_POLLS:
            message = reader.poll(_POLL_S)
            if message is None:
                quiet += 1
                continue
            partition = TopicPartition(message.topic() or "", message.partition() or 0)
            error = message.error()
            if error is not None and is_about_its_group(error):
                quiet += 1
                continue
            if error is not None and error.code() != KafkaError._PARTITION_EOF:
                raise KafkaException(error)
            if partition not in left:
                continue
            left.discard(partition)
            reader.pause([ClientTopicPartition(partition.topic, partition.partition)])
            if error is None:
                found[partition] = _head(message)
    except KafkaException as error:
        raise failure(error.args[0], "read the next records") from error
    finally:
        reader.close()
    return found


def _head(message: Message) -> RecordHead:
    kind, stamp = message.timestamp()
    at: datetime | None = None
    if kind != 0 and stamp >= 0:
        # Producers may write any time, also one that no calendar has.
        with contextlib.suppress(ValueError, OverflowError):
            at = datetime.fromtimestamp(stamp / 1000, UTC)
    size = len(message.key() or b"") + len(message.value() or b"")
    headers = headers_of(message)
    return RecordHead(message.offset() or 0, at, size, None if headers is None else len(headers))
