"""Tests of one file that run several at once, and files that run beside all others.

``pytestmark = pytest.mark.at_once(6)``: the file's tests spend their time waiting and have names of their own on a
broker or an API server that they share. When the first one's turn comes, all that are selected are given to a second
pytest, which runs them in this many processes, each one test at a time. `SHARED` says what it is told of the session.

``pytestmark = pytest.mark.in_background``: the file's tests have all they need to themselves and wait for minutes. Such
a file is run by a second pytest from the session's start, whoever's turn it is; one process does it as a whole.

A test's own report is that of its run: outcome, traceback and output; its duration is how long it was waited for here.
With ``-s`` or ``--pdb``, and where a single test is selected, everything runs in the first process.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import pytest

from devstack.guard import start_ticks
from support.hangs import wait_without_limit

SHARED: Final[dict[str, Callable[[Any], dict[str, str]]]] = {
    "kafka": lambda cluster: {"TIDEGATE_BOOTSTRAP": cluster.bootstrap},
    "apiserver": lambda server: {"KUBECONFIG": str(server.kubeconfig)},
}
"""Fixtures of the session that its second pytests use, too, and the variables that lead to them."""

_REPORTS: Final = "TIDEGATE_TEST_REPORTS"
"""Where a second pytest writes its tests' reports; set in that one only, and in its processes."""

_OUTCOME: Final = pytest.StashKey[list[pytest.TestReport]]()


