"""Replays that end, on the in-memory Kafka: writers that die at every step, and what becomes of the group meanwhile."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from support.fake_kafka import FakeTransaction
from support.killed import Killed
from support.simulated_groups import GROUP, KINDS, PARTITIONS, RESET, TOPIC, Kind, Outage, Process, World
from tidegate.control.records import Hold, HoldKey, LimitKey
from tidegate.kafka.errors import Unavailable
from tidegate.kafka.model import Offsets, TopicPartition
from tidegate.reset.applying.gates import holder
from tidegate.reset.applying.replay import CONTINUED, HELD, RETURNED, look
from tidegate.reset.directory_store import DirectoryRunStore
from tidegate.reset.marker import marker_group
from tidegate.reset.model.request import ApplySettings, Until
from tidegate.reset.model.result import RunResult
from tidegate.reset.planning.planner import make_plan
from tidegate.reset.runs import job
from tidegate.resources.replay import Then
from tidegate.resources.reset import ResetPhase, Way

MANAGED = [kind for kind in KINDS if kind.way is Way.GATED]
RECORDS = 20


class ReplayWorld(World):
    """Whose runs are replays of ``RECORDS`` of each partition."""

    def __init__(self, kind: Kind, folder: Path) -> None:
        super().__init__(kind, folder)
        self.folder = folder

    def replay(self, then: Then = Then.RETURN) -> RunResult | None:
        """Begin one; ``None``, once the group reads."""
        self.ask(then)
        return self.execute()

    def ask(self, then: Then = Then.RETURN) -> None:
        self.create(until=Until(then, timedelta(hours=1), records=RECORDS))

    @property
    def ends(self) -> dict[TopicPartition, int]:
        plan = self.store.load().plan
        assert plan is not None
        return plan.ends

    @property
    def before(self) -> dict[TopicPartition, int]:
        """Where the group was, by the journal."""
        line = next(p for p in self.store.load().journal if p.phase is ResetPhase.REPLAYING)
        return {b.topic_partition: b.offset for b in line.before}

    def is_over(self) -> bool:
        run = self.store.load()
        assert run.plan is not None
        return look(self.kafka, run.plan, run.request.run_uid).is_over

    def wait_over(self) -> None:
        for _ in range(600):
            if self.is_over():
                return
            self.clock.sleep(0.5)
        run = self.store.load()
        raise AssertionError(look(self.kafka, run.plan, run.request.run_uid))  # type: ignore[arg-type]

    def read_of(self, partition: TopicPartition) -> list[int]:
        """From the target on."""
        [owner] = [c for c in self.consumers if partition in c._positions]
        given = [o for p, o in owner.read if p == partition]
        at = max(n for n, o in enumerate(given) if o == self.targets[partition])
        return given[at:]

    def check_replayed(self, goal: dict[TopicPartition, int]) -> None:
        for partition in self.targets:
            target, end = self.targets[partition], self.ends[partition]
            given = self.read_of(partition)
            assert given[: end - target] == list(range(target, end)), partition
            rest = given[end - target :]
            assert rest, partition
            assert rest == list(range(goal[partition], goal[partition] + len(rest))), partition
        self.check_nothing_missing()

    def nothing_is_left(self) -> bool:
        gates = self.kafka.control.read()
        return not gates.limits and not gates.holds


@pytest.mark.parametrize("then", list(Then))
@pytest.mark.parametrize("kind", MANAGED, ids=lambda k: k.name)
def test_the_group_stops_at_the_end_and_goes_on(kind: Kind, then: Then, tmp_path: Path) -> None:
    world = ReplayWorld(kind, tmp_path)
    assert world.replay(then) is None
    last = world.store.load().last
    assert last is not None
    assert (last.phase, last.way) == (ResetPhase.REPLAYING, Way.GATED)
    world.wait_over()
    world.clock.sleep(5)
    assert all(world.read_of(p)[-1] == world.ends[p] - 1 for p in RESET)
    result = world.execute()
    assert result is not None
    assert (result.phase, result.reason) == (
        ResetPhase.SUCCEEDED,
        {Then.RETURN: RETURNED, Then.CONTINUE: CONTINUED, Then.PAUSE: HELD}[then],
    )
    if then is Then.PAUSE:
        # Its limits keep it there until a pause does.
        world.clock.sleep(20)
        assert {key.topic_partition for key in world.kafka.control.read().limits} == set(RESET)
        assert all(world.read_of(p)[-1] == world.ends[p] - 1 for p in RESET)
        assert world.kafka.committed(GROUP, list(RESET)) == world.ends
        job.keep_limits(world.store, world.kafka, world.clock, lifted=True)
    assert world.nothing_is_left()
    world.settle()
    world.check_replayed(world.before if then is Then.RETURN else world.ends)


def test_before_the_end_a_writer_that_is_asked_changes_nothing(tmp_path: Path) -> None:
    world = ReplayWorld(MANAGED[0], tmp_path)
    for consumer in world.consumers:
        consumer.records_per_poll = 1
    assert world.replay() is None
    limits = set(world.kafka.control.read().limits)
    commits = world.kafka.committed(GROUP, list(RESET))
    if not world.is_over():
        assert world.execute() is None
    assert set(world.kafka.control.read().limits) == limits
    assert all(world.kafka.committed(GROUP, list(RESET))[p] >= commits[p] for p in RESET)


def places_to_die(tmp_path: Path, *, second: bool) -> int:
    world = ReplayWorld(MANAGED[0], tmp_path / "whole")
    world.ask()
    process = Process()
    world.execute(None if second else process)
    if second:
        world.wait_over()
        world.execute(process)
    return len(process.calls)


@pytest.mark.parametrize("second", [False, True], ids=["as-it-begins", "as-it-returns"])
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_a_writer_may_die_at_any_step(second: bool, after: bool, tmp_path: Path) -> None:
    for step in range(1, places_to_die(tmp_path, second=second) + 1, 5):
        world = ReplayWorld(MANAGED[0], tmp_path / str(step))
        world.ask()
        if second:
            assert world.execute() is None
            world.wait_over()
        with contextlib.suppress(Killed):
            world.execute(Process(step, after=after))
        result = world.execute()
        if result is None:
            world.wait_over()
            result = world.execute()
        assert result is not None
        assert (result.phase, result.reason) == (ResetPhase.SUCCEEDED, RETURNED), f"died at {step}: {result}"
        assert world.nothing_is_left(), step
        world.settle()
        world.check_nothing_missing()
        for partition in RESET:
            # Whoever died, nothing from the end on was read before the group had returned.
            given = world.read_of(partition)
            beyond = [o for o in given if world.ends[partition] <= o < world.before[partition]]
            assert beyond == [], f"died at {step}: {partition}: {beyond[:3]}"


@pytest.mark.parametrize("by", ["a-successor", "a-take-over"])
@pytest.mark.parametrize("then", list(Then))
def test_who_has_gone_on_since_a_writer_died_is_not_moved_again(then: Then, by: str, tmp_path: Path) -> None:
    """The operator was away just as it moved the group on: minutes or hours, in which owners read on from there."""
    moved_on = 0
    for step in range(1, places_to_die(tmp_path, second=True) + 1, 9):
        world = ReplayWorld(MANAGED[0], tmp_path / str(step))
        assert world.replay(then) is None
        world.wait_over()
        with contextlib.suppress(Killed):
            world.execute(Process(step))
        world.clock.sleep(20)
        if by == "a-successor":
            result = world.execute()
        else:
            result = job.settle(world.store, world.kafka, world.clock, reason="Deleted", message="it was deleted")
        assert result is not None
        if result.reason == HELD:
            assert {key.topic_partition for key in world.kafka.control.read().limits} == set(RESET), step
            job.keep_limits(world.store, world.kafka, world.clock, lifted=True)
        goal = world.before if result.phase is ResetPhase.ROLLED_BACK or then is Then.RETURN else world.ends
        assert world.nothing_is_left(), step
        moved_on += result.phase is ResetPhase.SUCCEEDED
        world.settle()
        world.check_replayed(goal)
    assert moved_on, "some died after the group had been moved on"


def test_whoever_goes_on_with_a_replay_knows_where_the_owners_stood(tmp_path: Path) -> None:
    """What they have committed as their gates were closed is not read again."""
    for step in range(1, places_to_die(tmp_path, second=False) + 1, 7):
        world = ReplayWorld(MANAGED[0], tmp_path / str(step))
        world.ask()
        stood: dict[TopicPartition, int] = {}
        take_effect = world.kafka._materialise

        def noted(
            transaction: Any, world: ReplayWorld = world, stood: Any = stood, take_effect: Any = take_effect
        ) -> None:
            if GROUP in transaction.offsets and transaction.transactional_id.startswith("tidegate.") and not stood:
                stood.update(world.kafka.committed(GROUP, list(RESET)))
            take_effect(transaction)

        world.kafka._materialise = noted  # type: ignore[method-assign]
        with contextlib.suppress(Killed):
            world.execute(Process(step))
        assert world.execute() is None
        assert world.before == stood, f"died at {step}"


def test_kafka_may_be_away_for_long_as_the_replay_ends(tmp_path: Path) -> None:
    """Nothing is lost by it while the group stands at its ends: so it is tried again for as long as the replay may
    last."""
    for step in range(1, 62, 6):
        world = ReplayWorld(MANAGED[0], tmp_path / str(step))
        assert world.replay(Then.CONTINUE) is None
        world.wait_over()
        outage = Outage(world.clock, step, 200)
        result = None
        for _ in range(20):
            with contextlib.suppress(Unavailable):
                result = result or world.execute(outage)
        assert result is not None
        assert (result.phase, result.reason) == (ResetPhase.SUCCEEDED, CONTINUED), f"away from {step} on: {result}"
        assert world.nothing_is_left()


def test_a_run_that_is_deleted_midway_takes_the_group_back(tmp_path: Path) -> None:
    world = ReplayWorld(MANAGED[0], tmp_path)
    assert world.replay() is None
    result = job.settle(world.store, world.kafka, world.clock, reason="Deleted", message="it was deleted")
    assert result.phase is ResetPhase.ROLLED_BACK
    assert world.nothing_is_left()
    world.settle()
    for partition in RESET:
        assert world.before[partition] in world.read_of(partition)


def other_run(world: ReplayWorld, deadline: timedelta) -> DirectoryRunStore:
    """Of somebody who resets the same group: by hand, say."""
    settings = ApplySettings(deadline=world.clock.now() + deadline)
    request = replace(world.store.load().request, run_uid="uid/2", run_id="2", until=None, settings=settings)
    store = DirectoryRunStore(world.folder, "other", clock=world.clock)
    store.create(request)
    return store


def test_another_run_waits_until_the_replay_has_ended(tmp_path: Path) -> None:
    """Also long after the claim of the run has lapsed."""
    world = ReplayWorld(MANAGED[0], tmp_path)
    assert world.replay() is None
    world.wait_over()
    world.clock.sleep(120)
    late = job.execute(other_run(world, timedelta(seconds=30)), world.kafka, world.clock)
    assert late is not None
    assert (late.phase, late.reason) == (ResetPhase.FAILED, "DeadlineExceeded")
    assert "is being replayed by another run (offset reset 1)" in late.message
    result = world.execute()
    assert result is not None
    assert (result.phase, result.reason) == (ResetPhase.SUCCEEDED, RETURNED)
    world.settle()
    world.check_replayed(world.before)


@pytest.mark.parametrize("by", ["is fenced", "is halted"])
def test_a_run_that_died_while_it_waited_takes_no_replay_its_claim(by: str, tmp_path: Path) -> None:
    """A fleet's, say, whose pod was evicted: to end what it left open is not to have the group."""
    world = ReplayWorld(MANAGED[0], tmp_path)
    assert world.replay() is None
    world.wait_over()
    world.clock.sleep(120)
    store = other_run(world, timedelta(minutes=5))
    store.write_plan(make_plan(store.load().request, world.kafka, world.clock.now()), attempt=store.begin_attempt())
    if by == "is fenced":
        job.fence(store, world.kafka, world.clock)
    else:
        job.halt(world.kafka, world.clock, "uid/2", {GROUP: "uid/2"})
    result = world.execute()
    assert result is not None
    assert (result.phase, result.reason) == (ResetPhase.SUCCEEDED, RETURNED), result
    world.settle()
    world.check_replayed(world.before)


