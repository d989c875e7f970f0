"""Leading on the in-memory Kafka: owners that keep their positions although they are made to leave.

That a writer may die at each step of it: ``test_deaths_and_outages_simulated.py``.
"""

from __future__ import annotations

import contextlib
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from support.fake_consumer import FakeConsumer
from support.fake_kafka import FakeGuest
from support.killed import Killed
from support.simulated_groups import (
    GO,
    GO_OFTEN,
    GROUP,
    PARTITIONS,
    RESET,
    TOPIC,
    Kind,
    Outage,
    Process,
    World,
    die_verifying,
    is_verifying,
)
from tidegate.kafka.errors import NotAuthorized, Refused, Unavailable
from tidegate.kafka.model import Group, GroupState, TopicPartition
from tidegate.reset.applying.rounds import MAX_ROUNDS, Outcome, Round
from tidegate.reset.applying.sequences import Sequences
from tidegate.reset.model.result import RunResult
from tidegate.resources.reset import ResetPhase, Way

OTHER = PARTITIONS[3]
EAGER = Kind("eager-keeps", Way.LEADING, consumer=(("keeps_position", True), ("keeps_when_unknown", True)))


def execute(world: World) -> RunResult:
    result = world.execute()
    assert result is not None
    return result


def ways(world: World) -> list[Way]:
    """By round, as each begins."""
    lines = [line for line in world.store.load().journal if not line.again]
    return [line.way for line in lines if line.phase is ResetPhase.PAUSING and line.way is not None]


def reasons(world: World) -> str:
    return "; ".join(line.message for line in world.store.load().journal)


@pytest.mark.parametrize("members", [1, 2, 3])
def test_who_keeps_its_position_when_it_is_made_to_leave_is_led(members: int, tmp_path: Path) -> None:
    world = World(GO_OFTEN, tmp_path)
    for consumer in world.consumers[members:]:
        consumer.close()
    world.clock.sleep(10)
    world.create()

    result = execute(world)

    assert (result.phase, result.way) == (ResetPhase.SUCCEEDED, Way.LEADING)
    assert ways(world)[0] is Way.HANDOVER
    assert result.rounds <= 3  # of several members, one stays in the first round
    world.settle()
    world.check_reset()


def test_the_other_partitions_are_neither_stopped_nor_read_again(tmp_path: Path) -> None:
    world = World(GO_OFTEN, tmp_path)
    world.create()
    assert execute(world).way is Way.LEADING
    world.settle()
    for consumer in world.consumers:
        assert not [b for b in consumer.began if b.partition == OTHER and b.at_s > world.started_s]
    read = [o for c in world.consumers for p, o in c.read if p == OTHER]
    assert read == sorted(set(read))


def test_members_have_what_they_had(tmp_path: Path) -> None:
    world = World(GO_OFTEN, tmp_path)
    before = {m.client_id: m.assignment for m in world.kafka.groups([GROUP])[GROUP].members}
    world.create()
    assert execute(world).way is Way.LEADING
    world.settle()
    group = world.kafka.groups([GROUP])[GROUP]
    assert group.state is GroupState.STABLE
    assert {m.client_id: m.assignment for m in group.members} == before


