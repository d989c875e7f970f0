"""Topics, logs and offsets that change or go between the plan of a reset and its end."""

from __future__ import annotations

import contextlib
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from support.killed import Killed
from support.simulated_groups import (
    GROUP,
    KINDS,
    PARTITIONS,
    RESET,
    TOPIC,
    Delayed,
    DiesAt,
    Mortal,
    Outage,
    Process,
    World,
    is_verifying,
)
from tidegate.kafka.model import TopicPartition
from tidegate.reset.model.result import RunResult
from tidegate.reset.runs import job
from tidegate.resources.reset import ResetPhase


def test_a_plan_is_checked_again_after_an_outage(tmp_path: Path) -> None:
    world = World(KINDS[3], tmp_path)
    world.create()
    cut = min(RESET)
    away = Outage(
        world.clock,
        0,
        60.0,
        began=lambda: world.kafka.delete_records(cut, world.targets[cut] + 20),
        when=lambda name: name == "kafka.groups",
    )
    result = world.execute(away)
    assert result is not None
    assert (result.phase, result.reason) == (ResetPhase.FAILED, "PlanOutdated")


def test_a_log_that_is_deleted_beyond_a_target_as_that_is_committed_is_told(tmp_path: Path) -> None:
    """By retention. Its owner begins at the log's end, as it is set up, and commits from there."""
    world = World(KINDS[0], tmp_path)
    for consumer in world.consumers:
        consumer.begins_at_end = True
    cut = RESET[0]
    world.create()

    def retain() -> None:
        world.kafka.delete_records(cut, world.targets[cut] + 20)

    result = world.execute(
        Outage(world.clock, 0, 0.0, began=retain, when=lambda name: name == "kafka.writer.transaction.commit")
    )

    assert result is not None
    assert world.starts_at_target(cut) == 0
    assert (result.phase, result.begun, result.waiting) == (ResetPhase.SUCCEEDED, 2, 1)
    assert result.unread[0].startswith(str(cut))
    assert f"the log of 1 partition(s), e.g. {cut}, has since been deleted past the target" in result.message


@pytest.mark.parametrize("moved", ["cut", "shrunk"])
def test_a_plan_whose_targets_are_no_longer_in_the_log_is_refused(moved: str, tmp_path: Path) -> None:
    world = World(KINDS[3], tmp_path)
    partition = RESET[0]
    world.create()

    def change() -> None:
        if moved == "cut":
            world.kafka.delete_records(partition, world.targets[partition] + 1)
        else:
            world.kafka._log(partition).end = world.targets[partition] - 1

    kafka: Any = Delayed(world.kafka, world.clock, {"writer": change}, describe_s=0.0)
    result = job.execute(world.store, kafka, world.clock)
    assert result is not None
    assert (result.phase, result.reason) == (ResetPhase.FAILED, "PlanOutdated")
    assert f"1 target(s) are now outside the log, e.g. {partition}: target {world.targets[partition]}" in (
        result.message
    )


@pytest.mark.parametrize("made_anew", [True, False])
def test_a_plan_whose_topic_was_removed_meanwhile_is_refused(made_anew: bool, tmp_path: Path) -> None:
    world = World(KINDS[3], tmp_path)
    world.create()

    def change() -> None:
        world.producing = False
        for consumer in world.consumers:
            consumer.close()
        world.kafka.delete_topic(TOPIC)
        if made_anew:
            world.kafka.create_topic(TOPIC, len(PARTITIONS))

    kafka: Any = Delayed(world.kafka, world.clock, {"writer": change}, describe_s=0.0)
    result = job.execute(world.store, kafka, world.clock)
    assert result is not None
    assert (result.phase, result.reason) == (ResetPhase.FAILED, "PlanOutdated")
    assert f"deleted or recreated since the plan was made: {TOPIC}. Nothing was changed" in result.message


GONE = TopicPartition("alerts", 0)
"""The first partition of a plan, which has the run's marker; nobody owns it."""


def _with_another_topic(folder: Path, before: int | None = 30) -> World:
    world = World(KINDS[0], folder)
    world.kafka.create_topic(GONE.topic, 1)
    world.kafka.fill(GONE.topic, 50)
    if before is not None:
        world.kafka.commit_directly(GROUP, {GONE: before})
    world.targets[GONE] = 10
    world.create(deadline=timedelta(minutes=2))
    return world


