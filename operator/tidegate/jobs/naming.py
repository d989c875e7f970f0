"""The names of ConfigMaps that a resource and its jobs share. Pure."""

from __future__ import annotations

import hashlib
import re
from typing import Final

_NAME_LIMIT: Final = 48
"""Leaves room for seven digits of attempts within a DNS label, and for what Spark appends to pods' names."""


def document_name(name: str, uid: str, kind: str) -> str:
    """``<name>-<kind>-<digest>``; the digest tells namesakes apart. ``kind``: a word that begins with a letter."""
    mark = hashlib.sha256(uid.encode()).hexdigest()[:8]
    readable = re.sub(r"[^a-z0-9-]+", "-", name.lower())[: _NAME_LIMIT - 12 - len(kind)].strip("-")
    # Services need a letter first, and Spark makes one for its driver.
    return f"{readable if readable[:1].isalpha() else f'{kind[0]}-{readable}'.strip('-')}-{kind}-{mark}"
