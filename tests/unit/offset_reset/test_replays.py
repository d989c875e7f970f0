"""An ``OffsetReset`` whose replay ends, pass by pass: what its status says, and what becomes of its group."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from support.fake_kafka import FakeConsumer
from support.reset_world import T0, World
from tidegate.control.records import LimitKey
from tidegate.kube.ports import RESETS

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
