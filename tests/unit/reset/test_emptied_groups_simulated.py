"""Commits that come while a reset has emptied the group, or as it empties it once more."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from support.fake_kafka import FakeMembership
from support.killed import Killed
from support.simulated_groups import (
    BACK,
    GROUP,
    KAFKAJS,
    KINDS,
    PARTITIONS,
    RESET,
    Delayed,
    Kind,
    Outage,
    World,
    die_verifying,
    start_members,
)
from tidegate.kafka.model import GroupType, TopicPartition
from tidegate.reset.directory_store import DirectoryRunStore
from tidegate.reset.model.progress import Progress
from tidegate.reset.runs import job
from tidegate.resources.reset import ResetPhase, Way


@pytest.mark.parametrize("how", ["an outage", "a death"])
def test_what_comes_to_the_empty_group_while_nobody_looks_is_seen(
    how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One owner leaves by itself as all are made to, so its partitions are done again; of another one an old position
    is committed meanwhile."""
    world = World(Kind("consumer", Way.HANDOVER, GroupType.CONSUMER, "uniform"), tmp_path)
    world.consumers[2].close()
    world.clock.sleep(12)
    world.targets = {p: world.kafka.committed(GROUP)[p] - BACK for p in PARTITIONS}
    world.create()
    late = min(world.consumers[0].positions)
    left: list[str] = []
    leave = FakeMembership.leave

    def one_more_leaves(membership: FakeMembership, group_id: str, members: Any) -> Any:
        if not left:
            left.append("by itself")
            world.consumers[1].close()
        return leave(membership, group_id, members)

    monkeypatch.setattr(FakeMembership, "leave", one_more_leaves)

    def commit_late() -> None:
        assert not world.kafka.groups([GROUP])[GROUP].members
        world.kafka.commit_directly(GROUP, {late: world.targets[late] + BACK + 60})
        if how == "a death":
            process.dead = True
            raise Killed

    # The look at the group after all have left.
    process = Outage(world.clock, 0, 20.0, began=commit_late, when=lambda name: name == "kafka.groups" and bool(left))
    if how == "a death":
        with pytest.raises(Killed):
            world.execute(process)
        world.clock.sleep(5)
    result = world.execute(process if how == "an outage" else None)

    assert result is not None
    assert result.phase is ResetPhase.SUCCEEDED
    world.settle()
    world.check_reset(at_most=3)


def _of_quick_members(folder: Path) -> World:
    """Members of a KIP-848 group that are back in moments; all of their partitions are reset."""
    kind = Kind("consumer-quick", Way.HANDOVER, GroupType.CONSUMER, "uniform", consumer=(("heartbeat_s", 0.2),))
    world = World(kind, folder)
    world.targets = {p: o - BACK for p, o in world.kafka.committed(GROUP).items()}
    world.create()
    return world


def test_a_commit_to_the_empty_group_is_seen_although_somebody_is_back_already(tmp_path: Path) -> None:
    """To an Empty group anybody may commit: an owner that was just made to leave does, and another is back at once."""
    world = _of_quick_members(tmp_path)
    late = RESET[0]
    done: list[int] = []

    def commit_when_empty() -> None:
        if not done and not world.kafka.groups([GROUP])[GROUP].members:
            place = max(c.positions.get(late, 0) for c in world.consumers) or world.targets[late] + BACK
            world.kafka.commit_directly(GROUP, {late: place})
            done.append(place)
        if world.producing:
            world.clock.after(0.005, commit_when_empty)

    commit_when_empty()
    kafka: Any = Delayed(world.kafka, world.clock, {}, describe_s=0.25)
    result = job.execute(world.store, kafka, world.clock)
    assert result is not None
    assert done, "the group was never Empty"
    assert result.phase is ResetPhase.SUCCEEDED
    world.settle()
    world.check_reset(at_most=3)


def test_a_group_whose_owners_commit_whenever_it_is_empty_is_led(tmp_path: Path) -> None:
    """A kafkajs consumer that was made to leave does so until it is back, each time that it is made to leave."""
    world = World(KAFKAJS, tmp_path)
    for other in world.consumers[1:]:
        other.close()
    world.clock.sleep(12)
    world.targets = {p: o - BACK for p, o in world.kafka.committed(GROUP).items()}
    world.create()
    seen: dict[TopicPartition, int] = {}
    emptied: list[float] = []

    def commit_when_empty() -> None:
        if world.kafka.groups([GROUP])[GROUP].members:
            seen.update({p: o for consumer in world.consumers for p, o in consumer.positions.items()})
        else:
            emptied.append(world.clock.now())
            world.kafka.commit_directly(GROUP, seen)
        if world.producing:
            world.clock.after(0.005, commit_when_empty)

    commit_when_empty()
    result = world.execute()
    assert result is not None
    assert emptied, "the group was never Empty"
    assert (result.phase, result.way, result.rounds) == (ResetPhase.SUCCEEDED, Way.LEADING, 2)
    world.settle()
    world.check_reset(at_most=3)