def test_what_another_run_has_set_all_the_same_is_left_as_it_is(tmp_path: Path) -> None:
    """One of an earlier version, say, which takes no notice of limits: it withdraws the claim that has lapsed."""
    world = ReplayWorld(MANAGED[0], tmp_path)
    assert world.replay() is None
    world.wait_over()
    world.clock.sleep(120)
    control = world.kafka.control
    control.write_clock()
    control.withdraw([claimed.key for claimed in control.read().claims.lapsed(GROUP)])
    world.kafka.commit_directly(GROUP, dict.fromkeys(RESET, 3))
    result = world.execute()
    assert result is not None
    assert (result.phase, result.reason) == (ResetPhase.FAILED, "NotPutBack")
    assert "another run has had the group since" in result.message
    assert world.nothing_is_left()


def test_a_pause_that_held_the_partition_all_along_ends_no_replay(tmp_path: Path) -> None:
    """Its owner has acked a later epoch than the limit's, at an offset beyond the end: from before the reset."""
    world = ReplayWorld(MANAGED[0], tmp_path)
    pause = HoldKey(GROUP, RESET[0].topic, RESET[0].partition, "pause/a/b")
    world.kafka.control.ensure()
    world.kafka.control.hold({pause: Hold("a pause")})
    world.clock.sleep(3)
    assert world.replay() is None
    world.clock.sleep(10)
    run = world.store.load()
    assert run.plan is not None
    seen = look(world.kafka, run.plan, run.request.run_uid)
    assert (seen.reached, seen.partitions) == (len(RESET) - 1, len(RESET))
    assert "it is paused (a pause)" in seen.waits_for
    world.kafka.control.release([pause])
    world.wait_over()
    result = world.execute()
    assert result is not None
    assert result.reason == RETURNED


