"""Whose turn it is: of all resets that want a group, one at a time may change it.

What decides is this process's memory: nobody else begins its resets, and between asking whose turn it is and noting
that somebody goes ahead nothing else runs. What others may have done, another process before this one or beside it, is
seen in a listing of the API server: before the first reset begins, and then again and again. A listing that is older
than what such a process did lets two begin at worst; then the claim on the group decides, in the control topic
(``tidegate.reset.applying.claim``).
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from tidegate.connection.live import Live
from tidegate.connection.observer import NotLookedAt
from tidegate.connection.status import NOT_AUTHORIZED
from tidegate.kafka.errors import Refused
from tidegate.kafka.names import narrowed
from tidegate.kube.objects import version_of
from tidegate.kube.ports import (
    CONNECTIONS,
    RESETS,
    Object,
    connection_named,
    label_of,
    name_of,
    namespace_of,
    uid_of,
)
from tidegate.offset_reset.parts import Parts
from tidegate.offset_reset.reading import is_over, is_suspended, read_spec, status_is_readable, status_of
from tidegate.reset.planning.refusals import UNSUPPORTED_GROUP
from tidegate.reset.runs import reasons
from tidegate.reset.runs.queue import Claim, InLine, Queue
from tidegate.reset.runs.quota import Line
from tidegate.reset.runs.seen import awaits_approval, is_settled, under_way
from tidegate.resources.conditions import COMPLETE, STALLED, Refusal, find_condition, is_true
from tidegate.resources.connection import AllowSpec
from tidegate.resources.offset_reset import OffsetResetSpec
from tidegate.resources.reset import ResetPhase
from tidegate.threads import in_thread

_LISTING_S: Final = 10.0
"""How old the listing may be by which a reset begins."""

_COMPARED: Final = 20_000
"""So many pairs of names and patterns are compared for one that asks, some 10 ms, to find out which of those that were
there first could not run: the others it waits for until it asks again, and what was found out is remembered.
"""

UNDESCRIBED: Final = (NOT_AUTHORIZED, UNSUPPORTED_GROUP)
"""Reasons why its group can't be described, which somebody has to change: until then it is in nobody's way."""

_IN_NOBODYS_WAY: Final = (reasons.UNDONE_NOT_ENDED, reasons.UNREADABLE_STATUS, reasons.NOT_ASKED_FOR)
"""Reasons why one waits that is in nobody's way meanwhile."""

_Connection = tuple[str, str]
"""Namespace and name."""


@dataclass(frozen=True, slots=True)
class _Known:
    """A reset as it was seen last. ``claim``: what it wants, on whichever cluster; ``None``: nothing. ``other``: the
    connection to another cluster that it reads. ``undid``: the reset that it has undone, and when."""

    version: int
    namespace: str
    connection: _Connection
    claim: Claim | None
    other: _Connection | None = None
    undid: tuple[str, datetime] | None = None


