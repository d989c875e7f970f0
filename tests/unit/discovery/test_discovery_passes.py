"""Discovery as its policy's passes see it, on the in-memory Kafka: restarts, faults, and what agents are told."""

from __future__ import annotations

import asyncio
import json
import math
import threading
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from support.fake_kafka import START, FakeClock, FakeKafka, FakeTopicWatch
from support.fake_kube import FakeKube
from support.live import live_of
from tidegate.connection.control_topics import TopicsOfConnections
from tidegate.connection.live import LiveConnections
from tidegate.connection.observer import Observer
from tidegate.control.records import PartitionKey, PartitionSeen
from tidegate.discovery import feature, watch
from tidegate.discovery.backfill import Backfills
from tidegate.discovery.feature import DiscoveryFeature, Parts, is_refused
from tidegate.discovery.remembered import PART, decode
from tidegate.kafka.errors import KafkaFailure, NotAuthorized, Refused, Unavailable
from tidegate.kafka.model import Group, GroupState, GroupType, TopicPartition
from tidegate.kube.ports import KubeEvent
from tidegate.policy.feature import PolicyView
from tidegate.policy.memory import GroupMemory, PolicyMemory
from tidegate.reset.model.result import RunResult
from tidegate.resources.base import parse_spec
from tidegate.resources.connection import AllowSpec
from tidegate.resources.discovery import DiscoveredTopic, DiscoveryStatus
from tidegate.resources.policy import OffsetResetPolicySpec, PolicyStatus
from tidegate.service.metrics import Metrics
from tidegate.threads import in_thread

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


@pytest.fixture
def world() -> Iterator[World]:
    made = World()
    yield made
    made.executor.shutdown()
    made.backfilling.shutdown()


def new(*numbers: int, topic: str = "orders") -> list[TopicPartition]:
    return [TopicPartition(topic, number) for number in numbers]


def records(world: World) -> dict[tuple[str, int], PartitionSeen]:
    return {(key.topic, key.partition): seen for key, seen in world.kafka.control.topics.gates.partitions.items()}


def test_a_new_partition_is_given_its_start_and_told(world: World) -> None:
    with world.operator() as operator:
        operator.first()
        world.kafka.add_partitions("orders", 4)
        status = operator.settled("orders", 4)

    assert status.starts_committed == 2
    assert [(row.topic, row.partition) for row in status.newest] == [("orders", 3), ("orders", 2)]
    assert world.kafka.committed(GROUP, new(0, 1, 2, 3)) == dict.fromkeys(new(2, 3), 0)
    assert [h.reason for h in world.told] == ["PartitionsFound"]


def test_new_partitions_are_counted_by_how_they_stand(world: World) -> None:
    outcomes = ["Given", "Standing", "Overtaken", "Backfilled"]
    assert [world.counted("tidegate_new_partitions_total", outcome=o) for o in outcomes] == [0, 0, 0, 0]
    with world.operator() as operator:
        operator.first()
        world.kafka.add_partitions("orders", 4)
        operator.settled("orders", 4)

    assert [world.counted("tidegate_new_partitions_total", outcome=o) for o in outcomes] == [2, 0, 0, 0]


def test_a_connection_that_was_removed_is_not_looked_at_any_more(world: World) -> None:
    with world.operator() as operator:
        operator.first()
        operator.run(operator.feature.disconnected("u"))
        world.metrics.connection_gone("ns/kafka")
        world.kafka.add_partitions("orders", 3)
        operator.run(asyncio.sleep(0.1))  # ten of its looks
        assert world.counted("tidegate_discovery_polls_total", connection="ns/kafka", outcome="ok") is None
        assert world.kafka.committed(GROUP) == {}

        operator.settled("orders", 3)

    assert world.kafka.committed(GROUP) == {TopicPartition("orders", 2): 0}


def test_a_fresh_operator_goes_on_where_the_last_one_was(world: World) -> None:
    with world.operator() as operator:
        operator.first()
    world.kafka.create_topic("refunds", 1)
    world.kafka.add_partitions("orders", 3)
    with world.operator() as operator:
        operator.settled("refunds", 1)
        operator.settled("orders", 3)

    assert world.kafka.committed(GROUP, new(0, 1, 2)) == {TopicPartition("orders", 2): 0}
    assert world.kafka.committed(GROUP, new(0, topic="refunds")) == {TopicPartition("refunds", 0): 0}


def test_what_an_earlier_version_has_left_in_the_status_is_gone_on_from_and_moved_to_the_memory(world: World) -> None:
    topic_id = world.kafka.topics()["orders"].topic_id
    known = DiscoveredTopic(name="orders", topic_id=topic_id, initial=2, settled=2)
    world.status = PolicyStatus(
        discovery=DiscoveryStatus(
            initial_discovery_finished=True, selection=("*",), topics=(known,), starts_committed=4, backfilled=1
        )
    )
    world.kafka.add_partitions("orders", 3)
    with world.operator() as operator:
        status = operator.settled("orders", 3)

    assert world.kafka.committed(GROUP, new(2)) == {TopicPartition("orders", 2): 0}
    assert (status.starts_committed, status.backfilled) == (5, 1)
    assert world.status.discovery is not None
    # An earlier version that comes back takes what is there for old, and backfills nothing.
    assert (world.status.discovery.topics, world.status.discovery.selection) == ((), None)
    with world.operator() as operator:
        status = operator.settled("orders", 3)
    assert (status.starts_committed, len(world.kafka.committed(GROUP))) == (5, 1)


def test_a_topic_that_the_policy_turns_to_later_is_an_old_one(world: World) -> None:
    world.kafka.create_topic("refunds", 2)
    with world.operator(topics=["orders"]) as operator:
        operator.first()
        operator.ask(topics=["orders", "refunds"], discovery={"interval": "10ms"})
        operator.settled("refunds", 2)
        world.kafka.add_partitions("refunds", 3)
        operator.settled("refunds", 3)

    assert world.kafka.committed(GROUP, new(0, 1, 2, topic="refunds")) == {TopicPartition("refunds", 2): 0}


def test_behind_a_broker_that_lags_old_partitions_are_not_taken_for_new_ones(world: World) -> None:
    world.kafka.create_topic("refunds", 4)
    with world.operator(topics=["ord*"]) as operator:
        operator.first()
        world.kafka.lag_behind("refunds", 2)
        operator.until(lambda _: operator.shown("refunds") == 2, "the broker that lags is met")
        operator.ask(topics=["*"], discovery={"interval": "10ms"})
        operator.until(lambda s: {t.name for t in s.topics} == {"orders", "refunds"}, "the policy turns to the topic")
        world.kafka.lag_behind("refunds", None)
        operator.until(lambda _: operator.shown("refunds") == 4, "the broker has caught up")
        world.kafka.add_partitions("refunds", 5)
        status = operator.settled("refunds", 5)

    assert {t.name: t.initial for t in status.topics} == {"orders": 2, "refunds": 4}
    assert world.kafka.committed(GROUP, new(*range(5), topic="refunds")) == {TopicPartition("refunds", 4): 0}


