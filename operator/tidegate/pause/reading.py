"""What a pass over a ``ConsumerGroupPause`` decides by: its spec, its workloads, and what Kafka and the agents say."""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Collection
from dataclasses import replace
from datetime import datetime
from typing import Final

from tidegate.connection.control_topics import trouble_of
from tidegate.connection.freezing import frozen
from tidegate.connection.live import Live
from tidegate.connection.observer import NotLookedAt
from tidegate.connection.read_only import observes
from tidegate.connection.sharing import is_foreign, not_usable, refusal
from tidegate.connection.watched import Snapshot
from tidegate.control.gates import Gates
from tidegate.control.topics import TopicsChecked
from tidegate.kafka.errors import KafkaFailure, NotAuthorized
from tidegate.kafka.model import Group, GroupState, GroupType, Offsets, TopicPartition
from tidegate.kafka.names import is_allowed, is_pattern
from tidegate.kube.ports import Object, label_of, namespace_of, uid_of
from tidegate.kube.unreadable import is_abandoned
from tidegate.pause import connectors, plan
from tidegate.pause.by_connect import is_by_connect
from tidegate.pause.by_leading import is_by_leading
from tidegate.pause.by_scale import is_by_scale
from tidegate.pause.holds import Covered, own_holds
from tidegate.pause.leads import Leads
from tidegate.pause.model import Decision, LookedAtConnector, Observed, Seen
from tidegate.pause.parts import Memory, Parts
from tidegate.pause.plan import is_over
from tidegate.pause.release import is_led
from tidegate.pause.scaler import Scaler
from tidegate.pause.stopper import CONNECT_UNAVAILABLE, Stopper
from tidegate.pause.workloads import give_back
from tidegate.resources.base import InvalidResource, parse_spec, read_status
from tidegate.resources.conditions import OBSERVING, Refusal
from tidegate.resources.pause import (
    ConsumerGroupPauseSpec,
    PausedPartition,
    PauseMethod,
    PausePhase,
    PauseStatus,
    WorkloadRef,
)
from tidegate.threads import in_thread

_log = logging.getLogger(__name__)

_LAG_S: Final = 30.0
"""Lag changes all the time, and each change of a status is a write that all who watch it are told of: the status tells
it anew no more often than this, whatever the ticks are."""


def read_spec(body: Object) -> tuple[ConsumerGroupPauseSpec | None, str]:
    """The spec, or what is wrong with it."""
    try:
        return parse_spec(ConsumerGroupPauseSpec, body), ""
    except InvalidResource as invalid:
        return None, str(invalid)


