"""In whose name a reset is recorded: as the resources say, whatever its document says and whoever ends it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import pytest

from support.killed import Killed
from support.reset_world import T0, World
from tidegate.audit.codec import ATTRIBUTION_VARIABLE, attribution_of
from tidegate.audit.records import Action, Actor, Attribution, AuditTopic, Moved
from tidegate.connection.live import Live
from tidegate.jobs.runner import Launch, RunnerState, RunnerStatus
from tidegate.kafka.errors import NotAuthorized
from tidegate.kube.ports import RESETS
from tidegate.reset.binding import Binding
from tidegate.reset.confined import ConfinedRunStore
from tidegate.reset.directory_store import DirectoryRunStore
from tidegate.reset.runs import job
from tidegate.reset.runs.in_process import ConfinedLaunch

LOG = AuditTopic("__tidegate_audit")


class Recorded(World):
    """Jobs act in whose name they are told, by their environment as in Spark."""

    def __init__(self, folder: Path, topic: AuditTopic | None = LOG) -> None:
        super().__init__(folder)
        self.kafka.audit.topics.add(LOG.name)
        self.launches: list[Launch] = []
        live = self.live.get("ns", "kafka")
        assert isinstance(live, Live)
        self.live.put(replace(live, audit=topic))

    def carry_out(self, launch: Launch) -> None:
        self.launches.append(launch)
        store = DirectoryRunStore(self.folder / "runs", launch.store.rpartition("/")[2], clock=self.clock)
        bound = ConfinedRunStore(
            store, None, Binding.of_environment(launch.environment), attribution_of(launch.environment)
        )
        self.end(launch, lambda: job.execute(bound, self.kafka, self.clock))


def test_who_asked_and_who_approved_are_recorded_with_the_digest(tmp_path: Path) -> None:
    world = Recorded(tmp_path)
    world.ask(requester="joe", approval="Manual")
    world.passes()
    assert world.kafka.audit.changes(LOG.name) == []
    world.approve(approver="ann")
    world.passes()
    assert world.reset["phase"] == "Succeeded"
    [change] = world.kafka.audit.changes(LOG.name)
    assert change.by == Actor("OffsetReset", "p", "ns")
    assert (change.requester, change.approver) == ("joe", "ann")
    assert change.plan == change.approved == world.reset["digest"] == world.reset["approvedDigest"]
    assert (change.action, change.offsets) == (Action.RESET, {T0: Moved(50, 10)})


def test_a_launch_carries_the_same_for_jobs_in_the_operator_and_elsewhere(tmp_path: Path) -> None:
    world = Recorded(tmp_path)
    world.ask(requester="joe")
    world.passes()
    launch = world.launches[-1]
    assert isinstance(launch, ConfinedLaunch)
    assert launch.confines is not None
    said = attribution_of(launch.environment)
    assert said == launch.confines.attribution == Attribution(LOG, Actor("OffsetReset", "p", "ns"), requester="joe")


def test_without_an_audit_topic_a_launch_says_nothing(tmp_path: Path) -> None:
    world = Recorded(tmp_path, topic=None)
    world.ask()
    world.passes()
    assert ATTRIBUTION_VARIABLE not in world.launches[-1].environment
    assert not world.kafka.audit.values


def test_an_undo_is_recorded_as_one(tmp_path: Path) -> None:
    world = Recorded(tmp_path)
    world.ask("first")
    world.passes()
    world.ask("second", to={"undo": "first"})
    world.passes()
    first, second = world.kafka.audit.changes(LOG.name)
    assert (second.action, second.by.name, second.offsets) == (Action.UNDO, "second", {T0: Moved(10, 50)})
    assert first.id != second.id


def test_what_the_operator_puts_back_of_a_deleted_reset_is_recorded_in_its_name(tmp_path: Path) -> None:
    class Dying(Recorded):
        def carry_out(self, launch: Launch) -> None:
            store = DirectoryRunStore(self.folder / "runs", launch.store.rpartition("/")[2], clock=self.clock)
            bound = ConfinedRunStore(store, None, None, attribution_of(launch.environment))
            with patch.object(bound, "finish", side_effect=Killed), pytest.raises(Killed):
                job.execute(bound, self.kafka, self.clock)
            # Whoever looks finds it at work, until it is stopped.
            self.runner.states[launch.name] = RunnerStatus(RunnerState.RUNNING)

    world = Dying(tmp_path)
    world.ask(requester="joe")
    world.some_passes(5)
    assert world.offset == 10
    world.kube.delete(RESETS, "ns", "p", world.clock.now().isoformat())
    world.passes()
    assert not world.there
    assert world.offset == 50
    first, second = world.kafka.audit.changes(LOG.name)
    assert (first.action, second.action) == (Action.RESET, Action.ROLLBACK)
    assert (second.by, second.requester) == (Actor("OffsetReset", "p", "ns"), "joe")
    assert second.offsets == {T0: Moved(10, 50)}


def test_a_required_record_that_cannot_be_written_fails_the_reset_and_says_why(tmp_path: Path) -> None:
    world = Recorded(tmp_path, AuditTopic(LOG.name, required=True))
    world.kafka.audit.refuses[LOG.name] = NotAuthorized("allow the principal Write on it")
    world.ask()
    world.passes()
    assert (world.reset["phase"], world.condition("Failed")["reason"]) == ("Failed", "NotRecorded")
    assert "allow the principal Write on it" in world.condition("Failed")["message"]
    assert world.offset == 50


def test_a_commit_without_a_record_is_told_of_in_the_condition(tmp_path: Path) -> None:
    world = Recorded(tmp_path)
    world.kafka.audit.refuses[LOG.name] = NotAuthorized("allow the principal Write on it")
    world.ask()
    world.passes()
    assert (world.reset["phase"], world.offset) == ("Succeeded", 10)
    assert "1 commit(s) of this run were not recorded" in world.condition("Complete")["message"]
