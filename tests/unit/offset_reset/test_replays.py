"""An ``OffsetReset`` whose replay ends, pass by pass: what its status says, and what becomes of its group."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from support.fake_consumer import FakeConsumer
from support.killed import Killed
from support.reset_world import CREATED, T0, World
from tidegate.control.records import Hold, HoldKey, LimitKey
from tidegate.jobs.errors import RunnerFailure
from tidegate.kafka.model import TopicPartition
from tidegate.kube.ports import PAUSES, RESETS, KubeFailure, NotFound
from tidegate.offset_reset.pause_at_end import pause_spec
from tidegate.reset.model.plan import PartitionPlan, Plan
from tidegate.resources.base import parse_spec
from tidegate.resources.pause import ConsumerGroupPauseSpec, PauseMethod

UNTIL = {"records": 20}


class ReplayWorld(World):
    """Whose group has one member, with the agent, that reads ``per_s`` records a second. ``owner``: absent where the
    group was scaled to zero."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.owner = FakeConsumer(self.kafka, "payments", ["orders"], client_id="app", managed=True).start()
        self.clock.sleep(12)

    def replay(self, **spec: Any) -> None:
        self.ask(**{"until": UNTIL, **spec})

    def passes_to(self, phase: str, most: int = 200) -> None:
        """Passes until the status says that it is in this phase."""
        for _ in range(most):
            self.some_passes(1)
            if self.reset.get("phase") == phase:
                return
        raise AssertionError(self.reset)

    def slow_down(self) -> None:
        """A record each ten seconds."""
        self.owner.records_per_poll, self.owner.poll_s = 1, 10.0

    def speed_up(self) -> None:
        self.owner.records_per_poll, self.owner.poll_s = 10, 0.1

    @property
    def limits(self) -> dict[LimitKey, int]:
        return {key: limited.limit.offset for key, limited in self.kafka.control.read().limits.items()}

    @property
    def nothing_is_left(self) -> bool:
        gates = self.kafka.control.read()
        return not gates.limits and not gates.holds


@pytest.fixture
def replayed(tmp_path: Path) -> Iterator[ReplayWorld]:
    made = ReplayWorld(tmp_path)
    yield made
    made.executor.shutdown()
    made.kafka.close()


def test_it_replays_and_has_succeeded_only_once_the_group_is_back(replayed: ReplayWorld) -> None:
    replayed.replay()
    assert replayed.offset == 100
    replayed.slow_down()
    replayed.passes_to("Replaying")
    replay = replayed.reset["replay"]
    assert (replay["records"], replay["partitions"], replay["reached"]) == (20, 1, 0)
    assert replay["progress"] == f"{replay['percent']}% (0/1 partitions)"
    assert "app owns it, but has not reached the end yet" in replay["waitsFor"]
    assert replayed.condition("Complete")["status"] == "Unknown"
    assert replayed.condition("Reconciling")["reason"] == "Replaying"
    assert list(replayed.limits.values()) == [30]
    replayed.speed_up()
    replayed.passes_to("Succeeded")
    assert replayed.offset == 100
    assert (replayed.condition("Complete")["status"], replayed.condition("Complete")["reason"]) == ("True", "Returned")
    assert replayed.reset["replay"]["progress"] == "100% (1/1 partitions)"
    assert "waitsFor" not in replayed.reset["replay"]
    assert [o for p, o in replayed.owner.read if p == T0][-20:] == list(range(10, 30))
    assert replayed.nothing_is_left
    assert replayed.finished == {("Succeeded", "Returned"): 1}


def test_the_plan_counts_what_the_replay_reads_again(replayed: ReplayWorld) -> None:
    replayed.replay(approval="Manual")
    replayed.passes_to("AwaitingApproval")
    assert replayed.reset["plan"]["recordsReplayed"] == 20
    assert replayed.limits == {}
    replayed.approve()
    replayed.passes_to("Succeeded")
    assert replayed.offset == 100


def test_the_deadline_of_the_reset_ends_no_replay(replayed: ReplayWorld) -> None:
    replayed.replay(deadline="1m")
    replayed.slow_down()
    replayed.passes_to("Replaying")
    replayed.clock.sleep(100)
    replayed.some_passes(3)
    assert replayed.reset["phase"] == "Replaying"
    replayed.speed_up()
    replayed.passes_to("Succeeded")
    assert replayed.offset == 100


