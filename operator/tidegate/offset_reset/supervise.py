"""A run that has begun: its job is started, looked at, fenced, ended, and its run taken over where the job is gone."""

from __future__ import annotations

import asyncio
import functools
import logging
from dataclasses import replace
from typing import Final

from tidegate.connection.live import Live
from tidegate.jobs.errors import RunnerFailure
from tidegate.jobs.runner import RunnerState
from tidegate.kafka.errors import KafkaFailure
from tidegate.kube.ports import (
    Object,
    label_of,
    namespace_of,
)
from tidegate.offset_reset.backups import Found
from tidegate.offset_reset.parts import Memories, Parts
from tidegate.offset_reset.runs import Runs, document_of
from tidegate.reset.applying.replay import look
from tidegate.reset.model.result import RunResult
from tidegate.reset.model.targets import FromBackup, FromCluster
from tidegate.reset.runs import fleet_job, job
from tidegate.reset.runs.actions import Decision
from tidegate.reset.runs.fleet import group_run_uid
from tidegate.reset.runs.reasons import DEADLINE_EXCEEDED, JOB_FAILED
from tidegate.reset.runs.seen import RunnerSeen, Seen
from tidegate.resources.conditions import Refusal
from tidegate.resources.offset_reset import OffsetResetSpec, OffsetResetStatus
from tidegate.resources.reset import Engine
from tidegate.threads import in_thread

_log = logging.getLogger(__name__)

_WAIT_A_PASS_S: Final = 2.0
"""How long one pass waits for a run to be taken over before it looks around again."""

_BRIEFLY_S: Final = 10.0
"""How long its job may take to stop, and then its gates to open, where nobody shall wait for a run any longer."""


