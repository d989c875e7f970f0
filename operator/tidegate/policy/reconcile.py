"""One pass over an ``OffsetResetPolicy``: see, decide, write the status, act once.

What is decided about its run is in :mod:`tidegate.reset.runs.decisions`.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Final, assert_never

from tidegate.connection.observer import NotLookedAt
from tidegate.jobs.errors import RunnerFailure
from tidegate.kafka.errors import KafkaFailure
from tidegate.kube.loop import Pass
from tidegate.kube.ports import (
    POLICIES,
    KubeFailure,
    NotFound,
    Object,
    label_of,
    name_of,
    namespace_of,
    owner_reference,
    uid_of,
)
from tidegate.policy.begin import Beginning
from tidegate.policy.ends import RUN_ENDS
from tidegate.policy.feature import PolicyView
from tidegate.policy.parts import Memories, Memory, Parts
from tidegate.policy.runs import PolicyRuns, read_spec
from tidegate.policy.supervise import Supervision
from tidegate.reset.document import StoreFailure
from tidegate.reset.model import (
    Phase,
)
from tidegate.reset.runs import actions, reasons
from tidegate.reset.runs.actions import (
    AddFinalizer,
    Approve,
    CreateRun,
    Decision,
    Fence,
    Halt,
    RemoveFinalizer,
    TakeOver,
)
from tidegate.reset.runs.decisions import decide
from tidegate.reset.runs.request import (
    run_name,
)
from tidegate.reset.runs.seen import Seen, awaits_approval, history_of, is_settled, run_id_of, under_way
from tidegate.reset.store import ForeignRun, ForgedRun, RunNotFound, StaleAttempt
from tidegate.resources.base import read_status
from tidegate.resources.conditions import RESET, find_condition
from tidegate.resources.policy import OffsetResetPolicySpec, PolicyStatus
from tidegate.resources.reset import ResetPhase
from tidegate.threads import in_thread

_log = logging.getLogger(__name__)

_KEEP_AGAIN_S: Final = 2.0


class PolicyReconciler:
    """Implements ``tidegate.kube.loop.Reconciler``."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._memories = Memories()
        self._runs = PolicyRuns(parts)
        self._beginning = Beginning(parts, self._runs)
        self._supervision = Supervision(parts, self._runs, self._memories)
        parts.metrics.runs_may_end(RUN_ENDS)

    async def reconcile(self, body: Object) -> Pass:
        spec, invalid = read_spec(body)
        status = read_status(PolicyStatus, body)
        wanted = spec.reset if spec is not None else None
        self._beginning.want(body, spec, active=run_id_of(status, wanted) is not None)
        current = under_way(status)
        begins = wanted is not None and current is None and not is_settled(status, wanted)
        may_go_ahead = current is not None and current.approved_digest is None and reasons.APPROVE in _annotations(body)
        if (begins or may_go_ahead) and not body["metadata"].get("deletionTimestamp"):
            async with self._beginning.admission:
                return await self._pass(body, spec, invalid, status)
        return await self._pass(body, spec, invalid, status)

    async def forget(self, body: Object) -> None:
        uid = uid_of(body)
        for feature in self._parts.features:
            await feature.forget(uid)
        self._parts.observer.drop(uid)
        self._parts.metrics.run_is(uid, None)
        self._memories.forget(uid)

    async def refresh(self, body: Object) -> Object | None:
        try:
            fresh = await in_thread(
                self._parts.executor, self._parts.kube.get, POLICIES, namespace_of(body), name_of(body)
            )
        except NotFound:
            return None
        return fresh if uid_of(fresh) == uid_of(body) else None

    async def _pass(self, body: Object, spec: OffsetResetPolicySpec | None, invalid: str, status: PolicyStatus) -> Pass:
        seen = await self._see(body, spec, invalid, status)
        decision = await self._kept(body, seen, decide(seen))
        body = await self._say(body, seen, decision)
        memory = self._memories.of(body)
        try:
            body = await self._act(body, seen, decision)
        except (KafkaFailure, StoreFailure, RunnerFailure, TimeoutError) as error:
            # Said in the condition by the next pass, which the loop's backoff delays.
            memory.trouble = str(error)
            raise
        except ForgedRun as forged:
            # Of a fleet, this may be the document of one of its groups, which no pass looks at by itself.
            memory.forged = str(forged)
            return Pass(body, 0)
        except (RunNotFound, StaleAttempt) as error:
            _log.info("%s: %s", label_of(body), error)
        else:
            if decision.action is not None:
                memory.trouble = ""
        return Pass(body, decision.again_after_s)

    # --- keep ---------------------------------------------------------------------------------------------------------

    async def _kept(self, body: Object, seen: Seen, decision: Decision) -> Decision:
        """The decision, with what the features did beside it. One that fails does not hold up the reset."""
        spec, memory = seen.spec, self._memories.of(body)
        live = self._parts.live.get(namespace_of(body), spec.connection_ref.name) if spec is not None else None
        if spec is None or seen.deleting_since is not None or spec.groups is not None:
            return decision
        if live is None:
            for feature in self._parts.features:
                await feature.disconnected(seen.uid)
        if live is None or live.trouble is not None:
            again_after_s = _KEEP_AGAIN_S if spec.keeps_something else decision.again_after_s
            return replace(decision, again_after_s=min(decision.again_after_s, again_after_s))
        for feature in self._parts.features:
            policy = PolicyView(
                body, spec, decision.status, live, seen.now, resetting=under_way(decision.status) is not None
            )
            try:
                kept = await feature.reconcile(policy)
            except (KafkaFailure, KubeFailure, NotLookedAt) as failure:
                if str(failure) != memory.keeping:
                    memory.keeping = str(failure)
                    _log.warning("%s: %s; again soon", label_of(body), failure)
                decision = replace(decision, again_after_s=min(decision.again_after_s, _KEEP_AGAIN_S))
            else:
                memory.keeping = ""
                decision = replace(
                    decision,
                    status=kept.status,
                    happenings=(*decision.happenings, *kept.happenings),
                    again_after_s=min(decision.again_after_s, kept.again_after_s),
                )
        return decision

    # --- see ----------------------------------------------------------------------------------------------------------

    async def _see(self, body: Object, spec: OffsetResetPolicySpec | None, invalid: str, status: PolicyStatus) -> Seen:
        parts, metadata, annotations = self._parts, body["metadata"], _annotations(body)
        deleting = metadata.get("deletionTimestamp")
        wanted = spec.reset if spec is not None else None
        run_id = run_id_of(status, wanted)
        seen = Seen(
            uid=uid_of(body),
            generation=int(metadata["generation"]),
            spec=spec,
            status=status,
            now=parts.clock.now(),
            invalid=invalid,
            approval=annotations.get(reasons.APPROVE),
            abandoned=str(annotations.get(reasons.ABANDON, "")).lower() == "true",
            deleting_since=datetime.fromisoformat(deleting) if deleting else None,
            has_finalizer=reasons.FINALIZER in (metadata.get("finalizers") or ()),
            deletion_limit=parts.deletion_limit,
            max_launches=parts.max_launches,
            tick_s=parts.active_tick_s,
            trouble=self._memories.of(body).trouble,
            unhalted=self._memories.of(body).unhalted,
        )
        if run_id is None:
            return seen
        if under_way(status) is None and history_of(status, run_id) is not None:
            return seen  # an id that ran before: its document is not looked at
        document = run_name(name_of(body), uid_of(body), run_id)
        memory = self._memories.of(body)
        try:
            run = await self._runs.load(body, run_id)
        except ForgedRun as forged:
            return replace(seen, run_document=document, forged=str(forged), halted=memory.halted == run_id)
        except ForeignRun as foreign:
            return replace(seen, run_document=document, foreign=str(foreign), halted=memory.halted == run_id)
        current = under_way(status)
        found_out = memory.forged if current is not None else ""
        seen = replace(seen, run_document=document, run=run, forged=found_out, halted=memory.halted == run_id)
        if current is not None and run is not None:
            runner = await self._supervision.seen(body, spec, current)
            seen = replace(seen, runner=runner, connected=self._runs.is_connected(body, run))
            if seen.approval is not None and seen.approval == run.digest and current.approved_digest is None:
                return replace(seen, behind=await self._beginning.ahead_of(body, spec))
            return seen
        if run is None and spec is not None and wanted is not None and wanted.id == run_id and not deleting:
            return replace(seen, start=await self._beginning.start(body, spec, wanted, current))
        return seen

    # --- say ----------------------------------------------------------------------------------------------------------

    async def _say(self, body: Object, seen: Seen, decision: Decision) -> Object:
        parts, memory = self._parts, self._memories.of(body)
        for happening in decision.happenings:
            if happening.key not in memory.told:
                await in_thread(self._parts.executor, parts.kube.record, body, happening)
                memory.told.add(happening.key)
        reset = decision.status.reset
        parts.metrics.run_is(seen.uid, None if reset is None else reset.phase.value, waiting=decision.waiting)
        if decision.status != seen.status:
            if _goes_ahead(seen, decision):
                self._beginning.begun()
            body = await in_thread(
                self._parts.executor, parts.kube.replace_status, POLICIES, body, decision.status.to_json()
            )
            parts.metrics.wrote_status(POLICIES.kind)
            self._count_end(memory, seen, decision)
        return body

    def _count_end(self, memory: Memory, seen: Seen, decision: Decision) -> None:
        reset = decision.status.reset
        if reset is None or seen.under_way is None or not Phase(reset.phase.value).is_final:
            return
        plan, said = reset.plan, find_condition(decision.status.conditions, RESET)
        self._parts.metrics.run_finished(
            reset.phase.value,
            said.reason if said is not None else reset.phase.value,
            standstill_s=reset.standstill.max.total_seconds() if reset.standstill is not None else None,
            replayed=(plan.records_replayed or 0) if plan is not None else 0,
            skipped=(plan.records_skipped or 0) if plan is not None else 0,
        )
        memory.launched.clear()
        memory.fenced, memory.dead, memory.died_at, memory.forged = 0, "", None, ""
        memory.halted, memory.unhalted = "", ""

    # --- act ----------------------------------------------------------------------------------------------------------

    async def _act(self, body: Object, seen: Seen, decision: Decision) -> Object:
        parts, action = self._parts, decision.action
        finalizers = [f for f in body["metadata"].get("finalizers") or () if f != reasons.FINALIZER]
        match action:
            case None:
                pass
            case AddFinalizer():
                return await in_thread(
                    self._parts.executor, parts.kube.set_finalizers, POLICIES, body, [*finalizers, reasons.FINALIZER]
                )
            case RemoveFinalizer():
                body = await in_thread(self._parts.executor, parts.kube.set_finalizers, POLICIES, body, finalizers)
                if under_way(decision.status) is not None and seen.run is not None:
                    # The policy goes with its run in mid-flight: nobody will see how that ends.
                    parts.metrics.run_finished(
                        ResetPhase.FAILED.value, reasons.ABANDONED, standstill_s=None, replayed=0, skipped=0
                    )
                return body
            case CreateRun(request):
                binding = self._runs.binding(body, request.run_id)
                store = self._runs.open_store(body, request.run_id, binding, owner_reference(body))
                await in_thread(self._parts.executor, store.create, request)
            case actions.Launch(name):
                await self._supervision.start(body, seen, decision, name)
            case Approve():
                await in_thread(self._parts.executor, self._runs.store(body, seen).approve)
            case Fence(number):
                await self._supervision.fence(body, seen, number)
            case Halt(briefly=True):
                await self._supervision.halt_briefly(body, seen)
            case Halt():
                unstopped = await self._supervision.halt(body, seen)
                if unstopped is not None:
                    raise unstopped
            case TakeOver(reason, message):
                await self._supervision.take_over(body, seen, reason, message)
            case _:
                assert_never(action)
        return body

    # --- parts --------------------------------------------------------------------------------------------------------


# --- checks before a run ----------------------------------------------------------------------------------------------


# --- other policies ---------------------------------------------------------------------------------------------------


def _goes_ahead(seen: Seen, decision: Decision) -> bool:
    """Whether others have to wait from now on."""
    before, now = seen.under_way, under_way(decision.status)
    return now is not None and not awaits_approval(now) and (before is None or awaits_approval(before))


def _annotations(body: Object) -> Mapping[str, str]:
    return body["metadata"].get("annotations") or {}
