"""Applying on the in-memory Kafka: owners of every temper, which come, go and change while a reset looks."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from support.fake_consumer import FakeConsumer
from support.fake_kafka import FakeHold, void
from support.simulated_groups import (
    BACK,
    GO,
    GO_OFTEN,
    GROUP,
    KINDS,
    PARTITIONS,
    RESET,
    TOPIC,
    Delayed,
    Kind,
    World,
)
from tidegate.control.records import Hold, HoldKey
from tidegate.kafka.errors import Unavailable
from tidegate.kafka.model import GroupState, GroupType
from tidegate.reset.runs import job
from tidegate.resources.connection import GroupKind, Support
from tidegate.resources.reset import ResetPhase, Way


@pytest.mark.parametrize("kind", KINDS, ids=lambda k: k.name)
def test_every_kind_of_group_goes_on_from_its_targets(kind: Kind, tmp_path: Path) -> None:
    world = World(kind, tmp_path)
    world.create()
    result = world.execute()
    assert result is not None
    assert (result.phase, result.way, result.redone) == (ResetPhase.SUCCEEDED, kind.way, 0)
    world.settle()
    world.check_reset()


@pytest.mark.parametrize("kind", KINDS, ids=lambda k: k.name)
@pytest.mark.parametrize(("told", "reason"), [(None, "UnsupportedByBrokers"), (Support.UNKNOWN, "RefusedByKafka")])
def test_a_reset_that_brokers_refuse_leaves_the_offsets_as_they_were(
    kind: Kind, told: Support | None, reason: str, tmp_path: Path
) -> None:
    """Known beforehand, or found out only as it is applied."""
    world = World(kind, tmp_path)
    world.kafka.refuses, world.kafka.told_support = frozenset(GroupKind), told
    before = world.kafka.committed(GROUP)
    calls = len(world.kafka.calls)
    world.create()

    result = world.execute()

    assert result is not None
    assert (result.phase, result.reason) == (ResetPhase.FAILED, reason)
    if told is None:
        assert not {"leave", "rebalance", "hold", "fence", "send"} & set(world.kafka.calls[calls:])
    world.settle()
    after = world.kafka.committed(GROUP)
    assert all(after[p] >= before[p] for p in PARTITIONS)
    assert not any(world.starts_at_target(p) for p in world.targets)
    world.check_nothing_missing()


@pytest.mark.parametrize("kind", KINDS, ids=lambda k: k.name)
def test_forward(kind: Kind, tmp_path: Path) -> None:
    """Ahead of where the owners are: the records between are skipped on purpose, and none behind."""
    world = World(kind, tmp_path)
    # The owners commit every 5 s, so 10 s after the last commit they are beyond it and short of the end.
    ends = world.kafka.log_bounds(RESET)
    world.targets = {p: ends[p].latest - 1 for p in RESET}
    world.create()
    result = world.execute()
    assert result is not None
    assert result.phase is ResetPhase.SUCCEEDED
    world.settle()
    world.check_reset()


@pytest.mark.parametrize("heartbeat_s", [3.0, 10.0])
@pytest.mark.parametrize("far_s", [0.1, 0.3, 0.45, 0.6, 0.8, 1.0])
def test_owners_that_rejoin_at_once_are_caught_however_far_away_kafka_is(
    far_s: float, heartbeat_s: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was read of their offsets is that old when the join is let go, and after a rebalance all their heartbeats
    fall together: all of them may commit and rejoin in between, in one round after the other."""
    world = World(Kind("far", Way.BARRIER, consumer=(("heartbeat_s", heartbeat_s),)), tmp_path)
    world.create()
    blink = FakeHold.blink

    def late(hold: FakeHold) -> bool:
        world.clock.sleep(far_s)
        return blink(hold)

    monkeypatch.setattr(FakeHold, "blink", late)
    result = world.execute()
    assert result is not None
    assert result.phase is ResetPhase.SUCCEEDED, result.message
    assert result.rounds <= (2 if heartbeat_s == 3 else 4)
    world.settle(60)
    world.check_reset(at_most=result.rounds)


@pytest.mark.parametrize("cut_short", [0, 2])
def test_an_owner_that_keeps_its_position_is_handed_over(cut_short: int, tmp_path: Path) -> None:
    """It speaks a new subscription and yet carries its position through the rebalance: its next commit shows it.

    ``cut_short``: how many rounds after that end early because the coordinator is away; its partitions count once.
    """
    kind = Kind("keeps", Way.HANDOVER, consumer=(("keeps_position", True),))
    world = World(kind, tmp_path)
    world.aim_ahead()
    world.create()
    away = [Unavailable("coordinator moves")] * cut_short
    kafka: Any = Delayed(
        world.kafka, world.clock, {"hold": lambda: world.clock.after(1, lambda: world.kafka.fail("hold", *away))}, 0.0
    )
    result = job.execute(world.store, kafka, world.clock)
    assert result is not None
    # Kafka is away for long enough for all their commits to be seen before the next round, which does them all again.
    assert (result.phase, result.way, result.rounds) == (ResetPhase.SUCCEEDED, Way.HANDOVER, 2 if cut_short else 3)
    assert result.redone == len(RESET)
    world.settle()
    world.check_reset(at_most=2)


