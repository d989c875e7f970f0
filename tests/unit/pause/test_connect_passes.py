"""A pause of a sink connector, pass by pass: it goes back to what it was whatever dies when, and whoever resumes it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from support.connect_pauses import BY_CONNECT, asked, connector, made, members
from support.fake_consumer import FakeConsumer
from support.fake_kube import FakeKube
from support.pause_world import World, condition, status
from tidegate.connect.ports import (
    FAILED,
    PAUSED,
    RUNNING,
    STOPPED,
    Connector,
    ConnectRefused,
    ConnectUnavailable,
    TargetState,
)
from tidegate.kafka.errors import NotAuthorized
from tidegate.kube.ports import PAUSES
from tidegate.pause.connectors import (
    CONNECT_TOO_OLD,
    CONNECTOR_FAILED,
    CONNECTOR_NOT_FOUND,
    CONNECTOR_UNSETTLED,
    NOT_A_SINK,
    OTHER_GROUP,
    RESUMING_CONNECTOR,
    STOPPING_CONNECTOR,
)
from tidegate.pause.stopper import CONNECT_CLUSTER_NOT_FOUND, CONNECT_REFUSES, CONNECT_UNAVAILABLE

STEPS = 10
"""More than a pause takes, from its beginning to its end."""


@pytest.fixture
def world() -> Iterator[World]:
    world = made()
    yield world
    world.close()


def test_what_it_goes_back_to_is_written_before_it_is_stopped(world: World) -> None:
    world.ask(**BY_CONNECT)
    world.passes()
    assert (world.phase, connector(world), members(world)) == ("Paused", STOPPED, 0)
    log = world.steps.log
    assert log[:3] == ["status Pausing 0/2", "finalizer on", "stop sink"]
    said = status(world)
    assert (said["method"], said["paused"]) == ("Connect", "2/2")
    assert (said["connector"]["state"], said["connector"]["phase"]) == ("Running", "Paused")
    assert condition(world, "Paused")[0] == condition(world, "Ready")[0] == "True"
    assert "whole" not in condition(world, "Ready")[2]

    world.drop()
    world.passes()
    assert world.body is None
    assert connector(world) == RUNNING
    assert asked(world) == ["stop sink", "resume sink"]
    reasons = [event.reason for event in world.kube.happenings_of("p")]
    assert reasons.count(STOPPING_CONNECTOR) == reasons.count(RESUMING_CONNECTOR) == 1


@pytest.mark.parametrize("state", [TargetState.PAUSED, TargetState.STOPPED])
def test_what_somebody_else_had_paused_or_stopped_stays_so(state: TargetState) -> None:
    world = made(state)
    world.ask(**BY_CONNECT)
    world.passes()
    assert (world.phase, connector(world), members(world)) == ("Paused", STOPPED, 0)
    world.drop()
    world.passes()
    assert world.body is None
    assert connector(world) == (PAUSED if state is TargetState.PAUSED else STOPPED)
    assert asked(world) == (["stop sink", "pause sink"] if state is TargetState.PAUSED else [])
    world.close()


@pytest.mark.parametrize("first", range(STEPS))
def test_it_goes_back_whenever_the_operator_dies(first: int) -> None:
    for second in (None, *range(STEPS)):
        world = made()
        for _ in world.begin_and_end(first, second, **BY_CONNECT):
            assert (world.phase, connector(world), members(world)) == ("Paused", STOPPED, 0)
        assert connector(world) == RUNNING, (first, second)
        world.close()


def test_of_two_pauses_the_last_one_resumes_it(world: World) -> None:
    world.ask(**BY_CONNECT)
    world.passes()
    world.ask("q", **BY_CONNECT)
    world.passes("q")
    assert status(world, "q")["connector"]["state"] == "Running"
    world.drop()
    world.passes("p", "q")
    assert (world.body, world.phase_of("q"), connector(world)) == (None, "Paused", STOPPED)
    world.drop("q")
    world.passes("q")
    assert connector(world) == RUNNING


@pytest.mark.parametrize(
    "newer", [{"ofTheNextVersion": 1}, {"connector": {"ofTheNextVersion": 1}}], ids=["status", "record"]
)
def test_a_pause_whose_status_only_a_newer_version_reads_keeps_it_stopped(world: World, newer: dict[str, Any]) -> None:
    world.ask(**BY_CONNECT)
    world.ask("q", **BY_CONNECT)
    world.passes("p", "q")
    told, body = status(world, "q"), world.body_of("q")
    assert body is not None
    record = {**told["connector"], **newer.get("connector", {})}
    FakeKube.replace_status(world.kube, PAUSES, body, {**told, **newer, "connector": record})
    world.reconciler = world.fresh_reconciler()

    world.drop()
    world.passes()

    assert (world.body, connector(world)) == (None, STOPPED)
    world.ask("r", **BY_CONNECT)
    world.passes("r")
    assert status(world, "r")["connector"]["state"] == "Running"


def test_two_that_let_go_at_once_resume_it(world: World) -> None:
    for name in ("p", "q"):
        world.ask(name, **BY_CONNECT)
    world.passes("p", "q")
    for name in ("p", "q"):
        world.drop(name)
    world.passes("p", "q")
    assert (world.body_of("p"), world.body_of("q"), connector(world)) == (None, None, RUNNING)


def test_suspended_it_runs_and_then_stops_again(world: World) -> None:
    world.ask(**BY_CONNECT)
    world.passes()
    for suspend, state in ((True, RUNNING), (False, STOPPED)):
        world.kube.change(PAUSES, "ns", "p", spec={**BY_CONNECT, "suspend": suspend})
        world.passes()
        assert connector(world) == state
        world.clock.sleep(10)


def test_who_resumes_it_again_and_again_is_not_fought_for_ever(world: World) -> None:
    world.ask(**BY_CONNECT)
    world.passes()
    for _ in range(6):
        world.connect.asked("sink", TargetState.RUNNING)
        world.passes()
    assert asked(world) == ["stop sink"] * 4
    assert (world.phase, connector(world)) == ("Degraded", RUNNING)
    assert condition(world, "Stalled")[1] == "ResumedByOthers"
    assert condition(world, "Paused")[0] == "False"


def test_stops_are_not_said_to_be_of_one_hour_that_are_of_four(world: World) -> None:
    world.ask(**BY_CONNECT)
    world.passes()
    for _ in range(4):
        world.clock.sleep(55 * 60)
        world.connect.asked("sink", TargetState.RUNNING)
        world.passes()

    _, reason, message = condition(world, "Stalled")
    assert reason == "ResumedByOthers"
    assert "stopped connector sink of Connect cluster main 4 times, each less than an hour after the one" in message


def test_what_somebody_asks_for_meanwhile_is_what_it_goes_back_to(world: World) -> None:
    world.ask(**BY_CONNECT)
    world.passes()
    world.connect.asked("sink", TargetState.PAUSED)
    world.passes()
    assert connector(world) == STOPPED
    world.drop()
    world.passes()
    assert connector(world) == PAUSED


def test_it_is_not_paused_while_a_member_is_left(world: World) -> None:
    stray = FakeConsumer(world.kafka, "connect-sink", ["orders"], client_id="stray")
    stray.start()
    world.clock.sleep(10)
    world.ask(**BY_CONNECT)
    world.passes(limit=6)
    assert (world.phase, connector(world)) == ("Pausing", STOPPED)
    assert "stray at 127.0.0.1" in condition(world, "Reconciling")[2]
    world.clock.sleep(121)
    world.passes(limit=6)
    assert (world.phase, condition(world, "Stalled")[1]) == ("Degraded", "MembersLeft")
    stray.close()
    world.clock.sleep(1)
    world.passes()
    assert world.phase == "Paused"


def test_it_needs_no_right_on_the_control_topics(world: World) -> None:
    world.control.failure = NotAuthorized("read topic __tidegate: TOPIC_AUTHORIZATION_FAILED")
    world.ask(**BY_CONNECT)
    world.passes()
    assert (world.phase, connector(world), condition(world, "Stalled")) == ("Paused", STOPPED, ("", "", ""))


def test_the_group_may_be_one_that_the_connector_sets() -> None:
    world = made(group="payments")
    world.ask(**{**BY_CONNECT, "group": "payments"})
    world.passes()
    assert (world.phase, connector(world)) == ("Paused", STOPPED)
    world.close()


def _gone(world: World) -> None:
    world.connect.delete("sink")


def _source(world: World) -> None:
    world.connect.create("sink", kind="source")


def _other_group(world: World) -> None:
    world.connect.create("sink", group="other")


def _variable(world: World) -> None:
    world.connect.create("sink", group="${file:/secrets:group}")


def _failed(world: World) -> None:
    world.connect.create("sink", state=FAILED)


def _unsettled(world: World) -> None:
    world.connect.create("sink", state="UNASSIGNED")


def _too_old(world: World) -> None:
    world.connect._knows_stop = False


def _refused(world: World) -> None:
    world.connect.failure = ConnectRefused("Connect cluster main refuses Tidegate (HTTP status 401)")


def _no_cluster(world: World) -> None:
    [live] = world.live
    live.connect.pop("main")  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("flaw", "reason", "says"),
    [
        (_gone, CONNECTOR_NOT_FOUND, "check its name"),
        (_source, NOT_A_SINK, "source connector"),
        (_other_group, OTHER_GROUP, "reads as group other"),
        (_variable, OTHER_GROUP, "set by a variable"),
        (_failed, CONNECTOR_FAILED, "restart or stop it"),
        (_unsettled, CONNECTOR_UNSETTLED, "UNASSIGNED"),
        (_too_old, CONNECT_TOO_OLD, "takes Kafka 3.5 or newer"),
        (_refused, CONNECT_REFUSES, "401"),
        (_no_cluster, CONNECT_CLUSTER_NOT_FOUND, "spec.connect"),
    ],
)
def test_what_is_wrong_is_said_before_anything_is_touched(world: World, flaw: Any, reason: str, says: str) -> None:
    flaw(world)
    world.ask(**BY_CONNECT)
    world.passes()
    state, told, message = condition(world, "Stalled")
    assert (world.phase, state, told) == ("Pending", "True", reason)
    assert says in message
    assert asked(world) == []
    body = world.body
    assert body is not None
    assert not body["metadata"].get("finalizers")


def test_a_group_that_the_worker_sets_is_noticed(world: World) -> None:
    """Its configuration is not told; but tasks that run are members somewhere."""
    world.connect.told = lambda _: None
    world.connect.create("other")
    other = {"connector": {"cluster": "main", "name": "other"}, "group": "connect-other"}
    world.ask(**{**BY_CONNECT, **other})
    world.passes()
    assert condition(world, "Stalled")[1] == OTHER_GROUP
    assert "consumer.group.id" in condition(world, "Stalled")[2]
    assert world.steps.log == ["status Pending 0/0"]


def test_a_group_that_the_connection_does_not_allow_is_not_touched(world: World) -> None:
    [live] = world.live
    allow = live.allow.model_copy(update={"groups": ("payments",)})
    world.live.put(type(live)(**{f: getattr(live, f) for f in live.__slots__} | {"allow": allow}))
    world.connect.failure = ConnectUnavailable("who may not pause the group is not told of this")
    world.ask(**BY_CONNECT)
    world.passes()
    assert condition(world, "Stalled")[1] == "GroupNotAllowed"
    assert asked(world) == []


def test_a_failed_task_does_not_stand_against_it(world: World) -> None:
    world.connect.told(Connector("sink", "sink", STOPPED, ()))
    world.connect.create("sink", task=FAILED)
    world.clock.sleep(10)
    world.ask(**BY_CONNECT)
    world.passes()
    assert connector(world) == STOPPED


def test_without_an_answer_of_connect_it_waits_and_says_so(world: World) -> None:
    world.ask(**BY_CONNECT)
    world.passes()
    world.connect.failure = ConnectUnavailable("Connect cluster main does not answer")
    world.passes(limit=5)
    assert world.phase == "Paused"
    assert condition(world, "Reconciling")[1] == CONNECT_UNAVAILABLE
    assert condition(world, "Paused")[0] == "Unknown"
    world.connect.failure = None
    world.passes()
    assert condition(world, "Paused")[0] == "True"


def test_a_deleted_one_waits_for_connect_and_then_goes_and_says_what_is_left(world: World) -> None:
    world.ask(**BY_CONNECT)
    world.passes()
    world.connect.failure = ConnectUnavailable("Connect cluster main does not answer")
    world.drop()
    world.passes(limit=3)
    assert world.body is not None
    assert condition(world, "Stalled")[1] == CONNECT_UNAVAILABLE
    world.clock.sleep(121)
    world.passes(limit=6)
    assert world.body is None
    assert any("It was Running before" in event.message for event in world.kube.happenings_of("p"))
    world.connect.failure = None
    assert connector(world) == STOPPED


def test_a_connection_that_was_made_anew_is_not_taken_for_the_old_one(world: World) -> None:
    world.ask(**BY_CONNECT)
    world.passes()
    body = world.body
    assert body is not None
    record = {**body["status"]["connector"], "connectionUid": "another"}
    world.kube.replace_status(PAUSES, body, {**body["status"], "connector": record})
    world.passes()
    assert condition(world, "Stalled")[1] == "ConnectorLeft"


def test_it_is_given_back_once_its_workers_are_settled_again(world: World) -> None:
    world.ask(**BY_CONNECT)
    world.passes()
    world.connect.create("sink", state="UNASSIGNED")
    world.passes(limit=3)
    assert (world.phase, status(world)["connector"]["state"]) == ("Pausing", "Running")
    world.drop()
    world.passes(limit=5)
    assert world.phase == "Resuming"
    world.connect.create("sink", state=STOPPED)
    world.passes()
    assert (world.body, connector(world)) == (None, RUNNING)
    assert asked(world) == ["stop sink", "resume sink"]


@pytest.mark.parametrize("meanwhile", ["", "the clock is set back", "the operator dies"])
def test_a_stop_that_was_not_answered_is_taken_back_before_the_pause_goes(world: World, meanwhile: str) -> None:
    """It may reach the workers yet, even after the resuming, and nobody would resume the connector."""

    def unanswered(name: str, state: TargetState) -> None:
        world.steps.step(f"{state.value} {name}")
        if state is TargetState.STOPPED:
            raise ConnectUnavailable("Connect cluster main does not answer")

    world.connect.before = unanswered
    world.ask(**BY_CONNECT)
    world.passes(limit=4)
    assert (world.phase, connector(world)) == ("Pausing", RUNNING)
    if meanwhile == "the clock is set back":
        world.clock._start -= timedelta(hours=1)
    elif meanwhile:
        world.reconciler = world.fresh_reconciler()
    world.drop()
    world.passes(limit=12)
    assert (world.phase, asked(world)[-1]) == ("Resuming", "resume sink")
    world.connect.asked("sink", TargetState.STOPPED)
    world.passes(limit=20)
    assert connector(world) == RUNNING
    world.clock.sleep(91)
    world.passes()
    assert (world.body, connector(world)) == (None, RUNNING)
