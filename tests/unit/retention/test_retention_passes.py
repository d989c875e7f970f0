"""Passes of the feature over a group in memory: what is kept, restored, left alone and told, and processes that die."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar

import pytest
from prometheus_client import CollectorRegistry

from support.fake_consumer import FakeConsumer
from support.fake_kafka import FakeClock, FakeKafka
from support.fake_kube import FakeKube
from support.killed import Killed
from support.live import live_of
from tidegate.connection.observer import Observer
from tidegate.connection.read_only import ReadOnlyKafka
from tidegate.kafka.errors import NotAuthorized, Unavailable
from tidegate.kafka.model import GroupState, GroupType, Offsets, TopicPartition
from tidegate.kafka.offset_retention import Commit
from tidegate.kube.ports import POLICIES, KubeFailure, KubeUnavailable
from tidegate.policy.feature import FeatureOutcome, PolicyView
from tidegate.policy.memory import GroupMemory, NewerMemory, PolicyMemory
from tidegate.resources.base import parse_spec
from tidegate.resources.conditions import RETAINED, Condition, find_condition
from tidegate.resources.connection import AllowSpec
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


@pytest.fixture
def world() -> Iterator[World]:
    made = World()
    yield made
    made.loop.close()
    made.executor.shutdown()


def leave_place(world: World, kind: GroupType) -> None:
    if kind is GroupType.SIMPLE:
        world.kafka.commit_directly(GROUP, PLACE)
    else:
        world.join_and_leave(PLACE, kind)


KINDS = [GroupType.CLASSIC, GroupType.CONSUMER, GroupType.SIMPLE]
RIGHTS = pytest.mark.parametrize("may_read_log", [True, False], ids=["log read", "log not read"])


@RIGHTS
@pytest.mark.parametrize("kind", KINDS)
def test_a_group_sleeps_for_a_year_and_keeps_its_place(world: World, kind: GroupType, may_read_log: bool) -> None:
    world.kafka.retention.may_read_log = may_read_log
    world.retention(guard=True, warnBefore="2400h")
    leave_place(world, kind)

    world.sleep(365 * DAY, look_every=timedelta(hours=12))

    assert world.committed == PLACE
    assert world.told == []
    assert (world.said.guarded, world.said.kept, world.said.offsets, world.said.exact) == (True, 2, 2, may_read_log)
    assert (world.condition.status, world.condition.reason) == ("True", "Guarded")
    # Rarely: every 35 days where the log tells that they are kept, else every half retention.
    assert world.commits_made() <= (365 / 35 + 2 if may_read_log else 365 / 3 + 2)


@pytest.mark.parametrize("kind", KINDS)
def test_without_a_guard_the_place_is_gone_after_the_retention_and_that_was_announced(
    world: World, kind: GroupType
) -> None:
    world.retention(guard=False, warnBefore="24h")
    leave_place(world, kind)
    world.keep()
    expires_at = world.said.expires_at
    assert expires_at is not None
    assert (world.said.exact, world.condition.reason) == (True, "NotDue")

    world.sleep(expires_at - world.clock.now() - DAY - HOUR)
    assert (world.committed, world.told) == (PLACE, [])
    world.sleep(2 * HOUR)
    assert world.told == ["ExpiresSoon"]
    assert (world.condition.status, world.condition.reason) == ("False", "ExpiresSoon")
    assert world.metric("tidegate_offsets_expire_seconds", resource_namespace="ns", policy="p") == pytest.approx(
        82_800, abs=5
    )
    world.sleep(expires_at - world.clock.now() - timedelta(seconds=1))
    assert world.committed == PLACE
    world.sleep(timedelta(seconds=1))

    assert world.committed == {}
    assert world.told == ["ExpiresSoon", "OffsetsExpired"]
    assert (world.condition.status, world.condition.reason) == ("False", "OffsetsExpired")
    assert world.commits_made() == 0
    world.sleep(DAY)
    assert world.told == ["ExpiresSoon", "OffsetsExpired"]


def test_nothing_is_committed_before_half_of_the_retention_is_over(world: World) -> None:
    world.join_and_leave(PLACE)

    world.sleep(RETENTION / 2 - 2 * HOUR)
    assert (world.commits_made(), world.said.kept) == (0, 0)
    world.sleep(4 * HOUR)

    assert (world.commits_made(), world.said.kept) == (1, 2)
    assert world.said.expires_at is not None
    assert world.said.expires_at - world.clock.now() > 69 * DAY
    assert world.said.renewed_at is not None
    assert world.metric("tidegate_offset_renewals_total") == 2
    assert world.metric("tidegate_guarded_groups") == 1


@pytest.mark.parametrize("kind", KINDS)
def test_through_the_weeks_more_than_a_month_is_always_left(world: World, kind: GroupType) -> None:
    """A Tidegate that is away for a month must lose nothing, whenever its absence begins."""
    leave_place(world, kind)
    world.sleep(RETENTION / 2 + 2 * HOUR)
    renewals: list[int] = []

    for _ in range(30):
        world.sleep(7 * DAY, look_every=timedelta(hours=12))
        renewals.append(world.commits_made())
        assert world.said.expires_at is not None
        assert world.said.expires_at - world.clock.now() >= 35 * DAY - timedelta(hours=12)

    assert (world.committed, world.told) == (PLACE, [])
    # Once in 35 days, each time both partitions at once.
    assert renewals[-1] == 1 + 30 * 7 // 35
    assert world.metric("tidegate_offset_renewals_total") == 2 * renewals[-1]


def test_what_was_committed_again_is_told_as_the_log_has_it_in_the_same_pass(world: World) -> None:
    world.join_and_leave(PLACE)
    while not world.commits_made():
        world.sleep(HOUR)

    assert (world.said.kept, world.said.exact, world.commits_made()) == (2, True, 1)
    assert world.said.expires_at is not None
    assert world.said.expires_at - world.clock.now() > 69 * DAY


def test_members_that_came_and_left_without_a_commit_begin_the_retention_anew(world: World) -> None:
    """Nothing but the coordinator's log tells when; it is read again as soon as they have left."""
    world.retention(guard=False)
    world.join_and_leave(PLACE)
    world.keep()
    world.clock.sleep(10 * 3600)
    consumer = world.consumer()
    world.keep()
    world.clock.sleep(600)
    consumer.close()

    world.keep()

    assert world.committed == PLACE
    assert world.said.expires_at is not None
    assert (world.said.exact, world.said.expires_at - world.clock.now()) == (
        True,
        pytest.approx(RETENTION, abs=timedelta(minutes=1)),
    )


