"""One reset of a trial, carried out by writers in processes of their own, which may be killed, frozen, superseded."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final

from support.campaign.outcome import NO_END, Ended
from support.campaign.schedule import Carrier, Run
from support.deliveries import Partition
from support.history import Phase as EndPhase
from support.history import Place, ResetBegin, ResetEnd
from support.life_story import TargetKind
from support.reset_trial import Trial
from tidegate.reset.codec import decode_result
from tidegate.reset.directory_store import DirectoryRunStore
from tidegate.reset.model.request import Selection
from tidegate.reset.model.result import RunResult
from tidegate.reset.model.targets import ByDuration, ShiftBy, Target, ToEarliest, ToLatest, ToTimestamp
from tidegate.reset.runs.request import undo_target
from tidegate.reset.store import Run as StoredRun
from tidegate.reset.store import RunNotFound
from tidegate.resources.conditions import Refusal
from tidegate.resources.reset import ResetPhase

DEADLINE_S: Final = 90.0
"""What a job is given; a backfill has 5 min."""
PATIENCE_S: Final = 240.0
"""After which a reset that is not over is called so; putting back needs time of its own."""
LAUNCHES: Final = 12
WRITER: Final = (sys.executable, "-m", "support.campaign.writer")
_AGAIN_S: Final = 0.5
"""How soon a writer that ended without a result is followed by another."""
_LOOK_S: Final = 0.02
_END_S: Final = 60.0


@dataclass(slots=True)
class _Writer:
    process: subprocess.Popen[bytes]
    said: list[bytes] = field(default_factory=list)

    @property
    def is_over(self) -> bool:
        return self.process.poll() is not None

    def signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):  # it has ended meanwhile
            self.process.send_signal(number)


class Carried:
    """A reset under way. `carry_out` blocks; all else may be called from other threads.

    `writer`: a program that does what `support.campaign.writer` does.
    """

    def __init__(self, trial: Trial, run: Run, *, max_standstill_s: float, writer: Sequence[str] = WRITER) -> None:
        self.run = run
        self._trial = trial
        self._program = writer
        self._max_standstill = timedelta(seconds=max_standstill_s)
        self._lock = threading.Lock()
        self._writers: list[_Writer] = []
        self._next_at = 0.0
        self._is_superseded = threading.Event()
        self._over = threading.Event()
        self._store: DirectoryRunStore | None = None
        self._begun_at: float | None = None
        self._troubles: list[str] = []

    # --- from outside -------------------------------------------------------------------------------------------------

    @property
    def is_over(self) -> bool:
        return self._over.is_set()

    def begun_at(self, phase: ResetPhase) -> float | None:
        """When the run began the phase, or one after it, epoch seconds; ``None`` while it has not."""
        stored = self.stored()
        wanted = _ORDER[phase]
        entries = stored.journal if stored is not None else ()
        return next((entry.at.timestamp() for entry in entries if _ORDER.get(entry.phase, 0) >= wanted), None)

    def stored(self) -> StoredRun | None:
        """Its document, where it has one."""
        with contextlib.suppress(RunNotFound):
            return self._store.load() if self._store is not None else None
        return None

    def kill(self, gone_s: float) -> bool:
        """SIGKILL of the writer; the next one comes ``gone_s`` later. False where there is none."""
        with self._lock:
            writer = self._running()
            if writer is None:
                return False
            self._next_at = time.monotonic() + gone_s
            writer.signal(signal.SIGKILL)
            return True

    def freeze(self, for_s: float, *, supersede: bool = False) -> bool:
        """SIGSTOP of the writer, SIGCONT ``for_s`` later; blocks until then. False where there is none.

        `supersede`: the next one comes ``for_s`` later, and this one awakes as long again after that.
        """
        with self._lock:
            writer = self._running()
            if writer is None:
                return False
            writer.signal(signal.SIGSTOP)
        try:
            self._over.wait(for_s)
            if supersede:
                self._is_superseded.set()
                threading.Event().wait(for_s)
        finally:
            writer.signal(signal.SIGCONT)
        return True

    # --- carrying out -------------------------------------------------------------------------------------------------

    def carry_out(self, undone: StoredRun | None) -> Ended:
        """Until it is over, or given up. ``undone``: the document of the run that it is to undo."""
        asked_at, started = time.time(), time.monotonic()
        try:
            target = self._target(undone)
            if isinstance(target, Refusal):
                return Ended(self.run.name, str(self.run.to), self.run.carrier, "", target.reason, target.message)
            if self.run.carrier is Carrier.JOB:
                self._create(target)
            result = self._until_over(started)
            ended_at = time.time()
            self._wait_for_writers()
            if self.run.carrier is Carrier.BACKFILL and result is not None:
                result, ended_at = self._last_backfill(result, ended_at)
            self._tell(asked_at, ended_at, result)
            return self._ended(result, time.monotonic() - started)
        finally:
            self._over.set()
            for writer in self._writers:
                writer.signal(signal.SIGKILL)

    @property
    def troubles(self) -> tuple[str, ...]:
        """What writers did that none should."""
        return tuple(self._troubles)

    def _target(self, undone: StoredRun | None) -> Target | Refusal:
        to = self.run.to
        match to.kind:
            case TargetKind.SHIFT_BY:
                return ShiftBy(int(to.value))
            case TargetKind.EARLIEST:
                return ToEarliest()
            case TargetKind.LATEST:
                return ToLatest()
            case TargetKind.DURATION:
                return ByDuration(timedelta(seconds=int(to.value)))
            case TargetKind.TIMESTAMP:
                return ToTimestamp(datetime.now(UTC) - timedelta(seconds=int(to.value)))
            case TargetKind.UNDO:
                return undo_target(str(to.value), undone)

    def _create(self, target: Target) -> None:
        selections = (Selection(self._trial.topic, frozenset(self.run.partitions)),)
        request = self._trial.ask(
            self.run.name,
            target,
            selections,
            deadline=datetime.now(UTC) + timedelta(seconds=DEADLINE_S),
            max_standstill=self._max_standstill,
        )
        self._store = self._trial.store(request)

    def _until_over(self, started: float) -> RunResult | None:
        while time.monotonic() - started < PATIENCE_S and len(self._writers) < LAUNCHES:
            if time.monotonic() < self._next_at:
                threading.Event().wait(self._next_at - time.monotonic())
            self._is_superseded.clear()
            writer = self._launch()
            while not writer.is_over and not self._is_superseded.is_set():
                self._note_begin()
                if time.monotonic() - started > PATIENCE_S:
                    return None
                threading.Event().wait(_LOOK_S)
            result = self._result(writer)
            if result is not None:
                return result
            self._next_at = max(self._next_at, time.monotonic() + (0.0 if self._is_superseded.is_set() else _AGAIN_S))
        return None

    def _note_begin(self) -> None:
        """When the first intent was written. Later ones may take its place in the journal, so it is looked at early."""
        if self._begun_at is None and (stored := self.stored()) is not None:
            self._begun_at = next((entry.at.timestamp() for entry in stored.journal if entry.round > 0), None)

    def _launch(self) -> _Writer:
        if self.run.carrier is Carrier.JOB:
            document = f"{self._trial.group}-{self.run.name}"  # as `Trial.store` names it
            arguments = ["job", str(self._trial.folder), document]
        else:
            numbers = ",".join(map(str, self.run.partitions))
            policy, in_flight = f"{self._trial.group}-{self.run.name}", str(self._trial.cell.in_flight_s)
            where = [self._trial.bootstrap, self._trial.group, self._trial.topic, numbers]
            arguments = ["backfill", policy, *where, in_flight]
        command = [*self._program, *arguments]
        errors = self._trial.folder / f"{self.run.name}-{len(self._writers)}.err"
        with errors.open("wb") as stderr:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=stderr,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
                start_new_session=True,
            )
        writer = _Writer(process)
        with self._lock:
            self._writers.append(writer)
        return writer

    def _running(self) -> _Writer | None:
        return self._writers[-1] if self._writers and not self._writers[-1].is_over else None

    def _result(self, writer: _Writer) -> RunResult | None:
        stored = self.stored()
        if stored is not None:
            return stored.result
        if not writer.is_over or writer.process.returncode != 0:
            return None
        assert writer.process.stdout is not None
        return decode_result(writer.process.stdout.read())

    def _last_backfill(self, result: RunResult, ended_at: float) -> tuple[RunResult, float]:
        """What holds in the end, and since when. A backfill has no document by which a writer that awakes could learn
        that another one has done it: it does it once more, and the reset is not over before."""
        for writer in self._writers[:-1]:
            later = self._result(writer)
            if later is not None and later.finished_at > result.finished_at:
                result, ended_at = later, max(ended_at, later.finished_at.timestamp())
        return result, ended_at

    def _wait_for_writers(self) -> None:
        """Those that were superseded end by themselves."""
        deadline = time.monotonic() + _END_S
        for number, writer in enumerate(self._writers):
            try:
                code = writer.process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                self._troubles.append(f"{self.run.name}: writer {number} did not end within {_END_S:g} s")
            else:
                if code < 0 and code != -signal.SIGKILL:
                    self._troubles.append(f"{self.run.name}: signal {-code} ended writer {number}")

    def _tell(self, asked_at: float, ended_at: float, result: RunResult | None) -> None:
        """The reset begins where the run's first intent was written: until then it only planned."""
        topic = self._trial.topic
        requested: tuple[Partition, ...] = tuple((topic, number) for number in self.run.partitions)
        begun_at = asked_at
        places = tuple(Place(topic, number, 0) for number in self.run.partitions)
        if self.run.carrier is Carrier.JOB:
            stored = self.stored()
            plan = stored.plan if stored is not None else None
            places = tuple(Place(p.topic, p.partition, p.target) for p in plan.partitions) if plan is not None else ()
            self._note_begin()
            begun_at = self._begun_at or ended_at
        self._trial.tell(ResetBegin(begun_at, self.run.name, places, requested))
        if result is not None:
            self._trial.tell(ResetEnd(ended_at, self.run.name, EndPhase(result.phase), result.message))

    def _ended(self, result: RunResult | None, took_s: float) -> Ended:
        known = (self.run.name, str(self.run.to), self.run.carrier.value)
        launches, took_s = len(self._writers), round(took_s, 1)
        if result is None:
            logs = sorted(self._trial.folder.glob(f"{self.run.name}-*.err"))
            tail = logs[-1].read_text(errors="replace").strip().splitlines()[-1:] if logs else []
            why = f"not over after {launches} writer(s) and {took_s:g} s; {' '.join(tail)}"
            return Ended(*known, "", NO_END, why, launches=launches, took_s=took_s)
        return Ended(
            *known,
            result.phase,
            result.reason,
            result.message,
            result.way or "",
            result.rounds,
            result.redone,
            launches,
            took_s,
        )


_ORDER: Final = {
    ResetPhase.PLANNING: 1,
    ResetPhase.PAUSING: 2,
    ResetPhase.APPLYING: 3,
    ResetPhase.VERIFYING: 4,
    ResetPhase.RESUMING: 5,
}
