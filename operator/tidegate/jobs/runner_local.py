"""``spark-submit`` on this machine, as a child in a session of its own.

The operator may be killed at any point, and its drivers may survive that. So nothing about a launch is kept in memory
only: a launch's folder holds when it was started, the driver's pid with the start time that makes it unique, and its
log; and every process of a launch carries the launch's folder in its environment, by which it is found even when the
operator died between starting it and writing its pid down.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import logging
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from tidegate.clock import Clock, SystemClock
from tidegate.jobs.application import STORE_VARIABLE, resources
from tidegate.jobs.errors import RunnerFailure
from tidegate.jobs.options import local_options, spark_home, with_archive
from tidegate.jobs.runner import FORGED_EXIT, Launch, RunnerState, RunnerStatus
from tidegate.jobs.settings import SparkSettings
from tidegate.versions import LOCAL_LAUNCH, VERSION, NewerVersion, check

_log = logging.getLogger(__name__)

LAUNCH_VARIABLE = "TIDEGATE_LAUNCH"
LOG_TAIL_LINES = 20
LOG_TAIL_BYTES = 4096
TERM_PATIENCE_S = 10.0
KILL_PATIENCE_S = 10.0
KEPT = timedelta(days=7)
"""How long what is left of a launch stays after it was last written to. Of a schedule's, there is one an hour."""

_INHERITED = (
    "PATH",
    "HOME",
    "LANG",
    "LC_ALL",
    "TZ",
    "TMPDIR",
    "JAVA_HOME",
    "KUBECONFIG",
    "KUBERNETES_SERVICE_HOST",
    "KUBERNETES_SERVICE_PORT",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
)
"""What a driver gets of the operator's environment; nothing else, so that no secret in it travels along."""


@dataclass(frozen=True, slots=True)
class _Process:
    """A process that can't be mistaken for a later one with its pid. ``started``: clock ticks since boot."""

    pid: int
    started: int


