"""An operator that looks for new partitions of the in-memory Kafka, for one policy."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from typing import Any

from support.fake_kafka import FakeClock, FakeKafka
from support.fake_kube import FakeKube
from support.live import live_of
from tidegate.connection.control_topics import TopicsOfConnections
from tidegate.connection.live import LiveConnections
from tidegate.connection.observer import Observer
from tidegate.control.records import PartitionKey, PartitionSeen
from tidegate.discovery.feature import DiscoveryFeature, Parts
from tidegate.discovery.remembered import PART, decode
from tidegate.kafka.errors import Unavailable
from tidegate.kafka.model import TopicPartition
from tidegate.kube.ports import KubeEvent
from tidegate.policy.feature import PolicyView
from tidegate.policy.memory import GroupMemory, PolicyMemory
from tidegate.resources.base import parse_spec
from tidegate.resources.connection import AllowSpec
from tidegate.resources.discovery import DiscoveredTopic, DiscoveryStatus
from tidegate.resources.policy import OffsetResetPolicySpec, PolicyStatus
from tidegate.service.metrics import Metrics

GROUP = "payments"


WITHIN_S = 10.0


RULE = {"latest": {"maxAge": "1h"}}


class World:
    """A cluster, a policy for its topics, and an operator that may be replaced by a fresh one."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.kafka = FakeKafka(self.clock)
        self.kafka.create_topic("orders", 2)
        self.executor = ThreadPoolExecutor(4)
        self.backfilling = ThreadPoolExecutor(4)
        self.status = PolicyStatus()
        self.kube = FakeKube()
        self.told: list[KubeEvent] = []
        self.resetting = False
        self.allow = AllowSpec()
        self.metrics = Metrics()

    def counted(self, name: str, **labels: str) -> float | None:
        return self.metrics.registry.get_sample_value(name, labels)

    @contextmanager
    def operator(self, **spec: Any) -> Iterator[Operator]:
        with asyncio.Runner() as runner:
            operator = runner.run(self._start(spec))
            operator.run = runner.run
            try:
                yield operator
            finally:
                runner.run(operator.feature.stop())

    async def _start(self, spec: dict[str, Any]) -> Operator:
        return Operator(self, {"topics": ["*"], "discovery": {"interval": "10ms"}, **spec})


