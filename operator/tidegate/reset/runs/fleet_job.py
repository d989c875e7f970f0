"""A fleet's run, from its stored request to its stored result.

The runs of its groups are those of ``tidegate.reset.runs.job``.

May be started again at any point, by anybody, as those.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from typing import Final, assert_never

from tidegate.clock import Clock
from tidegate.cluster import Kafka
from tidegate.reset.confined import Confines
from tidegate.reset.model.fleet import FleetCounts
from tidegate.reset.model.progress import Progress
from tidegate.reset.model.result import RunResult
from tidegate.reset.runs import job
from tidegate.reset.runs.fleet import (
    Apply,
    Begin,
    End,
    Keep,
    PutBack,
    Release,
    Settle,
    Step,
    counts,
    has_begun,
    held_result,
    is_kept,
    next_step,
    put_back_by,
    refused_fleet,
)
from tidegate.reset.runs.fleet_groups import Resets, was_touched
from tidegate.reset.runs.fleet_parts import Parts, beneath, for_all, loaded_groups, opened_groups
from tidegate.reset.runs.fleet_planning import patiently, plan_fleet, plan_together
from tidegate.reset.runs.waves import PAUSED_HERE, ROLLOUT_STOPPED, BeginWave, Leave, Pause, Stop, wave_begun
from tidegate.reset.store import Run, RunStore, StaleAttempt
from tidegate.resources.reset import ResetPhase

_TELL_EVERY_S: Final = 1.0


def carry_out(store: RunStore, parts: Parts) -> RunResult | None:
    """``job.carry_out`` of a fleet. ``None``: the plan waits for approval, or the next wave for its time.

    Raises ``StaleAttempt``.
    """
    attempt = store.begin_attempt()
    run = store.load()
    if run.result is not None:
        return run.result
    if run.fleet is None:
        refusal = plan_fleet(store, attempt, parts)
        if refusal is not None:
            return refusal
        run = store.load()
    refused = refused_fleet(run.request, run.fleet, parts.clock.now()) if run.fleet and not has_begun(run) else None
    if refused is not None:
        result = job.unplanned(refused, parts.clock.now())
        store.finish(result, attempt=attempt)
        return result
    if run.request.manual_approval and not run.approved:
        if run.last is None or run.last.phase is not ResetPhase.AWAITING_APPROVAL:
            store.append(Progress(ResetPhase.AWAITING_APPROVAL, parts.clock.now(), attempt), attempt=attempt)
        return None
    return _go_on(store, attempt, parts)


def settle(store: RunStore, parts: Parts, *, reason: str, message: str) -> RunResult:
    """End a fleet's run for good. A fleet that was decided to be kept is finished, any other is put back."""
    attempt = store.begin_attempt()
    run = store.load()
    if run.result is not None:
        return run.result
    if run.fleet is None:
        result = RunResult(ResetPhase.FAILED, reason, f"{message}. Nothing was changed", parts.clock.now())
        store.finish(result, attempt=attempt)
        return result
    if not is_kept(run) and put_back_by(run) is None:
        phase = ResetPhase.VERIFYING if has_begun(run) else ResetPhase.PLANNING
        store.append(Progress(phase, parts.clock.now(), attempt, message=message, putting_back=reason), attempt=attempt)
    settled = _go_on(store, attempt, parts)
    if settled is None:
        raise ValueError(f"fleet {run.request.run_uid} begins no wave once it is to be settled")
    return settled


def _go_on(store: RunStore, attempt: int, parts: Parts) -> RunResult | None:
    """Step by step until it has ended, or pauses. Each step is decided from what is stored, and may be taken again."""
    clock = parts.clock
    opened: dict[str, RunStore] = {}
    groups: dict[str, Run] = {}
    while True:
        run = store.load()
        if run.result is not None:
            return run.result
        if run.fleet is None:
            raise ValueError(f"fleet {run.request.run_uid} has no plan yet")
        opened = opened or opened_groups(run, run.fleet, parts)
        if has_begun(run):
            groups |= loaded_groups({name: opened[name] for name in opened.keys() - groups.keys()}, parts)
        step = next_step(run, groups, clock.now())
        teller = _Teller(store, attempt, clock, counts(run, groups), wave_begun(run))
        if isinstance(step, Apply | Settle | Release):
            # Before the step, so that a writer that was taken over is told before it touches a group.
            teller.tell(ResetPhase.RESUMING if is_kept(run) else _PHASES[type(step)])
        match step:
            case Begin():
                store.append(Progress(ResetPhase.APPLYING, clock.now(), attempt), attempt=attempt)
            case BeginWave(wave=wave, message=message):
                teller.note(wave, message)
            case Apply(groups=names, hold=hold, stop=stop):
                parts.resets.apply({g: opened[g] for g in names}, teller, hold=hold, stop=stop)
            case Pause():
                if not _waited(step, clock, teller):
                    return None
            case Stop(wave=wave, message=message):
                teller.note(wave, message, stopped=True)
            case Leave(groups=names, message=message):
                leave = partial(_leave, at=clock.now(), message=message)
                for_all([opened[name] for name in names], leave, parts)
            case PutBack(reason, message):
                intent = Progress(ResetPhase.VERIFYING, clock.now(), attempt, message=message, putting_back=reason)
                store.append(intent, attempt=attempt)
            case Keep():
                message = "every group has its targets"
                store.append(Progress(ResetPhase.RESUMING, clock.now(), attempt, message=message), attempt=attempt)
            case Settle(groups=names, reason=reason, message=message):
                parts.resets.settle({g: opened[g] for g in names}, teller, reason, message)
            case Release(groups=names):
                for_all([opened[name] for name in names], _release, parts)
            case End(result):
                store.finish(result, attempt=attempt)
            case _:
                assert_never(step)
        if isinstance(step, Apply | Leave | Settle | Release):
            # Nobody else changes any, as long as this attempt is the newest.
            groups = {name: group for name, group in groups.items() if name not in step.groups}