class LocalSparkRunner:
    """Implements ``tidegate.jobs.runner.Runner``. Thread-safe, and safe against other operators on this machine.

    ``runs_directory``: a folder a launch is made in. ``environment``: over the operator's own (see ``_INHERITED``).
    """

    def __init__(
        self,
        runs_directory: Path,
        master: str = "local[2]",
        *,
        settings: SparkSettings | None = None,
        python: Path | None = None,
        environment: Mapping[str, str] | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._runs = runs_directory.absolute()
        self._master = master
        self._settings = settings or SparkSettings()
        self._python = python or Path(sys.executable)
        self._environment = dict(environment or {})
        self._clock = clock or SystemClock()
        self._children: dict[str, subprocess.Popen[bytes]] = {}
        self._mutex = threading.Lock()

    @property
    def engine(self) -> str:
        return "Spark"

    def start(self, launch: Launch) -> None:
        folder = self._folder(launch)
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._remove_old(folder)
        with self._locked(folder):
            if (folder / "started").exists():
                return
            # Marked before the start: should we die in between, the launch has ended without doing anything, which
            # its run's store shows; the other way round it could be started twice.
            command, environment = self._command(launch), self._environment_of(launch, folder)
            _write_durably(folder / "started", json.dumps(command))
            log = os.open(folder / "driver.log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
            try:
                child = subprocess.Popen(
                    command,
                    env=environment,
                    cwd=folder,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            except OSError as error:
                raise RunnerFailure(f"can't start {command[0]}: {error.strerror}") from error
            finally:
                os.close(log)
            process = _process(child.pid)
            if process is not None:
                _write_durably(folder / "process.json", _note_of(process))
            with self._mutex:
                self._children[launch.name] = child

    def status(self, launch: Launch) -> RunnerStatus:
        folder = self._folder(launch)
        if not (folder / "started").exists():
            return RunnerStatus(RunnerState.LOST, f"{launch.name} was never started here")
        if self._running(launch, folder):
            return RunnerStatus(RunnerState.RUNNING)
        code = self._exit_code(launch)
        if code == 0:
            return RunnerStatus(RunnerState.EXITED)
        ended = "ended" if code is None else f"was ended by signal {-code}" if code < 0 else f"ended with code {code}"
        tail = log_tail(folder / "driver.log")
        message = f"spark-submit {ended}" + (f"; its log ends:\n{tail}" if tail else "")
        return RunnerStatus(RunnerState.EXITED, message, forged=code == FORGED_EXIT)

    def stop(self, launch: Launch) -> None:
        folder = self._folder(launch)
        if not (folder / "started").exists():
            return
        # The driver first, which ends its own; then whatever is left of the launch.
        for signum, patience_s in ((signal.SIGTERM, TERM_PATIENCE_S), (signal.SIGKILL, KILL_PATIENCE_S)):
            deadline = self._clock.monotonic() + patience_s
            self._signal(folder, signum)
            while True:
                if not self._running(launch, folder):
                    return
                if self._clock.monotonic() > deadline:
                    break
                if signum == signal.SIGKILL:
                    self._signal(folder, signum)  # those that were forked in the meantime
                self._clock.sleep(0.05)
        raise TimeoutError(f"{launch.name} did not end within {TERM_PATIENCE_S + KILL_PATIENCE_S:.0f} s")

    # --- the command --------------------------------------------------------------------------------------------------

    def _command(self, launch: Launch) -> list[str]:
        options = local_options(reads_records=launch.reads_records, repeatable=launch.repeatable)
        options = with_archive(options, self._settings.class_archive)
        knobs = resources(launch.spark, self._settings, options)
        command = [
            str(spark_home() / "bin" / "spark-submit"),
            *("--master", self._master, "--name", launch.name, "--driver-memory", knobs["driver.memory"]),
        ]
        if self._settings.jars:
            command += ["--jars", ",".join(map(str, self._settings.jars))]
        for key, value in knobs["sparkConf"].items():
            command += ["--conf", f"{key}={value}"]
        return [*command, str(self._settings.templates / "jobs" / f"{launch.job}.py"), launch.store]

    def _environment_of(self, launch: Launch, folder: Path) -> dict[str, str]:
        inherited = {name: os.environ[name] for name in _INHERITED if name in os.environ}
        return {
            **inherited,
            **self._environment,
            **launch.environment,
            "SPARK_HOME": str(spark_home()),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "PYSPARK_PYTHON": str(self._python),
            "PYSPARK_DRIVER_PYTHON": str(self._python),
            "PYTHONUNBUFFERED": "1",
            STORE_VARIABLE: launch.store,
            LAUNCH_VARIABLE: str(folder),
        }

    def _remove_old(self, current: Path) -> None:
        """What is left of launches that ended long ago. Nobody asks for them: their resources have later ones."""
        oldest = (self._clock.now() - KEPT).timestamp()
        for folder in sorted(self._runs.iterdir()):
            try:
                if folder == current or not (folder / "started").exists() or _written_at(folder) > oldest:
                    continue
                with self._locked(folder):
                    if not self._running(Launch(folder.name, "", ""), folder):
                        shutil.rmtree(folder)
                        with self._mutex:
                            self._children.pop(folder.name, None)
            except (OSError, RunnerFailure) as failure:
                _log.warning("can't remove what is left of launch %s: %s", folder.name, failure)

    # --- the processes ------------------------------------------------------------------------------------------------

    def _folder(self, launch: Launch) -> Path:
        if not launch.name or "/" in launch.name or launch.name.startswith("."):
            raise ValueError(f"{launch.name!r} is not a launch's name")
        return self._runs / launch.name

    def _exit_code(self, launch: Launch) -> int | None:
        """The exit code of a child of this very operator that has ended; reaps it."""
        with self._mutex:
            child = self._children.get(launch.name)
            return None if child is None else child.poll()

    def _running(self, launch: Launch, folder: Path) -> bool:
        # To /proc a killed JVM is a zombie before the last of its threads is gone; only then it can be reaped.
        if launch.name in self._children and self._exit_code(launch) is None:
            return True
        noted = _noted(folder / "process.json")
        if noted is not None and _process(noted.pid) == noted:
            return True
        # The driver is gone or was never written down. Its workers may outlive it for a moment.
        return bool(_processes_of(folder))

    def _signal(self, folder: Path, signum: int) -> None:
        for process in _processes_of(folder):
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, signum)

    @contextlib.contextmanager
    def _locked(self, folder: Path) -> Iterator[None]:
        descriptor = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            deadline = self._clock.monotonic() + 10
            while True:
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if self._clock.monotonic() > deadline:
                        raise RunnerFailure(f"{folder} has been locked by another operator for 10 s") from None
                    self._clock.sleep(0.01)
            yield
        finally:
            os.close(descriptor)


def _written_at(folder: Path) -> float:
    """When a launch has written its log last, or was begun: in seconds since 1970. Raises ``FileNotFoundError`` where
    another operator has just removed it."""
    began, log = (folder / "started").stat().st_mtime, folder / "driver.log"
    with contextlib.suppress(FileNotFoundError):
        return max(began, log.stat().st_mtime)
    return began


def log_tail(path: Path) -> str:
    """The last lines of a log, at most ``LOG_TAIL_LINES`` and ``LOG_TAIL_BYTES``; empty where there is none."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - LOG_TAIL_BYTES))
            text = file.read().decode(errors="replace")
    except FileNotFoundError:
        return ""
    return "\n".join(text.strip().splitlines()[-LOG_TAIL_LINES:])


def _note_of(process: _Process) -> str:
    return json.dumps({VERSION: LOCAL_LAUNCH.version, "pid": process.pid, "started": process.started})


def _noted(path: Path) -> _Process | None:
    """The process that was noted; ``None`` where none was. Raises ``RunnerFailure``."""
    try:
        noted = json.loads(path.read_text())
        check(LOCAL_LAUNCH, noted.get(VERSION), str(path))
        return _Process(noted["pid"], noted["started"])
    except NewerVersion as newer:
        raise RunnerFailure(str(newer)) from newer
    except (FileNotFoundError, ValueError, KeyError, AttributeError, RecursionError):
        return None


def _process(pid: int) -> _Process | None:
    """The process with this pid, unless it is gone or only waits to be reaped (proc(5), ``/proc/pid/stat``)."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = stat.rpartition(")")[2].split()  # the name before it may hold anything
    state, started = fields[0], int(fields[19])
    return None if state in "ZX" else _Process(pid, started)


def _processes_of(folder: Path) -> list[_Process]:
    """All processes that carry the launch in their environment: the driver, its JVM, its workers."""
    mark = f"{LAUNCH_VARIABLE}={folder}".encode()
    found = []
    for entry in os.listdir("/proc"):  # noqa: PTH208 - names only, no stat of each
        if not entry.isdecimal():
            continue
        with contextlib.suppress(FileNotFoundError, ProcessLookupError, PermissionError):
            if mark in Path(f"/proc/{entry}/environ").read_bytes().split(b"\0"):
                process = _process(int(entry))
                if process is not None:
                    found.append(process)
    return found


def _write_durably(path: Path, text: str) -> None:
    temporary = path.with_suffix(".tmp")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
