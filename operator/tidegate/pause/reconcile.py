"""One pass over a ``ConsumerGroupPause``: see, decide (:mod:`tidegate.pause.plan`), write the status, act once."""

from __future__ import annotations

import asyncio
import functools
import logging
import weakref
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from typing import Final, assert_never

from tidegate.connection.control_topics import trouble_of
from tidegate.connection.freezing import FrozenMeanwhile, begin
from tidegate.connection.live import Live
from tidegate.kafka.errors import NotAuthorized, Refused
from tidegate.kube.loop import Pass
from tidegate.kube.objects import newest_of, tell_all, tell_once
from tidegate.kube.ports import PAUSES, EventType, KubeEvent, Object, connection_named, label_of, namespace_of, uid_of
from tidegate.kube.unreadable import (
    ABANDON,
    UNREADABLE_AGAIN_S,
    UNREADABLE_STATUS,
    gone_by,
    is_abandoned,
    say_unreadable,
)
from tidegate.pause import plan
from tidegate.pause.holds import HoldChanges
from tidegate.pause.leads import Leads
from tidegate.pause.model import (
    AddFinalizer,
    ChangeHolds,
    Decision,
    LeadGroup,
    RemoveFinalizer,
    Seen,
    SetConnector,
    SetReplicas,
    StopLeading,
    TellKeda,
)
from tidegate.pause.parts import Memory, Parts
from tidegate.pause.plan import decide
from tidegate.pause.reading import Reader, read_spec
from tidegate.pause.release import ABANDONED
from tidegate.pause.scaler import Scaler
from tidegate.pause.stopper import Stopper
from tidegate.resources.base import has_readable_status, read_status
from tidegate.resources.pause import (
    ConsumerGroupPauseSpec,
    PauseMethod,
    PauseStatus,
)
from tidegate.threads import in_thread

_log = logging.getLogger(__name__)

_LEAST_S: Final = 1.0


