"""One suite for `tidegate.connect.ports.ConnectWorkers`: workers in memory, and a real one of Kafka Connect."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from devstack.processes import eventually
from support.connect_worker import FILE_SOURCE, ConnectWorker
from support.fake_connect import FakeConnectWorkers
from support.stack_fixtures import MakeTopic, Unique
from tidegate.connect.ports import (
    PAUSED,
    RUNNING,
    STOPPED,
    ConnectCluster,
    ConnectRefused,
    ConnectUnavailable,
    ConnectWorkers,
    TargetState,
)
from tidegate.connect.rest import RestConnectWorkers


@dataclass(frozen=True)
class World:
    workers: ConnectWorkers
    cluster: ConnectCluster
    sink: str
    source: str
    other_group: str
    """A sink that sets the group ``payments``."""

    def state(self, name: str) -> str:
        found = self.workers.look(self.cluster, name)
        return found.state if found is not None else ""

    def wait(self, holds: Callable[[], bool]) -> None:
        def holds_by_now() -> bool:
            try:
                return holds()
            except ConnectUnavailable:
                # A worker at which something is just being changed may answer 500.
                return False

        assert eventually(holds_by_now, 30), self.workers.look(self.cluster, self.sink)


@pytest.fixture(params=["memory", pytest.param("real", marks=pytest.mark.kafka)])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    if request.param == "memory":
        fake = FakeConnectWorkers()
        fake.create("sink")
        fake.create("source", kind="source")
        fake.create("other", group="payments")
        yield World(fake, ConnectCluster("main", "http://connect:8083"), "sink", "source", "other")
        return
    worker: ConnectWorker = request.getfixturevalue("connect_worker")
    make_topic: MakeTopic = request.getfixturevalue("make_topic")
    unique: Unique = request.getfixturevalue("unique")
    topic, (sink, source, other) = make_topic(), (unique("sink"), unique("source"), unique("other"))
    worker.create_sink(sink, topic, tmp_path / "sink")
    worker.create_sink(other, topic, tmp_path / "other", **{"consumer.override.group.id": "payments"})
    (tmp_path / "source").touch()
    worker.create(source, {"connector.class": FILE_SOURCE, "topic": topic, "file": str(tmp_path / "source")})
    yield World(RestConnectWorkers(), ConnectCluster("main", worker.url), sink, source, other)
    for name in (sink, source, other):
        worker.delete(name)


def test_a_sink_is_stopped_paused_and_resumed(world: World) -> None:
    running = world.workers.look(world.cluster, world.sink)
    assert running is not None
    assert (running.kind, running.state, running.tasks) == ("sink", RUNNING, (RUNNING,))
    assert running.consumer_group == f"connect-{world.sink}"
    assert world.workers.can_stop(world.cluster, world.sink)
    assert world.state(world.sink) == RUNNING

    world.workers.set_state(world.cluster, world.sink, TargetState.PAUSED)
    world.wait(lambda: (c := world.workers.look(world.cluster, world.sink)) is not None and c.tasks == (PAUSED,))

    world.workers.set_state(world.cluster, world.sink, TargetState.STOPPED)
    world.wait(lambda: (c := world.workers.look(world.cluster, world.sink)) is not None and c.is_stopped)
    world.workers.set_state(world.cluster, world.sink, TargetState.STOPPED)
    assert world.state(world.sink) == STOPPED

    world.workers.set_state(world.cluster, world.sink, TargetState.RUNNING)
    world.wait(lambda: (c := world.workers.look(world.cluster, world.sink)) is not None and c.tasks == (RUNNING,))


def test_what_was_stopped_may_be_paused_and_then_has_no_tasks(world: World) -> None:
    world.workers.set_state(world.cluster, world.sink, TargetState.STOPPED)
    world.wait(lambda: (c := world.workers.look(world.cluster, world.sink)) is not None and c.is_stopped)
    world.workers.set_state(world.cluster, world.sink, TargetState.PAUSED)
    world.wait(lambda: world.state(world.sink) == PAUSED)
    paused = world.workers.look(world.cluster, world.sink)
    assert paused is not None
    assert paused.tasks == ()


def test_kinds_and_groups_are_told(world: World) -> None:
    source, other = (world.workers.look(world.cluster, name) for name in (world.source, world.other_group))
    assert source is not None
    assert source.kind == "source"
    assert other is not None
    assert (other.kind, other.consumer_group) == ("sink", "payments")


def test_one_that_is_not_there_is_no_failure_to_look_at(world: World) -> None:
    assert world.workers.look(world.cluster, "no-such-connector") is None
    with pytest.raises(ConnectRefused, match="no connector no-such-connector"):
        world.workers.set_state(world.cluster, "no-such-connector", TargetState.STOPPED)
