"""KIP-848 applications that commit old positions while their clients return: nothing holds them meanwhile."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from support.fake_consumer import FakeConsumer
from support.fake_kafka import FakeClock
from support.killed import Killed
from support.simulated_groups import GROUP, RESET, Kind, Outage, Process, World
from tidegate.kafka.model import GroupType, TopicPartition
from tidegate.reset.model.result import RunResult
from tidegate.resources.reset import ResetPhase, Way

CONSUMER = Kind("consumer", Way.HANDOVER, GroupType.CONSUMER, "uniform")
IN_FLIGHT = timedelta(seconds=6)


@dataclass(frozen=True)
class _Read:
    """A consumer has begun a partition at ``offset``, or read on up to there."""

    at_s: float
    consumer: FakeConsumer
    partition: TopicPartition
    offset: int
    begins: bool


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[_Read]:
    """All that consumers read, in order."""
    seen: list[_Read] = []
    begin, deliver = FakeConsumer._begin, FakeConsumer._deliver

    def noted_begin(self: FakeConsumer, partition: TopicPartition, committed: int | None) -> None:
        begin(self, partition, committed)
        began = self.began[-1]
        seen.append(_Read(began.at_s, self, partition, began.offset, begins=True))

    def noted_deliver(self: FakeConsumer, partition: TopicPartition, position: int) -> int:
        following = deliver(self, partition, position)
        seen.append(_Read(self.kafka.clock.monotonic(), self, partition, following, begins=False))
        return following

    monkeypatch.setattr(FakeConsumer, "_begin", noted_begin)
    monkeypatch.setattr(FakeConsumer, "_deliver", noted_deliver)
    return seen


def _skipped(world: World, reads: list[_Read]) -> Mapping[TopicPartition, str]:
    """Partitions of which records from the target on were not read again, whoever had read them before."""
    wrong = {}
    for partition in world.targets:
        target, reached = world.targets[partition], None
        wrong[partition] = "never begun at the target"
        since: set[FakeConsumer] = set()
        for read in reads:
            if read.partition != partition or read.at_s <= world.started_s:
                continue
            if read.begins:
                since.add(read.consumer)
                if read.offset == target:
                    reached = target
                    wrong.pop(partition, None)
                elif reached is not None and read.offset > reached:
                    wrong[partition] = f"{read.consumer.client_id} began at {read.offset}, read so far {reached}"
            elif reached is not None and read.consumer in since and partition not in wrong:
                reached = max(reached, read.offset)
    return wrong


def _check(world: World, reads: list[_Read], result: RunResult) -> None:
    """What is said to be read from its target is."""
    assert result.phase is ResetPhase.SUCCEEDED, result
    untrue = {
        p: why
        for p, why in _skipped(world, reads).items()
        if not any(said.startswith(str(p)) for said in result.unread)
    }
    assert not untrue, f"{result}"


def _world(folder: Path, settings: Mapping[int, Mapping[str, Any]], *, ahead: int | None = None) -> World:
    """``ahead``: by how much the targets lie ahead of what is committed."""
    world = World(CONSUMER, folder)
    if ahead is not None:
        committed = world.kafka.committed(GROUP)
        world.targets = {p: committed[p] + ahead for p in RESET}
    now = world.clock.monotonic()
    for number, consumer in enumerate(world.consumers):
        # No faster than what the reset goes back by until the group is at rest again.
        consumer.records_per_poll = 1
        for name, value in settings[number].items():
            setattr(consumer, name, value)
        consumer._next_heartbeat_s = min(consumer._next_heartbeat_s, now + consumer.heartbeat_s)
    return world


def _execute(world: World) -> RunResult:
    result = world.execute()
    assert result is not None
    world.settle(30)
    return result


@pytest.mark.parametrize("late_s", [0.02, 0.4, 0.8, 1.6, 2.4, 3.2])
@pytest.mark.parametrize("holder", [0, 1])
@pytest.mark.parametrize("slow", [0, 1, 2])
def test_an_old_commit_that_an_owner_brings_back_is_found(
    slow: int, holder: int, late_s: float, reads: list[_Read], tmp_path: Path
) -> None:
    """Once: the application had it in hand. One member is back long after the others."""
    world = _world(tmp_path, {n: {"heartbeat_s": 4.0 if n == slow else 0.5, "fetches_after_s": 0.1} for n in range(3)})
    consumer = world.consumers[holder]
    lost = consumer._lost
    brought: list[float] = []

    def bring() -> None:
        held = dict(consumer.positions)
        lost()
        if not brought:
            brought.append(world.clock.monotonic())
            world.clock.after(late_s, lambda: consumer._commit(held))

    consumer._lost = bring  # type: ignore[method-assign]
    world.create(in_flight=IN_FLIGHT)
    result = _execute(world)
    assert result.waiting == 0, result
    _check(world, reads, result)


def _check_rolled_back(world: World, result: RunResult) -> None:
    """No owner goes on from the target of a reset that was rolled back, and commits what it has read from there."""
    assert (result.phase, result.reason) in {
        (ResetPhase.ROLLED_BACK, "Overwritten"),
        (ResetPhase.FAILED, "PlanOutdated"),
    }, result
    before = {one.topic_partition: one.offset for one in result.before}
    for _ in range(150):
        world.clock.sleep(0.1)
        seen = world.kafka.committed(GROUP)
        back = {p: (before[p], seen.get(p)) for p in before.keys() & world.targets if seen.get(p, -1) < before[p]}
        assert not back, f"{back} {result}"


def _random_settings(numbers: random.Random, **more: list[Any]) -> Mapping[int, Mapping[str, Any]]:
    choices: dict[str, list[Any]] = {"heartbeat_s": [1.0, 3.0, 5.0], "auto_commit_s": [0.1, 0.3, 1.0, 5.0], **more}
    settings = {}
    for consumer in range(3):
        settings[consumer] = {name: numbers.choice(choices[name]) for name in choices}
        settings[consumer]["_next_heartbeat_s"] = 12 + numbers.uniform(0, settings[consumer]["heartbeat_s"])
    return settings


@pytest.mark.parametrize("seed", range(60))
@pytest.mark.parametrize("ahead", [None, 6])
def test_no_target_is_said_to_be_read_that_a_late_commit_has_replaced(
    ahead: int | None, seed: int, reads: list[_Read], tmp_path: Path
) -> None:
    """Applications commit for seconds what they have in hand, and some do so each time that they are made to leave."""
    numbers = random.Random(seed)
    world = _world(
        tmp_path,
        _random_settings(
            numbers,
            late_commit_s=[None, 0.01, *(numbers.uniform(0, 5) for _ in range(2))],
            fetches_after_s=[0.0, 0.1, 0.2],
            records_per_poll=[1, 2, 3],
        ),
        ahead=ahead,
    )
    world.create(in_flight=IN_FLIGHT)
    result = world.execute()
    assert result is not None
    if result.phase is not ResetPhase.SUCCEEDED:
        _check_rolled_back(world, result)
        return
    world.settle(30)
    if ahead is None:
        assert not _skipped(world, reads), result
    else:
        _check(world, reads, result)


@pytest.mark.parametrize("seed", range(30))
def test_who_reads_fast_is_not_taken_for_one_who_commits_late(seed: int, reads: list[_Read], tmp_path: Path) -> None:
    numbers = random.Random(seed)
    world = _world(tmp_path, _random_settings(numbers, records_per_poll=[1, 3, 10]))
    world.create(in_flight=IN_FLIGHT)
    result = _execute(world)
    # Who has read to beyond its old place by the first commit, a moment after it was given the partition, may be.
    assert (result.rounds <= 2, result.waiting) == (True, 0), result
    _check(world, reads, result)


def _reads_fast(folder: Path, *, ahead: int | None = None) -> World:
    """Each commits, a moment after it was given its partitions, what it has read to beyond its old place by then."""
    settings = {"heartbeat_s": 1.0, "auto_commit_s": 0.1, "_next_commit_s": 0.0, "records_per_poll": 500}
    world = _world(folder, dict.fromkeys(range(3), settings), ahead=ahead)
    world.create(in_flight=IN_FLIGHT)
    return world


def test_a_reset_that_cannot_be_told_from_an_overwritten_one_does_not_succeed(tmp_path: Path) -> None:
    world = _reads_fast(tmp_path)
    result = world.execute()
    assert result is not None
    assert "may be old ones" in result.message, result.message
    assert "inFlight" in result.message, result.message
    _check_rolled_back(world, result)


def test_who_has_read_on_from_a_target_ahead_of_it_is_let_read(reads: list[_Read], tmp_path: Path) -> None:
    """As with ``latest``: each of its commits looks like one from an old position that has passed the target."""
    result = _execute(_reads_fast(tmp_path, ahead=6))
    assert result.phase is ResetPhase.SUCCEEDED, result
    assert result.rounds <= 4, result


LATE_BY_ITSELF = (("late_commit_s", 1.0), ("commits_after_join", True), ("begins_before_sending", True))
KGO, KAFKA_GO = "kgo", "consumers@vm (github.com/segmentio/kafka-go)"


@pytest.mark.parametrize("commit_s", [0.1, 0.3])
@pytest.mark.parametrize("dies_in", [None, 40, 90])
@pytest.mark.parametrize(
    ("clients", "in_flight_s"), [((KAFKA_GO,) * 3, 2), ((KGO,) * 3, 2), ((KGO, KAFKA_GO, KAFKA_GO), 0)]
)
def test_who_has_begun_at_a_target_all_the_same_is_set_back(
    clients: tuple[str, ...], in_flight_s: int, dies_in: int | None, commit_s: float, tmp_path: Path
) -> None:
    """Its late commit looks like the old position that it has gone on from; its next one is from the target on."""
    kind = Kind("eager", Way.BARRIER, consumer=(("auto_commit_s", commit_s), ("records_per_poll", 3), *LATE_BY_ITSELF))
    world = World(kind, tmp_path)
    world.kafka.max_size = 3
    for consumer, client_id in zip(world.consumers, clients, strict=True):
        consumer.client_id = client_id
    world.create(in_flight=timedelta(seconds=in_flight_s))
    if dies_in is not None:
        with contextlib.suppress(Killed):
            world.execute(Process(dies_in, after=True))
        world.clock.sleep(12)
    result = world.execute()
    assert result is not None
    if result.phase is not ResetPhase.SUCCEEDED:
        _check_rolled_back(world, result)


@pytest.mark.parametrize(("client_id", "in_flight_s"), [("c", 2), (KGO, 2)])
def test_an_offset_below_a_target_is_old_for_certain(
    client_id: str, in_flight_s: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Also where each commit above the target may be progress. Each join of theirs ends with such an offset."""
    world = World(Kind("eager", Way.BARRIER, consumer=(("auto_commit_s", 0.1),)), tmp_path)
    world.kafka.max_size = 3
    before = world.kafka.committed(GROUP)
    world.targets = {p: before[p] + 60 for p in RESET}
    for partition in RESET:
        world.kafka.append(partition, [world.clock.now()] * 900)
    for consumer in world.consumers:
        consumer.client_id, consumer.records_per_poll = client_id, 1
    take = FakeConsumer._take

    def bring(self: FakeConsumer, generation: int, partitions: frozenset[TopicPartition]) -> None:
        self._generation, self._joining = generation, False
        if RESET[0] in partitions:
            self._commit({RESET[0]: before[RESET[0]] + 3})
        self.records_per_poll = 100
        take(self, generation, partitions)
        self._next_commit_s = 0.0

    monkeypatch.setattr(FakeConsumer, "_take", bring)
    world.create(in_flight=timedelta(seconds=in_flight_s))
    result = world.execute()
    assert result is not None
    assert result.phase is not ResetPhase.SUCCEEDED, result


