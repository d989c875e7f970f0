"""Policies for groups by pattern, over groups in memory: whom they look after, what they say and remember."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from typing import Any, cast
from zlib import crc32

import pytest
from prometheus_client import CollectorRegistry

from support.fake_kafka import FakeClock, FakeKafka
from support.fake_kube import FakeKube
from support.live import live_of
from tidegate.connection.control_topics import TopicsOfConnections
from tidegate.connection.live import Live, LiveConnections
from tidegate.connection.observer import Observer
from tidegate.connection.read_only import ReadOnlyKafka
from tidegate.discovery import feature
from tidegate.discovery.feature import DiscoveryFeature
from tidegate.discovery.feature import Parts as DiscoveryParts
from tidegate.kafka.errors import KafkaFailure, NotAuthorized, Refused, Unavailable
from tidegate.kafka.model import Group, TopicPartition
from tidegate.kube.ports import POLICIES, KubeEvent, KubeUnavailable
from tidegate.offset_reset.passes import ResetPasses
from tidegate.policy import many, memory
from tidegate.policy.keeping import Features
from tidegate.policy.parts import Parts
from tidegate.policy.precedence import Contenders
from tidegate.policy.reconcile import PolicyReconciler
from tidegate.resources.base import read_status
from tidegate.resources.conditions import OVERRIDDEN, READY, RETAINED, Condition, ConditionStatus, find_condition
from tidegate.resources.connection import AllowSpec
from tidegate.resources.policy import PolicyStatus
from tidegate.retention.feature import Parts as RetentionParts
from tidegate.retention.feature import RetentionFeature
from tidegate.retention.metrics import RetentionMetrics
from tidegate.service.metrics import Metrics

DAY = timedelta(days=1)
HOUR = timedelta(hours=1)
FIRST = TopicPartition("orders", 0)
EARLY, LATE = "2026-01-01T00:00:00Z", "2026-02-01T00:00:00Z"
WITHIN_S = 10.0


class NoResets:
    def is_being_reset(self, _live: Live, _group: str) -> bool:
        return False


class World:
    """A cluster with a topic of two partitions, policies, and an operator that may be replaced by a fresh one."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.kafka = FakeKafka(self.clock)
        self.kafka.create_topic("orders", 2)
        self.kafka.fill("orders", 100)
        self.kube = FakeKube()
        self.executor = ThreadPoolExecutor(1)
        self.runner = asyncio.Runner()
        self.live = live_of(self.kafka, "c")
        self.discovery: DiscoveryFeature | None = None
        self.begin()

    def begin(self) -> None:
        """A new process: nothing in memory."""
        self.runner.run(self._begin())

    async def _begin(self) -> None:
        if self.discovery is not None:
            await self.discovery.stop()
        observer = Observer(self.executor, active_tick_s=0.0001, idle_tick_s=0.0001)
        observer.connect("c", "ns/kafka", self.kafka, self.kafka.control)
        self.lives = LiveConnections()
        self.lives.put(self.live)
        metrics = Metrics()
        self.registry = CollectorRegistry()
        retention = RetentionFeature(
            RetentionParts(
                self.kube,
                observer,
                self.lives.is_frozen,
                self.executor,
                self.executor,
                RetentionMetrics(self.registry, lambda: self.clock.now().timestamp()),
                self.clock.now,
            )
        )
        topics = TopicsOfConnections(self.executor, 0.05, self.lives.topics_checked, self.lives.is_frozen)
        self.discovery = DiscoveryFeature(
            DiscoveryParts(
                observer,
                topics,
                self.lives.is_frozen,
                self.executor,
                self.clock,
                lambda _uid: None,
                metrics,
                self.executor,
            )
        )
        parts = Parts(self.kube, self.lives, self.executor, self.executor, self.clock, metrics)
        both = (self.discovery, retention)
        self.reconciler = PolicyReconciler(parts, cast("ResetPasses", NoResets()), Features(both, both))

    def declare(self, name: str, created: str = EARLY, **spec: Any) -> None:
        self.kube.create(POLICIES, "ns", name, {"connectionRef": {"name": "kafka"}, **spec}, created)

    def change(self, name: str, **spec: Any) -> None:
        self.kube.change(POLICIES, "ns", name, spec={"connectionRef": {"name": "kafka"}, **spec})

    def remove(self, name: str) -> None:
        body = self.kube.get(POLICIES, "ns", name)
        self.kube.delete(POLICIES, "ns", name, LATE)
        self.runner.run(self.reconciler.forget(body))

    def allow(self, **allow: Any) -> None:
        self.live = replace(self.live, allow=AllowSpec.model_validate(allow))
        self.lives.put(self.live)

    def observe(self) -> None:
        self.live = replace(self.live, kafka=ReadOnlyKafka(self.kafka, "kafka"), observes=True)
        self.lives.put(self.live)

    def passes(self, rounds: int = 2) -> None:
        """Over all policies, each as often; the next listing is due after each of them."""
        self.runner.run(self._passes(rounds))

    async def _passes(self, rounds: int) -> None:
        for _ in range(rounds):
            for body in self.kube.list(POLICIES):
                await self.reconciler.reconcile(body)
            self.clock.sleep(10.5)

    def sleep(self, duration: timedelta, every: timedelta = HOUR) -> None:
        until = self.clock.now() + duration
        while self.clock.now() < until:
            self.clock.sleep(every.total_seconds())
            self.kafka.retention.expire()
            self.passes(1)

    def until(self, reached: Callable[[], bool], what: str) -> None:
        """Passes, while the watch looks at topics, until it is so."""

        async def look() -> None:
            deadline = asyncio.get_running_loop().time() + WITHIN_S
            while not reached():
                assert asyncio.get_running_loop().time() < deadline, f"not within {WITHIN_S:g} s: {what}"
                await self._passes(1)
                await asyncio.sleep(0.02)

        self.runner.run(look())

    def status(self, name: str) -> PolicyStatus:
        return read_status(PolicyStatus, self.kube.get(POLICIES, "ns", name))

    def said(self, name: str, condition: str = RETAINED) -> Condition | None:
        return find_condition(self.status(name).conditions, condition)

    def told(self, name: str) -> list[str]:
        return [happening.reason for happening in self.kube.happenings_of(name)]

    def metric(self, name: str, **labels: str) -> float | None:
        return self.registry.get_sample_value(name, {"resource_namespace": "ns", **labels})


