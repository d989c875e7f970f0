"""Services as processes: started under a guard, found again by pid and start time, and cleaned up after a crash.

A run folder holds all that one cluster leaves on the disk:

* ``owner``: who wanted it (pid and start time), or ``detached``; with the machine's boot, since pids begin anew then;
* ``pids/<service>``: the guard's record of each service;
* ``logs/``, ``data/``, ``secrets/``.

`sweep` ends and removes what dead owners left.
"""

import contextlib
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from devstack import guard
from devstack.errors import StackError
from devstack.toolcache import say, toolcache

KEPT_LOGS = 20


@dataclass(frozen=True, slots=True)
class ProcessIdentity:
    """One process, told apart from a later one with the same pid by its start time (clock ticks since boot)."""

    pid: int
    start_ticks: int

    @classmethod
    def own(cls) -> "ProcessIdentity":
        """This process."""
        return cls(os.getpid(), guard.start_ticks(os.getpid()) or 0)

    @property
    def alive(self) -> bool:
        """Whether it still runs (a zombie does not)."""
        return guard.start_ticks(self.pid) == self.start_ticks

    def send(self, number: signal.Signals) -> None:
        """Signal it, if it still runs."""
        if self.alive:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def ended_within(self, seconds: float) -> bool:
        """Wait until it has ended, at most `seconds`."""
        return eventually(lambda: not self.alive, seconds, every=0.02)


def eventually(holds: Callable[[], bool], seconds: float, *, every: float = 0.05) -> bool:
    """Poll until `holds`, at most `seconds`; whether it came to hold."""
    deadline = time.monotonic() + seconds
    while not holds():
        if time.monotonic() >= deadline:
            return False
        time.sleep(every)
    return True


def free_ports(count: int) -> list[int]:
    """`count` ports on 127.0.0.1 that nobody has bound, outside the range from which clients' own ports are drawn.

    A stopped service comes back to its port: out of the ephemeral range any connection might have taken it meanwhile.
    """
    low, high = (int(part) for part in Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split())
    candidates = [port for port in range(15000, 60000) if not low <= port <= high] or list(range(15000, 60000))
    found: list[int] = []
    for port in random.SystemRandom().sample(candidates, min(len(candidates), 100 * count)):
        if _is_free(port):
            found.append(port)
            if len(found) == count:
                return found
    raise StackError(f"no {count} free ports on 127.0.0.1")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        # As servers do: a port with connections in TIME_WAIT counts as free.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


def runs_folder() -> Path:
    """Where the run folders of this user lie: in the temporary folder, readable by nobody else."""
    folder = Path(tempfile.gettempdir()) / f"tidegate-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    if folder.is_symlink() or folder.stat().st_uid != os.getuid():
        raise StackError(f"{folder} belongs to someone else; set TMPDIR to a folder of your own")
    folder.chmod(0o700)
    return folder


class RunFolder:
    """All that one cluster keeps on the disk."""

    __slots__ = ("path",)

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def create(cls, kind: str, *, at: Path | None = None) -> "RunFolder":
        """A new run folder (or the given one), owned by this process."""
        if at is None:
            path = Path(tempfile.mkdtemp(prefix=f"{kind}-", dir=runs_folder()))
        else:
            path = at.resolve()
            path.mkdir(parents=True, exist_ok=True)
        own = ProcessIdentity.own()
        run = cls(path)
        # First of all: a folder without it is taken for one in the making.
        run._owned_by(f"{own.pid} {own.start_ticks}")
        for part in ("pids", "logs", "data", "secrets"):
            (path / part).mkdir(mode=0o700, exist_ok=True)
        return run

    def detach(self) -> None:
        """From now on it belongs to its own services, and is abandoned when none of them runs."""
        self._owned_by("detached")

    def _owned_by(self, owner: str) -> None:
        unfinished = self.path / "owner.new"
        unfinished.write_text(f"{owner}\n{_boot()}\n")
        unfinished.replace(self.path / "owner")

    @property
    def logs(self) -> Path:
        """The services' logs."""
        return self.path / "logs"

    @property
    def data(self) -> Path:
        """The services' data."""
        return self.path / "data"

    @property
    def secrets(self) -> Path:
        """Keys and tokens."""
        return self.path / "secrets"

    def record(self, service: str) -> Path:
        """Where the guard of `service` says which processes run."""
        return self.path / "pids" / service

    def processes(self) -> list[ProcessIdentity]:
        """The living processes of all its services, guards first."""
        if not self._of_this_boot():
            return []
        found: list[ProcessIdentity] = []
        for record in sorted((self.path / "pids").glob("*")):
            with contextlib.suppress(ValueError, OSError):
                found.extend(read_record(record))
        return [process for process in found if process.alive]

    def end_processes(self, grace: float) -> None:
        """End every service: politely, and after `grace` seconds by force."""
        for process in self.processes():
            process.send(signal.SIGTERM)
        if not eventually(lambda: not self.processes(), grace):
            for process in self.processes():
                process.send(signal.SIGKILL)
            if not eventually(lambda: not self.processes(), 10):
                raise StackError(f"processes {self.processes()} of {self.path} do not end")

    def keep_logs(self) -> Path:
        """Copy the logs to the cache and return where they are; only the newest are kept there."""
        kept = toolcache().root / "logs"
        kept.mkdir(parents=True, exist_ok=True)
        target = kept / f"{time.strftime('%Y%m%d-%H%M%S')}-{self.path.name}"
        shutil.copytree(self.logs, target, dirs_exist_ok=True)
        for old in sorted(path for path in kept.iterdir() if path.is_dir())[:-KEPT_LOGS]:
            shutil.rmtree(old, ignore_errors=True)
        return target

    def remove(self) -> None:
        """Delete the folder and everything in it."""
        shutil.rmtree(self.path, ignore_errors=True)

    def is_abandoned(self) -> bool:
        """Whether nobody will ever come back for it."""
        try:
            lines = (self.path / "owner").read_text().splitlines()
        except OSError:
            return False
        if not self._of_this_boot():
            return True
        if lines[0] == "detached":
            return not self.processes()
        pid, start = (int(part) for part in lines[0].split())
        return not ProcessIdentity(pid, start).alive

    def _of_this_boot(self) -> bool:
        try:
            return (self.path / "owner").read_text().splitlines()[1:] == [_boot()]
        except OSError:
            return False


