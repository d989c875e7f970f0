"""``spark-submit`` as a child: real processes, a job that only does what the test needs."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tidegate.jobs import runner_local
from tidegate.jobs.runner import Launch, RunnerState
from tidegate.jobs.runner_local import LocalSparkRunner
from tidegate.jobs.settings import SparkSettings

pytestmark = pytest.mark.spark

WAITS = """
    import os, sys, time
    open("here", "w").write(str(os.getpid()))
    time.sleep(120)
"""


def until(condition: Callable[[], object], what: str, seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"waited {seconds} s for {what}"
        time.sleep(0.05)


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    return tmp_path / "runs"


@pytest.fixture
def make_runner(tmp_path: Path, runs: Path) -> Iterator[Callable[[str], LocalSparkRunner]]:
    """A runner whose job is the given script; whatever it started is ended after the test."""
    (tmp_path / "jobs").mkdir()

    def make(script: str) -> LocalSparkRunner:
        (tmp_path / "jobs" / "reset.py").write_text(textwrap.dedent(script))
        return LocalSparkRunner(runs, "local[1]", settings=SparkSettings(templates=tmp_path, driver_memory="512m"))

    yield make
    for folder in runs.glob("*"):
        for process in runner_local._processes_of(folder):
            os.kill(process.pid, signal.SIGKILL)


@pytest.fixture
def launch() -> Launch:
    return Launch("payments-replay-1", "prod", "file:///nowhere/run")


def test_a_job_runs_once_and_is_told_where_its_run_is(
    make_runner: Callable[[str], LocalSparkRunner], runs: Path, launch: Launch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", "/somewhere/kubeconfig")
    monkeypatch.setenv("KAFKA_PASSWORD", "secret")
    runner = make_runner("""
        import json, os, sys
        with open("told", "a") as file:
            file.write(json.dumps([sys.argv[1:], dict(os.environ), sys.executable]) + "\\n")
    """)
    assert runner.status(launch).state is RunnerState.LOST
    runner.start(launch)
    runner.start(launch)
    until(lambda: runner.status(launch).state is RunnerState.EXITED, "the end")
    runner.start(launch)
    status = runner.status(launch)
    assert (status.state, status.message) == (RunnerState.EXITED, "")
    [line] = (runs / launch.name / "told").read_text().splitlines()
    arguments, environment, python = json.loads(line)
    assert arguments == [launch.store]
    assert environment["TIDEGATE_STORE"] == launch.store
    assert environment["KUBECONFIG"] == "/somewhere/kubeconfig"
    assert "KAFKA_PASSWORD" not in environment
    assert python == sys.executable


def test_a_job_that_fails_says_why(make_runner: Callable[[str], LocalSparkRunner], launch: Launch) -> None:
    runner = make_runner("raise SystemExit('the broker has gone fishing')")
    runner.start(launch)
    until(lambda: runner.status(launch).state is RunnerState.EXITED, "the end")
    message = runner.status(launch).message
    assert message.startswith("spark-submit ended with code 1")
    assert "the broker has gone fishing" in message


def test_stopping_ends_every_process_of_the_job(
    make_runner: Callable[[str], LocalSparkRunner], runs: Path, launch: Launch
) -> None:
    runner = make_runner(WAITS)
    runner.start(launch)
    folder = runs / launch.name
    until((folder / "here").exists, "the job")
    assert len(runner_local._processes_of(folder)) >= 2  # the JVM and the driver's Python
    runner.stop(launch)
    assert runner_local._processes_of(folder) == []
    assert runner.status(launch).state is RunnerState.EXITED
    runner.stop(launch)


def test_a_job_that_will_not_end_is_killed(
    make_runner: Callable[[str], LocalSparkRunner], runs: Path, launch: Launch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner_local, "TERM_PATIENCE_S", 0.5)
    runner = make_runner("import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + textwrap.dedent(WAITS))
    runner.start(launch)
    until((runs / launch.name / "here").exists, "the job")
    runner.stop(launch)
    assert runner_local._processes_of(runs / launch.name) == []


def test_stopping_what_was_never_started_is_nothing(
    make_runner: Callable[[str], LocalSparkRunner], launch: Launch
) -> None:
    make_runner(WAITS).stop(launch)


OPERATOR = """
import os, signal, sys
from pathlib import Path
from tidegate.jobs.runner import Launch
from tidegate.jobs import runner_local
from tidegate.jobs.settings import SparkSettings

def die(*_, **__):
    os.kill(os.getpid(), signal.SIGKILL)

if sys.argv[3] == "before-writing-the-pid":
    runner_local._process = die
if sys.argv[3] == "before-starting":
    runner_local.subprocess.Popen = die