def test_a_commit_that_only_drops_the_retention_is_found_within_an_eighth_of_the_brokers(world: World) -> None:
    world.join_and_leave(PLACE, GroupType.CONSUMER)
    while not world.commits_made():
        world.sleep(HOUR)
    dropped = world.clock.now()
    world.kafka.writer(GROUP, transaction_timeout_s=10).alter(GROUP, PLACE)

    world.sleep(DAY, look_every=HOUR)

    assert (world.said.kept, world.said.exact) == (0, True)
    assert world.said.expires_at is not None
    assert world.said.expires_at - dropped == pytest.approx(RETENTION, abs=timedelta(minutes=1))


def test_a_simple_consumer_that_moved_on_is_looked_up_in_the_log_at_most_every_ten_minutes(world: World) -> None:
    world.kafka.commit_directly(GROUP, PLACE)
    world.keep()
    assert (world.said.exact, world.kafka.calls.count("log")) == (True, 1)

    for minute in range(1, 10):
        world.clock.sleep(60)
        world.kafka.commit_directly(GROUP, {FIRST: 11 + minute})
        world.keep()
        assert (world.said.exact, world.kafka.calls.count("log")) == (False, 1)
    world.clock.sleep(60)
    world.kafka.commit_directly(GROUP, {FIRST: 40})
    world.keep()

    assert (world.said.exact, world.kafka.calls.count("log")) == (True, 2)


@RIGHTS
def test_a_normal_commit_drops_what_was_kept_and_it_is_kept_again(world: World, may_read_log: bool) -> None:
    world.kafka.retention.may_read_log = may_read_log
    world.join_and_leave(PLACE)
    world.sleep(10 * DAY)
    # A tool resets the dormant group to where it stands in one partition, and elsewhere in the other.
    world.kafka.writer(GROUP, transaction_timeout_s=10).alter(GROUP, {FIRST: 11, SECOND: 5})

    world.keep()
    world.sleep(30 * DAY)

    assert world.committed == {FIRST: 11, SECOND: 5}


def test_the_members_commits_are_never_touched(world: World) -> None:
    world.join_and_leave(PLACE)
    world.sleep(10 * DAY)
    consumer = world.consumer()
    world.kafka._member_commit(GROUP, consumer.member_id, consumer._generation, {FIRST: 50})
    before = world.commits_made()

    world.sleep(20 * DAY)

    assert (world.committed, world.commits_made()) == ({FIRST: 50, SECOND: 22}, before)
    assert (world.condition.reason, world.said.state) == ("HasMembers", "Stable")