def test_owners_that_changed_just_before_the_join_is_held_are_looked_at_again(tmp_path: Path) -> None:
    """Partitions that moved between the look and the hold: it is the new owners that have to let go."""
    kind = Kind("cooperative-moving", Way.HANDOVER, assignor="cooperative-sticky")
    world = World(kind, tmp_path)
    world.targets = {p: o - BACK for p, o in world.kafka.committed(GROUP).items()}
    world.create()

    def somebody_joins() -> None:
        one_more = FakeConsumer(
            world.kafka, GROUP, [TOPIC], client_id="c3", protocol=kind.protocol, assignor=kind.assignor
        )
        world.consumers.append(one_more.start())
        world.clock.sleep(9)

    kafka: Any = Delayed(world.kafka, world.clock, {"hold": somebody_joins}, describe_s=0.0)
    result = job.execute(world.store, kafka, world.clock)
    assert result is not None
    assert result.phase is ResetPhase.SUCCEEDED
    world.settle()
    world.check_reset(at_most=2)


@pytest.mark.parametrize("kind", [KINDS[0], KINDS[3], GO_OFTEN], ids=lambda kind: kind.name)
def test_a_group_whose_members_all_leave_before_the_join_is_held_is_reset(kind: Kind, tmp_path: Path) -> None:
    """The next look finds it Empty, and nothing stands in the way any more."""
    world = World(kind, tmp_path)
    world.create()

    def all_leave() -> None:
        for consumer in world.consumers:
            consumer.close()

    holds = "guest" if kind.way is Way.LEADING else "hold"
    kafka: Any = Delayed(world.kafka, world.clock, {holds: all_leave}, describe_s=0.0)
    result = job.execute(world.store, kafka, world.clock)
    assert result is not None
    assert result.phase is ResetPhase.SUCCEEDED, result
    assert {p: world.kafka.committed(GROUP)[p] for p in world.targets} == world.targets


def test_an_owner_that_keeps_its_position_when_it_becomes_unknown_in_a_rebalance_is_not_met_in_one(
    tmp_path: Path,
) -> None:
    """kafka-python: whoever is rejoining when it is made to leave goes on as if nothing had been."""
    kind = Kind(
        "cooperative-keeps", Way.HANDOVER, assignor="cooperative-sticky", consumer=(("keeps_when_unknown", True),)
    )
    world = World(kind, tmp_path)
    world.create()
    kafka: Any = Delayed(world.kafka, world.clock, {"leave": lambda: world.clock.sleep(4)}, describe_s=0.0)
    result = job.execute(world.store, kafka, world.clock)
    assert result is not None
    assert result.phase is ResetPhase.SUCCEEDED
    world.settle()
    world.check_reset(at_most=2)


@pytest.mark.parametrize("static", [False, True])
@pytest.mark.parametrize("members", [1, 2, 3])
def test_nor_is_one_of_an_eager_group_even_where_it_is_alone(members: int, static: bool, tmp_path: Path) -> None:
    """kafka-python's eager assignors as well: its assignment keeps the positions of what it is given again."""
    habits = (("subscription_version", 0), ("keeps_position", True), ("keeps_when_unknown", True), ("static", static))
    world = World(Kind("eager-keeps", Way.HANDOVER, consumer=habits), tmp_path)
    for consumer in world.consumers[members:]:
        consumer.close()
    world.clock.sleep(10)
    world.create()
    kafka: Any = Delayed(world.kafka, world.clock, {"leave": lambda: world.clock.sleep(4)}, describe_s=0.0)
    result = job.execute(world.store, kafka, world.clock)
    assert result is not None
    assert result.phase is ResetPhase.SUCCEEDED
    assert result.way is (Way.LEADING if members == 1 else Way.HANDOVER)
    world.settle()
    world.check_reset(at_most=result.rounds)


@pytest.mark.parametrize("members", [1, 3])
@pytest.mark.parametrize("later_s", [0.5 * n for n in range(10)])
def test_an_owner_that_keeps_its_position_when_a_commit_is_refused_is_made_to_leave_again(
    later_s: float, members: int, tmp_path: Path
) -> None:
    """The commit of every 5 s comes before or after the heartbeat of every 3 s that tells it the same."""
    world = World(GO, tmp_path)
    for consumer in world.consumers[members:]:
        consumer.close()
    world.clock.sleep(10 + later_s)
    world.create()
    result = world.execute()
    assert result is not None
    assert result.phase is ResetPhase.SUCCEEDED
    world.settle()
    world.check_reset(at_most=result.rounds)


