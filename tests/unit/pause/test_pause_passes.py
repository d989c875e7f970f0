"""A pause's passes, one by one: what is written before what is done, and what a process that dies leaves behind."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace

import pytest

from support.fake_consumer import FakeConsumer
from support.fake_kube import FakeKube
from support.killed import Killed
from support.observed import freeze, observe
from support.pause_world import CREATED, SPEC, World, condition
from tidegate.control.records import Ack, Hold, HoldKey
from tidegate.kafka.errors import NotAuthorized, Unavailable
from tidegate.kafka.model import TopicPartition
from tidegate.kube.ports import PAUSES
from tidegate.pause.plan import FINALIZER
from tidegate.resources.pause import PausePhase


def test_the_intent_is_written_before_what_is_done(world: World) -> None:
    world.ask()
    world.passes()
    assert world.steps.log == ["status Pausing 0/2", "finalizer on", "hold 2", "status Paused 2/2"]
    assert world.phase == "Paused"

    world.kube.delete(PAUSES, "ns", "p", CREATED)
    world.steps.log.clear()
    world.passes()
    assert world.steps.log == ["status Resuming 0/2", "release 2", "finalizer off"]
    assert world.body is None
    assert world.held == []
    assert world.kube.happenings_of("p")[-1].message == "this pause is deleted and holds nothing"


@pytest.mark.parametrize("dies_in", range(7))
def test_a_process_may_die_before_any_step(dies_in: int) -> None:
    world = World()
    world.ask()
    world.steps.dies_in = dies_in
    try:
        world.passes()
        world.kube.delete(PAUSES, "ns", "p", CREATED)
        world.passes()
        pytest.fail(f"there are only {len(world.steps.log)} steps")
    except Killed:
        world.steps.dies_in = None
    world.reconciler = world.fresh_reconciler()

    body = world.body
    if body is not None and not body["metadata"].get("deletionTimestamp"):
        world.passes()
        assert world.phase == "Paused"
        assert len(world.held) == 2
        assert [step for step in world.steps.log if step.startswith("hold")] == ["hold 2"], "held twice"
        world.kube.delete(PAUSES, "ns", "p", CREATED)
    world.passes()
    assert world.body is None
    assert world.held == []
    world.close()


def test_a_hold_that_is_the_topics_first_record_is_written_again_also_by_a_successor(world: World) -> None:
    """Its writer does so at once, and may die before. Agents ack epoch 0 for gates that they know nothing of."""
    world.ask()
    world.passes()
    first, second = world.held
    gates = world.control.topics.gates
    gates.take(first, gates.holds[first].hold, 0)
    world.reconciler = world.fresh_reconciler()

    world.passes()

    assert world.control.topics.gates.holds[first].epoch > world.control.topics.gates.holds[second].epoch
    assert world.steps.log[-1] == "status Paused 2/2"


def test_what_was_seen_before_a_write_does_not_tell_what_is_held(world: World) -> None:
    world.reconciler = world.fresh_reconciler(tick_s=60)
    world.ask()

    async def passes() -> None:
        for _ in range(6):
            assert world.body is not None
            await world.reconciler.reconcile(world.body)

    asyncio.run(passes())

    assert [step for step in world.steps.log if step.startswith("hold")] == ["hold 2"]
    assert world.phase == "Paused"


def test_holds_of_a_lost_control_topic_are_written_again_and_only_then(world: World) -> None:
    world.ask()
    world.passes()
    before = len(world.control.writes)
    world.passes()
    assert len(world.control.writes) == before

    world.control.lose()
    world.passes()

    assert len(world.held) == 2
    assert world.phase == "Paused"


def test_a_write_whose_answer_was_lost_is_looked_for_before_it_is_done_again(world: World) -> None:
    hold = world.control.hold

    def lost(holds: Mapping[HoldKey, Hold]) -> Mapping[HoldKey, int]:
        hold(holds)
        world.control.hold = hold  # type: ignore[method-assign]
        raise Unavailable("no answer")

    world.control.hold = lost  # type: ignore[method-assign]
    world.ask()
    world.passes()

    assert world.phase == "Paused"
    assert [step for step in world.steps.log if step.startswith("hold")] == ["hold 2"]


def test_a_right_that_is_missing_only_to_write_is_told_and_tried_again(world: World) -> None:
    hold = world.control.hold

    def refused(holds: Mapping[HoldKey, Hold]) -> Mapping[HoldKey, int]:
        raise NotAuthorized("write to topic __tidegate: TOPIC_AUTHORIZATION_FAILED")

    world.control.hold = refused  # type: ignore[method-assign]
    world.ask()
    world.passes()
    assert world.body is not None
    conditions = {c["type"]: c for c in world.body["status"]["conditions"]}
    assert conditions["Stalled"]["reason"] == "ControlTopicsUnusable"
    assert "Write" in conditions["Stalled"]["message"]
    live = world.live.get("ns", "kafka")
    assert live is not None
    assert live.topics is not None
    assert not live.topics.usable

    world.control.hold = hold  # type: ignore[method-assign]
    asyncio.run(asyncio.sleep(0.02))
    world.passes()
    world.passes()
    assert world.phase == "Paused"
    live = world.live.get("ns", "kafka")
    assert live is not None
    assert live.topics is not None
    assert live.topics.usable


def test_what_prometheus_is_told_of_pauses_goes_with_them(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def metric(name: str, **labels: str) -> float | None:
        return world.metrics.registry.get_sample_value(name, labels)

    monkeypatch.setattr("time.time", lambda: world.clock.now().timestamp())
    world.ask()
    world.ask("q", partitions=[{"topic": "orders", "partitions": [1]}])
    world.passes("p")
    world.clock.sleep(600)
    world.passes("q")
    world.clock.sleep(3600)
    assert metric("tidegate_pauses", phase="Paused") == 2
    assert metric("tidegate_paused_partitions") == 3
    assert metric("tidegate_oldest_pause_age_seconds") == pytest.approx(4200, abs=5)

    world.ask("r", group="others")
    consumer = FakeConsumer(world.kafka, "others", ["orders"], auto_commit_s=None).start()
    world.clock.sleep(10)
    for _ in range(3):
        world.passes("r")
        world.clock.sleep(60)
    assert world.phase_of("r") == "Degraded"
    assert metric("tidegate_pauses", phase="Degraded") == 1
    consumer.close()

    for name in ("p", "q", "r"):
        body = world.body_of(name)
        assert body is not None
        world.drop(name)
        world.passes(name)
        asyncio.run(world.reconciler.forget(body))
    assert [metric("tidegate_pauses", phase=phase) for phase in PausePhase] == [0] * len(PausePhase)
    assert (metric("tidegate_paused_partitions"), metric("tidegate_oldest_pause_age_seconds")) == (0, 0)


def test_a_finalizer_of_ours_is_the_only_one_that_is_touched(world: World) -> None:
    world.ask()
    body = world.body
    assert body is not None
    FakeKube.set_finalizers(world.kube, PAUSES, body, ["others/theirs"])
    world.passes()
    assert world.body is not None
    assert world.body["metadata"]["finalizers"] == ["others/theirs", FINALIZER]
    world.control.ack("payments", "orders", 0, Ack(0, 0, "nobody"))
    world.kube.delete(PAUSES, "ns", "p", CREATED)
    world.passes()
    assert world.body is not None
    assert world.body["metadata"]["finalizers"] == ["others/theirs"]


def test_what_is_wrong_with_the_connection_is_waited_for_and_what_holds_stays(world: World) -> None:
    world.ask()
    world.passes()
    [live] = world.live
    world.live.put(replace(live, trouble=("Unreachable", "nobody answers")))

    world.passes()

    state, reason, message = condition(world, "Paused")
    assert (state, reason) == ("Unknown", "WaitingForConnection")
    assert "KafkaConnection kafka is not ready (Unreachable)" in message
    assert (world.phase, len(world.held)) == ("Paused", 2)
    world.live.put(live)
    world.passes()
    assert condition(world, "Paused")[0] == "True"


def test_through_a_connection_that_only_observes_nothing_is_paused_and_the_status_says_so(world: World) -> None:
    observe(world.live, world.kafka)
    world.ask()

    world.passes()

    assert world.steps.log == ["status Pending"]
    assert world.held == []
    assert world.body is not None
    told = {c["type"]: c for c in world.body["status"]["conditions"]}
    assert (told["Paused"]["status"], told["Paused"]["reason"]) == ("Unknown", "Observing")
    assert "KafkaConnection kafka only observes" in told["Paused"]["message"]

    observe(world.live, world.kafka, only=False)
    world.passes()
    assert (world.phase, len(world.held)) == ("Paused", 2)


def test_a_pause_that_holds_when_its_connection_begins_to_observe_ends_as_before(world: World) -> None:
    world.ask()
    world.passes()
    observe(world.live, world.kafka)
    world.passes()
    assert (world.phase, len(world.held)) == ("Paused", 2)

    world.kube.delete(PAUSES, "ns", "p", CREATED)
    world.passes()

    assert world.body is None
    assert world.held == []


def test_through_a_frozen_connection_nothing_is_paused_and_what_holds_stays_and_can_be_resumed(world: World) -> None:
    freeze(world.live)
    world.ask()
    world.passes()

    assert world.held == []
    assert world.body is not None
    told = {c["type"]: c for c in world.body["status"]["conditions"]}
    assert (told["Paused"]["status"], told["Paused"]["reason"]) == ("Unknown", "Frozen")
    assert "by alice" in told["Paused"]["message"]

    freeze(world.live, thaw=True)
    world.passes()
    freeze(world.live)
    world.passes()
    assert (world.phase, len(world.held)) == ("Paused", 2)

    world.kube.delete(PAUSES, "ns", "p", CREATED)
    world.passes()
    assert world.body is None
    assert world.held == []


def test_a_process_that_takes_over_writes_nothing_where_nothing_has_changed(world: World) -> None:
    world.kafka.commit_directly("payments", {TopicPartition("orders", 0): 0, TopicPartition("orders", 1): 0})
    world.ask()
    world.passes()
    world.passes()
    before, written = world.body, world.kube.writes
    assert world.phase == "Paused"
    assert before is not None
    assert [row["lag"] for row in before["status"]["partitions"]] == [0, 0]

    # Its lag grows, and may have been told just before.
    world.kafka.fill("orders", 3)
    world.reconciler = world.fresh_reconciler()
    for _ in range(3):
        world.passes()

    assert world.body == before
    assert world.kube.writes == written


def test_a_process_that_does_not_see_kafka_at_first_does_not_wait_again_for_who_cannot_be_named(world: World) -> None:
    """A consumer that assigned its partition itself, and may have died: the process before has waited for it."""
    world.ask(partitions=[{"topic": "orders", "partitions": [0]}])
    world.passes()
    world.control.ack("payments", "orders", 0, Ack(0, 12, ""))
    world.passes()
    world.clock.sleep(60)
    world.passes()
    assert world.phase == "Paused"

    world.reconciler = world.fresh_reconciler()
    live = next(iter(world.live))
    world.live.drop("ns", "kafka", uid=live.uid)
    world.passes()
    world.live.put(live)
    world.passes(limit=1)

    assert world.phase == "Paused"


def test_many_pauses_at_once_ask_kafka_for_all_of_them_together(world: World) -> None:
    """Half of them name a topic, half stand for all that their group reads."""
    world.reconciler = world.fresh_reconciler(tick_s=60)
    names = [f"p{number}" for number in range(40)]
    for number, name in enumerate(names):
        world.kafka.commit_directly(f"g{number}", {TopicPartition("orders", 0): 0})
        asked = {"partitions": [{"topic": "orders"}]} if number % 2 else {}
        spec = {"connectionRef": {"name": "kafka"}, "group": f"g{number}", **asked}
        world.kube.create(PAUSES, "ns", name, spec, CREATED)

    async def pass_over_each() -> None:
        bodies = [body for name in names if (body := world.body_of(name)) is not None]
        await asyncio.gather(*(world.reconciler.reconcile(body) for body in bodies))

    for _ in range(5):
        asyncio.run(pass_over_each())

    assert {world.phase_of(name) for name in names} == {"Paused"}
    assert len(world.kafka.calls) < len(names), world.kafka.calls


def test_what_a_pause_holds_whose_spec_can_not_be_read_any_more_is_released_when_it_is_deleted(world: World) -> None:
    """As after a roll-back: its holds say whose they are."""
    world.ask()
    world.passes()
    assert len(world.held) == 2
    world.kube.change(PAUSES, "ns", "p", spec={**SPEC, "method": "ByANewerVersion"})
    world.passes()
    assert condition(world, "Stalled")[1] == "InvalidSpec"
    assert len(world.held) == 2
    world.drop()
    world.passes()
    assert (world.body, world.held) == (None, [])
    assert [event.reason for event in world.kube.happenings_of("p") if event.reason == "HoldsLeft"] == []


def test_a_hold_of_a_newer_version_holds_and_is_not_written_anew(world: World) -> None:
    world.ask()
    world.passes()
    holds = world.control.topics.gates.holds
    newer = {key: replace(held.hold, version=2, reason="as a newer version says it") for key, held in holds.items()}
    epochs = world.control.hold(newer)
    world.reconciler = world.fresh_reconciler()
    steps = len(world.steps.log)

    world.passes()

    assert world.phase == "Paused"
    assert not [step for step in world.steps.log[steps:] if step.startswith("hold")]
    assert {key: held.epoch for key, held in world.control.topics.gates.holds.items()} == epochs

    world.drop()
    world.passes()

    assert (world.body, world.held) == (None, [])
