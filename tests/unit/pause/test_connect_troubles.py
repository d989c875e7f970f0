"""A pause of a sink connector whose workers don't answer, lag, or tell of something else; and other pauses of it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from dataclasses import replace

import pytest

from support.connect_pauses import BY_CONNECT, asked, connector, made
from support.pause_world import SPEC, World, condition, status
from tidegate.connect.ports import FAILED, RUNNING, STOPPED, ConnectCluster, Connector, ConnectUnavailable, TargetState
from tidegate.kube.ports import PAUSES
from tidegate.kube.unreadable import ABANDON
from tidegate.pause.connectors import CONNECTOR_FAILED, CONNECTOR_UNSETTLED, NOT_A_SINK, OTHER_GROUP
from tidegate.pause.stopper import CONNECT_CLUSTER_UNUSABLE, CONNECT_UNAVAILABLE

BUSY = "Connect cluster main can't answer now (HTTP status 409)"
AS_IT_RUNS = Connector("sink", "sink", RUNNING, (RUNNING,))
AS_STOPPED = Connector("sink", "sink", STOPPED, ())


@pytest.fixture
def world() -> Iterator[World]:
    world = made()
    yield world
    world.close()


def refuse_to(world: World, *states: TargetState) -> None:
    """The workers answer looks, and no request for these states."""

    def answer(name: str, state: TargetState) -> None:
        world.steps.step(f"{state.value} {name}")
        if state in states:
            raise ConnectUnavailable(BUSY)

    world.connect.before = answer


def rest_s(world: World) -> float:
    """How long the next pass rests."""
    body = world.body
    assert body is not None
    return asyncio.run(world.reconciler.reconcile(body)).again_after_s


def give_up(world: World, way: str) -> None:
    if way == "abandon":
        world.kube.change(PAUSES, "ns", "p", annotations={ABANDON: "true"})
    else:
        world.clock.sleep(121)


@pytest.mark.parametrize("way", ["abandon", "wait"])
def test_one_that_can_not_be_resumed_does_not_keep_its_pause_for_ever(world: World, way: str) -> None:
    world.ask(**BY_CONNECT)
    world.passes()
    refuse_to(world, TargetState.RUNNING)
    world.drop()
    world.passes(limit=6)
    assert (world.phase, condition(world, "Stalled")[1]) == ("Resuming", CONNECT_UNAVAILABLE)
    assert "409" in condition(world, "Stalled")[2]
    assert rest_s(world) > 0
    give_up(world, way)
    world.passes(limit=6)
    assert world.body is None
    said = [event.message for event in world.kube.happenings_of("p") if event.reason == "ConnectorLeft"]
    assert len(said) == 1
    assert "It was Running before" in said[0]
    assert "PUT /connectors/sink/resume" in said[0]


@pytest.mark.parametrize("way", ["abandon", "wait"])
def test_workers_that_do_not_settle_do_not_keep_it_for_ever(world: World, way: str) -> None:
    world.ask(**BY_CONNECT)
    world.passes()
    world.connect.create("sink", state="UNASSIGNED")
    world.drop()
    world.passes(limit=6)
    assert (world.phase, condition(world, "Stalled")[1]) == ("Resuming", CONNECTOR_UNSETTLED)
    assert rest_s(world) > 0
    give_up(world, way)
    world.passes(limit=6)
    assert world.body is None


def test_while_its_workers_take_their_time_it_is_asked_to_stop_once(world: World) -> None:
    """Each request makes all workers rebalance, and one that has gone is waited for by them for five minutes."""
    world.reconciler = world.fresh_reconciler(tick_s=1)
    world.connect.stale["sink"] = AS_IT_RUNS
    world.ask(**BY_CONNECT)
    for _ in range(10):
        world.passes(limit=1)
    assert world.phase == "Pausing"
    assert asked(world) == ["stop sink"]
    assert rest_s(world) > 0
    world.connect.stale.clear()
    world.passes()
    assert world.phase == "Paused"


def test_why_it_does_not_stop_is_said(world: World) -> None:
    refuse_to(world, TargetState.STOPPED)
    world.ask(**BY_CONNECT)
    world.passes(limit=5)
    assert world.phase == "Pausing"
    assert BUSY in condition(world, "Reconciling")[2]
    assert rest_s(world) > 0


def test_one_that_lets_go_midway_does_not_resume_it_for_another(world: World) -> None:
    refuse_to(world, TargetState.STOPPED)
    for name in ("p", "q"):
        world.ask(name, **BY_CONNECT)
        world.passes(name, limit=4)
    world.drop("p")
    world.passes("p", limit=6)
    assert (world.body, world.phase_of("q")) == (None, "Pausing")
    assert "resume sink" not in asked(world)


@pytest.mark.parametrize("state", [TargetState.RUNNING, TargetState.PAUSED])
def test_a_worker_that_lags_does_not_make_it_forget_to_resume(state: TargetState) -> None:
    world = made(state)
    before = world.connect.look(next(iter(world.live)).connect["main"], "sink")
    assert before is not None
    world.ask(**BY_CONNECT)
    world.passes()
    world.connect.stale["sink"] = before
    world.drop()
    world.passes()
    world.connect.stale.clear()
    assert world.body is None
    assert connector(world) == before.state
    world.close()


def test_it_is_not_called_paused_while_it_may_be_starting(world: World) -> None:
    world.ask(**BY_CONNECT)
    world.passes()
    world.connect.stale["sink"] = AS_STOPPED
    world.kube.change(PAUSES, "ns", "p", spec={**BY_CONNECT, "suspend": True})
    world.passes(limit=4)
    assert (world.phase, asked(world)[-1]) == ("Resuming", "resume sink")
    world.kube.change(PAUSES, "ns", "p", spec=dict(BY_CONNECT))
    world.passes()
    world.connect.stale.clear()
    assert asked(world) == ["stop sink", "resume sink", "stop sink"]
    assert (world.phase, connector(world)) == ("Paused", STOPPED)


def test_nor_by_another_pause(world: World) -> None:
    world.ask(**BY_CONNECT)
    world.passes()
    world.connect.stale["sink"] = AS_STOPPED
    world.drop()
    world.passes(limit=3)
    assert (world.phase, asked(world)[-1]) == ("Resuming", "resume sink")
    world.ask("q", **BY_CONNECT)
    world.passes("q")
    world.connect.stale.clear()
    assert asked(world)[-1] == "stop sink"
    assert (world.phase_of("q"), connector(world)) == ("Paused", STOPPED)
    assert status(world, "q")["connector"]["state"] == "Running"


def test_one_that_fails_meanwhile_still_goes_back_to_what_somebody_had_asked_for() -> None:
    world = made(TargetState.STOPPED)
    world.ask(**BY_CONNECT)
    world.passes()
    world.connect.create("sink", state=FAILED)
    world.passes()
    assert (world.phase, condition(world, "Stalled")[1]) == ("Degraded", CONNECTOR_FAILED)
    assert condition(world, "Paused")[0] == "False"
    world.connect.create("sink", state=STOPPED)
    world.passes()
    assert world.phase == "Paused"
    world.drop()
    world.passes()
    assert (world.body, connector(world)) == (None, STOPPED)
    assert "resume sink" not in asked(world)
    world.close()


def test_one_that_fails_as_it_is_stopped_is_resumed_all_the_same(world: World) -> None:
    """Restarted afterwards, it would be as stopped as it was asked to be."""
    world.ask(**BY_CONNECT)
    world.passes()
    world.connect.create("sink", state=FAILED)
    world.drop()
    world.passes()
    assert world.body is None
    assert asked(world) == ["stop sink", "resume sink"]


def test_workers_that_restart_are_nobody_who_resumes_it(world: World) -> None:
    world.ask(**BY_CONNECT)
    world.passes()
    for _ in range(5):
        world.connect.create("sink", state="UNASSIGNED")
        world.passes(limit=3)
        assert world.phase == "Pausing"
        world.connect.create("sink", state=STOPPED)
        world.passes()
    assert status(world)["connector"]["stopped"] == 1
    world.connect.asked("sink", TargetState.RUNNING)
    world.passes()
    assert (world.phase, connector(world)) == ("Paused", STOPPED)


@pytest.mark.parametrize(("kind", "group", "reason"), [("source", "", NOT_A_SINK), ("sink", "other", OTHER_GROUP)])
def test_what_has_come_in_its_place_is_left_alone(world: World, kind: str, group: str, reason: str) -> None:
    world.ask(**BY_CONNECT)
    world.passes()
    world.connect.delete("sink")
    world.passes()
    world.connect.create("sink", kind=kind, group=group)
    world.passes()
    assert asked(world) == ["stop sink"]
    assert (world.phase, condition(world, "Stalled")[1]) == ("Degraded", reason)
    world.drop()
    world.passes()
    assert (world.body, asked(world)) == (None, ["stop sink"])


def test_groups_that_are_not_allowed_are_not_told_of(world: World) -> None:
    [live] = world.live
    allow = live.allow.model_copy(update={"groups": ("connect-sink",)})
    world.live.put(type(live)(**{f: getattr(live, f) for f in live.__slots__} | {"allow": allow}))
    world.connect.create("sink", group="payroll")
    world.ask(**BY_CONNECT)
    world.passes()
    assert condition(world, "Stalled")[1] == OTHER_GROUP
    assert "payroll" not in str(world.body)


def test_one_that_stays_stopped_anyway_waits_for_nobody() -> None:
    world = made(TargetState.STOPPED)
    world.ask(**BY_CONNECT)
    world.passes()
    world.connect.failure = ConnectUnavailable("Connect cluster main does not answer")
    world.drop()
    world.passes(limit=4)
    assert world.body is None
    world.close()


def test_workers_that_do_not_answer_hold_up_no_other_pause(world: World) -> None:
    answers, look = threading.Event(), world.connect.look

    def late(cluster: ConnectCluster, name: str) -> Connector | None:
        assert answers.wait(60)
        return look(cluster, name)

    world.connect.look = late  # type: ignore[method-assign]
    world.ask(**BY_CONNECT)
    world.ask("q")

    async def both() -> None:
        waiting = asyncio.create_task(world._passes("p", 40))
        await asyncio.wait_for(world._passes("q", 40), 30)
        assert not waiting.done()
        assert world.phase_of("q") == "Paused"
        answers.set()
        await waiting

    asyncio.run(both())
    assert world.phase == "Paused"


def test_at_rest_it_does_not_list_all_pauses(world: World) -> None:
    """There may be thousands, and each listing is of all."""
    world.ask(**BY_CONNECT)
    world.passes()
    listed: list[object] = []
    list_all = world.kube.list
    world.kube.list = lambda kind: listed.append(kind) or list_all(kind)  # type: ignore[method-assign,func-returns-value]
    body = world.kube.get(PAUSES, "ns", "p")
    for _ in range(3):
        asyncio.run(world.reconciler.reconcile(body))
    assert listed == []


def test_a_connection_that_was_deleted_leaves_word_of_what_to_do(world: World) -> None:
    world.ask(**BY_CONNECT)
    world.passes()
    body = world.kube.get(PAUSES, "ns", "p")
    record = {**body["status"]["connector"], "connectionUid": "another"}
    world.kube.replace_status(PAUSES, body, {**body["status"], "connector": record})
    world.passes()
    assert condition(world, "Stalled")[1] == "ConnectorLeft"
    assert "delete this pause" in condition(world, "Stalled")[2]
    world.drop()
    world.passes(limit=3)
    give_up(world, "abandon")
    world.passes()
    assert world.body is None
    [said] = [event.message for event in world.kube.happenings_of("p") if "PUT /connectors" in event.message]
    assert "PUT /connectors/sink/resume" in said


def test_one_whose_spec_can_not_be_read_any_more_goes_back_when_its_pause_is_deleted(world: World) -> None:
    """As after a roll-back: what was recorded before the stop says all that is needed."""
    world.ask(**BY_CONNECT)
    world.passes()
    world.kube.change(PAUSES, "ns", "p", spec={**SPEC, **BY_CONNECT, "method": "ByANewerVersion"})
    world.passes()
    assert condition(world, "Stalled")[1] == "InvalidSpec"
    world.drop()
    world.passes()
    assert (world.body, connector(world)) == (None, RUNNING)


def test_while_its_connection_is_not_there_it_stays_stopped_and_says_so(world: World) -> None:
    world.ask(**BY_CONNECT)
    world.passes()
    [live] = world.live
    world.live.drop("ns", "kafka", uid=live.uid)
    world.drop()
    world.passes(limit=3)
    assert (world.phase, asked(world)) == ("Resuming", ["stop sink"])
    state, reason, message = condition(world, "Stalled")
    assert (state, reason) == ("True", "WaitingForConnection")
    assert "the KafkaConnection that has the Connect cluster is not open" in message
    world.live.put(live)
    world.passes()
    assert (world.body, connector(world)) == (None, RUNNING)


def test_whose_cluster_lacks_a_secret_says_so_and_goes_back_once_it_has_it(world: World) -> None:
    world.ask(**BY_CONNECT)
    world.passes()
    [live] = world.live
    lack = ("SecretNotFound", "spec.connect[0].authentication.passwordSecret: there is no Secret login")
    world.live.put(replace(live, connect={}, connect_lacks={"main": lack}))
    world.drop()
    world.passes(limit=3)
    state, reason, message = condition(world, "Stalled")
    assert (world.phase, state, reason) == ("Resuming", "True", CONNECT_CLUSTER_UNUSABLE)
    assert message == f"Connect cluster main of KafkaConnection kafka: {lack[1]}"
    assert asked(world) == ["stop sink"]
    world.live.put(live)
    world.passes()
    assert (world.body, connector(world)) == (None, RUNNING)


def moved(world: World, state: str | None) -> None:
    """The connection names other workers from now on, which tell of a connector of this name, or of none."""
    [live] = world.live
    world.live.put(replace(live, connect={"main": ConnectCluster("main", "http://other:8083")}))
    look = world.connect.look

    def answer(cluster: ConnectCluster, name: str) -> Connector | None:
        if cluster.url == "http://other:8083":
            return None if state is None else replace(AS_STOPPED, state=state)
        return look(cluster, name)

    world.connect.look = answer  # type: ignore[method-assign]


@pytest.mark.parametrize("state", [None, RUNNING])
@pytest.mark.parametrize("is_over", [True, False])
def test_one_that_was_stopped_at_another_url_is_not_forgotten(world: World, is_over: bool, state: str | None) -> None:
    world.ask(**BY_CONNECT)
    world.passes()
    moved(world, state)
    if is_over:
        world.drop()
    world.passes(limit=4)
    assert condition(world, "Stalled")[1] == "ConnectorLeft"
    assert "at another URL than spec.connect of its KafkaConnection names now" in condition(world, "Stalled")[2]
    assert asked(world) == ["stop sink"]
    world.drop()
    give_up(world, "abandon")
    world.passes()
    assert world.body is None
    [said] = [event.message for event in world.kube.happenings_of("p") if "PUT /connectors" in event.message]
    assert "It was Running before; PUT /connectors/sink/resume" in said


def test_the_same_workers_at_another_url_are_the_same_ones(world: World) -> None:
    world.ask(**BY_CONNECT)
    world.passes()
    before = status(world)["connector"]["workers"]
    [live] = world.live
    world.live.put(replace(live, connect={"main": ConnectCluster("main", "https://connect:8443")}))
    world.passes()
    assert world.phase == "Paused"
    assert status(world)["connector"]["workers"] != before
    world.drop()
    world.passes()
    assert (world.body, connector(world)) == (None, RUNNING)