@pytest.mark.parametrize("initial_delay_s", [0.0, 3.0])
@pytest.mark.parametrize("ahead", [True, False])
def test_a_lone_owner_that_commits_all_the_time_is_not_made_to_leave_again(
    ahead: bool, initial_delay_s: float, tmp_path: Path
) -> None:
    """Its group is Empty for a while, and what it commits as soon as it reads again is progress from the target."""
    often = (("poll_s", 0.02), ("auto_commit_s", 0.02))
    kind = Kind("lone", Way.HANDOVER, assignor="cooperative-sticky", consumer=often)
    world = World(kind, tmp_path)
    world.kafka.initial_delay_s = initial_delay_s
    for consumer in world.consumers[1:]:
        consumer.close()
    world.clock.sleep(12)
    if ahead:
        world.targets = {p: bounds.latest - 1 for p, bounds in world.kafka.log_bounds(RESET).items()}
    else:
        world.targets = {p: world.kafka.committed(GROUP)[p] - 5 for p in RESET}
    world.create()
    kafka: Any = Delayed(world.kafka, world.clock, {}, describe_s=0.004, slow=("groups", "committed", "leave"))
    result = job.execute(world.store, kafka, world.clock)
    assert result is not None
    assert (result.phase, result.rounds) == (ResetPhase.SUCCEEDED, 1)
    world.settle()
    world.check_reset()


@pytest.mark.parametrize(
    "kind",
    [
        *(k for k in KINDS if k.name in ("eager", "eager-java", "eager-not-waiting", "cooperative", "before-kip-429")),
        *(k for k in KINDS if k.name == "static"),
    ],
    ids=lambda k: k.name,
)
def test_a_join_that_was_not_held_until_all_was_committed_does_not_count(kind: Kind, tmp_path: Path) -> None:
    """The coordinator does not take our commit for longer than it remembers the hold: owners went on meanwhile."""
    world = World(kind, tmp_path)
    world.create()
    held: list[str] = []

    def away() -> None:
        held.append("held")
        world.kafka.fail("send", *[Unavailable("the coordinator is away")] * 20)

    kafka: Any = Delayed(world.kafka, world.clock, {"hold": away}, describe_s=0.0)

    result = job.execute(world.store, kafka, world.clock)

    assert held
    assert result is not None
    assert (result.phase, result.way, result.redone) == (ResetPhase.SUCCEEDED, kind.way, 0)
    world.settle()
    world.check_reset(at_most=2)


def test_an_owner_that_does_not_obey_costs_time_only(tmp_path: Path) -> None:
    """It runs the agent and never acks: the gates are opened, and the next way is taken."""
    kind = Kind("managed-deaf", Way.BARRIER, consumer=(("managed", True), ("drain_s", 1e9)))
    world = World(kind, tmp_path)
    world.create(drain_timeout=timedelta(seconds=2))
    result = world.execute()
    assert result is not None
    assert (result.phase, result.way, result.redone) == (ResetPhase.SUCCEEDED, Way.BARRIER, 0)
    assert not list(world.kafka.control.topics.gates.of_group(GROUP))
    world.settle()
    world.check_reset(at_most=2)


def test_partitions_that_others_hold_stay_closed_at_their_target(tmp_path: Path) -> None:
    world = World(next(k for k in KINDS if k.name == "managed-consumer"), tmp_path)
    control = world.kafka.control
    control.ensure()
    paused = RESET[0]
    key = HoldKey(GROUP, paused.topic, paused.partition, "pause/c/p")
    control.hold({key: Hold("looked into")})
    world.clock.sleep(3)
    read = [o for c in world.consumers for p, o in c.read if p == paused]
    world.create()

    result = world.execute()

    assert result is not None
    assert (result.phase, result.way) == (ResetPhase.SUCCEEDED, Way.GATED)
    world.clock.sleep(5)
    assert [o for c in world.consumers for p, o in c.read if p == paused] == read
    assert world.kafka.committed(GROUP)[paused] == world.targets[paused]
    control.release([key])
    world.settle()
    world.check_reset()


def test_an_owner_that_was_made_to_leave_in_a_rebalance_of_others_is_made_to_leave_again(tmp_path: Path) -> None:
    """kafka-python: a rebalance began after the look at it, so it was rejoining, and goes on as if nothing had been."""
    kind = Kind(
        "cooperative-keeps", Way.HANDOVER, assignor="cooperative-sticky", consumer=(("keeps_when_unknown", True),)
    )
    world = World(kind, tmp_path)
    world.create()

    def rebalances() -> None:
        world.kafka.rebalance(GROUP)
        world.clock.sleep(4)

    kafka: Any = Delayed(world.kafka, world.clock, {"leave": rebalances}, describe_s=0.0)
    result = job.execute(world.store, kafka, world.clock)
    assert result is not None
    assert result.phase is ResetPhase.SUCCEEDED
    world.settle()
    world.check_reset(at_most=3)