class Turns:
    """Who is in whose way. Belongs to the event loop's thread."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._queue = Queue()
        self._lines: defaultdict[tuple[str, _Connection], Line] = defaultdict(Line)
        """For the quotas: of each connection, by the namespace that uses it."""
        self._known: dict[str, _Known] = {}
        self._ahead: dict[str, Claim] = {}
        """Those that this process lets go ahead, until their status says so."""
        self._written: set[str] = set()
        """Of those, the ones of which a status may say so that was not seen yet."""
        self._begun: dict[str, tuple[str, ...]] = {}
        """The groups of runs under way, names and patterns, by what their connections allowed when they began."""
        self._in_status: Mapping[_Connection, str] = {}
        """Cluster ids of the connections as they were listed."""
        self._clusters: Mapping[_Connection, str] = {}
        """Those that the queue was made of."""
        self._allowed: Mapping[_Connection, AllowSpec] = {}
        """What connections allowed when it was."""
        self._listed_s: float | None = None
        self._listing: asyncio.Task[None] | None = None
        self._meanwhile: set[str] = set()
        """Resets that were seen, or went, while they were listed."""

    # --- what is known ------------------------------------------------------------------------------------------------

    def take(self, body: Object) -> None:
        """This is how a reset is, unless a newer version of it was seen."""
        uid, version = uid_of(body), version_of(body)
        before = self._known.get(uid)
        if before is not None and version <= before.version:
            return
        self._note_meanwhile(uid)
        spec, _ = read_spec(body)
        there = spec.to.cluster if spec is not None else None
        other = (namespace_of(body), there.connection_ref.name) if there is not None else None
        if before is not None and before.connection != connection_named(body):
            self._leave_line(uid, before)
        claim = _claim(body, spec) if spec is not None else None
        undid = _undid(body, spec) if spec is not None else None
        self._known[uid] = _Known(version, namespace_of(body), connection_named(body), claim, other, undid)
        ahead = None
        if uid in self._written:
            self._written.discard(uid)
            ahead = self._ahead.pop(uid, None)
        if claim is None or not claim.under_way:
            self._begun.pop(uid, None)
        elif ahead is not None:
            self._begun[uid] = ahead.groups
        self._put(uid)

    def began_with(self, uid: str, groups: tuple[str, ...]) -> None:
        """What a run under way may change, as the document of it says."""
        if uid in self._known and self._begun.get(uid) != groups:
            self._begun[uid] = groups
            self._put(uid)

    def forget(self, uid: str) -> None:
        """The reset is gone."""
        self._note_meanwhile(uid)
        self._drop(uid)
        self._known.pop(uid, None)
        self._written.discard(uid)
        self._ahead.pop(uid, None)
        self._begun.pop(uid, None)

    def is_written(self, uid: str) -> None:
        """The status of one that may go ahead is about to say so: whatever comes of the write, it is taken for begun
        until its next version was seen."""
        if uid in self._ahead:
            self._written.add(uid)

    def is_not_written(self, uid: str) -> None:
        """For sure: the write was not begun."""
        self._written.discard(uid)

    def give_back(self, uid: str) -> None:
        """It does not go ahead after all, unless its status may say so."""
        if uid not in self._written and self._ahead.pop(uid, None) is not None:
            self._put(uid)

    @property
    def lines(self) -> int:
        """How many lines for a quota somebody is in."""
        return len(self._lines)

    # --- asking -------------------------------------------------------------------------------------------------------

    async def in_the_way(self, body: Object, spec: OffsetResetSpec, live: Live) -> Refusal | None:
        """The resource that resets, or is to reset first, a group that this one wants, or those that use up the
        connection's quota; or why its group can't be described (``UNDESCRIBED``). ``None``: this one may go ahead, and
        from now on it is in the way of others, until ``give_back``."""
        try:
            snapshot = await self._parts.observer.newest(live.uid, group=spec.group)
        except NotLookedAt:
            return not_ready(live.label, "it is being replaced")
        undescribed = snapshot.refused.get(spec.group) if spec.group is not None else None
        if undescribed is not None:
            is_unsupported = isinstance(undescribed, Refused)
            return Refusal(UNSUPPORTED_GROUP if is_unsupported else NOT_AUTHORIZED, f"spec.group: {undescribed}")
        if snapshot.failure is not None:
            return not_ready(live.label, "its cluster does not answer")
        await self._listed()
        # From here on nothing is waited for: of several that ask at once each sees those before it.
        self._renew_clusters()
        mine = _claim_of(body, spec, begun=False)
        mine = replace(mine, cluster_id=live.cluster_id, groups=narrowed(mine.groups, live.allow.groups))
        connection, first = (live.namespace, live.name), self._queue.ahead_of(mine)
        if first is not None:
            doing = f"is resetting {whose(spec)}" if first.under_way else f"is to reset {whose(spec)} first"
            # What others call their resets is not for every namespace.
            who = first.holder if first.namespace == namespace_of(body) else f"an {RESETS.kind} of another namespace"
            why = f"{who} {doing}; only one reset may do this at a time, so this one waits"
            return InLine(reasons.WAITING_FOR_RESET, why, self._line(mine.namespace, connection).older(mine))
        quota, no_room = live.allow.quota, None
        if quota is not None:
            limit = self._queue.compared + _COMPARED
            line = self._line(mine.namespace, connection)
            no_room = line.no_room(
                mine, quota, live.label, lambda claim: self._queue.compared < limit and self._is_held_up(claim)
            )
        if no_room is None:
            self._ahead[mine.uid] = replace(mine, under_way=True)
            self._queue.put(self._ahead[mine.uid])
            self._line(mine.namespace, connection).put(self._ahead[mine.uid])
        return no_room

    async def was_undone(self, body: Object, undone: str, *, since: datetime) -> bool:
        """Whether another reset has undone what this one is to undo, by the resets that there are. ``since``: when the
        undone one ended."""
        await self._listed()
        return any(
            known.undid is not None
            and (known.namespace, known.connection) == (namespace_of(body), connection_named(body))
            and known.undid[0] == undone
            and known.undid[1] >= since
            for uid, known in self._known.items()
            if uid != uid_of(body)
        )

    def _is_held_up(self, claim: Claim) -> bool:
        """Whether one that waits could not run now if there were room for it."""
        known = self._known.get(claim.uid)
        other = self._parts.live.get(*known.other) if known is not None and known.other is not None else None
        is_away = known is not None and known.other is not None and (other is None or other.trouble is not None)
        return is_away or self._queue.ahead_of(claim) is not None

    def _line(self, namespace: str, connection: _Connection) -> Line:
        """Of a connection, that of one namespace: each has a quota of its own."""
        return self._lines[namespace, connection]

    def _leave_line(self, uid: str, known: _Known) -> None:
        """Any name may be asked for: a line that nobody is in is forgotten."""
        line = self._line(known.namespace, known.connection)
        line.drop(uid)
        if line.is_empty:
            del self._lines[known.namespace, known.connection]

    async def _listed(self) -> None:
        """Have all resets known, as the API server had them a moment ago. Raises ``KubeFailure``."""
        now_s = asyncio.get_running_loop().time()
        if self._listed_s is not None and now_s - self._listed_s <= _LISTING_S:
            return
        if self._listing is None:
            self._listing = asyncio.create_task(self._list())
        # Waited for, not awaited: one asker that is cancelled must not end the listing that others wait for.
        listing = self._listing
        await asyncio.wait([listing])
        listing.result()

    async def _list(self) -> None:
        began_s = asyncio.get_running_loop().time()
        self._meanwhile.clear()
        try:
            connections = await in_thread(self._parts.executor, self._parts.kube.list, CONNECTIONS)
            resets = await in_thread(self._parts.executor, self._parts.kube.list, RESETS)
        finally:
            self._listing = None
        self._in_status = {
            (namespace_of(c), name_of(c)): str((c.get("status") or {}).get("clusterId", "")) for c in connections
        }
        self._renew_clusters()
        gone = self._known.keys() - {uid_of(body) for body in resets} - self._meanwhile
        for uid in gone:
            self.forget(uid)
        for body in resets:
            if uid_of(body) in self._known or uid_of(body) not in self._meanwhile:
                self.take(body)
        self._listed_s = began_s

    def _note_meanwhile(self, uid: str) -> None:
        if self._listing is not None:
            self._meanwhile.add(uid)

    def _renew_clusters(self) -> None:
        clusters = {
            **self._in_status,
            **{(c.namespace, c.name): c.cluster_id for c in self._parts.live if c.cluster_id},
        }
        allowed = {(c.namespace, c.name): c.allow for c in self._parts.live}
        if (clusters, allowed) != (self._clusters, self._allowed):
            self._clusters, self._allowed = clusters, allowed
            for uid in self._known:
                self._put(uid)

    def _put(self, uid: str) -> None:
        """Queue what is known of a reset."""
        if uid in self._ahead:
            return
        known = self._known.get(uid)
        cluster_id = self._clusters.get(known.connection, "") if known is not None else ""
        claim = self._allowed_claim(known) if known is not None else None
        if known is None or claim is None or not cluster_id:
            self._drop(uid)
        else:
            claim = replace(claim, cluster_id=cluster_id)
            self._queue.put(claim)
            self._line(known.namespace, known.connection).put(claim)

    def _drop(self, uid: str) -> None:
        """It wants nothing."""
        self._queue.drop(uid)
        known = self._known.get(uid)
        if known is not None:
            self._leave_line(uid, known)

    def _allowed_claim(self, known: _Known) -> Claim | None:
        """Of what it wants, what it may get: whoever only names a connection or a group is in nobody's way."""
        claim = known.claim
        if claim is None:
            return None
        begun = self._begun.get(claim.uid) if claim.under_way else None
        if begun is not None:
            return replace(claim, groups=begun)  # whatever may not be begun any more by now
        live = self._parts.live.used_from(claim.namespace, known.connection)
        if live is None:
            return claim if claim.under_way else None
        groups = narrowed(claim.groups, live.allow.groups)
        if claim.under_way and not groups:
            return claim
        return replace(claim, groups=groups) if groups else None