def test_a_simple_consumer_that_commits_is_left_alone(world: World) -> None:
    world.kafka.retention.may_read_log = False
    for day in range(40):
        world.kafka.commit_directly(GROUP, {FIRST: day, SECOND: 22 + day // 3})
        world.sleep(DAY)

    assert world.commits_made() == 0
    assert world.committed == {FIRST: 39, SECOND: 35}


def test_what_is_committed_between_look_and_commit_stands(world: World) -> None:
    leave_place(world, GroupType.SIMPLE)
    world.kafka.retention.between.append(lambda: world.kafka.commit_directly(GROUP, {FIRST: 12}))

    world.sleep(4 * DAY)

    assert world.committed == {FIRST: 12, SECOND: 22}


def test_who_joins_between_look_and_commit_is_not_disturbed(world: World) -> None:
    world.join_and_leave(PLACE)
    joined: list[FakeConsumer] = []
    world.kafka.retention.between.append(lambda: joined.append(world.consumer()))

    world.sleep(4 * DAY)

    assert joined
    assert (world.committed, world.told) == (PLACE, [])
    assert world.condition.reason == "HasMembers"


def test_offsets_with_a_pending_transaction_are_left_alone_and_not_missed(world: World) -> None:
    world.join_and_leave(PLACE)
    world.sleep(RETENTION / 2 - HOUR)
    with world.kafka.writer(GROUP, transaction_timeout_s=10**9).transaction() as transaction:
        transaction.send(GROUP, {FIRST: 70})
        world.sleep(2 * HOUR)
        assert (world.commits_made(), world.said.kept) == (1, 1)
        transaction.commit()
    world.sleep(60 * DAY)

    assert (world.committed, world.told) == ({FIRST: 70, SECOND: 22}, [])


@RIGHTS
@pytest.mark.parametrize("kind", KINDS)
def test_what_expired_while_nobody_looked_is_restored(world: World, kind: GroupType, may_read_log: bool) -> None:
    world.kafka.retention.may_read_log = may_read_log
    world.retention(guard=False)
    leave_place(world, kind)
    world.keep()
    world.sleep(8 * DAY, passes=False)
    assert world.committed == {}
    world.feature = world.fresh_feature()
    world.retention(guard=True)

    world.keep()

    assert (world.committed, world.told) == (PLACE, ["OffsetsRestored"])
    [message] = [h.message for h in world.kube.happenings_of("p")]
    assert "2 expired offset(s) of group payments were restored, as they were last seen at 2026-11-20T12:" in message
    assert world.metric("tidegate_offsets_restored_total") == 2
    world.sleep(60 * DAY)
    assert (world.committed, world.told) == (PLACE, ["OffsetsRestored"])


@pytest.mark.parametrize("restarted", [False, True])
def test_what_is_restored_long_after_it_was_missed_is_told_as_it_was_last_seen(
    world: World, *, restarted: bool
) -> None:
    """Looks at which it was not there any more have not seen it."""
    world.retention(guard=False)
    world.join_and_leave(PLACE)
    world.keep()
    world.sleep(RETENTION - 2 * HOUR)
    assert world.committed == PLACE
    last_seen = world.now()
    while world.committed:
        last_seen = world.now()
        world.sleep(HOUR)
    world.sleep(3 * DAY)
    if restarted:
        world.feature = world.fresh_feature()
    world.retention(guard=True)

    world.keep()

    assert world.committed == PLACE
    [message] = [h.message for h in world.kube.happenings_of("p") if h.reason == "OffsetsRestored"]
    assert message.endswith(f"as they were last seen at {last_seen:%Y-%m-%dT%H:%M:%SZ}")


def test_offsets_that_went_one_after_the_other_are_told_from_when_the_oldest_was_seen(world: World) -> None:
    world.retention(guard=False)
    world.kafka.commit_directly(GROUP, {FIRST: 11})
    world.keep()
    first_seen = world.now()
    world.sleep(8 * DAY, passes=False)
    world.keep()
    world.kafka.commit_directly(GROUP, {SECOND: 22})
    world.sleep(8 * DAY)
    world.retention(guard=True)

    world.keep()

    assert world.committed == PLACE
    [message] = [h.message for h in world.kube.happenings_of("p") if h.reason == "OffsetsRestored"]
    assert f"as they were last seen between {first_seen:%Y-%m-%dT%H:%M:%SZ} and 2026-12-05T" in message


@pytest.mark.parametrize("fails", ["commits", "put_config_map", "record"])
def test_what_was_restored_is_told_though_the_rest_of_the_pass_fails(
    world: World, fails: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.retention(guard=False)
    leave_place(world, GroupType.SIMPLE)
    world.sleep(8 * DAY)
    world.retention(guard=True)
    retention = world.kafka.retention
    commits = retention.commits

    def not_after_the_commit(group_id: str) -> Any:
        if world.commits_made():
            raise Unavailable("no answer")
        return commits(group_id)

    def away(*_: Any) -> None:
        raise KubeUnavailable("no answer")

    with monkeypatch.context() as failing:
        if fails == "commits":
            failing.setattr(retention, "commits", not_after_the_commit)
        else:
            failing.setattr(world.kube, fails, away)
        with pytest.raises((Unavailable, KubeUnavailable)):
            world.keep()
    assert world.committed == PLACE

    world.clock.sleep(2)
    world.keep()

    assert world.told.count("OffsetsRestored") == 1
    assert world.said.renewed_at is None
    assert world.metric("tidegate_offsets_restored_total") == 2
    world.sleep(DAY)
    assert world.told.count("OffsetsRestored") == 1


@RIGHTS
def test_what_was_restored_by_a_commit_without_an_answer_is_told_once_it_is_seen(
    world: World, may_read_log: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.kafka.retention.may_read_log = may_read_log
    world.retention(guard=False)
    leave_place(world, GroupType.SIMPLE)
    world.sleep(8 * DAY)
    world.retention(guard=True)
    commit = world.kafka.retention.commit

    def without_an_answer(*wanted: Any, **how: Any) -> None:
        commit(*wanted, **how)
        raise Unavailable("no answer")

    with monkeypatch.context() as silent:
        silent.setattr(world.kafka.retention, "commit", without_an_answer)
        with pytest.raises(Unavailable):
            world.keep()
    assert (world.committed, world.told.count("OffsetsRestored")) == (PLACE, 0)

    world.clock.sleep(2)
    world.keep()

    assert world.told.count("OffsetsRestored") == 1
    assert world.metric("tidegate_offsets_restored_total") == 2
    assert (world.condition.reason, world.said.kept, world.commits_made()) == ("Guarded", 2, 1)


REFUNDS = TopicPartition("refunds", 0)


def may_not_read_refunds(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """As brokers do it: offsets of the other topics are committed by the same request."""
    commit = world.kafka.retention.commit

    def partly(group_id: str, wanted: Any, found: Any, *, retention_ms: int) -> Any:
        done = commit(group_id, {p: wanted[p] for p in wanted if p != REFUNDS}, found, retention_ms=retention_ms)
        if REFUNDS in wanted:
            raise NotAuthorized("Read on topic refunds is missing")
        return done

    monkeypatch.setattr(world.kafka.retention, "commit", partly)


@pytest.mark.parametrize("which", ["due", "lost"])
def test_a_topic_that_may_not_be_read_holds_up_none_that_is_to_be_restored(
    world: World, which: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.kafka.create_topic("refunds", 1)
    world.kafka.fill("refunds", 100)
    may_not_read_refunds(world, monkeypatch)
    world.retention(guard=False)
    world.kafka.commit_directly(GROUP, PLACE if which == "due" else {**PLACE, REFUNDS: 5})
    world.sleep(5 * DAY)
    if which == "due":
        world.kafka.commit_directly(GROUP, {REFUNDS: 5})
    world.sleep(5 * DAY)
    assert world.committed == ({REFUNDS: 5} if which == "due" else {})
    world.retention(guard=True)

    world.keep()

    assert world.committed == {**PLACE, **({REFUNDS: 5} if which == "due" else {})}
    assert world.condition.reason == "GuardRefused"
    assert "Read on topic refunds is missing" in world.condition.message
    [message] = [h.message for h in world.kube.happenings_of("p") if h.reason == "OffsetsRestored"]
    assert message.startswith("2 expired offset(s)")
    assert world.metric("tidegate_offsets_restored_total") == 2


def test_what_was_renewed_is_said_though_the_next_look_fails(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    leave_place(world, GroupType.SIMPLE)
    world.sleep(RETENTION / 2 - HOUR)
    commits = world.kafka.retention.commits

    def not_after_the_commit(group_id: str) -> Any:
        if world.commits_made():
            raise Unavailable("no answer")
        return commits(group_id)

    with monkeypatch.context() as failing:
        failing.setattr(world.kafka.retention, "commits", not_after_the_commit)
        with pytest.raises(Unavailable):
            world.sleep(DAY)
    renewed_at = world.now().replace(microsecond=0)

    world.sleep(HOUR)

    assert (world.commits_made(), world.said.kept) == (1, 2)
    assert world.said.renewed_at == renewed_at


def test_an_offset_that_only_a_transaction_keeps_is_not_missed_before_it_goes(world: World) -> None:
    world.retention(guard=False)
    world.join_and_leave(PLACE)
    world.keep()
    with world.kafka.writer(GROUP, transaction_timeout_s=10**9).transaction() as transaction:
        transaction.send(GROUP, PLACE)
        world.sleep(8 * DAY)

        assert (world.committed, world.told) == (PLACE, [])
    world.sleep(HOUR)

    assert (world.committed, world.told) == ({}, ["OffsetsExpired"])


def test_metadata_is_kept_and_restored(world: World) -> None:
    theirs = {FIRST: Commit(11, "their own\x00"), SECOND: Commit(22, "")}
    world.kafka.retention.commit(GROUP, theirs, {}, retention_ms=1000)
    world.retention(guard=False)
    world.keep()
    world.sleep(DAY, passes=False)
    assert world.committed == {}
    world.retention(guard=True)

    world.sleep(30 * DAY)

    assert world.kafka.retention.commits(GROUP).offsets == theirs


def test_what_the_log_no_longer_reaches_is_restored_at_its_bound_and_said(world: World) -> None:
    leave_place(world, GroupType.SIMPLE)
    world.keep()
    world.sleep(8 * DAY, passes=False)
    world.kafka.delete_records(SECOND, 40)

    world.keep()

    assert world.committed == {FIRST: 11, SECOND: 40}
    [message] = [h.message for h in world.kube.happenings_of("p")]
    assert (
        "1 of them to another offset, because their logs no longer have the old one (orders-1: 22, now 40)" in message
    )


def test_a_topic_that_was_created_anew_gets_no_old_place(world: World) -> None:
    leave_place(world, GroupType.SIMPLE)
    world.keep()
    world.kafka.delete_topic("orders")
    world.sleep(8 * DAY, passes=False)
    world.kafka.create_topic("orders", 2)
    world.kafka.fill("orders", 100)

    world.sleep(DAY)

    assert (world.committed, world.told) == ({}, [])


def test_what_was_deleted_on_purpose_stays_deleted(world: World) -> None:
    world.join_and_leave(PLACE)
    world.sleep(5 * DAY)
    world.kafka.writer(GROUP, transaction_timeout_s=10).delete(GROUP, [FIRST])

    world.sleep(60 * DAY)

    assert (world.committed, world.told) == ({SECOND: 22}, [])


def test_a_group_that_has_moved_on_gets_nothing_back(world: World) -> None:
    leave_place(world, GroupType.SIMPLE)
    world.keep()
    world.sleep(8 * DAY, passes=False)
    consumer = world.consumer()
    world.kafka._member_commit(GROUP, consumer.member_id, consumer._generation, {FIRST: 90})
    world.keep()
    consumer.close()

    world.sleep(DAY)

    assert (world.committed, world.told) == ({FIRST: 90}, [])


def test_a_run_owns_the_offsets_until_it_ends_and_what_it_deletes_is_not_put_back(world: World) -> None:
    world.join_and_leave(PLACE)
    world.keep()
    world.resetting = True
    world.sleep(8 * DAY, passes=False)
    world.keep()
    assert world.committed == {}
    world.resetting = False

    world.sleep(DAY)

    assert (world.committed, world.commits_made()) == ({}, 0)


def test_what_a_run_deletes_is_not_put_back_by_the_next_process(world: World) -> None:
    """Of a group whose members are there when it is first looked at nobody knows how old its offsets are."""
    world.kafka.retention.may_read_log = False
    consumer = world.consumer(GroupType.CONSUMER)
    assert world.kafka._member_commit(GROUP, consumer.member_id, consumer._generation, PLACE)
    world.keep()
    consumer.close()
    world.resetting = True
    world.keep()
    world.kafka.writer(GROUP, transaction_timeout_s=10).delete(GROUP, [FIRST])
    world.resetting = False

    world.feature = world.fresh_feature()
    world.keep()

    assert (world.committed, world.told) == ({SECOND: 22}, [])


@pytest.mark.parametrize("is_said", [True, False], ids=["snapshot said", "died before that"])
def test_what_was_deleted_while_nothing_was_asked_for_stays_deleted(world: World, *, is_said: bool) -> None:
    leave_place(world, GroupType.SIMPLE)
    world.keep()
    if not is_said:
        # The snapshot is there, and the status does not tell of it: it was not written, or somebody has emptied it.
        world.status = PolicyStatus()
        world.feature = world.fresh_feature()
    del world.spec["retention"]
    world.kube.change(POLICIES, "ns", "p", spec=world.spec)
    world.keep()
    world.kafka.delete_group(GROUP)
    world.sleep(8 * DAY)

    world.retention()
    world.sleep(DAY)

    assert (world.committed, world.told) == ({}, [])


def test_what_was_deleted_while_the_connection_did_not_allow_the_group_stays_deleted(world: World) -> None:
    """As where another policy has the group, or it was taken out of a policy for many."""
    leave_place(world, GroupType.SIMPLE)
    world.keep()
    allowed = world.live
    world.live = replace(world.live, allow=AllowSpec(groups=("other",)))
    world.keep()
    assert world.condition.reason == "GroupNotAllowed"
    assert world.said.snapshot is None
    world.kafka.delete_group(GROUP)
    world.sleep(8 * DAY)

    world.live = allowed
    world.sleep(DAY)

    assert (world.committed, world.told) == ({}, [])


def test_what_is_deleted_while_an_operator_is_replaced_stays_deleted_though_nothing_had_moved_for_long(
    world: World,
) -> None:
    """The snapshot of a group that stays where it is must not go out of date: until when its offsets last moves on."""
    world.retention(guard=False)
    consumer = world.consumer()
    assert world.kafka._member_commit(GROUP, consumer.member_id, consumer._generation, PLACE)
    world.sleep(20 * DAY)
    assert world.committed == PLACE

    world.feature = world.fresh_feature()
    consumer.close()
    world.kafka.delete_group(GROUP)
    world.retention(guard=True)
    world.sleep(HOUR)

    assert (world.committed, world.told) == ({}, [])


def test_a_place_that_an_earlier_version_wrote_is_put_back(world: World) -> None:
    stored = sorted((Path(__file__).parents[2] / "data" / "earlier").glob("*/place.json"))
    assert stored
    for left in (json.loads(path.read_text()) for path in stored):
        world.feature = world.fresh_feature()
        world.kube.config_maps["ns", left["name"]] = left["data"]
        world.status = PolicyStatus.model_validate(left["status"])
        world.clock.sleep(100 * 86_400)

        world.keep()

        assert world.committed == PLACE
        assert world.told[-1] == "OffsetsRestored"
        world.kafka.writer(GROUP, transaction_timeout_s=10).delete(GROUP, [FIRST, SECOND])


@pytest.mark.parametrize("call", ["commit_with_retention", "put_config_map", "status"])
def test_a_process_that_dies_anywhere_loses_nothing(world: World, call: str, monkeypatch: pytest.MonkeyPatch) -> None:
    world.kafka.retention.may_read_log = False
    world.join_and_leave(PLACE)
    world.sleep(3 * DAY)
    deaths: list[str] = []

    def die(target: object, name: str) -> None:
        real = getattr(target, name)

        def once(*arguments: Any, **options: Any) -> Any:
            answer = real(*arguments, **options)
            if not deaths:
                deaths.append(name)
                raise Killed
            return answer

        monkeypatch.setattr(target, name, once)

    if call == "commit_with_retention":
        die(world.kafka.retention, "commit")
    elif call == "put_config_map":
        die(world.kube, "put_config_map")
    status = world.status
    for _ in range(30 * 4):
        world.clock.sleep(6 * 3600)
        world.kafka.retention.expire()
        try:
            world.keep()
            if call == "status" and not deaths and world.commits_made():
                deaths.append(call)
                world.status, world.feature = status, world.fresh_feature()
        except Killed:
            world.feature = world.fresh_feature()

    assert deaths
    assert (world.committed, world.told) == (PLACE, [])


@pytest.mark.parametrize("kind", KINDS)
def test_a_clock_that_was_ahead_makes_no_offset_younger(world: World, kind: GroupType) -> None:
    """Or it expires before it is committed again, and is taken for deleted on purpose."""
    world.kafka.retention.may_read_log = False
    consumer = world.consumer() if kind is GroupType.CLASSIC else None
    world.ahead = 30 * DAY
    world.keep()
    world.ahead = timedelta(0)
    if consumer is not None:
        consumer.close()
    leave_place(world, kind)

    world.sleep(20 * DAY)

    assert (world.committed, world.told) == (PLACE, [])


def test_a_log_that_was_read_while_the_clock_was_ahead_is_read_again(world: World) -> None:
    world.join_and_leave(PLACE, GroupType.CONSUMER)
    while not world.commits_made():
        world.sleep(HOUR)
    world.ahead = 60 * DAY
    world.keep()
    world.ahead = timedelta(0)
    world.kafka.writer(GROUP, transaction_timeout_s=10).alter(GROUP, PLACE)

    world.sleep(DAY, look_every=HOUR)

    assert (world.said.kept, world.said.exact) == (0, True)


def test_what_was_renewed_is_said_also_where_somebody_joins_before_the_rest_is_restored(world: World) -> None:
    world.retention(guard=False)
    leave_place(world, GroupType.SIMPLE)
    world.sleep(8 * DAY)
    assert (world.committed, world.condition.reason) == ({}, "OffsetsExpired")
    world.kafka.commit_directly(GROUP, {FIRST: 40})
    world.keep()
    world.sleep(4 * DAY)
    world.retention(guard=True)

    def somebody_joins() -> None:
        world.consumer()

    world.kafka.retention.between.extend([lambda: None, somebody_joins])

    world.keep()

    assert world.commits_made() == 2
    assert world.committed == {FIRST: 40}
    assert world.said.renewed_at is not None


def test_a_snapshot_that_may_not_be_written_is_said_and_holds_up_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def put_config_map(*_: Any) -> None:
        raise KubeFailure("write ConfigMap ns/p-place: 403 exceeded quota: configmaps")

    monkeypatch.setattr(world.kube, "put_config_map", put_config_map)
    world.join_and_leave(PLACE)

    world.sleep(4 * DAY)

    assert (world.said.kept, world.said.snapshot) == (2, None)
    assert "exceeded quota" in world.condition.message


def test_names_that_no_topic_can_have_end_no_look(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """What somebody has written into the snapshot is asked for together with what others ask for."""
    leave_place(world, GroupType.SIMPLE)
    world.keep()
    topics = world.kafka.topics
    monkeypatch.setattr(world.kafka, "topics", lambda names: topics([name.encode().decode() for name in names]))
    for data in world.kube.config_maps.values():
        document = json.loads(data["offsets.json"])
        document["offsets"].append({**document["offsets"][0], "topic": "\ud800"})
        data["offsets.json"] = json.dumps(document)
    world.feature = world.fresh_feature()

    world.keep()

    assert (world.said.offsets, world.condition.reason) == (2, "Guarded")


def test_missing_rights_are_said_once_with_what_mends_them(world: World) -> None:
    world.join_and_leave(PLACE)
    world.sleep(3 * DAY)
    for _ in range(100):
        world.kafka.fail("commit_with_retention", NotAuthorized("keep 2 offset(s): the group may not be used"))

    world.sleep(DAY)

    assert world.told == ["GuardRefused"]
    assert (world.condition.status, world.condition.reason, world.said.guarded) == ("False", "GuardRefused", False)
    assert "Read on group payments" in world.condition.message


def test_brokers_whose_settings_may_not_be_read_are_taken_to_keep_a_day(world: World) -> None:
    world.kafka.retention.may_read_settings = False
    world.join_and_leave(PLACE)

    world.sleep(11 * HOUR)
    assert world.said.kept == 0
    world.sleep(2 * HOUR)

    assert (world.said.kept, world.committed) == (2, PLACE)
    expires_at = world.said.expires_at
    assert expires_at is not None
    assert timedelta(days=69) < expires_at - world.clock.now() < timedelta(days=70)


def test_offsets_of_a_topic_that_is_no_longer_subscribed_are_announced_and_let_go(world: World) -> None:
    world.kafka.create_topic("refunds", 1)
    world.kafka.commit_directly(GROUP, {TopicPartition("refunds", 0): 5})
    world.consumer()

    world.keep()
    assert world.said.expires_at is not None
    assert world.said.expires_at - world.clock.now() <= RETENTION
    assert (world.said.exact, world.condition.reason) == (True, "HasMembers")
    world.sleep(6 * DAY + HOUR)

    assert world.told == ["ExpiresSoon"]
    assert world.commits_made() == 0


def test_topics_that_the_policy_or_the_connection_leaves_out_are_not_kept(world: World) -> None:
    for name in ("refunds", "secret"):
        world.kafka.create_topic(name, 1)
    refunds, secret = TopicPartition("refunds", 0), TopicPartition("secret", 0)
    world.kafka.commit_directly(GROUP, {FIRST: 1, refunds: 2, secret: 3})
    world.spec["topics"] = ["ord*", "secret"]
    world.kube.change(POLICIES, "ns", "p", spec=world.spec)
    world.live = replace(world.live, allow=AllowSpec(topics=("orders", "refunds")))

    world.sleep(20 * DAY)

    assert world.committed == {FIRST: 1}
    assert world.said.offsets == 1


def test_what_is_left_is_counted_down_while_the_cluster_cannot_be_looked_at(world: World) -> None:
    world.retention(guard=False)
    world.join_and_leave(PLACE)
    world.keep()
    assert left(world) == pytest.approx(RETENTION.total_seconds(), abs=5)

    world.sleep(3 * DAY, passes=False)
    assert left(world) == pytest.approx((RETENTION - 3 * DAY).total_seconds(), abs=5)
    world.sleep(10 * DAY, passes=False)
    assert left(world) == 0


@pytest.mark.parametrize("kind", KINDS)
def test_no_end_is_told_to_prometheus_of_what_is_committed_again_before(world: World, kind: GroupType) -> None:
    """As for brokers that are taken to keep a day: each end is so near that an alert would be raised for ever."""
    world.kafka.retention.may_read_settings = world.kafka.retention.may_read_log = False
    leave_place(world, kind)
    world.keep()
    for _ in range(72):
        world.sleep(HOUR)
        assert left(world) is None
    assert (world.committed, world.condition.reason) == (PLACE, "Guarded")

    world.sleep(18 * HOUR, passes=False)
    overdue = left(world)
    assert overdue is not None, "nobody has committed them when that was due"
    assert 0 < overdue < DAY.total_seconds() / 2
    world.sleep(HOUR)
    assert left(world) is None


def test_an_end_is_told_to_prometheus_where_the_brokers_refuse_to_keep_offsets(world: World) -> None:
    world.kafka.retention.may_read_settings = world.kafka.retention.may_read_log = False
    world.join_and_leave(PLACE)
    world.sleep(2 * HOUR)
    assert left(world) is None

    for _ in range(100):
        world.kafka.fail("commit_with_retention", NotAuthorized("keep 2 offset(s): the group may not be used"))
    world.sleep(12 * HOUR)

    assert world.condition.reason == "GuardRefused"
    assert left(world) == pytest.approx(10 * HOUR.total_seconds(), abs=3600)


def left(world: World) -> float | None:
    return world.metric("tidegate_offsets_expire_seconds", resource_namespace="ns", policy="p")


def test_a_group_that_cannot_be_looked_at_any_more_has_no_series(world: World) -> None:
    """Its policy is gone, or asks for nothing, or may not; its connection is gone. Members keep their offsets."""
    uid = world.kube.get(POLICIES, "ns", "p")["metadata"]["uid"]

    def policy_asks_for_nothing() -> None:
        del world.spec["retention"]
        world.kube.change(POLICIES, "ns", "p", spec=world.spec)
        world.keep()

    def group_is_not_allowed() -> None:
        world.retention()
        world.live = replace(world.live, allow=AllowSpec(groups=("other",)))
        world.keep()
        world.live = replace(world.live, allow=AllowSpec())

    def somebody_joined() -> None:
        world.consumer()
        world.keep()

    ends: list[Callable[[], object]] = [
        lambda: world.run(world.feature.forget(uid)),
        lambda: world.run(world.feature.disconnected(uid)),
        group_is_not_allowed,
        policy_asks_for_nothing,
        somebody_joined,
    ]
    world.join_and_leave(PLACE)
    world.sleep(4 * DAY)
    for end in ends:
        world.retention(guard=False)
        world.keep()
        assert left(world) is not None
        assert world.metric("tidegate_guarded_groups") == 1

        end()

        assert left(world) is None
        if end is not somebody_joined:
            assert world.metric("tidegate_guarded_groups") == 0


def test_what_was_stored_of_a_topic_that_is_not_allowed_is_not_put_back(world: World) -> None:
    """The snapshot is a ConfigMap: it may be older than the connection's limits, or somebody else's work."""
    world.retention(guard=False)
    leave_place(world, GroupType.SIMPLE)
    world.keep()
    world.sleep(8 * DAY, passes=False)
    world.feature = world.fresh_feature()
    world.retention(guard=True)
    world.live = replace(world.live, allow=AllowSpec(topics=("refunds",)))

    world.keep()

    assert world.committed == {}
    assert world.told == []


def test_a_group_that_the_connection_does_not_allow_is_not_looked_at(world: World) -> None:
    leave_place(world, GroupType.SIMPLE)
    world.live = replace(world.live, allow=AllowSpec(groups=("other",)))

    world.sleep(8 * DAY)

    assert (world.condition.status, world.condition.reason) == ("False", "GroupNotAllowed")
    assert "commits" not in world.kafka.calls


def test_an_age_that_nobody_knows_is_said_with_what_would_tell_it(world: World) -> None:
    world.kafka.retention.may_read_log = False
    world.retention(guard=False)
    leave_place(world, GroupType.SIMPLE)

    world.keep()

    assert (world.condition.status, world.condition.reason) == ("Unknown", "ExpiryUnknown")
    assert "Allow Read on __consumer_offsets, or set retention.guard" in world.condition.message
    assert (world.said.expires_at, world.said.exact) == (None, False)


def test_a_group_without_offsets_has_nothing_to_keep(world: World) -> None:
    world.keep()

    assert (world.condition.status, world.condition.reason) == ("Unknown", "NoOffsets")
    assert world.said.offsets == 0


def test_of_a_group_whose_members_cannot_be_known_nothing_is_kept(world: World) -> None:
    world.kafka.commit_directly(GROUP, PLACE)
    world.kafka.set_group(GROUP, GroupType.STREAMS)

    world.sleep(5 * DAY)

    assert (world.condition.status, world.condition.reason) == ("Unknown", "StateUnknown")
    assert world.commits_made() == 0


def test_a_policy_without_retention_is_not_looked_at_and_says_nothing(world: World) -> None:
    leave_place(world, GroupType.SIMPLE)
    world.keep()
    del world.spec["retention"]
    world.kube.change(POLICIES, "ns", "p", spec=world.spec)
    world.kafka.calls.clear()

    world.keep()

    assert (world.status.retention, world.status.conditions, world.kafka.calls) == (None, (), [])


def test_the_snapshot_is_written_rarely_while_a_group_makes_progress(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    writes: list[datetime] = []
    put = world.kube.put_config_map

    def noted(*arguments: Any) -> None:
        writes.append(world.clock.now())
        put(*arguments)

    monkeypatch.setattr(world.kube, "put_config_map", noted)
    consumer = world.consumer()
    for minute in range(30):
        world.kafka._member_commit(GROUP, consumer.member_id, consumer._generation, {FIRST: minute})
        world.clock.sleep(60)
        world.keep()
    assert 5 <= len(writes) <= 7
    consumer.close()
    world.keep()
    assert writes[-1] == world.clock.now()
    before = len(writes)

    world.sleep(HOUR, look_every=timedelta(minutes=1))

    assert len(writes) == before


def test_a_log_that_cannot_be_read_is_no_reason_not_to_keep_offsets(world: World) -> None:
    for _ in range(10_000):
        world.kafka.fail("log", Unavailable("the leader is away"))
    world.join_and_leave(PLACE)

    world.sleep(30 * DAY)

    assert world.committed == PLACE


def test_through_a_connection_that_only_observes_offsets_are_not_kept_and_their_end_is_announced(world: World) -> None:
    world.retention(warnBefore="48h")
    world.join_and_leave(PLACE)
    world.live = replace(world.live, kafka=ReadOnlyKafka(world.kafka, "kafka"), observes=True)

    world.sleep(timedelta(days=8))

    assert world.commits_made() == 0
    assert world.committed == {}
    assert "ExpiresSoon" in world.told
    assert "OffsetsExpired" in world.told
    assert not world.said.guarded
    assert "set retention.guard" not in world.condition.message
    assert "The operator restores them once KafkaConnection kafka no longer only observes" in world.condition.message


def test_a_snapshot_of_a_newer_version_is_neither_used_nor_written_over(world: World) -> None:
    world.join_and_leave(PLACE)
    world.keep()
    [key] = world.kube.config_maps
    snapshot = json.loads(world.kube.config_maps[key]["offsets.json"])
    world.kube.config_maps[key]["offsets.json"] = json.dumps({**snapshot, "version": 2})
    before = dict(world.kube.config_maps[key])
    world.feature = world.fresh_feature()

    for _ in range(2):
        with pytest.raises(NewerMemory, match="of version 2, and this version of Tidegate knows versions up to 1"):
            world.keep()

    assert world.kube.config_maps[key] == before
    assert world.committed == PLACE


def test_through_a_frozen_connection_offsets_are_restored_once_it_is_thawed(world: World) -> None:
    world.retention(warnBefore="48h")
    world.join_and_leave(PLACE)
    world.live = replace(world.live, frozen="frozen by alice: INC-4711")

    world.sleep(timedelta(days=8))

    assert world.commits_made() == 0
    assert world.committed == {}
    assert "The operator restores them once KafkaConnection kafka is no longer frozen" in world.condition.message

    world.live = replace(world.live, frozen="")
    world.sleep(timedelta(hours=1))
    assert world.committed == PLACE


@RIGHTS
@pytest.mark.parametrize("restart", [False, True])
def test_in_a_cluster_that_the_policy_moves_to_nothing_is_known_of_its_offsets_yet(
    world: World, *, restart: bool, may_read_log: bool
) -> None:
    """They are those of the cluster before, as a copy has them, and were committed longer ago than the last look there:
    that says nothing of when they end."""
    world.retention(guard=True)
    here, copy = world.kafka, FakeKafka(world.clock)
    copy.create_topic("older", 1)
    copy.create_topic("orders", 2)
    copy.fill("orders", 100)
    world.kafka = copy
    leave_place(world, GroupType.CONSUMER)
    world.clock.sleep((RETENTION - HOUR).total_seconds())
    world.kafka = here
    leave_place(world, GroupType.CONSUMER)
    here.retention.may_read_log = copy.retention.may_read_log = may_read_log
    world.keep()
    world.kafka, world.live = copy, replace(live_of(copy, "connection"), cluster_id="copy")
    if restart:
        world.loop.close()
        world.feature = world.fresh_feature()
    else:
        world.run(world._connect(world.observer))

    world.sleep(3 * HOUR, look_every=timedelta(minutes=5))

    assert world.committed == PLACE
    assert (world.said.kept, world.said.exact, world.told) == (2, may_read_log, [])


class Hidden:
    """A broker that does not show the topic for a moment: it lags behind, or may not tell of it."""

    def __init__(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        self._world, self._monkeypatch = world, monkeypatch

    def look(self) -> None:
        with self._monkeypatch.context() as hidden:
            hidden.setattr(self._world.kafka, "topics", lambda _names: {})
            self._world.keep()


@pytest.fixture
def hidden(world: World, monkeypatch: pytest.MonkeyPatch) -> Hidden:
    return Hidden(world, monkeypatch)


def test_a_topic_that_a_look_does_not_show_makes_no_offset_of_it_younger(world: World, hidden: Hidden) -> None:
    """Or its end is not announced, and it is taken for deleted on purpose once it has expired."""
    world.kafka.retention.may_read_log = False
    world.retention(guard=False, warnBefore="24h")
    world.keep()
    world.kafka.commit_directly(GROUP, PLACE)
    world.keep()
    world.sleep(4 * DAY)
    hidden.look()
    world.sleep(4 * DAY)
    assert (world.committed, world.told) == ({}, ["ExpiresSoon", "OffsetsExpired"])

    world.retention(guard=True)
    world.keep()

    assert world.committed == PLACE


def test_expired_offsets_are_not_forgotten_because_a_look_does_not_show_their_topic(
    world: World, hidden: Hidden
) -> None:
    world.retention(guard=False)
    leave_place(world, GroupType.CLASSIC)
    world.sleep(8 * DAY)
    assert (world.committed, world.condition.reason) == ({}, "OffsetsExpired")
    world.retention(guard=True)
    hidden.look()
    world.feature = world.fresh_feature()
    world.keep()

    assert world.committed == PLACE


def test_offsets_of_a_topic_that_stays_away_are_forgotten(world: World) -> None:
    world.retention(guard=False)
    leave_place(world, GroupType.CLASSIC)
    world.sleep(8 * DAY)
    world.kafka.delete_topic("orders")
    world.sleep(3 * HOUR)
    world.kafka.create_topic("orders", 2)
    world.retention(guard=True)
    world.sleep(HOUR)

    assert world.committed == {}
    assert world.condition.reason == "NoOffsets"


class Leaderless:
    """A call that asks the leaders of partitions, of which some have none."""

    def __init__(self, call: Callable[..., Any], without: frozenset[TopicPartition]) -> None:
        self._call, self._without = call, without

    def __call__(self, partitions: Any, *, as_told: bool = False) -> Any:
        if as_told:
            return self._call([p for p in partitions if p not in self._without], as_told=True)
        if any(p in self._without for p in partitions):
            raise Unavailable("read the start of the logs: LEADER_NOT_AVAILABLE")
        return self._call(partitions)


def test_an_offset_whose_log_cannot_be_read_does_not_hold_up_the_others(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as of a partition without a leader: it is restored once it has one."""
    world.retention(guard=False)
    leave_place(world, GroupType.CLASSIC)
    world.sleep(8 * DAY)
    world.retention(guard=True)
    bounds = world.kafka.log_bounds

    def log_bounds(partitions: Any) -> Any:
        if SECOND in partitions:
            raise Unavailable("read the start of the logs: orders-1: LEADER_NOT_AVAILABLE")
        return bounds(partitions)

    with monkeypatch.context() as leaderless:
        leaderless.setattr(world.kafka, "log_bounds", log_bounds)
        world.keep()
        assert world.committed == {FIRST: 11}
        assert world.condition.reason == "OffsetsExpired"
        assert "1 offset(s) of group payments are gone" in world.condition.message
    world.keep()

    assert world.committed == PLACE
    assert world.condition.reason == "Guarded"


def test_offsets_without_a_leader_do_not_hold_up_the_others_however_many_they_are(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where a broker is down and its topics have no other replica."""
    world.kafka.create_topic("audits", 40)
    world.kafka.fill("audits", 100)
    theirs = {TopicPartition("audits", n): 5 for n in range(40)}
    world.retention(guard=False)
    world.kafka.commit_directly(GROUP, {**PLACE, **theirs})
    world.keep()
    world.sleep(8 * DAY, passes=False)
    world.retention(guard=True)
    with monkeypatch.context() as away:
        for call in ("log_bounds", "last_stable_offsets"):
            away.setattr(world.kafka, call, Leaderless(getattr(world.kafka, call), frozenset(theirs)))
        for _ in range(3):
            world.keep()
        assert world.committed == PLACE
        assert "40 offset(s) of group payments are gone" in world.condition.message

    world.keep()

    assert world.committed == {**PLACE, **theirs}


def test_a_topic_that_is_created_anew_while_its_logs_are_asked_gets_no_old_place(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    leave_place(world, GroupType.SIMPLE)
    world.keep()
    world.sleep(8 * DAY, passes=False)
    bounds = world.kafka.log_bounds

    def log_bounds(partitions: Any) -> Any:
        world.kafka.delete_topic("orders")
        world.kafka.create_topic("orders", 2)
        world.kafka.fill("orders", 20)
        return bounds(partitions)

    with monkeypatch.context() as made_anew:
        made_anew.setattr(world.kafka, "log_bounds", log_bounds)
        world.keep()
    world.sleep(DAY)

    assert world.committed == {}
    assert "OffsetsRestored" not in world.told
    assert world.condition.reason == "NoOffsets"
