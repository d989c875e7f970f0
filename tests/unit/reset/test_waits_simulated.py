"""How long a reset waits: for members that rejoin, and for what applications still hold."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from support.fake_consumer import FakeConsumer
from support.killed import Killed
from support.simulated_groups import (
    BACK,
    CLASSIC_KINDS,
    GROUP,
    KAFKAJS,
    KINDS,
    PARTITIONS,
    RESET,
    TOPIC,
    Delayed,
    Kind,
    Process,
    World,
    calls_of_a_whole_run,
)
from tidegate.kafka.model import GroupState, GroupType
from tidegate.reset.applying.apply import GroupReset
from tidegate.reset.runs import job
from tidegate.resources.reset import ResetPhase, Way


def test_owners_of_a_long_heartbeat_are_waited_for(tmp_path: Path) -> None:
    world = World(Kind("slow", Way.BARRIER, consumer=(("heartbeat_s", 10.0),)), tmp_path)
    world.create()
    result = world.execute()
    assert result is not None
    assert (result.phase, result.rounds) == (ResetPhase.SUCCEEDED, 1)
    world.settle(60)
    world.check_reset()


def test_what_an_application_holds_is_waited_for(tmp_path: Path) -> None:
    """``inFlight``: offsets committed late under the new generation come before our last word, not after it."""
    kind = Kind("late", Way.BARRIER, consumer=(("late_commit_s", 3.0),))
    world = World(kind, tmp_path)
    world.create(in_flight=timedelta(seconds=3))
    result = world.execute()
    assert result is not None
    assert result.phase is ResetPhase.SUCCEEDED
    world.settle()
    world.check_reset(at_most=2)


LATE = (("late_commit_s", 3.0),)


@pytest.mark.parametrize(
    ("kind", "heartbeats_s"),
    [
        (Kind("barrier", Way.BARRIER, consumer=LATE), (3.0, 3.0, 3.0)),
        # The others have long rejoined when this one gives its partitions up, just after we have tried to let go.
        (Kind("barrier-one-slow", Way.BARRIER, consumer=LATE), (3.0, 10.4, 3.0)),
    ],
    ids=lambda v: v.name if isinstance(v, Kind) else "",
)
def test_no_late_commit_comes_after_the_owners_were_held_for_as_long_as_it_takes(
    kind: Kind, heartbeats_s: tuple[float, ...], tmp_path: Path
) -> None:
    """``inFlight`` counts from when the last owner has noticed that it has to let go; then one round is enough."""
    world = World(kind, tmp_path)
    world.aim_ahead()
    for consumer, heartbeat_s in zip(world.consumers, heartbeats_s, strict=True):
        consumer.client_id, consumer.heartbeat_s = "namesake", heartbeat_s
        consumer._next_heartbeat_s = world.clock.monotonic() + heartbeat_s
    world.create(in_flight=timedelta(seconds=3))
    result = world.execute()
    assert result is not None
    assert (result.phase, result.way, result.rounds) == (ResetPhase.SUCCEEDED, kind.way, 1)
    world.settle(30)
    world.check_reset(at_most=2)


def test_a_commit_into_a_gated_reset_is_seen_before_the_gates_are_opened(tmp_path: Path) -> None:
    """Somebody else's, while our transaction is becoming visible: the last one written wins."""
    world = World(next(k for k in KINDS if k.name == "managed-eager"), tmp_path)
    world.create()
    late = RESET[0]
    committed: list[int] = []

    def commit_meanwhile() -> None:
        if late in world.kafka._undecided(GROUP):
            committed.append(world.targets[late] + BACK)
            world.kafka.commit_directly(GROUP, {late: committed[0]})
        else:
            world.clock.after(0.001, commit_meanwhile)

    commit_meanwhile()
    result = world.execute()
    assert result is not None
    assert committed
    assert (result.phase, result.way, result.redone) == (ResetPhase.SUCCEEDED, Way.GATED, 1)
    world.settle()
    world.check_reset(at_most=2)


FAR_AWAY = (
    Kind("static", Way.BARRIER, consumer=(("static", True),)),
    Kind("cooperative", Way.HANDOVER, assignor="cooperative-sticky"),
)


@pytest.mark.parametrize("kind", FAR_AWAY, ids=lambda k: k.name)
def test_brokers_far_away_put_a_reset_off_a_few_times_only(kind: Kind, tmp_path: Path) -> None:
    """Each look at the owners is older than it should be by the time it is acted upon."""
    world = World(kind, tmp_path)
    world.create()
    kafka: Any = Delayed(world.kafka, world.clock, {}, describe_s=0.25)
    result = job.execute(world.store, kafka, world.clock)
    assert result is not None
    assert (result.phase, result.way) == (ResetPhase.SUCCEEDED, kind.way)
    world.settle()
    world.check_reset(at_most=8)