def test_an_owner_that_does_not_return_is_looked_for_within_max_standstill(tmp_path: Path) -> None:
    world = _world(tmp_path, {n: {} for n in range(3)})
    world.create(in_flight=IN_FLIGHT, max_standstill=timedelta(seconds=20))
    owner = world.consumers[0]
    owner._lost = owner.crash  # type: ignore[method-assign]
    result = world.execute()
    assert result is not None
    assert result.phase is ResetPhase.SUCCEEDED, result
    assert 20 <= world.clock.monotonic() - world.started_s <= 20 + 12


LATE = {n: {"late_commit_s": (0.02, 1.0, None)[n], "fetches_after_s": 0.1} for n in range(3)}


def test_a_writer_may_die_while_it_looks_for_late_commits(reads: list[_Read], tmp_path: Path) -> None:
    """Its successor does not know who was made to leave, nor what it has seen."""
    whole = Process()
    world = _world(tmp_path / "whole", LATE)
    world.create(in_flight=IN_FLIGHT)
    world.execute(whole)
    for step in range(1, len(whole.calls) + 1, 7):
        reads.clear()
        world = _world(tmp_path / str(step), LATE)
        world.create(in_flight=IN_FLIGHT)
        with contextlib.suppress(Killed):
            world.execute(Process(step, after=True))
        world.clock.sleep(2)
        result = _execute(world)
        _check(world, reads, result)


