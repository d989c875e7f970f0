"""Pauses by leading, pass by pass, while connections go and come. Sessions are there, and their threads are not."""

from __future__ import annotations

import pytest

from support.fake_consumer import FakeConsumer
from support.live import live_of
from support.pause_world import SPEC, World, condition, status
from tidegate.kafka.assignments import LEADER_CLIENT_ID
from tidegate.kafka.errors import NotAuthorized
from tidegate.kafka.model import GroupState, Seat, TopicPartition
from tidegate.kube.ports import CONNECTIONS, PAUSES
from tidegate.leading.leaders import Leaders, Led, _Running
from tidegate.leading.pacing import Pacing, Report
from tidegate.leading.session import LeadingSession
from tidegate.resources.pause import WorkloadRef

P = TopicPartition("orders", 0)
LEADING = {"method": "Leading", "partitions": [{"topic": "orders", "partitions": [0]}]}


class Unstarted(Leaders):
    def _start(self, running: _Running) -> None:
        """It is told what comes of it by ``tell``."""

    def session(self, connection: str) -> LeadingSession:
        return self._running[Led(connection, "payments")].session

    def tell(self, connection: str, report: Report) -> None:
        self.session(connection)._report = report


@pytest.fixture
def leaders(world: World) -> Unstarted:
    world.leaders = these = Unstarted(world.clock, Pacing(), lambda: True)
    world.reconciler = world.fresh_reconciler()
    FakeConsumer(world.kafka, "payments", ["orders"]).start()
    world.clock.sleep(5)
    return these


@pytest.fixture
def paused(world: World, leaders: Unstarted) -> None:
    world.ask(**LEADING)
    world.passes(limit=5)
    leaders.tell(world.connection_uid, Report(Seat("tidegate-leader-1", 7, "range"), frozenset({P})))
    world.passes()
    assert world.phase == "Paused"


def test_a_group_is_led_without_any_right_on_the_control_topics(world: World, leaders: Unstarted) -> None:
    world.control.failure = NotAuthorized("read topic __tidegate: TOPIC_AUTHORIZATION_FAILED")
    world.ask(**LEADING)
    world.passes(limit=5)
    leaders.tell(world.connection_uid, Report(Seat("tidegate-leader-1", 7, "range"), frozenset({P})))
    world.passes()
    assert (world.phase, condition(world, "Stalled")) == ("Paused", ("", "", ""))


@pytest.mark.usefixtures("paused")
def test_a_group_is_led_no_longer_than_its_connection_is_there(world: World, leaders: Unstarted) -> None:
    session = leaders.session(world.connection_uid)

    world.live.drop("ns", "kafka", uid=world.connection_uid)
    world.passes(limit=3)

    assert session._wishes.are_over
    assert condition(world, "Paused")[0] == "Unknown"
    world.drop()
    world.passes()
    assert world.body is None


@pytest.mark.usefixtures("paused")
def test_a_group_is_led_anew_through_a_connection_that_was_created_again(world: World, leaders: Unstarted) -> None:
    old_uid, session = world.connection_uid, leaders.session(world.connection_uid)
    world.live.drop("ns", "kafka", uid=old_uid)
    world.kube.create(CONNECTIONS, "ns", "other", {"bootstrapServers": "127.0.0.1:9092"}, "2026-11-20T11:59:00Z")
    new_uid = world.kube.get(CONNECTIONS, "ns", "other")["metadata"]["uid"]
    world.live.put(live_of(world.kafka, new_uid))
    world.reconciler = world.fresh_reconciler()

    world.passes(limit=5)

    assert session._wishes.are_over
    assert world.phase == "Pausing"
    leaders.tell(new_uid, Report(Seat("tidegate-leader-2", 3, "range"), frozenset({P})))
    world.passes()
    assert world.phase == "Paused"
    assert status(world)["leader"]["connectionUid"] == new_uid


def test_a_group_without_others_than_the_leader_is_paused_by_scaling_too(world: World) -> None:
    app = WorkloadRef(api_version="apps/v1", kind="Deployment", name="payments")
    world.workloads.create("ns", app, 2)
    ours = FakeConsumer(world.kafka, "payments", [], LEADER_CLIENT_ID).start()
    world.clock.sleep(5)
    assert world.kafka._described("payments").state is GroupState.STABLE
    world.ask("s", method="Scale", workloadRef=app.to_json(), partitions=None)

    world.passes("s")

    assert ours.member_id in {m.member_id for m in world.kafka._described("payments").members}
    assert world.phase_of("s") == "Paused"


@pytest.mark.usefixtures("paused")
def test_what_has_ended_unexpectedly_is_not_called_paused(world: World, leaders: Unstarted) -> None:
    """As a thread does that dies of what nobody has thought of, again and again."""
    for _ in range(3):
        leaders.tell(world.connection_uid, Report(Seat("tidegate-leader-1", 7, "range"), ended=True))
        world.passes(limit=1)
        assert (world.phase, condition(world, "Paused")[0]) == ("Pausing", "False")
        world.passes(limit=1)


def test_the_session_is_told_what_the_pause_is_about(world: World, leaders: Unstarted) -> None:
    world.ask(**{**LEADING, "partitions": [{"topic": "orders"}]})
    world.passes(limit=5)
    wishes = leaders.session(world.connection_uid)._wishes
    new, other = TopicPartition("orders", 2), TopicPartition("refunds", 0)
    assert wishes.wanted == {P, TopicPartition("orders", 1)}
    assert wishes.among(frozenset({new, other})) == {*wishes.wanted, new}

    world.kube.change(PAUSES, "ns", "p", spec={**SPEC, **LEADING})
    world.passes(limit=5)

    assert wishes.among(frozenset({new, other})) == {P}
