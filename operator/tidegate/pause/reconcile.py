"""One pass over a ``ConsumerGroupPause``: see, decide (:mod:`tidegate.pause.plan`), write the status, act once."""

from __future__ import annotations

import asyncio
import functools
import logging
import weakref
from collections.abc import AsyncIterator, Callable, Mapping
from concurrent.futures import Executor
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final, TypeVar, assert_never

from tidegate.connection.control_topics import TopicsOfConnections, trouble_of
from tidegate.connection.live import Live, LiveConnections
from tidegate.connection.observer import NotLookedAt, Observer, Snapshot
from tidegate.control.gates import Gates
from tidegate.control.topics import TopicsChecked
from tidegate.kafka.errors import KafkaFailure, NotAuthorized, Refused
from tidegate.kafka.model import Group, GroupState, GroupType, Offsets, TopicPartition
from tidegate.kube.loop import Pass
from tidegate.kube.objects import newest_of, tell_once
from tidegate.kube.ports import PAUSES, Kube, Object, label_of, namespace_of, uid_of
from tidegate.kube.workloads import Workloads
from tidegate.pause import plan
from tidegate.pause.by_scale import is_by_scale
from tidegate.pause.holds import HoldChanges
from tidegate.pause.model import (
    AddFinalizer,
    ChangeHolds,
    Decision,
    Observed,
    Patience,
    Refusal,
    RemoveFinalizer,
    Seen,
    SetReplicas,
    TellKeda,
    Tick,
    Wait,
)
from tidegate.pause.plan import decide, is_over
from tidegate.pause.release import ABANDON
from tidegate.pause.scaler import Scaler, ScalerMemory
from tidegate.pause.workloads import give_back
from tidegate.resources.base import InvalidResource, parse_spec, read_status
from tidegate.resources.pause import (
    ConsumerGroupPauseSpec,
    PausedPartition,
    PauseMethod,
    PausePhase,
    PauseStatus,
    WorkloadRef,
)
from tidegate.service.metrics import Metrics
from tidegate.threads import in_thread

_log = logging.getLogger(__name__)

