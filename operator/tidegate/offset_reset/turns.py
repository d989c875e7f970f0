"""Whose turn it is: of all resets that want a group, one at a time may change it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from tidegate.connection.live import Live
from tidegate.connection.observer import NotLookedAt
from tidegate.kube.ports import CONNECTIONS, RESETS, Object, label_of, name_of, namespace_of, uid_of
from tidegate.offset_reset.parts import Parts
from tidegate.offset_reset.reading import is_suspended, read_spec, status_is_readable, status_of
from tidegate.reset.runs import reasons
from tidegate.reset.runs.queue import Claim, blocker
from tidegate.reset.runs.seen import awaits_approval, is_settled, under_way
from tidegate.resources.conditions import COMPLETE, STALLED, Refusal, find_condition, is_true
from tidegate.resources.offset_reset import OffsetResetSpec
from tidegate.threads import in_thread

_LISTING_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class _Listing:
    """``cluster_ids`` by a connection's namespace and name; empty for one that was never ready."""

    at_s: float
    cluster_ids: Mapping[tuple[str, str], str]
    resets: tuple[Object, ...]


class Turns:
    """Who is in whose way, by what the API server has."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._listing: _Listing | None = None

    def begun(self) -> None:
        """A run goes ahead: what was listed of the others' is void."""
        self._listing = None

    async def in_the_way(self, body: Object, spec: OffsetResetSpec, live: Live) -> Refusal | None:
        """The resource that resets, or is to reset first, a group that this one wants."""
        try:
            snapshot = await self._parts.observer.newest(live.uid, group=spec.group)
        except NotLookedAt:
            return not_ready(live.name, "it is just being replaced")
        if snapshot.failure is not None:
            return not_ready(live.name, "its cluster does not answer")
        mine = _claim_of(body, spec, live.cluster_id, begun=False)
        listing = await self._listed()
        claims = (_claim(other, listing.cluster_ids) for other in listing.resets)
        first = blocker(mine, (claim for claim in claims if claim is not None))
        if first is None:
            return None
        doing = "is resetting" if first.under_way else "was there first to reset"
        return Refusal(
            reasons.WAITING_FOR_RESET,
            f"{first.holder} {doing} {whose(spec)}; one at a time may, so this one waits",
        )

    async def _listed(self) -> _Listing:
        """All resets, as the API server has them, at most a moment old. Only under the admission lock.

        Nobody but this process begins a run, and a run that begins makes the listing void: so a hundred that wait cost
        one listing a moment, and none of them overlooks another.
        """
        now = asyncio.get_running_loop().time()
        if self._listing is None or now - self._listing.at_s > _LISTING_S:
            connections = await in_thread(self._parts.executor, self._parts.kube.list, CONNECTIONS)
            asking = await in_thread(self._parts.executor, self._parts.kube.list, RESETS)
            cluster_ids = {
                (namespace_of(c), name_of(c)): str((c.get("status") or {}).get("clusterId", "")) for c in connections
            }
            self._listing = _Listing(now, cluster_ids, tuple(asking))
        return self._listing


def not_ready(name: str, why: str) -> Refusal:
    return Refusal(reasons.WAITING_FOR_CONNECTION, f"KafkaConnection {name} is not ready ({why}): it waits for it")


def whose(spec: OffsetResetSpec) -> str:
    return f"group {spec.group}" if spec.group is not None else f"groups {', '.join(spec.group_patterns)}"


def _claim(body: Object, cluster_ids: Mapping[tuple[str, str], str]) -> Claim | None:
    """What another resource wants.

    ``None``: nothing, or nothing it could get: it has run, was refused or suspended, its connection was never ready,
    its plan waits to be approved, it waits for the reset that it undoes, or its policy does not ask for it.
    """
    spec, _ = read_spec(body)
    if spec is None:
        return None
    status = status_of(body)
    current = under_way(status)
    cluster_id = cluster_ids.get((namespace_of(body), spec.connection_ref.name), "")
    if not cluster_id:
        return None
    if not status_is_readable(body):
        return _claim_of(body, spec, cluster_id, begun=True)
    if current is None:
        refused = is_true(status.conditions, STALLED) and status.observed_generation == body["metadata"]["generation"]
        said = find_condition(status.conditions, COMPLETE)
        waits = said is not None and said.reason in (reasons.UNDONE_NOT_ENDED, reasons.NOT_ASKED_FOR)
        leaves = refused or waits or body["metadata"].get("deletionTimestamp") or is_suspended(body)
        if is_settled(status) or leaves:
            return None
    elif awaits_approval(current):
        return None
    return _claim_of(body, spec, cluster_id, begun=current is not None)


def _claim_of(body: Object, spec: OffsetResetSpec, cluster_id: str, *, begun: bool) -> Claim:
    return Claim(
        uid=uid_of(body),
        holder=f"{RESETS.kind} {label_of(body)}",
        created=_created(body),
        cluster_id=cluster_id,
        groups=spec.group_patterns,
        under_way=begun,
    )


def _created(body: Object) -> datetime:
    return datetime.fromisoformat(str(body["metadata"]["creationTimestamp"]))
