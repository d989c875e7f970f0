"""Jobs in threads of the operator: started once, stopped soon, their end told."""

import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from support.fake_kafka import FakeKafka
from tidegate.clock import Clock, SystemClock
from tidegate.cluster import Kafka
from tidegate.jobs.runner import RunnerState
from tidegate.kafka.connection import Connection
from tidegate.kafka.model import TopicPartition
from tidegate.reset.confined import Confines
from tidegate.reset.directory_store import DirectoryRunStore
from tidegate.reset.document import StoreUnavailable
from tidegate.reset.model.request import FleetRequest, RunRequest
from tidegate.reset.model.result import RunResult
from tidegate.reset.model.targets import ToOffset
from tidegate.reset.runs import fleet_groups
from tidegate.reset.runs.in_process import ConfinedLaunch, DirectRunner
from tidegate.reset.store import RunStore
from tidegate.reset.stores import open_store
from tidegate.resources.reset import ResetPhase

LAUNCH = ConfinedLaunch(
    name="p-one-1",
    namespace="ns",
    store="file:///unused/p-one",
    owner={"uid": "u"},
    confines=Confines("u/one", "g", Connection("127.0.0.1:9092"), ("*",), ("*",)),
)


class Bench:
    """A runner over one stored run, and what it was told at the end."""

    def __init__(self, folder: Path, execute: Callable[[RunStore, Kafka, Clock], RunResult | None]) -> None:
        store = DirectoryRunStore(folder, "p-one")
        store.create(RunRequest("u/one", "one", "g", Connection("127.0.0.1:9092"), (), ToOffset(1)))
        self.ended = threading.Event()
        self.executed = 0
        self.our_turn = True

        def counted(run_store: RunStore, kafka: Kafka, clock: Clock) -> RunResult | None:
            self.executed += 1
            return execute(run_store, kafka, clock)

        self.runner = DirectRunner(
            lambda _location: store,
            lambda _connection: FakeKafka(),
            SystemClock(),
            execute=counted,
            ended=lambda _launch: self.ended.set(),
            is_our_turn=lambda: self.our_turn,
        )


def test_a_launch_is_executed_once_and_its_end_is_told(tmp_path: Path) -> None:
    bench = Bench(tmp_path, lambda _store, _kafka, _clock: None)
    assert bench.runner.status(LAUNCH).state is RunnerState.LOST

    bench.runner.start(LAUNCH)
    assert bench.ended.wait(5)
    bench.runner.start(LAUNCH)

    assert bench.executed == 1
    assert bench.runner.status(LAUNCH).state is RunnerState.EXITED
    assert bench.runner.status(LAUNCH).message == ""
    bench.runner.close()


def test_a_job_that_fails_says_why(tmp_path: Path) -> None:
    def fail(_store: RunStore, _kafka: Kafka, _clock: Clock) -> RunResult | None:
        raise RuntimeError("the disk is full")

    bench = Bench(tmp_path, fail)

    bench.runner.start(LAUNCH)
    assert bench.ended.wait(5)

    assert "the disk is full" in bench.runner.status(LAUNCH).message
    bench.runner.close()


@pytest.mark.parametrize("how", ["stop", "close"])
def test_a_job_that_waits_is_stopped_at_once_and_ends_its_transaction(tmp_path: Path, how: str) -> None:
    waiting, left = threading.Event(), threading.Event()

    def wait(_store: RunStore, _kafka: Kafka, clock: Clock) -> RunResult | None:
        try:
            waiting.set()
            clock.sleep(3600)
        finally:
            left.set()
        return None

    bench = Bench(tmp_path, wait)
    bench.runner.start(LAUNCH)
    assert waiting.wait(5)
    assert bench.runner.status(LAUNCH).state is RunnerState.RUNNING

    if how == "stop":
        bench.runner.stop(LAUNCH)
        bench.runner.stop(LAUNCH)
    else:
        bench.runner.close()

    assert left.wait(5)
    assert bench.runner.status(LAUNCH).message == "the operator stopped it"
    bench.runner.close()


def test_a_job_that_was_frozen_with_its_process_ends_where_that_leads_no_more(tmp_path: Path) -> None:
    begun = threading.Event()

    def work(_store: RunStore, _kafka: Kafka, clock: Clock) -> RunResult | None:
        while True:
            clock.sleep(0.01)
            begun.set()

    bench = Bench(tmp_path, work)
    bench.runner.start(LAUNCH)
    assert begun.wait(5)
    bench.our_turn = False

    assert bench.ended.wait(5)
    assert bench.runner.status(LAUNCH).message == "the operator stopped it"
    bench.runner.close()


@pytest.mark.parametrize(("our_turn", "level"), [(False, "INFO"), (True, "ERROR")])
def test_a_job_that_may_not_write_any_more_has_stopped_and_not_failed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, our_turn: bool, level: str
) -> None:
    def write(_store: RunStore, _kafka: Kafka, _clock: Clock) -> RunResult | None:
        bench.our_turn = our_turn
        raise StoreUnavailable("can't write it")

    bench = Bench(tmp_path, write)
    caplog.set_level("INFO", "tidegate.reset.runs.in_process")

    bench.runner.start(LAUNCH)
    assert bench.ended.wait(5)

    assert [record.levelname for record in caplog.records] == [level]
    bench.runner.close()


def test_stopping_what_never_started_is_nothing(tmp_path: Path) -> None:
    bench = Bench(tmp_path, lambda _store, _kafka, _clock: None)

    bench.runner.stop(LAUNCH)

    assert bench.executed == 0
    bench.runner.close()


def test_a_fleets_groups_are_reset_through_connections_of_their_own_and_their_documents_owned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # One thread: the fake is for one.
    monkeypatch.setattr(fleet_groups, "FLEET_THREADS", 1)
    kafka, partition = FakeKafka(), TopicPartition("orders", 0)
    kafka.create_topic("orders", 1)
    kafka.fill("orders", 100)
    for group in ("pay-a", "pay-b", "other"):
        kafka.commit_directly(group, {partition: 50})
    connection = Connection("127.0.0.1:9092")
    store = DirectoryRunStore(tmp_path, "p-one")
    fleet = FleetRequest(("pay-*",))
    store.create(RunRequest("u/one", "one", "", connection, (), ToOffset(10), fleet=fleet))
    opened, owned, ended = [], [], threading.Event()

    def open_kafka(to: Connection) -> FakeKafka:
        opened.append(to)
        return kafka

    def open_owned(location: str, owner: Mapping[str, Any]) -> RunStore:
        owned.append(owner)
        return open_store(location)

    runner = DirectRunner(
        open_store, open_kafka, SystemClock(), ended=lambda _launch: ended.set(), open_owned=open_owned
    )
    confines = Confines("u/one", "", connection, ("*",), ("*",), patterns=("pay-*",))
    launch = replace(LAUNCH, store=store.location, confines=confines)

    runner.start(launch)

    assert ended.wait(30)
    result = store.load().result
    assert result is not None, runner.status(launch).message
    assert result.phase is ResetPhase.SUCCEEDED
    assert [kafka.committed(g)[partition] for g in ("pay-a", "pay-b", "other")] == [10, 10, 50]
    assert opened == [connection] * 3
    assert {str(owner) for owner in owned} == {str(LAUNCH.owner)}
    runner.close()
