"""How an audit topic is made, and what is wrong with one that keeps too little. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

CONFIG: Final = {
    "cleanup.policy": "delete",
    "message.timestamp.type": "LogAppendTime",
    "retention.ms": "31536000000",
}
"""What a topic gets when Tidegate makes it; a year is kept. Nothing of a topic that is there is ever changed."""

LEAST_MESSAGE_BYTES: Final = 1_000_000
"""Of ``max.message.bytes``, which Kafka has a little above that by default."""


def complaints(name: str, config: Mapping[str, str]) -> tuple[str, ...]:
    """What keeps the topic from being a record that can be relied on, each with the command that mends it. ``config``:
    its effective settings."""
    found: list[str] = []
    actual = config.get("message.timestamp.type", "")
    if actual and actual != CONFIG["message.timestamp.type"]:
        found.append(
            f"topic {name} has message.timestamp.type={actual}, so that its times are those of whoever writes: "
            + _alter(name, "message.timestamp.type", CONFIG["message.timestamp.type"])
        )
    if "compact" in config.get("cleanup.policy", "").split(","):
        found.append(
            f"topic {name} is compacted, so that whoever may write it can have records of others removed: "
            + _alter(name, "cleanup.policy", CONFIG["cleanup.policy"])
        )
    largest = config.get("max.message.bytes", "")
    if largest.isdecimal() and int(largest) < LEAST_MESSAGE_BYTES:
        found.append(
            f"topic {name} has max.message.bytes={largest}, and records of resets of many partitions may need "
            f"{LEAST_MESSAGE_BYTES}: " + _alter(name, "max.message.bytes", str(LEAST_MESSAGE_BYTES))
        )
    return tuple(found)


def _alter(name: str, setting: str, value: str) -> str:
    return f"kafka-configs --alter --entity-type topics --entity-name {name} --add-config {setting}={value}"