class Supervision:
    """What is done about the job of a run."""

    def __init__(self, parts: Parts, runs: Runs, memories: Memories) -> None:
        self._parts = parts
        self._memories = memories
        self._runs = runs

    async def seen(self, body: Object, spec: OffsetResetSpec | None, current: OffsetResetStatus) -> RunnerSeen | None:
        memory = self._memories.of(body)
        engine = current.engine
        runner = self._parts.runners.get(engine) if engine is not None else None
        if runner is None or engine is None:
            return None
        if current.application is None:
            return RunnerSeen(engine)
        launch = self._runs.launch(body, spec, current, current.application)
        status = await in_thread(self._parts.executor, runner.status, launch)
        now = self._parts.clock.now()
        if status.state is not RunnerState.RUNNING and memory.dead != launch.name:
            memory.dead, memory.died_at = launch.name, now
        if memory.died_at is not None:
            # A clock that was set back since would put off the next job by as much.
            memory.died_at = min(memory.died_at, now)
        return RunnerSeen(
            engine=engine,
            status=status,
            started_here=launch.name in memory.launched,
            fenced=memory.fenced,
            died_at=memory.died_at,
        )

    async def start(self, body: Object, seen: Seen, decision: Decision, name: str) -> None:
        reset = decision.status
        if reset.engine is None or reset.digest is None:
            raise ValueError("a job is started for a run that has an engine and a digest")
        backup = None
        if reset.engine is Engine.SPARK and seen.run is not None:
            backup = await self._check_connections(body, seen, planned=seen.run.plan is not None)
        launch = self._runs.launch(body, seen.spec, reset, name, backup)
        await in_thread(self._parts.executor, self._parts.runners[reset.engine].start, launch)
        memory = self._memories.of(body)
        memory.launched.add(name)
        memory.halted = False
        self._parts.metrics.job_launched(reset.engine.value)
        _log.info("%s: started job %s", label_of(body), name)

    async def fence(self, body: Object, seen: Seen, number: int) -> None:
        live = self._runs.connection(body, seen)
        await self._withdraw(body, seen)
        store = self._runs.store(body)
        fleet = self._runs.fleet_parts(body, seen, live)
        if fleet is None:
            await in_thread(self._parts.patient_executor, job.fence, store, live.finishing, self._parts.clock)
        else:
            await in_thread(self._parts.patient_executor, fleet_job.fence, store, fleet, live.finishing)
        self._memories.of(body).fenced = number
        if seen.runner is not None:
            self._parts.metrics.job_died(seen.runner.engine.value)
            _log.warning(
                "%s: job %d of %s ended without a result: %s",
                label_of(body),
                number,
                seen.run_document,
                seen.runner.status.message or seen.runner.status.state.value,
            )

    async def _withdraw(self, body: Object, seen: Seen) -> None:
        """End a job of which nothing is known before another one is started: a SparkApplication that was not taken up
        may be hours later, and would take the run away from the job that has it by then."""
        current, runner = seen.under_way, seen.runner
        if runner is None or current is None or current.application is None:
            return
        if runner.status.state is RunnerState.LOST:
            launch = self._runs.launch(body, seen.spec, current, current.application)
            await in_thread(self._parts.patient_executor, self._parts.runners[runner.engine].stop, launch)

    async def lift_limits(self, body: Object, seen: Seen) -> None:
        live, store = self._runs.connection(body, seen), self._runs.store(body)
        lift = functools.partial(job.keep_limits, store, live.finishing, self._parts.clock, lifted=True)
        await in_thread(self._parts.patient_executor, lift)

    async def keep_limits(self, body: Object, seen: Seen) -> None:
        live, store = self._runs.connection(body, seen), self._runs.store(body)
        await in_thread(self._parts.patient_executor, job.keep_limits, store, live.finishing, self._parts.clock)
        _log.warning(
            "%s: the limits of the replay were missing from the control topic, and were written again", label_of(body)
        )

    async def look_at_replay(self, body: Object, seen: Seen) -> Seen:
        """With how far the replay has come; where the brokers do not tell, with why."""
        run = seen.run
        if run is None or run.plan is None:
            return seen
        live = self._runs.connection(body, seen)
        try:
            found = await in_thread(self._parts.patient_executor, look, live.kafka, run.plan, run.request.run_uid)
        except KafkaFailure as failure:
            return replace(seen, trouble=str(failure))
        return replace(seen, replay=found)

    async def halt_briefly(self, body: Object, seen: Seen) -> None:
        memory = self._memories.of(body)
        try:
            unstopped = await self.halt(body, seen, _BRIEFLY_S)
        except (KafkaFailure, RunnerFailure, TimeoutError) as error:
            memory.unhalted = str(error) or f"not within {_BRIEFLY_S:g} s"
        else:
            if unstopped is not None:
                # Not needed for safety: it is fenced, and without a document to go by.
                _log.warning("%s: %s", label_of(body), str(unstopped) or "its job did not stop in time")

    async def halt(self, body: Object, seen: Seen, limit_s: float | None = None) -> TimeoutError | RunnerFailure | None:
        """By what the resource says, since nothing of the run's document is believed. ``limit_s``: for each of the two.

        Why the job did not stop, where it did not; then it is halted all the same.
        """
        current = seen.under_way  # none where the status can't be read
        runner = self._parts.runners.get(current.engine) if current is not None and current.engine is not None else None
        unstopped: TimeoutError | RunnerFailure | None = None
        if runner is not None and current is not None and current.application is not None:
            launch = self._runs.launch(body, seen.spec, current, current.application)
            try:
                async with asyncio.timeout(limit_s):
                    await in_thread(self._parts.patient_executor, runner.stop, launch)
            except (TimeoutError, RunnerFailure) as error:
                unstopped = error  # consumers need not wait for that, too
        confines, live = self._runs.confines(body), self._runs.connection(body, seen)

        def halt() -> None:
            uid = confines.run_uid
            runs = {confines.group_id: uid}
            if confines.patterns is not None:
                groups = [g for g in sorted(live.kafka.group_ids()) if not confines.outside(g)]
                runs = {g: group_run_uid(uid, g) for g in groups}
            job.halt(live.finishing, self._parts.clock, uid, runs)

        async with asyncio.timeout(limit_s):
            await in_thread(self._parts.patient_executor, halt)
        if unstopped is None or limit_s is not None:
            self._memories.of(body).halted = True
            _log.error(
                "%s: %s: the job was ended, and the gates of the run are open", label_of(body), seen.run_document
            )
        return unstopped

    async def take_over(self, body: Object, seen: Seen, reason: str, message: str) -> None:
        """Settle the run in a thread; passes look in on it, so that an abandoned deletion is not held up."""
        memory = self._memories.of(body)
        if memory.taking_over is None:
            live = self._runs.connection(body, seen)
            work = functools.partial(self._settle, body, seen, live, reason, message)
            memory.taking_over = asyncio.get_running_loop().run_in_executor(self._parts.patient_executor, work)
        done, _ = await asyncio.wait([memory.taking_over], timeout=_WAIT_A_PASS_S)
        if done:
            settled, memory.taking_over = memory.taking_over, None
            result = settled.result()
            _log.info("%s: settled as %s: %s", label_of(body), result.phase, result.message)

    def _settle(self, body: Object, seen: Seen, live: Live, reason: str, message: str) -> RunResult:
        runner = self._parts.runners.get(seen.runner.engine) if seen.runner is not None else None
        current = seen.under_way
        if runner is not None and current is not None and current.application is not None:
            try:
                runner.stop(self._runs.launch(body, seen.spec, current, current.application))
            except (TimeoutError, RunnerFailure) as error:
                # Not needed for safety: from here on its writes are refused, by the store and by Kafka.
                _log.warning("%s: %s; it is fenced", label_of(body), error)
        store, fleet = self._runs.store(body), self._runs.fleet_parts(body, seen, live)
        if fleet is not None:
            return fleet_job.settle(store, fleet, reason=reason, message=message)
        # Where all targets are in place, neither a deadline nor jobs that died in the watch are a reason to undo them.
        watches_on = reason in (DEADLINE_EXCEEDED, JOB_FAILED)
        return job.settle(
            store, live.finishing, self._parts.clock, reason=reason, message=message, watches_on=watches_on
        )

    async def _check_connections(self, body: Object, seen: Seen, *, planned: bool) -> Found | None:
        """A Spark job connects as the run's document says: to the KafkaConnection's brokers, with its files. So that is
        read as it is, and not within its confines. Returns the backup that the job is to read, if it is."""
        document = document_of(body)
        store = self._parts.open_store(namespace_of(body), document, None)
        request = (await in_thread(self._parts.executor, store.load)).request
        used = [(self._runs.connection(body, seen), request.connection)]
        if isinstance(request.target, FromCluster) and not planned:
            other = self._runs.other(body, seen.spec)
            if other is None:
                raise RunnerFailure("the KafkaConnection of spec.to.cluster is not open")
            used.append((other, request.target.connection))
        backup: Found | None = None
        if isinstance(request.target, FromBackup) and not planned:
            wanted = seen.spec.to.backup if seen.spec is not None else None
            live = self._runs.connection(body, seen)
            found = await self._runs.backup(body, wanted, live) if wanted is not None else None
            if isinstance(found, Refusal):
                raise RunnerFailure(found.message)
            backup = found
            if backup is None or request.target != backup.target:
                raise RunnerFailure(
                    f"the run's ConfigMap {seen.run_document} names another backup than spec.to.backup does: create "
                    "another OffsetReset to run the reset again"
                )
        for live, connection in used:
            if connection not in (live.connection, live.mounted):
                raise RunnerFailure(
                    f"the run's ConfigMap {seen.run_document} has other connection settings than KafkaConnection "
                    f"{live.name}: the operator starts the job once they agree again. To run the reset again instead, "
                    "create another OffsetReset"
                )
        return backup
