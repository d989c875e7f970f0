"""Owners that were assigned a new partition before its start was committed are sent back to it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest

from support.discovery_world import (
    GROUP,
    RULE,
    WITHIN_S,
    Operator,
    World,
    eventually,
    new,
    seen_by_others,
)
from support.fake_kafka import START
from tidegate.discovery import watch
from tidegate.discovery.backfill import Backfills
from tidegate.kafka.errors import NotAuthorized, Refused, Unavailable
from tidegate.kafka.model import TopicPartition
from tidegate.reset.model.result import RunResult
from tidegate.threads import in_thread


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
        operator.opened_anew()
        operator.run(asyncio.sleep(0.1))  # ten looks
        let_go.set()
        operator.settled("orders", 3)
        status = operator.run(operator.keep())

    assert (status.began_at_end, status.backfilled) == (1, 1)
    assert world.kafka.committed(GROUP) == {partition: 5}


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
