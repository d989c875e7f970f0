"""The offset that Spark is to find, looked up without it: in the log file by ``zgrep``, on the topic by reading it."""

from __future__ import annotations

import subprocess
from collections.abc import Collection
from datetime import datetime
from pathlib import Path
from typing import Final

from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as ClientTopicPartition

from demo.access_log import ACCESS_LOG, read_request
from support.deliveries import Partition

_PATIENCE_S: Final = 60.0


class NotThere(Exception):
    """What is looked for is not in the log, or not on the topic."""


def first_logged(pattern: str, since: datetime, path: Path = ACCESS_LOG) -> bytes:
    """The first line from ``since`` on that ``zgrep`` finds. Raises ``NotThere``."""
    found = subprocess.run(["zgrep", "-e", pattern, str(path)], capture_output=True, check=False)
    for line in found.stdout.splitlines():
        if read_request(line).at >= since:
            return line
    raise NotThere(f"zgrep -e '{pattern}' {path} finds nothing from {since.isoformat()} on: {found.stderr.decode()}")


def place_of(line: bytes, bootstrap: str, partitions: Collection[Partition]) -> tuple[Partition, int]:
    """Partition and offset of the first record with this value. Raises ``NotThere``."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "zgrep", "enable.auto.commit": False})
    try:
        consumer.assign([ClientTopicPartition(topic, number, 0) for topic, number in partitions])
        while (message := consumer.poll(_PATIENCE_S)) is not None:
            if message.error() is None and message.value() == line:
                return (str(message.topic()), int(message.partition())), int(message.offset())
    finally:
        consumer.close()
    raise NotThere(f"no record has the value {line!r}")
