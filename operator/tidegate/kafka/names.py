"""Names of groups and topics, and patterns of them. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Final

INTERNAL_PREFIX: Final = "__"
"""Kafka's own topics (``__consumer_offsets`` …) and ours; ``ClusterReader.topics`` leaves them out."""


def is_pattern(text: str) -> bool:
    return "*" in text


def is_internal(topic: str) -> bool:
    return topic.startswith(INTERNAL_PREFIX)


def is_allowed(name: str, patterns: Iterable[str]) -> bool:
    """Whether a group or topic is named by one of the patterns of ``spec.allow``; ``*`` stands for any text."""
    return any(pattern == "*" or matches(name, pattern) for pattern in patterns)


def matches(name: str, pattern: str) -> bool:
    """``pattern`` is a name, or has ``*`` for any text (also none); nothing else is special."""
    return name == pattern if not is_pattern(pattern) else _compiled(pattern).fullmatch(name) is not None


@lru_cache(maxsize=4096)
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(".*".join(map(re.escape, pattern.split("*"))), re.DOTALL)
