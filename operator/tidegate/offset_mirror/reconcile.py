"""One pass over an ``OffsetMirror``: its copying is kept going, its topics are prepared, and what is so is said.

The copying goes on between passes (:mod:`tidegate.offset_mirror.copying`).
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Final

from tidegate.connection.freezing import FrozenMeanwhile, frozen
from tidegate.connection.live import Live
from tidegate.kafka.errors import KafkaFailure
from tidegate.kube.loop import Pass
from tidegate.kube.objects import Told as Keys
from tidegate.kube.objects import newest_of, tell_all
from tidegate.kube.ports import MIRRORS, KubeFailure, Object, label_of, name_of, namespace_of, uid_of
from tidegate.kube.unreadable import UNREADABLE_AGAIN_S, say_unreadable
from tidegate.offset_mirror.copying import Copying, is_late, with_found
from tidegate.offset_mirror.counting import counted
from tidegate.offset_mirror.failover import Failover
from tidegate.offset_mirror.gathering import topics_prepared, unless_frozen
from tidegate.offset_mirror.jobs import MirrorJobs
from tidegate.offset_mirror.opening import opened
from tidegate.offset_mirror.ordering import engine_refusal, wanted_job
from tidegate.offset_mirror.parts import Parts
from tidegate.offset_mirror.preparing import Prepared
from tidegate.offset_mirror.refusals import refusal_of
from tidegate.offset_mirror.reported import Reports
from tidegate.offset_mirror.rows import (
    fresh_in,
    gone_before,
    halted_before,
    halted_courses,
    rows_of,
    unready,
    with_drift,
)
from tidegate.offset_mirror.status import (
    INVALID_SPEC,
    LATE,
    Before,
    MirrorStanding,
    Told,
    copying,
    draining,
    draining_late,
    failed_over,
    fencing,
    held_back,
    is_news,
    job_ending,
    refused,
    steady,
    suspended,
    waiting,
)
from tidegate.offset_mirror.topics import Copied
from tidegate.resources.base import InvalidResource, has_readable_status, parse_spec, read_status
from tidegate.resources.conditions import FROZEN, READY, Refusal, is_true
from tidegate.resources.mirror_engine import MirrorEngine, MirrorJob
from tidegate.resources.mirror_failover import FailoverPhase
from tidegate.resources.offset_mirror import OffsetMirrorSpec, OffsetMirrorStatus
from tidegate.threads import in_thread
from tidegate.versions import WRITTEN_BY_NEWER_VERSION, NewerVersion

_log = logging.getLogger(__name__)

_WAITING_S: Final = 2.0
_OPENED_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class _Outcome:
    """Of a pass. ``unready``: why not every topic that is wanted is being copied, where there is copying."""

    told: Told
    again_after_s: float
    unready: str = ""


@dataclass(frozen=True, slots=True)
class _Running:
    """``key``: what it was begun with; with anything else it is begun anew."""

    key: object
    connections: object
    copying: Copying


class MirrorReconciler:
    """Implements ``tidegate.kube.loop.Reconciler``."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._running: dict[str, _Running] = {}
        self._stopped: dict[str, Copying] = {}
        """What was stopped last of each."""
        self._failover = Failover(parts.live, parts.open_cluster, parts.may_write, parts.patient_executor, parts.clock)
        self._jobs = MirrorJobs(parts.jobs)
        self._begins: set[str] = set()
        """Mirrors whose first job has not been started yet, though something has been made ready for it."""
        self._missing_since_s: dict[str, float] = {}
        """Since when a connection of theirs has not been there."""
        self._keys: dict[str, Keys] = {}
        """By resource, the keys of Events that were recorded."""

    async def reconcile(self, body: Object) -> Pass:
        parts, uid = self._parts, uid_of(body)
        if body["metadata"].get("deletionTimestamp"):
            await self._end(uid)
            parts.of_mirrors.gone(namespace_of(body), name_of(body))
            return Pass(body, parts.idle_tick_s)
        unreadable = not has_readable_status(OffsetMirrorStatus, body)
        parts.metrics.newer_is(MIRRORS.kind, uid, unreadable)
        if unreadable:
            await self._end(uid)
            parts.of_mirrors.gone(namespace_of(body), name_of(body))
            keys, now = self._keys.setdefault(uid, Keys()), parts.clock.now()
            return Pass(await say_unreadable(parts.kube, parts.executor, MIRRORS, body, now, keys), UNREADABLE_AGAIN_S)
        before = Before(read_status(OffsetMirrorStatus, body), int(body["metadata"]["generation"]), parts.clock.now())
        outcome = await self._looked_after(body, before)
        body = await self._say(body, before, steady(before, outcome.told))
        return Pass(body, outcome.again_after_s)

    async def forget(self, body: Object) -> None:
        uid = uid_of(body)
        await self._end(uid)
        await self._jobs.forget(body)
        self._begins.discard(uid)
        self._missing_since_s.pop(uid, None)
        self._stopped.pop(uid, None)
        self._keys.pop(uid, None)
        self._parts.metrics.newer_is(MIRRORS.kind, uid, False)
        self._parts.of_mirrors.gone(namespace_of(body), name_of(body))

    async def refresh(self, body: Object) -> Object | None:
        return await newest_of(self._parts.kube, self._parts.executor, MIRRORS, body)

    async def stop(self) -> None:
        """End all copying of this process; no pass may be under way. Jobs go on, for the next process to follow."""
        for uid in tuple(self._running):
            await self._end(uid)

    async def _end(self, uid: str) -> None:
        running = self._running.pop(uid, None)
        if running is not None:
            await running.copying.stop()
            self._stopped[uid] = running.copying

    # --- one pass -----------------------------------------------------------------------------------------------------

    async def _looked_after(self, body: Object, before: Before) -> _Outcome:
        try:
            spec = parse_spec(OffsetMirrorSpec, body)
        except InvalidResource as invalid:
            return await self._not_copied(body, refused(before, Refusal(INVALID_SPEC, str(invalid))))
        failover = before.status.failover
        if failover is not None and failover.phase is FailoverPhase.DONE:
            return await self._not_copied(body, failed_over(before, failover))
        if failover is not None:
            await self._end(uid_of(body))
            if is_late(stopped := self._stopped.get(uid_of(body))):
                return _Outcome(fencing(before, failover, LATE), _WAITING_S)
            if stopped is not None:
                before = replace(before, status=with_drift(before.status, stopped.courses_at_rest))
            told = await self._failover.fence(body, before, failover, spec)
            goes_on = told.status.failover != failover
            return await self._not_copied(body, told, 0.0 if goes_on else _WAITING_S)
        if spec.failover is not None and spec.failover.accept_loss:
            return await self._ended(body, before, Told(before.status), spec)
        if spec.suspend and spec.failover is None:
            return await self._not_copied(body, suspended(before))
        pair: list[Live] = []
        for name in (spec.source.name, spec.target.name):
            live = self._parts.live.used_from(namespace_of(body), (namespace_of(body), name))
            if live is None:
                why = f"there is no usable KafkaConnection {name} in this namespace: waiting for it"
                keeps_job = not self._is_missing(uid_of(body))
                return await self._not_copied(body, waiting(before, why), _WAITING_S, keeps_job=keeps_job)
            pair.append(live)
        self._missing_since_s.pop(uid_of(body), None)
        source, target = pair
        # A failover ends a mirror, though it may have to copy the rest first.
        begins = before.status.target_cluster is None or (before.is_at_rest and spec.failover is None)
        begins = begins and uid_of(body) not in self._running
        refusal = refusal_of(before.status, source, target) or engine_refusal(spec, pair, self._parts.jobs)
        if refusal is None and begins and (held := frozen(target) or frozen(source)) is not None:
            return await self._not_copied(body, held_back(before, held))
        for live in pair if refusal is None else ():
            if live.trouble is not None or not live.cluster_id:
                said = live.trouble[0] if live.trouble is not None else "Connecting"
                return await self._in_trouble(body, before, f"KafkaConnection {live.name} is not ready ({said})", pair)
        if refusal is not None:
            return await self._not_copied(body, refused(before, refusal))
        try:
            if spec.failover is None:
                return await self._copied(body, before, spec, source, target, begins=begins)
            return await self._drained(body, before, spec, source, target, begins=begins)
        except FrozenMeanwhile as meanwhile:
            _log.info("%s: %s, so copying does not begin", label_of(body), meanwhile)
            if uid_of(body) in self._begins:  # the status speaks of a job already
                return await self._not_copied(body, held_back(before, Refusal(FROZEN, str(meanwhile))), 0.0)
            return await self._not_copied(body, Told(before.status), 0.0)

    async def _drained(
        self, body: Object, before: Before, spec: OffsetMirrorSpec, source: Live, target: Live, *, begins: bool
    ) -> _Outcome:
        """Copying goes on until the copies have all that the source has, and then ends."""
        if is_late(self._stopped.get(uid_of(body))) and uid_of(body) not in self._running:
            return _Outcome(draining_late(before), _WAITING_S)
        outcome = await self._copied(body, before, spec, source, target, begins=begins)
        running = self._running.get(uid_of(body))
        if running is None:
            return outcome
        why = await self._failover.keeps(running.copying, outcome.told, outcome.unready)
        if why:
            return _Outcome(draining(before, outcome.told, why), self._parts.active_tick_s)
        return await self._ended(body, before, outcome.told, spec)

    async def _ended(self, body: Object, before: Before, told: Told, spec: OffsetMirrorSpec) -> _Outcome:
        uid = uid_of(body)
        await self._end(uid)
        await self._jobs.ended(body, before.status.job)
        told = await self._failover.begin(body, before, told, spec, self._stopped.get(uid))
        return await self._not_copied(body, told, 0.0 if told.status.failover is not None else _WAITING_S)

    async def _not_copied(
        self, body: Object, told: Told, again_after_s: float | None = None, *, keeps_job: bool = False
    ) -> _Outcome:
        """``keeps_job``: one that copies may go on, as far as this process knows."""
        uid, parts = uid_of(body), self._parts
        await self._end(uid)
        self._begins.discard(uid)
        parts.of_mirrors.rests(namespace_of(body), name_of(body), told.hindered)
        told = replace(told, status=with_found(told.status, self._stopped.get(uid)))
        again_after_s = parts.idle_tick_s if again_after_s is None else again_after_s
        if keeps_job or told.status.job is None:
            return _Outcome(told, again_after_s)
        why = await self._jobs.end(body, told.status.job)
        if why:
            return _Outcome(job_ending(told, why, parts.clock.now()), parts.active_tick_s)
        return _Outcome(replace(told, status=told.status.model_copy(update={"job": None})), again_after_s)

    def _is_missing(self, uid: str) -> bool:
        """Whether a connection has been away for longer than a process that has just begun needs to open it."""
        now_s = self._parts.clock.monotonic()
        since_s = self._missing_since_s.setdefault(uid, now_s)
        return uid in self._running or now_s - since_s > _OPENED_S

    async def _in_trouble(self, body: Object, before: Before, why: str, pair: list[Live]) -> _Outcome:
        """What copies goes on trying by itself, unless a connection is another one now; the copies become older."""
        running, parts, status = self._running.get(uid_of(body)), self._parts, before.status
        told = waiting(before, f"{why}: waiting for it")
        if running is None or running.connections != _connections(pair):
            return await self._not_copied(body, told, _WAITING_S, keeps_job=running is None)
        courses = running.copying.courses()
        told = replace(told, status=with_drift(told.status, courses))
        rows, gone = [*courses, *halted_before(status, courses)], gone_before(status)
        result = counted(rows, status.topics, parts.clock.monotonic(), gone)
        parts.of_mirrors.mirror_is(namespace_of(body), name_of(body), result.counts, result.lag, running.copying.groups)
        return _Outcome(told, _WAITING_S)

    async def _copied(
        self, body: Object, before: Before, spec: OffsetMirrorSpec, source: Live, target: Live, *, begins: bool
    ) -> _Outcome:
        """``begins``: it does by this pass. Raises ``FrozenMeanwhile`` where it does not then."""
        if spec.engine is MirrorEngine.DIRECT and before.status.job is not None:
            if why := await self._jobs.end(body, before.status.job):
                return _Outcome(job_ending(waiting(before, why), why, before.now), self._parts.active_tick_s)
            before = replace(before, status=before.status.model_copy(update={"job": None}))
        if begins and spec.engine is MirrorEngine.SPARK:
            self._begins.add(uid_of(body))
        pair = (source, target) if begins or uid_of(body) in self._begins else ()
        running = await self._keep_running(body, before.status, spec, source, target)
        known, trouble = {topic.name: topic for topic in before.status.topics}, running.trouble
        prepared: Prepared | None = None
        job = before.status.job
        try:
            asked = (body, running.clusters, spec, source, target, before.status)
            copied_now = running.may_append_to(before.status) | self._jobs.copies(body, before.status)
            found = await topics_prepared(self._parts, *asked, pair, copied_now)
            if isinstance(found, Refusal):
                return await self._not_copied(body, refused(before, found))
            prepared = found
        except KafkaFailure as failure:
            trouble = str(failure)
        rows, halted = before.status.topics, halted_before(before.status, running.courses())
        fresh = frozenset[str]() if prepared is None else fresh_in(prepared, known)
        if prepared is not None:
            rows, halted = rows_of(prepared, {**known, **prepared.adoption.rows}), halted_courses(prepared)
            ready = [topic for topic in prepared.copied if topic.source.name not in fresh]
            ready += self._jobs.going_on(body, prepared)
            running.comparing.keep({row.name for row in rows} - fresh)
            # What groups have for those that are not seen yet is noted with the rest: that is done once for each group.
            adopts = frozenset(row.name for row in rows if row.adopted) | prepared.adoption.unseen
            mirrored = frozenset(row.name for row in rows if row.target_id)
            copy = functools.partial(running.copy, ready, before.status.producer_ids, adopts, mirrored)
            # Of a mirror that was suspended all may be ready by now, which has taken seconds.
            unless_frozen(self._parts.live, pair if ready else (), copy)
            try:
                found_job = await self._kept_job(body, before, spec, (source, target), prepared, ready, pair)
                if isinstance(found_job, Refusal):
                    return await self._not_copied(body, refused(before, found_job))
                job = found_job
            except KubeFailure as failure:  # the status has to say so, and how the copies stand meanwhile
                trouble = f"could not check or start the job: {failure}"
        gone = prepared.gone if prepared is not None else gone_before(before.status)
        result = counted([*running.courses(), *halted], rows, self._parts.clock.monotonic(), gone)
        preparing = len(prepared.preparing) if prepared is not None else 0
        clusters = (source.cluster_id, target.cluster_id)
        former = spec.former_producer_ids or ()
        why = unready(prepared, known, trouble)
        if job is not None:
            job, trouble = job.model_copy(update={"heard": running.heard}), trouble or job.message
        more = (former, running.comparing.told, running.exclusive(target.connection.authentication), job)
        standing = MirrorStanding(result, clusters, running.groups, preparing, trouble, *more)
        told, parts = copying(before, standing), self._parts
        parts.of_mirrors.mirror_is(namespace_of(body), name_of(body), result.counts, result.lag, running.groups)
        if fresh:
            return _Outcome(told, 0.0, why)
        return _Outcome(told, parts.idle_tick_s if is_true(told.status.conditions, READY) else parts.active_tick_s, why)

    async def _kept_job(
        self,
        body: Object,
        before: Before,
        spec: OffsetMirrorSpec,
        pair: tuple[Live, Live],
        prepared: Prepared,
        ready: Collection[Copied],
        beginning: Collection[Live],
    ) -> MirrorJob | Refusal | None:
        """The job that copies ``ready``, if one does. ``beginning``: the connections through which it begins by this.
        Raises ``FrozenMeanwhile``."""
        if spec.engine is not MirrorEngine.SPARK:
            return None
        uid, told = uid_of(body), before.status.job
        different = self._running[uid].copying.comparing.different
        settled = not prepared.preparing and len(ready) == len(prepared.copied)
        wanted = wanted_job(body, spec, pair, ready, different, self._parts.jobs, settled=settled)
        if isinstance(wanted, Refusal):
            return wanted
        lost = self._running[uid].copying.is_lost
        if wanted is None:
            return told if told is not None and await self._jobs.end(body, told) else None
        begin = functools.partial(unless_frozen, self._parts.live, beginning, lambda: None)
        try:
            job, has_begun = await self._jobs.keep(body, told, replace(wanted, lost=lost), begin)
        except NewerVersion as newer:
            return Refusal(WRITTEN_BY_NEWER_VERSION, str(newer))
        if has_begun:
            self._begins.discard(uid)
        return job

    async def _keep_running(
        self, body: Object, status: OffsetMirrorStatus, spec: OffsetMirrorSpec, source: Live, target: Live
    ) -> Copying:
        uid = uid_of(body)
        allowed = (source.allow.groups, target.allow.groups)
        connections = _connections((source, target))
        cluster_ids = (source.cluster_id, target.cluster_id)
        settings = (spec.engine, spec.groups, spec.rate_limit, spec.seed, spec.parity, spec.former_producer_ids)
        key = (connections, cluster_ids, settings, allowed)
        running = self._running.get(uid)
        if running is not None and running.key == key:
            if spec.failover is None:
                running.copying.goes_on()
            return running.copying
        await self._end(uid)
        parts = self._parts
        parts.of_mirrors.gone(namespace_of(body), name_of(body))
        reports = None
        if spec.engine is MirrorEngine.SPARK:
            of_job = functools.partial(self._jobs.reports, body), functools.partial(self._jobs.last, body)
            reports = Reports(*of_job, parts.of_mirrors.wrote)
        begun = opened(parts, body, status, spec, source, target, self._stopped.get(uid), reports)
        self._running[uid] = _Running(key, connections, begun)
        begun.start()
        _log.info("%s: copying from %s to %s", label_of(body), source.label, target.label)
        return begun

    # --- saying -------------------------------------------------------------------------------------------------------

    async def _say(self, body: Object, before: Before, told: Told) -> Object:
        parts, keys = self._parts, self._keys.setdefault(uid_of(body), Keys())
        await tell_all(parts.kube, parts.executor, body, told.happenings, keys)
        if not is_news(before, told.status):
            return body
        body = await in_thread(parts.executor, parts.kube.replace_status, MIRRORS, body, told.status.to_json())
        parts.metrics.wrote_status(MIRRORS.kind)
        return body


def _connections(pair: Collection[Live]) -> object:
    """What copying through them is begun anew for."""
    return tuple((live.uid, live.digest) for live in pair)
