"""Holds that were left behind are found, told and released; whatever fails or dies, nothing else is."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from support import pause_world
from support.fake_consumer import FakeConsumer
from support.fake_kafka import START
from support.killed import Killed
from support.observed import observe
from support.pause_world import CREATED, SPEC
from support.reset_world import World
from support.sweeping import Sweeping
from tidegate.connection.live import Live
from tidegate.control.records import Hold, HoldKey
from tidegate.discovery.backfill import Asker, Backfills
from tidegate.kafka.errors import NotAuthorized, Unavailable
from tidegate.kafka.model import TopicPartition
from tidegate.kube.ports import CONNECTIONS, PAUSES, RESETS, Conflict, KubeFailure, KubeUnavailable, Object
from tidegate.pause.holds import holder

NEW = TopicPartition("orders", 1)


@pytest.fixture
def pauses() -> Iterator[pause_world.World]:
    made = pause_world.World()
    yield made
    made.close()


@pytest.fixture
def resets(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    made.kafka.control.ensure()
    yield made
    made.executor.shutdown()
    made.kafka.close()


def sweeping(world: pause_world.World | World) -> Sweeping:
    return Sweeping(world.kube, world.live, world.kafka, world.executor)


def held(world: pause_world.World | World) -> list[str]:
    return sorted(key.holder for key in world.kafka.control.topics.gates.holds)


def hold(world: pause_world.World | World, of: str, partition: int = 0, *, ours: bool = True) -> None:
    [live] = world.live
    world.kafka.control.ensure()
    key = HoldKey("payments", "orders", partition, of)
    world.kafka.control.hold({key: Hold("why", connection=live.uid if ours else "elsewhere")})


def test_an_offset_reset_under_way_keeps_its_holds_until_it_is_over(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.kafka.control.ensure()
    world.ask()
    world.kube.dies_in = 4
    with pytest.raises(Killed):
        world.passes()
    uid = world.kube.get(RESETS, "ns", "p")["metadata"]["uid"]
    hold(world, f"reset/{uid}/p")
    looks = sweeping(world)

    looks.looks()
    assert held(world) == [f"reset/{uid}/p"]

    world.restart()
    world.passes()
    assert world.reset["phase"] == "Succeeded"
    looks.looks()
    assert held(world) == []
    world.executor.shutdown()
    world.kafka.close()


# --- pauses -----------------------------------------------------------------------------------------------------------


def test_only_holds_of_own_pauses_that_are_gone_are_swept(pauses: pause_world.World) -> None:
    pauses.ask()
    pauses.passes()
    mine = held(pauses)
    others = ["cli", "reset/x", holder("elsewhere", "gone")]
    for name in others:
        hold(pauses, name, ours=False)
    hold(pauses, holder(pauses.connection_uid, "gone"))
    swept = sweeping(pauses)

    swept.looks()

    assert held(pauses) == sorted([*mine, *others])
    assert swept.swept("pause") == 1


def test_a_pause_that_goes_through_another_connection_by_now_lets_go_of_the_first_cluster(
    pauses: pause_world.World,
) -> None:
    pauses.ask()
    pauses.passes()
    assert len(held(pauses)) == 2
    pauses.kube.change(PAUSES, "ns", "p", spec={**SPEC, "connectionRef": {"name": "elsewhere"}})
    sweeping(pauses).looks()
    assert held(pauses) == []


def test_while_all_pauses_that_hold_something_are_known_nobody_is_listed(pauses: pause_world.World) -> None:
    pauses.ask()
    pauses.passes()
    swept, listed = sweeping(pauses), []
    swept.pauses = pauses.kube.list(PAUSES)
    pauses.kube.list = listed.append  # type: ignore[method-assign,assignment]

    swept.looks()

    assert (listed, len(held(pauses))) == ([], 2)


def test_a_pause_that_is_gone_is_swept_as_soon_as_the_watch_tells(pauses: pause_world.World) -> None:
    hold(pauses, holder(pauses.connection_uid, "gone"))
    pauses.ask()
    pauses.passes()
    swept = sweeping(pauses)
    swept.pauses = pauses.kube.list(PAUSES)

    swept.looks()

    assert held(pauses) == [f"pause/{pauses.connection_uid}/{swept.pauses[0]['metadata']['uid']}"] * 2


def test_a_pause_that_is_created_while_the_sweep_lists_is_not_swept(pauses: pause_world.World) -> None:
    listed = pauses.kube.list

    def list_and_then(kind: Any) -> Any:
        found = listed(kind)
        # Its hold comes after the sweep has read the topics, and after it has listed.
        hold(pauses, holder(pauses.connection_uid, "new"))
        return found

    hold(pauses, holder(pauses.connection_uid, "gone"), 1)
    pauses.kube.list = list_and_then  # type: ignore[method-assign]
    sweeping(pauses).looks(1, settle_s=0)
    assert held(pauses) == [holder(pauses.connection_uid, "new")]


def test_what_there_is_is_looked_at_after_the_holds_were_read(
    pauses: pause_world.World, monkeypatch: pytest.MonkeyPatch
) -> None:
    hold(pauses, holder(pauses.connection_uid, "gone"), 1)
    read = pauses.control.read

    def made_just_before(*arguments: Any, **options: Any) -> Any:
        pauses.ask("new")
        uid = pauses.kube.get(PAUSES, "ns", "new")["metadata"]["uid"]
        hold(pauses, holder(pauses.connection_uid, uid))
        return read(*arguments, **options)

    monkeypatch.setattr(pauses.control, "read", made_just_before)

    sweeping(pauses).looks(1, settle_s=0)

    uid = pauses.kube.get(PAUSES, "ns", "new")["metadata"]["uid"]
    assert held(pauses) == [holder(pauses.connection_uid, uid)]


# --- resets -----------------------------------------------------------------------------------------------------------


def begun(world: World) -> str:
    """A run whose job does nothing but hold; the uid of its resource."""
    world.runner.work = lambda _launch: None
    world.ask(deadline="30s")
    while not world.runner.started:
        world.some_passes(1)
    uid = str(world.kube.get(RESETS, "ns", "p")["metadata"]["uid"])
    hold(world, f"reset/{uid}/p")
    return uid


def test_a_run_under_way_keeps_its_holds_and_one_that_is_over_does_not(resets: World) -> None:
    uid = begun(resets)
    swept = sweeping(resets)

    swept.looks()
    during = held(resets)
    resets.clock.sleep(60)
    resets.passes()
    hold(resets, f"reset/{uid}/p")  # a job that nobody could stop
    swept.looks(1)
    suspected = held(resets)
    swept.looks(1)

    assert during == suspected == [f"reset/{uid}/p"]
    assert held(resets) == []
    assert swept.swept("reset") == 1
    [told] = [h for h in resets.kube.happenings_of("kafka") if h.reason == "HoldsSwept"]
    for named in ("payments", "orders 0", f"reset/{uid}/p", "reset p is over"):
        assert named in told.message


def test_a_reset_whose_status_nobody_can_read_keeps_its_holds(resets: World) -> None:
    uid = begun(resets)
    body = resets.kube.get(RESETS, "ns", "p")
    resets.kube.replace_status(RESETS, body, {**body["status"], "reset": {"phase": "OfALaterVersion"}})

    sweeping(resets).looks()

    assert held(resets) == [f"reset/{uid}/p"]


@pytest.mark.parametrize("fails", ["list", "get", "record"])
def test_while_the_api_server_is_away_nothing_is_released(
    resets: World, fails: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    hold(resets, "reset/gone/p")
    swept = sweeping(resets)

    def away(*_: Any) -> Any:
        raise KubeUnavailable(f"{fails}: nobody answers")

    with monkeypatch.context() as patched, caplog.at_level(logging.WARNING):
        patched.setattr(resets.kube, fails, away)
        swept.looks(3)
        assert held(resets) == ["reset/gone/p"]
    assert sum("nobody answers" in record.message for record in caplog.records) == 1
    swept.looks(2)
    assert held(resets) == []


@pytest.mark.parametrize("refusal", [KubeFailure("403 exceeded quota: events"), Conflict("409 the quota was changed")])
def test_what_was_left_behind_is_released_though_its_event_is_refused(
    resets: World, refusal: KubeFailure, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Else consumers would wait for as long as the quota is used up."""
    hold(resets, "reset/gone/p")

    def refused(*_: Any) -> None:
        raise refusal

    monkeypatch.setattr(resets.kube, "record", refused)

    with caplog.at_level(logging.WARNING):
        sweeping(resets).looks(3)

    assert held(resets) == []
    assert any("an Event was not recorded" in record.getMessage() for record in caplog.records)


