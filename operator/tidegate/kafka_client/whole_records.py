"""A few whole records of one partition, as they are in the log: for a copy of them."""

from __future__ import annotations

from typing import Final

from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, Consumer, KafkaError, KafkaException, Message
from confluent_kafka import TopicPartition as ClientTopicPartition

from tidegate.kafka.errors import Refused, Unavailable
from tidegate.kafka.model import Range, Record, TopicPartition
from tidegate.kafka.rights import on_topics
from tidegate.kafka_client.librdkafka import failure, headers_of, is_about_its_group

_QUIET_POLLS: Final = 10
_POLL_S: Final = 1.0


def records_of(reader: Consumer, partition: TopicPartition, span: Range, most_bytes: int) -> tuple[Record, ...]:
    """Those at offsets of ``span``, and closes ``reader``, which tells where logs end.

    Raises ``Refused`` where they have more than ``most_bytes``, and ``KafkaFailure``.
    """
    found: list[Record] = []
    left, quiet = most_bytes, 0
    what = f"read {partition} from offset {span.start} on"
    try:
        reader.assign([ClientTopicPartition(partition.topic, partition.partition, span.start)])
        while quiet < _QUIET_POLLS:
            message = reader.poll(_POLL_S)
            if message is None:
                quiet += 1
                continue
            error = message.error()
            if error is not None and is_about_its_group(error):
                quiet += 1
                continue
            if error is not None:
                if error.code() == KafkaError._PARTITION_EOF:
                    return tuple(found)
                raise KafkaException(error)
            record = _whole(message, what)
            if record.offset >= span.end:
                return tuple(found)
            left -= record.size
            if left < 0:
                raise Refused(f"{what}: more than {most_bytes:,} bytes")
            found.append(record)
            if record.offset == span.end - 1:
                return tuple(found)
    except KafkaException as error:
        raise failure(error.args[0], what, *on_topics("Read", [partition.topic])) from error
    finally:
        reader.close()
    raise Unavailable(f"{what}: no answer in {_QUIET_POLLS * _POLL_S:g} s")


def _whole(message: Message, what: str) -> Record:
    """Raises ``Refused`` for a record that can't be read as it is."""
    headers = headers_of(message)
    if headers is None:
        raise Refused(f"{what}: a header's name is not UTF-8")
    kind, at_ms = message.timestamp()
    return Record(
        offset=message.offset() or 0,
        at_ms=-1 if kind == TIMESTAMP_NOT_AVAILABLE else at_ms,
        key=message.key(),
        value=message.value(),
        headers=tuple((name, None if value is None else bytes(value)) for name, value in headers),
    )
