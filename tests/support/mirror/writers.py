"""Processes that copy a partition, one after the other or several at once, for tests that kill and freeze them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

from support.mirror import writer_process
from support.mirror.random_topic import consumed
from tidegate.mirror.states import Way

ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
END_S = 60.0


@dataclass(frozen=True, slots=True)
class Pair:
    """A topic, by its cluster's bootstrap servers, and its copy elsewhere; both have partition 0 only."""

    source: str
    topic: str
    target: str
    copy: str

    def assert_equal(self) -> None:
        """Start, end and all that readers of committed records see."""
        theirs, ours = consumed(self.source, self.topic), consumed(self.target, self.copy)
        assert ours[:2] == theirs[:2]
        assert ours[2] == theirs[2]


@dataclass
class Writers:
    """A context manager that ends what it started. ``folder``: of the producer ids."""

    pair: Pair
    folder: Path
    way: Way = Way.MARKERS
    _running: list[subprocess.Popen[str]] = field(default_factory=list)

    def start(self) -> subprocess.Popen[str]:
        """One that copies all that the source has by now."""
        pair = self.pair
        until = consumed(pair.source, pair.topic)[1]
        names = [pair.source, pair.target, pair.topic, pair.copy, str(until), str(self.folder), self.way]
        command = [sys.executable, str(Path(writer_process.__file__)), *names]
        self._running.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=ENVIRONMENT))
        return self._running[-1]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for process in self._running:
            process.kill()
            process.communicate()


def come_to(process: subprocess.Popen[str], states: int) -> str:
    """What it printed last: after so many states, or at its end."""
    assert process.stdout is not None
    said = ""
    for _ in range(states):
        line = process.stdout.readline()
        if not line:
            break
        said = line.strip()
    return said


def kill(process: subprocess.Popen[str]) -> None:
    process.send_signal(signal.SIGKILL)
    process.wait(END_S)