def not_ready(name: str, why: str) -> Refusal:
    return Refusal(
        reasons.WAITING_FOR_CONNECTION, f"KafkaConnection {name} is not ready ({why}): this reset waits for it"
    )


def whose(spec: OffsetResetSpec) -> str:
    return f"group {spec.group}" if spec.group is not None else f"groups {', '.join(spec.group_patterns)}"


def _claim(body: Object, spec: OffsetResetSpec) -> Claim | None:
    """What another resource wants, where its connection was ever ready.

    ``None``: nothing, or nothing it could get: it has run, was refused or suspended, its plan waits to be approved, it
    waits for the reset that it undoes, or its policy does not ask for it.
    """
    status = status_of(body)
    current = under_way(status)
    if not status_is_readable(body):
        return None if is_over(body) else _claim_of(body, spec, begun=True)
    if current is None:
        refused = is_true(status.conditions, STALLED) and status.observed_generation == body["metadata"]["generation"]
        said = find_condition(status.conditions, COMPLETE)
        waits = said is not None and said.reason in _IN_NOBODYS_WAY
        leaves = refused or waits or body["metadata"].get("deletionTimestamp") or is_suspended(body)
        if is_settled(status) or leaves:
            return None
    elif awaits_approval(current):
        said = find_condition(status.conditions, COMPLETE)
        if said is None or said.reason != reasons.WAITING_FOR_QUOTA:
            return None
        return _claim_of(body, spec, begun=False)  # it is approved, and in line
    return _claim_of(body, spec, begun=current is not None)


def _undid(body: Object, spec: OffsetResetSpec) -> tuple[str, datetime] | None:
    status = status_of(body)
    if spec.to.undo is None or status.phase is not ResetPhase.SUCCEEDED or status.finished_at is None:
        return None
    return spec.to.undo, status.finished_at


def _claim_of(body: Object, spec: OffsetResetSpec, *, begun: bool) -> Claim:
    plan = status_of(body).plan
    return Claim(
        uid=uid_of(body),
        holder=f"{RESETS.kind} {label_of(body)}",
        created=_created(body),
        cluster_id="",
        groups=spec.group_patterns,
        under_way=begun,
        namespace=namespace_of(body),
        partitions=plan.partitions if plan is not None else None,
        undoes=spec.to.undo is not None,
    )


def _created(body: Object) -> datetime:
    return datetime.fromisoformat(str(body["metadata"]["creationTimestamp"]))