@pytest.mark.parametrize("begins_at", range(20, 200, 15))
def test_kafka_may_be_away_while_late_commits_are_looked_for(
    begins_at: int, reads: list[_Read], tmp_path: Path
) -> None:
    world = _world(tmp_path, LATE)
    world.create(in_flight=IN_FLIGHT)
    result = world.execute(Outage(world.clock, begins_at, 3.0))
    assert result is not None
    world.settle(30)
    _check(world, reads, result)


class _SlowAnswers(Process):
    """Of one of its questions for committed offsets the writer gets the answer only ``slow_s`` later."""

    def __init__(self, clock: FakeClock, slow: int, slow_s: float) -> None:
        super().__init__()
        self._clock, self._slow, self._slow_s = clock, slow, slow_s
        self.asked = 0

    def call(self, name: str, do: Callable[[], Any]) -> Any:
        answer = super().call(name, do)
        if name == "kafka.committed":
            self.asked += 1
            if self.asked == self._slow:
                self._clock.sleep(self._slow_s)
        return answer


def test_an_answer_that_takes_long_hides_no_late_commit(reads: list[_Read], tmp_path: Path) -> None:
    """What was committed just before the answer, which comes when its owner would have begun elsewhere long since."""
    world = _world(tmp_path / "quick", LATE)
    quick = _SlowAnswers(world.clock, 0, 0.0)
    world.create(in_flight=IN_FLIGHT)
    world.execute(quick)
    for slow in range(1, quick.asked + 1, 2):
        reads.clear()
        world = _world(tmp_path / str(slow), LATE)
        world.create(in_flight=IN_FLIGHT)
        result = world.execute(_SlowAnswers(world.clock, slow, 0.4))
        assert result is not None
        world.settle(30)
        _check(world, reads, result)
