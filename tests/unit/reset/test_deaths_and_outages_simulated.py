"""Writers that die at any step of a reset, and brokers that are away or leave a commit unanswered."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from support.fake_consumer import FakeConsumer
from support.fake_kafka import FakeHold
from support.killed import Killed
from support.simulated_groups import (
    AWAY_S,
    BACK,
    CLASSIC_KINDS,
    GO,
    GO_OFTEN,
    GROUP,
    KINDS,
    MANAGED_NOT_WAITING,
    PARTITIONS,
    RESET,
    TOPIC,
    Delayed,
    DiesAt,
    Kind,
    Mortal,
    Outage,
    Process,
    World,
    calls_of_a_whole_run,
    each_kind,
    is_verifying,
    places_to_die,
    verifies,
)
from tidegate.kafka.errors import NotAuthorized, OutcomeUnknown, Unavailable
from tidegate.kafka.model import GroupType, TopicPartition
from tidegate.reset.applying.timing import Tuning
from tidegate.reset.applying.watch import TargetWatch
from tidegate.reset.model.targets import Undo
from tidegate.reset.runs import job
from tidegate.reset.runs.request import undo_target
from tidegate.reset.store import StaleAttempt
from tidegate.resources.reset import ResetPhase, Way

# In the milliseconds between letting go and the word that it was done, nobody can tell afterwards whether it was: a
# join leaves no trace, and KIP-848 members come back under their own id. There a reset may be done twice, never not at
# all. Classic members that were made to leave have other ids: that can be seen.
UNDECIDABLE = {
    Way.HANDOVER: {"kafka.membership.leave", "kafka.pending", "kafka.committed", "store.append"},
    Way.BARRIER: {
        *("kafka.membership.hold.blink", "kafka.membership.hold.exit"),
        *("kafka.pending", "kafka.committed", "store.append"),
    },
    Way.GATED: set(),
    Way.LEADING: set(),
}


AFTER_LEAVING = {
    "kafka.groups",
    *(f"kafka.membership.{name}" for name in ("owned_when_joining", "hold.exit", "hold.keep")),
}


@pytest.mark.parametrize("kind", each_kind([*KINDS, GO, GO_OFTEN]))
def test_a_writer_may_die_at_any_step(kind: Kind, tmp_path: Path) -> None:
    calls = calls_of_a_whole_run(kind, tmp_path / "whole")
    twice = set()
    for step in places_to_die(calls):
        for after in (False, True):
            died = f"died {'after' if after else 'before'} call {step} ({calls[step - 1]})"
            world = World(kind, tmp_path / f"{step}-{after}")
            world.create()
            with pytest.raises(Killed):
                world.execute(Process(step, after))
            world.clock.sleep(2.0)
            result = world.execute()
            assert result is not None, died
            assert result.phase is ResetPhase.SUCCEEDED, f"{died}: {result}"
            world.settle()
            try:
                world.check_reset(at_most=max(2, result.rounds))
            except AssertionError as error:
                raise AssertionError(f"{died}: {error}") from error
            if any(world.starts_at_target(p) > 1 for p in world.targets):
                twice.add(calls[step - 1])
            assert world.store.load().result == result, died
    if kind.assignor == "cooperative-sticky" and kind.way is Way.HANDOVER:
        # Whether one of them kept something is told only after they have left.
        assert twice <= UNDECIDABLE[kind.way] | AFTER_LEAVING
        return
    assert twice <= UNDECIDABLE[kind.way]


ABSENT = ("eager", "static", "before-kip-429", "cooperative-go", "cooperative-go-often")


@pytest.mark.parametrize("kind", each_kind(k for k in CLASSIC_KINDS if k.name in ABSENT))
@pytest.mark.parametrize("standstill_s", [2, 12])
def test_a_writer_may_die_while_a_member_does_not_rejoin(kind: Kind, standstill_s: float, tmp_path: Path) -> None:
    def world_at(name: str) -> World:
        world = World(kind, tmp_path / name)
        world.consumers[2].rejoin_delay_s = 60
        world.create(max_standstill=timedelta(seconds=standstill_s))
        return world

    whole = Process()
    world_at("whole").execute(whole)
    for step in places_to_die(whole.calls):
        died = f"died before call {step} ({whole.calls[step - 1]})"
        world = world_at(str(step))
        with pytest.raises(Killed):
            world.execute(Process(step))
        world.clock.sleep(2.0)
        result = world.execute()
        assert result is not None, died
        assert result.phase is ResetPhase.SUCCEEDED, f"{died}: {result}"
        world.settle(60)
        try:
            # A round begins twice where its join is let go without the member that is away, and all leave once more.
            world.check_reset(at_most=2 * result.rounds)
        except AssertionError as error:
            raise AssertionError(f"{died}: {error}") from error


AWAY = (
    *("eager", "eager-not-waiting", "cooperative", "cooperative-go", "cooperative-go-often"),
    *("before-kip-429", "consumer-not-waiting", "managed-eager"),
)


@pytest.mark.parametrize("kind", each_kind(k for k in (*KINDS, GO, GO_OFTEN) if k.name in AWAY))
def test_kafka_may_be_away_at_any_step(kind: Kind, tmp_path: Path) -> None:
    """For 20 s, and to this writer only, so the owners go on meanwhile. What was verified is not applied again."""
    world = World(kind, tmp_path / "whole")
    world.create()
    whole = Outage(world.clock, 0, 0.0)
    world.execute(whole)
    for step in places_to_die(whole.calls):
        for after in (False, True):
            missed = f"no answer from call {step} on ({whole.calls[step - 1]}), the first {'done' if after else 'lost'}"
            world = World(kind, tmp_path / f"{step}-{after}")
            world.create()
            verifying: list[bool] = []

            def began(world: World = world, verifying: list[bool] = verifying) -> None:
                lines = world.store.load().journal
                verifying.append(any(line.phase is ResetPhase.VERIFYING and not line.again for line in lines))

            result = world.execute(Outage(world.clock, step, AWAY_S, after, began))
            assert result is not None, missed
            assert result.phase is ResetPhase.SUCCEEDED, f"{missed}: {result}"
            assert verifying, missed
            world.settle()
            try:
                world.check_reset(at_most=1 if verifying[0] else 2)
            except AssertionError as error:
                raise AssertionError(f"{missed}: {error}") from error
            assert not list(world.kafka.control.topics.gates.of_group(GROUP)), missed


def test_a_writer_may_die_while_the_group_is_empty(tmp_path: Path) -> None:
    """All owners have left, nobody is back yet, and an old position of theirs is committed: a KIP-848 Java consumer
    does that between being fenced and rejoining. Its offset is above the target, as progress would be."""
    kind = Kind("consumer", Way.HANDOVER, GroupType.CONSUMER, "uniform")

    def world_at(name: str) -> World:
        world = World(kind, tmp_path / name)
        # All of them, so that all members are made to leave.
        world.targets = {p: world.kafka.committed(GROUP)[p] - BACK for p in PARTITIONS}
        world.create()
        return world

    living = Process()
    world_at("whole").execute(living)
    left = living.calls.index("kafka.membership.leave") + 1
    missed = []
    for step in range(left + 1, len(living.calls)):
        world = world_at(str(step))
        with pytest.raises(Killed):
            world.execute(Process(step))
        if world.kafka.groups([GROUP])[GROUP].has_members:
            break
        late = min(world.targets)
        world.kafka.commit_directly(GROUP, {late: world.targets[late] + BACK + 60})
        world.clock.sleep(10.0)
        result = world.execute()
        assert result is not None, step
        assert result.phase is ResetPhase.SUCCEEDED, f"{step}: {result}"
        world.settle()
        if not world.starts_at_target(late):
            missed.append(f"died before call {step} ({living.calls[step - 1]}): {result.message}")
    assert step > left + 1, "the group was never empty"
    assert not missed, missed


def test_a_successor_that_cannot_look_does_not_say_that_nothing_was_changed(tmp_path: Path) -> None:
    world = World(KINDS[3], tmp_path / "whole")
    world.create()
    process = Process()
    world.execute(process)
    committed = max(n for n, name in enumerate(process.calls, 1) if name.endswith("transaction.commit"))
    world = World(KINDS[3], tmp_path / "run")
    world.create(deadline=timedelta(seconds=60))
    with pytest.raises(Killed):
        world.execute(Process(committed, after=True))
    world.clock.sleep(2)

    result = world.execute(Outage(world.clock, 1, 1000.0))

    assert result is not None
    assert (result.phase, result.reason) == (ResetPhase.FAILED, "NotPutBack")
    assert "Nothing was changed" not in result.message


@pytest.mark.parametrize("settled", [False, True], ids=["its successor", "the operator"])
def test_a_run_that_could_not_be_looked_up_can_be_undone(settled: bool, tmp_path: Path) -> None:
    """Its group's turn is known, and the coordinator of its transactions does not answer any more."""
    world = World(KINDS[3], tmp_path)
    world.create(deadline=timedelta(seconds=60))
    with pytest.raises(Killed):
        world.execute(DiesAt(lambda name: name == "kafka.writer.transaction.exit"))
    world.clock.sleep(2)
    before = {b.topic_partition: b.offset for line in world.store.load().journal for b in line.before}
    assert before.keys() == set(RESET)

    away = Outage(world.clock, 0, 1000.0, when=lambda name: name.endswith("writer.fence"))
    if settled:
        kafka: Any = Mortal(world.kafka, away, "kafka")
        result = job.settle(world.store, kafka, world.clock, reason="Deleted", message="the policy was deleted")
    else:
        result = world.execute(away)

    assert result is not None
    assert (result.phase, result.reason) == (ResetPhase.FAILED, "NotPutBack")
    assert "`to: {undo: 1}`" in result.message
    undo = undo_target("1", world.store.load())
    assert isinstance(undo, Undo)
    assert {b.topic_partition: b.offset for b in undo.before} == before


