"""What a resource may not do through a connection, as sentences for its condition. Pure."""

from __future__ import annotations

from typing import Final

from tidegate.kafka.names import is_allowed, is_pattern
from tidegate.resources.connection import AllowSpec

GROUP_NOT_ALLOWED: Final = "GroupNotAllowed"
TOPIC_NOT_ALLOWED: Final = "TopicNotAllowed"


def group_not_allowed(connection: str, allow: AllowSpec, path: str, group: str) -> str | None:
    """Why a resource may not touch this group; ``None``: it may. ``path``: the field that names it."""
    if is_allowed(group, allow.groups):
        return None
    return f"{path}: KafkaConnection {connection} does not allow group {group}: it allows {', '.join(allow.groups)}"


def topic_not_allowed(connection: str, allow: AllowSpec, topic: str) -> str | None:
    """Why a resource may not touch this topic; ``None``: it may. Patterns stand for what they may, and no more."""
    if is_pattern(topic) or is_allowed(topic, allow.topics):
        return None
    return f"KafkaConnection {connection} does not allow topic {topic}: it allows {', '.join(allow.topics)}"