def test_behind_a_broker_that_lags_a_partition_is_not_taken_for_just_made(world: World) -> None:
    """Another policy has seen it, and its first records are gone: where its log begins has to be asked."""
    world.kafka.add_partitions("orders", 3)
    world.kafka.append(TopicPartition("orders", 2), [START] * 9)
    world.kafka.delete_records(TopicPartition("orders", 2), 4)
    with world.operator(discovery={"interval": "10ms", "newPartitions": "none"}) as operator:
        [topic] = operator.first().topics
        world.kafka.lag_behind("orders", 2)
        operator.until(lambda _: operator.shown("orders") == 2, "the broker that lags is met")
        known = topic.model_copy(update={"initial": 2, "settled": 2})
        other = Operator(world, {"topics": ["*"], "discovery": {"interval": "10ms"}}, uid="other", beside=operator)
        other.run = operator.run
        world.status = PolicyStatus(
            discovery=DiscoveryStatus(initial_discovery_finished=True, selection=("*",), topics=(known,))
        )
        other.run(other.keep())
        world.kafka.lag_behind("orders", None)
        status = other.settled("orders", 3)

    assert status.starts_committed == 1
    assert world.kafka.committed(GROUP, new(2)) == {TopicPartition("orders", 2): 4}


def test_without_topics_it_is_about_those_that_the_group_reads(world: World) -> None:
    world.kafka.create_topic("audit", 1)
    world.kafka.commit_directly(GROUP, {TopicPartition("orders", 0): 5})
    with world.operator(topics=None) as operator:
        operator.settled("orders", 2)
        world.kafka.add_partitions("orders", 3)
        world.kafka.add_partitions("audit", 2)
        status = operator.settled("orders", 3)

    assert [topic.name for topic in status.topics] == ["orders"]
    assert status.unassigned_initial == 1


@pytest.mark.parametrize(("age", "initial"), [(timedelta(days=19), 2), (timedelta(minutes=5), 0)])
def test_a_topic_that_the_group_reads_only_long_after_it_was_made_is_an_old_one(
    world: World, monkeypatch: pytest.MonkeyPatch, age: timedelta, initial: int
) -> None:
    monkeypatch.setattr(feature, "_COMMITTED_S", 0.0)  # by the loop's clock, which no test moves
    world.kafka.commit_directly(GROUP, {TopicPartition("orders", 0): 5})
    with world.operator(topics=None) as operator:
        operator.settled("orders", 2)
        world.kafka.create_topic("audit", 2)
        world.kafka.fill("audit", 9)
        operator.until(lambda _: "audit" in operator.feature._watches["c"].topics, "the topic is seen")
        world.clock.sleep(age.total_seconds())
        world.kafka.commit_directly(GROUP, dict.fromkeys(new(0, 1, topic="audit"), 9))
        status = operator.settled("audit", 2)
        assert {topic.name: topic.initial for topic in status.topics} == {"orders": 2, "audit": initial}
        world.kafka.add_partitions("audit", 3)
        operator.settled("audit", 3)

    where = 9 if initial else 0
    assert world.kafka.committed(GROUP, new(*range(3), topic="audit")) == dict(
        zip(new(*range(3), topic="audit"), [where, where, 0], strict=True)
    )


def test_a_topic_that_the_connection_does_not_allow_is_not_touched(world: World) -> None:
    world.allow = AllowSpec.model_validate({"topics": ["orders"]})
    with world.operator() as operator:
        operator.first()
        world.kafka.create_topic("secret", 1)
        world.kafka.add_partitions("orders", 3)
        status = operator.settled("orders", 3)

    assert [topic.name for topic in status.topics] == ["orders"]
    assert world.kafka.committed(GROUP, new(0, topic="secret")) == {}


def test_a_memory_that_cannot_be_read_counts_as_none(world: World, caplog: pytest.LogCaptureFixture) -> None:
    with world.operator() as operator:
        operator.first()
    [(key, data)] = world.kube.config_maps.items()
    document = json.loads(data["memory.json"])
    document["groups"][GROUP][PART]["topics"]["orders"][1] = math.inf
    world.kube.config_maps[key] = {"memory.json": json.dumps(document)}
    world.kafka.add_partitions("orders", 3)
    with world.operator() as operator:
        operator.settled("orders", 3)

    assert world.kafka.committed(GROUP) == {}
    assert "the partitions that exist now count as old" in caplog.text


def test_what_an_earlier_version_has_written_after_a_downgrade_holds(world: World) -> None:
    with world.operator() as operator:
        operator.first()
    world.kafka.create_topic("refunds", 1)
    world.kafka.add_partitions("orders", 4)
    earlier = [
        DiscoveredTopic(name=name, topic_id=topic.topic_id, initial=2 if name == "orders" else 0, settled=settled)
        for name, topic in world.kafka.topics().items()
        if (settled := {"orders": 3, "refunds": 1}.get(name)) is not None
    ]
    world.status = PolicyStatus(
        discovery=DiscoveryStatus(
            initial_discovery_finished=True, selection=("*",), topics=tuple(earlier), starts_committed=2
        )
    )
    read = {TopicPartition("orders", 2): 7, TopicPartition("refunds", 0): 7}
    for partition in read:
        world.kafka.append(partition, [START] * 9)
    world.kafka.commit_directly(GROUP, read)
    with world.operator() as operator:
        status = operator.settled("orders", 4)
        assert (status.starts_committed, status.backfilled) == (3, 0)
        operator.settled("refunds", 1)

    assert world.kafka.committed(GROUP) == {**read, TopicPartition("orders", 3): 0}


@pytest.mark.parametrize("restart", [True, False])
def test_a_topic_that_the_connection_allows_later_is_an_old_one(world: World, *, restart: bool) -> None:
    world.allow = AllowSpec.model_validate({"topics": ["orders"]})
    with world.operator() as operator:
        operator.first()
        world.kafka.create_topic("refunds", 2)
        operator.until(lambda _: "refunds" in operator.feature._watches["c"].topics, "the topic is seen")
        if not restart:
            operator.live = replace(operator.live, allow=AllowSpec())
            operator.settled("refunds", 2)
    world.allow = AllowSpec()
    with world.operator() as operator:
        operator.settled("refunds", 2)
        world.kafka.add_partitions("refunds", 3)
        operator.settled("refunds", 3)

    assert set(world.kafka.committed(GROUP)) == {TopicPartition("refunds", 2)}


def test_a_memory_without_the_allowed_topics_is_read_and_what_is_there_counts_as_old(world: World) -> None:
    with world.operator() as operator:
        operator.first()
    [(key, data)] = world.kube.config_maps.items()
    document = json.loads(data["memory.json"])
    del document["groups"][GROUP][PART]["allowed"]
    world.kube.config_maps[key] = {"memory.json": json.dumps(document)}
    world.kafka.create_topic("refunds", 1)
    world.kafka.add_partitions("orders", 3)
    with world.operator() as operator:
        operator.settled("refunds", 1)
        operator.settled("orders", 3)

    assert set(world.kafka.committed(GROUP)) == {TopicPartition("orders", 2)}


@pytest.mark.parametrize("wish", ["latest", "none"])
def test_where_no_start_is_wanted_none_is_given(world: World, wish: str) -> None:
    with world.operator(discovery={"interval": "10ms", "newPartitions": wish}) as operator:
        operator.first()
        world.kafka.add_partitions("orders", 3)
        operator.settled("orders", 3)

    assert world.kafka.committed(GROUP, new(2)) == {}
    assert [h.reason for h in world.told] == ["PartitionsFound"]


