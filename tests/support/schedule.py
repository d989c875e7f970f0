"""The order of test files, longest first, by what each took when it was last recorded; and what they take now.

pytest-xdist hands out whole files in the order in which they were collected (``--dist loadfile
--no-loadscope-reorder``): the longest begin, so that none of them is left for the end, while the other workers idle.
"""

from __future__ import annotations

import json
import os
import time
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

import pytest

RECORDED: Final = Path(__file__).resolve().parents[1] / "durations.json"
"""Wall seconds by test file, as a path below the project, fixtures included; written by ``--write-durations``."""

_ROWS: Final = 12


def recorded_durations(recorded: Path = RECORDED) -> dict[str, float]:
    """What the file says. Raises ``ValueError`` where it is not JSON."""
    found: dict[str, float] = json.loads(recorded.read_text())
    return found


def longest_first(items: list[pytest.Item], durations: Mapping[str, float]) -> None:
    """Order tests in place, those of a file together: files without a duration, then the others, the longest first,
    then those that run in the background from the start (`support.at_once`) and are only to be waited for.
    """

    def key(item: pytest.Item) -> float:
        if item.get_closest_marker("in_background"):
            return float("inf")
        return -durations.get(_file_of(item.nodeid), float("inf"))

    items.sort(key=key)


def _file_of(nodeid: str) -> str:
    return nodeid.partition("::")[0]


@dataclass(frozen=True, slots=True)
class CoreTime:
    """What the kernel has counted for all cores since it started, in its ticks (proc_stat(5))."""

    idle: int
    total: int

    @classmethod
    def now(cls, stat: Path = Path("/proc/stat")) -> Self:
        """Read it; waiting for a disk counts as idle. The last two columns are part of the first two."""
        ticks = [int(word) for word in stat.read_text().splitlines()[0].split()[1:9]]
        return cls(idle=ticks[3] + ticks[4], total=sum(ticks))

    def busy_since(self, before: CoreTime) -> float:
        """Percent of the time since then in which a core was not idle, on average."""
        total = self.total - before.total
        return 100.0 * (1 - (self.idle - before.idle) / total) if total else 0.0


class FileTimes:
    """Sums up what each file takes, tells of the slowest in the end, and records it on request.

    Of pytest-xdist's processes it works in the one that is told of all tests.
    """

    def __init__(self, *, record_in: Path | None = None) -> None:
        self._record_in = record_in
        self._seconds: defaultdict[str, float] = defaultdict(float)
        self._cores = CoreTime.now()
        self._started = time.monotonic()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Add a phase of a test."""
        self._seconds[_file_of(report.nodeid)] += report.duration

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
        """Tell of the slowest files where there is something to compare, and write what was measured."""
        if self._record_in is not None:
            known = recorded_durations(self._record_in)
            known |= {name: round(seconds, 1) for name, seconds in self._seconds.items()}
            there = {name: seconds for name, seconds in known.items() if (config.rootpath / name).is_file()}
            self._record_in.write_text(json.dumps(there, indent=1, sort_keys=True) + "\n")
            terminalreporter.write_line(f"recorded what {len(self._seconds)} files have taken in {self._record_in}")
        if len(self._seconds) < 2:
            return
        busy = CoreTime.now().busy_since(self._cores)
        elapsed = time.monotonic() - self._started
        terminalreporter.section(f"slowest files ({os.cpu_count()} cores {busy:.0f} % busy for {elapsed:.0f} s)")
        slowest = sorted(self._seconds.items(), key=lambda pair: -pair[1])
        for name, seconds in slowest[:_ROWS]:
            terminalreporter.write_line(f"{seconds:8.1f} s  {name}")


def pytest_addoption(parser: pytest.Parser) -> None:
    """``--write-durations``."""
    parser.addoption(
        "--write-durations",
        action="store_true",
        help=f"record in tests/{RECORDED.name} what each file has taken, by which later runs begin the longest first",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Sum up in the process that is told of all tests."""
    if not hasattr(config, "workerinput"):
        record = config.getoption("write_durations", default=False)
        config.pluginmanager.register(FileTimes(record_in=RECORDED if record else None), "file-times")
