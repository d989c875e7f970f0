"""Limits in the control topic, which no part of Tidegate writes yet."""

from __future__ import annotations

from confluent_kafka import Producer

from tidegate.control.codec import encode_key, encode_value
from tidegate.control.records import Limit, LimitKey


def write_limit(bootstrap: str, control_topic: str, key: LimitKey, offset: int | None) -> int:
    """The record's offset in the control topic; ``None`` removes the limit."""
    written: list[int] = []
    producer = Producer({"bootstrap.servers": bootstrap})
    producer.produce(
        control_topic,
        encode_value(None if offset is None else Limit(offset, "a test", 20_000)),
        encode_key(key),
        on_delivery=lambda _, message: written.append(message.offset()),
    )
    assert producer.flush(20) == 0
    # No limit has epoch 0, as no hold has.
    return written[0] or write_limit(bootstrap, control_topic, key, offset)
