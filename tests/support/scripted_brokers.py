"""``tidegate.kafka_client.topic_watch.Brokers`` by script, held to real ones by ``tests/contract``."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from tidegate.kafka.errors import Unavailable

ID = bytes(range(16))
HEAD = bytes.fromhex("00000000 01 00 00000000")
"""Throttle time, no brokers, no cluster id, controller."""


@dataclass(frozen=True, slots=True)
class ScriptedTopic:
    """What a broker knows of a topic; ``leader``: of each of its partitions."""

    name: str
    partitions: int
    leader: int = 0
    topic_id: bytes = ID

    def written(self) -> bytes:
        """As in ``MetadataResponse`` 12."""
        rows = b"".join(
            b"\x00\x00" + number.to_bytes(4, "big") + self.leader.to_bytes(4, "big") + bytes(4) + b"\x01\x01\x01\x00"
            for number in range(self.partitions)
        )
        return _row(b"\x00\x00", self.name, self.topic_id) + bytes([self.partitions + 1]) + rows + bytes(4) + b"\x00"


def _row(error: bytes, name: str, topic_id: bytes) -> bytes:
    return error + bytes([len(name) + 1]) + name.encode() + topic_id + b"\x00"


def _unknown(name: str) -> bytes:
    """A topic that there is not: no id, no partitions."""
    return _row(b"\x00\x03", name, bytes(16)) + b"\x01" + bytes(4) + b"\x00"


class ScriptedBrokers:
    """Brokers by number with what they answer: topics, bytes as they are, or what is raised. Each may be changed."""

    def __init__(self, *answers: Collection[ScriptedTopic] | bytes | Exception) -> None:
        self.answers = dict(enumerate(answers))
        self.asked: list[int] = []
        self.closed = 0

    def brokers(self) -> list[int]:
        if not self.answers:
            raise Unavailable("look for brokers: none is known")
        return list(self.answers)

    def metadata(self, node_id: int, topics: Collection[str] | None, *, timeout_s: float) -> bytes:  # noqa: ARG002
        self.asked.append(node_id)
        found = self.answers.get(node_id, Unavailable(f"broker {node_id} is not known"))
        if isinstance(found, Exception):
            raise found
        if isinstance(found, bytes):
            return found
        known = {topic.name: topic.written() for topic in found}
        told = list(known.values()) if topics is None else [known.get(name, _unknown(name)) for name in topics]
        return HEAD + bytes([len(told) + 1]) + b"".join(told) + b"\x00"

    def close(self) -> None:
        self.closed += 1