@pytest.fixture
def world() -> Iterator[World]:
    made = World()
    yield made
    made.runner.run(made.discovery.stop())  # type: ignore[union-attr]
    made.runner.close()
    made.executor.shutdown()


def commit(world: World, *groups: str, offset: int = 11) -> None:
    for group in groups:
        world.kafka.commit_directly(group, {FIRST: offset})


def test_a_listing_of_many_groups_lets_others_have_their_turn(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as the election, on the same event loop: between many policies it takes seconds to decide who has them."""
    world.declare("p", groups=["*"], retention={})
    monkeypatch.setattr(world.kafka, "group_ids", lambda: frozenset(f"g{n}" for n in range(3000)))
    ranked, at_once = Contenders.ranked, [0]

    def counted(*given: Any) -> Any:
        at_once[-1] += 1
        return ranked(*given)

    async def have_turns() -> None:
        while True:
            if at_once[-1]:
                at_once.append(0)
            await asyncio.sleep(0)

    async def one_pass() -> None:
        others = asyncio.create_task(have_turns())
        await world.reconciler.reconcile(world.kube.get(POLICIES, "ns", "p"))
        others.cancel()

    monkeypatch.setattr(Contenders, "ranked", counted)
    world.runner.run(one_pass())

    assert sum(at_once) == 3000
    assert max(at_once) <= 200


def test_what_patterns_select_is_kept_and_what_is_excluded_or_not_allowed_is_not(world: World) -> None:
    world.allow(groups=["a-*", "b-*"])
    world.declare("every", groups=["*"], exclude=["*-test", "b-9"], retention={"guard": True})
    commit(world, "a-1", "b-1", "b-9", "a-test", "c-1", "tidegate.a-1")

    world.sleep(10 * DAY, every=6 * HOUR)

    kept = {g for g in ("a-1", "b-1", "b-9", "a-test", "c-1", "tidegate.a-1") if world.kafka.committed(g)}
    assert kept == {"a-1", "b-1"}
    status = world.status("every")
    assert status.groups is not None
    assert status.retention is not None
    assert (status.groups.selected, status.groups.overridden, status.groups.troubled) == (2, 0, 0)
    assert (status.retention.offsets, status.retention.kept, status.retention.guarded) == (2, 2, True)
    condition = world.said("every")
    assert condition is not None
    assert (condition.status, condition.reason) == ("True", "Guarded")
    assert condition.message == "of 2 group(s): 2 Guarded"


def test_a_group_that_comes_later_is_kept_as_well(world: World) -> None:
    world.declare("every", groups=["*"], retention={})
    world.passes()
    condition = world.said("every")
    assert condition is not None
    assert (condition.status, condition.reason) == ("Unknown", "NoOffsets")

    commit(world, "later")
    world.sleep(10 * DAY, every=6 * HOUR)

    assert world.kafka.committed("later") == {FIRST: 11}


def test_the_more_specific_policy_holds_and_both_say_so(world: World) -> None:
    world.declare("every", groups=["*"], retention={"guard": True})
    world.declare("named", created=LATE, group="payments", retention={"guard": False})
    commit(world, "payments", "orders-1")

    world.sleep(5 * DAY)

    every, named = world.status("every"), world.status("named")
    assert every.groups is not None
    assert (every.groups.selected, every.groups.overridden) == (2, 1)
    [lost] = every.overridden_by or ()
    assert (lost.policy, lost.part, lost.groups, lost.example) == ("named", "retention", 1, "payments")
    condition = world.said("every", OVERRIDDEN)
    assert condition is not None
    assert (condition.status, condition.reason) == ("True", "MoreSpecificPolicy")
    assert condition.message == "for retention of group payments, OffsetResetPolicy named is more specific"
    [held] = named.overrides or ()
    assert (held.policy, held.part, held.groups, held.example) == ("every", "retention", 1, "payments")
    assert world.said("named", OVERRIDDEN) is None
    assert every.retention is not None
    assert (every.retention.offsets, every.retention.kept) == (1, 1)
    world.sleep(4 * DAY)
    assert (world.kafka.committed("payments"), world.kafka.committed("orders-1")) == ({}, {FIRST: 11})


def test_what_the_more_specific_policy_no_longer_asks_for_falls_to_the_other_one(world: World) -> None:
    world.declare("every", groups=["*"], retention={"guard": True})
    world.declare("named", group="payments", retention={"guard": False})
    commit(world, "payments")
    world.passes()
    world.remove("named")

    world.sleep(9 * DAY)

    assert world.kafka.committed("payments") == {FIRST: 11}
    assert world.said("every", OVERRIDDEN) is None
    assert world.status("every").overridden_by is None


def test_of_two_policies_for_one_group_the_younger_one_does_nothing(world: World) -> None:
    world.declare("old", group="payments", retention={"guard": False})
    world.declare("young", created=LATE, group="payments", retention={"guard": True})
    commit(world, "payments")

    world.sleep(8 * DAY)

    assert world.kafka.committed("payments") == {}
    young = world.status("young")
    assert (young.retention, world.said("young")) == (None, None)
    assert [row.policy for row in young.overridden_by or ()] == ["old"]
    assert [row.policy for row in world.status("old").overrides or ()] == ["young"]


@pytest.mark.parametrize(("clusters", "is_one"), [(("one", "one"), True), (("one", "two"), False), (("", ""), False)])
def test_through_two_connections_policies_compete_only_where_both_reach_one_cluster_for_sure(
    world: World, clusters: tuple[str, str], *, is_one: bool
) -> None:
    """Until a connection has once reached its cluster, which one that is nobody knows."""
    world.live = replace(world.live, cluster_id=clusters[0])
    world.lives.put(world.live)
    world.lives.put(replace(world.live, uid="d", name="other", cluster_id=clusters[1]))
    world.declare("old", group="payments", retention={"guard": False})
    world.declare("young", created=LATE, connectionRef={"name": "other"}, group="payments", retention={"guard": True})
    commit(world, "payments")

    world.passes()

    assert [row.policy for row in world.status("young").overridden_by or ()] == (["old"] if is_one else [])


def test_a_policy_that_may_not_touch_a_group_keeps_no_other_from_it(world: World) -> None:
    world.live = replace(world.live, cluster_id="one")
    world.lives.put(world.live)
    world.lives.put(replace(world.live, uid="d", name="other", allow=AllowSpec(groups=("elsewhere",))))
    world.declare("named", connectionRef={"name": "other"}, group="payments", retention={"guard": False})
    world.declare("every", created=LATE, groups=["*"], retention={"guard": True})
    commit(world, "payments")

    world.sleep(9 * DAY)

    assert world.kafka.committed("payments") == {FIRST: 11}
    assert world.status("every").overridden_by is None
    assert world.status("named").overrides is None
    condition = world.said("named")
    assert condition is not None
    assert condition.reason == "GroupNotAllowed"


def test_a_policy_that_is_being_deleted_keeps_no_other_from_its_group(world: World) -> None:
    """Somebody's finalizer may hold it for as long as they like, and it does nothing any more."""
    world.declare("every", groups=["*"], retention={"guard": True})
    world.declare("named", created=LATE, group="payments", retention={"guard": False})
    commit(world, "payments")
    world.passes()
    world.kube.set_finalizers(POLICIES, world.kube.get(POLICIES, "ns", "named"), ["example.com/held"])
    world.kube.delete(POLICIES, "ns", "named", LATE)

    world.sleep(9 * DAY)

    assert world.kafka.committed("payments") == {FIRST: 11}
    assert world.status("every").overridden_by is None


@pytest.mark.parametrize("newer", ["spec", "status"])
def test_a_policy_that_only_a_newer_version_can_read_keeps_no_other_from_its_group(world: World, newer: str) -> None:
    """It is Stalled, and nothing is done for it."""
    world.declare("every", groups=["*"], retention={"guard": True})
    world.declare("named", group="payments", retention={"guard": False})
    commit(world, "payments")
    world.passes()
    assert world.status("every").overridden_by

    if newer == "spec":
        world.change("named", group="payments", retention={"guard": False}, ofANewerVersion={})
    else:
        body = world.kube.get(POLICIES, "ns", "named")
        world.kube.replace_status(POLICIES, body, {**body["status"], "ofANewerVersion": {}})
    world.sleep(9 * DAY, every=6 * HOUR)

    assert world.kafka.committed("payments") == {FIRST: 11}
    assert world.status("every").overridden_by is None


def test_what_was_deleted_while_another_policy_had_the_group_stays_deleted(world: World) -> None:
    world.declare("young", created=LATE, group="payments", retention={"guard": True})
    commit(world, "payments")
    world.passes()
    world.declare("old", group="payments", retention={"guard": False})
    world.passes()
    assert world.status("young").overridden_by
    world.kafka.delete_group("payments")
    world.sleep(8 * DAY)

    world.remove("old")
    world.sleep(DAY)

    assert world.status("young").overridden_by is None
    assert world.kafka.committed("payments") == {}


def test_a_policy_that_yields_in_all_looks_every_minute_whether_it_is_its_turn_again(world: World) -> None:
    """Nobody tells it that the other one is gone, and what is made until it looks is old by then."""
    world.declare("old", group="payments", retention={}, **DISCOVERS)
    world.declare("young", created=LATE, group="payments", retention={}, **DISCOVERS)
    commit(world, "payments")
    world.passes()

    done = world.runner.run(world.reconciler.reconcile(world.kube.get(POLICIES, "ns", "young")))

    assert {row.part for row in world.status("young").overridden_by or ()} == {"discovery", "retention"}
    assert done.again_after_s <= 60


def test_what_fails_of_a_group_does_not_hold_up_what_else_is_kept_for_it(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As for one group: its offsets would expire because something else can't be read."""

    async def reconcile(_policy: Any) -> Any:
        raise NotAuthorized("read topic tidegate.control: TOPIC_AUTHORIZATION_FAILED")

    monkeypatch.setattr(world.discovery, "reconcile", reconcile)
    world.declare("every", groups=["*"], retention={"guard": True}, **DISCOVERS)
    commit(world, "a", "b")

    world.sleep(9 * DAY, every=6 * HOUR)

    assert [world.kafka.committed(group) for group in ("a", "b")] == [{FIRST: 11}] * 2
    condition, status = world.said("every"), world.status("every")
    assert condition is not None
    assert condition.message == "of 2 group(s): 2 Guarded"
    assert status.groups is not None
    assert [(row.group, row.reason) for row in status.groups.worst] == [("a", "LookFailed"), ("b", "LookFailed")]
    assert "TOPIC_AUTHORIZATION_FAILED" in status.groups.worst[0].message


def test_the_status_stays_small_and_names_the_ten_worst(world: World) -> None:
    world.declare("every", groups=["*"], retention={"guard": False, "warnBefore": "24h"})
    commit(world, *(f"g-{n:03}" for n in range(60)))
    world.sleep(6 * DAY, every=6 * HOUR)
    world.sleep(2 * HOUR)
    commit(world, *(f"h-{n:03}" for n in range(60)))
    world.passes()

    status = world.status("every")
    assert status.groups is not None
    assert (status.groups.selected, status.groups.troubled) == (120, 60)
    assert [row.group for row in status.groups.worst] == [f"g-{n:03}" for n in range(10)]
    assert {row.reason for row in status.groups.worst} == {"ExpiresSoon"}
    assert {row.expires_at for row in status.groups.worst} == {status.retention.expires_at}  # type: ignore[union-attr]
    assert len(json.dumps(status.to_json())) < 10_000
    condition = world.said("every")
    assert condition is not None
    assert (condition.status, condition.reason) == ("False", "ExpiresSoon")
    assert condition.message.startswith("of 120 group(s): 60 ExpiresSoon, 60 NotDue")
    assert world.metric("tidegate_policy_groups", policy="every", reason="ExpiresSoon") == 60
    left_s = world.metric("tidegate_group_offsets_expire_seconds", policy="every", group="g-042")
    assert left_s == pytest.approx(22 * 3600, abs=3600)
    assert world.metric("tidegate_offsets_expire_seconds", policy="every") == left_s

    world.sleep(DAY)
    assert world.metric("tidegate_group_offsets_expire_seconds", policy="every", group="g-042") is None
    assert world.metric("tidegate_group_offsets_expire_seconds", policy="every", group="h-042") is not None


def test_a_group_whose_offsets_expired_is_known_and_restored_by_a_later_process(world: World) -> None:
    """Nothing of it is left in Kafka, not even its id."""
    world.declare("every", groups=["*"], retention={"guard": False})
    commit(world, "payments")
    world.sleep(8 * DAY)
    assert "payments" not in world.kafka.group_ids() or not world.kafka.committed("payments")
    status = world.status("every")
    assert status.groups is not None
    assert [(row.group, row.reason) for row in status.groups.worst] == [("payments", "OffsetsExpired")]

    world.begin()
    world.change("every", groups=["*"], retention={"guard": True})
    world.passes()

    assert world.kafka.committed("payments") == {FIRST: 11}
    assert "OffsetsRestored" in world.told("every")


def test_a_group_that_cannot_be_looked_at_does_not_hold_up_the_others(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    world.declare("every", groups=["*"], retention={})
    commit(world, "a", "secret", "z")
    describe = world.kafka.groups

    def groups(group_ids: Any) -> dict[str, Group]:
        if "secret" in group_ids:
            raise NotAuthorized("describe group secret: GROUP_AUTHORIZATION_FAILED")
        return dict(describe(group_ids))

    monkeypatch.setattr(world.kafka, "groups", groups)

    world.sleep(9 * DAY, every=6 * HOUR)

    status = world.status("every")
    assert status.groups is not None
    [row] = status.groups.worst
    assert (row.group, row.reason) == ("secret", "LookFailed")
    assert "GROUP_AUTHORIZATION_FAILED" in row.message
    assert (world.kafka.committed("a"), world.kafka.committed("z")) == ({FIRST: 11}, {FIRST: 11})
    lines = [record for record in caplog.records if "group secret: describe group secret" in record.getMessage()]
    assert len(lines) == 1, "it is said once, not at each look"


def test_what_fails_of_a_policy_is_logged_once_though_the_rest_goes_on(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    world.declare("p", group="payments", retention={"guard": True}, discovery={})
    commit(world, "payments")

    async def fail(_policy: Any) -> Any:
        raise Unavailable("nobody answers")

    monkeypatch.setattr(world.discovery, "reconcile", fail)

    world.passes(5)

    assert world.said("p") is not None
    assert len([record for record in caplog.records if "nobody answers" in record.getMessage()]) == 1


def test_groups_none_of_which_could_be_looked_at_are_not_said_to_have_no_offsets(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.declare("every", groups=["*"], retention={"guard": True})
    commit(world, "a", "b")

    def refuse(_groups: Any) -> Any:
        raise NotAuthorized("describe group a: GROUP_AUTHORIZATION_FAILED")

    monkeypatch.setattr(world.kafka, "groups", refuse)
    world.passes()

    condition = world.said("every")
    assert condition is not None
    assert (condition.status, condition.reason) == (ConditionStatus.UNKNOWN, "NotLookedAt")
    assert condition.message == "of 2 group(s): 2 NotLookedAt. status.groups.worst names those that fail"


@pytest.mark.parametrize(
    ("failure", "asked"),
    [
        (NotAuthorized("describe group payments: GROUP_AUTHORIZATION_FAILED"), {"group": "payments"}),
        (Refused("describe group payments: its members are no consumers (connect)"), {"group": "payments"}),
        (NotAuthorized("list groups: CLUSTER_AUTHORIZATION_FAILED"), {"groups": ["*"]}),
    ],
)
def test_a_policy_whose_groups_may_not_be_looked_at_is_not_ready_until_they_may(
    world: World, monkeypatch: pytest.MonkeyPatch, failure: KafkaFailure, asked: dict[str, Any]
) -> None:
    world.declare("p", **asked, retention={"guard": True})
    commit(world, "payments")
    world.passes()
    assert world.said("p", READY) is not None

    def refuse(*_: Any) -> Any:
        raise failure

    with monkeypatch.context() as refused:
        refused.setattr(world.kafka, "groups", refuse)
        refused.setattr(world.kafka, "group_ids", refuse)
        world.passes()
    said = world.said("p", READY)
    assert said is not None
    assert (said.status, said.reason) == (ConditionStatus.FALSE, "LookFailed")
    assert str(failure) in said.message

    world.passes()
    said = world.said("p", READY)
    assert said is not None
    assert said.status is ConditionStatus.TRUE


def test_groups_that_take_long_to_read_are_looked_at_all_the_same(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Brokers may be far away, and one that can't be described makes a call of each of the others."""
    world.declare("every", groups=["*"], retention={"guard": True})
    commit(world, "a", "b")
    describe = world.kafka.groups

    def groups(group_ids: Any) -> dict[str, Group]:
        world.clock.sleep(2.5)
        return dict(describe(group_ids))

    monkeypatch.setattr(world.kafka, "groups", groups)

    world.sleep(9 * DAY, every=6 * HOUR)

    assert (world.kafka.committed("a"), world.kafka.committed("b")) == ({FIRST: 11}, {FIRST: 11})
    status = world.status("every")
    assert status.groups is not None
    assert (status.groups.selected, status.groups.troubled) == (2, 0)


def test_what_cannot_be_read_together_is_read_one_by_one(world: World) -> None:
    world.declare("every", groups=["*"], retention={"guard": True})
    commit(world, "a", "b")
    world.kafka.fail("commits_of", *[NotAuthorized("describe group b: GROUP_AUTHORIZATION_FAILED")] * 100)

    world.sleep(9 * DAY, every=6 * HOUR)

    assert (world.kafka.committed("a"), world.kafka.committed("b")) == ({FIRST: 11}, {FIRST: 11})
    status = world.status("every")
    assert status.groups is not None
    assert (status.groups.selected, status.groups.troubled) == (2, 0)
    assert "commits" in world.kafka.calls


def test_what_is_read_together_is_not_read_again_by_each(world: World) -> None:
    world.declare("every", groups=["*"], retention={"guard": True})
    commit(world, "a", "b")
    world.passes(1)
    world.kafka.calls.clear()

    world.sleep(HOUR, every=HOUR)

    assert "commits_of" in world.kafka.calls
    assert "commits" not in world.kafka.calls


DISCOVERS = {"discovery": {"interval": "10ms"}}


def first_discovery(world: World, name: str = "every") -> None:
    def finished() -> bool:
        found = world.status(name).discovery
        return found is not None and found.initial_discovery_finished

    world.until(finished, "the first discovery")


def new_starts(world: World, *groups: str) -> list[int | None]:
    return [world.kafka.committed(group).get(TopicPartition("orders", 2)) for group in groups]


def test_new_partitions_are_given_their_start_for_the_groups_that_read_the_topic(world: World) -> None:
    world.kafka.create_topic("audit", 1)
    world.kafka.commit_directly("auditor", {TopicPartition("audit", 0): 0})
    commit(world, "a", "b", "left-out")
    world.declare("every", groups=["*"], exclude=["left-out"], topics=["ord*", "aud*"], **DISCOVERS)
    first_discovery(world)

    world.kafka.add_partitions("orders", 3)
    world.until(lambda: new_starts(world, "a", "b") == [0, 0], "both have their start")
    world.until(lambda: (d := world.status("every").discovery) is not None and d.starts_committed == 2, "it is counted")

    assert new_starts(world, "auditor", "left-out") == [None, None]
    status = world.status("every").discovery
    assert status is not None
    assert [(found.topic, found.partition) for found in status.newest] == [("orders", 2)]
    assert (status.topics, status.selection) == ((), None)


def test_a_later_process_goes_on_from_what_is_remembered_of_each_group(world: World) -> None:
    commit(world, "a", "b")
    world.declare("every", groups=["*"], **DISCOVERS)
    first_discovery(world)
    world.begin()
    world.kafka.add_partitions("orders", 3)

    world.until(lambda: new_starts(world, "a", "b") == [0, 0], "both have their start")
    world.until(lambda: (d := world.status("every").discovery) is not None and d.starts_committed == 2, "it is counted")

    world.begin()
    world.passes(3)
    status = world.status("every").discovery
    assert status is not None
    assert (status.starts_committed, status.backfilled) == (2, 0)


def test_after_a_crash_no_group_is_rewound_that_had_its_start_before_the_last_pass(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    groups = [f"g{number}" for number in range(6)]
    commit(world, *groups)
    world.declare("every", groups=["*"], **DISCOVERS)
    first_discovery(world)
    world.passes(8)
    monkeypatch.setattr(many, "_BATCH", 1)
    world.kafka.add_partitions("orders", 3)
    read = TopicPartition("orders", 2)
    world.kafka.append(read, [world.clock.now()] * 9)
    uid = world.kube.get(POLICIES, "ns", "every")["metadata"]["uid"]
    world.runner.run(all_have_news(world, uid, len(groups)))
    assert new_starts(world, *groups) == [0] * 6
    for group in groups:
        world.kafka.commit_directly(group, {read: 7})
    world.passes(1)

    world.begin()
    monkeypatch.undo()
    world.passes(4)
    world.runner.run(asyncio.sleep(0.2))  # twenty looks
    world.passes(4)

    assert new_starts(world, *groups) == [7] * 6


async def all_have_news(world: World, uid: str, count: int) -> None:
    deadline = asyncio.get_running_loop().time() + WITHIN_S
    while world.discovery is None or len(world.discovery.with_news(uid)) < count:
        assert asyncio.get_running_loop().time() < deadline, "the starts are not given"
        await asyncio.sleep(0.02)
    await asyncio.sleep(0.1)


def test_a_group_that_is_gone_is_not_brought_back_by_a_start(world: World) -> None:
    commit(world, "a", "b")
    world.declare("every", groups=["*"], **DISCOVERS)
    first_discovery(world)
    world.kafka.delete_group("a")
    world.passes(8)
    world.kafka.add_partitions("orders", 3)
    world.until(lambda: new_starts(world, "b") == [0], "the other one has its start")
    world.passes()

    assert "a" not in world.kafka.group_ids()


def test_a_topic_that_a_group_begins_to_read_after_a_restart_is_an_old_one(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feature, "_COMMITTED_S", 0.0)  # by the loop's clock, which no test moves
    world.kafka.create_topic("audit", 2)
    commit(world, "a")
    world.declare("every", groups=["*"], topics=["*"], **DISCOVERS)
    first_discovery(world)
    world.begin()
    world.passes()
    read = TopicPartition("audit", 0)
    world.kafka.commit_directly("a", {read: 1})
    world.passes(8)
    world.kafka.add_partitions("audit", 3)
    new = TopicPartition("audit", 2)
    world.until(lambda: new in world.kafka.committed("a"), "the new one has its start")

    assert world.kafka.committed("a") == {FIRST: 11, read: 1, new: 0}


def test_what_another_policy_has_taken_care_of_meanwhile_is_not_rewound(world: World) -> None:
    commit(world, "a")
    world.declare("every", groups=["*"], **DISCOVERS)
    first_discovery(world)
    world.declare("named", group="a", discovery={"interval": "10ms", "newPartitions": "none"})
    first_discovery(world, "named")
    world.until(lambda: bool(world.status("every").overridden_by), "the other one holds")
    world.kafka.add_partitions("orders", 3)
    world.kafka.commit_directly("a", {TopicPartition("orders", 2): 7})
    world.passes(3)

    world.remove("named")
    world.until(lambda: not world.status("every").overridden_by, "it holds again")
    first_discovery(world)
    world.passes(3)

    assert new_starts(world, "a") == [7]
    status = world.status("every").discovery
    assert status is not None
    assert (status.began_at_end, status.backfilled) == (0, 0)


def test_another_process_that_has_written_the_memory_is_followed(world: World) -> None:
    commit(world, "a")
    world.declare("every", groups=["*"], retention={})
    world.passes()
    for key, data in world.kube.config_maps.items():
        world.kube.config_maps[key] = {"memory.json": data["memory.json"] + "\n"}
    commit(world, "a", offset=12)

    world.sleep(4 * DAY, every=6 * HOUR)
    world.sleep(6 * DAY, every=6 * HOUR)

    assert world.kafka.committed("a") == {FIRST: 12}


def test_a_later_process_says_nothing_of_the_whole_before_it_has_looked_at_each_group(world: World) -> None:
    """It takes several passes to look at 450 groups; the one in trouble is looked at in the last of them."""
    world.declare("every", groups=["*"], retention={"guard": False, "warnBefore": "24h"})
    commit(world, "z-first")
    world.sleep(6 * DAY + 2 * HOUR, every=2 * HOUR)
    commit(world, *(f"g-{n:03}" for n in range(450)))
    world.passes(4)
    before = world.status("every")
    condition = world.said("every")
    assert condition is not None
    assert (condition.status, condition.reason) == ("False", "ExpiresSoon")
    assert condition.message.startswith("of 451 group(s): 1 ExpiresSoon, 450 NotDue")

    world.begin()
    for _ in range(4):
        world.passes(1)
        assert world.status("every") == before


def test_what_is_asked_for_anew_is_summed_up_once_each_group_was_looked_at(world: World) -> None:
    commit(world, *(f"g-{n:03}" for n in range(250)))
    world.declare("every", groups=["*"], retention={"guard": False})
    world.passes(1)
    assert world.status("every").groups is None

    world.passes(1)

    condition = world.said("every")
    assert condition is not None
    assert condition.message == "of 250 group(s): 250 NotDue"


def test_when_offsets_were_renewed_last_is_known_to_a_later_process(world: World) -> None:
    commit(world, "a")
    world.declare("every", groups=["*"], retention={"guard": True})
    world.sleep(7 * DAY, every=6 * HOUR)
    before = world.status("every").retention
    assert before is not None
    assert before.renewed_at is not None

    world.begin()
    world.passes()

    assert world.status("every").retention == before


def test_while_the_connection_only_observes_nothing_is_said_to_be_guarded(world: World) -> None:
    world.observe()
    commit(world, "a", "b")
    world.declare("every", groups=["*"], retention={"guard": True, "warnBefore": "24h"})
    world.passes()

    condition, retention = world.said("every"), world.status("every").retention
    assert condition is not None
    assert retention is not None
    assert (condition.status, condition.reason, retention.guarded) == ("True", "NotDue", False)
    assert condition.message.startswith("of 2 group(s): 2 NotDue. KafkaConnection kafka only observes")

    world.sleep(8 * DAY)

    condition, groups = world.said("every"), world.status("every").groups
    assert condition is not None
    assert groups is not None
    assert (condition.status, condition.reason) == ("False", "OffsetsExpired")
    assert "KafkaConnection kafka only observes" in condition.message
    assert "set retention.guard" not in groups.worst[0].message
    assert "once KafkaConnection kafka no longer only observes" in groups.worst[0].message


def test_what_does_not_fit_into_a_config_map_is_said_once_and_the_rest_is_written(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(memory, "INLINE_LIMIT_BYTES", 1_000)
    monkeypatch.setattr(memory, "LIMIT_BYTES", 900)
    world.kafka.create_topic("wide", 100)
    world.kafka.commit_directly("large", {TopicPartition("wide", n): 17 * n**3 for n in range(100)})
    commit(world, *(f"g-{n:03}" for n in range(150)))
    world.declare("every", groups=["*"], retention={"guard": False})

    world.passes(5)

    assert len(world.kube.config_maps) == memory.SHARDS - 1
    condition = world.said("every")
    assert condition is not None
    assert (condition.status, condition.reason) == ("True", "NotDue")
    assert "does not fit into a ConfigMap" in condition.message
    assert "most of it belongs to group large" in condition.message
    lines = [record for record in caplog.records if "does not fit" in record.getMessage()]
    assert len(lines) == 1

    world.kafka.delete_group("large")
    world.change("every", groups=["g-*"], retention={"guard": False})
    world.passes(3)

    assert len(world.kube.config_maps) == memory.SHARDS
    condition = world.said("every")
    assert condition is not None
    assert "ConfigMap" not in condition.message


def test_a_policy_that_can_give_no_starts_is_not_ready_until_it_can(world: World) -> None:
    def ready() -> tuple[str, str]:
        said = world.said("p", READY)
        assert said is not None
        return said.status.value, said.reason

    commit(world, "payments")
    world.declare("p", group="payments", **DISCOVERS)
    first_discovery(world, "p")
    assert ready()[0] == "True"
    world.kafka.fail("send", *[NotAuthorized("commit offsets: no Write on TransactionalId")] * 5)
    world.kafka.add_partitions("orders", 3)

    world.until(lambda: ready() == ("False", "StartFailed"), "it is said")
    world.until(lambda: ready()[0] == "True", "the start is given")

    assert new_starts(world, "payments") == [0]
    assert world.told("p").count("StartFailed") == 1


@pytest.mark.parametrize("groups", [{"group": "payments"}, {"groups": ["*"]}], ids=["one group", "many groups"])
def test_what_is_done_is_said_also_while_what_is_remembered_can_not_be_stored(
    world: World, monkeypatch: pytest.MonkeyPatch, groups: dict[str, Any]
) -> None:
    commit(world, "payments")
    world.declare("p", **groups, **DISCOVERS)
    with monkeypatch.context() as small:
        small.setattr(memory, "INLINE_LIMIT_BYTES", 1)
        small.setattr(memory, "LIMIT_BYTES", 1)
        world.until(lambda: (d := world.status("p").discovery) is not None and d.initial_discovery_finished, "at first")
        world.kafka.add_partitions("orders", 3)
        world.until(lambda: (d := world.status("p").discovery) is not None and d.starts_committed == 1, "it is counted")
    assert world.kube.config_maps == {}
    [told] = [each for each in world.kube.happenings_of("p") if each.reason == "MemoryNotWritten"]
    assert "does not fit into a ConfigMap" in told.message
    assert "partitions that are there by then count as old" in told.message

    world.kafka.add_partitions("orders", 4)
    world.until(lambda: (d := world.status("p").discovery) is not None and d.starts_committed == 2, "it goes on")
    assert world.kube.config_maps != {}
    assert world.told("p").count("MemoryNotWritten") == 1


def test_of_a_reason_ten_events_are_recorded_and_how_many_more_there_are_is_said_once(world: World) -> None:
    world.declare("every", groups=["*"], retention={"guard": False, "warnBefore": "24h"})
    commit(world, *(f"g-{n:03}" for n in range(60)))
    world.sleep(6 * DAY + 6 * HOUR, every=6 * HOUR)
    world.sleep(HOUR, every=timedelta(minutes=1))

    told = [event for event in world.kube.happenings_of("every") if event.reason == "ExpiresSoon"]
    assert [event.key.split("/")[0] for event in told] == [f"g-{n:03}" for n in range(10)]
    [more] = [event.message for event in world.kube.happenings_of("every") if event.reason == "MoreEvents"]
    assert more.startswith("50 more Events ExpiresSoon are not recorded")

    commit(world, *(f"h-{n:03}" for n in range(5)))
    world.sleep(6 * DAY + 6 * HOUR, every=6 * HOUR)
    for group in (f"h-{n:03}" for n in range(5)):
        assert any(event.key.startswith(f"{group}/retention/soon") for event in world.kube.happenings_of("every"))


def test_events_that_could_not_be_recorded_are_recorded_later(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.declare("every", groups=["*"], retention={"guard": False, "warnBefore": "24h"})
    commit(world, "a")
    world.sleep(5 * DAY, every=6 * HOUR)

    tried: list[str] = []

    def refuse(_body: object, happening: KubeEvent) -> None:
        tried.append(happening.reason)
        raise KubeUnavailable("record an Event: 500")

    with monkeypatch.context() as broken:
        broken.setattr(world.kube, "record", refuse)
        while "ExpiresSoon" not in tried:
            world.sleep(6 * HOUR, every=6 * HOUR)
    assert "ExpiresSoon" not in world.told("every")
    world.clock.sleep(120)
    world.passes(1)

    assert "ExpiresSoon" in world.told("every")


@pytest.mark.parametrize(
    "since",
    [*({"sinceS": bad} for bad in ("?", None, [1], True, float("nan"), 10**400)), {}],
    ids=lambda s: str(s)[:20],
)
def test_a_time_that_cannot_be_read_ends_no_pass_and_forgets_no_group(world: World, since: Any) -> None:
    world.declare("every", groups=["*"], retention={"guard": False})
    commit(world, "payments", "other")
    world.sleep(8 * DAY, every=6 * HOUR)
    for data in world.kube.config_maps.values():
        groups = json.loads(data["memory.json"])["groups"]
        if "payments" in groups:
            groups["payments"]["gone"] = since
            data["memory.json"] = json.dumps({"groups": groups})
    world.kafka.delete_group("payments")
    commit(world, "other", offset=12)

    world.begin()
    world.passes()

    status = world.status("every")
    assert status.groups is not None
    assert status.groups.selected == 2
    assert [(row.group, row.reason) for row in status.groups.worst] == [("payments", "OffsetsExpired")]
    world.sleep(8 * DAY, every=6 * HOUR)
    groups_now = world.status("every").groups
    assert groups_now is not None
    assert "payments" not in [row.group for row in groups_now.worst]


def test_groups_that_there_can_not_be_are_no_groups_of_the_policy(world: World) -> None:
    """Somebody has edited what is remembered: half of a pair of surrogates, and a group where none looks for it."""
    world.declare("every", groups=["*"], retention={"guard": False})
    commit(world, "payments")
    world.passes()
    elsewhere = next(g for g in ("x", "y", "z") if crc32(g.encode()) % 32 != crc32(b"payments") % 32)
    for data in world.kube.config_maps.values():
        groups = json.loads(data["memory.json"])["groups"]
        assert list(groups) == ["payments"]
        groups |= {"\ud800": groups["payments"], "": groups["payments"], elsewhere: groups["payments"]}
        data["memory.json"] = json.dumps({"groups": groups})

    world.begin()
    world.passes()

    status = world.status("every")
    assert status.groups is not None
    assert (status.groups.selected, status.groups.troubled) == (1, 0)


def test_a_config_map_of_somebody_else_makes_no_conflict_and_is_said_once(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    body = world.kube.create(POLICIES, "ns", "every", {"connectionRef": {"name": "kafka"}, "groups": ["*"]}, EARLY)
    names = [("ns", f"{memory.document_name(body, 'memory')}-{number}") for number in range(memory.SHARDS)]
    theirs = {"memory.json": json.dumps({"groups": {"ghost": {"retention": {"offsets": []}}}})}
    for name in names[:16]:
        world.kube.config_maps[name] = theirs
    world.change("every", groups=["*"], retention={"guard": False})
    commit(world, *(f"g-{n:03}" for n in range(150)))

    world.passes(8)

    status, condition = world.status("every"), world.said("every")
    assert status.groups is not None
    assert condition is not None
    assert status.groups.selected == 150
    assert "ConfigMap ns/" in condition.message
    assert all(world.kube.config_maps[name] == theirs for name in names[:16])
    assert all("g-" in str(world.kube.config_maps[name]) for name in names[16:])
    lines = [record.getMessage() for record in caplog.records if "it is not every's" in record.getMessage()]
    assert len([line for line in lines if "ignores" in line]) == 16
    assert len(lines) == 17


def test_a_policy_that_keeps_nothing_any_more_says_nothing_and_remembers_nothing(world: World) -> None:
    commit(world, "a")
    world.declare("every", groups=["*"], retention={})
    world.passes()
    assert world.status("every").groups is not None

    world.change("every", groups=["*"])
    world.passes()

    status = world.status("every")
    assert (status.groups, status.retention, world.said("every")) == (None, None, None)
    assert all('"a"' not in str(data) for data in world.kube.config_maps.values())
    assert world.metric("tidegate_policy_groups", policy="every", reason="NotDue") is None


@pytest.mark.parametrize("rest", [{}, {"discovery": {"interval": "1h"}}], ids=["nothing", "discovery"])
def test_groups_are_counted_only_while_their_retention_is_asked_for(world: World, rest: dict[str, Any]) -> None:
    commit(world, "a")
    world.declare("every", groups=["*"], retention={"guard": False}, **rest)
    world.passes()
    assert world.metric("tidegate_policy_groups", policy="every", reason="NotDue") == 1

    world.change("every", groups=["*"], **rest)
    world.passes()

    assert world.metric("tidegate_policy_groups", policy="every", reason="NotDue") is None


def test_nothing_is_written_while_nothing_changes(world: World) -> None:
    commit(world, "a", "b")
    world.declare("every", groups=["*"], retention={"guard": False}, **DISCOVERS)
    first_discovery(world)
    world.passes(8)
    version = world.kube.get(POLICIES, "ns", "every")["metadata"]["resourceVersion"]

    world.passes(8)

    assert world.kube.get(POLICIES, "ns", "every")["metadata"]["resourceVersion"] == version
