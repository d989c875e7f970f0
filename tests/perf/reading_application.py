"""An ordinary application that reads a topic to its end as fast as it can, and knows nothing of an agent.

Its argument is a JSON object: bootstrap, group, topic, records, how (poll | consume), protocol, out (a file).
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from confluent_kafka import Consumer


def main() -> None:
    """Write how many records a second were read, from the first to the last."""
    job = json.loads(sys.argv[1])
    config = {"bootstrap.servers": job["bootstrap"], "group.id": job["group"], "auto.offset.reset": "earliest"}
    if job["protocol"] == "consumer":
        config["group.protocol"] = "consumer"
    consumer = Consumer(config)
    consumer.subscribe([job["topic"]])
    expected = job["records"]
    seconds = by_poll(consumer, expected) if job["how"] == "poll" else by_consume(consumer, expected)
    consumer.close()
    Path(job["out"]).write_text(json.dumps({"records_per_second": (expected - 1) / seconds}))


def by_poll(consumer: Consumer, expected: int) -> float:
    """One record a call; seconds from the first to the last."""
    started, count = 0.0, 0
    while count < expected:
        message = consumer.poll(1.0)
        if message is None:
            continue
        if message.error() is not None:
            raise SystemExit(str(message.error()))
        if not count:
            started = time.perf_counter()
        count += 1
    return time.perf_counter() - started


def by_consume(consumer: Consumer, expected: int) -> float:
    """Up to 10,000 records a call."""
    started, count = 0.0, 0
    while count < expected:
        messages = consumer.consume(10_000, 0.2)
        if messages and not count:
            started = time.perf_counter()
        for message in messages:
            if message.error() is not None:
                raise SystemExit(str(message.error()))
            count += 1
    return time.perf_counter() - started


if __name__ == "__main__":
    main()