@pytest.mark.parametrize(("away_s", "dies"), [(3.0, True), (60.0, False)])
def test_an_owner_that_passes_its_target_while_nobody_looks_is_found(away_s: float, dies: bool, tmp_path: Path) -> None:
    """It kept its position, short of a target ahead of it."""
    kind = Kind("keeps", Way.HANDOVER, consumer=(("keeps_position", True),))
    world = World(kind, tmp_path)
    world.aim_ahead()
    world.create()
    process = Outage(
        world.clock,
        0,
        away_s,
        when=lambda name: name == "kafka.committed" and world.store.load().journal[-1].again == () and verifies(world),
    )
    if dies:
        groups = world.kafka.groups

        def die_once_it_is_known(group_ids: Any) -> Any:
            journal = world.store.load().journal
            if journal and journal[-1].again and not process.dead:
                process.dead = True
                raise Killed
            return groups(group_ids)

        world.kafka.groups = die_once_it_is_known  # type: ignore[method-assign]
        with pytest.raises(Killed):
            world.execute(process)
        world.clock.sleep(60)
    result = world.execute(None if dies else process)

    assert result is not None
    assert (result.phase, result.way) == (ResetPhase.SUCCEEDED, Way.HANDOVER)
    world.settle()
    world.check_reset(at_most=3)


