"""Kafka's topic ids (KIP-516) as its tools print them: URL-safe base64 without padding."""

from __future__ import annotations

import base64
from uuid import UUID


def topic_id_of_bytes(data: bytes) -> str:
    """Of the 16 bytes on the wire."""
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def uuid_of(topic_id: str) -> UUID:
    """As requests name it. Raises ``ValueError`` for what is no topic id."""
    return UUID(bytes=base64.b64decode(f"{topic_id}==", altchars=b"-_", validate=True))
