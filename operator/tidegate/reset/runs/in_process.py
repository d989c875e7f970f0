"""``engine: Direct``: a run's job in a thread of the operator."""

from __future__ import annotations

import functools
import logging
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeout
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from tidegate.clock import Clock
from tidegate.cluster import Kafka
from tidegate.jobs.runner import Launch, RunnerState, RunnerStatus
from tidegate.kafka.connection import Connection
from tidegate.reset.binding import Binding
from tidegate.reset.confined import ConfinedRunStore, Confines
from tidegate.reset.document import StoreUnavailable
from tidegate.reset.model.result import RunResult
from tidegate.reset.runs import fleet_groups, fleet_job, job
from tidegate.reset.store import ForeignRun, ForgedRun, RunStore, StaleAttempt

_log = logging.getLogger(__name__)

THREADS: Final = 64
"""So many jobs at once. Most of the time a job waits for consumers, or looks whether their next commits hold."""

_STOP_LIMIT_S: Final = 20.0
_REMEMBERED: Final = 200
"""Ended launches whose end is remembered; older ones are LOST, which says the same to whoever asks."""

Execute = Callable[[RunStore, Kafka, Clock], RunResult | None]


class Stopped(Exception):
    """The job was told to stop."""


class _StoppableClock:
    """A clock that ends the job at its next look at the time or at its next wait, once it is told to stop, or once
    it is not this process's turn any more."""

    def __init__(self, clock: Clock, is_our_turn: Callable[[], bool]) -> None:
        self._clock = clock
        self._is_our_turn = is_our_turn
        self._stopped = threading.Event()

    def stop(self) -> None:
        self._stopped.set()

    def now(self) -> datetime:
        self._check()
        return self._clock.now()

    def monotonic(self) -> float:
        self._check()
        return self._clock.monotonic()

    def sleep(self, seconds: float) -> None:
        self._stopped.wait(seconds)
        self._check()

    def repeat(self, seconds: float, call: Callable[[], None]) -> AbstractContextManager[None]:
        return self._clock.repeat(seconds, call)

    def _check(self) -> None:
        if self._stopped.is_set() or not self._is_our_turn():
            raise Stopped


@dataclass(frozen=True, slots=True)
class ConfinedLaunch(Launch):
    """A launch of a run that may be carried out here, with the operator's own rights: ``confines`` is what of them the
    run may use."""

    confines: Confines | None = None


@dataclass(frozen=True, slots=True)
class _Work:
    clock: _StoppableClock
    done: Future[RunResult | None]


