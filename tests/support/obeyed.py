"""Whether a gate was obeyed, whoever owns the partition; `tidegate.control.standing` also asks who that is."""

from __future__ import annotations

from tidegate.control.gates import Gates
from tidegate.control.records import Ack
from tidegate.kafka.model import TopicPartition


def acked(gates: Gates, group: str, partition: TopicPartition, epoch: int | None = None) -> Ack | None:
    """The ack, where it is of `epoch` (absent: the gate's own) or a later one; `None` for an open gate."""
    wanted = gates.epoch(group, partition) if epoch is None else epoch
    ack = gates.ack(group, partition)
    return ack if ack is not None and wanted is not None and ack.epoch >= wanted else None