runner = runner_local.LocalSparkRunner(
    Path(sys.argv[1]), "local[1]", settings=SparkSettings(templates=Path(sys.argv[2]), driver_memory="512m")
)
runner.start(Launch("payments-replay-1", "prod", "file:///nowhere/run"))
die()
"""


def an_operator_that_dies(runs: Path, templates: Path, when: str) -> None:
    done = subprocess.run([sys.executable, "-c", OPERATOR, str(runs), str(templates), when], timeout=60, check=False)
    assert done.returncode == -signal.SIGKILL


@pytest.mark.parametrize("when", ["after-starting", "before-writing-the-pid"])
def test_the_next_operator_takes_over_a_driver_that_survived(
    make_runner: Callable[[str], LocalSparkRunner], tmp_path: Path, runs: Path, launch: Launch, when: str
) -> None:
    runner = make_runner(WAITS)
    an_operator_that_dies(runs, tmp_path, when)
    folder = runs / launch.name
    assert (folder / "process.json").exists() == (when == "after-starting")
    assert runner.status(launch).state is RunnerState.RUNNING
    until((folder / "here").exists, "the job")
    runner.start(launch)
    until(lambda: len(runner_local._processes_of(folder)) == 2, "the JVM and the driver's Python alone")
    runner.stop(launch)
    assert runner.status(launch).state is RunnerState.EXITED


def test_the_next_operator_sees_that_a_driver_is_gone(
    make_runner: Callable[[str], LocalSparkRunner], tmp_path: Path, runs: Path, launch: Launch
) -> None:
    runner = make_runner(WAITS)
    an_operator_that_dies(runs, tmp_path, "after-starting")
    for process in runner_local._processes_of(runs / launch.name):
        os.kill(process.pid, signal.SIGKILL)
    until(lambda: runner.status(launch).state is RunnerState.EXITED, "the end", 10)


def test_an_operator_that_died_before_it_started_anything_leaves_an_ended_launch(
    make_runner: Callable[[str], LocalSparkRunner], tmp_path: Path, runs: Path, launch: Launch
) -> None:
    runner = make_runner(WAITS)
    an_operator_that_dies(runs, tmp_path, "before-starting")
    assert runner.status(launch).state is RunnerState.EXITED
    runner.start(launch)
    assert runner_local._processes_of(runs / launch.name) == []


def test_another_process_with_the_same_pid_is_not_the_driver(
    make_runner: Callable[[str], LocalSparkRunner], runs: Path, launch: Launch
) -> None:
    runner = make_runner(WAITS)
    folder = runs / launch.name
    folder.mkdir(parents=True)
    (folder / "started").write_text("[]")
    (folder / "process.json").write_text(json.dumps({"pid": os.getpid(), "started": 1}))
    assert runner.status(launch).state is RunnerState.EXITED


def test_what_is_left_of_launches_that_ended_long_ago_is_removed(
    make_runner: Callable[[str], LocalSparkRunner], runs: Path, launch: Launch
) -> None:
    runner = make_runner(WAITS)
    running = Launch("mirror-1", "prod", "file:///nowhere/run")
    runner.start(running)
    until((runs / running.name / "here").exists, "the job")
    old, young, others = runs / "old-1", runs / "young-1", runs / "not-a-launch"
    for folder in (old, young, others):
        folder.mkdir()
    for folder in (old, young):
        (folder / "started").write_text("[]")
    eight_days_ago = time.time() - 8 * 24 * 3600
    for file in (old / "started", runs / running.name / "started", runs / running.name / "driver.log"):
        os.utime(file, (eight_days_ago, eight_days_ago))

    runner.start(launch)

    assert sorted(folder.name for folder in runs.iterdir()) == sorted(
        [launch.name, running.name, young.name, others.name]
    )
    assert runner.status(running).state is RunnerState.RUNNING


@pytest.mark.parametrize("name", ["", "../other", ".hidden"])
def test_a_launch_stays_in_its_folder(make_runner: Callable[[str], LocalSparkRunner], name: str) -> None:
    with pytest.raises(ValueError, match="not a launch's name"):
        make_runner(WAITS).start(Launch(name, "prod", "file:///nowhere/run"))


def test_an_archive_of_classes_that_does_not_fit_is_ignored(tmp_path: Path, runs: Path, launch: Launch) -> None:
    (tmp_path / "jobs").mkdir()
    (tmp_path / "jobs" / "reset.py").write_text("open('here', 'w').close()")
    (tmp_path / "classes.jsa").write_bytes(b"made for another Java")
    settings = SparkSettings(templates=tmp_path, driver_memory="512m", class_archive=tmp_path / "classes.jsa")
    runner = LocalSparkRunner(runs, "local[1]", settings=settings)
    runner.start(launch)
    until(lambda: runner.status(launch).state is RunnerState.EXITED, "the end")
    assert (runs / launch.name / "here").exists(), runner.status(launch).message
    assert "SharedArchiveFile" in (runs / launch.name / "started").read_text()
