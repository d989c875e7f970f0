"""Reads a topic as one member of a group, and enters into a ledger, a topic too, what it was given.

An entry's value is ``{"t", "member", "records": [[topic, partition, offset, t], ...]}``, times in epoch seconds, and
begins with an entry without records when the member has been given partitions. A batch is committed once its entry is
in the ledger, so whatever happens to the process, what it had committed is known to have been delivered.

Environment: ``BOOTSTRAP``, ``GROUP``, ``TOPIC``, ``LEDGER``, and ``CONSUMER_<SETTING>`` for the consumer's settings
(``CONSUMER_GROUP_PROTOCOL`` is ``group.protocol``).
"""

from __future__ import annotations

import json
import os
import signal
import socket
import time
from typing import Any

from confluent_kafka import Consumer, KafkaException, Message, Producer

_POLL_S = 0.05
_BATCH = 500
_FLUSH_S = 30.0


def main() -> None:
    member = socket.gethostname()
    given = {
        name.removeprefix("CONSUMER_").lower().replace("_", "."): value
        for name, value in os.environ.items()
        if name.startswith("CONSUMER_")
    }
    bootstrap = os.environ["BOOTSTRAP"]
    ledger = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 0})
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": os.environ["GROUP"],
            "client.id": member,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            **given,
        }
    )
    stopping = False

    def stop(_signal: int, _frame: Any) -> None:
        nonlocal stopping
        stopping = True

    signal.signal(signal.SIGTERM, stop)

    def enter(records: list[tuple[str, int, int, float]]) -> None:
        entry = {"t": time.time(), "member": member, "records": records}
        ledger.produce(os.environ["LEDGER"], json.dumps(entry, separators=(",", ":")).encode())
        if ledger.flush(_FLUSH_S):
            raise SystemExit(f"the ledger took no entry within {_FLUSH_S:g} s")

    consumer.subscribe([os.environ["TOPIC"]], on_assign=lambda _consumer, _partitions: enter([]))
    while not stopping:
        records: list[tuple[str, int, int, float]] = []
        message: Message | None = consumer.poll(_POLL_S)
        while message is not None:
            if message.error():
                print(f"{member}: {message.error()}", flush=True)
            else:
                records.append((message.topic(), message.partition(), message.offset(), time.time()))
            message = consumer.poll(0) if len(records) < _BATCH else None
        if records:
            enter(records)
            try:
                consumer.commit(asynchronous=True)
            except KafkaException as refused:  # a rebalance took the partition: its next owner reads the batch again
                print(f"{member}: {refused}", flush=True)
    consumer.close()


if __name__ == "__main__":
    main()