class Reader:
    """Reads what a pause is decided by, each pass as much as it needs."""

    def __init__(self, parts: Parts, scaler: Scaler, stopper: Stopper, leads: Leads) -> None:
        self._leads = leads
        self._parts = parts
        self._scaler = scaler
        self._stopper = stopper

    def want(self, body: Object, spec: ConsumerGroupPauseSpec | None, live: Live | None, memory: Memory) -> None:
        """Have the observer look at the pause's group as often as it needs; at nothing where it needs none."""
        uid = uid_of(body)
        if spec is None or live is None:
            self._parts.observer.drop(uid)
            return
        active = memory.tick_s is not None
        tick_s = max(memory.tick_s or 0.0, self._parts.tick.quick_s)
        self._parts.observer.want(uid, live.uid, spec.group, active=active, gates=True, tick_s=tick_s)

    async def read(
        self, body: Object, spec: ConsumerGroupPauseSpec | None, invalid: str, live: Live | None, memory: Memory
    ) -> Seen:
        """All that is needed before deciding; what Kafka does not tell now is said in ``waiting`` or ``unusable``."""
        parts, metadata = self._parts, body["metadata"]
        deleting = metadata.get("deletionTimestamp")
        seen = Seen(
            uid=uid_of(body),
            name=label_of(body),
            generation=int(metadata["generation"]),
            created=datetime.fromisoformat(str(metadata["creationTimestamp"])),
            spec=spec,
            status=read_status(PauseStatus, body),
            now=parts.now(),
            invalid=invalid,
            abandoned=is_abandoned(body),
            deleting_since=datetime.fromisoformat(deleting) if deleting else None,
            has_finalizer=plan.FINALIZER in (metadata.get("finalizers") or ()),
            waits=memory.waits,
            rows=memory.rows,
            patience=parts.patience,
            tick=parts.tick,
        )
        if deleting and not seen.has_finalizer:
            return seen
        seen = await self._with_workloads(seen, namespace_of(body), memory)
        seen = await self._with_connector(seen, live, memory)
        seen = self._with_lead(seen, live, memory)
        if (deleting and seen.abandoned) or (spec is None and not deleting):
            return seen
        goes_back = give_back(seen, seen.status.workloads).records or connectors.give_back(seen).record is not None
        goes_back = goes_back or is_led(seen)
        if is_over(seen) and goes_back:
            return seen  # which takes no Kafka, and does not wait for it
        if live is None and is_foreign(body) and not seen.has_finalizer:
            return replace(seen, not_for_it=refusal(body))
        if live is None:
            return replace(seen, waiting=_not_ready(not_usable(body)))
        if live.trouble is not None:
            return replace(seen, waiting=_not_ready(f"KafkaConnection {live.label} is not ready ({live.trouble[0]})"))
        held_back = _held_back(live) if not live.withdrawn and not seen.has_finalizer else None
        if held_back is not None:
            return replace(seen, observing=held_back)
        trouble = seen.connector.trouble
        if trouble is not None and trouble.reason == CONNECT_UNAVAILABLE and not (is_over(seen) or live.withdrawn):
            return replace(seen, waiting=trouble)
        if spec is None:
            return await self._with_holds(seen, live, memory)
        by_others = is_by_scale(spec, seen.status) or is_by_connect(spec) or is_by_leading(spec)
        needs_topics = not (deleting or spec.suspend or by_others or live.withdrawn)
        # Where nothing was ever held, consumers need no agent, and the control topics no rights.
        needs_gates = not by_others or seen.status.method is PauseMethod.AGENT
        found = await self._observed(seen, spec, live, memory, needs_topics=needs_topics, needs_gates=needs_gates)
        # What it holds is released once that is seen.
        return replace(found, not_for_it=refusal(body)) if live.withdrawn and found.observed is not None else found

    async def _with_workloads(self, seen: Seen, namespace: str, memory: Memory) -> Seen:
        refs: list[WorkloadRef] = [record.ref for record in seen.status.workloads]
        if seen.spec is not None and not is_over(seen) and is_by_scale(seen.spec, seen.status):
            refs += [workload for workload in seen.spec.workloads if workload not in refs]
        if not refs:
            return seen
        now_s = asyncio.get_running_loop().time()
        raises = seen.deleting_since is None
        look = functools.partial(self._scaler.look, raises=raises)
        found = await in_thread(
            self._parts.executor, look, namespace, seen.uid, seen.status, refs, memory.scaler, now_s
        )
        return replace(seen, workloads=found)

    async def _with_connector(self, seen: Seen, live: Live | None, memory: Memory) -> Seen:
        record = seen.status.connector
        asked = seen.spec.connector if seen.spec is not None and not is_over(seen) else None
        named = (record.cluster, record.name) if record is not None else None
        if named is None and asked is not None:
            named = (asked.cluster, asked.name)
        if named is None:
            return seen
        group = seen.spec.group if seen.spec is not None else ""
        if live is not None and record is None and not is_allowed(group, live.allow.groups):
            # Who may not pause the group is told nothing of its connector, nor whether the workers answer.
            return seen
        if live is None:
            trouble = Refusal(
                plan.WAITING_FOR_CONNECTION, "the KafkaConnection that has the Connect cluster is not open"
            )
            return replace(seen, connector=LookedAtConnector(trouble=trouble))
        now_s = seen.now.timestamp()
        look = functools.partial(self._stopper.look, seen.uid, live, *named, record, memory.stopper, now_s)
        return replace(seen, connector=await in_thread(self._parts.connect_executor, look))

    def _with_lead(self, seen: Seen, live: Live | None, memory: Memory) -> Seen:
        record, spec = seen.status.leader, seen.spec
        if spec is None or (record is None and not is_by_leading(spec)):
            return seen
        covers = Covered(spec, live.allow.topics) if live is not None and not is_over(seen) else None
        looked = self._leads.look(seen.uid, spec.group, record, live, covers)
        return replace(seen, leading=replace(looked, is_stopped=memory.lead_stopped, is_asked=memory.lead_asked))

    async def _with_holds(self, seen: Seen, live: Live, memory: Memory) -> Seen:
        """What a pause holds that is being deleted, where its spec can't be read: holds say whose they are."""
        try:
            snapshot = await self._parts.observer.newest(live.uid, gates=True, since_s=memory.wrote_s)
        except NotLookedAt:
            return replace(seen, waiting=_not_ready(f"KafkaConnection {live.label} is being replaced"))
        failure = snapshot.failure or snapshot.gates_failure
        if failure is not None:
            return replace(seen, waiting=_not_ready(f"KafkaConnection {live.label}: {_told(failure, live)}"))
        observed = Observed(live.label, live.uid, live.allow, {}, _group(snapshot, ""), snapshot.gates or Gates())
        return replace(seen, observed=observed)

    async def _observed(
        self,
        seen: Seen,
        spec: ConsumerGroupPauseSpec,
        live: Live,
        memory: Memory,
        *,
        needs_topics: bool,
        needs_gates: bool,
    ) -> Seen:
        observer = self._parts.observer
        try:
            snapshot = await observer.newest(live.uid, group=spec.group, gates=True, since_s=memory.wrote_s)
        except NotLookedAt:
            return replace(seen, waiting=_not_ready(f"KafkaConnection {live.label} is being replaced"))
        try:
            if snapshot.failure is not None:
                raise snapshot.failure
            checked = await self._topics(seen, live, snapshot) if needs_topics else None
            if snapshot.gates_failure is not None and needs_gates:
                raise snapshot.gates_failure
            is_over = seen.deleting_since is not None or spec.suspend or live.withdrawn
            committed = await self._committed(spec, live, memory) if spec.partitions is None and not is_over else {}
            names = _topics_of(seen, spec, snapshot, committed)
            topics = {} if is_over else await observer.topics(live.uid, names, self._age_s(memory, names))
        except NotLookedAt:
            return replace(seen, waiting=_not_ready(f"KafkaConnection {live.label} is being replaced"))
        except KafkaFailure as failure:
            trouble = trouble_of(live, failure) if failure is snapshot.gates_failure else None
            if trouble is not None:
                return replace(seen, unusable=_unusable(trouble))
            return replace(seen, waiting=_not_ready(f"KafkaConnection {live.label}: {_told(failure, live)}"))
        observed = Observed(
            connection=live.label,
            connection_uid=live.uid,
            allow=live.allow,
            topics=topics,
            group=_group(snapshot, spec.group),
            gates=snapshot.gates or Gates(),
            committed=committed,
        )
        if checked is None or (checked.usable and memory.refused is None):
            return replace(seen, observed=observed)
        again = checked.usable and asyncio.get_running_loop().time() - memory.refused_s >= self._parts.tick.idle_s
        unusable = _unusable(memory.refused if checked.usable and memory.refused is not None else checked)
        return replace(seen, observed=observed, unusable=unusable, try_again=again)

    async def _topics(self, seen: Seen, live: Live, snapshot: Snapshot) -> TopicsChecked:
        return await self._parts.topics.checked(live, snapshot, has_begun=seen.has_finalizer)

    async def _committed(self, spec: ConsumerGroupPauseSpec, live: Live, memory: Memory) -> Offsets:
        """All the group's offsets: its topics are those that it has offsets for, too."""
        return await self._parts.observer.committed(live.uid, spec.group, self._age_s(memory))

    def _age_s(self, memory: Memory, names: Collection[str] | None = ()) -> float:
        """How old what Kafka tells may be, beside groups and gates. A list of all topics may be as old as a look at
        rest, whatever is under way."""
        tick = self._parts.tick
        if names is None:
            return tick.idle_s
        return tick.active_s if memory.tick_s is not None else tick.idle_s / 2

    async def with_lag(self, seen: Seen, live: Live, status: PauseStatus, memory: Memory) -> Seen:
        """With the offsets that the lag of what ``status`` calls paused is told from, where it is to be told anew; else
        ``seen`` itself."""
        rows = [row for row in status.partitions if row.phase is PausePhase.PAUSED]
        if seen.observed is None or seen.spec is None or not rows:
            return seen
        first = memory.lag_s is None
        # Gates tell where they closed; what else stands still, the offsets that were committed until then.
        is_exact = seen.status.method is not PauseMethod.LEADING
        if not self._lag_is_due(rows, memory):
            return seen
        memory.lag_s = asyncio.get_running_loop().time()
        age_s = self._parts.tick.active_s * is_exact if first else self._parts.tick.idle_s
        partitions = [TopicPartition(row.topic, row.partition) for row in rows]
        try:
            committed = await self._parts.observer.committed(live.uid, seen.spec.group, age_s)
            ends = await self._parts.observer.log_ends(live.uid, partitions, age_s)
        except (KafkaFailure, NotLookedAt) as failure:
            # They are only told; the pause does not depend on them.
            _log.debug("%s: its lag could not be read: %s", seen.name, failure)
            return seen
        return replace(seen, observed=replace(seen.observed, committed=committed, log_ends=ends))

    def until_lag_s(self, decision: Decision) -> float:
        """When to look again, so that the lag of what has just stopped is told soon."""
        stopped = [row for row in decision.status.partitions if row.phase is PausePhase.PAUSED]
        return min(decision.again_after_s, self._parts.tick.idle_s) if _has_untold(stopped) else decision.again_after_s

    def _lag_is_due(self, rows: Collection[PausedPartition], memory: Memory) -> bool:
        untold = _has_untold(rows)
        now_s = asyncio.get_running_loop().time()
        if memory.lag_s is None:
            # What is told already an earlier process may have told just now.
            memory.lag_s = now_s
            return untold
        return now_s - memory.lag_s >= (self._parts.tick.active_s if untold else _LAG_S)


