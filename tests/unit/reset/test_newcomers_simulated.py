"""Owners that come or change in the middle of a reset, and what is looked at only for the record."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from support.fake_consumer import FakeConsumer
from support.killed import Killed
from support.simulated_groups import (
    GROUP,
    KINDS,
    TOPIC,
    Kind,
    Outage,
    Process,
    World,
    assigned_to_itself,
)
from tidegate.kafka.errors import KafkaFailure, NotAuthorized, Unavailable
from tidegate.kafka.model import GroupState, TopicPartition
from tidegate.reset.applying.commits import RunCommits
from tidegate.reset.applying.gates import Reopened, RunGates
from tidegate.reset.runs import job
from tidegate.resources.reset import ResetPhase, Way


def _kind(name: str) -> Kind:
    return next(kind for kind in KINDS if kind.name == name)


def _newcomer(world: World, name: str, **settings: Any) -> FakeConsumer:
    kind = world.kind
    consumer = FakeConsumer(
        world.kafka, GROUP, [TOPIC], client_id=name, protocol=kind.protocol, assignor=kind.assignor, **settings
    )
    world.consumers.append(consumer.start())
    return consumer


class _Dies(Process):
    """At the first call of a name, before or after it."""

    def __init__(self, at: str, *, after: bool) -> None:
        super().__init__(after=after)
        self._at = at

    def call(self, name: str, do: Callable[[], Any]) -> Any:
        if self.dies_at is None and name.endswith(self._at):
            self.dies_at = len(self.calls) + 1
        return super().call(name, do)


@pytest.mark.parametrize("dies", [False, True], ids=["lives", "dies"])
@pytest.mark.parametrize("managed", [False, True], ids=["without the agent", "with the agent"])
@pytest.mark.parametrize("kind", ["managed-cooperative", "managed-consumer"])
def test_an_owner_that_comes_after_the_others_have_obeyed_is_reset_as_well(
    kind: str, managed: bool, dies: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the agent it reads the old offset, delivers and commits behind closed gates."""
    world = World(_kind(kind), tmp_path)
    world.create()
    obeyed = RunGates.wait_obeyed
    came: list[FakeConsumer] = []

    def wait_obeyed(self: RunGates, epochs: Mapping[TopicPartition, int]) -> str | None:
        why = obeyed(self, epochs)
        if not came:
            came.append(_newcomer(world, "c3", **(dict(world.kind.consumer) if managed else {})))
            world.clock.sleep(9)
            assert came[0].positions.keys() & world.targets.keys()
        return why

    monkeypatch.setattr(RunGates, "wait_obeyed", wait_obeyed)
    if dies:
        with pytest.raises(Killed):
            world.execute(_Dies("transaction.commit", after=True))
        world.clock.sleep(1)
    result = world.execute()
    assert result is not None
    assert result.phase is ResetPhase.SUCCEEDED
    world.settle()
    world.check_reset(at_most=3)


def test_owners_that_were_replaced_before_the_commit_are_found_by_a_successor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """KIP-848 moves partitions at any time: none of those who were to be made to leave is a member any more."""
    world = World(_kind("consumer"), tmp_path)
    world.create()
    commit = RunCommits.commit
    replaced = False

    def replace_owners(self: RunCommits, *args: Any, **settings: Any) -> None:
        nonlocal replaced
        if not replaced:
            replaced = True
            for consumer in list(world.consumers):
                consumer.crash()
                world.kafka._remove(world.kafka._group(GROUP), consumer.member_id)
            for number in range(3):
                _newcomer(world, f"n{number}")
            world.clock.sleep(4)
        commit(self, *args, **settings)

    monkeypatch.setattr(RunCommits, "commit", replace_owners)
    with pytest.raises(Killed):
        world.execute(_Dies("membership.leave", after=False))
    result = world.execute()
    assert result is not None
    assert result.phase is ResetPhase.SUCCEEDED
    world.settle()
    world.check_reset(at_most=2)