def test_a_place_to_return_to_that_is_gone_before_it_begins_is_missed(tmp_path: Path) -> None:
    """Offsets of a group without members may expire while the plan waits for its approval."""
    world = ReplayWorld(MANAGED[0], tmp_path)
    world.ask()
    plan = make_plan(world.store.load().request, world.kafka, world.clock.now())
    world.store.write_plan(plan, attempt=world.store.begin_attempt())
    for consumer in world.consumers:
        consumer.close()
    world.clock.sleep(60)
    del world.kafka._offsets_of(GROUP)[RESET[0]]
    result = world.execute()
    assert result is not None
    assert (result.phase, result.reason) == (ResetPhase.FAILED, "PlanOutdated")
    assert "nowhere to return to after the replay" in result.message
    assert "Nothing was changed" in result.message
    assert world.nothing_is_left()


def test_limits_that_are_gone_are_seen_and_written_again(tmp_path: Path) -> None:
    world = ReplayWorld(MANAGED[0], tmp_path)
    assert world.replay() is None
    key = LimitKey(GROUP, RESET[0].topic, RESET[0].partition, holder("uid/1"))
    world.kafka.control.release([key])
    run = world.store.load()
    assert run.plan is not None
    assert look(world.kafka, run.plan, run.request.run_uid).missing == (RESET[0],)
    job.keep_limits(world.store, world.kafka, world.clock)
    assert look(world.kafka, run.plan, run.request.run_uid).missing == ()