def test_a_replay_that_takes_too_long_is_rolled_back(replayed: ReplayWorld) -> None:
    replayed.replay(until={"records": 20, "within": "2m"})
    replayed.slow_down()
    replayed.passes_to("Replaying")
    began = datetime.fromisoformat(replayed.reset["replay"]["startedAt"])
    assert datetime.fromisoformat(replayed.reset["replay"]["endsBy"]) == began + timedelta(minutes=2)
    replayed.clock.sleep(130)
    replayed.passes_to("RolledBack")
    assert replayed.condition("Complete")["reason"] == "ReplayTimedOut"
    assert replayed.offset >= 100
    assert replayed.nothing_is_left


def test_an_operator_that_is_restarted_goes_on_with_the_replay(replayed: ReplayWorld) -> None:
    replayed.replay()
    replayed.slow_down()
    replayed.passes_to("Replaying")
    replayed.restart()
    replayed.some_passes(5)
    assert replayed.reset["phase"] == "Replaying"
    assert replayed.reset["application"].endswith("-1")
    replayed.restart()
    replayed.speed_up()
    replayed.passes_to("Succeeded")
    assert replayed.offset == 100
    assert replayed.nothing_is_left


def test_one_that_is_deleted_midway_takes_its_group_back(replayed: ReplayWorld) -> None:
    replayed.replay()
    replayed.slow_down()
    replayed.passes_to("Replaying")
    replayed.kube.delete(RESETS, "ns", replayed.name, replayed.clock.now().isoformat())
    replayed.speed_up()
    replayed.passes()
    assert not replayed.there
    assert replayed.offset == 100
    assert replayed.nothing_is_left


def test_limits_that_are_lost_with_the_control_topic_are_written_again(replayed: ReplayWorld) -> None:
    replayed.replay()
    replayed.slow_down()
    replayed.passes_to("Replaying")
    replayed.kafka.control.release(list(replayed.limits))
    replayed.some_passes(2)
    assert list(replayed.limits.values()) == [30]


def test_a_second_reset_of_the_group_waits_for_the_replay(replayed: ReplayWorld) -> None:
    replayed.replay()
    replayed.slow_down()
    replayed.passes_to("Replaying")
    first = replayed.name
    replayed.ask("second", to={"earliest": {}})
    replayed.some_passes(3)
    assert replayed.condition("Complete")["reason"] == "WaitingForReset"
    replayed.name = first
    replayed.speed_up()
    replayed.passes_to("Succeeded")
    replayed.name = "second"
    replayed.passes_to("Succeeded")


def test_a_replay_that_has_returned_cannot_be_undone(replayed: ReplayWorld) -> None:
    replayed.replay()
    replayed.passes_to("Succeeded")
    first = replayed.name
    replayed.ask("undo-it", to={"undo": first})
    replayed.passes_to("Failed")
    assert replayed.condition("Complete")["reason"] == "NothingToUndo"
    assert "has returned the group" in replayed.condition("Complete")["message"]


def test_without_agents_it_is_refused_before_anything_is_changed(replayed: ReplayWorld) -> None:
    replayed.owner.close()
    FakeConsumer(replayed.kafka, "payments", ["orders"], client_id="other").start()
    replayed.clock.sleep(60)
    replayed.replay()
    replayed.passes_to("Failed")
    assert replayed.condition("Complete")["reason"] == "NeedsAgents"
    assert "Nothing was changed" in replayed.condition("Complete")["message"]
    assert replayed.nothing_is_left


def test_a_replay_of_nothing_is_refused(replayed: ReplayWorld) -> None:
    replayed.replay(until={"offset": 10})
    replayed.passes_to("Failed")
    assert replayed.condition("Complete")["reason"] == "NothingToReplay"


def test_then_continue_goes_on_from_the_end(replayed: ReplayWorld) -> None:
    replayed.replay(until={"offset": 40, "then": "Continue"})
    replayed.passes_to("Succeeded")
    assert replayed.condition("Complete")["reason"] == "Continued"
    replayed.clock.sleep(10)
    assert [o for p, o in replayed.owner.read if p == T0][-90:] == list(range(10, 100))
    assert replayed.nothing_is_left


