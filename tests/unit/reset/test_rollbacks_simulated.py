"""Resets that fail put the offsets back."""

from __future__ import annotations

from datetime import timedelta
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from support.fake_kafka import FakeHold
from support.killed import Killed
from support.simulated_groups import (
    GROUP,
    KINDS,
    MANAGED_NOT_WAITING,
    PARTITIONS,
    RESET,
    DiesAt,
    Kind,
    Mortal,
    Outage,
    Process,
    World,
    calls_of_a_whole_run,
)
from tidegate.kafka.errors import NotAuthorized, Unavailable
from tidegate.kafka.model import TopicPartition
from tidegate.reset.applying.rejoins import Rejoins
from tidegate.reset.applying.rounds import MAX_ROUNDS
from tidegate.reset.runs import job
from tidegate.resources.reset import ResetPhase


def test_rounds_that_never_hold_come_to_an_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is committed, and its join was not held to the end."""
    monkeypatch.setattr(FakeHold, "lapsed", property(lambda _: True))
    world = World(KINDS[3], tmp_path)
    world.create(deadline=timedelta(hours=1))

    result = world.execute()

    assert result is not None
    assert (result.phase, result.reason) == (ResetPhase.FAILED, "NotPutBack")
    assert "could not hold the join of group" in result.message
    assert result.rounds <= 2 * MAX_ROUNDS


def test_where_it_was_never_certain_that_owners_let_go_the_targets_are_put_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They do read on from the targets; what they commit then is no reason to leave them there."""
    world = World(next(k for k in KINDS if k.name == "cooperative"), tmp_path)
    world.kafka.max_size = 3  # so that nobody leads the group
    world.create()
    looks, kept = count(1), Rejoins.kept

    def unsure(rejoins: Rejoins) -> frozenset[TopicPartition]:
        return frozenset(world.targets) if next(looks) <= MAX_ROUNDS else kept(rejoins)

    monkeypatch.setattr(Rejoins, "kept", unsure)
    before = world.kafka.committed(GROUP)
    result = world.execute()
    assert result is not None
    assert (result.phase, result.reason) == (ResetPhase.ROLLED_BACK, "Overwritten")
    assert f"{len(RESET)} committed offset(s) were restored" in result.message
    world.settle()
    for partition in RESET:
        last = max((b for c in world.consumers for b in c.began if b.partition == partition), key=lambda b: b.at_s)
        assert last.offset >= before[partition], partition


def test_a_run_that_fails_puts_everything_back(tmp_path: Path) -> None:
    """Somebody outside commits an old position over one partition, again and again: the others go back too."""
    world = World(KINDS[3], tmp_path)
    world.create()
    stubborn = RESET[0]
    before = world.kafka.committed(GROUP)

    def overwrite() -> None:
        if world.producing:
            world.kafka.commit_directly(GROUP, {stubborn: 1})
            world.clock.after(0.2, overwrite)

    world.clock.after(0.2, overwrite)
    result = world.execute()
    assert result is not None
    assert (result.phase, result.reason) == (ResetPhase.ROLLED_BACK, "Overwritten")
    after = world.kafka.committed(GROUP)
    for partition in PARTITIONS:
        if partition != stubborn:
            assert after[partition] >= before[partition], f"{partition} was left at the target"


def test_nothing_committed_means_nothing_changed(tmp_path: Path) -> None:
    world = World(KINDS[0], tmp_path)
    world.create(deadline=timedelta(seconds=60))
    world.kafka.fail("hold", *[Unavailable("away")] * 2000)
    result = world.execute()
    assert result is not None
    assert (result.phase, result.reason) == (ResetPhase.FAILED, "KafkaUnavailable")
    assert "away; the run's deadline" in result.message
    assert "Nothing was changed" in result.message
    # As often as it may have been tried: what is done to a group is told once.
    journal = world.store.load().journal
    assert [entry.round for entry in journal if entry.phase is ResetPhase.PAUSING] == [1, 0]


def test_settle_puts_back_what_a_dead_writer_committed(tmp_path: Path) -> None:
    calls = calls_of_a_whole_run(KINDS[0], tmp_path / "whole")
    committed = max(n for n, name in enumerate(calls, 1) if name.endswith("transaction.commit"))
    world = World(KINDS[0], tmp_path / "run")
    world.create()
    before = world.kafka.committed(GROUP)
    with pytest.raises(Killed):
        world.execute(Process(committed, after=True))
    result = job.settle(world.store, world.kafka, world.clock, reason="Deleted", message="the policy was deleted")
    assert (result.phase, result.reason) == (ResetPhase.ROLLED_BACK, "Deleted")
    assert all(world.kafka.committed(GROUP)[p] >= before[p] for p in RESET)
    world.settle()
    world.check_nothing_missing()


def test_a_clock_that_is_set_keeps_no_offset_from_being_put_back(tmp_path: Path) -> None:
    world = World(KINDS[3], tmp_path)
    world.create()
    before = world.kafka.committed(GROUP)
    with pytest.raises(Killed):
        world.execute(DiesAt(lambda name: name == "kafka.writer.transaction.exit"))
    world.clock.sleep(2)

    def set_clock() -> None:
        world.clock._start += timedelta(hours=1)

    outage = Outage(world.clock, 0, 0.0, began=set_clock, when=lambda name: name == "kafka.writer.transaction.send")
    kafka: Any = Mortal(world.kafka, outage, "kafka")
    result = job.settle(world.store, kafka, world.clock, reason="Deleted", message="the policy was deleted")

    assert outage.until_s is not None
    assert result.phase is ResetPhase.ROLLED_BACK, result
    assert all(world.kafka.committed(GROUP)[p] >= before[p] for p in RESET)


