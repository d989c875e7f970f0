"""Looks at a cluster in every way there is, again and again, from several threads: ``python -m support.steady_looks``.

Arguments: the bootstrap servers, a group, and a topic that has partition 0. Each look that is answered is a line with
its name, each that is not one with its name and the failure; anything but a ``KafkaFailure`` ends the process with 1.
"""

from __future__ import annotations

import os
import sys
import threading
import time
import traceback
from collections.abc import Callable
from datetime import UTC, datetime

from tidegate.kafka.connection import Connection
from tidegate.kafka.errors import KafkaFailure
from tidegate.kafka.model import TopicPartition
from tidegate.kafka.offset_records import GroupLog
from tidegate.kafka_client.client import KafkaClient
from tidegate.kafka_client.group_details import KafkaGroupDetails

_PAUSE_S = 0.005


def looks_at(bootstrap: str, group: str, topic: str) -> dict[str, Callable[[], object]]:
    kafka, details = KafkaClient(Connection(bootstrap)), KafkaGroupDetails(Connection(bootstrap))
    partition = TopicPartition(topic, 0)
    return {
        "cluster": kafka.cluster,
        "topics": kafka.topics,
        "groups": lambda: kafka.groups([group, "nobody"]),
        "groups again": lambda: kafka.groups([group]),
        "log_bounds": lambda: kafka.log_bounds([partition]),
        "offsets_at": lambda: kafka.offsets_at({partition: datetime.fromtimestamp(0, UTC)}),
        "compacted": lambda: kafka.compacted([topic]),
        "committed": lambda: kafka.committed(group),
        "listing": details.listing,
        "targets": lambda: details.target_assignments(group),
        "control": kafka.control.read,
        "retention": kafka.retention.settings,
        "log": lambda: kafka.retention.log(group, GroupLog()),
    }


def _look(name: str, look: Callable[[], object]) -> None:
    while True:
        try:
            look()
            said = name
        except KafkaFailure as failure:
            said = f"{name}: {failure!r}"
        print(said, flush=True)
        time.sleep(_PAUSE_S)


def _end(error: threading.ExceptHookArgs) -> None:
    traceback.print_exception(error.exc_type, error.exc_value, error.exc_traceback)
    os._exit(1)


def main(bootstrap: str, group: str, topic: str) -> None:
    threading.excepthook = _end
    looks = looks_at(bootstrap, group, topic)
    threads = [threading.Thread(target=_look, args=named) for named in looks.items()]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


if __name__ == "__main__":
    main(*sys.argv[1:])