def test_a_group_that_is_scaled_to_zero_waits_and_is_replayed_by_who_comes(tmp_path: Path) -> None:
    world = ReplayWorld(MANAGED[0], tmp_path)
    for consumer in world.consumers:
        consumer.records_per_poll = 1
        consumer.poll_s = 2.0
    assert world.replay() is None
    for consumer in world.consumers:
        consumer.close()
    world.clock.sleep(60)
    run = world.store.load()
    assert run.plan is not None
    seen = look(world.kafka, run.plan, run.request.run_uid)
    assert not seen.is_over
    assert "nobody owns it" in seen.waits_for
    for consumer in world.consumers:
        consumer.poll_s = 0.1
        consumer.start()
    world.wait_over()
    result = world.execute()
    assert result is not None
    assert result.reason == RETURNED


@pytest.mark.parametrize("ends", ["returns", "is-deleted"])
def test_a_replay_outlasts_what_the_brokers_remember_of_its_transactions(ends: str, tmp_path: Path) -> None:
    """The marker's group has no members, so that its offsets expire after a week."""
    world = ReplayWorld(MANAGED[0], tmp_path)
    assert world.replay() is None
    world.wait_over()
    world.kafka._offsets_of(marker_group(GROUP)).clear()
    if ends == "returns":
        result = world.execute()
        assert result is not None
        assert (result.phase, result.reason) == (ResetPhase.SUCCEEDED, RETURNED)
    else:
        result = job.settle(world.store, world.kafka, world.clock, reason="Deleted", message="it was deleted")
        assert result.phase is ResetPhase.ROLLED_BACK
    assert world.nothing_is_left()
    world.settle()
    world.check_replayed(world.before)


