"""What happens while a mirror fails over: what is found, written or taken back between two looks."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from support.mirror.passes import World, failed_back, failed_over, lacking
from support.mirror.written import Written, batch
from tidegate.clock import SystemClock
from tidegate.kafka.errors import NotAuthorized, Unavailable
from tidegate.kafka.model import LogBounds, TopicPartition
from tidegate.mirror.ports import UNDECIDED, GroupOffset, GroupOffsets
from tidegate.offset_mirror import copying as copying_module

P0 = TopicPartition("t", 0)


@pytest.fixture
def world() -> Iterator[World]:
    world = World()
    world.spec["topics"] = {"include": ["t", "u"]}
    world.spec["groups"] = {"include": ["*"], "interval": "1s"}
    world.one_pass()
    world.there._numbers = itertools.count(1000)
    world.copied()
    yield world
    world.close()


# --- a failover that is taken back ------------------------------------------------------------------------------------


def test_groups_are_carried_over_as_before_once_a_failover_is_taken_back(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A group that the principal may not describe any more holds up a failover, and nothing else."""
    monkeypatch.setattr(copying_module, "_CARRIED_AGAIN_AT_THE_END_S", 0.05)
    world.here.offsets = {"g": {P0: GroupOffset(7)}, "left": {P0: GroupOffset(3)}}
    world.passes(lambda: {"g", "left"} <= world.there.offsets.keys())
    del world.here.offsets["left"]
    committed = world.here.committed

    def denied(group_ids: Collection[str]) -> Mapping[str, GroupOffsets]:
        if "left" in group_ids:
            raise NotAuthorized("allow the principal Describe on group left")
        return committed(group_ids)

    monkeypatch.setattr(world.here, "committed", denied)
    world.spec["failover"] = {}
    world.one_pass()
    world.passes(lambda: "Describe on group left" in world.condition("Ready").message)
    del world.spec["failover"]
    world.here.offsets["g"] = {P0: GroupOffset(9)}
    world.one_pass()
    world.passes(lambda: world.there.offsets.get("g") == {P0: GroupOffset(9)})
    world.copied()