class PauseReconciler:
    """Implements ``tidegate.kube.loop.Reconciler``."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._memories: dict[str, Memory] = {}
        self._topics = parts.topics
        self._scaler = Scaler(parts.kube, parts.workloads, parts.tick.idle_s)
        self._stopper = Stopper(parts.kube, parts.connect, parts.tick.idle_s)
        self._leads = Leads(parts.kube, parts.leaders)
        self._reader = Reader(parts, self._scaler, self._stopper, self._leads)
        self._locks: weakref.WeakValueDictionary[tuple[str, ...], asyncio.Lock] = weakref.WeakValueDictionary()

    async def reconcile(self, body: Object) -> Pass:
        unreadable = not has_readable_status(PauseStatus, body)
        self._parts.metrics.newer_is(PAUSES.kind, uid_of(body), unreadable)
        if unreadable:
            # It says what workloads are to be given back, and what is paused stays so.
            waits = await self._unreadable(body)
            if waits is not None:
                return waits
        spec, invalid = read_spec(body)
        async with self._alone_with_what_it_stops(body, spec):
            return await self._pass(body, spec, invalid)

    async def _unreadable(self, body: Object) -> Pass | None:
        """A pass over one of which only the newer version knows what it has paused; ``None``: it is given up."""
        parts, now, told = self._parts, self._parts.now(), self._memories.setdefault(uid_of(body), Memory()).told
        has_finalizer = plan.FINALIZER in (body["metadata"].get("finalizers") or ())
        until = gone_by(body, parts.patience.deletion) if has_finalizer else None
        if until is None or not (now > until or is_abandoned(body)):
            body = await say_unreadable(parts.kube, parts.executor, PAUSES, body, now, told, until)
            left_s = UNREADABLE_AGAIN_S if until is None else (until - now).total_seconds()
            return Pass(body, min(UNREADABLE_AGAIN_S, max(_LEAST_S, left_s)))
        why = f"as {ABANDON} asks" if is_abandoned(body) else f"after {parts.patience.deletion}"
        message = (
            f"this pause was given up {why}: this version of Tidegate can't read its status. Workloads that it has "
            "stopped stay at 0 replicas until kubectl scale gives them back, and a connector stays stopped"
        )
        happening = KubeEvent(EventType.WARNING, ABANDONED, message, f"{UNREADABLE_STATUS}/{ABANDONED}")
        await tell_once(parts.kube, parts.executor, body, happening, told)
        return None

    @asynccontextmanager
    async def _alone_with_what_it_stops(self, body: Object, spec: ConsumerGroupPauseSpec | None) -> AsyncIterator[None]:
        """No other pause's pass between this one's look at a workload or connector and what it does to it: one that is
        about to give it back would undo what the other has just called paused."""
        status = read_status(PauseStatus, body)
        refs = {record.ref for record in status.workloads}
        if spec is not None and spec.method is not PauseMethod.AGENT:
            refs |= set(spec.workloads)
        keys = {(namespace_of(body), ref.api_version, ref.kind, ref.name) for ref in refs}
        connectors = {
            (c.cluster, c.name) for c in (status.connector, spec.connector if spec else None) if c is not None
        }
        keys |= {(*connection_named(body), *connector) for connector in connectors}
        async with AsyncExitStack() as stack:
            for key in sorted(keys):
                await stack.enter_async_context(self._locks.setdefault(key, asyncio.Lock()))
            yield

    async def _pass(self, body: Object, spec: ConsumerGroupPauseSpec | None, invalid: str) -> Pass:
        memory = self._memories.setdefault(uid_of(body), Memory())
        live = self._live(body)
        self._reader.want(body, spec, live, memory)
        try:
            seen = await self._reader.read(body, spec, invalid, live, memory)
        except FrozenMeanwhile as frozen:
            return _not_begun(body, frozen)
        seen = replace(seen, tick=replace(seen.tick, pauses=len(self._memories)))
        decision = decide(seen)
        if live is not None and decision.action is None:
            told = await self._reader.with_lag(seen, live, decision.status, memory)
            seen, decision = (seen, decision) if told is seen else (told, decide(told))
            decision = replace(decision, again_after_s=self._reader.until_lag_s(decision))
        if not has_readable_status(PauseStatus, body):
            decision = replace(decision, status=seen.status)  # which is not written over
        body = await self._say(body, seen, decision, memory)
        # What they tell was for this look: it is in the status now.
        memory.scaler.zeroed.clear()
        memory.scaler.annotated.clear()
        try:
            body = await self._act(body, live, decision, memory)
        except FrozenMeanwhile as frozen:
            return _not_begun(body, frozen)
        memory.waits = decision.waits
        # Thousands of pauses are kept: rows that the status has are read from it.
        if decision.rows or memory.rows is not None:
            memory.rows = decision.rows if len(decision.rows) > len(decision.status.partitions) else ()
        memory.tick_s = decision.again_after_s if decision.again_after_s <= self._parts.tick.active_s else None
        # As long as it counts as in progress, no look tells it of anything new.
        self._reader.want(body, spec, live, memory)
        return Pass(body, decision.again_after_s)

    def _live(self, body: Object) -> Live | None:
        began = plan.FINALIZER in (body["metadata"].get("finalizers") or ())
        return self._parts.live.to_finish(body) if began else self._parts.live.used_by(body)

    async def forget(self, body: Object) -> None:
        uid = uid_of(body)
        self._parts.observer.drop(uid)
        self._parts.leaders.forget(uid)
        self._parts.metrics.pause_is(uid, None)
        self._parts.metrics.newer_is(PAUSES.kind, uid, False)
        self._memories.pop(uid, None)

    async def refresh(self, body: Object) -> Object | None:
        return await newest_of(self._parts.kube, self._parts.executor, PAUSES, body)

    # --- say ----------------------------------------------------------------------------------------------------------

    async def _say(self, body: Object, seen: Seen, decision: Decision, memory: Memory) -> Object:
        parts = self._parts
        self._measure(seen, decision, memory)
        await tell_all(parts.kube, parts.executor, body, decision.happenings, memory.told)
        if decision.status != seen.status:
            body = await in_thread(
                self._parts.executor, parts.kube.replace_status, PAUSES, body, decision.status.to_json()
            )
            parts.metrics.wrote_status(PAUSES.kind)
        return body

    def _measure(self, seen: Seen, decision: Decision, memory: Memory) -> None:
        status, metrics = decision.status, self._parts.metrics
        phase = status.phase.value if status.phase is not None else None
        paused, since = status.partitions_paused or 0, decision.paused_since
        metrics.pause_is(seen.uid, phase, paused, since, by_leading=status.leader is not None)
        now_s = asyncio.get_running_loop().time()
        for partition in memory.held_s.keys() & decision.obeyed:
            metrics.hold_acked(now_s - memory.held_s.pop(partition))

    # --- act ----------------------------------------------------------------------------------------------------------

    async def _act(self, body: Object, live: Live | None, decision: Decision, memory: Memory) -> Object:
        finalizers = [f for f in body["metadata"].get("finalizers") or () if f != plan.FINALIZER]
        match decision.action:
            case None:
                pass
            case AddFinalizer():
                # With it the pause has begun, and goes on also through a connection that is frozen.
                add = functools.partial(self._parts.kube.set_finalizers, PAUSES, body, [*finalizers, plan.FINALIZER])
                if live is not None:
                    add = functools.partial(begin, self._parts.live.is_frozen, live, add)
                return await in_thread(self._parts.executor, add)
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
            case SetConnector():
                if live is None:
                    raise ValueError("connectors are stopped through a connection")
                loop = asyncio.get_running_loop()
                await in_thread(
                    self._parts.connect_executor,
                    self._stopper.do,
                    decision.action,
                    live,
                    memory.stopper,
                    self._parts.now().timestamp(),
                )
                memory.wrote_s = loop.time()
            case LeadGroup() | StopLeading():
                if live is None:
                    raise ValueError("groups are led through a connection")
                lead = functools.partial(self._leads.do, decision.action, uid_of(body), live)
                await in_thread(self._parts.executor, lead)
                memory.lead_stopped = isinstance(decision.action, StopLeading)
                memory.lead_asked |= not memory.lead_stopped
            case _:
                assert_never(decision.action)
        return body

    async def _change(self, body: Object, live: Live, changes: HoldChanges, memory: Memory) -> None:
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        try:
            if changes.write:
                await in_thread(self._parts.patient_executor, live.finishing.control.hold, changes.write)
                memory.held_s |= {key.topic_partition: began_s for key in changes.write}
                if memory.refused is not None:
                    memory.refused = None
                    self._topics.forget(live.uid)  # to be told of anew
            if changes.release:
                await in_thread(self._parts.patient_executor, live.finishing.control.release, changes.release)
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


def _not_begun(body: Object, frozen: FrozenMeanwhile) -> Pass:
    _log.info("%s: %s, so the pause does not begin", label_of(body), frozen)
    return Pass(body, 0)
