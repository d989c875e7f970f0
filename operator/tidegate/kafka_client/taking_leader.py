"""Whether a partition can take records just now, asked before a transaction has it.

What a transaction has been told of gets a marker at its end, also where it is aborted. Until that is written, or the
leader is taken for dead, the producer gets no other transaction.
"""

from __future__ import annotations

import time
from typing import Any, Final

from tidegate.kafka.errors import Unavailable
from tidegate.kafka.rights import on_topics
from tidegate.kafka_client.cluster_requests import describe_topics, metadata, topic_settings
from tidegate.kafka_client.codes import NO_ERROR, UNKNOWN_PARTITION, check
from tidegate.kafka_client.wire import Wire

_LEAST_S: Final = 0.1
_LEAST_IN_SYNC: Final = "min.insync.replicas"


def leader_that_takes(wire: Wire, topic: str, what: str, deadline: float, *, number: int = 0) -> int:
    """The leader of the topic's partition ``number``, which has answered and has enough replicas in sync.

    Raises ``Unavailable``."""
    [described] = describe_topics(wire, [topic], what=what, deadline=deadline).topics
    if described.error_code in UNKNOWN_PARTITION:
        raise Unavailable(f"{what}: there is no such topic")
    check(described.error_code, what, *on_topics("Write", [topic]))
    partition = next((p for p in described.partitions if p.partition_index == number), None)
    if partition is None or partition.leader_id < 0:
        raise Unavailable(f"{what}: there is no leader")
    _check_in_sync(wire, topic, partition, what, deadline)
    leader = int(partition.leader_id)
    metadata(wire, leader, [topic], timeout_s=max(_LEAST_S, min(wire.BROKER_TIMEOUT_S, deadline - time.monotonic())))
    return leader


def _check_in_sync(wire: Wire, topic: str, partition: Any, what: str, deadline: float) -> None:
    """Brokers refuse records, and the markers of transactions, where fewer are: than ``min.insync.replicas``, or than
    the topic has at all. Not known where settings can't be read."""
    in_sync, replicas = len(partition.isr_nodes), len(partition.replica_nodes)
    if in_sync >= replicas:
        return
    [(code, config)] = topic_settings(wire, [topic], what=what, deadline=deadline).values()
    least = config.get(_LEAST_IN_SYNC, "") if code == NO_ERROR else ""
    if least.isdecimal() and in_sync < min(int(least), replicas):
        raise Unavailable(f"{what}: {in_sync} of its replicas are in sync, and {_LEAST_IN_SYNC} is {least}")
