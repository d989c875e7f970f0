"""Pauses of a sink connector in `support.pause_world.World`: the connector, its task, and what Connect is asked for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from support.fake_consumer import FakeConsumer
from support.pause_world import World
from tidegate.connect.ports import STOPPED, Connector, TargetState

BY_CONNECT: Mapping[str, Any] = {
    "connectionRef": {"name": "kafka"},
    "group": "connect-sink",
    "partitions": None,
    "method": "Connect",
    "connector": {"cluster": "main", "name": "sink"},
}


class Tasks:
    """The sink's task: a member of its group as long as the connector runs or is paused."""

    def __init__(self, world: World, group: str) -> None:
        self._world = world
        self._group = group
        self._consumer: FakeConsumer | None = None
        world.connect.told = self.follow

    def follow(self, connector: Connector) -> None:
        if not connector.tasks and self._consumer is not None:
            self._consumer.close()
            self._consumer = None
        elif connector.tasks and self._consumer is None:
            self._consumer = FakeConsumer(
                self._world.kafka, self._group, ["orders"], client_id=f"connector-consumer-{connector.name}-0"
            )
            self._consumer.start()


def made(state: TargetState = TargetState.RUNNING, group: str = "connect-sink") -> World:
    world = World()
    Tasks(world, group)
    world.connect.create("sink", group="" if group == "connect-sink" else group, state=STOPPED)
    world.connect.asked("sink", TargetState.RUNNING)
    if state is not TargetState.RUNNING:
        world.connect.asked("sink", state)
    world.clock.sleep(10)
    return world


def connector(world: World) -> str:
    found = world.connect.look(next(iter(world.live)).connect["main"], "sink")
    assert found is not None
    return found.state


def members(world: World) -> int:
    return len(world.kafka.groups(["connect-sink"])["connect-sink"].members)


def asked(world: World) -> list[str]:
    """What Connect was asked for."""
    return [step for step in world.steps.log if step.endswith(" sink")]
