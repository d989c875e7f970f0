"""What MirrorMaker 2 keeps of consumer groups: where it takes a group's place to be on this cluster. Pure.

``org.apache.kafka.connect.mirror.Checkpoint``: a key of group, topic (by its name here) and partition; a value of a
version (``HEADER_SCHEMA``), the offset over there, the one here, and metadata. Numbers are big-endian, texts have their
length in 16 bits before them.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from tidegate.kafka.model import TopicPartition

_VERSION = 0


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """``upstream``: an offset that the group had committed over there; ``downstream``: no later place here."""

    group_id: str
    partition: TopicPartition
    upstream: int
    downstream: int


def topic_of(alias: str) -> str:
    """``ReplicationPolicy.checkpointsTopic`` with the usual separator."""
    return f"{alias}.checkpoints.internal"


def read_checkpoint(key: bytes, value: bytes) -> Checkpoint | None:
    """``None`` for what is no checkpoint, or one of a version that is not known here."""
    try:
        group_id, at = _text(key, 0)
        topic, at = _text(key, at)
        (number,) = struct.unpack_from(">i", key, at)
        version, upstream, downstream = struct.unpack_from(">hqq", value)
    except (struct.error, UnicodeDecodeError):
        return None
    if version != _VERSION or number < 0 or upstream < 0 or downstream < 0:
        return None
    return Checkpoint(group_id, TopicPartition(topic, number), upstream, downstream)


def _text(data: bytes, at: int) -> tuple[str, int]:
    (length,) = struct.unpack_from(">H", data, at)
    (raw,) = struct.unpack_from(f"{length}s", data, at + 2)
    return raw.decode(), at + 2 + length
