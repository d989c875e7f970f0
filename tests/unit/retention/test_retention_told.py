"""What a policy says of offsets that are kept, or expire."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from support.retention_world import (
    DAY,
    FIRST,
    GROUP,
    HOUR,
    KINDS,
    PLACE,
    RETENTION,
    SECOND,
    World,
    leave_place,
    left,
)
from tidegate.connection.read_only import ReadOnlyKafka
from tidegate.kafka.errors import NotAuthorized, Unavailable
from tidegate.kafka.model import GroupType, TopicPartition
from tidegate.kube.ports import POLICIES
from tidegate.resources.connection import AllowSpec


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


def test_what_was_committed_again_is_told_as_the_log_has_it_in_the_same_pass(world: World) -> None:
    world.join_and_leave(PLACE)
    while not world.commits_made():
        world.sleep(HOUR)

    assert (world.said.kept, world.said.exact, world.commits_made()) == (2, True, 1)
    assert world.said.expires_at is not None
    assert world.said.expires_at - world.clock.now() > 69 * DAY


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


def test_a_policy_without_retention_is_not_looked_at_and_says_nothing(world: World) -> None:
    leave_place(world, GroupType.SIMPLE)
    world.keep()
    del world.spec["retention"]
    world.kube.change(POLICIES, "ns", "p", spec=world.spec)
    world.kafka.calls.clear()

    world.keep()

    assert (world.status.retention, world.status.conditions, world.kafka.calls) == (None, (), [])


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