@pytest.mark.parametrize("made_anew", [True, False], ids=["made anew", "deleted"])
@pytest.mark.parametrize("dies", [True, False], ids=["dies", "lives"])
def test_a_topic_that_goes_in_mid_run_keeps_no_other_from_being_put_back(
    dies: bool, made_anew: bool, tmp_path: Path
) -> None:
    """Kafka forgets what was committed in it, the run's marker included, and takes no commit of it any more."""
    world = _with_another_topic(tmp_path)
    before = world.kafka.committed(GROUP)

    def remove() -> None:
        world.kafka.delete_topic(GONE.topic)
        if made_anew:
            world.kafka.create_topic(GONE.topic, 1)
            world.kafka.fill(GONE.topic, 5)

    if dies:
        with pytest.raises(Killed):
            world.execute(DiesAt(lambda name: name == "kafka.writer.transaction.exit"))
        world.clock.sleep(2)
        remove()
        result = world.execute()
    else:
        result = world.execute(Outage(world.clock, 0, 0.0, began=remove, when=is_verifying(world)))

    assert result is not None
    assert (result.phase, result.reason) == (ResetPhase.ROLLED_BACK, "PlanOutdated")
    assert f"recreated since the plan was made: {GONE.topic}" in result.message
    assert f"1 partition(s), e.g. {GONE}, are left as they are, because their topics were deleted" in result.message
    assert world.clock.monotonic() - world.started_s < 60
    after = world.kafka.committed(GROUP)
    assert GONE not in after
    assert all(after[p] >= before[p] for p in RESET)


@pytest.mark.parametrize("before", [30, None], ids=["that was read", "that was not"])
@pytest.mark.parametrize("at", ["transaction.send", "writer.delete", "kafka.committed"])
@pytest.mark.parametrize("dies", [True, False], ids=["dies", "lives"])
def test_a_topic_that_goes_during_a_rollback_keeps_no_other_from_being_rolled_back(
    dies: bool, at: str, before: int | None, tmp_path: Path
) -> None:
    """As its offsets are sent, or forgotten where it had none, or just after that."""
    world = _with_another_topic(tmp_path, before)
    stood = world.kafka.committed(GROUP)
    with pytest.raises(Killed):
        world.execute(DiesAt(lambda name: name == "kafka.writer.transaction.exit"))
    world.clock.sleep(2)

    def rolls_back(name: str) -> bool:
        journal = world.store.load().journal
        return name.endswith(at) and any(line.putting_back for line in journal)

    def settle(process: Process | Outage | None) -> RunResult:
        kafka: Any = world.kafka if process is None else Mortal(world.kafka, process, "kafka")
        return job.settle(world.store, kafka, world.clock, reason="Deleted", message="the policy was deleted")

    began_s = world.clock.monotonic()
    if dies:
        process = DiesAt(rolls_back)
        with contextlib.suppress(Killed):
            settle(process)
        world.kafka.delete_topic(GONE.topic)
        result = settle(None)
    else:
        gone = partial(world.kafka.delete_topic, GONE.topic)
        result = settle(Outage(world.clock, 0, 0.0, began=gone, when=rolls_back))

    assert (result.phase, result.reason) == (ResetPhase.ROLLED_BACK, "Deleted"), result
    assert world.clock.monotonic() - began_s < 60
    after = world.kafka.committed(GROUP)
    assert all(after[p] >= stood[p] for p in RESET)
    if before is not None and at == "transaction.send":
        assert "3 committed offset(s) were restored" in result.message
        assert f"1 partition(s), e.g. {GONE}, are left as they are, because their topics" in result.message


def test_a_partition_whose_offset_somebody_deletes_is_put_back_with_the_others(tmp_path: Path) -> None:
    """Nobody subscribes to its topic, so Kafka lets it be deleted; it is nobody's progress."""
    world = _with_another_topic(tmp_path, before=30)

    def delete() -> None:
        if not any(line.putting_back for line in world.store.load().journal):
            world.kafka._groups[GROUP].committed.pop(GONE, None)
            world.clock.after(0.2, delete)

    result = world.execute(Outage(world.clock, 0, 0.0, began=delete, when=is_verifying(world)))

    assert result is not None
    assert (result.phase, result.reason) == (ResetPhase.ROLLED_BACK, "Overwritten")
    assert world.kafka.committed(GROUP)[GONE] == 30


def test_where_the_only_topic_goes_in_mid_run_nothing_is_put_back(tmp_path: Path) -> None:
    world = World(KINDS[0], tmp_path)
    for consumer in world.consumers:
        consumer.close()
    world.create(deadline=timedelta(minutes=2))
    with pytest.raises(Killed):
        world.execute(DiesAt(lambda name: name == "kafka.writer.transaction.exit"))
    world.clock.sleep(2)
    world.producing = False
    world.kafka.delete_topic(TOPIC)

    result = world.execute()

    assert result is not None
    assert (result.phase, result.reason) == (ResetPhase.ROLLED_BACK, "PlanOutdated")
    assert "0 committed offset(s) were restored; 3 partition(s)" in result.message
    assert world.kafka.committed(GROUP) == {}


def test_a_broker_that_lags_makes_no_plan_outdated(tmp_path: Path) -> None:
    """Of the same topic it shows fewer partitions than were planned: they are there all the same."""
    world = World(KINDS[3], tmp_path)
    world.create()
    kafka: Any = Delayed(world.kafka, world.clock, {"writer": lambda: world.kafka.lag_behind(TOPIC, 1)}, describe_s=0.0)
    result = job.execute(world.store, kafka, world.clock)
    assert result is not None
    assert result.phase is ResetPhase.SUCCEEDED, result
    world.settle()
    world.check_reset()