class DirectRunner:
    """Implements ``tidegate.jobs.runner.Runner``. ``ended`` is told, in the job's thread, of every launch that ended.

    ``open_owned``: opens what a fleet's job creates, at a location and with an owner reference. ``is_our_turn``:
    whether this process leads; a job that was frozen with it ends before it does anything more.

    Jobs end with their process; what they left is finished by the next launch.
    """

    def __init__(
        self,
        open_store: Callable[[str], RunStore],
        open_kafka: Callable[[Connection], Kafka],
        clock: Clock,
        *,
        threads: int = THREADS,
        execute: Execute = job.execute,
        open_owned: Callable[[str, Mapping[str, Any]], RunStore] | None = None,
        ended: Callable[[Launch], None] = lambda _launch: None,
        is_our_turn: Callable[[], bool] = lambda: True,
    ) -> None:
        self._open_store = open_store
        self._open_kafka = open_kafka
        self._clock = clock
        self._execute = execute
        self._ended = ended
        self._is_our_turn = is_our_turn
        self._open_owned = open_owned or (lambda location, _owner: open_store(location))
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="reset")
        self._lock = threading.Lock()
        self._work: dict[str, _Work] = {}

    @property
    def engine(self) -> str:
        return "Direct"

    def start(self, launch: Launch) -> None:
        with self._lock:
            if launch.name in self._work:
                return
            clock = _StoppableClock(self._clock, self._is_our_turn)
            done = self._pool.submit(self._run, launch, clock)
            self._work[launch.name] = _Work(clock, done)
            ended = [name for name, work in self._work.items() if work.done.done()]
            for name in ended[: max(0, len(ended) - _REMEMBERED)]:
                del self._work[name]
        done.add_done_callback(functools.partial(self._note_end, launch))

    def status(self, launch: Launch) -> RunnerStatus:
        with self._lock:
            work = self._work.get(launch.name)
        if work is None:
            return RunnerStatus(RunnerState.LOST)
        if not work.done.done():
            return RunnerStatus(RunnerState.RUNNING)
        error = None if work.done.cancelled() else work.done.exception()
        return RunnerStatus(RunnerState.EXITED, _why(work.done), forged=isinstance(error, ForgedRun))

    def stop(self, launch: Launch) -> None:
        with self._lock:
            work = self._work.get(launch.name)
        if work is not None:
            self._stop(launch.name, work, _STOP_LIMIT_S)

    def close(self, limit_s: float = 10.0) -> None:
        """Stop all jobs, each so that its transaction is ended; what is unfinished then ends with the process."""
        with self._lock:
            works = dict(self._work)
        for work in works.values():
            work.clock.stop()
        deadline = self._clock.monotonic() + limit_s
        for name, work in works.items():
            try:
                self._stop(name, work, max(0.0, deadline - self._clock.monotonic()))
            except TimeoutError as error:
                _log.warning("%s", error)
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _stop(self, name: str, work: _Work, limit_s: float) -> None:
        work.clock.stop()
        work.done.cancel()
        try:
            work.done.exception(limit_s)
        except CancelledError:
            return
        except FutureTimeout as error:
            raise TimeoutError(f"job {name} did not stop within {limit_s:.0f} s") from error

    def _run(self, launch: Launch, clock: _StoppableClock) -> RunResult | None:
        confines = launch.confines if isinstance(launch, ConfinedLaunch) else None
        if confines is None or confines.connection is None:
            raise ValueError(f"job {launch.name} has no connection to act through")
        binding = Binding.of_environment(launch.environment)
        store = ConfinedRunStore(self._open_store(launch.store), confines, binding)
        kafka = self._open_kafka(confines.connection)
        try:
            if confines.patterns is not None:
                return self._run_fleet(launch, store, confines, kafka, clock)
            return self._execute(store, kafka, clock)
        finally:
            kafka.close()

    def _run_fleet(
        self, launch: Launch, store: RunStore, confines: Confines, kafka: Kafka, clock: Clock
    ) -> RunResult | None:
        connection, fleet = confines.connection, store.load().request.fleet
        if connection is None or fleet is None:
            raise ValueError(f"job {launch.name} is not of a fleet that can be reached")
        folder, _, document = launch.store.rpartition("/")
        resets = fleet_groups.SideBySide(
            lambda: closing(self._open_kafka(connection)), clock, threads=fleet_groups.FLEET_THREADS
        )
        parts = fleet_job.parts_of(
            document,
            confines,
            fleet.undoes,
            lambda name: self._open_owned(f"{folder}/{name}", launch.owner),
            kafka,
            clock,
            resets,
        )
        return fleet_job.carry_out(store, parts)

    def _note_end(self, launch: Launch, done: Future[RunResult | None]) -> None:
        error = None if done.cancelled() else done.exception()
        if isinstance(error, StaleAttempt | Stopped | ForeignRun | ForgedRun):
            _log.info("job %s stopped: %s", launch.name, error or "the operator stopped it")
        elif isinstance(error, StoreUnavailable) and not self._is_our_turn():
            _log.info("job %s stopped: %s", launch.name, error)
        elif error is not None:
            _log.error("job %s failed", launch.name, exc_info=error)
        self._ended(launch)


def _why(done: Future[RunResult | None]) -> str:
    if done.cancelled():
        return "the operator stopped it"
    error = done.exception()
    match error:
        case None:
            return ""
        case Stopped():
            return "the operator stopped it"
        case ForgedRun():
            return str(error)
        case _:
            return f"{type(error).__name__}: {error}"
