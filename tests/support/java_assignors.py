"""Kafka's own assignors, in one JVM, and groups to ask them about."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass

from support.answering_jvm import AnsweringJvm
from support.clients.java import java_command
from tidegate.kafka.assignors.assignor import joined
from tidegate.kafka.assignors.members import Joined
from tidegate.kafka.model import Subscription, TopicPartition

Shares = dict[str, frozenset[TopicPartition]]


@dataclass(frozen=True, slots=True)
class AskedGroup:
    """``topics``: partitions by topic. ``members``: by member id, with the instance ids of static ones."""

    assignor: str
    topics: Mapping[str, int]
    members: Mapping[str, tuple[Subscription, str | None]]

    def joined(self) -> dict[str, Joined]:
        return {m: joined(self.assignor, said, instance) for m, (said, instance) in self.members.items()}


class AssignorThrew(Exception):
    """The message is Java's."""


class JavaAssignors(AnsweringJvm):
    """The JVM (``java/Assignors.java``). ``client_version``: of kafka-clients, if not the broker's own."""

    def __init__(self, client_version: str | None = None) -> None:
        program, *options = java_command(8, client_version)[:-1]
        # What they make of strange claims they would log.
        quiet = ["-Dtests.log=off", "-Dorg.slf4j.simpleLogger.defaultLogLevel=off"]
        super().__init__([program, *quiet, *options, "Assignors"])

    def assign(self, group: AskedGroup) -> Shares:
        """Raises :class:`AssignorThrew`."""
        answer = json.loads(self.ask(_line(group)))
        if isinstance(answer.get("error"), str):
            raise AssignorThrew(answer["error"])
        return {member_id: frozenset(TopicPartition(*row) for row in rows) for member_id, rows in answer.items()}


def _line(group: AskedGroup) -> str:
    members = [
        {
            "id": member_id,
            "topics": sorted(said.topics),
            "owned": sorted((p.topic, p.partition) for p in said.owned),
            "generation": said.generation,
            "instance": instance_id,
            "data": None if said.user_data is None else said.user_data.hex(),
        }
        for member_id, (said, instance_id) in group.members.items()
    ]
    return json.dumps({"assignor": group.assignor, "topics": dict(group.topics), "members": members})


def sticky_user_data(claimed: frozenset[TopicPartition], generation: int | None) -> bytes:
    """As ``StickyAssignor.serializeTopicPartitionAssignment`` writes it; version 0 without a generation."""
    topics = sorted({p.topic for p in claimed})
    raw = struct.pack(">i", len(topics))
    for topic in topics:
        numbers = sorted(p.partition for p in claimed if p.topic == topic)
        name = topic.encode()
        raw += struct.pack(f">h{len(name)}si{len(numbers)}i", len(name), name, len(numbers), *numbers)
    return raw if generation is None else raw + struct.pack(">i", generation)
