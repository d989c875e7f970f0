"""How the two topics have to be, and what is wrong with them where they are not. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

_DELETE_RETENTION: Final = "delete.retention.ms"

REREAD_AFTER_S: Final = 3600.0
"""Who has not read a topic to its end for so long reads it from its start: tombstones may be gone by then."""

LEAST_DELETE_RETENTION_MS: Final = 7_200_000
"""How long the control topic has to keep tombstones: longer than readers may be away, by clocks that may be set."""

CONTROL_CONFIG: Final = {"cleanup.policy": "compact", "message.timestamp.type": "LogAppendTime"}
ACKS_CONFIG: Final = {"cleanup.policy": "compact"}
EXTRA_CONFIG: Final = {
    # A tombstone is seen by whoever reads the topic within a day; who was away for longer reads it from its start.
    _DELETE_RETENTION: "86400000",
    # Small segments, or compaction never begins on a topic with so little in it.
    "segment.ms": "3600000",
    "min.cleanable.dirty.ratio": "0.1",
}
"""What a topic gets when Tidegate creates it; others may be chosen."""


@dataclass(frozen=True, slots=True)
class TopicFacts:
    """A topic as the brokers describe it; ``config``: its effective settings."""

    name: str
    topic_id: str
    partitions: int
    replication_factor: int
    config: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class TopicsChecked:
    """What was found about a connection's control and ack topics: a condition's reason, and a message for a person."""

    usable: bool
    reason: str
    message: str


def complaints(control: TopicFacts, acks: TopicFacts) -> tuple[str, ...]:
    """What keeps the two from doing their work, each with the command that mends it."""
    found: list[str] = []
    if control.partitions != 1:
        found.append(
            f"topic {control.name} has {control.partitions} partitions, but holds need one order: delete it and let "
            "Tidegate create it anew"
        )
    for topic, wanted in ((control, CONTROL_CONFIG), (acks, ACKS_CONFIG)):
        for name, value in wanted.items():
            actual = topic.config.get(name, "")
            if value not in actual.split(",") or "delete" in actual.split(","):
                found.append(
                    f"topic {topic.name} has {name}={actual or '(none)'}: kafka-configs --alter --entity-type topics "
                    f"--entity-name {topic.name} --add-config {name}={value}"
                )
    kept_ms = control.config.get(_DELETE_RETENTION, "")
    if kept_ms.isdecimal() and int(kept_ms) < LEAST_DELETE_RETENTION_MS:
        found.append(
            f"topic {control.name} has {_DELETE_RETENTION}={kept_ms}, so that agents may miss a release: kafka-configs "
            f"--alter --entity-type topics --entity-name {control.name} --add-config "
            f"{_DELETE_RETENTION}={LEAST_DELETE_RETENTION_MS}"
        )
    return tuple(found)