_PHASES: Final[Mapping[type[Step], ResetPhase]] = {
    Apply: ResetPhase.APPLYING,
    Settle: ResetPhase.VERIFYING,
    Release: ResetPhase.RESUMING,
}


class _Teller:
    """Implements ``Coordinator``: counts groups as they end, and notes it at most once a second. Thread-safe."""

    def __init__(self, store: RunStore, attempt: int, clock: Clock, counted: FleetCounts, wave: int) -> None:
        self._store = store
        self._attempt = attempt
        self._clock = clock
        self._counts = counted
        self._wave = wave
        self._phase = ResetPhase.APPLYING
        self._told_at_s = clock.monotonic()
        self._lock = threading.Lock()

    def tell(self, phase: ResetPhase) -> None:
        self._phase = phase
        self._write()

    def note(self, wave: int, message: str, *, paused_until: datetime | None = None, stopped: bool = False) -> None:
        """A line about a wave, which later counts leave in the journal."""
        line = Progress(
            ResetPhase.APPLYING,
            self._clock.now(),
            self._attempt,
            message=message,
            counts=self._counts,
            wave=wave,
            paused_until=paused_until,
            stopped=stopped,
        )
        self._store.append(line, attempt=self._attempt)

    def check(self) -> None:
        newest = self._store.load().attempt
        if newest != self._attempt:
            raise StaleAttempt(f"attempt {newest} has taken over from attempt {self._attempt} of a fleet's run")

    def ended(self, succeeded: bool) -> None:
        with self._lock:
            counted = self._counts
            if not succeeded:
                self._counts = replace(counted, failed=counted.failed + 1)
            elif self._phase is ResetPhase.VERIFYING:
                self._counts = replace(counted, put_back=counted.put_back + 1)
            else:
                self._counts = replace(counted, reset=counted.reset + 1)
            if self._clock.monotonic() - self._told_at_s >= _TELL_EVERY_S:
                self._write()

    def _write(self) -> None:
        self._told_at_s = self._clock.monotonic()
        line = Progress(self._phase, self._clock.now(), self._attempt, counts=self._counts, wave=self._wave)
        self._store.append(line, attempt=self._attempt)


_LOOK_S: Final = 1.0


def _waited(pause: Pause, clock: Clock, teller: _Teller) -> bool:
    """Wait for the next wave, where that is soon; otherwise this job ends, which is written down first."""
    is_soon = pause.until - clock.now() <= PAUSED_HERE
    teller.note(pause.wave, pause.message, paused_until=None if is_soon else pause.until)
    while is_soon and (left := pause.until - clock.now()) > timedelta(0):
        clock.sleep(min(_LOOK_S, left.total_seconds()))
        teller.check()
    return is_soon


def _leave(group: RunStore, *, at: datetime, message: str) -> None:
    """End the run of a group that was not begun."""
    attempt = group.begin_attempt()
    run = group.load()
    if run.result is None and not run.journal:
        group.finish(
            RunResult(ResetPhase.FAILED, ROLLOUT_STOPPED, f"{message}. Nothing was changed", at), attempt=attempt
        )


def _release(group: RunStore) -> None:
    attempt = group.begin_attempt()
    held = held_result(group.load())
    if held is None:
        raise ValueError(f"{group.location} holds no result, though its fleet is kept")
    group.finish(held, attempt=attempt)


def parts_of(
    document: str,
    confines: Confines,
    undoes: str,
    open_document: Callable[[str], RunStore],
    kafka: Kafka,
    clock: Clock,
    resets: Resets,
) -> Parts:
    """A fleet in this process. ``document``: of its run, ``undoes``: of the one it undoes; each group's are beneath."""
    return Parts(
        open_group=beneath(document, confines, open_document),
        open_undone=beneath(undoes, confines, open_document),
        group_ids=kafka.group_ids,
        plan=patiently(plan_together(kafka), clock),
        resets=resets,
        clock=clock,
    )


def fence(store: RunStore, parts: Parts, kafka: Kafka) -> None:
    """``tidegate.reset.runs.job.fence`` for every group that was begun and has not ended."""
    run = store.load()
    if run.fleet is None or run.result is not None or not has_begun(run):
        return
    opened = opened_groups(run, run.fleet, parts)
    for group_id, group in loaded_groups(opened, parts).items():
        if was_touched(group) and group.result is None:
            job.fence(opened[group_id], kafka, parts.clock)