def test_nor_does_a_clock_that_is_set_back_meanwhile_hide_it(tmp_path: Path) -> None:
    """So is that of a successor on another node, which is behind the one that has written the journal."""
    world = World(Kind("keeps", Way.HANDOVER, consumer=(("keeps_position", True),)), tmp_path)
    world.aim_ahead()
    world.create()

    def set_back() -> None:
        world.clock._start -= timedelta(minutes=2)

    result = world.execute(Outage(world.clock, 0, 60.0, began=set_back, when=is_verifying(world)))

    assert result is not None
    assert (result.phase, result.way) == (ResetPhase.SUCCEEDED, Way.HANDOVER)
    world.settle()
    world.check_reset(at_most=3)


def test_where_the_group_stood_before_is_looked_up_after_an_outage(tmp_path: Path) -> None:
    """The owners have gone on meanwhile: to undo it is to go back to where they were then."""
    world = World(KINDS[3], tmp_path)
    world.create()
    before = world.kafka.committed(GROUP)

    result = world.execute(Outage(world.clock, 0, 60.0, when=lambda name: name.endswith("transaction.send")))

    assert result is not None
    assert result.phase is ResetPhase.SUCCEEDED
    assert all(b.offset > before[b.topic_partition] + 400 for b in result.before), (result.before, before)


