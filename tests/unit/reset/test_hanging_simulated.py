"""Commits that are decided, and whose outcome no coordinator is told, on the in-memory Kafka (ADR 22).

The whole cluster was restarted just then. Their offsets stay pending, and consumers wait for them, until the next
transaction of the same producer ends.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from support.fake_kafka import FakeKafka
from support.killed import Killed
from support.simulated_groups import (
    AWAY_S,
    GO_OFTEN,
    GROUP,
    KINDS,
    PARTITIONS,
    RESET,
    TOPIC,
    Kind,
    Outage,
    Process,
    World,
)
from tidegate.kafka.model import TopicPartition
from tidegate.reset.marker import marker_group
from tidegate.reset.runs import job
from tidegate.resources.reset import ResetPhase, Way

COMMIT = "kafka.writer.transaction.commit"


@pytest.mark.parametrize("kind", [k for k in KINDS if k.way is not Way.UNOWNED], ids=lambda k: k.name)
@pytest.mark.parametrize("how", ["a death", "an outage"])
def test_a_commit_whose_outcome_no_coordinator_tells_is_made_once_more(how: str, kind: Kind, tmp_path: Path) -> None:
    whole = World(kind, tmp_path / "whole")
    whole.create()
    living = Process()
    whole.execute(living)
    commits = living.calls.index(COMMIT) + 1
    world = World(kind, tmp_path / "run")
    world.create()
    if how == "a death":
        process: Process | Outage = Process(commits, after=True)
    else:
        calls = [c for c in living.calls if c.startswith("kafka") and c != "kafka.writer"]
        calls = [c for c in calls if not c.endswith(("close", "exit"))]
        begins = calls.index(COMMIT) + 1
        process = Outage(world.clock, begins, AWAY_S, after=True)
    world.kafka.tells_no_outcome = True
    if how == "a death":
        with pytest.raises(Killed):
            world.execute(process)
        world.clock.sleep(2.0)
    result = world.execute(None if how == "a death" else process)
    assert result is not None
    assert not world.kafka.tells_no_outcome
    assert result.phase is ResetPhase.SUCCEEDED, result
    world.settle()
    world.check_reset(at_most=1 + result.rounds)
    assert not world.kafka.pending(GROUP, PARTITIONS)


def commits_of_a_whole_run(kind: Kind, folder: Path) -> list[int]:
    """Which of its calls they are, from 1 on."""
    world = World(kind, folder)
    world.create()
    living = Process()
    world.execute(living)
    return [n for n, call in enumerate(living.calls, 1) if call == COMMIT]


def hanging_once(kafka: FakeKafka, is_time: Callable[[], bool], *, told: str = "") -> None:
    """One commit hangs; ``told``: the group whose coordinator has been told its outcome all the same."""
    end: Any = kafka._end

    def ending(transaction: Any, *, commit: bool) -> None:
        kafka.tells_no_outcome = hangs = commit and is_time()
        end(transaction, commit=commit)
        if hangs and told:
            kafka._group(told).committed.update(transaction.offsets.pop(told))

    kafka._end = ending  # type: ignore[method-assign]


@pytest.mark.parametrize("told", ["", marker_group(GROUP)], ids=["no group's", "the marker group's only"])
@pytest.mark.parametrize("kind", [*KINDS, replace(GO_OFTEN, name="led")], ids=lambda k: k.name)
def test_so_is_the_commit_of_the_last_round(kind: Kind, told: str, tmp_path: Path) -> None:
    """Of a group that was led, too, whose members do not wait: they have gone on when a successor looks."""
    if kind.name == "led":
        kind = replace(kind, consumer=(*kind.consumer, ("waits", False)))
    last = commits_of_a_whole_run(kind, tmp_path / "whole")[-1]
    world = World(kind, tmp_path / "run")
    process = Process(last, after=True)
    hanging_once(world.kafka, lambda: len(process.calls) == last and not process.dead, told=told)
    world.create()
    with pytest.raises(Killed):
        world.execute(process)
    assert world.kafka.pending(GROUP, RESET)
    world.clock.sleep(6.0)
    result = world.execute()
    assert result is not None
    assert result.phase is ResetPhase.SUCCEEDED, result
    assert not world.kafka.pending(GROUP, PARTITIONS)
    world.settle()
    world.check_reset(at_most=1 + result.rounds)


@pytest.mark.parametrize("kind", [*KINDS, replace(GO_OFTEN, name="led")], ids=lambda k: k.name)
def test_what_hangs_past_the_deadline_is_decided_and_then_put_back(kind: Kind, tmp_path: Path) -> None:
    last = commits_of_a_whole_run(kind, tmp_path / "whole")[-1]
    world = World(kind, tmp_path / "run")
    process = Process(last, after=True)
    hanging_once(world.kafka, lambda: len(process.calls) == last and not process.dead)
    world.create(deadline=timedelta(seconds=60))
    before = world.kafka.committed(GROUP)
    with pytest.raises(Killed):
        world.execute(process)
    world.clock.sleep(90)
    result = job.settle(world.store, world.kafka, world.clock, reason="DeadlineExceeded", message="it has passed")
    assert (result.phase, result.reason) == (ResetPhase.ROLLED_BACK, "DeadlineExceeded"), result
    assert "3 committed offset(s) were restored" in result.message
    after = world.kafka.committed(GROUP)
    assert all(after[p] >= before[p] for p in RESET)
    assert not world.kafka.pending(GROUP, PARTITIONS)
    world.settle()
    world.check_nothing_missing()


@pytest.mark.parametrize("read_by", ["members", "nobody"])
def test_where_the_group_stood_is_known_although_no_outcome_ever_shows(read_by: str, tmp_path: Path) -> None:
    """As the coordinator has given the transactional id a new producer id since: then nothing decides what hangs."""
    world = World(KINDS[0], tmp_path)
    if read_by == "nobody":
        for consumer in world.consumers:
            consumer.close()
        world.clock.sleep(1)
    before = world.kafka.committed(GROUP)
    process = Process()
    world.create(deadline=timedelta(seconds=60))
    world.kafka.tells_no_outcome = True

    def die_having_committed(name: str, do: Callable[[], Any]) -> Any:
        answer = Process.call(process, name, do)
        if name == COMMIT:
            process.dead = True
            raise Killed
        return answer

    process.call = die_having_committed  # type: ignore[method-assign]
    with pytest.raises(Killed):
        world.execute(process)
    for hanging in list(world.kafka._hanging.values()):
        world.kafka._hanging["of an earlier producer id"].extend(hanging)
        hanging.clear()
    world.clock.sleep(6)
    result = world.execute()
    assert result is not None
    assert (result.phase, result.reason) == (ResetPhase.ROLLED_BACK, "DeadlineExceeded"), result
    assert "3 committed offset(s) were restored" in result.message
    after = world.kafka.committed(GROUP)
    assert all(after[p] >= before[p] for p in RESET), after


def test_what_is_aborted_to_find_out_leaves_nothing_behind(tmp_path: Path) -> None:
    """The writer dies just after it, and its successor has no time to go on."""
    world = World(KINDS[0], tmp_path)
    world.create(deadline=timedelta(seconds=60))
    world.kafka.tells_no_outcome = True

    class Dying(Process):
        def call(self, name: str, do: Callable[[], Any]) -> Any:
            answer = super().call(name, do)
            if self.calls.count("kafka.writer.transaction.exit") == 2:
                self.dead = True
                raise Killed
            return answer

    with pytest.raises(Killed):
        world.execute(Dying())
    world.clock.sleep(120)
    result = world.execute()
    assert result is not None
    assert (result.phase, result.reason) == (ResetPhase.FAILED, "DeadlineExceeded"), result
    assert not world.kafka.pending(GROUP, PARTITIONS)


@pytest.mark.parametrize("has_offset", [True, False])
def test_what_another_run_has_left_without_an_outcome_is_dropped(has_offset: bool, tmp_path: Path) -> None:
    """The transactions of this run would commit it as well: their producer is the same."""
    world = World(next(k for k in KINDS if k.name == "eager"), tmp_path)
    world.kafka.add_partitions(TOPIC, len(PARTITIONS) + 1)
    for consumer in world.consumers:
        consumer.close()
    before = world.kafka.committed(GROUP)
    other = PARTITIONS[3] if has_offset else TopicPartition(TOPIC, len(PARTITIONS))
    assert (other in before) == has_offset
    world.kafka.tells_no_outcome = True
    with world.kafka.writer(GROUP, transaction_timeout_s=5).transaction() as transaction:
        transaction.send(GROUP, {other: 1})
        transaction.commit()
    assert world.kafka.pending(GROUP, [other])
    world.create()
    result = world.execute()
    assert result is not None
    assert (result.phase, result.way) == (ResetPhase.SUCCEEDED, Way.UNOWNED), result
    assert world.kafka.committed(GROUP) == {**before, **world.targets}
    assert not world.kafka.pending(GROUP, PARTITIONS)