_LAG_TICKS: Final = 3
"""Lag changes all the time; the status tells it anew once in so many idle ticks."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Parts:
    """What the reconciler acts through. ``now``: the wall clock, aware, UTC.

    ``executor`` is for calls of moments, ``patient_executor`` for writing to Kafka, which may take its time.
    """

    kube: Kube
    live: LiveConnections
    observer: Observer
    executor: Executor
    patient_executor: Executor
    now: Callable[[], datetime]
    metrics: Metrics
    tick: Tick
    patience: Patience
    topics: TopicsOfConnections
    workloads: Workloads


@dataclass(slots=True)
class _Memory:
    """What this process knows of a pause beyond the API server and Kafka; losing it costs nothing but a look.

    Times are the loop's clock. ``wrote_s``: when holds were last written or released, or replicas set; only what was
    read after that tells what is held. ``held_s``: when the holds were written that were not seen obeyed yet.
    """

    told: set[str] = field(default_factory=set)
    waits: Mapping[TopicPartition, Wait] = field(default_factory=dict)
    rows: tuple[PausedPartition, ...] = ()
    tick_s: float | None = 0.0
    wrote_s: float = 0.0
    held_s: dict[TopicPartition, float] = field(default_factory=dict)
    committed: Offsets = field(default_factory=dict)
    committed_s: float | None = None
    lag_s: float | None = None
    refused: TopicsChecked | None = None
    refused_s: float = 0.0
    scaler: ScalerMemory = field(default_factory=ScalerMemory)


class PauseReconciler:
    """Implements ``tidegate.kube.loop.Reconciler``."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._memories: dict[str, _Memory] = {}
        self._topics = parts.topics
        self._scaler = Scaler(parts.kube, parts.workloads, parts.tick.idle_s)
        self._locks: weakref.WeakValueDictionary[tuple[str, WorkloadRef], asyncio.Lock] = weakref.WeakValueDictionary()

    async def reconcile(self, body: Object) -> Pass:
        spec, invalid = _spec(body)
        async with self._alone_with_workloads(body, spec):
            return await self._pass(body, spec, invalid)

    @asynccontextmanager
    async def _alone_with_workloads(self, body: Object, spec: ConsumerGroupPauseSpec | None) -> AsyncIterator[None]:
        """No other pause's pass between this one's look at a workload and what it does to it: one that is about to
        give it back would undo what the other has just called paused."""
        refs = {record.ref for record in read_status(PauseStatus, body).workloads}
        if spec is not None and spec.method is not PauseMethod.AGENT:
            refs |= set(spec.workloads)
        async with AsyncExitStack() as stack:
            for ref in sorted(refs, key=lambda ref: (ref.api_version, ref.kind, ref.name)):
                key = (namespace_of(body), ref)
                await stack.enter_async_context(self._locks.setdefault(key, asyncio.Lock()))
            yield

    async def _pass(self, body: Object, spec: ConsumerGroupPauseSpec | None, invalid: str) -> Pass:
        memory = self._memories.setdefault(uid_of(body), _Memory())
        live = self._parts.live.get(namespace_of(body), spec.connection_ref.name) if spec is not None else None
        self._want(body, spec, live, memory)
        seen = await self._see(body, spec, invalid, live, memory)
        decision = decide(seen)
        if live is not None and self._offsets_are_due(decision, memory):
            seen = await self._with_offsets(seen, live, decision, memory)
            decision = decide(seen)
        body = await self._say(body, seen, decision, memory)
        # What they tell was for this look: it is in the status now.
        memory.scaler.zeroed.clear()
        memory.scaler.annotated.clear()
        body = await self._act(body, live, decision, memory)
        memory.waits, memory.rows = decision.waits, decision.rows
        memory.tick_s = decision.again_after_s if decision.again_after_s <= self._parts.tick.active_s else None
        return Pass(body, decision.again_after_s)

    async def forget(self, body: Object) -> None:
        uid = uid_of(body)
        self._parts.observer.drop(uid)
        self._parts.metrics.pause_is(uid, None)
        self._memories.pop(uid, None)

    async def refresh(self, body: Object) -> Object | None:
        return await newest_of(self._parts.kube, self._parts.executor, PAUSES, body)

    # --- see ----------------------------------------------------------------------------------------------------------

    def _want(self, body: Object, spec: ConsumerGroupPauseSpec | None, live: Live | None, memory: _Memory) -> None:
        uid = uid_of(body)
        if spec is None or live is None:
            self._parts.observer.drop(uid)
            return
        active = memory.tick_s is not None
        tick_s = max(memory.tick_s or 0.0, self._parts.tick.quick_s)
        self._parts.observer.want(uid, live.uid, spec.group, active=active, gates=True, tick_s=tick_s)

    async def _see(
        self, body: Object, spec: ConsumerGroupPauseSpec | None, invalid: str, live: Live | None, memory: _Memory
    ) -> Seen:
        parts, metadata = self._parts, body["metadata"]
        deleting = metadata.get("deletionTimestamp")
        annotations = metadata.get("annotations") or {}
        seen = Seen(
            uid=uid_of(body),
            name=label_of(body),
            generation=int(metadata["generation"]),
            created=datetime.fromisoformat(str(metadata["creationTimestamp"])),
            spec=spec,
            status=read_status(PauseStatus, body),
            now=parts.now(),
            invalid=invalid,
            abandoned=str(annotations.get(ABANDON, "")).lower() == "true",
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
        if spec is None or (deleting and seen.abandoned):
            return seen
        if is_over(seen) and give_back(seen, seen.status.workloads).records:
            return seen  # which takes no Kafka, and does not wait for it
        name = spec.connection_ref.name
        if live is None:
            return replace(seen, waiting=_not_ready(f"there is no usable KafkaConnection {name} in this namespace"))
        if live.trouble is not None:
            return replace(seen, waiting=_not_ready(f"KafkaConnection {name} is not ready ({live.trouble[0]})"))
        by_scale = is_by_scale(spec, seen.status)
        needs_topics = not (deleting or spec.suspend or by_scale)
        # Where nothing was ever held, consumers need no agent, and the control topics no rights.
        needs_gates = not by_scale or seen.status.method is PauseMethod.AGENT
        return await self._observed(seen, spec, live, memory, needs_topics=needs_topics, needs_gates=needs_gates)

    async def _with_workloads(self, seen: Seen, namespace: str, memory: _Memory) -> Seen:
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

    async def _observed(
        self,
        seen: Seen,
        spec: ConsumerGroupPauseSpec,
        live: Live,
        memory: _Memory,
        *,
        needs_topics: bool,
        needs_gates: bool,
    ) -> Seen:
        observer = self._parts.observer
        try:
            snapshot = await observer.newest(live.uid, group=spec.group, gates=True, since_s=memory.wrote_s)
        except NotLookedAt:
            return replace(seen, waiting=_not_ready(f"KafkaConnection {live.name} is just being replaced"))
        try:
            if snapshot.failure is not None:
                raise snapshot.failure
            checked = await self._topics.checked(live, snapshot) if needs_topics else None
            if snapshot.gates_failure is not None and needs_gates:
                raise snapshot.gates_failure
            committed = await self._committed(spec, live, memory) if spec.partitions is None else {}
        except KafkaFailure as failure:
            trouble = trouble_of(live, failure) if failure is snapshot.gates_failure else None
            if trouble is not None:
                return replace(seen, unusable=_unusable(trouble))
            return replace(seen, waiting=_not_ready(f"KafkaConnection {live.name}: {failure}"))
        observed = Observed(
            connection=live.name,
            connection_uid=live.uid,
            allow=live.allow,
            topics=snapshot.topics,
            group=_group(snapshot, spec.group),
            gates=snapshot.gates or Gates(),
            committed=committed,
        )
        if checked is None or (checked.usable and memory.refused is None):
            return replace(seen, observed=observed)
        again = checked.usable and asyncio.get_running_loop().time() - memory.refused_s >= self._parts.tick.idle_s
        unusable = _unusable(memory.refused if checked.usable and memory.refused is not None else checked)
        return replace(seen, observed=observed, unusable=unusable, try_again=again)

    async def _committed(self, spec: ConsumerGroupPauseSpec, live: Live, memory: _Memory) -> Offsets:
        """All the group's offsets: its topics are those that it has offsets for, too."""
        now_s = asyncio.get_running_loop().time()
        if memory.committed_s is None or now_s - memory.committed_s >= self._parts.tick.active_s:
            memory.committed = await in_thread(self._parts.executor, live.kafka.committed, spec.group)
            memory.committed_s = now_s
        return memory.committed

    def _offsets_are_due(self, decision: Decision, memory: _Memory) -> bool:
        paused = [row for row in decision.status.partitions if row.phase is PausePhase.PAUSED]
        if not paused or decision.action is not None:
            return False
        if memory.lag_s is None:
            return True
        waited_s = asyncio.get_running_loop().time() - memory.lag_s
        tick = self._parts.tick
        untold = any(row.lag is None and (row.offset is None or row.offset >= 0) for row in paused)
        return waited_s >= (tick.active_s if untold else _LAG_TICKS * tick.idle_s)

    async def _with_offsets(self, seen: Seen, live: Live, decision: Decision, memory: _Memory) -> Seen:
        memory.lag_s = asyncio.get_running_loop().time()
        if seen.observed is None or seen.spec is None:
            return seen
        rows = [
            TopicPartition(row.topic, row.partition)
            for row in decision.status.partitions
            if row.phase is PausePhase.PAUSED
        ]
        try:
            bounds = await in_thread(self._parts.executor, live.kafka.log_bounds, rows)
            committed = await in_thread(self._parts.executor, live.kafka.committed, seen.spec.group)
        except KafkaFailure as failure:
            # They are only told; the pause does not depend on them.
            _log.debug("%s: its lag could not be read: %s", seen.name, failure)
            return seen
        ends = {partition: bound.latest for partition, bound in bounds.items()}
        return replace(seen, observed=replace(seen.observed, committed=committed, log_ends=ends))

    # --- say ----------------------------------------------------------------------------------------------------------

    async def _say(self, body: Object, seen: Seen, decision: Decision, memory: _Memory) -> Object:
        parts = self._parts
        self._measure(seen, decision, memory)
        for happening in decision.happenings:
            await tell_once(parts.kube, parts.executor, body, happening, memory.told)
        if decision.status != seen.status:
            body = await in_thread(
                self._parts.executor, parts.kube.replace_status, PAUSES, body, decision.status.to_json()
            )
            parts.metrics.wrote_status(PAUSES.kind)
        return body

    def _measure(self, seen: Seen, decision: Decision, memory: _Memory) -> None:
        status, metrics = decision.status, self._parts.metrics
        phase = status.phase.value if status.phase is not None else None
        metrics.pause_is(seen.uid, phase, status.partitions_paused or 0, decision.paused_since)
        now_s = asyncio.get_running_loop().time()
        for partition in memory.held_s.keys() & decision.obeyed:
            metrics.hold_acked(now_s - memory.held_s.pop(partition))

    # --- act ----------------------------------------------------------------------------------------------------------

    async def _act(self, body: Object, live: Live | None, decision: Decision, memory: _Memory) -> Object:
        finalizers = [f for f in body["metadata"].get("finalizers") or () if f != plan.FINALIZER]
        match decision.action:
            case None:
                pass
            case AddFinalizer():
                return await in_thread(
                    self._parts.executor, self._parts.kube.set_finalizers, PAUSES, body, [*finalizers, plan.FINALIZER]
                )
            case RemoveFinalizer():
                return await in_thread(self._parts.executor, self._parts.kube.set_finalizers, PAUSES, body, finalizers)
            case ChangeHolds(changes):
                if live is None:
                    raise ValueError("holds are changed through a connection")
                await self._change(body, live, changes, memory)
            case SetReplicas() | TellKeda():
                loop = asyncio.get_running_loop()
                await in_thread(
                    self._parts.executor,
                    self._scaler.do,
                    namespace_of(body),
                    decision.action,
                    memory.scaler,
                    loop.time(),
                )
                memory.wrote_s = loop.time()
            case _:
                assert_never(decision.action)
        return body

    async def _change(self, body: Object, live: Live, changes: HoldChanges, memory: _Memory) -> None:
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        try:
            if changes.write:
                await in_thread(self._parts.patient_executor, live.kafka.control.hold, changes.write)
                memory.held_s |= {key.topic_partition: began_s for key in changes.write}
                if memory.refused is not None:
                    memory.refused = None
                    self._topics.forget(live.uid)  # to be told of anew
            if changes.release:
                await in_thread(self._parts.patient_executor, live.kafka.control.release, changes.release)
                for key in changes.release:
                    memory.held_s.pop(key.topic_partition, None)
        except (NotAuthorized, Refused) as failure:
            # Said in the condition by the next pass, and tried again after a while.
            memory.refused, memory.refused_s = trouble_of(live, failure), loop.time()
            if memory.refused is not None:
                self._parts.live.topics_checked(live, memory.refused)
            _log.warning("%s: %s", label_of(body), failure)
            return
        finally:
            # Also when it failed: what of it is there is to be read, not guessed.
            memory.wrote_s = loop.time()
        _log.info("%s: wrote %d hold(s), released %d", label_of(body), len(changes.write), len(changes.release))


def _not_ready(why: str) -> Refusal:
    return Refusal(plan.WAITING_FOR_CONNECTION, f"{why}: it waits for it")


def _unusable(trouble: TopicsChecked) -> Refusal:
    return Refusal(plan.CONTROL_TOPICS_UNUSABLE, trouble.message)


def _group(snapshot: Snapshot, group_id: str) -> Group:
    return snapshot.groups.get(group_id) or Group(group_id, GroupState.DEAD, GroupType.UNKNOWN)


def _spec(body: Object) -> tuple[ConsumerGroupPauseSpec | None, str]:
    try:
        return parse_spec(ConsumerGroupPauseSpec, body), ""
    except InvalidResource as invalid:
        return None, str(invalid)