def _boot() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def read_record(record: Path) -> tuple[ProcessIdentity, ProcessIdentity]:
    """Guard and service, from the guard's record. Raises `ValueError` or `OSError` when there is none."""
    guard_pid, guard_start, pid, start = (int(part) for part in record.read_text().split())
    return ProcessIdentity(guard_pid, guard_start), ProcessIdentity(pid, start)


def sweep() -> list[Path]:
    """End the processes and remove the folders of runs whose owner is gone; returns the folders removed."""
    removed: list[Path] = []
    for path in sorted(runs_folder().iterdir()):
        run = RunFolder(path)
        if path.is_dir() and run.is_abandoned():
            # The guards end their services by themselves; give them the moment they need.
            eventually(partial(_is_quiet, run), 2)
            run.end_processes(grace=0)
            run.remove()
            removed.append(path)
    return removed


def _is_quiet(run: RunFolder) -> bool:
    return not run.processes()


class Service:
    """One program of a cluster, running under its guard."""

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        run: RunFolder,
        *,
        env: Mapping[str, str] | None = None,
        grace: float = 15,
        detached: bool = False,
    ) -> None:
        self.name = name
        self.output = run.logs / f"{name}.out"
        self._command = list(command)
        self._run = run
        self._env = {**os.environ, **(env or {})}
        self._grace = grace
        self._detached = detached
        self._guard: subprocess.Popen[bytes] | None = None
        self._process: ProcessIdentity | None = None

    @property
    def alive(self) -> bool:
        """Whether it runs."""
        return self._process is not None and self._process.alive

    @property
    def pid(self) -> int:
        """The program's pid (not its guard's)."""
        if self._process is None:
            raise StackError(f"{self.name} was never started")
        return self._process.pid

    def start(self) -> None:
        """Start it; returns when the process exists, which is long before it serves."""
        if self.alive:
            raise StackError(f"{self.name} runs already, as pid {self.pid}")
        record = self._run.record(self.name)
        record.unlink(missing_ok=True)
        parent = 0 if self._detached else os.getpid()
        line = [sys.executable, "-I", "-S", guard.__file__, str(record), str(parent), str(self._grace), *self._command]
        with self.output.open("ab") as output:
            self._guard = subprocess.Popen(
                line,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=self._env,
                # Ctrl-C at the terminal goes to the whole process group: the services end when we end them.
                start_new_session=True,
            )
        watched = self._guard
        if (
            not eventually(lambda: record.exists() or watched.poll() is not None, 20, every=0.005)
            or not record.exists()
        ):
            watched.kill()
            raise StackError(f"{self.name} did not start:\n{self.tail()}")
        self._process = read_record(record)[1]

    def kill(self) -> None:
        """End it with SIGKILL, as a crash would."""
        if self._process is not None:
            self._process.send(signal.SIGKILL)
        self._reap(10)

    def stop(self) -> None:
        """End it with SIGTERM, and after the grace period with SIGKILL."""
        if self._guard is not None and self._guard.poll() is None:
            self._guard.terminate()
        self._reap(self._grace + 10)

    def tail(self, lines: int = 30) -> str:
        """The end of what it printed."""
        return tail(self.output, lines)

    def _reap(self, seconds: float) -> None:
        if self._guard is None:
            return
        try:
            self._guard.wait(seconds)
        except subprocess.TimeoutExpired as error:
            raise StackError(f"{self.name} (pid {self.pid}) does not end") from error


def tail(path: Path, lines: int = 30) -> str:
    """The last lines of a text file; empty when there is none."""
    try:
        text = path.read_text(errors="replace")
    except FileNotFoundError:
        return ""
    return "\n".join(text.splitlines()[-lines:])


def close_run(run: RunFolder, services: Sequence[Service], *, failed: bool) -> None:
    """End the services at once (their data goes too), keep the logs if something failed, remove the folder."""
    for service in services:
        service.kill()
    if failed:
        say(f"the stack's logs are kept in {run.keep_logs()}")
    run.remove()