def test_a_control_topic_that_may_not_be_read_is_let_be(resets: World) -> None:
    hold(resets, "reset/gone/p")
    resets.kafka.control.failure = NotAuthorized("read topic __tidegate")
    swept = sweeping(resets)
    swept.looks(3)
    resets.kafka.control.failure = None
    assert held(resets) == ["reset/gone/p"]


def test_an_event_is_told_once_though_kafka_or_the_process_went_away_before_the_release(
    resets: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    hold(resets, "reset/gone/p")
    release = resets.kafka.control.release
    ends: list[BaseException] = [Unavailable("no answer"), Killed()]

    def dying(keys: Iterable[HoldKey]) -> None:
        if ends:
            raise ends.pop(0)
        release(keys)

    monkeypatch.setattr(resets.kafka.control, "release", dying)
    swept = sweeping(resets)
    swept.looks(2)
    with pytest.raises(Killed):
        swept.looks(1)
    assert held(resets) == ["reset/gone/p"]

    sweeping(resets).looks(2)

    assert held(resets) == []
    assert len([h for h in resets.kube.happenings_of("kafka") if h.reason == "HoldsSwept"]) == 1


def test_a_connection_of_the_same_name_is_not_told_of_what_an_earlier_one_left(resets: World) -> None:
    hold(resets, "reset/gone/p")
    swept = sweeping(resets)
    resets.kube.delete(CONNECTIONS, "ns", "kafka", CREATED)
    resets.kube.create(CONNECTIONS, "ns", "kafka", {"bootstrapServers": "127.0.0.1:9092"}, CREATED)

    swept.looks()

    assert held(resets) == []
    assert resets.kube.happenings_of("kafka") == []


def test_what_is_swept_again_and_again_survives_a_defect(
    resets: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    hold(resets, "reset/gone/p")
    swept = sweeping(resets)
    listed, calls = resets.kube.list, []

    def flawed(kind: Any) -> list[Object]:
        calls.append(kind)
        if len(calls) == 1:
            raise ZeroDivisionError
        return list(listed(kind))

    async def run() -> None:
        task = asyncio.create_task(swept.sweeper.run())
        deadline = asyncio.get_running_loop().time() + 10
        while held(resets):
            assert asyncio.get_running_loop().time() < deadline
            await asyncio.sleep(0.01)
        task.cancel()

    monkeypatch.setattr(resets.kube, "list", flawed)
    asyncio.run(run())
    assert "unexpected error" in caplog.text


def test_a_sweep_with_a_defect_ends_with_it_once_all_other_connections_were_swept(
    pauses: pause_world.World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An uninstallation sweeps once, and ends what Kafka is reached with as soon as that is over."""
    [live] = pauses.live
    hold(pauses, holder(live.uid, "gone"))
    flawed = replace(live, name="flawed", uid="uid-flawed")
    sweeper = sweeping(pauses).sweeper
    swept = sweeper._sweep

    async def sweep(one: Live, settle_s: float) -> None:
        if one.uid == flawed.uid:
            raise ZeroDivisionError
        await swept(one, settle_s)

    pauses.live.put(flawed)
    monkeypatch.setattr(sweeper, "_sweep", sweep)

    with pytest.raises(ZeroDivisionError):
        asyncio.run(sweeper.sweep(settle_s=0))

    assert held(pauses) == []


# --- new partitions ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("killed", ["after closing", "before opening"])
def test_a_successor_opens_what_an_operator_had_closed_to_send_owners_back(
    resets: World, monkeypatch: pytest.MonkeyPatch, killed: str
) -> None:
    """Whether the start was committed by then or not: without the sweep the partition would stand for ever."""
    kafka, clock, control = resets.kafka, resets.clock, resets.kafka.control
    consumer = FakeConsumer(kafka, "group", ["orders"], managed=True, begins_at_end=True, auto_commit_s=1.0).start()
    clock.sleep(6)
    kafka.add_partitions("orders", 2)
    kafka.append(NEW, [START] * 10)
    kafka.rebalance("group")
    clock.sleep(12)
    assert [o for p, o in consumer.read if p == NEW] == []
    [live] = resets.live

    def send_back() -> None:
        Backfills().carry_out(kafka, clock, live.connection, Asker("u", "ns/p", live.uid), "group", [NEW])

    hold_ = control.hold

    def hold_and_die(holds: Any) -> Any:
        hold_(holds)
        raise Killed

    def die(_: Any) -> None:
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(control, "release", die)  # a process that is killed tidies nothing up
        if killed == "after closing":
            patched.setattr(control, "hold", hold_and_die)
        with pytest.raises(Killed):
            send_back()
    [left] = held(resets)
    assert left.startswith("reset/starts/u/")
    if killed == "after closing":
        send_back()  # its start was not committed: the successor sends the owner back once more
    clock.sleep(60)
    assert held(resets) == [left]
    assert [o for p, o in consumer.read if p == NEW] == []

    sweeping(resets).looks()
    clock.sleep(12)

    assert held(resets) == []
    assert [o for p, o in consumer.read if p == NEW] == list(range(10))


def test_what_this_process_holds_to_send_owners_back_is_let_be(resets: World) -> None:
    hold(resets, "reset/starts/u/1")
    swept = sweeping(resets)
    swept.backfills = frozenset({"starts/u/1"})
    swept.looks(3)
    assert held(resets) == ["reset/starts/u/1"]
    swept.backfills = frozenset()
    swept.looks(2)
    assert held(resets) == []


def test_a_backfill_is_under_way_while_it_may_hold_something(resets: World) -> None:
    backfills = Backfills()
    seen: list[bool] = []
    hold_, release = resets.kafka.control.hold, resets.kafka.control.release
    consumer = FakeConsumer(resets.kafka, "group", ["orders"], managed=True).start()
    resets.clock.sleep(6)

    def noting(call: Any) -> Any:
        def noted(argument: Any) -> Any:
            keys = list(argument)
            seen.append({key.holder for key in keys} == {f"reset/{uid}" for uid in backfills.under_way})
            return call(argument)

        return noted

    resets.kafka.control.hold = noting(hold_)  # type: ignore[method-assign]
    resets.kafka.control.release = noting(release)  # type: ignore[method-assign]
    [live] = resets.live
    backfills.carry_out(
        resets.kafka,
        resets.clock,
        live.connection,
        Asker("u", "ns/p", live.uid),
        "group",
        [TopicPartition("orders", 0)],
    )

    assert consumer.read
    assert seen == [True, True]
    assert backfills.under_way == frozenset()


def test_what_was_left_behind_is_released_while_the_connection_only_observes(pauses: pause_world.World) -> None:
    hold(pauses, holder(pauses.connection_uid, "gone"))
    observe(pauses.live, pauses.kafka)

    sweeping(pauses).looks()

    assert held(pauses) == []
