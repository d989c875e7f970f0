"""Looks at a group through Kafka alone; what can't be read is left out, and said to be."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import TypeVar

from tidegate.cluster import Kafka
from tidegate.incident.seen import KafkaSeen, Unseen
from tidegate.kafka.errors import KafkaFailure, Unavailable, UnknownPartitions
from tidegate.kafka.model import Group, LogBounds, TopicPartition

T = TypeVar("T")


class _Looks:
    """Calls one after the other, each of which may fail by itself."""

    def __init__(self) -> None:
        self.unseen: list[Unseen] = []

    def at(self, what: str, call: Callable[[], T]) -> T | None:
        try:
            return call()
        except KafkaFailure as failure:
            self.unseen.append(Unseen(what, str(failure)))
            return None


def look_at_kafka(kafka: Kafka, group_id: str, control_topic: str) -> KafkaSeen:
    """Changes nothing, and raises nothing for what Kafka refuses or does not answer.

    ``control_topic``: the name of the one that ``kafka`` reads, for whoever is told that there is none.
    """
    looks = _Looks()
    try:
        cluster_id = kafka.cluster().cluster_id
    except Unavailable as failure:
        # The rest would only take as long again, each.
        return KafkaSeen(control_topic, unseen=(Unseen("Kafka", str(failure)),))
    except KafkaFailure as failure:
        cluster_id = ""
        looks.unseen.append(Unseen("the cluster's id", str(failure)))
    group = looks.at("the group's state and members", lambda: kafka.groups([group_id])[group_id])
    committed = looks.at("the committed offsets", lambda: kafka.committed(group_id))
    # After the group: an owner that comes in between must not look as if it had acknowledged nothing.
    gates = looks.at("holds and the agents' acks", lambda: kafka.control.read([group_id]))
    known = _assigned(group) | set(committed or {})
    if gates is not None:
        known |= {key.topic_partition for key, _ in gates.of_group(group_id)}
        known |= {key.topic_partition for key in gates.limits if key.group == group_id}
    bounds = looks.at("the partitions' logs", lambda: _bounds(kafka, sorted(known)))
    existing = sorted(bounds) if bounds is not None else []
    pending = looks.at("commits in open transactions", lambda: kafka.pending(group_id, existing))
    return KafkaSeen(
        control_topic,
        cluster_id=cluster_id,
        group=group,
        committed=committed,
        bounds=bounds or {},
        gone=frozenset(known - bounds.keys()) if bounds is not None else frozenset(),
        pending=pending if bounds is not None else None,
        gates=gates,
        has_control_topics=kafka.control.exist,
        unreadable=kafka.control.unreadable,
        unseen=tuple(looks.unseen),
    )


def _assigned(group: Group | None) -> set[TopicPartition]:
    return set(group.assigned) if group is not None else set()


def _bounds(kafka: Kafka, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, LogBounds]:
    """Of those that exist."""
    if not partitions:
        return {}
    try:
        return kafka.log_bounds(partitions)
    except UnknownPartitions as gone:
        return _bounds(kafka, [p for p in partitions if p not in gone.partitions])
