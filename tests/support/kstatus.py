"""What kstatus makes of a resource, as Flux, ``helm --wait`` and ``kpt`` read it.

The rules of ``sigs.k8s.io/cli-utils/pkg/kstatus`` for a custom resource, in their order: deletion, generation, the
abnormal-true conditions in the order of the list, then ``Ready``; a resource that says nothing is taken for current.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any


class KStatus(StrEnum):
    IN_PROGRESS = "InProgress"
    CURRENT = "Current"
    FAILED = "Failed"
    TERMINATING = "Terminating"


def kstatus_of(body: Mapping[str, Any]) -> KStatus:
    """The whole object, as the API server gives it."""
    metadata, status = body["metadata"], body.get("status") or {}
    if metadata.get("deletionTimestamp"):
        return KStatus.TERMINATING
    if status.get("observedGeneration", metadata["generation"]) != metadata["generation"]:
        return KStatus.IN_PROGRESS
    conditions = status.get("conditions") or []
    for condition in conditions:
        if condition["status"] == "True" and condition["type"] == "Reconciling":
            return KStatus.IN_PROGRESS
        if condition["status"] == "True" and condition["type"] == "Stalled":
            return KStatus.FAILED
    ready = next((condition for condition in conditions if condition["type"] == "Ready"), None)
    return KStatus.CURRENT if ready is None or ready["status"] == "True" else KStatus.IN_PROGRESS
