"""A group of one consumer, and the feature that finds records it does not get past, in an operator that may restart."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

from prometheus_client import CollectorRegistry

from support.fake_consumer import FakeConsumer
from support.fake_kafka import FakeClock, FakeKafka
from support.fake_kube import FakeKube
from support.live import live_of
from support.virtual_time import AtOnce, VirtualLoop
from tidegate.connection.observer import Observer
from tidegate.kafka.model import GroupState, TopicPartition
from tidegate.kube.ports import POLICIES, RESETS, Object
from tidegate.policy.feature import FeatureOutcome, PolicyView
from tidegate.policy.memory import GroupMemory, PolicyMemory
from tidegate.resources.base import parse_spec
from tidegate.resources.conditions import RECORD_STUCK, find_condition
from tidegate.resources.policy import OffsetResetPolicySpec, PolicyStatus
from tidegate.stuck.feature import Parts, StuckRecordsFeature
from tidegate.stuck.metrics import StuckMetrics

GROUP = "payments"
P = TopicPartition("orders", 0)
CREATED = "2026-11-20T11:59:00Z"


class World:
    """A policy `p` with `stuckRecords` for a group of one member, and a topic with one partition."""

    def __init__(self, *others: str) -> None:
        """``others``: topics that the member reads as well."""
        self.clock = FakeClock()
        self.kafka = FakeKafka(self.clock)
        for topic in ("orders", *others):
            self.kafka.create_topic(topic, 1)
        self.kafka.control.ensure()
        self.kube = FakeKube()
        self.spec: dict[str, Any] = {
            "connectionRef": {"name": "kafka"},
            "group": GROUP,
            "stuckRecords": {"prepareSkip": True},
        }
        self.kube.create(POLICIES, "ns", "p", self.spec, CREATED)
        self.live = live_of(self.kafka, "connection")
        self.status = PolicyStatus()
        self.resetting = False
        self.consumer = FakeConsumer(self.kafka, GROUP, ["orders", *others], auto_commit_s=None, poll_s=10.0).start()
        while self.kafka.groups([GROUP])[GROUP].state is not GroupState.STABLE:
            self.clock.sleep(1)
        self.commit(0)
        self.restart()

    def restart(self) -> None:
        """What a new process begins with: nothing in memory."""
        self.executor = AtOnce()
        self.loop = VirtualLoop(self.clock)
        observer = Observer(self.executor, active_tick_s=1.0, idle_tick_s=5.0)
        self.registry = CollectorRegistry()
        self.loop.run_until_complete(self._connect(observer))
        self.feature = StuckRecordsFeature(
            Parts(
                self.kube,
                observer,
                self.executor,
                self.executor,
                StuckMetrics(self.registry),
                self.clock.now,
                self.clock.monotonic,
            )
        )
        self.memory = self._fresh_memory()

    async def _connect(self, observer: Observer) -> None:
        observer.connect(self.live.uid, "ns/kafka", self.kafka, self.kafka.control)

    def _fresh_memory(self) -> PolicyMemory:
        return PolicyMemory(self.kube, self.executor, self.body, many=False)

    @property
    def body(self) -> Object:
        return self.kube.get(POLICIES, "ns", "p")

    def asks(self, **stuck_records: Any) -> None:
        self.spec["stuckRecords"] = stuck_records
        self.kube.change(POLICIES, "ns", "p", spec=self.spec)

    def commit(self, offset: int, partition: TopicPartition = P) -> None:
        assert self.kafka._member_commit(GROUP, self.consumer.member_id, self.consumer._generation, {partition: offset})

    def view(self) -> PolicyView:
        spec = parse_spec(OffsetResetPolicySpec, self.body)
        memory = GroupMemory(self.memory, GROUP)
        return PolicyView(self.body, spec, self.status, self.live, self.clock.now(), self.resetting, memory)

    def keep(self) -> FeatureOutcome:
        """One pass, whose status, Events and memory are written after it."""
        kept = self.loop.run_until_complete(self.feature.reconcile(self.view()))
        self.status = kept.status
        for happening in kept.happenings:
            self.kube.record(self.body, happening)
        self.loop.run_until_complete(self.memory.write(int(self.clock.now().timestamp() * 1000)))
        return kept

    def run(self, seconds: float, step: Callable[[], None] = lambda: None) -> None:
        until = self.clock.now() + timedelta(seconds=seconds)
        while self.clock.now() < until:
            step()
            self.clock.sleep(min(self.keep().again_after_s, 5))

    def produce(self) -> None:
        self.kafka.append(P, [self.clock.now()])

    def read_well(self) -> None:
        """All that is there was read and committed; another record comes."""
        self.commit(self.kafka.log_bounds([P])[P].latest)
        self.produce()

    def get_stuck(self) -> int:
        """A group that was read well until now; the offset at which it stands."""
        self.run(30, self.read_well)
        self.run(40, self.produce)
        return self.kafka.committed(GROUP)[P]

    @property
    def told(self) -> list[str]:
        return [happening.reason for happening in self.kube.happenings_of("p")]

    @property
    def said(self) -> tuple[str, str]:
        condition = find_condition(self.status.conditions, RECORD_STUCK)
        assert condition is not None
        return condition.status.value, condition.reason

    @property
    def stuck(self) -> list[int]:
        assert self.status.stuck_records is not None
        return [record.offset for record in self.status.stuck_records.records]

    @property
    def resets(self) -> list[Object]:
        return list(self.kube.list(RESETS))

    def sample(self, name: str) -> float | None:
        return self.registry.get_sample_value(name, {"resource_namespace": "ns", "policy": "p", "group": GROUP})