def test_a_broker_that_fails_delays_and_loses_nothing(world: World) -> None:
    with world.operator() as operator:
        operator.first()
        for call in ("poll", "groups", "committed", "send", "commit"):
            world.kafka.fail(call, Unavailable("away"), Unavailable("away"))
        world.kafka.add_partitions("orders", 3)
        operator.settled("orders", 3)

    assert world.kafka.committed(GROUP, new(2)) == {TopicPartition("orders", 2): 0}
    assert world.counted("tidegate_discovery_polls_total", connection="ns/kafka", outcome="failed") == 2


@pytest.mark.parametrize(
    ("failure", "times"),
    [(NotAuthorized("commit offsets: no Write on TransactionalId"), 3), (Unavailable("no coordinator"), 12)],
    ids=["refused", "unavailable for long"],
)
def test_a_start_that_can_not_be_given_is_told_of_until_it_is(world: World, failure: KafkaFailure, times: int) -> None:
    """Its Event has said that the group begins the partition at its start."""
    with world.operator() as operator:
        operator.first()
        world.kafka.fail("send", *[failure] * times)
        world.kafka.add_partitions("orders", 3)
        operator.until(lambda _: operator.trouble != "", "it is said")
        trouble = operator.trouble
        operator.settled("orders", 3)
        operator.run(operator.keep())

    assert (operator.trouble, world.kafka.committed(GROUP)) == ("", {TopicPartition("orders", 2): 0})
    assert trouble.startswith(f"the start of orders 2 could not be committed for group payments: {failure}. ")
    assert [h.reason for h in world.told] == ["PartitionsFound", "StartFailed"]
    assert "begins at its end" in world.told[1].message


def test_nothing_is_said_of_a_start_once_its_topic_is_gone(world: World) -> None:
    world.kafka.create_topic("refunds", 1)
    with world.operator() as operator:
        operator.settled("refunds", 1)
        world.kafka.fail("send", *[NotAuthorized("commit offsets: no Write on TransactionalId")] * 1000)
        world.kafka.add_partitions("refunds", 2)
        operator.until(lambda _: operator.trouble != "", "it is said")
        world.kafka.delete_topic("refunds")
        operator.until(lambda _: operator.trouble == "", "it is not said any more")


def test_a_start_that_a_broker_is_slow_to_take_is_told_of_to_nobody(world: World) -> None:
    with world.operator() as operator:
        operator.first()
        world.kafka.fail("send", *[Unavailable("no coordinator")] * 3)
        world.kafka.add_partitions("orders", 3)
        operator.settled("orders", 3)

    assert [h.reason for h in world.told] == ["PartitionsFound"]


