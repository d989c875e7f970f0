"""What a result says of rounds, and of who reads from the targets."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from support.killed import Killed
from support.simulated_groups import (
    GROUP,
    KINDS,
    RESET,
    DiesAt,
    Kind,
    Outage,
    World,
    assigned_to_itself,
    is_verifying,
    verifies,
)
from tidegate.kafka.errors import Unavailable
from tidegate.reset.applying.rounds import MAX_ROUNDS
from tidegate.resources.reset import ResetPhase, Way


def test_partitions_that_earlier_writers_did_again_are_counted(tmp_path: Path) -> None:
    """An owner overwrites a target, which is reset again; then the writer dies, and its successor has nothing to do."""
    world = World(KINDS[4], tmp_path)
    for consumer in world.consumers:
        consumer.auto_commit_s = None
    world.create()
    late = RESET[0]

    def overwrite() -> None:
        world.kafka.commit_directly(GROUP, {late: world.targets[late] - 1})

    verifies = is_verifying(world)
    process = Outage(world.clock, 0, 0.0, began=overwrite, when=verifies)
    call = process.call

    def call_or_die(name: str, do: Callable[[], Any]) -> Any:
        if verifies(name) and world.store.load().journal[-1].round == 2 and not world.store.load().journal[-1].again:
            process.dead = True
        if process.dead:
            raise Killed
        return call(name, do)

    process.call = call_or_die  # type: ignore[method-assign]
    with pytest.raises(Killed):
        world.execute(process)
    world.clock.sleep(1)

    result = world.execute()

    assert result is not None
    assert (result.phase, result.rounds, result.redone) == (ResetPhase.SUCCEEDED, 2, 1)
    assert "1 had to be reset again" in result.message


def test_partitions_that_a_successor_does_again_are_counted(tmp_path: Path) -> None:
    """Its predecessor has committed, and has not said that the owners were let go."""
    world = World(KINDS[0], tmp_path)
    world.create()
    with pytest.raises(Killed):
        world.execute(DiesAt(lambda name: name == "kafka.writer.transaction.exit"))
    world.clock.sleep(2)

    result = world.execute()

    assert result is not None
    assert (result.phase, result.rounds, result.redone) == (ResetPhase.SUCCEEDED, 2, len(RESET))
    assert "3 had to be reset again" in result.message


def test_rounds_that_a_broker_cut_short_are_not_counted_as_done_again(tmp_path: Path) -> None:
    """Nothing was committed in them, so no record was delivered again."""
    world = World(KINDS[0], tmp_path)
    world.create()
    world.kafka.fail("hold", Unavailable("coordinator moves"), Unavailable("coordinator moves"))
    result = world.execute()
    assert result is not None
    assert (result.phase, result.rounds, result.redone) == (ResetPhase.SUCCEEDED, 1, 0)
    world.settle()
    world.check_reset()


def test_only_rounds_of_the_reset_itself_count_as_done_again(tmp_path: Path) -> None:
    """An owner overwrites one partition until the run gives up, and another one while all is put back."""
    world = World(KINDS[3], tmp_path)
    world.kafka.max_size = 3  # so that nobody leads the group
    world.create()
    before = world.kafka.committed(GROUP)
    stubborn, another = RESET[:2]
    overwritten: list[int] = []

    def overwrite() -> None:
        if not world.producing:
            return
        world.kafka.commit_directly(GROUP, {stubborn: 1})
        last = world.store.load().journal[-1:]
        if last and last[0].putting_back and not overwritten:
            overwritten.append(last[0].round)
            world.kafka.commit_directly(GROUP, {another: 1})
        world.clock.after(0.2, overwrite)

    world.clock.after(0.2, overwrite)
    result = world.execute()
    assert result is not None
    assert (result.phase, result.reason) == (ResetPhase.ROLLED_BACK, "Overwritten")
    assert overwritten == [MAX_ROUNDS + 1]
    assert result.rounds == MAX_ROUNDS + 2
    assert result.redone == MAX_ROUNDS - 2  # one round found out that the group cannot be led
    assert world.kafka.committed(GROUP)[another] >= before[another]


@pytest.mark.parametrize("kind", KINDS, ids=lambda k: k.name)
def test_the_result_counts_what_is_known_to_be_read_from_its_target(kind: Kind, tmp_path: Path) -> None:
    world = World(kind, tmp_path)
    world.create()
    result = world.execute()
    assert result is not None
    assert (result.phase, result.begun, result.waiting) == (ResetPhase.SUCCEEDED, len(RESET), 0)


def test_the_result_says_who_is_not_known_to_read_from_its_target(tmp_path: Path) -> None:
    """An application that commits by itself, each hour, say."""
    world = World(KINDS[0], tmp_path)
    world.clock.sleep(3)
    for consumer in world.consumers:
        consumer.auto_commit_s = None
    world.create()
    result = world.execute()
    assert result is not None
    assert (result.phase, result.begun, result.waiting) == (ResetPhase.SUCCEEDED, 0, len(RESET))
    assert (
        "3 partition(s) are not known to be read from their targets yet, e.g. orders-0 by c0 at /127.0.0.1"
        in result.message
    )
    assert result.unread[0] == "orders-0 by c0 at /127.0.0.1"
    assert [row.split(" by ")[0] for row in result.unread] == [str(p) for p in sorted(RESET)]


def test_a_run_that_could_not_look_any_more_says_nothing_of_who_goes_on(tmp_path: Path) -> None:
    world = World(KINDS[0], tmp_path)
    world.create()
    outage = Outage(world.clock, 0, 600.0, when=lambda name: name == "kafka.log_bounds" and verifies(world))
    for consumer in world.consumers:
        consumer.auto_commit_s = None
    result = world.execute(outage)
    assert result is not None
    assert (result.phase, result.begun, result.waiting) == (ResetPhase.SUCCEEDED, None, None)


def test_nobody_is_waited_for_where_there_is_nobody_or_nothing_to_read(tmp_path: Path) -> None:
    world = World(KINDS[0], tmp_path)
    for consumer in world.consumers:
        consumer.close()
    world.create()
    result = world.execute()
    assert result is not None
    assert (result.phase, result.way, result.begun, result.waiting) == (ResetPhase.SUCCEEDED, Way.UNOWNED, 0, 0)

    world = World(KINDS[0], tmp_path / "end")
    world.producing = False
    world.clock.sleep(12)
    world.targets = {p: bounds.latest for p, bounds in world.kafka.log_bounds(RESET).items()}
    world.create()
    result = world.execute()
    assert result is not None
    assert (result.phase, result.begun, result.waiting) == (ResetPhase.SUCCEEDED, 0, 0)


@pytest.mark.parametrize("aim", ["back", "ahead"])
def test_a_consumer_that_assigns_itself_partitions_is_noticed(aim: str, tmp_path: Path) -> None:
    """Java, librdkafka and kafka-python commit so with ``enable.auto.commit`` and a group id."""
    world = World(KINDS[0], tmp_path)
    if aim == "ahead":
        world.aim_ahead()
    positions = assigned_to_itself(world)
    world.create()
    result = world.execute()
    assert result is not None
    assert (result.phase, result.reason) == (ResetPhase.ROLLED_BACK, "Overwritten")
    assert "assign()" in result.message
    assert world.kafka.committed(GROUP) == positions


@pytest.mark.parametrize("joins", [False, True], ids=["nobody", "a subscriber"])
def test_a_group_that_never_had_members_is_reset(joins: bool, tmp_path: Path) -> None:
    world = World(KINDS[0], tmp_path)
    assigned_to_itself(world, every_s=math.inf)
    world.create()
    if joins:
        world.clock.after(1.0, lambda: world.consumers[0].start() and None)
    result = world.execute()
    assert result is not None
    assert (result.phase, result.way, result.rounds) == (ResetPhase.SUCCEEDED, Way.UNOWNED, 1)
    seen = world.kafka.committed(GROUP)
    assert all(seen[p] >= target if joins else seen[p] == target for p, target in world.targets.items())
