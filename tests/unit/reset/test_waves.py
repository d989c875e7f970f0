"""A fleet in waves on the in-memory Kafka: nothing is begun before its turn, a failure stops it, and nobody is reset
twice, whoever dies when."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.killed import Killed
from tidegate.kafka.errors import Unavailable
from tidegate.kafka.model import GroupType
from tidegate.reset.applying.context import RunContext
from tidegate.reset.applying.look_back import LookBack, look_back
from tidegate.reset.directory_store import DirectoryRunStore
from tidegate.reset.model.fleet import FleetCounts
from tidegate.reset.model.progress import Progress, noted
from tidegate.reset.model.request import FleetRequest, PlanLimits, Waves
from tidegate.reset.model.result import RunResult
from tidegate.reset.runs.fleet_groups import undone_groups
from tidegate.reset.runs.waves import PAUSED_HERE, paused_until, pauses, waves_of
from tidegate.resources.reset import FailurePolicy, ResetPhase
from unit.reset.test_fleet import AT, BEFORE, TARGET, TOPIC, Mortal, World

FIVE = tuple(f"payments-{letter}" for letter in "abcde")
LONG = timedelta(minutes=10)


class Staged(World):
    """Five groups, two at a time; ``sick``: those that can be planned, not reset."""

    def __init__(self, folder: Path, *sick: str, policy: FailurePolicy = FailurePolicy.ISOLATE) -> None:
        super().__init__(folder, policy, *sick)
        for group in FIVE:
            self.kafka.commit_directly(group, {TOPIC: BEFORE})
            self.kafka.set_group(group, GroupType.CLASSIC)

    def roll_out(self, pause: timedelta = timedelta(0), **changes: Any) -> DirectoryRunStore:
        fleet = FleetRequest(("payments-*",), self.policy, waves=Waves(groups=2, pause=pause))
        return self.create(**{"fleet": fleet, **changes})

    @property
    def there(self) -> str:
        """The groups that are where they were sent, by their last letters."""
        return "".join(group[-1] for group in FIVE if self.kafka.committed(group)[TOPIC] == TARGET)

    @property
    def begun(self) -> list[int]:
        """The waves that were noted to begin, in their order."""
        return [line.wave for line in self.store().load().journal if " begins: " in line.message]


# --- which groups are in which wave -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("waves", "sizes"),
    [
        (Waves(groups=2), [2, 2, 1]),
        (Waves(groups=1), [1] * 5),
        (Waves(groups=9), [5]),
        (Waves(percent=1), [1] * 5),
        (Waves(percent=20), [1] * 5),
        (Waves(percent=21), [2, 2, 1]),
        (Waves(percent=100), [5]),
    ],
)
def test_a_percentage_is_rounded_up(waves: Waves, sizes: list[int]) -> None:
    assert [len(wave) for wave in waves_of(waves, FIVE)] == sizes


@given(st.sets(st.text(min_size=1, max_size=4)), st.integers(0, 9), st.integers(1, 100))
def test_every_group_is_in_one_wave_in_the_order_of_ids(names: set[str], size: int, percent: int) -> None:
    waves = waves_of(Waves(groups=size, percent=percent), tuple(names))

    assert [name for wave in waves for name in wave] == sorted(names)
    assert all(waves)


# --- one wave after another -------------------------------------------------------------------------------------------


def test_a_wave_begins_when_the_one_before_and_its_pause_are_over(tmp_path: Path) -> None:
    world = Staged(tmp_path)
    store = world.roll_out(LONG)

    assert world.execute() is None
    assert world.there == "ab"
    first = paused_until(store.load())
    ended = [world.group(name).load().result for name in FIVE[:2]]
    assert first == max(end.finished_at for end in ended if end is not None) + LONG
    # Whoever looks in too early, after a restart say, changes nothing.
    assert world.execute() is None
    assert (world.there, world.begun, paused_until(store.load())) == ("ab", [1], first)
    assert pauses(store.load()) == 1

    world.clock.sleep(LONG.total_seconds())
    assert world.execute() is None
    assert world.there == "abcd"
    world.clock.sleep(LONG.total_seconds())
    result = world.execute()

    assert result is not None
    assert (result.phase, world.there, world.begun) == (ResetPhase.SUCCEEDED, "abcde", [1, 2, 3])
    assert pauses(store.load()) == 2


def test_the_last_moments_of_a_pause_are_waited_for_in_place(tmp_path: Path) -> None:
    world = Staged(tmp_path)
    store = world.roll_out(LONG)
    world.execute()
    until = paused_until(store.load())
    assert until is not None
    world.clock.sleep((until - world.clock.now() - PAUSED_HERE).total_seconds())

    world.execute()

    begun = next(line for line in store.load().journal if line.wave == 2)
    assert world.there == "abcd"
    assert until <= begun.at < until + timedelta(seconds=1)


def test_without_a_pause_waves_follow_one_another(tmp_path: Path) -> None:
    world = Staged(tmp_path)
    store = world.roll_out()

    result = world.execute()

    assert result is not None
    assert (result.phase, world.there, world.begun) == (ResetPhase.SUCCEEDED, "abcde", [1, 2, 3])
    ends = [world.group(name).load().result for name in FIVE]
    begun = {line.wave: line.at for line in reversed(store.load().journal) if line.wave}
    assert all(end.finished_at <= begun[2] for end in ends[:2] if end is not None)
    assert all(end.finished_at <= begun[3] for end in ends[:4] if end is not None)


# --- what stops it ----------------------------------------------------------------------------------------------------


def test_the_first_failure_leaves_all_that_is_not_begun_as_it_is(tmp_path: Path) -> None:
    world = Staged(tmp_path, "payments-c")
    store = world.roll_out()

    result = world.execute()

    assert result is not None
    assert result.counts is not None
    assert (result.phase, result.reason) == (ResetPhase.FAILED, "RolloutStopped")
    counts = result.counts
    assert (counts.reset, counts.failed, counts.not_begun, counts.put_back) == (2, 1, 2, 0)
    assert [trouble.group_id for trouble in counts.troubles] == ["payments-c"]
    assert result.message.startswith("Wave 2 of 3: group payments-c: may not write offsets of group payments-c")
    assert result.message.endswith("2 of 5 groups reset, 1 failed (payments-c), 2 not begun")
    # Not even the one that was in the same wave behind it.
    assert (world.there, world.begun) == ("ab", [1, 2])
    assert not any(world.group(name).load().journal for name in FIVE[3:])
    assert undone_groups(store.load(), lambda name: world.group(name).load()) == FIVE[:2]


def test_with_all_the_first_failure_rolls_back_what_was_reset(tmp_path: Path) -> None:
    world = Staged(tmp_path, "payments-d", policy=FailurePolicy.ALL)
    world.roll_out()

    result = world.execute()

    assert result is not None
    assert (result.phase, result.reason) == (ResetPhase.ROLLED_BACK, "OtherGroupFailed")
    assert (world.there, world.begun) == ("", [1, 2])


@pytest.mark.parametrize("policy", FailurePolicy)
def test_a_wave_of_which_nobody_knows_who_reads_is_followed_by_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, policy: FailurePolicy
) -> None:
    def unanswered(context: RunContext) -> LookBack:
        if context.group_id == "payments-a":
            raise Unavailable("the coordinator is away")
        return look_back(context)

    monkeypatch.setattr("tidegate.reset.applying.apply.look_back", unanswered)
    world = Staged(tmp_path, policy=policy)
    world.roll_out()

    result = world.execute()

    assert result is not None
    assert (result.reason, world.begun) == ("RolloutStopped", [1])
    assert "group payments-a was reset, but Kafka did not say who reads from the targets" in result.message
    assert world.there == ("ab" if policy is FailurePolicy.ISOLATE else "")


def test_a_group_without_a_plan_is_in_no_wave(tmp_path: Path) -> None:
    world = Staged(tmp_path)
    fleet = FleetRequest(("payments-*", "absent"), waves=Waves(percent=40))
    world.create(fleet=fleet)

    result = world.execute()

    assert result is not None
    assert (result.reason, world.there, world.begun) == ("GroupsRefused", "abcde", [1, 2, 3])


def test_pauses_that_end_after_the_deadline_are_refused_before_anything_is_changed(tmp_path: Path) -> None:
    world = Staged(tmp_path)
    world.roll_out(timedelta(minutes=30))

    result = world.execute()

    assert result is not None
    assert (result.reason, world.there) == ("RolloutTooLong", "")
    assert "3 waves with pauses of 1,800 s would end after the deadline, which is in 3,600 s" in result.message


# --- whoever dies -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize(
    ("sick", "policy", "there"),
    [((), FailurePolicy.ISOLATE, "abcde"), (("payments-c",), FailurePolicy.ISOLATE, "ab")],
    ids=["all-succeed", "one-fails"],
)
def test_a_coordinator_may_die_at_every_write_of_a_rollout(
    tmp_path: Path, sick: tuple[str, ...], policy: FailurePolicy, there: str, after: bool
) -> None:
    pause = timedelta(seconds=5)
    whole = Mortal()
    alive = Staged(tmp_path / "alive", *sick, policy=policy)
    alive.roll_out(pause)
    wanted = alive.execute(whole)
    assert wanted is not None

    # What comes before, the plan, is that of every fleet.
    for step in range(16 + after, whole.writes + 1, 2):
        world = Staged(tmp_path / str(step), *sick, policy=policy)
        store = world.roll_out(pause)
        with pytest.raises(Killed):
            world.execute(Mortal(step, after=after))
        done = {name: end for name in FIVE if (end := world.group(name).load().result) is not None}
        result = world.execute()

        assert result is not None
        assert (step, result.phase, result.reason, world.there) == (step, wanted.phase, wanted.reason, there)
        assert (step, result.counts) == (step, wanted.counts)
        assert (step, world.begun) == (step, alive.begun)
        ends = [world.group(name).load().result for name in FIVE]
        # No group twice, but for the one that was cut off.
        assert done.items() <= dict(zip(FIVE, ends, strict=True)).items()
        assert sum(end.rounds > 1 for end in ends if end is not None) <= 1
        assert in_turn(store, ends), step


def in_turn(store: DirectoryRunStore, ends: list[RunResult | None]) -> bool:
    """Whether each wave was noted to begin only after those before it had ended, and their pause."""
    begun: dict[int, datetime] = {}
    for line in store.load().journal:
        if line.wave:
            begun.setdefault(line.wave, line.at)
    return all(
        end.finished_at + timedelta(seconds=5) <= begun[wave]
        for wave in begun
        for end in ends[: 2 * (wave - 1)]
        if end is not None
    )


@pytest.mark.parametrize("policy", FailurePolicy)
def test_one_that_is_ended_in_a_pause_begins_no_other_wave(tmp_path: Path, policy: FailurePolicy) -> None:
    world = Staged(tmp_path, policy=policy)
    world.roll_out(LONG)
    assert world.execute() is None

    result = world.settle()

    assert result.reason == "Deleted"
    assert (result.phase, world.there) == (
        (ResetPhase.FAILED, "ab") if policy is FailurePolicy.ISOLATE else (ResetPhase.ROLLED_BACK, "")
    )


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_one_that_may_not_be_reset_is_not_whoever_dies_when(tmp_path: Path, after: bool) -> None:
    limits = PlanLimits("kafka", partitions=4)
    whole = Mortal()
    alive = Staged(tmp_path / "alive")
    alive.roll_out(limits=limits)
    wanted = alive.execute(whole)
    assert wanted is not None
    assert wanted.reason == "QuotaExceeded"

    for step in range(1, whole.writes + 1):
        world = Staged(tmp_path / str(step))
        world.roll_out(limits=limits)
        with pytest.raises(Killed):
            world.execute(Mortal(step, after=after))
        result = world.execute()

        assert result is not None
        assert (step, result.reason, world.there) == (step, "QuotaExceeded", "")


# --- the journal ------------------------------------------------------------------------------------------------------


def test_the_journal_keeps_a_line_for_each_wave_and_each_pause() -> None:
    counting = Progress(ResetPhase.APPLYING, AT, 1, counts=FleetCounts(1), wave=1)
    pausing = replace(counting, message="wave 1 is done", paused_until=AT + LONG)
    beginning = replace(counting, message="wave 2 begins", wave=2)

    journal: tuple[Progress, ...] = ()
    for line in (
        counting,
        replace(counting, counts=FleetCounts(2)),
        pausing,
        replace(pausing, attempt=2),
        beginning,
        replace(counting, wave=2),
        replace(counting, wave=2, counts=FleetCounts(3)),
    ):
        journal = noted(journal, line)

    assert journal == (
        replace(pausing, attempt=2),
        beginning,
        replace(counting, wave=2, counts=FleetCounts(3)),
    )
