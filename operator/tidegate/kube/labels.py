"""Labels of what belongs to a resource, and label values of Kubernetes made of any text."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from typing import Any, Final

from tidegate.kube.ports import BACKUPS, MIRRORS, POLICIES, RESETS

_OWNER: Final = {
    POLICIES.kind: "tidegate.io/policy",
    RESETS.kind: "tidegate.io/offset-reset",
    BACKUPS.kind: "tidegate.io/offset-backup",
    MIRRORS.kind: "tidegate.io/offset-mirror",
}


def owner_label(owner: Mapping[str, Any] | None) -> dict[str, str]:
    """By which what belongs to a resource is found. ``owner``: its owner reference."""
    if not owner:
        return {}
    return {_OWNER[str(owner["kind"])]: label_value(str(owner["name"]))}


def label_value(text: str) -> str:
    """``text`` where it is a valid label value; else one made of it, with a digest that tells it from others.

    At most 63 characters: letters, digits, ``-``, ``_``, ``.``, letters or digits at both ends.
    """
    if re.fullmatch(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?", text):
        return text
    digest = hashlib.sha256(text.encode()).hexdigest()[:8]
    readable = re.sub(r"[^A-Za-z0-9._-]+", "-", text)[:54].strip("._-")
    return f"{readable}-{digest}" if readable else digest
