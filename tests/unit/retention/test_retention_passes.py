"""Passes of the feature over a group in memory: what is kept, restored, left alone and told, and processes that die."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta

import pytest

from support.fake_consumer import FakeConsumer
from support.fake_kafka import FakeKafka
from support.live import live_of
from support.retention_world import (
    DAY,
    FIRST,
    GROUP,
    HOUR,
    KINDS,
    PLACE,
    RETENTION,
    RIGHTS,
    SECOND,
    Hidden,
    World,
    leave_place,
)
from tidegate.kafka.errors import Unavailable
from tidegate.kafka.model import GroupType, TopicPartition
from tidegate.kube.ports import POLICIES
from tidegate.resources.connection import AllowSpec


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


def test_a_group_that_the_connection_does_not_allow_is_not_looked_at(world: World) -> None:
    leave_place(world, GroupType.SIMPLE)
    world.live = replace(world.live, allow=AllowSpec(groups=("other",)))

    world.sleep(8 * DAY)

    assert (world.condition.status, world.condition.reason) == ("False", "GroupNotAllowed")
    assert "commits" not in world.kafka.calls


def test_of_a_group_whose_members_cannot_be_known_nothing_is_kept(world: World) -> None:
    world.kafka.commit_directly(GROUP, PLACE)
    world.kafka.set_group(GROUP, GroupType.STREAMS)

    world.sleep(5 * DAY)

    assert (world.condition.status, world.condition.reason) == ("Unknown", "StateUnknown")
    assert world.commits_made() == 0


def test_a_log_that_cannot_be_read_is_no_reason_not_to_keep_offsets(world: World) -> None:
    for _ in range(10_000):
        world.kafka.fail("log", Unavailable("the leader is away"))
    world.join_and_leave(PLACE)

    world.sleep(30 * DAY)

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
