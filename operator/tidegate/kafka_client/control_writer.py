"""Writing records to the control and ack topics, and where and when the broker has appended them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from tidegate.control.codec import Unreadable, decode, encode_key, encode_value
from tidegate.control.records import Key, Value
from tidegate.kafka.connection import Connection
from tidegate.kafka.errors import Refused, Unavailable
from tidegate.kafka.rights import on_topics
from tidegate.kafka_client.control_description import describe_existing, topic_id
from tidegate.kafka_client.librdkafka import failure, log_append_time, silent_logger
from tidegate.kafka_client.settings import librdkafka_config
from tidegate.kafka_client.wire import Wire

_DELIVERY_S: Final = 30.0


@dataclass(frozen=True, slots=True)
class Appended:
    """Where and when a record was appended, by the broker; ``at_ms``: absent where timestamps are not its own."""

    offset: int
    at_ms: int | None


class ControlWriter:
    """An idempotent producer. Connects on first use; calls must not overlap."""

    def __init__(self, connection: Connection, names: tuple[str, str], wire: Wire) -> None:
        self._connection = connection
        self._wire = wire
        self._names = names
        self._closed = False
        self._producer: Producer | None = None
        self._producer_id = ""

    def close(self) -> None:
        self._closed = True
        self._producer = None

    def write(self, name: str, records: Mapping[bytes, bytes | None]) -> dict[bytes, Appended]:
        """Write values by key, as bytes."""
        if not records:
            return {}
        what = f"write to topic {name}"
        appended: dict[bytes, Appended] = {}
        failures: list[KafkaError] = []
        producer = self._producer_for(name, what)

        def delivered(error: KafkaError | None, message: Message) -> None:
            key, offset = message.key(), message.offset()
            if error is not None:
                failures.append(error)
            elif isinstance(key, bytes) and offset is not None:
                appended[key] = Appended(offset, log_append_time(message))

        try:
            for key, value in records.items():
                producer.produce(name, value, key, on_delivery=delivered)
            producer.flush(_DELIVERY_S)
        except (KafkaException, SystemError) as error:
            # confluent_kafka calls the delivery callbacks with a fatal error already pending, which Python then reports
            # as a SystemError with that as its cause.
            raised = error if isinstance(error, KafkaException) else error.__cause__
            if not isinstance(raised, KafkaException):
                raise
            failures.insert(0, raised.args[0])
        if failures:
            # What was in the same batch may be there; whoever asked writes all of it again, which changes nothing. An
            # idempotent producer that failed for good (no right to write to any topic, say) is of no use any more.
            self._producer = None
            raise failure(failures[0], what, *on_topics("Write", [name]))
        if len(appended) < len(records):
            # Whether they are there is unknown; writing them again changes nothing but their epochs.
            self._producer = None
            raise Unavailable(f"{what}: no answer in {_DELIVERY_S:.0f} s")
        return appended

    def _producer_for(self, name: str, what: str) -> Producer:
        """A producer for the topic as it is now: one that knew an earlier topic of this name waits for that in vain."""
        if self._closed:
            raise Unavailable(f"{what}: the connection was closed")
        topic = describe_existing(self._wire, self._names).get(name)
        if topic is None:
            raise Unavailable(f"{what}: there is no such topic")
        topic_now = f"{name} {topic_id(topic)}"
        if self._producer is None or self._producer_id != topic_now:
            self._producer_id = topic_now
            self._producer = Producer(
                librdkafka_config(
                    self._connection,
                    **{
                        "enable.idempotence": True,
                        "linger.ms": 0,
                        # Thousands of records of discovery hardly differ, and every agent reads them all.
                        "compression.type": "gzip",
                        "message.timeout.ms": int(_DELIVERY_S * 1000 * 0.9),
                        "allow.auto.create.topics": False,
                    },
                ),
                logger=silent_logger(),
            )
        return self._producer


def encoded(key: Key, value: Value) -> tuple[bytes, bytes | None]:
    """A record as bytes that everybody reads. Raises ``Refused``."""
    try:
        record = encode_key(key), encode_value(value)
        decode(*record)
    except (Unreadable, UnicodeEncodeError) as error:
        raise Refused(f"write a record to the control topic: {error}") from None
    return record