def test_a_target_may_be_the_end_of_the_log(tmp_path: Path) -> None:
    """The whole backlog is skipped: what is written next is the first that is read."""
    world = World(KINDS[3], tmp_path)
    world.producing = False
    world.clock.sleep(0.2)
    world.targets = {p: bounds.latest for p, bounds in world.kafka.log_bounds(RESET).items()}
    world.create()
    result = world.execute()
    assert result is not None
    assert result.phase is ResetPhase.SUCCEEDED, result
    for partition in RESET:
        world.kafka.append(partition, [world.clock.now()] * 5)
    world.settle()
    world.check_reset()


def test_owners_that_change_between_the_look_and_their_leaving_are_found(tmp_path: Path) -> None:
    """A KIP-848 group moves partitions at any time: who takes one from an owner that is about to be made to leave
    begins where that owner stood, and is not among those who leave."""
    kind = Kind("consumer-moving", Way.HANDOVER, GroupType.CONSUMER, "uniform")
    world = World(kind, tmp_path)
    world.targets = {p: o - BACK for p, o in world.kafka.committed(GROUP).items()}
    world.create()
    newcomer = FakeConsumer(world.kafka, GROUP, [TOPIC], client_id="c3", protocol=kind.protocol, assignor=kind.assignor)

    def somebody_joins() -> None:
        world.consumers.append(newcomer.start())
        world.clock.sleep(9)

    kafka: Any = Delayed(world.kafka, world.clock, {"leave": somebody_joins}, describe_s=0.0)
    result = job.execute(world.store, kafka, world.clock)
    assert result is not None
    assert result.phase is ResetPhase.SUCCEEDED
    [taken] = {b.partition for b in newcomer.began[:1]}
    assert newcomer.began[0].offset > world.targets[taken]
    assert result.redone >= 1
    world.settle()
    world.check_reset(at_most=2)


@pytest.mark.parametrize("joins_before", ["groups", "pending"])
def test_an_owner_that_has_yet_to_give_a_partition_up_is_found(joins_before: str, tmp_path: Path) -> None:
    """Brokers before 4.3 show such a partition as nobody's. Its owner commits its position as it gives it up."""
    kind = Kind("consumer-revoking", Way.HANDOVER, GroupType.CONSUMER, "uniform")
    world = World(kind, tmp_path)
    world.kafka.hides_revocations = True
    _, moved = sorted(world.consumers[0].positions)
    world.targets = {moved: world.kafka.committed(GROUP)[moved] - BACK}
    world.create()
    newcomer = FakeConsumer(world.kafka, GROUP, [TOPIC], client_id="c3", protocol=kind.protocol, assignor=kind.assignor)
    world.consumers.append(newcomer)

    kafka: Any = Delayed(world.kafka, world.clock, {joins_before: lambda: void(newcomer.start())}, describe_s=0.0)
    result = job.execute(world.store, kafka, world.clock)

    assert result is not None
    assert result.phase is ResetPhase.SUCCEEDED
    world.settle()
    world.check_reset(at_most=2)


@pytest.mark.parametrize("managed", [False, True])
def test_an_owner_that_gives_a_partition_up_after_the_rebalance_is_found(managed: bool, tmp_path: Path) -> None:
    """Between the two rebalances of a cooperative group a partition that moves is nobody's by the description: its
    owner goes on until its application polls, and then commits where it was."""
    way = Way.GATED if managed else Way.HANDOVER
    kind = Kind("cooperative-slow", way, assignor="cooperative-sticky", consumer=(("managed", managed),))
    world = World(kind, tmp_path)
    _, moving = sorted(world.consumers[0].positions)
    for consumer in world.consumers:
        consumer.gives_up_after_s = 8.0
    world.targets = {moving: world.kafka.committed(GROUP)[moving] - BACK}
    world.create()
    newcomer = FakeConsumer(
        world.kafka, GROUP, [TOPIC], client_id="c3", assignor=kind.assignor, managed=managed, gives_up_after_s=8.0
    )
    world.consumers.append(newcomer.start())
    while (group := world.kafka.groups([GROUP])[GROUP]).state is not GroupState.STABLE:
        world.clock.sleep(0.1)
    assert group.owner(moving) is None
    assert moving in world.consumers[0].positions

    result = world.execute()

    assert result is not None
    assert (result.phase, result.way) == (ResetPhase.SUCCEEDED, way)
    world.settle(30)
    world.check_reset(at_most=2)
