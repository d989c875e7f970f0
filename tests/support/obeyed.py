"""Whether a gate was obeyed, whoever owns the partition; `tidegate.control.standing` also asks who that is."""

from __future__ import annotations

from tidegate.control.gates import Gates
from tidegate.control.records import Ack, AckKey
from tidegate.kafka.model import TopicPartition


def acked(gates: Gates, group: str, partition: TopicPartition, epoch: int | None = None) -> Ack | None:
    """Its newest ack of `epoch` (absent: the gate's own) or a later one, whoever's; `None` for an open gate."""
    wanted = gates.epoch(group, partition) if epoch is None else epoch
    acks = gates.acks.get(AckKey(group, partition.topic, partition.partition), ())
    return next((ack for ack in reversed(acks) if wanted is not None and ack.epoch >= wanted), None)