def test_the_end_is_never_beyond_where_the_group_returns_to(replayed: ReplayWorld) -> None:
    replayed.replay(until={"offset": 1000})
    replayed.slow_down()
    replayed.passes_to("Replaying")
    assert list(replayed.limits.values()) == [100]
    assert replayed.limits.keys() == {LimitKey("payments", "orders", 0, f"reset/{replayed.body['metadata']['uid']}/p")}


# --- then: Pause ------------------------------------------------------------------------------------------------------

AT_END: dict[str, Any] = {"offset": 40, "then": "Pause"}


def pause_of(replayed: ReplayWorld) -> Mapping[str, Any] | None:
    try:
        return replayed.kube.get(PAUSES, "ns", f"{replayed.name}-end")
    except NotFound:
        return None


def is_told_paused(replayed: ReplayWorld, *, generation: int | None = None) -> None:
    """As the operator says of the pause, once the gate is closed."""
    pause = pause_of(replayed)
    assert pause is not None
    held = HoldKey("payments", "orders", 0, "pause/ns/p-end")
    replayed.kafka.control.hold({held: Hold("the replay has ended", 30_000, "ns/kafka")})
    condition = {
        "type": "Paused",
        "status": "True",
        "reason": "Paused",
        "message": "",
        "lastTransitionTime": replayed.clock.now().isoformat(),
        "observedGeneration": pause["metadata"]["generation"] if generation is None else generation,
    }
    replayed.kube.replace_status(PAUSES, pause, {"conditions": [condition]})


def waits_for(replayed: ReplayWorld) -> str:
    return str(replayed.reset["replay"].get("waitsFor"))


def test_then_pause_leaves_the_group_at_the_end_by_a_pause_of_its_own(replayed: ReplayWorld) -> None:
    replayed.replay(until=AT_END, drainTimeout="7s")
    replayed.passes_to("Replaying")
    for _ in range(50):
        replayed.some_passes(1)
    pause = pause_of(replayed)
    assert pause is not None
    assert pause["spec"] == {
        "connectionRef": {"name": "kafka"},
        "group": "payments",
        "partitions": [{"topic": "orders", "partitions": [0]}],
        "reason": "the replay of OffsetReset p has ended here (until.then: Pause)",
        "method": "Agent",
        "drainTimeout": "7s",
    }
    assert parse_spec(ConsumerGroupPauseSpec, pause).method is PauseMethod.AGENT
    # Nothing goes on before somebody else holds what the run lets go of.
    assert replayed.reset["phase"] == "Replaying"
    assert list(replayed.limits.values()) == [40]
    assert waits_for(replayed) == "ConsumerGroupPause p-end is not Paused: the operator has not looked at it yet"
    assert waits_for(replayed) in replayed.condition("Reconciling")["message"]
    is_told_paused(replayed, generation=0)
    replayed.some_passes(3)
    assert replayed.reset["phase"] == "Replaying"

    is_told_paused(replayed)
    replayed.passes_to("Succeeded")

    assert replayed.condition("Complete")["reason"] == "Paused"
    assert "stay at its end" in replayed.condition("Complete")["message"]
    assert replayed.reset["replay"]["progress"] == "100% (1/1 partitions)"
    assert replayed.finished == {("Succeeded", "Paused"): 1}
    replayed.clock.sleep(20)
    assert [o for p, o in replayed.owner.read if p == T0][-30:] == list(range(10, 40))
    assert replayed.kafka.committed("payments", [T0])[T0] == 40
    gates = replayed.kafka.control.read()
    assert not gates.limits
    assert [key.holder for key in gates.holds] == ["pause/ns/p-end"]
    assert pause_of(replayed) is not None


