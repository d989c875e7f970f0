"""An operator that keeps the committed offsets of a group of the in-memory Kafka, for one policy."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from typing import Any, TypeVar

import pytest
from prometheus_client import CollectorRegistry

from support.fake_consumer import FakeConsumer
from support.fake_kafka import FakeClock, FakeKafka
from support.fake_kube import FakeKube
from support.live import live_of
from tidegate.connection.observer import Observer
from tidegate.kafka.model import GroupState, GroupType, Offsets, TopicPartition
from tidegate.kube.ports import POLICIES
from tidegate.policy.feature import FeatureOutcome, PolicyView
from tidegate.policy.memory import GroupMemory, PolicyMemory
from tidegate.resources.base import parse_spec
from tidegate.resources.conditions import RETAINED, Condition, find_condition
from tidegate.resources.features import RetentionStatus
from tidegate.resources.policy import OffsetResetPolicySpec, PolicyStatus
from tidegate.retention.feature import Parts, RetentionFeature
from tidegate.retention.metrics import RetentionMetrics

DAY = timedelta(days=1)


HOUR = timedelta(hours=1)


RETENTION = 7 * DAY


GROUP = "payments"


FIRST, SECOND = TopicPartition("orders", 0), TopicPartition("orders", 1)


PLACE = {FIRST: 11, SECOND: 22}


CREATED = "2026-11-20T11:59:00Z"


T = TypeVar("T")


class World:
    """A policy `p` for group `payments`, a topic with two partitions of 100 records, and a feature that may die."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.kafka = FakeKafka(self.clock)
        self.kafka.create_topic("orders", 2)
        self.kafka.fill("orders", 100)
        self.kube = FakeKube()
        self.spec: dict[str, Any] = {"connectionRef": {"name": "kafka"}, "group": GROUP, "retention": {}}
        self.kube.create(POLICIES, "ns", "p", self.spec, CREATED)
        # One thread for everything: the fake's clock knows no others.
        self.executor = ThreadPoolExecutor(1)
        self.live = live_of(self.kafka, "connection")
        self.frozen = False
        self.ahead = timedelta(0)
        """How far the operator's clock is ahead."""
        self.status = PolicyStatus()
        self.feature = self.fresh_feature()
        self.resetting = False

    def fresh_feature(self) -> RetentionFeature:
        """What a new process begins with: nothing in memory."""
        self.observer = observer = Observer(self.executor, active_tick_s=0.0, idle_tick_s=0.0001)
        self.registry = CollectorRegistry()
        metrics = RetentionMetrics(self.registry, lambda: self.clock.now().timestamp())
        self.loop = asyncio.new_event_loop()
        self.run(self._connect(observer))
        return RetentionFeature(
            Parts(self.kube, observer, lambda _: self.frozen, self.executor, self.executor, metrics, self.now)
        )

    async def _connect(self, observer: Observer) -> None:
        observer.connect(self.live.uid, "ns/kafka", self.kafka)

    def now(self) -> datetime:
        return self.clock.now() + self.ahead

    def run(self, awaitable: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(awaitable)

    def retention(self, **fields: Any) -> None:
        self.spec["retention"] = fields
        self.kube.change(POLICIES, "ns", "p", spec=self.spec)

    def keep(self) -> FeatureOutcome:
        """One pass, whose status and Events are written after it."""
        body = self.kube.get(POLICIES, "ns", "p")
        spec = parse_spec(OffsetResetPolicySpec, body)
        memory = GroupMemory(PolicyMemory(self.kube, self.executor, body, many=False), GROUP)
        view = PolicyView(body, spec, self.status, self.live, self.now(), self.resetting, memory)
        kept = self.run(self.feature.reconcile(view))
        self.status = kept.status
        for happening in kept.happenings:
            self.kube.record(body, happening)
        return kept

    def sleep(self, duration: timedelta, *, passes: bool = True, look_every: timedelta = HOUR) -> None:
        """Time goes by: the coordinator looks for what has expired every hour, and so does the feature."""
        until = self.clock.now() + duration
        while self.clock.now() < until:
            self.clock.sleep(min(look_every, until - self.clock.now()).total_seconds())
            self.kafka.retention.expire()
            if passes:
                self.keep()

    def join_and_leave(self, offsets: Offsets, protocol: GroupType = GroupType.CLASSIC) -> None:
        """A consumer comes, commits and goes."""
        consumer = self.consumer(protocol)
        assert self.kafka._member_commit(GROUP, consumer.member_id, consumer._generation, offsets)
        consumer.close()
        assert self.kafka.groups([GROUP])[GROUP].state is GroupState.EMPTY

    def consumer(self, protocol: GroupType = GroupType.CLASSIC) -> FakeConsumer:
        consumer = FakeConsumer(
            self.kafka,
            GROUP,
            ["orders"],
            protocol=protocol,
            assignor="range" if protocol is GroupType.CLASSIC else "uniform",
            auto_commit_s=None,
            # It lives for weeks.
            poll_s=60.0,
            heartbeat_s=60.0,
        ).start()
        while self.kafka.groups([GROUP])[GROUP].state is not GroupState.STABLE:
            self.clock.sleep(60)
        return consumer

    @property
    def committed(self) -> Offsets:
        return self.kafka.committed(GROUP)

    @property
    def told(self) -> list[str]:
        return [happening.reason for happening in self.kube.happenings_of("p")]

    @property
    def said(self) -> RetentionStatus:
        assert self.status.retention is not None
        return self.status.retention

    @property
    def condition(self) -> Condition:
        found = find_condition(self.status.conditions, RETAINED)
        assert found is not None
        return found

    def metric(self, name: str, **labels: str) -> float | None:
        return self.registry.get_sample_value(name, labels)

    def commits_made(self) -> int:
        return self.kafka.calls.count("commit_with_retention")


def leave_place(world: World, kind: GroupType) -> None:
    if kind is GroupType.SIMPLE:
        world.kafka.commit_directly(GROUP, PLACE)
    else:
        world.join_and_leave(PLACE, kind)


KINDS = [GroupType.CLASSIC, GroupType.CONSUMER, GroupType.SIMPLE]


RIGHTS = pytest.mark.parametrize("may_read_log", [True, False], ids=["log read", "log not read"])


def left(world: World) -> float | None:
    return world.metric("tidegate_offsets_expire_seconds", resource_namespace="ns", policy="p")


class Hidden:
    """A broker that does not show the topic for a moment: it lags behind, or may not tell of it."""

    def __init__(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        self._world, self._monkeypatch = world, monkeypatch

    def look(self) -> None:
        with self._monkeypatch.context() as hidden:
            hidden.setattr(self._world.kafka, "topics", lambda _names: {})
            self._world.keep()