def test_an_owner_that_left_before_the_join_was_held_has_left_its_partitions_to_another(tmp_path: Path) -> None:
    """Brokers far away: a rebalance fits in between the look at the owners and the hold."""
    kind = FAR_AWAY[0]
    world = World(kind, tmp_path)
    moved = next(p for p in RESET if p in world.consumers[1].positions)
    world.create()
    before: dict[str, Callable[[], None]] = {}
    holds: list[float] = []

    def leaves() -> None:
        holds.append(world.clock.monotonic())
        world.consumers[1].close()
        world.clock.sleep(9)
        assert moved in world.consumers[2].positions

    before["hold"] = leaves
    kafka: Any = Delayed(world.kafka, world.clock, before, describe_s=0.25)
    result = job.execute(world.store, kafka, world.clock)
    assert result is not None
    assert len(holds) == 1
    assert (result.phase, result.rounds) == (ResetPhase.SUCCEEDED, 1)
    world.settle()
    world.check_reset(at_most=2)


OWN = Kind("own-assignor", Way.HANDOVER, assignor="own")
"""Applications with an assignor of their own."""


@pytest.mark.parametrize("kind", [*CLASSIC_KINDS, OWN, KAFKAJS], ids=lambda k: k.name)
@pytest.mark.parametrize("slow", [0, 2])
@pytest.mark.parametrize("initial_delay_s", [0.0, 3.0])
def test_nobody_waits_longer_than_max_standstill_for_a_member_that_does_not_rejoin(
    kind: Kind, slow: int, initial_delay_s: float, tmp_path: Path
) -> None:
    """Its application takes 290 s over its records; without us, too, Kafka would let the others wait for it."""
    world = World(kind, tmp_path)
    world.kafka.initial_delay_s = initial_delay_s
    absent = world.consumers[slow]
    absent.rejoin_delay_s = 290
    absents = {} if kind.assignor == "range" or slow == 0 else absent.positions
    world.create(max_standstill=timedelta(seconds=20))
    result = world.execute()
    assert result is not None
    assert (result.phase, result.way) == (ResetPhase.SUCCEEDED, kind.way)
    # An owner that was made to leave by a Handover is not waited for.
    waited_for = kind.way is not Way.HANDOVER or slow == 2
    assert (f"1 member(s) have not rejoined yet: {absent.client_id} at {absent.host}" in result.message) == waited_for
    again = [world.begun_again_s(p) for p in PARTITIONS if p not in absents]
    held = 2 if kind.way is Way.LEADING else 1  # by a Handover before, or by a lead that did not come to its end
    assert max(again) - world.started_s < held * (20 + 2.5)  # they are back within a second
    world.settle(300)
    world.check_reset(at_most=2)


@pytest.mark.parametrize("kind", CLASSIC_KINDS, ids=lambda k: k.name)
def test_a_member_that_rejoins_within_max_standstill_is_waited_for(kind: Kind, tmp_path: Path) -> None:
    world = World(kind, tmp_path)
    world.consumers[0].rejoin_delay_s = 10
    world.create()
    result = world.execute()
    assert result is not None
    assert (result.phase, result.way) == (ResetPhase.SUCCEEDED, kind.way)
    assert "made to leave" not in result.message
    world.settle(30)
    world.check_reset()


@pytest.mark.parametrize(("in_flight_s", "rejoins_after_s"), [(30, 36), (60, 64), (60, 70)])
def test_a_member_that_rejoins_while_owners_are_held_is_waited_for(
    in_flight_s: float, rejoins_after_s: float, tmp_path: Path
) -> None:
    world = World(KINDS[0], tmp_path)
    world.consumers[0].rejoin_delay_s = rejoins_after_s
    world.create(in_flight=timedelta(seconds=in_flight_s))
    result = world.execute()
    assert result is not None
    assert (result.phase, result.way) == (ResetPhase.SUCCEEDED, Way.BARRIER)
    assert "made to leave" not in result.message
    world.settle(30)
    world.check_reset()


def test_owners_that_a_rebalance_hides_in_the_end_are_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(KINDS[0], tmp_path)
    for consumer in world.consumers:
        consumer.auto_commit_s = None
        consumer.rejoin_delay_s = 30
    world.create(max_standstill=timedelta(seconds=60))
    look_back = GroupReset._look_back

    def in_a_rebalance(self: GroupReset) -> Any:
        world.kafka.rebalance(GROUP)
        return look_back(self)

    monkeypatch.setattr(GroupReset, "_look_back", in_a_rebalance)
    result = world.execute()
    assert result is not None
    assert (result.phase, result.begun, result.waiting) == (ResetPhase.SUCCEEDED, 0, len(RESET))
    assert "as the group is rebalancing" in result.message


def test_a_deadline_ends_the_wait_for_a_member_that_is_slow_to_rejoin(tmp_path: Path) -> None:
    world = World(KINDS[0], tmp_path)
    world.consumers[0].rejoin_delay_s = 60
    world.create(deadline=timedelta(seconds=20))
    before = world.kafka.committed(GROUP)
    result = world.execute()
    assert result is not None
    assert (result.phase, result.reason) == (ResetPhase.ROLLED_BACK, "DeadlineExceeded")
    world.settle(60)
    # Everybody has gone on from where the group stood.
    assert all(world.starts_at_target(p) == 0 for p in RESET)
    assert all(world.kafka.committed(GROUP)[p] >= o for p, o in before.items())
    world.check_nothing_missing()


