"""Writes hostile acks as fast as it can: ``python -m support.ack_flood <bootstrap> <ack topic> <records> <epoch>``.

In turns: of groups that nobody asks about, of epochs that were never reached, of ever new partitions of the group that
it is after, and what is no record at all.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Final

from confluent_kafka import Producer

from tidegate.control.codec import encode_key, encode_value
from tidegate.control.records import Ack, AckKey

AFTER: Final = "payments"
"""The group whose acks it is after."""

_HUGE: Final = 2**62


def hostile(records: int, epoch: int) -> Iterator[tuple[bytes, bytes]]:
    """Keys and values; no two keys are equal, so that compaction takes none of them."""
    for number in range(records):
        match number % 4:
            case 0:
                yield _record(AckKey(f"stranger-{number}", "t" * 100, number), Ack(0, number, "m"))
            case 1:
                yield _record(AckKey(f"ahead-{number}", "t", 0), Ack(_HUGE, 0, "m"))
            case 2:
                yield _record(AckKey(AFTER, "x" * 100, number), Ack(epoch, number, "m" * 100))
            case _:
                yield b'{"group":"%d' % number, b"[" * 50


def _record(key: AckKey, ack: Ack) -> tuple[bytes, bytes]:
    value = encode_value(ack)
    assert value is not None
    return encode_key(key), value


def write(bootstrap: str, topic: str, records: int, epoch: int) -> None:
    settings = {"bootstrap.servers": bootstrap, "compression.type": "lz4", "queue.buffering.max.messages": 100_000}
    producer = Producer(settings)
    for key, value in hostile(records, epoch):
        while True:
            try:
                producer.produce(topic, value, key)
                break
            except BufferError:
                producer.poll(0.1)
    left = producer.flush(120)
    if left:
        raise SystemExit(f"{left} records were not taken")


if __name__ == "__main__":
    write(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
