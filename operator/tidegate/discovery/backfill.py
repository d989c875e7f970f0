"""An owner that began a new partition at its end is sent back to its start, by a live reset like any other.

Nothing of it is stored: a partition whose reset did not come to its end is not settled, and is reset again.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection
from datetime import timedelta
from typing import Final

from tidegate.kafka.connection import Connection
from tidegate.kafka.model import TopicPartition
from tidegate.kafka.ports import Kafka
from tidegate.reset import job
from tidegate.reset.clock import Clock
from tidegate.reset.model import ApplySettings, Owners, RunRequest, RunResult, Selection, ToEarliest
from tidegate.reset.stores import MemoryRunStore

_DEADLINE: Final = timedelta(minutes=5)


def backfill(
    kafka: Kafka,
    clock: Clock,
    connection: Connection,
    group_id: str,
    partitions: Collection[TopicPartition],
    *,
    owners: Owners = Owners.UNKNOWN,
) -> RunResult:
    """Reset these partitions to their start. Raises ``StaleAttempt`` when a reset of the group took over, and
    ``KafkaFailure``.
    """
    numbers: dict[str, set[int]] = {}
    for partition in partitions:
        numbers.setdefault(partition.topic, set()).add(partition.partition)
    request = RunRequest(
        run_uid=f"starts/{uuid.uuid4()}",
        run_id="starts",
        group_id=group_id,
        connection=connection,
        selections=tuple(Selection(topic, frozenset(wanted)) for topic, wanted in sorted(numbers.items())),
        target=ToEarliest(),
        settings=ApplySettings(owners=owners, deadline=clock.now() + _DEADLINE),
    )
    result = job.execute(MemoryRunStore(request), kafka, clock)
    if result is None:
        raise RuntimeError("a run that needs no approval ends with a result")
    return result
