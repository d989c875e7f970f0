"""One suite for `tidegate.jobs.runner.Runner`: by script, a thread of the operator, and ``spark-submit``.

A SparkApplication takes a Spark operator: `tests/spark/test_runner_application.py`.
"""

from __future__ import annotations

import contextlib
import os
import signal
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from support.fake_kafka import FakeKafka
from support.scripted_runner import ScriptedRunner
from tidegate.clock import Clock, SystemClock
from tidegate.cluster import Kafka
from tidegate.jobs import runner_local
from tidegate.jobs.runner import Launch, Runner, RunnerState
from tidegate.jobs.runner_local import LocalSparkRunner
from tidegate.jobs.settings import SparkSettings
from tidegate.kafka.connection import Connection
from tidegate.reset.confined import Confines
from tidegate.reset.directory_store import DirectoryRunStore
from tidegate.reset.model.request import RunRequest
from tidegate.reset.model.result import RunResult
from tidegate.reset.model.targets import ToOffset
from tidegate.reset.runs.in_process import ConfinedLaunch, DirectRunner
from tidegate.reset.store import RunStore

WHY = "the broker has gone fishing"


@dataclass(frozen=True)
class Stage:
    """A runner whose job goes on until it is told to ``fail``, which it does with ``WHY``."""

    runner: Runner
    launch: Launch
    fail: Callable[[], None]
    times_run: Callable[[], int]

    def until(self, state: RunnerState) -> None:
        deadline = time.monotonic() + 60
        while (found := self.runner.status(self.launch)).state is not state:
            assert time.monotonic() < deadline, f"waited 60 s for {state}, it is {found}"
            time.sleep(0.02)

    def until_it_runs(self) -> None:
        deadline = time.monotonic() + 60
        while not self.times_run():
            assert time.monotonic() < deadline, f"waited 60 s for the job: {self.runner.status(self.launch)}"
            time.sleep(0.02)


def _by_script() -> Stage:
    begun: list[str] = []
    runner = ScriptedRunner(lambda launch: begun.append(launch.name))
    launch = Launch("payments-replay-1", "prod", "file:///nowhere/run")
    return Stage(runner, launch, lambda: runner.end(launch, WHY), lambda: len(begun))


def _in_a_thread(folder: Path) -> Iterator[Stage]:
    connection = Connection("127.0.0.1:9092")
    store = DirectoryRunStore(folder, "p-one")
    store.create(RunRequest("u/one", "one", "g", connection, (), ToOffset(1)))
    begun, failing = [], threading.Event()

    def execute(_store: RunStore, _kafka: Kafka, clock: Clock) -> RunResult | None:
        begun.append(None)
        while not failing.is_set():
            clock.sleep(0.01)
        raise RuntimeError(WHY)

    runner = DirectRunner(lambda _location: store, lambda _connection: FakeKafka(), SystemClock(), execute=execute)
    confines = Confines("u/one", "g", connection, ("*",), ("*",))
    launch = ConfinedLaunch("payments-replay-1", "prod", "file:///unused/p-one", confines=confines)
    with contextlib.closing(runner):
        yield Stage(runner, launch, failing.set, lambda: len(begun))


def _by_spark_submit(folder: Path) -> Iterator[Stage]:
    (folder / "jobs").mkdir()
    (folder / "jobs" / "reset.py").write_text(
        textwrap.dedent(f"""
            import time
            from pathlib import Path
            with open("begun", "a") as begun:
                begun.write("x")
            while not Path("fail").exists():
                time.sleep(0.02)
            raise SystemExit({WHY!r})
        """)
    )
    runs = folder / "runs"
    runner = LocalSparkRunner(runs, "local[1]", settings=SparkSettings(templates=folder, driver_memory="512m"))
    launch = Launch("payments-replay-1", "prod", "file:///nowhere/run")
    here = runs / launch.name
    yield Stage(
        runner,
        launch,
        (here / "fail").touch,
        lambda: len((here / "begun").read_text()) if (here / "begun").exists() else 0,
    )
    for process in runner_local._processes_of(here):
        os.kill(process.pid, signal.SIGKILL)


@pytest.fixture(params=["script", "thread", pytest.param("spark-submit", marks=pytest.mark.spark)])
def stage(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Stage]:
    match request.param:
        case "script":
            yield _by_script()
        case "thread":
            yield from _in_a_thread(tmp_path)
        case _:
            yield from _by_spark_submit(tmp_path)


def test_what_was_never_started_is_lost_and_stays_so(stage: Stage) -> None:
    assert stage.runner.status(stage.launch).state is RunnerState.LOST

    stage.runner.stop(stage.launch)

    assert stage.runner.status(stage.launch).state is RunnerState.LOST


def test_a_job_is_started_once_and_its_end_is_told_with_why(stage: Stage) -> None:
    stage.runner.start(stage.launch)
    assert stage.runner.status(stage.launch).state is RunnerState.RUNNING
    stage.runner.start(stage.launch)
    stage.until_it_runs()
    stage.fail()
    stage.until(RunnerState.EXITED)

    stage.runner.start(stage.launch)
    stage.runner.stop(stage.launch)

    ended = stage.runner.status(stage.launch)
    assert ended.state is RunnerState.EXITED
    assert WHY in ended.message
    assert stage.times_run() == 1


def test_a_job_that_is_stopped_has_ended_and_is_not_started_again(stage: Stage) -> None:
    stage.runner.start(stage.launch)
    stage.until_it_runs()

    stage.runner.stop(stage.launch)

    assert stage.runner.status(stage.launch).state is RunnerState.EXITED
    stage.runner.stop(stage.launch)
    stage.runner.start(stage.launch)
    assert stage.runner.status(stage.launch).state is RunnerState.EXITED
    assert stage.times_run() == 1