class Operator:
    """What one process does for the policy."""

    run: Callable[[Any], Any]

    def __init__(self, world: World, spec: dict[str, Any], *, uid: str = "u", beside: Operator | None = None) -> None:
        """``beside``: the same process, for another policy."""
        self.world = world
        self.uid = uid
        self.memory: PolicyMemory | None = None
        self.trouble = ""
        self.ask(**spec)
        if beside is not None:
            self.live, self.lives, self.feature = beside.live, beside.lives, beside.feature
            return
        self.observer = Observer(world.executor, active_tick_s=0.001, idle_tick_s=0.001)
        self.lives = lives = LiveConnections()
        self.live = live_of(world.kafka, "c", world.allow)
        lives.put(self.live)
        self.observer.connect("c", "ns/kafka", world.kafka, world.kafka.control)
        topics = TopicsOfConnections(world.executor, 0.05, lives.topics_checked, lives.is_frozen)
        self.feature = DiscoveryFeature(
            Parts(
                self.observer,
                topics,
                lives.is_frozen,
                world.executor,
                world.clock,
                lambda _uid: None,
                world.metrics,
                world.backfilling,
            )
        )

    def freeze(self, by: str = "frozen by alice: INC-4711") -> None:
        """As the connection's reconciler does it, or by an empty text thaws it. No pass is told: they may be minutes
        apart, and there are none while the connection is in trouble."""
        self.lives.put(replace(self.live, frozen=by))

    def ask(self, **spec: Any) -> None:
        self.spec = {key: value for key, value in spec.items() if value is not None}

    async def keep(self) -> DiscoveryStatus | None:
        """One pass of the policy; its status, with the topics that its memory has instead."""
        metadata = {"name": "p", "namespace": "ns", "uid": self.uid}
        body = {"metadata": metadata, "spec": {"connectionRef": {"name": "kafka"}, "group": GROUP, **self.spec}}
        world = self.world
        spec = parse_spec(OffsetResetPolicySpec, body)
        if self.memory is None:
            self.memory = PolicyMemory(world.kube, world.executor, body, many=False)
        memory = GroupMemory(self.memory, GROUP)
        kept = await self.feature.reconcile(
            PolicyView(body, spec, world.status, self.live, world.clock.now(), world.resetting, memory)
        )
        await self.memory.write(0)
        world.status, self.trouble = kept.status, kept.trouble[1] if kept.trouble is not None else ""
        world.told += kept.happenings
        status, document = kept.status.discovery, await memory.recall(PART)
        if status is None or document is None:
            return status
        assert status.topics == ()
        topics = [
            DiscoveredTopic(name=name, topic_id=known.topic_id, initial=known.initial, settled=known.settled)
            for name, known in decode(document).state.topics.items()
        ]
        return status.model_copy(update={"topics": tuple(topics)})

    def until(self, reached: Callable[[DiscoveryStatus], bool], what: str) -> DiscoveryStatus:
        """Passes, until the status says so."""

        async def look() -> DiscoveryStatus:
            deadline = asyncio.get_running_loop().time() + WITHIN_S
            while True:
                try:
                    status = await self.keep()
                except Unavailable:
                    status = None
                if status is not None and reached(status):
                    return status
                assert asyncio.get_running_loop().time() < deadline, f"not within {WITHIN_S:g} s: {what}; {status}"
                await asyncio.sleep(0.01)
                # The back-off after a failure is by the operator's clock, which somebody has to move.
                self.world.clock.sleep(0.05)

        found: DiscoveryStatus = self.run(look())
        return found

    def first(self) -> DiscoveryStatus:
        return self.until(lambda s: s.initial_discovery_finished, "the first discovery")

    def shown(self, topic: str) -> int:
        """How many partitions of the topic the newest look showed."""
        return self.feature._watches["c"].topics[topic].partitions

    def settled(self, topic: str, partitions: int) -> DiscoveryStatus:
        return self.until(
            lambda s: any(t.name == topic and t.settled == partitions for t in s.topics),
            f"{partitions} partitions of {topic} are settled",
        )

    def opened_anew(self) -> None:
        """Its connection, as for new credentials, and a pass after that."""
        opened: Any = OpenedAnew(self.world.kafka)
        self.live = replace(self.live, kafka=opened)
        self.observer.connect("c", "ns/kafka", opened, self.world.kafka.control)
        self.run(self.keep())


def new(*numbers: int, topic: str = "orders") -> list[TopicPartition]:
    return [TopicPartition(topic, number) for number in numbers]


def records(world: World) -> dict[tuple[str, int], PartitionSeen]:
    return {(key.topic, key.partition): seen for key, seen in world.kafka.control.topics.gates.partitions.items()}


def seen_by_others(world: World, number: int, age: timedelta) -> None:
    """What another process has written of a partition, and of the broker's time."""
    world.kafka.control.ensure()
    key = PartitionKey("orders", world.kafka.topics()["orders"].topic_id, number)
    at_ms = round((world.clock.now() - age).timestamp() * 1000)
    world.kafka.control.write_partitions({key: PartitionSeen(at_ms, at_ms - 1)})
    world.kafka.control.write_clock()


async def eventually(so: Callable[[], bool]) -> None:
    deadline = asyncio.get_running_loop().time() + WITHIN_S
    while not so():
        assert asyncio.get_running_loop().time() < deadline
        await asyncio.sleep(0.01)


class OpenedAnew:
    """The same cluster through another connection."""

    def __init__(self, kafka: FakeKafka) -> None:
        self._kafka = kafka

    def __getattr__(self, name: str) -> Any:
        return getattr(self._kafka, name)
