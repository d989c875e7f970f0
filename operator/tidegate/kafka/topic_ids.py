"""Kafka's topic ids (KIP-516) as its tools print them."""

from __future__ import annotations

import base64
import uuid
from typing import Any


def topic_id_text(topic_id: Any) -> str:
    """confluent_kafka's ``Uuid`` as URL-safe base64 without padding."""
    bits = (topic_id.get_most_significant_bits() << 64 | (topic_id.get_least_significant_bits() & (1 << 64) - 1)) & (
        (1 << 128) - 1
    )
    return base64.urlsafe_b64encode(uuid.UUID(int=bits).bytes).decode().rstrip("=")