@pytest.mark.parametrize("failure", [NotAuthorized("read topic __tidegate: no"), Unavailable("no answer")], ids=repr)
def test_who_goes_on_is_looked_at_for_the_record_only(
    failure: KafkaFailure, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def reopened(_: RunGates, epochs: Mapping[TopicPartition, int]) -> Reopened:
        raise failure

    monkeypatch.setattr(RunGates, "reopened", reopened)
    world = World(_kind("managed-eager"), tmp_path)
    world.create()
    result = world.execute()
    assert result is not None
    assert (result.phase, result.rounds) == (ResetPhase.SUCCEEDED, 1)
    world.settle()
    world.check_reset()


def test_a_deadline_that_passes_once_the_gates_are_open_undoes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def reopened(self: RunGates, epochs: Mapping[TopicPartition, int]) -> Reopened:
        self._pace.extend(-1)
        return Reopened(frozenset(), frozenset())

    monkeypatch.setattr(RunGates, "reopened", reopened)
    world = World(_kind("managed-eager"), tmp_path)
    world.create()
    result = world.execute()
    assert result is not None
    assert result.phase is ResetPhase.SUCCEEDED
    world.settle()
    world.check_reset()


@pytest.mark.parametrize("dies", [False, True], ids=["an outage", "a death"])
def test_a_consumer_that_assigned_itself_is_noticed_although_the_watch_is_cut_short(dies: bool, tmp_path: Path) -> None:
    world = World(_kind("eager"), tmp_path)
    positions = assigned_to_itself(world)
    world.create()

    def watches(name: str) -> bool:
        return name == "kafka.committed" and world.store.load().journal[-1].phase is ResetPhase.VERIFYING

    if dies:
        with pytest.raises(Killed):
            world.execute(_Dies("transaction.commit", after=True))
        world.clock.sleep(6)
        result = world.execute()
    else:
        result = world.execute(Outage(world.clock, 0, 8.0, when=watches))
    assert result is not None
    assert (result.phase, result.reason) == (ResetPhase.ROLLED_BACK, "Overwritten")
    assert world.kafka.committed(GROUP) == positions


@pytest.mark.parametrize("kind", ["eager", "cooperative"])
def test_putting_back_takes_as_long_as_owners_are_held_and_watched(kind: str, tmp_path: Path) -> None:
    world = World(_kind(kind), tmp_path)
    world.create(deadline=timedelta(minutes=10), in_flight=timedelta(seconds=150))
    with pytest.raises(Killed):
        world.execute(_Dies("transaction.commit", after=True))
    world.clock.sleep(2)
    result = job.settle(world.store, world.kafka, world.clock, reason="Superseded", message="another is asked for")
    assert result is not None
    assert (result.phase, result.reason) == (ResetPhase.ROLLED_BACK, "Superseded")


def test_a_pod_that_is_added_behind_closed_gates_costs_no_second_round(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its rebalance hides the owners for a moment; all of them run the agent."""
    world = World(_kind("managed-eager"), tmp_path)
    world.create()
    obeyed = RunGates.wait_obeyed
    came: list[FakeConsumer] = []

    def wait_obeyed(self: RunGates, epochs: Mapping[TopicPartition, int]) -> str | None:
        why = obeyed(self, epochs)
        if not came:
            came.append(_newcomer(world, "c3", **dict(world.kind.consumer)))
        return why

    monkeypatch.setattr(RunGates, "wait_obeyed", wait_obeyed)
    result = world.execute()
    assert result is not None
    assert (result.phase, result.way, result.rounds) == (ResetPhase.SUCCEEDED, Way.GATED, 1)
    world.settle()
    world.check_reset(at_most=2)


@pytest.mark.parametrize("dies", [False, True], ids=["lives", "dies"])
@pytest.mark.parametrize("version", [0, 3])
def test_a_group_of_an_assignor_that_is_not_known_is_handed_over(version: int, dies: bool, tmp_path: Path) -> None:
    """Those that applications bring; what an assignment of it holds is not known."""
    world = World(Kind("own", Way.HANDOVER, assignor="own", consumer=(("subscription_version", version),)), tmp_path)
    world.create()
    if dies:
        with pytest.raises(Killed):
            world.execute(_Dies("transaction.commit", after=True))
    result = world.execute()
    assert result is not None
    assert (result.phase, result.way) == (ResetPhase.SUCCEEDED, Way.HANDOVER)
    world.settle()
    world.check_reset(at_most=2)


def test_a_group_that_does_not_come_to_rest_is_waited_for_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It always tells who owns what, so it is reset all the same: by a successor, which looks at several steps."""
    world = World(_kind("consumer"), tmp_path)
    described = world.kafka._described
    monkeypatch.setattr(
        world.kafka, "_described", lambda group_id: replace(described(group_id), state=GroupState.RECONCILING)
    )
    world.create(deadline=timedelta(minutes=10))
    with pytest.raises(Killed):
        world.execute(_Dies("transaction.commit", after=True))
    followed_s = world.clock.monotonic()
    result = world.execute()
    assert result is not None
    assert result.phase is ResetPhase.SUCCEEDED, result
    assert 60 < world.clock.monotonic() - followed_s < 2 * 60
    world.settle()
    world.check_reset(at_most=2)


@pytest.mark.parametrize("aim", ["back", "ahead"])
def test_a_consumer_that_assigns_itself_partitions_after_the_reset_begins_at_the_target(
    aim: str, tmp_path: Path
) -> None:
    world = World(_kind("eager"), tmp_path)
    if aim == "ahead":
        world.aim_ahead()
    assigned_to_itself(world, every_s=math.inf)
    world.create()
    world.clock.after(2.0, lambda: world.kafka.commit_directly(GROUP, {p: o + 3 for p, o in world.targets.items()}))
    result = world.execute()
    assert result is not None
    assert (result.phase, result.rounds) == (ResetPhase.SUCCEEDED, 1)


def test_a_deadline_that_passes_while_nobody_commits_undoes_nothing(tmp_path: Path) -> None:
    world = World(_kind("eager"), tmp_path)
    assigned_to_itself(world, every_s=math.inf)
    world.create(deadline=timedelta(seconds=4))
    result = world.execute()
    assert result is not None
    assert result.phase is ResetPhase.SUCCEEDED