def test_a_pause_that_was_created_before_the_operator_died_is_the_one_that_is_waited_for(
    replayed: ReplayWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    replayed.replay(until=AT_END)
    made = replayed.kube.make

    def die(*arguments: Any) -> Any:
        made(*arguments)
        raise Killed

    with monkeypatch.context() as dying:
        dying.setattr(replayed.kube, "make", die)
        with pytest.raises(Killed):
            replayed.passes_to("Succeeded")
    replayed.restart()
    replayed.some_passes(3)
    assert "is not Paused" in waits_for(replayed)
    is_told_paused(replayed)
    replayed.passes_to("Succeeded")


def test_a_group_that_can_not_be_paused_stays_at_the_end_however_long_that_takes(replayed: ReplayWorld) -> None:
    """Its replay was over in time."""
    replayed.replay(until={**AT_END, "within": "2m"})
    replayed.passes_to("Replaying")
    replayed.some_passes(30)
    replayed.clock.sleep(200)
    replayed.some_passes(30)
    assert replayed.reset["phase"] == "Replaying"
    assert "is not Paused" in waits_for(replayed)
    assert replayed.owner.read[-1] == (T0, 39)
    is_told_paused(replayed)
    replayed.passes_to("Succeeded")
    assert replayed.offset == 40


def test_a_pause_that_can_not_be_created_is_told_of_and_tried_again(
    replayed: ReplayWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    replayed.replay(until=AT_END)

    def refuse(*_: Any) -> Any:
        raise KubeFailure("create ConsumerGroupPause ns/p-end: 403 forbidden")

    with monkeypatch.context() as refused:
        refused.setattr(replayed.kube, "make", refuse)
        with pytest.raises(RunnerFailure, match="p-end can't be created"):
            replayed.passes_to("Succeeded")
        with pytest.raises(RunnerFailure):  # the loop tries again
            replayed.some_passes(1)
        assert "403 forbidden" in waits_for(replayed)
    replayed.some_passes(3)
    is_told_paused(replayed)
    replayed.passes_to("Succeeded")


def test_a_pause_of_somebody_else_with_its_name_keeps_it_from_beginning(replayed: ReplayWorld) -> None:
    other = {"connectionRef": {"name": "kafka"}, "group": "others"}
    replayed.kube.create(PAUSES, "ns", "p-end", other, CREATED)
    replayed.replay(until=AT_END)
    replayed.some_passes(5)
    assert replayed.condition("Stalled")["reason"] == "PauseExists"
    assert "ConsumerGroupPause p-end exists" in replayed.condition("Stalled")["message"]
    assert replayed.nothing_is_left
    replayed.kube.delete(PAUSES, "ns", "p-end", replayed.clock.now().isoformat())
    replayed.passes_to("Replaying")


def test_a_pause_takes_as_many_partitions_as_a_topic_has() -> None:
    def asked(numbers: Iterable[int], *topics: str) -> ConsumerGroupPauseSpec:
        rows = tuple(PartitionPlan(t, n, "id", 50, 10, 0, 100, end=40) for t in topics for n in numbers)
        plan = Plan("p", "payments", datetime(2026, 1, 1, tzinfo=UTC), rows)
        body = {"metadata": {"name": "p"}, "spec": {"connectionRef": {"name": "kafka"}}}
        return parse_spec(ConsumerGroupPauseSpec, {"spec": pause_spec(body, plan)})

    (most,) = asked([*range(100), 150], "orders").partitions or ()
    assert most.numbers == frozenset({*range(100), 150})
    (scattered,) = asked(range(0, 200, 2), "orders").partitions or ()
    assert (scattered.topic, scattered.numbers) == ("orders", None)
    assert asked([0], *(f"topic-{n}" for n in range(51))).partitions is None


class LateCommitter(FakeConsumer):
    """Whose application has not committed by itself what it was given last, as with gaps in the offsets before the end
    it never does. Behind a hold, agents ack what is committed: that is where they would go on."""

    def _commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        super()._commit({partition: min(offset, 35) for partition, offset in offsets.items()})

    was_held = False

    def _epoch_of_limit(self, partition: TopicPartition) -> int | None:
        limits = self._limits(partition)
        if limits and not self.was_held and self._obeyed.get(partition, -1) >= 0:
            return max(limited.epoch for limited in limits)
        return super()._epoch_of_limit(partition)

    def _ack(self, partition: TopicPartition, epoch: int) -> None:
        position = self._positions[partition]
        self.was_held = self.kafka.control.topics.gates.epoch(self.group_id, partition) is not None
        if self.was_held:
            self._positions[partition] = self.kafka.committed(self.group_id)[partition]
        super()._ack(partition, epoch)
        self._positions[partition] = position


def test_a_group_that_has_not_committed_up_to_the_end_is_paused_there_all_the_same(replayed: ReplayWorld) -> None:
    replayed.owner.close()
    replayed.owner = LateCommitter(replayed.kafka, "payments", ["orders"], client_id="late", managed=True).start()
    replayed.clock.sleep(12)
    replayed.replay(until=AT_END)
    replayed.passes_to("Replaying")
    replayed.some_passes(50)
    is_told_paused(replayed, generation=0)
    replayed.some_passes(5)  # in which the owner says where it is behind the pause
    is_told_paused(replayed)
    replayed.passes_to("Succeeded")
    assert replayed.condition("Complete")["reason"] == "Paused"
    assert replayed.offset == 40
    assert [o for p, o in replayed.owner.read if p == T0][-30:] == list(range(10, 40))
    assert not replayed.limits


def test_who_comes_to_own_a_partition_while_the_group_is_being_paused_reads_nothing(replayed: ReplayWorld) -> None:
    replayed.replay(until=AT_END)
    replayed.passes_to("Replaying")
    replayed.some_passes(30)
    replayed.owner.close()
    second = FakeConsumer(replayed.kafka, "payments", ["orders"], client_id="next", managed=True).start()
    replayed.some_passes(30)
    is_told_paused(replayed)
    replayed.passes_to("Succeeded")
    replayed.clock.sleep(30)
    assert second.read == []
    assert replayed.offset == 40


def test_limits_that_are_lost_while_the_group_is_being_paused_are_written_again(replayed: ReplayWorld) -> None:
    replayed.replay(until=AT_END)
    replayed.passes_to("Replaying")
    replayed.some_passes(30)
    replayed.kafka.control.release(list(replayed.limits))
    replayed.some_passes(3)
    assert list(replayed.limits.values()) == [40]
    is_told_paused(replayed)
    replayed.passes_to("Succeeded")
    assert not replayed.limits


@pytest.mark.parametrize("dies_in", range(1, 12))
def test_the_operator_may_die_at_each_step_of_the_end(replayed: ReplayWorld, dies_in: int) -> None:
    replayed.replay(until=AT_END)
    replayed.passes_to("Replaying")
    replayed.kube.dies_in = dies_in
    deaths = 0
    for _ in range(60):
        try:
            replayed.some_passes(1)
            there = pause_of(replayed)
            if there is not None and "status" not in there:
                is_told_paused(replayed)
        except Killed:
            deaths += 1
            replayed.restart()
        if replayed.reset["phase"] == "Succeeded":
            break
    assert replayed.condition("Complete")["reason"] == "Paused"
    replayed.kube.dies_in = None
    replayed.some_passes(3)
    replayed.clock.sleep(20)
    assert replayed.offset == 40
    assert [o for p, o in replayed.owner.read if p == T0][-30:] == list(range(10, 40))
    assert not replayed.limits
    assert replayed.finished == {("Succeeded", "Paused"): 1}


def test_a_pause_that_is_being_deleted_is_waited_for_and_named(replayed: ReplayWorld) -> None:
    replayed.replay(until=AT_END)
    replayed.passes_to("Replaying")
    replayed.some_passes(30)
    pause = pause_of(replayed)
    assert pause is not None
    replayed.kube.set_finalizers(PAUSES, pause, ["somebody/else"])
    replayed.kube.delete(PAUSES, "ns", "p-end", replayed.clock.now().isoformat())
    replayed.some_passes(3)
    assert waits_for(replayed) == "ConsumerGroupPause p-end is being deleted"


def test_one_that_is_deleted_while_its_group_is_being_paused_lets_it_go_on(replayed: ReplayWorld) -> None:
    replayed.replay(until=AT_END)
    replayed.passes_to("Replaying")
    replayed.some_passes(30)
    replayed.kube.delete(RESETS, "ns", "p", replayed.clock.now().isoformat())
    for _ in range(20):
        if replayed.there:
            replayed.some_passes(1)
    assert not replayed.there
    assert replayed.nothing_is_left
    replayed.clock.sleep(20)
    assert [o for p, o in replayed.owner.read if p == T0][-60:-30] == list(range(40, 70))


def test_one_whose_document_is_lost_while_its_group_is_being_paused_leaves_no_pause(replayed: ReplayWorld) -> None:
    """It fails, so nobody is told that the group is paused."""
    replayed.replay(until=AT_END)
    replayed.passes_to("Replaying")
    replayed.some_passes(30)
    assert pause_of(replayed) is not None
    for document in replayed.documents:
        document.unlink()
    replayed.some_passes(5)
    assert replayed.condition("Failed")["reason"] == "RunLost"
    assert pause_of(replayed) is None
    assert replayed.nothing_is_left
