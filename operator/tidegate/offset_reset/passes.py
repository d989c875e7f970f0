"""One pass over an ``OffsetReset``: see, decide, write the status, act once.

What is decided about its run is in :mod:`tidegate.reset.runs.decisions`.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime
from typing import assert_never

from tidegate.connection.freezing import FrozenMeanwhile, begin
from tidegate.connection.live import Live
from tidegate.jobs.errors import RunnerFailure
from tidegate.kafka.errors import KafkaFailure
from tidegate.kafka.names import is_allowed
from tidegate.kube.loop import Pass
from tidegate.kube.objects import newest_of, tell_all
from tidegate.kube.ports import RESETS, Object, connection_named, label_of, name_of, owner_reference, uid_of
from tidegate.kube.unreadable import is_abandoned
from tidegate.offset_reset.approval_choice import Approvals
from tidegate.offset_reset.begin import Beginning
from tidegate.offset_reset.ends import RUN_ENDS
from tidegate.offset_reset.kept import Kept
from tidegate.offset_reset.once import Once
from tidegate.offset_reset.parts import Memories, Memory, Parts
from tidegate.offset_reset.pause_at_end import PausesAtEnd
from tidegate.offset_reset.reading import read_spec, status_is_readable, status_of
from tidegate.offset_reset.runs import Runs, document_of
from tidegate.offset_reset.supervise import Supervision
from tidegate.offset_reset.unreadable import Unreadable
from tidegate.reset.document import NewerRun, StoreFailure
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
from tidegate.reset.runs.progress import plan_awaits_approval
from tidegate.reset.runs.replaying import is_held, is_replaying
from tidegate.reset.runs.seen import Seen, awaits_approval, is_settled, under_way
from tidegate.reset.store import ForeignRun, ForgedRun, RunNotFound, StaleAttempt
from tidegate.resources.conditions import COMPLETE, find_condition
from tidegate.resources.offset_reset import OffsetResetSpec, OffsetResetStatus
from tidegate.resources.reset import ResetPhase, has_ended
from tidegate.threads import in_thread

_log = logging.getLogger(__name__)


class ResetPasses:
    """Passes over all ``OffsetReset``s: who is in whose way is decided between them."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._memories = Memories()
        self._runs = Runs(parts)
        self._once = Once(parts)
        self._approvals = Approvals(parts)
        self._kept = Kept(parts, self._runs)
        self._pauses = PausesAtEnd(parts.kube, parts.executor)
        self._beginning = Beginning(parts, self._runs, self._once, self._kept, self._pauses)
        self._supervision = Supervision(parts, self._runs, self._memories)
        self._unreadable = Unreadable(parts, self._memories, self._supervision)
        self._under_way: dict[str, tuple[tuple[str, str], tuple[str, ...] | frozenset[str]]] = {}
        """By resource, the connection and the groups of its run: names and patterns, or names only."""
        self._expected: dict[str, Object] = {}
        """By uid, those with a run that an earlier process has begun, until a pass of this one has looked at it."""
        parts.metrics.runs_may_end(RUN_ENDS)

    async def pass_over(self, body: Object) -> Pass:
        """One pass over the resource, with at most one effect."""
        deleting = body["metadata"].get("deletionTimestamp")
        if not status_is_readable(body):
            # Of another version, perhaps: what it says of a run would be lost, and the run might be begun anew.
            return await self._unreadable.pass_over(body)
        spec, invalid = read_spec(body)
        status = status_of(body)
        current = under_way(status)
        rests = is_settled(status) or (current is not None and awaits_approval(current))
        self._beginning.want(body, None if rests else spec)
        self._beginning.take(body)
        begins = spec is not None and current is None and not is_settled(status)
        may_go_ahead = current is not None and current.approved_digest is None and self._approvals.may_approve(body)
        if (begins or may_go_ahead) and not deleting:
            async with self._beginning.turn(body):
                return await self._pass(body, await self._see(body, spec, invalid, status))
        return await self._pass(body, await self._see(body, spec, invalid, status))

    def expect(self, bodies: Iterable[Object]) -> None:
        """Before the first pass: the resets that there are, some of which an earlier process has begun."""
        for body in bodies:
            current = under_way(status_of(body)) if status_is_readable(body) else None
            if current is not None and not awaits_approval(current) and read_spec(body)[0] is not None:
                self._expected[uid_of(body)] = body

    def is_being_reset(self, live: Live, group: str) -> bool:
        """Whether a run that this process knows of changes the offsets of the group."""
        return self._is_expected(live, group) or any(
            self._is_on_cluster_of(live, connection)
            and (group in groups if isinstance(groups, frozenset) else is_allowed(group, groups))
            for connection, groups in self._under_way.values()
        )

    def _is_expected(self, live: Live, group: str) -> bool:
        return any(
            self._is_on_cluster_of(live, connection_named(body)) and is_allowed(group, self._runs.groups(body))
            for body in self._expected.values()
        )

    def _is_on_cluster_of(self, live: Live, connection: tuple[str, str]) -> bool:
        """Asked only now: a run in its pause may be seen before its connection has reached the cluster."""
        cluster_id = self._parts.live.cluster_id(*connection)
        return connection == (live.namespace, live.name) or (cluster_id != "" and cluster_id == live.cluster_id)

    def forget(self, body: Object) -> None:
        uid = uid_of(body)
        self._under_way.pop(uid, None)
        self._expected.pop(uid, None)
        self._beginning.forget(uid)
        self._parts.observer.drop(uid)
        self._parts.metrics.run_is(uid, None)
        self._parts.metrics.newer_is(RESETS.kind, uid, False)
        self._memories.forget(uid)
        self._runs.forget(uid)

    async def refresh(self, body: Object) -> Object | None:
        """The resource as it is now; ``None`` when it is gone."""
        return await newest_of(self._parts.kube, self._parts.executor, RESETS, body)

    async def _pass(self, body: Object, seen: Seen) -> Pass:
        decision = decide(seen)
        self._parts.metrics.newer_is(RESETS.kind, seen.uid, bool(seen.newer))
        self._note_run(body, seen, decision)
        try:
            body = await self._say(body, seen, decision)
        except FrozenMeanwhile as frozen:
            _log.info("%s: %s, so the reset does not begin", label_of(body), frozen)
            self._under_way.pop(seen.uid, None)
            return Pass(body, 0)
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

    def _note_run(self, body: Object, seen: Seen, decision: Decision) -> None:
        current, fleet = under_way(decision.status), seen.run.fleet if seen.run is not None else None
        if current is None or awaits_approval(current):
            self._under_way.pop(seen.uid, None)
            self._expected.pop(seen.uid, None)
            return
        live = self._parts.live.to_finish(body)
        if seen.spec is not None and live is not None:
            # What else its patterns match is not its own to keep others from.
            groups = frozenset(fleet.planned) if fleet is not None else self._runs.groups(body)
            self._under_way[seen.uid] = ((live.namespace, live.name), groups)
            self._expected.pop(seen.uid, None)

    # --- see ----------------------------------------------------------------------------------------------------------

    async def _see(self, body: Object, spec: OffsetResetSpec | None, invalid: str, status: OffsetResetStatus) -> Seen:
        parts, metadata, annotations = self._parts, body["metadata"], _annotations(body)
        deleting, now = metadata.get("deletionTimestamp"), parts.clock.now()
        memory, limit = self._memories.of(body), parts.deletion_limit
        seen = Seen(
            uid=uid_of(body),
            run_id=name_of(body),
            generation=int(metadata["generation"]),
            spec=spec,
            status=status,
            now=now,
            invalid=invalid,
            annotated=reasons.APPROVE in annotations,
            abandoned=is_abandoned(body),
            deleting_since=memory.deletion_began(datetime.fromisoformat(deleting), now, limit) if deleting else None,
            has_finalizer=reasons.FINALIZER in (metadata.get("finalizers") or ()),
            deletion_limit=limit,
            max_launches=parts.max_launches,
            tick_s=parts.active_tick_s,
            trouble=memory.trouble,
            unhalted=memory.unhalted,
        )
        current = under_way(status)
        if is_settled(status) or (current is None and spec is None):
            return seen
        seen = replace(seen, run_document=document_of(body), halted=memory.halted)
        seen = await self._with_document(body, seen)
        if seen.forged or seen.foreign or seen.newer:
            return seen
        seen = replace(seen, forged=memory.forged if current is not None else "")
        if current is not None and seen.run is not None:
            return await self._under_way_now(body, spec, current, seen)
        if seen.run is None and spec is not None and not deleting:
            return replace(seen, start=await self._beginning.start(body, spec, current))
        return seen

    async def _with_document(self, body: Object, seen: Seen) -> Seen:
        try:
            return replace(seen, run=await self._runs.load(body))
        except ForgedRun as forged:
            return replace(seen, forged=str(forged))
        except ForeignRun as foreign:
            return replace(seen, foreign=str(foreign))
        except NewerRun as newer:
            return replace(seen, newer=str(newer))

    async def _under_way_now(
        self, body: Object, spec: OffsetResetSpec | None, current: OffsetResetStatus, seen: Seen
    ) -> Seen:
        """With its job, and with the approval of its plan."""
        if not awaits_approval(current):
            self._beginning.began_with(body)
        runner = await self._supervision.seen(body, spec, current)
        had_job = runner is not None and runner.has_ended and current.application is not None
        if had_job and seen.run is not None and seen.run.result is None:
            # It may have ended, and well, since its document was read.
            seen = await self._with_document(body, replace(seen, run=None))
            if seen.forged or seen.foreign or seen.newer:
                return seen
        seen = replace(seen, runner=runner, withdrawn=self._runs.is_withdrawn(body))
        if seen.run is None:
            return seen
        seen = replace(seen, connected=self._runs.is_connected(body, seen.run))
        if seen.connected and seen.run is not None and (is_replaying(seen.run) or is_held(seen.run)):
            seen = await self._supervision.look_at_replay(body, seen)
            seen = replace(seen, pause=await self._pauses.seen(body) if is_held(seen.run) else None)
        return await self._approved(body, spec, current, seen)

    async def _approved(
        self, body: Object, spec: OffsetResetSpec | None, current: OffsetResetStatus, seen: Seen
    ) -> Seen:
        """With the approval of a plan that waits for one, and why it has to wait all the same. One that is being
        deleted does not go ahead: it must not be given a turn, which keeps others waiting."""
        run = seen.run
        if run is None or current.approved_digest is not None or not plan_awaits_approval(run):
            return seen
        if seen.deleting_since is not None:
            return seen
        chosen = await self._approvals.chosen(body, run.digest)
        seen = replace(seen, approval=chosen.approval, no_effect=chosen.no_effect)
        if chosen.approval is None:
            return seen
        return replace(seen, behind=await self._beginning.ahead_of(body, spec, run))

    # --- say ----------------------------------------------------------------------------------------------------------

    async def _say(self, body: Object, seen: Seen, decision: Decision) -> Object:
        parts, memory = self._parts, self._memories.of(body)
        begins = decision.begins(seen)
        if not begins:
            await self._tell_all(body, decision)
        phase = decision.status.phase
        parts.metrics.run_is(
            seen.uid,
            None if phase is None else phase.value,
            waiting=decision.waiting,
            since=_went_on_at(decision.status),
        )
        if decision.status != seen.status:
            write = functools.partial(parts.kube.replace_status, RESETS, body, decision.status.to_json())
            live = parts.live.used_by(body) if begins else None
            if live is not None:
                write = functools.partial(begin, parts.live.is_frozen, live, write)
            if decision.goes_ahead(seen):
                self._beginning.is_written(seen.uid)
            try:
                body = await in_thread(parts.executor, write)
            except FrozenMeanwhile:
                self._beginning.is_not_written(seen.uid)
                raise
            self._beginning.take(body)
            parts.metrics.wrote_status(RESETS.kind)
            self._count_end(memory, seen, decision)
        if begins:
            # Not before: it may have been frozen, and have begun nothing.
            await self._tell_all(body, decision)
        return body

    async def _tell_all(self, body: Object, decision: Decision) -> None:
        told = self._memories.of(body).told
        await tell_all(self._parts.kube, self._parts.executor, body, decision.happenings, told)

    def _count_end(self, memory: Memory, seen: Seen, decision: Decision) -> None:
        reset = decision.status
        if reset.phase is None or seen.under_way is None or not has_ended(reset.phase):
            return
        plan, said = reset.plan, find_condition(reset.conditions, COMPLETE)
        self._parts.metrics.run_finished(
            reset.phase.value,
            said.reason if said is not None else reset.phase.value,
            standstill_s=reset.standstill.max.total_seconds() if reset.standstill is not None else None,
            replayed=(plan.records_replayed or 0) if plan is not None else 0,
            skipped=(plan.records_skipped or 0) if plan is not None else 0,
        )
        memory.launched.clear()
        memory.fenced, memory.dead, memory.died_at, memory.forged = 0, "", None, ""
        memory.halted, memory.unhalted = False, ""

    # --- act ----------------------------------------------------------------------------------------------------------

    async def _act(self, body: Object, seen: Seen, decision: Decision) -> Object:
        parts, action = self._parts, decision.action
        finalizers = [f for f in body["metadata"].get("finalizers") or () if f != reasons.FINALIZER]
        match action:
            case None:
                pass
            case AddFinalizer():
                return await in_thread(
                    self._parts.executor, parts.kube.set_finalizers, RESETS, body, [*finalizers, reasons.FINALIZER]
                )
            case RemoveFinalizer():
                if not await self._pauses.is_settled(body, seen.spec, decision.status.phase):
                    return body
                await self._once.note_end(body, decision.status, seen.now)
                await self._kept.keep(body, decision.status)
                await self._approvals.tell_effect(body, decision.status)
                body = await in_thread(self._parts.executor, parts.kube.set_finalizers, RESETS, body, finalizers)
                if under_way(decision.status) is not None and seen.run is not None:
                    # The resource goes with its run in mid-flight: nobody will see how that ends.
                    parts.metrics.run_finished(
                        ResetPhase.FAILED.value, reasons.ABANDONED, standstill_s=None, replayed=0, skipped=0
                    )
                return body
            case CreateRun(request):
                # What is only planned for now is written down once it goes ahead.
                if not request.observed and not await self._once.begins(body, decision.status):
                    return body  # the next pass sees why
                store = self._runs.open_store(body, self._runs.binding(body), owner_reference(body))
                await in_thread(self._parts.executor, store.create, request)
            case actions.KeepLimits():
                await self._supervision.keep_limits(body, seen)
            case actions.LiftLimits():
                await self._supervision.lift_limits(body, seen)
            case actions.PauseAtEnd():
                await self._pauses.create(body, seen.run)
            case actions.Launch(name):
                await self._begin_observed(body, seen, decision)
                await self._supervision.start(body, seen, decision, name)
            case Approve():
                await self._begin_observed(body, seen, decision)
                await in_thread(self._parts.executor, self._runs.store(body).approve)
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

    async def _begin_observed(self, body: Object, seen: Seen, decision: Decision) -> None:
        """Write down that a plan goes ahead which was made while its connection only observed. Idempotent; raises
        ``RunnerFailure`` where it must not, or can't be written down."""
        goes_ahead = seen.run is not None and seen.run.request.observed and decision.status.approved_digest is not None
        if goes_ahead and not await self._once.begins(body, decision.status):
            raise RunnerFailure(
                "the plan is approved but is not applied, because its KafkaConnection is not open, or another operator "
                "has begun the same reset of the policy in the meantime"
            )


def _annotations(body: Object) -> Mapping[str, str]:
    return body["metadata"].get("annotations") or {}


def _went_on_at(status: OffsetResetStatus) -> datetime | None:
    """When a run began, or was approved; ``None`` after a replay, whose end is not recorded."""
    if status.replay is not None:
        return None
    return status.approval.approved_at if status.approval is not None else status.started_at
