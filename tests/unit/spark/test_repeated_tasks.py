"""A task that Spark does once more, since it has lost the executor: the run is gone on with, and applied once."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
from pyspark import TaskContext

from support.fake_kafka import FakeClock, FakeKafka
from tidegate.kafka.connection import Connection
from tidegate.kafka.model import GroupType, TopicPartition
from tidegate.reset.codec import decode_result
from tidegate.reset.directory_store import DirectoryRunStore
from tidegate.reset.model.progress import Progress
from tidegate.reset.model.request import RunRequest
from tidegate.reset.model.targets import ToOffset
from tidegate.reset.planning.planner import make_plan
from tidegate.reset.store import StaleAttempt
from tidegate.resources.reset import ResetPhase
from tidegate.spark import job

T0 = TopicPartition("orders", 0)


class World:
    """A planned run that sends an Empty group from 50 to 10, and the task that applies it."""

    def __init__(self, folder: Path, patched: pytest.MonkeyPatch) -> None:
        self.clock = FakeClock()
        self.kafka = FakeKafka(self.clock)
        self.kafka.create_topic("orders", 1)
        self.kafka.fill("orders", 100)
        self.kafka.commit_directly("payments", {T0: 50})
        self.kafka.set_group("payments", GroupType.CLASSIC)
        self.store = DirectoryRunStore(folder, "run", clock=self.clock)
        request = RunRequest("u/one", "one", "payments", Connection("127.0.0.1:9092"), (), ToOffset(10))
        self.store.create(request)
        self.attempt = self.store.begin_attempt()
        self.store.write_plan(make_plan(request, self.kafka, self.clock.now()), attempt=self.attempt)
        self.patched = patched
        patched.setattr(job, "KafkaClient", lambda _connection: self.kafka)
        patched.setattr(job, "SystemClock", lambda: self.clock)

    def applied(self, *, times_before: int) -> tuple[str, str]:
        context = SimpleNamespace(attemptNumber=lambda: times_before)
        self.patched.setattr(TaskContext, "get", lambda: context)
        return job._apply_one((self.store.location, self.attempt, ""), None)

    @property
    def offset(self) -> int:
        return self.kafka.committed("payments")[T0]


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    return World(tmp_path, monkeypatch)


def test_a_run_that_has_ended_is_told_and_not_applied_again(world: World) -> None:
    first = world.applied(times_before=0)
    assert world.offset == 10
    world.kafka.commit_directly("payments", {T0: 40})

    assert world.applied(times_before=1) == first
    assert world.offset == 40
    assert world.store.load().attempt == world.attempt


def test_a_run_is_taken_over_from_the_executor_that_was_lost(world: World) -> None:
    kind, answer = world.applied(times_before=1)

    assert (kind, decode_result(answer).phase, world.offset) == ("", ResetPhase.SUCCEEDED, 10)
    assert world.store.load().attempt == world.attempt + 1
    with pytest.raises(StaleAttempt):
        world.store.append(Progress(ResetPhase.APPLYING, world.clock.now(), world.attempt), attempt=world.attempt)


def test_a_run_that_another_job_has_is_left_to_it(world: World) -> None:
    later = world.store.begin_attempt()

    assert world.applied(times_before=1)[0] == "StaleAttempt"
    assert (world.store.load().attempt, world.offset) == (later, 50)
