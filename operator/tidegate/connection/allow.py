"""What a resource may not do through a connection, as sentences for its condition. Pure."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from tidegate.kafka.names import is_allowed, is_internal, is_pattern
from tidegate.resources.connection import AllowSpec
from tidegate.resources.storage import BackupStorage

GROUP_NOT_ALLOWED: Final = "GroupNotAllowed"
TOPIC_NOT_ALLOWED: Final = "TopicNotAllowed"
STORAGE_NOT_ALLOWED: Final = "StorageNotAllowed"


def group_not_allowed(connection: str, allow: AllowSpec, path: str, group: str) -> str | None:
    """Why a resource may not touch this group; ``None``: it may. ``path``: the field that names it."""
    if is_allowed(group, allow.groups):
        return None
    return f"{path}: KafkaConnection {connection} does not allow group {group}: it allows {_listed(allow.groups)}"


def topic_not_allowed(connection: str, allow: AllowSpec, topic: str) -> str | None:
    """Why a resource may not touch this topic; ``None``: it may. Patterns stand for what they may, and no more."""
    if is_pattern(topic) or is_allowed(topic, allow.topics):
        return None
    return f"KafkaConnection {connection} does not allow topic {topic}: it allows {_listed(allow.topics)}"


def dead_letter_not_allowed(
    connection: str, allow: AllowSpec, own: Collection[str], path: str, topic: str
) -> str | None:
    """Why records may not be copied to this topic; ``None``: they may, or ``topic`` is empty. ``own``: the topics in
    which Tidegate itself keeps something, and where a record that somebody else wrote would be taken for its own.
    ``path``: the field that names it."""
    if topic in own:
        return f"{path}: {topic} is the control topic, an ack topic or the audit topic of KafkaConnection {connection}"
    if not topic or (is_allowed(topic, allow.dead_letter_topics) and not is_internal(topic)):
        return None
    return (
        f"{path}: KafkaConnection {connection} does not allow dead-letter topic {topic}: it allows "
        f"{_listed(allow.dead_letter_topics)}; see allow.deadLetterTopics there"
    )


def storage_not_allowed(connection: str, allow: AllowSpec, path: str, storage: BackupStorage) -> str | None:
    """Why a job may not be given this claim or Secret; ``None``: it may. ``path``: the field that names them."""
    claim = storage.folder.claim if storage.folder is not None else None
    if claim is not None and claim not in allow.claims:
        return (
            f"{path}.folder.claim: KafkaConnection {connection} does not allow PersistentVolumeClaim {claim}: "
            "add it to allow.claims there"
        )
    credentials = storage.s3.credentials if storage.s3 is not None else None
    if credentials is not None and credentials.secret_name not in allow.secrets:
        return (
            f"{path}.s3.credentials: KafkaConnection {connection} does not allow Secret {credentials.secret_name}: "
            "add it to allow.secrets there"
        )
    return None


def _listed(patterns: tuple[str, ...]) -> str:
    return ", ".join(patterns) or "none"