@pytest.mark.parametrize(
    ("auto_commit_s", "late_s"), [(5.0, 7.0), (None, 9.0)], ids=["progress-was-seen", "nobody-commits"]
)
def test_what_an_application_may_still_hold_is_watched_for(
    auto_commit_s: float | None, late_s: float, tmp_path: Path
) -> None:
    """``inFlight`` where nothing holds the owners back: an old offset that is committed within it is noticed."""
    kind = Kind("consumer-holds", Way.HANDOVER, GroupType.CONSUMER, "uniform", consumer=(("heartbeat_s", 0.2),))
    world = World(kind, tmp_path)
    for consumer in world.consumers:
        consumer.auto_commit_s = auto_commit_s
    late = RESET[0]
    world.create(in_flight=timedelta(seconds=9))
    committed: list[int] = []

    def commit() -> None:
        committed.append(world.targets[late] - 1)
        world.kafka.commit_directly(GROUP, {late: committed[0]})

    def look() -> None:
        journal = world.store.load().journal
        if journal and journal[-1].phase is ResetPhase.VERIFYING:
            world.clock.after(late_s, commit)
        else:
            world.clock.after(0.05, look)

    look()
    result = world.execute()
    assert result is not None
    assert committed
    assert (result.phase, result.redone) == (ResetPhase.SUCCEEDED, 1)
    world.settle()
    world.check_reset(at_most=2)


def test_a_rebalance_that_waits_for_a_dead_member_is_waited_for(tmp_path: Path) -> None:
    """Until its session is over, 45 s at the clients' defaults."""
    world = World(next(k for k in KINDS if k.name == "eager"), tmp_path)
    world.consumers[2].crash()
    world.consumers.append(FakeConsumer(world.kafka, GROUP, [TOPIC], client_id="c3").start())
    world.clock.sleep(8)
    assert world.kafka.groups([GROUP])[GROUP].state is GroupState.PREPARING_REBALANCE
    world.create()
    result = world.execute()
    assert result is not None
    assert (result.phase, result.way) == (ResetPhase.SUCCEEDED, Way.BARRIER), result
    world.settle()
    world.check_reset()


def test_a_group_that_does_not_settle_is_not_reset(tmp_path: Path) -> None:
    """A member that never gives up what it should: who owns that is not known."""
    kind = Kind("consumer-stuck", Way.HANDOVER, GroupType.CONSUMER, "uniform")
    world = World(kind, tmp_path)
    world.kafka.hides_revocations = True
    world.targets = {p: o - BACK for p, o in world.kafka.committed(GROUP).items()}
    world.create()
    for consumer in world.consumers:
        consumer.heartbeat_s = 1e6
        consumer._next_heartbeat_s = 1e6
    FakeConsumer(world.kafka, GROUP, [TOPIC], client_id="c3", protocol=kind.protocol, assignor=kind.assignor).start()
    result = world.execute()
    assert result is not None
    assert (result.phase, result.reason) == (ResetPhase.FAILED, "GroupNotReady")
    assert "a member may not have released orders-" in result.message
    assert "Nothing was changed" in result.message


# --- owners that are held at their join -------------------------------------------------------------------------------

HELD = tuple(kind for kind in KINDS if kind.name in ("eager", "static"))


NOBODY_WAITS_LONGER_S = 15.0


@pytest.mark.parametrize("kind", HELD, ids=lambda k: k.name)
def test_owners_are_held_for_as_long_as_records_may_be_in_flight(kind: Kind, tmp_path: Path) -> None:
    world = World(kind, tmp_path)
    world.create(in_flight=timedelta(seconds=30))
    result = world.execute()
    assert result is not None
    assert (result.phase, result.way, result.rounds, result.redone) == (ResetPhase.SUCCEEDED, kind.way, 1, 0)
    world.settle()
    world.check_reset()
    begun = [b for c in world.consumers for b in c.began if b.partition in RESET and b.at_s > world.started_s]
    assert {b.partition: b.offset for b in begun} == world.targets
    assert min(b.at_s for b in begun) >= world.started_s + 30


@pytest.mark.parametrize("kind", HELD, ids=lambda k: k.name)
def test_owners_that_are_held_go_on_soon_after_their_writer_has_died(kind: Kind, tmp_path: Path) -> None:
    """Nothing follows the dead writer; what it held ends by itself."""
    calls = calls_of_a_whole_run(kind, tmp_path / "whole", in_flight=timedelta(seconds=60))
    last_held = max(n for n, name in enumerate(calls, 1) if name.endswith("hold.keep"))
    world = World(kind, tmp_path / "run")
    world.create(in_flight=timedelta(seconds=60))
    with pytest.raises(Killed):
        world.execute(Process(last_held))
    died_s = world.clock.monotonic()
    assert died_s > world.started_s + 60
    world.clock.sleep(NOBODY_WAITS_LONGER_S)
    assert {b.partition for c in world.consumers for b in c.began if b.at_s > died_s} >= set(RESET)
    result = world.execute()
    assert result is not None
    assert result.phase is ResetPhase.SUCCEEDED
    world.settle(90)
    world.check_reset(at_most=2)