def test_an_end_that_retention_has_deleted_is_reached_by_whoever_comes_to_what_is_left(tmp_path: Path) -> None:
    world = ReplayWorld(MANAGED[0], tmp_path)
    for consumer in world.consumers:
        consumer.records_per_poll = 1
        consumer.poll_s = 2.0
    assert world.replay() is None
    assert not world.is_over()
    first = RESET[0]
    world.kafka._log(first).start = world.ends[first] + 5
    world.wait_over()
    result = world.execute()
    assert result is not None
    assert (result.phase, result.reason) == (ResetPhase.SUCCEEDED, RETURNED)
    assert world.nothing_is_left()
    world.settle()
    read = {offset for c in world.consumers for p, offset in c.read[-400:] if p == first}
    assert world.before[first] in read


@pytest.mark.parametrize("ends", ["returns", "is-deleted"])
def test_a_place_that_retention_has_deleted_meanwhile_is_the_start_of_what_is_left(
    ends: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Consumers whose ``auto.offset.reset`` is latest would go on at the end of the log, and skip what is left."""
    world = ReplayWorld(MANAGED[0], tmp_path)
    assert world.replay() is None
    world.wait_over()
    world.clock.sleep(30)
    first = RESET[0]
    start = world.before[first] + 50
    world.kafka.delete_records(first, start)
    committed: dict[TopicPartition, int] = {}
    send = FakeTransaction.send

    def noting(transaction: FakeTransaction, group_id: str, offsets: Offsets) -> None:
        committed.update(offsets if group_id == GROUP else {})
        send(transaction, group_id, offsets)

    monkeypatch.setattr(FakeTransaction, "send", noting)
    if ends == "returns":
        result = world.execute()
    else:
        result = job.settle(world.store, world.kafka, world.clock, reason="Deleted", message="it was deleted")
    assert result is not None
    assert committed[first] == start
    assert committed[RESET[1]] == world.before[RESET[1]]
    assert "1 partition(s), e.g. orders-0, continue from the start of the log, which has been deleted" in result.message
    assert world.nothing_is_left()


@pytest.mark.parametrize("ends", ["returns", "is-deleted"])
def test_offsets_of_a_topic_that_was_recreated_meanwhile_are_not_put_into_the_new_one(
    ends: str, tmp_path: Path
) -> None:
    world = ReplayWorld(MANAGED[0], tmp_path)
    assert world.replay() is None
    world.wait_over()
    for consumer in world.consumers:
        consumer.close()
    world.kafka.delete_topic(TOPIC)
    world.kafka.create_topic(TOPIC, len(PARTITIONS))
    if ends == "returns":
        world.kafka.commit_directly(GROUP, world.ends)  # read anew up to the limits
        result = world.execute()
    else:
        result = job.settle(world.store, world.kafka, world.clock, reason="Deleted", message="it was deleted")
    assert result is not None
    assert result.reason == {"returns": "NotPutBack", "is-deleted": "Deleted"}[ends]
    assert "are left as they are, because their topics were deleted or recreated since" in result.message
    assert world.kafka.committed(GROUP, list(RESET)) == ({} if ends == "is-deleted" else world.ends)
    assert world.nothing_is_left()