def test_a_group_whose_join_does_not_end_is_led_twice_at_most(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its members are all there and wait: for a member id that a client has asked for and never used."""
    world = World(GO_OFTEN, tmp_path)
    join = FakeGuest.join

    def join_beside_a_stranger(self: FakeGuest) -> None:
        group, clock = self._group, world.clock
        stranger = f"stranger-{clock.monotonic()}"
        group.pending_ids[stranger] = clock.monotonic() + 45
        clock.after(45, lambda: world.kafka._maybe_complete(group))
        join(self)

    monkeypatch.setattr(FakeGuest, "join", join_beside_a_stranger)
    # It keeps its position a few times only.
    for consumer in world.consumers:
        world.clock.after(10, lambda consumer=consumer: setattr(consumer, "keeps_when_refused", False))
    world.create()

    result = execute(world)

    assert result.phase is ResetPhase.SUCCEEDED, result
    assert ways(world).count(Way.LEADING) == 2
    world.settle(60)
    world.check_reset(at_most=result.rounds)


def test_a_full_group_is_not_led_and_handed_over_as_before(tmp_path: Path) -> None:
    world = World(GO_OFTEN, tmp_path)
    world.kafka.max_size = 3
    # It keeps its position a few times only.
    for consumer in world.consumers:
        world.clock.after(10, lambda consumer=consumer: setattr(consumer, "keeps_when_refused", False))
    world.create()

    result = execute(world)

    assert (result.phase, result.way) == (ResetPhase.SUCCEEDED, Way.HANDOVER)
    assert "the group cannot be led: group payments: GROUP_MAX_SIZE_REACHED" in reasons(world)
    assert ways(world).count(Way.LEADING) == 1
    world.settle()
    world.check_reset(at_most=result.rounds)


@pytest.mark.parametrize("error", [Refused("no common assignor"), NotAuthorized("Read on the group")])
@pytest.mark.parametrize("call", ["guest", "guest.join"])
def test_what_the_coordinator_does_not_let_us_do_is_not_tried_again(
    call: str, error: Refused | NotAuthorized, tmp_path: Path
) -> None:
    world = World(GO_OFTEN, tmp_path)
    for consumer in world.consumers:
        world.clock.after(10, lambda consumer=consumer: setattr(consumer, "keeps_when_refused", False))
    world.kafka.fail(call, error)
    world.create()

    result = execute(world)

    assert (result.phase, result.way) == (ResetPhase.SUCCEEDED, Way.HANDOVER)
    assert f"the group cannot be led: {error}" in reasons(world)
    world.settle()
    world.check_reset(at_most=result.rounds)
    assert len(world.kafka.groups([GROUP])[GROUP].members) == 3


def test_a_member_that_joins_meanwhile_gets_its_share(tmp_path: Path) -> None:
    world = World(GO_OFTEN, tmp_path)
    world.create()
    late = FakeConsumer(
        world.kafka, GROUP, [TOPIC], client_id="late", assignor=GO_OFTEN.assignor, **dict(GO_OFTEN.consumer)
    )
    _at(world, "guest.assign", late.start)
    result = execute(world)
    assert (result.phase, result.way) == (ResetPhase.SUCCEEDED, Way.LEADING)
    world.consumers.append(late)
    world.settle()
    world.check_reset(at_most=2)
    assert len(world.kafka.groups([GROUP])[GROUP].members) == 4
    assert late.positions


def test_a_group_that_a_member_leaves_meanwhile_is_led_again(tmp_path: Path) -> None:
    world = World(GO_OFTEN, tmp_path)
    world.create()
    _at(world, "guest.assign", world.consumers[0].close)
    result = execute(world)
    assert (result.phase, result.way) == (ResetPhase.SUCCEEDED, Way.LEADING)
    world.settle()
    world.check_reset(at_most=2)


@pytest.mark.parametrize("call", ["guest.join", "guest.joined", "guest.rebalances", "guest.assign", "commit"])
def test_a_coordinator_that_moves_costs_time_only(call: str, tmp_path: Path) -> None:
    world = World(GO_OFTEN, tmp_path)
    world.create()
    if call == "commit":
        _at(world, "guest.assign", lambda: world.kafka.fail("commit", Unavailable("coordinator moves")))
    else:
        world.kafka.fail(call, Unavailable("coordinator moves"))
    result = execute(world)
    assert (result.phase, result.way) == (ResetPhase.SUCCEEDED, Way.LEADING)
    world.settle()
    world.check_reset(at_most=2)


@pytest.mark.parametrize("call", ["guest.assign", "pending", "committed"])
def test_a_lead_that_is_lost_in_the_barrier_does_not_count(call: str, tmp_path: Path) -> None:
    """Its targets are committed, and who has the partitions next may have been given them before they showed."""
    world = World(replace(GO_OFTEN, consumer=(*GO_OFTEN.consumer, ("waits", False))), tmp_path)
    world.create()
    _at(world, "guest.assign", lambda: world.kafka.fail(call, Unavailable("coordinator moves")))
    result = execute(world)
    assert (result.phase, result.way) == (ResetPhase.SUCCEEDED, Way.LEADING)
    assert ways(world).count(Way.LEADING) == 2
    world.settle()
    world.check_reset(at_most=2)


@pytest.mark.parametrize("committed", [True, False])
def test_a_commit_in_the_barrier_whose_outcome_is_unknown_does_not_count(committed: bool, tmp_path: Path) -> None:
    world = World(GO_OFTEN, tmp_path)
    world.create()
    _at(world, "guest.assign", lambda: world.kafka.lose_commit_answer(committed=committed))
    result = execute(world)
    assert (result.phase, result.way) == (ResetPhase.SUCCEEDED, Way.LEADING)
    assert ways(world).count(Way.LEADING) == 2
    world.settle()
    world.check_reset(at_most=2)


def _at(world: World, call: str, do: Any) -> None:
    """Just after the first call of that name."""

    def look() -> None:
        if call in world.kafka.calls:
            do()
        else:
            world.clock.after(0.01, look)

    look()


def test_what_an_application_holds_is_waited_for(tmp_path: Path) -> None:
    world = World(GO_OFTEN, tmp_path)
    world.create(in_flight=timedelta(seconds=6))
    result = execute(world)
    assert (result.phase, result.way) == (ResetPhase.SUCCEEDED, Way.LEADING)
    assert result.standstill is not None
    assert result.standstill.p50_s > 6
    world.settle()
    world.check_reset()


def test_what_an_application_commits_while_its_client_joins_is_waited_for(tmp_path: Path) -> None:
    """franz-go keeps commits back while it joins, and sends them before it asks where to begin."""
    late = (("late_commit_s", 2.0), ("commits_after_join", True))
    world = World(replace(GO_OFTEN, consumer=(*GO_OFTEN.consumer, *late)), tmp_path)
    world.create(in_flight=timedelta(seconds=2.5))

    result = execute(world)

    assert (result.phase, result.way) == (ResetPhase.SUCCEEDED, Way.LEADING)
    world.settle()
    world.check_reset()


@pytest.mark.parametrize("static", [False, True])
def test_an_eager_group_whose_clients_keep_late_commits_back_is_led(static: bool, tmp_path: Path) -> None:
    late = (("static", static), ("late_commit_s", 2.0), ("commits_after_join", True), ("auto_commit_s", 0.2))
    world = World(Kind("eager-go", Way.LEADING, consumer=late), tmp_path)
    for consumer in world.consumers:
        consumer.client_id = "kgo"
    world.create(in_flight=timedelta(seconds=2.5))

    result = execute(world)

    assert (result.phase, result.way, result.rounds) == (ResetPhase.SUCCEEDED, Way.LEADING, 1)
    world.settle()
    world.check_reset()


@pytest.mark.parametrize(("version", "first"), [(0, Way.LEADING), (1, Way.BARRIER)])
def test_late_commits_that_wait_for_the_join_of_any_client_do_not_replace_the_targets(
    version: int, first: Way, tmp_path: Path
) -> None:
    """aiokafka on a busy machine: the application was waiting for the join, and commits before its consumer has asked
    where to begin."""
    late = (("subscription_version", version), ("late_commit_s", 2.0), ("commits_after_join", True))
    world = World(Kind("eager-late", first, consumer=(*late, ("auto_commit_s", 0.2))), tmp_path)
    world.create(in_flight=timedelta(seconds=2.5))

    result = execute(world)

    assert (result.phase, result.way) == (ResetPhase.SUCCEEDED, Way.LEADING)
    assert ways(world)[0] is first
    world.settle()
    world.check_reset(at_most=result.rounds)


BY_HAND = (
    Kind("eager-go", Way.BARRIER),
    Kind("eager-go-static", Way.BARRIER, consumer=(("static", True),)),
    replace(GO, way=Way.HANDOVER),
)
"""franz-go, whose applications commit by hand."""


def _world_by_hand(kind: Kind, folder: Path) -> World:
    by_hand = (("auto_commit_s", 0.2), ("late_commit_s", 0.2), ("commits_after_join", True))
    world = World(replace(kind, consumer=(*kind.consumer, *by_hand)), folder)
    for consumer in world.consumers:
        consumer.client_id = "kgo"
    world.create()
    return world


@pytest.mark.parametrize("kind", BY_HAND, ids=lambda kind: kind.name)
def test_a_commit_by_hand_that_a_client_kept_back_is_found_and_its_group_led(kind: Kind, tmp_path: Path) -> None:
    """Nobody has said ``inFlight``: it is the one that the application asks for just as its client joins."""
    world = _world_by_hand(kind, tmp_path)

    result = execute(world)

    assert (result.phase, result.way) == (ResetPhase.SUCCEEDED, Way.LEADING)
    assert ways(world)[0] is kind.way
    world.settle()
    world.check_reset(at_most=2)


@pytest.mark.parametrize("apart_s", [0.01, 0.03, 0.1, 0.2])
@pytest.mark.parametrize("kind", BY_HAND, ids=lambda kind: kind.name)
def test_every_commit_that_was_kept_back_is_found_not_only_the_first(
    kind: Kind, apart_s: float, tmp_path: Path
) -> None:
    """The members of a group send what they kept back one after the other."""
    world = _world_by_hand(kind, tmp_path)
    for number, consumer in enumerate(world.consumers):
        consumer.sends_after_s = 0.02 + apart_s * number

    result = execute(world)

    assert (result.phase, result.way) == (ResetPhase.SUCCEEDED, Way.LEADING)
    world.settle()
    world.check_reset(at_most=result.rounds)


@pytest.mark.parametrize("slow", [0, 1, 2])
@pytest.mark.parametrize("sends_after_s", [0.6, 0.8, 1.2])
@pytest.mark.parametrize("kind", BY_HAND, ids=lambda kind: kind.name)
def test_a_commit_that_came_too_late_to_be_looked_for_is_done_again_with_those_that_were_found(
    kind: Kind, sends_after_s: float, slow: int, tmp_path: Path
) -> None:
    """As on a busy machine: a second after the join. Its owner goes on from there, as it would from the target."""
    world = _world_by_hand(kind, tmp_path)
    for number, consumer in enumerate(world.consumers):
        consumer.sends_after_s = sends_after_s if number == slow else 0.02

    result = execute(world)

    assert (result.phase, result.way) == (ResetPhase.SUCCEEDED, Way.LEADING)
    world.settle()
    world.check_reset(at_most=result.rounds)


@pytest.mark.parametrize("sends_after_s", [0.02, 0.1, 0.2])
def test_a_commit_that_a_client_kept_back_is_found_though_its_owner_dies_with_it(
    sends_after_s: float, tmp_path: Path
) -> None:
    """kafka-go begins at the target, and steps back from such a commit with its next one, which never comes here."""
    by_hand = (("auto_commit_s", 0.2), ("late_commit_s", 0.2), ("commits_after_join", True))
    by_hand += (("sends_after_s", sends_after_s), ("begins_before_sending", True))
    world = World(Kind("eager-go", Way.BARRIER, consumer=by_hand), tmp_path)
    for consumer in world.consumers:
        consumer.client_id = "consumers@vm (github.com/segmentio/kafka-go)"
    world.create()
    started_s, died = world.clock.monotonic(), []
    [owner] = [c for c in world.consumers if RESET[0] in c.positions]
    send = owner._send_kept_back

    def send_and_die() -> None:
        had_some = bool(owner._kept_back) and world.clock.monotonic() > started_s
        send()
        if had_some and not died:
            died.append(world.clock.monotonic())
            owner.crash()

    owner._send_kept_back = send_and_die  # type: ignore[method-assign]
    result = execute(world)

    assert died
    assert result.phase is ResetPhase.SUCCEEDED, result
    world.settle(60)
    for partition in owner.positions.keys() & world.targets.keys():
        read_to = owner.positions[partition]
        began = [b.offset for c in world.consumers for b in c.began if b.partition == partition and b.at_s > died[0]]
        assert began
        # By the time that it is found another owner may have begun at it, and is sent back.
        assert min(began) <= read_to, f"{partition}: read to {read_to}, then begun at {began}: {result}"


def test_nothing_is_counted_as_begun_while_a_client_that_keeps_commits_back_is_away(tmp_path: Path) -> None:
    """What its application commits now comes in the first generation after its return."""
    world = World(Kind("eager-go", Way.BARRIER), tmp_path)
    for consumer in world.consumers:
        consumer.client_id = "consumers@vm (github.com/segmentio/kafka-go)"
    # It reads nothing that is reset, so nobody begins late for its sake.
    away = next(c for c in world.consumers if not c.positions.keys() & set(RESET))
    away.rejoin_delay_s = 100.0
    world.create(max_standstill=timedelta(seconds=5))

    result = execute(world)

    assert result.phase is ResetPhase.SUCCEEDED, result
    assert (result.begun, result.waiting) == (0, len(RESET)), result


def test_progress_elsewhere_while_a_group_is_led_is_not_done_again(tmp_path: Path) -> None:
    """kafka-go's only consumer may leave the group and join anew once it was led, having read on from other targets."""
    world = World(Kind("eager-go", Way.BARRIER, consumer=(("auto_commit_s", 5.0),)), tmp_path)
    for other in world.consumers[1:]:
        other.close()
    world.clock.sleep(5)
    [consumer] = world.consumers[:1]
    consumer.client_id = "consumers@vm (github.com/segmentio/kafka-go)"
    consumer.records_per_poll = 1
    for partition in RESET:
        world.kafka.append(partition, [world.clock.now()] * 500)
    before = world.kafka.committed(GROUP)
    world.targets = {p: before[p] + 30 for p in RESET}
    world.create()
    assigned, rejoin, led = consumer._assigned, consumer._rejoin, [0]

    def assigned_and_brings_one_back(generation: int, partitions: frozenset[TopicPartition]) -> None:
        assigned(generation, partitions)
        led[0] += RESET[0] not in partitions
        if not led[0]:
            world.clock.after(0.02, lambda: consumer._commit({RESET[0]: before[RESET[0]] + 20}))

    def rejoins_anew() -> None:
        led[0] += led[0] > 0
        if led[0] != 3:
            rejoin()
            return
        world.kafka._remove(world.kafka._group(GROUP), consumer.member_id)
        consumer._positions.clear()
        world.clock.after(1.0, consumer._lost)

    consumer._assigned = assigned_and_brings_one_back  # type: ignore[method-assign]
    consumer._rejoin = rejoins_anew  # type: ignore[method-assign]
    result = execute(world)

    assert led[0] >= 3, result
    assert (result.phase, result.way, result.rounds) == (ResetPhase.SUCCEEDED, Way.LEADING, 2), result
    world.settle()
    world.check_reset(at_most=3)


def test_a_client_that_leaves_with_a_commit_that_it_kept_back_is_not_counted_as_begun(tmp_path: Path) -> None:
    """No client that is known to keep commits back, so it is not looked for, nor its group led."""
    by_hand = (("auto_commit_s", 0.2), ("late_commit_s", 0.2), ("commits_after_join", True))
    by_hand += (("sends_after_s", 0.02), ("begins_before_sending", True))
    world = World(Kind("eager-go", Way.BARRIER, consumer=by_hand), tmp_path)
    world.create()
    started_s, left = world.clock.monotonic(), []
    [owner] = [c for c in world.consumers if RESET[0] in c.positions]
    send = owner._send_kept_back

    def send_and_leave() -> None:
        brought = [p for offsets in owner._kept_back for p in offsets]
        send()
        if brought and not left and world.clock.monotonic() > started_s:
            left.extend(brought)
            owner.auto_commit_s = None
            owner.close()

    owner._send_kept_back = send_and_leave  # type: ignore[method-assign]
    result = execute(world)

    assert result.phase is ResetPhase.SUCCEEDED, result
    brought = frozenset(left) & world.targets.keys()
    assert brought
    assert result.waiting >= len(brought), result
    assert all(any(said.startswith(str(p)) for said in result.unread) for p in brought), result


@pytest.mark.parametrize("sends_after_s", [0.02, 0.1, 0.2])
@pytest.mark.parametrize("kind", BY_HAND, ids=lambda kind: kind.name)
def test_a_commit_that_was_kept_back_is_found_also_where_another_partition_is_to_be_done_again(
    kind: Kind, sends_after_s: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the next round its owner would be far ahead, which cannot be told from progress."""
    world = _world_by_hand(kind, tmp_path)
    for consumer in world.consumers:
        consumer.sends_after_s = sends_after_s
    carry_out = Sequences.carry_out

    def unsure_of_the_first(self: Sequences, way: Way, round_: Round, group: Group) -> Outcome:
        outcome = carry_out(self, way, round_, group)
        return replace(outcome, unsure=outcome.unsure | {RESET[0]}) if round_.number == 1 else outcome

    monkeypatch.setattr(Sequences, "carry_out", unsure_of_the_first)

    result = execute(world)

    assert result.phase is ResetPhase.SUCCEEDED
    world.settle()
    world.check_reset(at_most=result.rounds)


@pytest.mark.parametrize("kind", BY_HAND, ids=lambda kind: kind.name)
def test_so_does_a_successor_find_it(kind: Kind, tmp_path: Path) -> None:
    """It may come while a rebalance hides the owners."""
    whole = Process()
    _world_by_hand(kind, tmp_path / "whole").execute(whole)
    for step in range(1, len(whole.calls) + 1, 9):
        died = f"died after call {step} ({whole.calls[step - 1]})"
        world = _world_by_hand(kind, tmp_path / str(step))
        with contextlib.suppress(Killed):
            world.execute(Process(step, after=True))
        world.clock.sleep(2.0)
        result = execute(world)
        assert result.phase is ResetPhase.SUCCEEDED, f"{died}: {result}"
        world.settle()
        for partition in RESET:
            assert world.starts_at_target(partition) >= 1, f"{died}: {partition} was never begun at its target"
        world.check_nothing_missing()


def test_what_an_owner_has_sent_to_a_transaction_is_waited_for(tmp_path: Path) -> None:
    """It ends while nobody has the partitions, and takes effect where it was sent after our offsets."""
    world = World(GO_OFTEN, tmp_path)
    theirs = world.kafka.writer("of-an-owner", transaction_timeout_s=20)
    opened = theirs.transaction()

    def send() -> None:
        transaction = opened.__enter__()
        transaction.send(GROUP, dict.fromkeys(RESET, 1))
        world.clock.after(5, transaction.commit)

    _at(world, "guest.assign", send)
    world.create()
    result = execute(world)
    assert (result.phase, result.way) == (ResetPhase.SUCCEEDED, Way.LEADING)
    world.settle()
    world.check_reset()


def test_a_member_that_freezes_while_its_group_is_led_is_named_and_left_behind(tmp_path: Path) -> None:
    """It does not come to the second join: nobody waits longer for it than for any other."""
    world = World(GO_OFTEN, tmp_path)
    world.create(max_standstill=timedelta(seconds=8))
    frozen = world.consumers[2]
    _at(world, "guest.assign", lambda: setattr(frozen, "rejoin_delay_s", 120.0))
    result = execute(world)
    assert (result.phase, result.way) == (ResetPhase.SUCCEEDED, Way.LEADING)
    assert f"1 member(s) have not rejoined yet: {frozen.client_id} at {frozen.host}" in result.message
    world.settle(130)
    world.check_reset(at_most=2)


def test_a_dead_writers_guest_is_not_waited_for(tmp_path: Path) -> None:
    world = World(GO_OFTEN, tmp_path)
    membership = world.kafka.membership
    dead = membership.guest(GROUP)
    dead.__enter__().join()
    world.clock.sleep(5)
    world.create(max_standstill=timedelta(seconds=60))
    result = execute(world)
    assert (result.phase, result.way) == (ResetPhase.SUCCEEDED, Way.LEADING)
    world.settle()
    world.check_reset()


def test_an_eager_group_whose_owners_keep_their_positions_is_led(tmp_path: Path) -> None:
    world = World(EAGER, tmp_path)
    world.aim_ahead()
    _keep_whatever_happens(world)
    world.create()
    result = execute(world)
    assert (result.phase, result.way) == (ResetPhase.SUCCEEDED, Way.LEADING), ways(world)
    assert ways(world)[:2] == [Way.BARRIER, Way.HANDOVER]
    world.settle()
    world.check_reset(at_most=2)


@pytest.mark.parametrize("members", [1, 2])
@pytest.mark.parametrize("syncs_after_s", [0.0, 0.2, 0.9, 1.5, 2.9])
def test_an_owner_that_keeps_positions_has_heard_that_it_lost_the_partition(
    syncs_after_s: float, members: int, tmp_path: Path
) -> None:
    """kafka-python on a busy machine: where it asks what it is assigned only after the next rebalance has begun, it is
    given the partition again without ever having been without it, and goes on where it was."""
    world = World(replace(EAGER, consumer=(*EAGER.consumer, ("subscription_version", 0))), tmp_path)
    for consumer in world.consumers[members:]:
        consumer.close()
    world.clock.sleep(10)
    if members > 1:
        world.aim_ahead()
        _keep_whatever_happens(world)
    for consumer in world.consumers:
        consumer.syncs_after_s = syncs_after_s
    world.create()
    result = execute(world)
    assert (result.phase, result.way) == (ResetPhase.SUCCEEDED, Way.LEADING), reasons(world)
    world.settle()
    world.check_reset(at_most=2)


def _keep_whatever_happens(world: World) -> None:
    """No client is known to do that: it goes on where it was whenever it is given what it had."""
    for consumer in world.consumers:

        def lost(consumer: FakeConsumer = consumer) -> None:
            consumer.member_id = consumer._new_id()
            consumer._join()

        consumer._lost = lost  # type: ignore[method-assign]


def test_partitions_of_the_group_that_are_not_in_the_run_stay_with_their_owners_while_it_is_led(
    tmp_path: Path,
) -> None:
    slowly = (*GO_OFTEN.consumer, ("gives_up_after_s", 0.3))
    world = World(replace(GO_OFTEN, consumer=slowly), tmp_path)
    seen: list[set[TopicPartition]] = []

    def look() -> None:
        group = world.kafka.groups([GROUP])[GROUP]
        if group.state is GroupState.STABLE:
            seen.append({p for m in group.members for p in m.assignment})
        if world.producing:
            world.clock.after(0.05, look)

    world.create()
    look()
    assert execute(world).way is Way.LEADING
    assert {OTHER} in seen
    assert all(OTHER in owned for owned in seen)
    assert seen[-1] == set(PARTITIONS)
    assert set(RESET) == set(PARTITIONS) - {OTHER}


@pytest.mark.parametrize("how", ["a death", "an outage"])
@pytest.mark.parametrize("names", [("kgo", "kgo", "kgo"), ("c0", "c1", "kgo")], ids=["all", "one of three"])
def test_progress_while_nobody_looks_is_no_commit_that_was_kept_back(
    names: tuple[str, ...], how: str, tmp_path: Path
) -> None:
    """They have read past where they were before by the time that somebody looks again."""
    kind = Kind("eager", Way.BARRIER)
    world = World(kind, tmp_path)
    for consumer, name in zip(world.consumers, names, strict=True):
        consumer.client_id = name
    world.create()

    if how == "a death":
        die_verifying(world)
        world.clock.sleep(30)
        result = world.execute()
    else:
        result = world.execute(Outage(world.clock, 0, 20.0, when=is_verifying(world)))
    assert result is not None
    assert (result.phase, result.rounds) == (ResetPhase.SUCCEEDED, 1), result
    world.settle()
    world.check_reset()


def _who_reads_fast(folder: Path, client_id: str, commit_s: float) -> World:
    """In a group that cannot be led. Its commits might as well be old ones that were kept back."""
    world = World(Kind("eager", Way.BARRIER, consumer=(("auto_commit_s", commit_s),)), folder)
    world.kafka.max_size = 3
    for consumer in world.consumers:
        consumer.client_id = client_id
    world.targets = {p: world.kafka.committed(GROUP)[p] - 5 for p in RESET}
    world.create()
    return world


@pytest.mark.parametrize("commit_s", [0.1, 0.3])
def test_who_may_have_begun_at_what_it_kept_back_does_not_count_as_reset(commit_s: float, tmp_path: Path) -> None:
    world = _who_reads_fast(tmp_path, "kgo", commit_s)
    result = execute(world)
    assert (result.phase, result.reason) == (ResetPhase.ROLLED_BACK, "Overwritten"), result
    assert "may be old ones" in result.message
    assert "inFlight" not in result.message
    assert max(map(world.starts_at_target, RESET)) <= MAX_ROUNDS


@pytest.mark.parametrize("commit_s", [0.1, 0.3])
def test_who_asks_where_to_begin_before_it_sends_that_is_not_reset_for_ever(commit_s: float, tmp_path: Path) -> None:
    world = _who_reads_fast(tmp_path, "consumers@vm (github.com/segmentio/kafka-go)", commit_s)
    result = execute(world)
    assert result.phase is ResetPhase.SUCCEEDED, result
    assert (result.begun, result.waiting) == (0, len(RESET))
    world.settle()
    world.check_reset(at_most=3)


def test_a_generation_that_a_dead_writer_leads_is_not_taken_for_one_without_owners(tmp_path: Path) -> None:
    """Their old owners may commit late as long as it lasts."""
    late = (("auto_commit_s", 0.2), ("late_commit_s", 2.0), ("commits_after_join", True))
    kind = replace(GO, consumer=(*GO.consumer, *late))

    def world_at(name: str) -> World:
        world = World(kind, tmp_path / name)
        for consumer in world.consumers:
            consumer.client_id = "kgo"
        world.create(in_flight=timedelta(seconds=2))
        return world

    whole = Process()
    world_at("whole").execute(whole)
    for step in range(1, len(whole.calls) + 1, 5):
        died = f"died after call {step} ({whole.calls[step - 1]})"
        world = world_at(str(step))
        with contextlib.suppress(Killed):
            world.execute(Process(step, after=True))
        result = execute(world)
        assert result.phase is ResetPhase.SUCCEEDED, f"{died}: {result}"
        world.settle(30)
        for partition in RESET:
            assert world.starts_at_target(partition) >= 1, f"{died}: {partition} was never begun: {result}"