@pytest.mark.parametrize(("has_deadline", "away_s"), [(True, 600.0), (False, 60.0)])
def test_kafka_is_waited_for_as_long_as_the_run_may_last(has_deadline: bool, away_s: float, tmp_path: Path) -> None:
    world = World(KINDS[3], tmp_path)
    world.create(deadline=timedelta(hours=1) if has_deadline else None)

    result = world.execute(Outage(world.clock, 0, away_s, when=lambda name: name.endswith("transaction.send")))

    assert result is not None
    assert result.phase is ResetPhase.SUCCEEDED, result


def test_without_a_deadline_a_kafka_that_stays_away_ends_the_run(tmp_path: Path) -> None:
    world = World(KINDS[3], tmp_path)
    world.create(deadline=None)

    result = world.execute(Outage(world.clock, 0, 600.0, when=lambda name: name.endswith("transaction.send")))

    assert result is not None
    assert (result.phase, result.reason) == (ResetPhase.FAILED, "KafkaUnavailable")
    assert Tuning().away_limit_s <= world.clock.monotonic() - world.started_s < 2 * Tuning().away_limit_s


def test_a_round_whose_join_lapsed_with_its_commit_unanswered_is_not_called_verified(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A successor takes what was verified for decided, and would not look whether the transaction hangs."""
    world = World(KINDS[3], tmp_path)
    world.create(deadline=timedelta(minutes=5))
    away = Outage(world.clock, 0, 60.0, when=lambda name: name.endswith("transaction.commit"))
    lapsed = property(lambda _: away.until_s is not None and world.clock.monotonic() < away.until_s)
    monkeypatch.setattr(FakeHold, "lapsed", lapsed)

    result = world.execute(away)

    assert result is not None
    assert result.phase is ResetPhase.SUCCEEDED, result
    first = [entry for entry in world.store.load().journal if entry.round == 1]
    assert {entry.phase for entry in first if entry.again} == {ResetPhase.PAUSING}
    world.settle()
    world.check_reset()


def test_a_writer_that_was_taken_over_stops(tmp_path: Path) -> None:
    world = World(KINDS[0], tmp_path)
    world.create()
    stale = world.store.begin_attempt()
    world.execute()
    with pytest.raises(StaleAttempt):
        job.apply_run(world.store, stale, world.kafka, world.clock)


def test_all_partitions_of_a_dead_writers_join_are_looked_at_not_only_those_passed(
    tmp_path: Path,
) -> None:
    """The join that it held is over, and owners have gone on from where they were, one of them beyond its target."""
    ahead, back = RESET[:2]

    def world_at(name: str) -> World:
        world = World(KINDS[0], tmp_path / name)
        world.kafka.append(ahead, [world.clock.now()] * 500)
        committed = world.kafka.committed(GROUP)
        world.targets = {ahead: committed[ahead] + 60, back: committed[back] - BACK}
        world.create()
        return world

    whole = Process()
    world_at("whole").execute(whole)
    committing = next(step for step, name in enumerate(whole.calls, 1) if name.endswith("transaction.commit"))
    world = world_at("dies")
    with pytest.raises(Killed):
        world.execute(Process(committing, after=True))
    assert world.store.load().journal[-1].phase is ResetPhase.PAUSING
    world.clock.sleep(17)

    result = world.execute()

    assert result is not None
    assert result.phase is ResetPhase.SUCCEEDED, result
    world.settle(30)
    for partition in world.targets:
        assert world.starts_at_target(partition), f"{partition} was never begun at its target: {result}"


def test_progress_from_a_target_is_not_where_the_group_stood_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The join ends, owners read from targets ahead of them, and another rebalance begins before anybody looks. To go
    back to where they are then would leave out what lies before the targets."""
    world = World(Kind("eager-often", Way.BARRIER, consumer=(("auto_commit_s", 0.1),)), tmp_path)
    world.aim_ahead()
    world.create()
    blink, watch, again = FakeHold.blink, TargetWatch.watch, []

    def looks_late(hold: FakeHold) -> bool:
        if not blink(hold):
            return False
        if again:
            return True
        again.append(world.clock.monotonic())
        world.clock.sleep(0.5)
        world.consumers.append(FakeConsumer(world.kafka, GROUP, [TOPIC], client_id="newcomer").start())
        hold._take()
        return False

    def fails(*_: object, **__: object) -> frozenset[TopicPartition]:
        monkeypatch.setattr(TargetWatch, "watch", watch)
        raise NotAuthorized("it may not look any more")

    monkeypatch.setattr(FakeHold, "blink", looks_late)
    monkeypatch.setattr(TargetWatch, "watch", fails)
    result = world.execute()

    assert again
    assert result is not None
    assert (result.phase, result.reason) == (ResetPhase.ROLLED_BACK, "NotAuthorized"), result
    assert all(world.starts_at_target(p) for p in RESET)
    assert all(b.offset < world.targets[b.topic_partition] for b in result.before), (result.before, world.targets)
    world.targets = {}
    world.settle(30)
    world.check_nothing_missing()


def test_a_run_is_not_over_while_its_gates_cannot_be_opened(tmp_path: Path) -> None:
    """Kafka goes away while the gates are closed: the job ends without a result, and the next one opens them."""
    world = World(next(k for k in KINDS if k.name == "managed-eager"), tmp_path)
    world.create(deadline=timedelta(seconds=60))
    control = world.kafka.control

    def goes_away() -> None:
        world.clock.after(0.05, lambda: setattr(control, "failure", Unavailable("the brokers are away")))

    kafka: Any = Delayed(world.kafka, world.clock, {"hold": goes_away}, describe_s=0.0)
    with pytest.raises(Unavailable):
        job.execute(world.store, kafka, world.clock)
    assert world.store.load().result is None
    assert list(control.topics.gates.of_group(GROUP))
    control.failure = None

    result = world.execute()

    assert result is not None
    assert not list(control.topics.gates.of_group(GROUP))
    world.settle()
    world.check_nothing_missing()


@pytest.mark.parametrize("kind", [KINDS[3], MANAGED_NOT_WAITING], ids=lambda k: k.name)
@pytest.mark.parametrize("committed", [True, False])
def test_an_unknown_outcome_is_looked_up(committed: bool, kind: Kind, tmp_path: Path) -> None:
    world = World(kind, tmp_path)
    world.create()
    world.kafka.lose_commit_answer(committed=committed)
    result = world.execute()
    assert result is not None
    assert (result.phase, result.way) == (ResetPhase.SUCCEEDED, kind.way)
    world.settle()
    world.check_reset()


@pytest.mark.parametrize("committed", [True, False])
def test_an_owner_that_goes_on_before_a_commit_is_answered_is_reset_by_a_successor(
    committed: bool, tmp_path: Path
) -> None:
    """The writer opens its gates, and dies before it has looked what became of the commit."""
    world = World(MANAGED_NOT_WAITING, tmp_path)
    world.create()
    world.kafka.lose_commit_answer(committed=committed)
    process = Process()
    process = DiesAt(lambda name: name.endswith("writer.fence") and _has_committed(process))
    with pytest.raises(Killed):
        world.execute(process)
    assert not list(world.kafka.control.topics.gates.of_group(GROUP))
    world.clock.sleep(3)

    result = world.execute()

    assert result is not None
    assert (result.phase, result.way) == (ResetPhase.SUCCEEDED, Way.GATED)
    world.settle()
    world.check_reset(at_most=2)


def _has_committed(process: Process) -> bool:
    return any(name.endswith("transaction.commit") for name in process.calls)


def test_a_moving_coordinator_costs_time_only(tmp_path: Path) -> None:
    world = World(KINDS[0], tmp_path)
    world.create()
    world.kafka.fail("send", Unavailable("coordinator moves"), Unavailable("coordinator moves"))
    result = world.execute()
    assert result is not None
    assert result.phase is ResetPhase.SUCCEEDED
    world.settle()
    world.check_reset()


@pytest.mark.parametrize("call", ["kafka.log_bounds", "kafka.groups"])
def test_kafka_may_be_away_once_a_run_that_freed_a_join_is_verified(call: str, tmp_path: Path) -> None:
    """What is only told of it does not undo it."""
    world = World(KINDS[0], tmp_path)
    for consumer in world.consumers:
        consumer.auto_commit_s = None
    world.consumers[0].rejoin_delay_s = 290
    world.create(max_standstill=timedelta(seconds=5))
    verified = False

    def is_last_look(name: str) -> bool:
        nonlocal verified
        verified |= name == "kafka.log_bounds" and verifies(world)
        return verified and name == call

    result = world.execute(Outage(world.clock, 0, 600.0, when=is_last_look))
    assert result is not None
    assert (result.phase, result.begun, result.waiting) == (ResetPhase.SUCCEEDED, None, None)
    assert "all members were made to leave" in result.message
    assert all(world.starts_at_target(p) == 1 for p in RESET)


def test_a_successor_leaves_a_rebalance_alone_that_no_run_has_begun(tmp_path: Path) -> None:
    """Of a group whose gates it had closed: a rollout began meanwhile, with an application that is slow to stop."""
    kind = next(k for k in KINDS if k.name == "managed-eager")
    world = World(kind, tmp_path)
    world.create(max_standstill=timedelta(seconds=5))
    process = Process()
    whole = World(kind, tmp_path / "whole")
    whole.create()
    whole.execute(process)
    with pytest.raises(Killed):
        world.execute(Process(process.calls.index("kafka.control.hold") + 1, after=True))
    world.consumers[2].rejoin_delay_s = 12
    members = {c.member_id for c in world.consumers}
    world.kafka.rebalance(GROUP)
    result = world.execute()
    assert result is not None
    assert (result.phase, result.way) == (ResetPhase.SUCCEEDED, Way.GATED)
    assert {c.member_id for c in world.consumers} == members


def test_outcome_unknown_for_good_is_said(tmp_path: Path) -> None:
    world = World(KINDS[3], tmp_path)
    world.create()
    world.kafka.fail("commit", *[OutcomeUnknown("no answer")] * 2000)
    result = world.execute()
    assert result is not None
    assert (result.phase, "Nothing was changed" in result.message) == (ResetPhase.FAILED, True)


def test_where_the_group_stood_before_is_not_learnt_from_rounds_that_are_done_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Owners commit once more as they first let go: undo goes back to there, and to nothing that came afterwards."""
    kind = Kind("keeps", Way.HANDOVER, consumer=(("keeps_position", True),))
    world = World(kind, tmp_path)
    commits: list[tuple[float, dict[TopicPartition, int]]] = []
    member_commit = world.kafka._member_commit

    def noted(group_id: str, member_id: str, generation: int, offsets: dict[TopicPartition, int]) -> bool:
        taken = member_commit(group_id, member_id, generation, offsets)
        if taken:
            commits.append((world.clock.monotonic(), dict(offsets)))
        return taken

    monkeypatch.setattr(world.kafka, "_member_commit", noted)
    before = world.kafka.committed(GROUP)
    # Ahead of the owners by more than they read within a watch: what they commit next lies before it.
    for partition in RESET:
        world.kafka.append(partition, [world.clock.now()] * 500)
    world.targets = {p: before[p] + 400 for p in RESET}
    for consumer in world.consumers:
        consumer.records_per_poll = 2
    world.create()
    began_s, began_at = world.clock.monotonic(), world.clock.now()
    result = world.execute()
    assert result is not None
    assert (result.phase, result.redone) == (ResetPhase.SUCCEEDED, len(RESET))
    first_over = next(e.at for e in world.store.load().journal if e.phase is ResetPhase.VERIFYING)
    first_over_s = began_s + (first_over - began_at).total_seconds()
    stood = dict(before)
    for at_s, offsets in commits:
        if at_s <= first_over_s:
            stood |= offsets
    after = [o for at_s, offsets in commits if at_s > first_over_s for o in offsets.items() if o[0] in RESET]
    assert any(offset != stood[p] for p, offset in after), "nobody committed over the target"
    assert any(stood[p] > before[p] for p in RESET), "nobody committed once more"
    assert {b.topic_partition: b.offset for b in result.before} == {p: stood[p] for p in RESET}