def test_a_commit_to_the_empty_group_is_seen_although_a_member_had_left_by_itself(tmp_path: Path) -> None:
    """Whoever leaves between the look at the members and our leaving in their names empties the group as well."""
    world = _of_quick_members(tmp_path)
    late, leaving = RESET[0], world.consumers[2]
    assert late in world.consumers[0].positions
    done: list[int] = []

    def commit_when_empty() -> None:
        if not done and not world.kafka.groups([GROUP])[GROUP].members:
            done.append(world.targets[late] + BACK + 60)
            world.kafka.commit_directly(GROUP, {late: done[0]})
        if world.producing:
            world.clock.after(0.005, commit_when_empty)

    commit_when_empty()
    kafka: Any = Delayed(world.kafka, world.clock, {"leave": leaving.close}, describe_s=0.25)
    result = job.execute(world.store, kafka, world.clock)
    assert result is not None
    assert done, "the group was never Empty"
    assert result.phase is ResetPhase.SUCCEEDED
    world.settle()
    world.check_reset(at_most=3)


@pytest.mark.parametrize("late", RESET[:2], ids=["of-this-round", "of-the-round-before"])
def test_a_commit_to_the_empty_group_is_seen_after_a_round_in_which_nobody_owned_anything(
    late: TopicPartition, tmp_path: Path
) -> None:
    """No member is back when one partition is done again: that changes nothing of what the others may commit yet."""
    kind = Kind("consumer-slow", Way.HANDOVER, GroupType.CONSUMER, "uniform", consumer=(("auto_commit_s", 5.0),))
    world = World(kind, tmp_path)
    world.targets = {p: o - BACK for p, o in world.kafka.committed(GROUP).items()}
    world.create()
    for consumer in world.consumers:
        consumer.heartbeat_s, consumer.auto_commit_s = 20.0, None
        consumer._next_heartbeat_s = world.clock.monotonic() + 20.0

    def commit(partition: TopicPartition) -> None:
        assert not world.kafka.groups([GROUP])[GROUP].members
        world.kafka.commit_directly(GROUP, {partition: world.targets[partition] + BACK + 60})

    world.clock.after(3.0, lambda: commit(RESET[0]))
    world.clock.after(16.0, lambda: commit(late))
    result = world.execute()
    assert result is not None
    assert Way.UNOWNED in {entry.way for entry in world.store.load().journal}
    assert (result.phase, result.way) == (ResetPhase.SUCCEEDED, Way.HANDOVER)
    world.settle(40)
    world.check_reset(at_most=3)


def _commit_late_and_come_back(world: World, late: TopicPartition, when: Callable[[], bool]) -> list[int]:
    """Just after a moment in which the group is Empty, one of its old members commits, and then all are back.

    Returns what was committed, once it was.
    """
    done: list[int] = []

    def commit_and_come_back() -> None:
        assert not world.kafka.groups([GROUP])[GROUP].members
        done.append(world.targets[late] + BACK + 60)
        world.kafka.commit_directly(GROUP, {late: done[0]})
        for consumer in world.consumers:
            consumer._next_heartbeat_s = world.clock.monotonic()

    def look() -> None:
        reached = when()
        world.clock.after(0.05 if reached else 0.005, commit_and_come_back if reached else look)

    look()
    return done