def test_a_look_that_is_ended_with_the_operator_is_not_counted_as_failed(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    looking, ended = threading.Event(), threading.Event()

    def poll(_watch: FakeTopicWatch, _topics: Collection[str] | None = None) -> None:
        looking.set()
        assert ended.wait(WITHIN_S)

    with world.operator() as operator:
        operator.first()
        monkeypatch.setattr(FakeTopicWatch, "poll", poll)
        assert operator.run(asyncio.to_thread(looking.wait, WITHIN_S))
    ended.set()

    assert not world.counted("tidegate_discovery_polls_total", connection="ns/kafka", outcome="failed")


def test_a_look_that_outlasts_its_connection_leaves_no_count_of_it(world: World) -> None:
    def told() -> list[float | None]:
        outcomes = ("ok", "failed")
        return [world.counted("tidegate_discovery_polls_total", connection="ns/kafka", outcome=o) for o in outcomes]

    async def polled() -> None:
        async with asyncio.timeout(WITHIN_S):
            while told() == [None, None]:  # noqa: ASYNC110 - what is waited for is the code under test
                await asyncio.sleep(0.01)

    with world.operator() as operator:
        operator.first()
        world.metrics.connection_gone("ns/kafka")
        # Until the policy's pass has heard of it, its topics are looked at.
        operator.run(polled())
        [key] = operator.feature._watches["c"].guards

        operator.run(operator.feature.disconnected(key))

    assert told() == [None, None]


def test_an_owner_that_was_too_early_is_sent_back_once_no_reset_is_under_way(world: World) -> None:
    with world.operator() as operator:
        operator.first()
        world.resetting = True
        operator.run(operator.keep())
        world.kafka.commit_directly(GROUP, {TopicPartition("orders", 2): 7})
        world.kafka.add_partitions("orders", 3)
        world.kafka.append(TopicPartition("orders", 2), [START] * 9)
        operator.until(lambda s: s.began_at_end == 1, "it is noticed")
        operator.run(eventually(lambda: world.counted("tidegate_new_partitions_total", outcome="Overtaken") == 1))
        during = world.kafka.committed(GROUP, new(2))
        world.resetting = False
        operator.until(lambda s: s.backfilled == 1, "it is sent back")

    assert during == {TopicPartition("orders", 2): 7}
    assert world.kafka.committed(GROUP, new(2)) == {TopicPartition("orders", 2): 0}
    assert [h.reason for h in world.told] == ["PartitionsFound", "BeganAtEnd", "Backfilled"]
    assert "up to 7 record(s)" in world.told[1].message
    for outcome in ("Overtaken", "Backfilled"):
        assert world.counted("tidegate_new_partitions_total", outcome=outcome) == 1


def test_one_that_is_being_sent_back_when_its_process_dies_counts_once(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the one that it is sent back by: an alert compares those that were with those that had to be."""
    let_go = threading.Event()

    def dies(*_: Any) -> RunResult:
        let_go.wait(WITHIN_S)
        raise Unavailable("the process is gone")

    def counted() -> list[float | None]:
        return [world.counted("tidegate_new_partitions_total", outcome=o) for o in ("Overtaken", "Backfilled")]

    world.kafka.commit_directly(GROUP, {TopicPartition("orders", 2): 7})
    with monkeypatch.context() as dying, world.operator() as operator:
        dying.setattr(Backfills, "carry_out", dies)
        operator.first()
        world.kafka.add_partitions("orders", 3)
        world.kafka.append(TopicPartition("orders", 2), [START] * 9)
        operator.until(lambda s: s.began_at_end == 1, "it is about to be sent back")
        assert counted() == [0, 0]
    let_go.set()
    with world.operator() as operator:
        operator.until(lambda s: s.backfilled == 1, "it is sent back")
    assert counted() == [1, 1]


def test_owners_that_are_being_sent_back_for_minutes_take_no_thread_from_others(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with inFlight. Starts, agents and pauses of all groups would wait for them."""
    let_go, in_time, carry_out = threading.Event(), list[bool](), Backfills.carry_out

    def late(*arguments: Any) -> RunResult:
        in_time.append(let_go.wait(WITHIN_S))
        return carry_out(*arguments)

    monkeypatch.setattr(Backfills, "carry_out", late)
    world.executor = ThreadPoolExecutor(1)
    with world.operator() as operator:
        operator.first()
        world.kafka.commit_directly(GROUP, {TopicPartition("orders", 2): 7})
        world.kafka.add_partitions("orders", 3)
        operator.until(lambda s: s.began_at_end == 1, "it is about to be sent back")
        operator.run(asyncio.sleep(0.05))
        world.kafka.add_partitions("orders", 4)
        operator.until(lambda s: s.starts_committed == 1, "the next one is given its start meanwhile")
        let_go.set()
        operator.settled("orders", 4)
    assert in_time == [True]


@pytest.mark.parametrize("restart", [False, True])
def test_a_partition_that_was_given_its_start_is_not_sent_back_with_one_below_it(
    world: World, *, restart: bool
) -> None:
    """Its owner has begun there, and would read what it has read since once more."""
    with world.operator() as operator:
        operator.first()
        world.resetting = True
        operator.run(operator.keep())
        world.kafka.commit_directly(GROUP, {TopicPartition("orders", 2): 7})
        world.kafka.add_partitions("orders", 4)
        for number in (2, 3):
            world.kafka.append(TopicPartition("orders", number), [START] * 9)
        operator.until(lambda s: (s.began_at_end, s.starts_committed) == (1, 1), "each is told as it stands")
        world.kafka.commit_directly(GROUP, {TopicPartition("orders", 3): 5})
        if not restart:
            world.resetting = False
            status = operator.until(lambda s: s.backfilled > 0, "the lower one is sent back")
            operator.settled("orders", 4)
    if restart:
        world.resetting = False
        with world.operator() as operator:
            status = operator.until(lambda s: s.backfilled > 0, "the lower one is sent back")
            operator.settled("orders", 4)

    assert (status.starts_committed, status.began_at_end, status.backfilled) == (1, 1, 1)
    assert world.kafka.committed(GROUP, new(2, 3)) == {TopicPartition("orders", 2): 0, TopicPartition("orders", 3): 5}
    assert world.counted("tidegate_new_partitions_total", outcome="Backfilled") == 1


def test_through_a_frozen_connection_new_partitions_wait_for_their_start(world: World) -> None:
    with world.operator() as operator:
        operator.first()
        operator.freeze()
        world.kafka.commit_directly(GROUP, {TopicPartition("orders", 2): 7})
        world.kafka.add_partitions("orders", 4)
        world.kafka.append(TopicPartition("orders", 2), [START] * 9)
        guard = operator.feature._watches["c"].guards["u"]
        operator.until(lambda s: guard.failures > 1 or s.starts_committed > 0, "their turn has come, twice")
        during = world.kafka.committed(GROUP, new(2, 3))
        operator.freeze("")
        operator.until(lambda s: s.backfilled == 1 and s.starts_committed == 1, "they get their start")

    assert during == {TopicPartition("orders", 2): 7}
    assert world.kafka.committed(GROUP, new(2, 3)) == dict.fromkeys(new(2, 3), 0)


@pytest.mark.parametrize(
    ("frozen_at", "committed"),
    [pytest.param(1, {2: 7}, id="a start"), pytest.param(2, {2: 7, 3: 0}, id="a reset to the start")],
)
def test_what_still_waits_for_a_thread_when_the_connection_is_frozen_does_not_begin(
    world: World, monkeypatch: pytest.MonkeyPatch, frozen_at: int, committed: dict[int, int]
) -> None:
    queued = 0

    async def late(executor: Executor, call: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        nonlocal queued
        queued += 1
        if queued == frozen_at:
            operator.freeze()
        return await in_thread(executor, call, *arguments, **options)

    with world.operator() as operator:
        operator.first()
        monkeypatch.setattr(watch, "in_thread", late)
        world.kafka.commit_directly(GROUP, {TopicPartition("orders", 2): 7})
        world.kafka.add_partitions("orders", 4)
        world.kafka.append(TopicPartition("orders", 2), [START] * 9)
        guard = operator.feature._watches["c"].guards["u"]
        operator.until(lambda s: guard.failures > 1 or s.backfilled > 0, "their turn has come, twice")
        during = world.kafka.committed(GROUP, new(2, 3))
        operator.freeze("")
        operator.until(lambda s: s.backfilled == 1 and s.starts_committed == 1, "they get their start")

    assert during == {TopicPartition("orders", number): offset for number, offset in committed.items()}
    assert world.kafka.committed(GROUP, new(2, 3)) == dict.fromkeys(new(2, 3), 0)
    assert [h.reason for h in world.told] == ["PartitionsFound", "BeganAtEnd", "Backfilled"]


@pytest.mark.parametrize("there", [False, True])
def test_through_a_frozen_connection_no_topic_is_made_to_tell_agents(world: World, *, there: bool) -> None:
    if there:
        world.kafka.control.ensure()
    with world.operator(**RULE) as operator:
        operator.freeze()
        operator.first()
        operator.until(
            lambda _: world.kafka.control.topics.gates.clock_ms is not None or not there, "agents are told the time"
        )
        assert world.kafka.control.topics.control_exists is there
        operator.freeze("")
        operator.until(lambda _: world.kafka.control.topics.control_exists, "they are made")


def test_an_owner_that_could_not_be_sent_back_is_told_of_and_sent_back_later(world: World) -> None:
    with world.operator() as operator:
        operator.first()
        refusals = [Refused("no transactions today")] * 2
        world.kafka.fail("send", *refusals)
        world.kafka.commit_directly(GROUP, {TopicPartition("orders", 2): 7})
        world.kafka.add_partitions("orders", 3)
        world.kafka.append(TopicPartition("orders", 2), [START] * 9)
        operator.until(lambda s: s.backfilled == 1, "it is sent back")

    assert world.kafka.committed(GROUP, new(2)) == {TopicPartition("orders", 2): 0}
    told = [h.reason for h in world.told]
    assert told[:3] == ["PartitionsFound", "BeganAtEnd", "BackfillFailed"]
    assert told[-1] == "Backfilled"
    failed = world.told[2].message
    assert "group payments could not be sent back to the start of orders 2" in failed
    assert "no transactions today" in failed
    assert world.counted("tidegate_new_partitions_total", outcome="Overtaken") == 1


def test_an_owner_for_which_no_run_can_be_begun_is_told_of_as_well(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its first Event has said that it is sent back."""

    def refused(*_: Any) -> RunResult:
        raise NotAuthorized("join group payments: no Read on Group")

    with monkeypatch.context() as failing, world.operator() as operator:
        failing.setattr(Backfills, "carry_out", refused)
        operator.first()
        world.kafka.commit_directly(GROUP, {TopicPartition("orders", 2): 7})
        world.kafka.add_partitions("orders", 3)
        world.kafka.append(TopicPartition("orders", 2), [START] * 9)
        operator.until(lambda _: len(world.told) > 2, "it is said")

    assert [h.reason for h in world.told][:3] == ["PartitionsFound", "BeganAtEnd", "BackfillFailed"]
    assert "start of orders 2: join group payments: no Read on Group" in world.told[2].message


def seen_by_others(world: World, number: int, age: timedelta) -> None:
    """What another process has written of a partition, and of the broker's time."""
    world.kafka.control.ensure()
    key = PartitionKey("orders", world.kafka.topics()["orders"].topic_id, number)
    at_ms = round((world.clock.now() - age).timestamp() * 1000)
    world.kafka.control.write_partitions({key: PartitionSeen(at_ms, at_ms - 1)})
    world.kafka.control.write_clock()


@pytest.mark.parametrize(
    ("age", "starts"),
    [(timedelta(minutes=59), {TopicPartition("orders", 2): 0}), (timedelta(minutes=61), {})],
    ids=["younger than maxAge", "older than maxAge"],
)
def test_a_new_partition_that_is_older_than_max_age_is_left_to_its_consumers(
    world: World, age: timedelta, starts: dict[TopicPartition, int]
) -> None:
    """Those that run no agent have the same threshold."""
    with world.operator(**RULE) as operator:
        operator.first()
    world.kafka.add_partitions("orders", 3)
    seen_by_others(world, 2, age)

    with world.operator(**RULE) as operator:
        operator.settled("orders", 3)

    assert world.kafka.committed(GROUP) == starts
    assert [h.reason for h in world.told] == ["PartitionsFound"]
    assert ("older than latest.maxAge" in world.told[0].message) is not bool(starts)
    assert world.counted("tidegate_new_partitions_total", outcome="TooOld") == (0 if starts else 1)


def test_a_topic_that_is_made_anew_is_not_taken_for_the_old_one_before_it(world: World) -> None:
    with world.operator(**RULE) as operator:
        operator.first()
    world.kafka.add_partitions("orders", 3)
    seen_by_others(world, 2, timedelta(minutes=61))
    with world.operator(**RULE) as operator:
        operator.settled("orders", 3)
        world.kafka.delete_topic("orders")
        topic_id = world.kafka.create_topic("orders", 3)
        operator.until(
            lambda s: [(t.topic_id, t.settled) for t in s.topics] == [(topic_id, 3)], "the new topic is taken care of"
        )

    assert world.kafka.committed(GROUP) == dict.fromkeys(new(0, 1, 2), 0)
    assert [h.message.split(";")[0] for h in world.told] == ["new partitions: orders 2", "new partitions: orders 0-2"]


def test_an_owner_that_has_skipped_a_partition_older_than_max_age_is_not_sent_back(world: World) -> None:
    with world.operator(**RULE) as operator:
        operator.first()
    world.kafka.add_partitions("orders", 3)
    world.kafka.append(TopicPartition("orders", 2), [START] * 9)
    world.kafka.commit_directly(GROUP, {TopicPartition("orders", 2): 7})
    seen_by_others(world, 2, timedelta(hours=2))

    with world.operator(**RULE) as operator:
        status = operator.settled("orders", 3)

    assert world.kafka.committed(GROUP) == {TopicPartition("orders", 2): 7}
    assert (status.began_at_end, status.backfilled) == (0, 0)


def test_a_partition_whose_age_is_not_known_counts_as_young(world: World) -> None:
    with world.operator(latest={"maxAge": "1ms"}) as operator:
        operator.first()
    world.kafka.add_partitions("orders", 3)
    with world.operator(latest={"maxAge": "1ms"}) as operator:
        operator.settled("orders", 3)

    assert world.kafka.committed(GROUP) == {TopicPartition("orders", 2): 0}


def test_agents_are_told_which_partitions_were_there_and_when_the_others_came(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "CLOCK_S", 0.05)
    with world.operator(**RULE) as operator:
        operator.until(lambda _: len(records(world)) == 1, "the first partitions are told of")
        clock_ms = world.kafka.control.topics.gates.clock_ms
        before_ms = round(world.clock.now().timestamp() * 1000)
        world.kafka.add_partitions("orders", 3)
        operator.until(lambda _: len(records(world)) == 2, "the new one is told of")
        after_ms = round(world.clock.now().timestamp() * 1000)
        operator.until(lambda _: world.kafka.control.topics.gates.clock_ms != clock_ms, "the clock goes on")

    told = records(world)
    assert ("orders", 0) not in told
    assert told["orders", 1] == PartitionSeen(initial=True)
    seen = told["orders", 2]
    assert seen.seen_ms is not None
    assert seen.seen_absent_ms is not None
    # The fake's clock moves by leaps: bounds are wide, and hold what they have to.
    assert seen.seen_absent_ms <= after_ms
    assert before_ms <= seen.seen_ms <= after_ms + 1000


def test_the_highest_partition_of_a_topic_is_told_first(world: World) -> None:
    """An agent that has read a part of them takes partitions above what it has read for newer than all of it."""
    with world.operator(**RULE) as operator:
        operator.until(lambda _: len(records(world)) == 1, "the first partitions are told of")
        world.kafka.add_partitions("orders", 7)
        operator.until(lambda _: len(records(world)) == 6, "the new ones are told of")

    told = [key.partition for _, key in world.kafka.control.writes if isinstance(key, PartitionKey)]
    # A busy operator may tell of them once more before it reads what it has written.
    assert list(dict.fromkeys(told)) == [1, 6, 5, 4, 3, 2]


def test_a_control_topic_that_is_lost_is_written_anew(world: World) -> None:
    with world.operator(**RULE) as operator:
        operator.until(lambda _: len(records(world)) == 1, "the first partitions are told of")
        world.kafka.add_partitions("orders", 3)
        operator.until(lambda _: len(records(world)) == 2, "the new one is told of")
        before = records(world)
        world.kafka.control.lose()
        operator.until(lambda _: len(records(world)) == 2, "all are told of again")

    assert records(world) == before


def test_what_was_said_of_a_topic_that_was_made_anew_is_taken_back(world: World) -> None:
    with world.operator(**RULE) as operator:
        operator.until(lambda _: len(records(world)) == 1, "the first partitions are told of")
        world.kafka.delete_topic("orders")
        topic_id = world.kafka.create_topic("orders", 1)
        operator.until(
            lambda _: list(world.kafka.control.topics.gates.partitions) == [PartitionKey("orders", topic_id, 0)],
            "only the new topic is told of",
        )

    assert not records(world)["orders", 0].initial


def test_what_was_said_of_a_topic_is_not_taken_back_where_a_broker_still_shows_the_one_before_it(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fresh operator did not see its partitions come: it would say that they were there at first."""
    monkeypatch.setattr(watch, "CLOCK_S", 0.05)
    with world.operator(**RULE) as operator:
        operator.until(lambda _: len(records(world)) == 1, "the first partitions are told of")
        former = world.kafka._public_topics()
        world.kafka.delete_topic("orders")
        key = PartitionKey("orders", world.kafka.create_topic("orders", 1), 0)
        operator.until(
            lambda _: list(world.kafka.control.topics.gates.partitions) == [key], "only the new topic is told of"
        )
    said = records(world)

    with world.operator(**RULE) as operator:
        with monkeypatch.context() as lagging:
            lagging.setattr(world.kafka, "_public_topics", lambda: former)
            operator.until(lambda _: operator.feature._watches["c"].topics == former, "the broker that lags is met")
            clock_goes_on(world, operator)
        operator.until(lambda _: operator.feature._watches["c"].topics != former, "the broker has caught up")
        clock_goes_on(world, operator)

    assert records(world) == said
    assert not said["orders", 0].initial


def clock_goes_on(world: World, operator: Operator) -> None:
    """As often as it takes to find out what is to be written, and to write it."""
    for _ in range(3):
        clock_ms = world.kafka.control.topics.gates.clock_ms
        operator.until(lambda _, ms=clock_ms: world.kafka.control.topics.gates.clock_ms != ms, "the clock goes on")  # type: ignore[misc]


def test_without_agents_that_decide_no_control_topic_is_made(world: World) -> None:
    with world.operator() as operator:
        operator.first()
        world.kafka.add_partitions("orders", 3)
        operator.settled("orders", 3)

    assert not world.kafka.control.topics.control_exists


@pytest.mark.parametrize("spec", [{"discovery": {"interval": "0s"}}, {"discovery": None}])
def test_a_policy_that_does_not_ask_for_it_is_left_alone(world: World, spec: dict[str, Any]) -> None:
    with world.operator() as operator:
        operator.first()
        operator.ask(topics=["*"], **spec)
        assert operator.run(operator.keep()) is None
        assert operator.feature._watches == {}


def test_a_topic_that_has_long_been_gone_is_forgotten(world: World) -> None:
    with world.operator() as operator:
        operator.first()
        world.kafka.delete_topic("orders")
        operator.until(lambda _: not operator.feature._watches["c"].topics, "it is seen to be gone")
        remembered = operator.run(operator.keep())
        world.clock.sleep(timedelta(hours=2).total_seconds())
        operator.until(lambda s: not s.topics, "it is forgotten")

    assert [topic.name for topic in remembered.topics] == ["orders"]


@pytest.mark.parametrize("kind", [GroupType.STREAMS, GroupType.SHARE])
def test_groups_of_kafka_streams_and_share_groups_are_refused(world: World, kind: GroupType) -> None:
    world.kafka.commit_directly(GROUP, {TopicPartition("orders", 0): 1})
    world.kafka.set_group(GROUP, kind)
    with world.operator() as operator:
        assert operator.run(operator.keep()) is None

    assert [h.reason for h in world.told] == ["GroupNotSupported"]


def test_a_streams_application_of_the_classic_protocol_is_told_by_its_assignor() -> None:
    assert is_refused(Group(GROUP, GroupState.STABLE, GroupType.CLASSIC, "stream"))
    assert not is_refused(Group(GROUP, GroupState.STABLE, GroupType.CLASSIC, "range"))
    assert not is_refused(Group(GROUP, GroupState.DEAD, GroupType.UNKNOWN))


@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize("earlier_version", [False, True])
def test_what_comes_while_the_connection_only_observes_is_old_when_that_ends(
    world: World, *, restart: bool, earlier_version: bool
) -> None:
    """An owner that has begun at the end meanwhile is not sent back."""
    with world.operator() as operator:
        status = operator.first()
        world.kafka.add_partitions("orders", 3)
        operator.settled("orders", 3)
    world.kafka.commit_directly(GROUP, {TopicPartition("orders", 2): 5})
    if earlier_version:
        world.kube.config_maps.clear()
        known = status.topics[0].model_copy(update={"settled": 3})
        earlier = status.model_copy(update={"topics": (known,), "selection": ("*",), "starts_committed": 1})
        world.status = PolicyStatus(discovery=earlier)
    with world.operator() as operator:
        operator.live = replace(operator.live, observes=True)
        operator.run(operator.keep())
        world.kafka.add_partitions("orders", 4)
        world.kafka.create_topic("refunds", 1)
        world.kafka.append(TopicPartition("orders", 3), [START] * 9)
        world.kafka.commit_directly(GROUP, {TopicPartition("orders", 3): 7})
        for _ in range(3):
            operator.run(operator.keep())
        if not restart:
            goes_on_as_if_all_were_old(world, operator)
    if restart:
        with world.operator() as operator:
            goes_on_as_if_all_were_old(world, operator)


def goes_on_as_if_all_were_old(world: World, operator: Operator) -> None:
    operator.live = replace(operator.live, observes=False)
    operator.settled("orders", 4)
    operator.settled("refunds", 1)
    world.kafka.add_partitions("orders", 5)
    status = operator.settled("orders", 5)

    assert (status.starts_committed, status.backfilled) == (2, 0)
    assert world.kafka.committed(GROUP) == dict(zip(new(2, 3, 4), [5, 7, 0], strict=True))


class Elsewhere:
    """Another cluster with a topic of the same name, which the group has long read from its end on."""

    def __init__(self, world: World) -> None:
        self.kafka = FakeKafka(world.clock)
        self.kafka.create_topic("older", 1)
        self.kafka.create_topic("orders", 3)
        self.place = dict.fromkeys(new(0, 1, 2), 7)
        for partition in self.place:
            self.kafka.append(partition, [START] * 9)
        self.kafka.commit_directly(GROUP, self.place)

    def joined_by(self, operator: Operator, uid: str) -> None:
        operator.live = replace(live_of(self.kafka, uid), cluster_id="elsewhere")
        operator.observer.connect(uid, "ns/kafka", self.kafka, self.kafka.control)


@pytest.mark.parametrize("uid", ["c", "d"], ids=["of its connection", "through another connection"])
@pytest.mark.parametrize("restart", [False, True])
def test_what_is_there_in_a_cluster_that_the_policy_moves_to_is_old(world: World, uid: str, *, restart: bool) -> None:
    """Topics of the same names have other ids there: they were not made anew."""
    elsewhere = Elsewhere(world)
    with world.operator() as operator:
        operator.first()
        world.kafka.add_partitions("orders", 3)
        operator.settled("orders", 3)
        if not restart:
            goes_on_elsewhere(operator, elsewhere, uid)
    if restart:
        with world.operator() as operator:
            goes_on_elsewhere(operator, elsewhere, uid)


def goes_on_elsewhere(operator: Operator, elsewhere: Elsewhere, uid: str) -> None:
    elsewhere.joined_by(operator, uid)
    operator.until(lambda s: any(t.initial == 3 for t in s.topics), "what is there is seen")
    elsewhere.kafka.add_partitions("orders", 4)
    status = operator.settled("orders", 4)

    assert elsewhere.kafka.committed(GROUP) == {**elsewhere.place, TopicPartition("orders", 3): 0}
    assert (status.starts_committed, status.began_at_end, status.backfilled) == (2, 0, 0)


def test_where_a_connection_moves_to_another_cluster_no_policy_of_it_takes_what_is_there_for_new(world: World) -> None:
    """The pass of one of them opens the watch for all."""
    elsewhere = Elsewhere(world)
    with world.operator() as operator:
        other = Operator(world, {"topics": ["*"], "discovery": {"interval": "10ms"}}, uid="other", beside=operator)
        other.run = operator.run
        other.first()
        operator.first()
        elsewhere.joined_by(operator, "c")
        operator.settled("orders", 3)
        operator.run(asyncio.sleep(0.2))  # twenty looks
        other.live = operator.live
        status = other.settled("orders", 3)

    assert elsewhere.kafka.committed(GROUP) == elsewhere.place
    assert (status.began_at_end, status.backfilled) == (0, 0)


def test_what_there_was_before_is_in_memory_once_for_all_who_come_to_it(world: World) -> None:
    """There may be thousands of groups, and as many topics."""
    with world.operator() as operator:
        operator.first()
        other = Operator(world, {"topics": ["*"], "discovery": {"interval": "10ms"}}, uid="other", beside=operator)
        other.run = operator.run
        other.first()
        first, second = operator.feature._watches["c"].guards.values()

    assert len(first.existed) == 1
    assert first.existed is second.existed


def test_a_policy_that_has_moved_to_another_connection_does_nothing_through_the_one_before(world: World) -> None:
    elsewhere = Elsewhere(world)
    with world.operator() as operator:
        operator.first()
        here = operator.live
        elsewhere.joined_by(operator, "d")
        other = Operator(world, {"topics": ["*"], "discovery": {"interval": "10ms"}}, uid="other", beside=operator)
        other.run = operator.run
        other.first()
        operator.settled("orders", 3)
        assert set(operator.feature._watches) == {"d"}
        world.kafka.add_partitions("orders", 3)
        stays = Operator(world, {"topics": ["*"], "discovery": {"interval": "10ms"}}, uid="stays", beside=operator)
        stays.live, stays.run = here, operator.run
        stays.first()

    assert world.kafka.committed(GROUP) == {}


def test_what_was_taken_care_of_is_known_where_another_connection_to_the_cluster_is_taken(world: World) -> None:
    with world.operator() as operator:
        operator.first()
        world.kafka.add_partitions("orders", 3)
        world.kafka.append(TopicPartition("orders", 2), [START] * 9)
        guard = operator.feature._watches["c"].guards["u"]
        operator.run(eventually(lambda: guard.state.topics["orders"].settled == 3))
        world.kafka.commit_directly(GROUP, {TopicPartition("orders", 2): 5})
        operator.live = live_of(world.kafka, "d")
        operator.observer.connect("d", "ns/kafka", world.kafka, world.kafka.control)
        status = operator.settled("orders", 3)
        world.kafka.add_partitions("orders", 4)
        status = operator.settled("orders", 4)

    assert (status.starts_committed, status.backfilled) == (2, 0)
    assert world.kafka.committed(GROUP) == {TopicPartition("orders", 2): 5, TopicPartition("orders", 3): 0}


async def eventually(so: Callable[[], bool]) -> None:
    deadline = asyncio.get_running_loop().time() + WITHIN_S
    while not so():
        assert asyncio.get_running_loop().time() < deadline
        await asyncio.sleep(0.01)


class Holding:
    """Calls that wait, as for a busy thread, each until it is let go."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *held: int) -> None:
        self.asked = 0
        self.let_go = {number: asyncio.Event() for number in held}
        monkeypatch.setattr(watch, "in_thread", self._call)

    async def _call(self, executor: Executor, work: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        self.asked += 1
        if self.asked in self.let_go:
            await self.let_go[self.asked].wait()
        return await in_thread(executor, work, *arguments, **options)


def test_a_partition_that_is_being_sent_back_is_not_sent_back_with_one_that_comes_meanwhile(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its owner would read what it has read since once more."""
    with world.operator() as operator:
        operator.first()
        holding = Holding(monkeypatch, 2)
        world.kafka.commit_directly(GROUP, dict.fromkeys(new(2, 3), 7))
        for partitions, number in ((3, 2), (4, 3)):
            world.kafka.add_partitions("orders", partitions)
            world.kafka.append(TopicPartition("orders", number), [START] * 9)
            operator.until(lambda s, n=number - 1: s.began_at_end == n, "it is about to be sent back")
        operator.run(asyncio.sleep(0.1))  # ten looks
        holding.let_go[2].set()
        operator.settled("orders", 4)
        status = operator.run(operator.keep())

    assert (status.began_at_end, status.backfilled) == (2, 2)
    assert [h.message for h in world.told if h.reason == "Backfilled"] == [
        f"group payments was sent back to the start of orders {number}" for number in (2, 3)
    ]
    assert not [h.message for h in world.told if h.reason == "BackfillFailed"]
    assert world.counted("tidegate_new_partitions_total", outcome="Backfilled") == 2


def test_a_start_that_failed_is_given_though_that_of_a_later_one_was_given_meanwhile(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    with world.operator() as operator:
        operator.first()
        holding = Holding(monkeypatch, 1, 2)
        for asked, partitions in ((1, 3), (2, 4)):
            world.kafka.add_partitions("orders", partitions)
            operator.run(eventually(lambda n=asked: holding.asked == n))
        guard = operator.feature._watches["c"].guards["u"]
        world.kafka.fail("groups", Unavailable("away"))
        holding.let_go[1].set()
        operator.run(eventually(lambda: guard.failures == 1))
        holding.let_go[2].set()
        operator.run(eventually(lambda: not guard.busy))
        operator.settled("orders", 4)

    assert world.kafka.committed(GROUP) == dict.fromkeys(new(2, 3), 0)


@pytest.mark.parametrize("discovery", [{"repair": "Report"}, {"newPartitions": "none"}, {"newPartitions": "latest"}])
def test_an_owner_is_not_sent_back_once_the_policy_does_not_ask_for_that_any_more(
    world: World, discovery: dict[str, str]
) -> None:
    with world.operator() as operator:
        operator.first()
        world.resetting = True
        operator.run(operator.keep())
        world.kafka.commit_directly(GROUP, dict.fromkeys(new(2), 7))
        world.kafka.add_partitions("orders", 3)
        world.kafka.append(TopicPartition("orders", 2), [START] * 9)
        operator.until(lambda s: s.began_at_end == 1, "it is to be sent back")
        operator.ask(topics=["*"], discovery={"interval": "10ms", **discovery})
        operator.settled("orders", 3)
        world.resetting = False
        operator.run(operator.keep())
        operator.ask(topics=["*"], discovery={"interval": "10ms"})
        operator.run(operator.keep())
        world.kafka.add_partitions("orders", 4)
        operator.settled("orders", 4)
        status = operator.run(operator.keep())

    assert (status.began_at_end, status.backfilled, status.starts_committed) == (1, 0, 1)
    assert world.kafka.committed(GROUP) == {TopicPartition("orders", 2): 7, TopicPartition("orders", 3): 0}


class OpenedAnew:
    """The same cluster through another connection."""

    def __init__(self, kafka: FakeKafka) -> None:
        self._kafka = kafka

    def __getattr__(self, name: str) -> Any:
        return getattr(self._kafka, name)


def test_an_owner_that_is_being_sent_back_while_its_connection_is_opened_anew_is_sent_back_once(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, let_go = 0, threading.Event()

    async def slowly(executor: Executor, work: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        nonlocal asked
        asked += 1
        is_second = asked == 2

        def do() -> Any:
            done = work(*arguments, **options)
            if is_second:
                assert let_go.wait(2 * WITHIN_S)
            return done

        return await in_thread(executor, do)

    with world.operator() as operator:
        operator.first()
        monkeypatch.setattr(watch, "in_thread", slowly)
        partition = TopicPartition("orders", 2)
        world.kafka.commit_directly(GROUP, {partition: 7})
        world.kafka.add_partitions("orders", 3)
        world.kafka.append(partition, [START] * 9)
        operator.run(eventually(lambda: world.kafka.committed(GROUP) == {partition: 0}))
        world.kafka.commit_directly(GROUP, {partition: 5})  # its owner has read on since
        opened: Any = OpenedAnew(world.kafka)
        operator.live = replace(operator.live, kafka=opened)
        operator.observer.connect("c", "ns/kafka", opened, world.kafka.control)
        operator.run(operator.keep())
        operator.run(asyncio.sleep(0.1))  # ten looks
        let_go.set()
        operator.settled("orders", 3)
        status = operator.run(operator.keep())

    assert (status.began_at_end, status.backfilled) == (1, 1)
    assert world.kafka.committed(GROUP) == {partition: 5}


@pytest.mark.parametrize(("age", "initial"), [(timedelta(days=19), 2), (timedelta(minutes=5), 0)])
def test_a_topic_is_no_younger_after_its_connection_was_opened_anew(
    world: World, monkeypatch: pytest.MonkeyPatch, age: timedelta, initial: int
) -> None:
    """As for new credentials, which says nothing of when clients have heard of the topic."""
    monkeypatch.setattr(feature, "_COMMITTED_S", 0.0)  # by the loop's clock, which no test moves
    world.kafka.commit_directly(GROUP, {TopicPartition("orders", 0): 5})
    with world.operator(topics=None) as operator:
        operator.settled("orders", 2)
        world.kafka.create_topic("audit", 2)
        world.kafka.fill("audit", 9)
        operator.until(lambda _: "audit" in operator.feature._watches["c"].topics, "the topic is seen")
        world.clock.sleep(age.total_seconds())
        opened: Any = OpenedAnew(world.kafka)
        operator.live = replace(operator.live, kafka=opened)
        operator.observer.connect("c", "ns/kafka", opened, world.kafka.control)
        operator.run(operator.keep())
        operator.until(lambda _: "audit" in operator.feature._watches["c"].topics, "the topic is seen again")
        world.kafka.commit_directly(GROUP, dict.fromkeys(new(0, 1, topic="audit"), 9))
        status = operator.settled("audit", 2)

    assert {topic.name: topic.initial for topic in status.topics} == {"orders": 2, "audit": initial}
    where = 9 if initial else 0
    assert world.kafka.committed(GROUP, new(0, 1, topic="audit")) == dict.fromkeys(new(0, 1, topic="audit"), where)


def test_no_owner_is_sent_back_for_a_policy_that_has_gone_meanwhile(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    with world.operator() as operator:
        operator.first()
        other = Operator(world, {"topics": ["none"], "discovery": {"interval": "10ms"}}, uid="other", beside=operator)
        other.run = operator.run
        other.first()
        holding = Holding(monkeypatch, 1)
        guard = operator.feature._watches["c"].guards["u"]
        world.kafka.commit_directly(GROUP, {TopicPartition("orders", 2): 7})
        world.kafka.add_partitions("orders", 3)
        operator.run(eventually(lambda: holding.asked == 1))
        operator.run(operator.feature.forget("u"))
        holding.let_go[1].set()
        operator.run(eventually(lambda: not guard.busy))

    assert guard.began_at_end == 1
    assert world.kafka.committed(GROUP) == {TopicPartition("orders", 2): 7}


@pytest.mark.parametrize("restart", [False, True])
def test_a_topic_that_could_not_be_seen_for_long_is_not_taken_for_a_new_one(
    world: World, monkeypatch: pytest.MonkeyPatch, *, restart: bool
) -> None:
    """Without Describe on it brokers do not list it: that is no other than its deletion, until it is there again."""
    with world.operator() as operator:
        operator.first()
        world.kafka.add_partitions("orders", 3)
        operator.settled("orders", 3)
        read = dict.fromkeys(new(0, 1, 2), 7)
        for partition in read:
            world.kafka.append(partition, [START] * 9)
        world.kafka.commit_directly(GROUP, read)
        with monkeypatch.context() as hidden:
            hidden.setattr(world.kafka, "_public_topics", dict)
            operator.until(lambda _: not operator.feature._watches["c"].topics, "it is not seen any more")
            world.clock.sleep(timedelta(hours=2).total_seconds())
            operator.until(lambda s: not s.topics, "it is forgotten")
        if not restart:
            goes_on_with_an_old_topic(world, operator)
    if restart:
        with world.operator() as operator:
            goes_on_with_an_old_topic(world, operator)


@pytest.mark.parametrize("restart", [False, True])
def test_what_came_while_the_policy_did_not_ask_for_a_topic_is_old(world: World, *, restart: bool) -> None:
    world.kafka.create_topic("refunds", 1)
    with world.operator(topics=["orders"]) as operator:
        operator.first()
        operator.ask(topics=["refunds"], discovery={"interval": "10ms"})
        operator.settled("refunds", 1)
        world.kafka.add_partitions("orders", 3)
        read = dict.fromkeys(new(0, 1, 2), 7)
        for partition in read:
            world.kafka.append(partition, [START] * 9)
        world.kafka.commit_directly(GROUP, read)
        if not restart:
            operator.ask(topics=["orders"], discovery={"interval": "10ms"})
            goes_on_with_an_old_topic(world, operator)
    if restart:
        with world.operator(topics=["orders"]) as operator:
            goes_on_with_an_old_topic(world, operator)


@pytest.mark.parametrize("is_said", [True, False], ids=["said", "died before that"])
def test_what_came_while_the_policy_asked_for_no_discovery_is_old(world: World, *, is_said: bool) -> None:
    """Also where the operator died once it had written what it remembers, and before the status that tells of it."""
    with world.operator() as operator:
        operator.first()
    if not is_said:
        world.status = PolicyStatus()
    with world.operator(discovery=None) as operator:
        assert operator.run(operator.keep()) is None
        world.kafka.add_partitions("orders", 3)
        read = dict.fromkeys(new(0, 1, 2), 7)
        for partition in read:
            world.kafka.append(partition, [START] * 9)
        world.kafka.commit_directly(GROUP, read)
        operator.ask(topics=["orders"], discovery={"interval": "10ms"})
        goes_on_with_an_old_topic(world, operator)


def goes_on_with_an_old_topic(world: World, operator: Operator) -> None:
    operator.settled("orders", 3)
    world.kafka.add_partitions("orders", 4)
    status = operator.settled("orders", 4)

    assert (status.began_at_end, status.backfilled) == (0, 0)
    assert world.kafka.committed(GROUP) == {**dict.fromkeys(new(0, 1, 2), 7), TopicPartition("orders", 3): 0}


@pytest.mark.parametrize(("before", "after", "given"), [({}, 4, 1), ({TopicPartition("refunds", 0): 7}, 7, 0)])
def test_a_topic_that_was_only_hidden_until_now_is_not_taken_for_just_made(
    world: World, monkeypatch: pytest.MonkeyPatch, before: dict[TopicPartition, int], after: int, given: int
) -> None:
    """As when the operator is given Describe on it: its first records have long been removed, so it is old."""
    partition = TopicPartition("refunds", 0)
    world.kafka.create_topic("refunds", 1)
    world.kafka.append(partition, [START] * 9)
    world.kafka.delete_records(partition, 4)
    world.kafka.commit_directly(GROUP, before)
    shown = world.kafka._public_topics
    with world.operator() as operator:
        with monkeypatch.context() as hidden:
            hidden.setattr(world.kafka, "_public_topics", lambda: {"orders": shown()["orders"]})
            operator.first()
        status = operator.settled("refunds", 1)
        world.kafka.add_partitions("refunds", 2)
        status = operator.settled("refunds", 2)

    assert (status.starts_committed, status.began_at_end, status.backfilled) == (1 + given, 0, 0)
    assert world.kafka.committed(GROUP) == {partition: after, TopicPartition("refunds", 1): 0}