def test_a_failover_that_is_asked_for_again_carries_the_groups_over_once_more(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It does not go by what was so when it was asked for the first time."""
    monkeypatch.setattr(copying_module, "_CARRIED_AGAIN_AT_THE_END_S", 0.05)
    world.spec["groups"] = {"include": ["*"], "interval": "1h"}
    world.here.offsets = {"g": {P0: GroupOffset(7)}}
    world.one_pass()
    world.passes(lambda: "g" in world.there.offsets)
    lacking(world, 5)
    [copying] = world.copying
    first = copying.groups
    world.spec["failover"] = {}
    world.one_pass()
    world.passes(lambda: copying.groups is not first)
    del world.spec["failover"]
    world.one_pass()

    world.here.offsets["g"] = {P0: GroupOffset(UNDECIDED)}
    lacking(world, 0)
    world.spec["failover"] = {}
    says = "1 group(s) could not be carried over: an open transaction has yet to decide what group g commits for t-0"
    world.one_pass()
    world.passes(lambda: says in world.condition("Ready").message)
    assert world.copying == [copying]


def test_a_failover_does_not_wait_an_interval_for_a_cluster_that_was_away_for_a_moment(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(copying_module, "_CARRIED_AGAIN_AT_THE_END_S", 0.05)
    world.spec["groups"] = {"include": ["*"], "interval": "1h"}
    world.here.offsets = {"g": {P0: GroupOffset(7)}}
    world.one_pass()
    world.passes(lambda: "g" in world.there.offsets)

    def away() -> frozenset[str]:
        raise Unavailable("list the groups: nobody answers")

    monkeypatch.setattr(world.here, "group_ids", away)
    world.spec["failover"] = {}
    world.one_pass()
    world.passes(lambda: "list the groups: nobody answers" in world.condition("Ready").message)
    monkeypatch.undo()
    monkeypatch.setattr(copying_module, "_CARRIED_AGAIN_AT_THE_END_S", 0.05)

    assert failed_over(world).not_copied == 0


# --- what is found in the meantime ------------------------------------------------------------------------------------


def test_a_difference_that_is_found_while_the_source_is_asked_keeps_a_failover_from_ending(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    del world.spec["groups"]
    world.one_pass()
    world.copied()
    [copying] = world.copying
    log = world.there.log("t").log
    written = batch(3, {0: Written(1, b"foreign", b"somebody else's")}, 1)
    [at] = [at for at, one in enumerate(log) if one.base == 3]
    assert log[at].until == 4
    log[at] = replace(log[at], data=written)
    monkeypatch.setattr(copying.comparing, "choose", lambda _: (P0, 0))
    cluster, asked = type(world.here), list[bool]()

    def asking(partitions: Collection[TopicPartition], *, stable: bool = True) -> Mapping[TopicPartition, LogBounds]:
        if not stable and not asked:
            asked.append(True)
            asyncio.run_coroutine_threadsafe(copying._compare_one(), world.loop).result(20)
        return cluster.bounds(world.here, partitions, stable=stable)

    world.here.bounds = asking  # type: ignore[method-assign]
    world.spec["failover"] = {}
    world.one_pass()
    world.passes(lambda: world.condition("Ready").reason in ("CopiesDrifted", "FailedOver"))

    assert asked
    assert world.condition("Ready").reason == "CopiesDrifted"
    assert world.status.failover is None


# --- what is said meanwhile -------------------------------------------------------------------------------------------


def test_a_failover_that_waits_says_so_once(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not each time that it could be in sync but for that."""
    times = itertools.count()
    began = datetime.now(UTC)
    monkeypatch.setattr(SystemClock, "now", lambda _: began + timedelta(seconds=next(times)))
    lacking(world, 5)
    world.spec["failover"] = {}
    assert world.one_pass().reason == "FailoverDraining"
    happenings, since = world.kube.happenings_of("m"), world.condition("Ready").last_transition_time
    reconciling = world.condition("Reconciling").last_transition_time
    for _ in range(5):
        assert world.one_pass().reason == "FailoverDraining"

    assert world.kube.happenings_of("m") == happenings
    assert world.condition("Ready").last_transition_time == since
    assert world.condition("Reconciling").last_transition_time == reconciling


# --- what is not known ------------------------------------------------------------------------------------------------


def test_a_topic_that_was_never_begun_and_is_hidden_now_is_not_taken_for_nothing(world: World) -> None:
    world.here.create_topic("u", 1, {})
    world.here.write("u", 4)
    world.there.create_topic("u", 1, {"retention.ms": "5"})
    world.there.write("u", 1)
    world.passes(lambda: world.condition("Drifted").status == "True")
    world.here.hidden = {"u"}
    found = failed_over(world, acceptLoss=True)

    assert [(topic.name, topic.lacks) for topic in found.topics] == [("t", (0, 0)), ("u", None)]
    assert found.not_copied is None


# --- back -------------------------------------------------------------------------------------------------------------


def test_what_a_group_had_for_a_topic_that_is_seen_later_is_overwritten_as_well(world: World) -> None:
    """As all that is from before the failover. Meanwhile the group is carried over for another topic."""
    other = TopicPartition("u", 0)
    world.here.create_topic("u", 1, {})
    world.here.write("u", 10)
    world.here.offsets["g"] = {P0: GroupOffset(7), other: GroupOffset(7)}
    world.passes(lambda: world.there.offsets.get("g") == world.here.offsets["g"])
    world.copied()
    failed_over(world)
    world.there.offsets["g"] = {P0: GroupOffset(9), other: GroupOffset(9)}
    failed_back(world)
    world.spec["topics"] = {"include": ["t", "u"]}
    world.here.headless = {P0}
    world.one_pass()
    world.passes(lambda: world.here.offsets["g"][other] == GroupOffset(9))
    assert world.here.offsets["g"][P0] == GroupOffset(7)

    world.here.headless = set()
    world.passes(lambda: world.here.offsets["g"] == world.there.offsets["g"])
    world.copied()