def test_a_fence_does_not_wait_for_a_kafka_that_is_away(tmp_path: Path) -> None:
    """Its run may be deleted meanwhile, or abandoned, which the same pass has to see to."""
    world = World(MANAGED_NOT_WAITING, tmp_path)
    world.create(deadline=timedelta(hours=24))
    with pytest.raises(Killed):
        world.execute(DiesAt(lambda name: name == "kafka.writer.transaction.exit"))
    kafka: Any = Mortal(world.kafka, Outage(world.clock, 1, 4000.0), "kafka")
    began_s = world.clock.monotonic()

    with pytest.raises(Unavailable):
        job.fence(world.store, kafka, world.clock)

    assert world.clock.monotonic() - began_s < 60  # of the simulation
    job.fence(world.store, world.kafka, world.clock)
    assert not list(world.kafka.control.topics.gates.of_group(GROUP))


GOES_BACK_ONCE = [k for k in KINDS if k.name in ("cooperative", "consumer", "managed-eager")]
"""What shows of a ``Barrier`` later does not tell whether an owner kept its position."""


@pytest.mark.parametrize("kind", GOES_BACK_ONCE, ids=lambda k: k.name)
def test_what_a_dead_writer_has_put_back_is_not_put_back_again(kind: Kind, tmp_path: Path) -> None:
    """Its owners have gone on from there since."""
    world = World(kind, tmp_path)
    world.create()
    with pytest.raises(Killed):
        world.execute(DiesAt(lambda name: name == "kafka.writer.transaction.exit"))
    world.clock.sleep(2)

    def watches(name: str) -> bool:
        last = world.store.load().journal[-1]
        return name == "kafka.committed" and last.putting_back != "" and last.phase is ResetPhase.VERIFYING

    process = DiesAt(watches)
    kafka: Any = Mortal(world.kafka, process, "kafka")
    with pytest.raises(Killed):
        job.settle(world.store, kafka, world.clock, reason="Deleted", message="the policy was deleted")
    world.clock.sleep(60)
    seen, again_s = world.kafka.committed(GROUP), world.clock.monotonic()

    result = job.settle(world.store, world.kafka, world.clock, reason="Deleted", message="the policy was deleted")

    assert (result.phase, result.reason) == (ResetPhase.ROLLED_BACK, "Deleted")
    world.settle()
    assert not [b for c in world.consumers for b in c.began if b.at_s >= again_s]
    assert all(world.kafka.committed(GROUP)[p] >= seen[p] for p in RESET)
    world.check_nothing_missing()


def test_a_rollback_that_may_delete_no_offset_restores_the_others_and_says_so(tmp_path: Path) -> None:
    """Delete on the group is needed for nothing else, so a principal may well lack it."""
    world = World(KINDS[0], tmp_path)
    for consumer in world.consumers:
        consumer.close()
    before = dict(world.kafka.committed(GROUP))
    first = RESET[0]
    del world.kafka._offsets_of(GROUP)[first]
    world.create()
    with pytest.raises(Killed):
        world.execute(DiesAt(lambda name: name == "store.finish"))
    world.kafka.fail("delete", NotAuthorized(f"delete committed offsets of group {GROUP}: allow Delete"))

    result = job.settle(world.store, world.kafka, world.clock, reason="Deleted", message="the policy was deleted")

    assert (result.phase, result.reason) == (ResetPhase.ROLLED_BACK, "Deleted"), result
    assert world.kafka.committed(GROUP) == before | {first: world.targets[first]}
    said = "2 committed offset(s) were restored; 1 partition(s) had no committed offset before the run and have one now"
    assert said in result.message


@pytest.mark.parametrize("dies", [False, True], ids=["at once", "by a successor"])
def test_an_offset_that_a_rollback_leaves_where_there_was_none_is_told(dies: bool, tmp_path: Path) -> None:
    """Brokers keep it, as the group is subscribed to the topic; owners have gone on from the target since."""
    world = World(KINDS[0], tmp_path)
    for consumer in world.consumers:
        consumer.auto_commit_s = None
    first = RESET[0]
    del world.kafka._offsets_of(GROUP)[first]
    world.create()
    with pytest.raises(Killed):
        world.execute(DiesAt(lambda name: name == "store.append" and world.kafka.committed(GROUP, [first]) != {}))
    for consumer in world.consumers:
        consumer.auto_commit_s = 0.5
    world.clock.sleep(10)
    assert world.kafka.committed(GROUP)[first] > world.targets[first]
    if dies:
        at = DiesAt(lambda name: name == "kafka.pending" and world.store.load().journal[-1].putting_back != "")
        kafka: Any = Mortal(world.kafka, at, "kafka")
        with pytest.raises(Killed):
            job.settle(world.store, kafka, world.clock, reason="Deleted", message="the policy was deleted")
        world.clock.sleep(10)

    result = job.settle(world.store, world.kafka, world.clock, reason="Deleted", message="the policy was deleted")

    assert result.phase is ResetPhase.ROLLED_BACK, result
    assert first in world.kafka.committed(GROUP)
    assert "1 partition(s) had no committed offset before the run" in result.message