class Run:
    """A second pytest that runs some tests, or (``process`` absent) another worker's."""

    def __init__(self, config: pytest.Config, folder: Path, process: subprocess.Popen[bytes] | None = None) -> None:
        self._config = config
        self._folder = folder
        self.process = process
        self._read_to = 0
        self._reports: dict[str, list[pytest.TestReport]] = {}

    @classmethod
    def start(
        cls, config: pytest.Config, folder: Path, tests: Sequence[str], processes: int, environment: dict[str, str]
    ) -> Run:
        """``tests``: ids, in their order. ``folder`` is there and empty."""
        # What pytest and pytest-xdist say of the first one would lead the second one astray.
        own = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
        # One test is handed out at a time: some last ten times as long as others.
        several = ("-n", str(min(processes, len(tests))), "--dist", "load", "--maxschedchunk", "1")
        selection = ("-m", config.option.markexpr) if config.option.markexpr else ()
        command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *several, *selection, *tests]
        with (folder / "output").open("wb") as output:
            process = subprocess.Popen(
                command,
                env={**own, **environment, _REPORTS: str(folder / "reports")},
                cwd=config.rootpath,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        # Another worker must not find half of it.
        (folder / "pid.new").write_text(f"{process.pid} {start_ticks(process.pid)}")
        (folder / "pid.new").rename(folder / "pid")
        return cls(config, folder, process)

    def reports(self, test: str) -> list[pytest.TestReport]:
        """Of set-up, call and tear-down of one test, once it has ended. Fails when its process ended before it."""
        while True:
            has_ended = self._has_ended()
            self._read()
            found = self._reports.get(test, [])
            if any(report.when not in ("setup", "call") for report in found):
                if found[-1].when == "???":  # so pytest-xdist reports the test of a process that crashed
                    found[-1].sections.append(("what the processes printed", self._output()))
                return found
            assert not has_ended, f"pytest ended without a report of {test}:\n{self._output()}"
            time.sleep(0.05)

    def _output(self) -> str:
        return (self._folder / "output").read_text()

    def _has_ended(self) -> bool:
        if self.process is not None:
            return self.process.poll() is not None
        written = self._folder / "pid"
        if not written.exists():
            return False
        number, started = written.read_text().split()
        # Its number may be another process's by now, and if the worker that began it has crashed, nobody may reap it.
        return str(start_ticks(int(number))) != started

    def _read(self) -> None:
        written = self._folder / "reports"
        if not written.exists():
            return
        with written.open("rb") as stream:
            stream.seek(self._read_to)
            for line in stream:
                if not line.endswith(b"\n"):  # it is being written
                    break
                self._read_to += len(line)
                report = self._config.hook.pytest_report_from_serializable(config=self._config, data=json.loads(line))
                if isinstance(report.longrepr, list):  # where a test was skipped, and why; JSON has no tuples
                    report.longrepr = tuple(report.longrepr)
                self._reports.setdefault(report.nodeid, []).append(report)

    def end(self) -> None:
        """As a person ends it, so that its tests tidy up."""
        if self.process is None or self.process.poll() is not None:
            return
        self.process.send_signal(signal.SIGINT)
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


class Runs:
    """The second pytests of a session, by file."""

    def __init__(self, session: pytest.Session, base: Path, common: Path) -> None:
        """``base``: a folder of this worker; ``common``: one of all workers of the session."""
        self._session = session
        self._base = base
        self._common = common
        self._several: dict[Path, Run] = {}
        self._background: dict[Path, Run] = {}

    def start_background(self) -> None:
        for file in {item.path for item in self._session.items if item.get_closest_marker("in_background")}:
            tests = [item for item in self._session.items if item.path == file and _is_handed_over(item)]
            if not tests:
                continue
            folder = self._common / f"in-background-{file.stem}"
            try:
                folder.mkdir()
            except FileExistsError:  # another worker was here first
                self._background[file] = Run(self._session.config, folder)
            else:
                self._background[file] = Run.start(self._session.config, folder, [test.nodeid for test in tests], 1, {})

    def reports(self, item: pytest.Function) -> list[pytest.TestReport]:
        if item.get_closest_marker("in_background"):
            return self._background[item.path].reports(item.nodeid)
        if item.path not in self._several:
            folder = self._base / f"at-once-{item.path.stem}"
            folder.mkdir()
            environment: dict[str, str] = {}
            for name in SHARED.keys() & item.funcargs.keys():
                environment |= SHARED[name](item.funcargs[name])
            marker = item.get_closest_marker("at_once")
            assert marker is not None
            tests = [test.nodeid for test in _marked_in(item)]
            self._several[item.path] = Run.start(item.config, folder, tests, marker.args[0], environment)
        return self._several[item.path].reports(item.nodeid)

    def end(self) -> None:
        """Another worker may still ask for what runs in the background, unless the session ends early."""
        is_cut_short = bool(self._session.shouldstop or self._session.shouldfail)
        for run in self._background.values():
            if run.process is not None and not is_cut_short:
                run.process.wait()
        for run in (*self._several.values(), *self._background.values()):
            run.end()


@pytest.fixture(scope="session", autouse=True)
def second_pytests(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runs]:
    """Those of this session's tests that run several at once or in the background."""
    base = tmp_path_factory.getbasetemp()
    runs = Runs(request.session, base, base.parent if hasattr(request.config, "workerinput") else base)
    runs.start_background()
    try:
        yield runs
    finally:
        runs.end()


def _marked_in(item: pytest.Item) -> list[pytest.Item]:
    return [test for test in item.session.items if test.path == item.path and test.get_closest_marker("at_once")]


def _is_handed_over(item: pytest.Item) -> bool:
    """Whether a second pytest runs the test."""
    config = item.config
    if _REPORTS in os.environ or config.option.usepdb or config.option.capture == "no":
        return False
    if item.get_closest_marker("in_background"):
        return True
    # Where workers share a file's tests, each would run all of them.
    is_whole_file = getattr(config, "workerinput", {}).get("dist", "loadfile") in ("loadfile", "loadscope")
    return is_whole_file and item.get_closest_marker("at_once") is not None and len(_marked_in(item)) > 1


class _Reporter:
    """Writes the reports of a second pytest."""

    def __init__(self, config: pytest.Config, path: Path) -> None:
        self._config = config
        self._path = path

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        data = self._config.hook.pytest_report_to_serializable(config=self._config, report=report)
        data.pop("node", None)  # pytest-xdist's own object
        with self._path.open("a") as stream:
            stream.write(json.dumps(data) + "\n")


def pytest_configure(config: pytest.Config) -> None:
    """Name the two markers; in a second pytest, report to the first one."""
    config.addinivalue_line("markers", "at_once(processes): the file's tests run several at once")
    config.addinivalue_line(
        "markers", "in_background: the file's tests run from the session's start, beside all others"
    )
    if _REPORTS in os.environ and not hasattr(config, "workerinput"):
        config.pluginmanager.register(_Reporter(config, Path(os.environ[_REPORTS])))


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """pytest-xdist does not tell its workers how tests are spread over them."""
    node.workerinput["dist"] = node.config.option.dist


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Of a test that is run elsewhere only what it shares is set up here."""
    if isinstance(item, pytest.Function) and _is_handed_over(item):
        shared = [] if item.get_closest_marker("in_background") else [n for n in SHARED if n in item.fixturenames]
        item.fixturenames[:] = ["second_pytests", *shared]


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Wait for the run of a test that is run elsewhere."""
    if not _is_handed_over(pyfuncitem):
        return None
    wait_without_limit()  # it has its own in the process that runs it
    runs: Any = pyfuncitem.funcargs["second_pytests"]
    pyfuncitem.stash[_OUTCOME] = runs.reports(pyfuncitem)
    return True


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Report of a test what its run elsewhere reported."""
    report = yield
    found = item.stash.get(_OUTCOME, [])
    if call.when != "call" or not found:
        return report
    failures = [one for one in found if one.failed]
    said = next((one for one in (*failures, *found) if one.failed or one.when == "call" or one.skipped), found[-1])
    for name in ("outcome", "longrepr", "wasxfail"):
        if hasattr(said, name):
            setattr(report, name, getattr(said, name))
    # The last one has all that was captured.
    report.sections = [*found[-1].sections, *((f"also failed: {one.when}", one.longreprtext) for one in failures[1:])]
    return report
