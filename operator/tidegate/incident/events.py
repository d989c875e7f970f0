"""Kubernetes' Events about Tidegate's resources: all of a namespace or of the cluster, of which the newest are kept."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from tidegate.incident.redaction import redacted
from tidegate.incident.seen import Unseen
from tidegate.kube.ports import CONNECTIONS, KubeFailure

ABOUT_OURS: Final = f"involvedObject.apiVersion={CONNECTIONS.api_version}"
"""A field selector: pods have far more Events."""

MOST_READ: Final = 20_000
MOST_KEPT: Final = 1_000
"""Of a namespace."""


@dataclass(frozen=True, slots=True)
class Events:
    """By namespace, newest first and redacted; ``unseen``: what was left out."""

    kept: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    unseen: list[Unseen] = field(default_factory=list)


def newest_events(list_page: Callable[[str], Mapping[str, Any]], where: str, most_bytes: int) -> Events:
    """``list_page``: the answer to a listing by ``ABOUT_OURS`` from what the page before said in ``metadata.continue``.
    ``most_bytes``: of a namespace's, as JSON. Raises nothing: what can't be read is in ``unseen``."""
    found, unseen = defaultdict[str, list[Mapping[str, Any]]](list), list[Unseen]()
    read, following = 0, ""
    while True:
        try:
            page = list_page(following)
        except KubeFailure as failure:
            unseen.append(
                Unseen(f"Events in {where}" if not read else f"Events in {where} after the first {read}", str(failure))
            )
            break
        for event in page.get("items") or ():
            read += 1
            if str((event.get("involvedObject") or {}).get("apiVersion", "")).startswith("tidegate.io/"):
                found[str(event["metadata"]["namespace"])].append(event)
        following = (page.get("metadata") or {}).get("continue") or ""
        if following and read >= MOST_READ:
            unseen.append(
                Unseen(f"Events in {where} after the first {read}, which are not sorted by time", "there are too many")
            )
        if not following or read >= MOST_READ:
            break
    kept = {namespace: list(_fitting(events, most_bytes)) for namespace, events in sorted(found.items())}
    for namespace, events in kept.items():
        if older := len(found[namespace]) - len(events):
            unseen.append(Unseen(f"{older} older Events in {namespace}", f"the newest {len(events)} are included"))
    return Events(kept, unseen)


def _fitting(events: list[Mapping[str, Any]], most_bytes: int) -> Iterator[dict[str, Any]]:
    size = 0
    for event in sorted(events, key=_time_of, reverse=True)[:MOST_KEPT]:
        told = redacted(event)
        size += len(json.dumps({"items": [told]}, indent=1))
        if size > most_bytes:
            return
        yield told


def _time_of(event: Mapping[str, Any]) -> str:
    series = event.get("series") or {}
    last = series.get("lastObservedTime") or event.get("lastTimestamp") or event.get("eventTime")
    return str(last or event["metadata"].get("creationTimestamp") or "")