def test_a_commit_to_the_empty_group_is_seen_although_all_are_back_at_the_first_look(tmp_path: Path) -> None:
    """They were away for longer than we wait, and come back between our commit and the first look after it.

    One partition is done again while nobody is there.
    """
    kind = Kind("consumer-late", Way.HANDOVER, GroupType.CONSUMER, "uniform")
    world = World(kind, tmp_path)
    world.targets = {p: o - BACK for p, o in world.kafka.committed(GROUP).items()}
    world.create()
    for consumer in world.consumers:
        consumer.auto_commit_s = None
        consumer._next_heartbeat_s = world.clock.monotonic() + 100.0
    first, late = RESET[:2]
    place = world.targets[first] + BACK + 60
    world.clock.after(3.0, lambda: world.kafka.commit_directly(GROUP, {first: place}))

    def is_committed() -> bool:
        journal = world.store.load().journal
        stands = world.kafka.committed(GROUP)[first] == world.targets[first]
        return bool(journal) and journal[-1].way is Way.UNOWNED and stands

    committed = _commit_late_and_come_back(world, late, is_committed)
    kafka: Any = Delayed(world.kafka, world.clock, {}, describe_s=0.25)
    result = job.execute(world.store, kafka, world.clock)
    assert result is not None
    assert committed, "the targets were never committed"
    assert (result.phase, result.way) == (ResetPhase.SUCCEEDED, Way.HANDOVER)
    world.settle()
    world.check_reset(at_most=3)


def test_a_commit_to_a_group_that_is_emptied_again_is_seen_on_partitions_of_earlier_rounds(tmp_path: Path) -> None:
    """The first round's owners are not all back when the second makes the only member leave: one of them commits."""
    kind = Kind("consumer-slow-others", Way.HANDOVER, GroupType.CONSUMER, "uniform")
    world = World(kind, tmp_path)
    # One is back at once, the others notice later than any round lasts.
    for consumer, heartbeat_s in zip(world.consumers, (0.2, 9.0, 9.5), strict=True):
        consumer.heartbeat_s, consumer.auto_commit_s = heartbeat_s, None
        consumer._next_heartbeat_s = world.clock.monotonic() + heartbeat_s
    world.targets = {p: o - BACK for p, o in world.kafka.committed(GROUP).items()}
    world.create()
    emptied: list[TopicPartition] = []
    was_empty = False

    def commit_when_empty() -> None:
        nonlocal was_empty
        empty = not world.kafka.groups([GROUP])[GROUP].members
        if empty and not was_empty and len(emptied) < 2:
            late = RESET[len(emptied)]
            world.kafka.commit_directly(GROUP, {late: world.targets[late] + BACK + 60})
            emptied.append(late)
        was_empty = empty
        if world.producing:
            world.clock.after(0.005, commit_when_empty)

    commit_when_empty()
    kafka: Any = Delayed(world.kafka, world.clock, {}, describe_s=0.02)
    result = job.execute(world.store, kafka, world.clock)
    assert result is not None
    assert len(emptied) == 2, "the group was not emptied twice"
    assert result.phase is ResetPhase.SUCCEEDED
    assert result.redone >= 2, result
    world.settle(30)
    world.check_reset(at_most=4)


def test_what_is_overwritten_as_another_round_begins_is_done_again_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its owner goes on from there to beyond the target while the other round lasts, and later looks cannot tell."""
    world = World(KINDS[0], tmp_path)
    world.create()
    first, second = RESET[:2]
    append = DirectoryRunStore.append
    late: list[TopicPartition] = []

    def commit_late(store: DirectoryRunStore, progress: Progress, *, attempt: int) -> None:
        append(store, progress, attempt=attempt)
        if progress.phase is not ResetPhase.VERIFYING or len(late) == 2:
            return
        if not late:
            late.append(first)
            world.kafka.commit_directly(GROUP, {first: world.targets[first] - 5})
        elif progress.again:
            late.append(second)
            target = world.targets[second]
            world.kafka.commit_directly(GROUP, {second: target - 5})
            world.clock.after(0.05, lambda: world.kafka.commit_directly(GROUP, {second: target + 40}))

    monkeypatch.setattr(DirectoryRunStore, "append", commit_late)
    result = world.execute()
    assert result is not None
    assert late == [first, second]
    assert (result.phase, result.redone) == (ResetPhase.SUCCEEDED, 2), result
    world.settle()
    world.check_reset(at_most=3)


def test_a_group_that_is_empty_after_a_barrier_is_not_reset_again(tmp_path: Path) -> None:
    """Its members have read past where they were before, and are all started anew as a successor looks."""
    kind = next(k for k in KINDS if k.name == "eager")
    world = World(kind, tmp_path)
    world.create()
    die_verifying(world)
    world.clock.sleep(30)
    for consumer in world.consumers:
        consumer.close()
    world.clock.after(1.0, lambda: world.consumers.extend(start_members(world.kafka, kind)))
    result = world.execute()
    assert result is not None
    assert (result.phase, result.rounds) == (ResetPhase.SUCCEEDED, 1), result
    world.settle()
    world.check_reset()
