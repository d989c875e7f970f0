"""Kafka's topic ids (KIP-516) as its tools print them: URL-safe base64 without padding."""

from __future__ import annotations

import base64
from typing import Any, Final

_MASK: Final = (1 << 64) - 1


def topic_id_text(topic_id: Any) -> str:
    """Of confluent_kafka's ``Uuid``."""
    bits = (topic_id.get_most_significant_bits() & _MASK) << 64 | topic_id.get_least_significant_bits() & _MASK
    return topic_id_of_bytes(bits.to_bytes(16, "big"))


def topic_id_of_bytes(data: bytes) -> str:
    """Of the 16 bytes on the wire."""
    return base64.urlsafe_b64encode(data).decode().rstrip("=")