def _has_untold(rows: Collection[PausedPartition]) -> bool:
    return any(row.lag is None and (row.offset is None or row.offset >= 0) for row in rows)


def _told(failure: KafkaFailure, live: Live) -> str:
    """What looks for all namespaces together have met may name groups of any of them; a missing right is one's own."""
    if live.is_foreign and not isinstance(failure, NotAuthorized):
        return "its cluster did not answer as it should"
    return str(failure)


def _not_ready(why: str) -> Refusal:
    return Refusal(plan.WAITING_FOR_CONNECTION, f"{why}: this pause waits for it")


def _unusable(trouble: TopicsChecked) -> Refusal:
    return Refusal(plan.CONTROL_TOPICS_UNUSABLE, trouble.message)


def _topics_of(
    seen: Seen, spec: ConsumerGroupPauseSpec, snapshot: Snapshot, committed: Offsets
) -> frozenset[str] | None:
    """The topics that the pause may be about; ``None``: any."""
    if spec.partitions is not None:
        named = frozenset(selection.topic for selection in spec.partitions)
        return None if any(map(is_pattern, named)) else named
    read = {p.topic for p in (*_group(snapshot, spec.group).assigned, *committed)}
    held = {key.topic for key in own_holds(snapshot.gates, seen.uid)} if snapshot.gates is not None else set()
    return frozenset(read | held | {row.topic for row in seen.status.partitions})


def _group(snapshot: Snapshot, group_id: str) -> Group:
    return snapshot.groups.get(group_id) or Group(group_id, GroupState.DEAD, GroupType.UNKNOWN)


def _held_back(live: Live) -> Refusal | None:
    """Why a pause that holds nothing yet may not begin."""
    if live.observes:
        return Refusal(OBSERVING, f"{observes(live.label)}. This pause does not begin")
    return frozen(live)
