"""Offsets that expired while nobody looked are restored, and those that were deleted on purpose are not."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from support.killed import Killed
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
from tidegate.kafka.errors import NotAuthorized, Unavailable
from tidegate.kafka.model import GroupType, TopicPartition
from tidegate.kafka.offset_retention import Commit
from tidegate.kube.ports import POLICIES, KubeFailure, KubeUnavailable
from tidegate.policy.memory import NewerMemory
from tidegate.resources.connection import AllowSpec
from tidegate.resources.policy import PolicyStatus


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
