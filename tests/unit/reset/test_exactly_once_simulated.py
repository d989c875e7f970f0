"""Owners that commit by transactions, on the in-memory Kafka: what they have sent counts when its transaction ends.

The coordinator checks who is a member as offsets are sent, and never again; of two offsets the one that was sent last
wins, whichever transaction ends last.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from support import fake_kafka
from support.fake_consumer import FakeConsumer
from support.fake_kafka import FakeMembership, FakeProducer, FakeTransaction
from support.killed import Killed
from support.simulated_groups import (
    BACK,
    GO,
    GO_OFTEN,
    GROUP,
    PARTITIONS,
    RESET,
    Delayed,
    Kind,
    Process,
    World,
)
from support.simulated_groups import KINDS as ALL_KINDS
from tidegate.kafka.errors import Fenced
from tidegate.kafka.model import Group, GroupState, GroupType, TopicPartition
from tidegate.reset.applying import way_choice
from tidegate.reset.applying.handover import Handover
from tidegate.reset.applying.rounds import Outcome, Round
from tidegate.reset.model.result import RunResult
from tidegate.reset.runs import job
from tidegate.resources.reset import ResetPhase, Way

OLD = (("subscription_version", 0), ("waits", False))
"""aiokafka."""

KINDS = (
    Kind("eager", Way.BARRIER),
    Kind("eager-not-waiting", Way.BARRIER, consumer=(("waits", False),)),
    Kind("static", Way.BARRIER, consumer=(("static", True),)),
    Kind("static-cooperative", Way.HANDOVER, assignor="cooperative-sticky", consumer=(("static", True),)),
    Kind("before-kip-429", Way.HANDOVER, consumer=OLD),
    Kind("cooperative", Way.HANDOVER, assignor="cooperative-sticky"),
    Kind("consumer", Way.HANDOVER, GroupType.CONSUMER, "uniform"),
    Kind("consumer-not-waiting", Way.HANDOVER, GroupType.CONSUMER, "uniform", consumer=(("waits", False),)),
    GO_OFTEN,
)

WAITING = tuple(k for k in KINDS if ("waits", False) not in k.consumer and k is not GO_OFTEN)


@dataclass(frozen=True)
class Habit:
    """How an application commits. Times in seconds: a transaction gets the offsets after ``sends_s`` and ends after
    ``open_s``, the next one begins ``pause_s`` later."""

    name: str
    sends_s: float
    open_s: float
    pause_s: float
    commits: bool = True


SHORT = Habit("short", 0.0, 0.03, 0.27)
EARLY = Habit("sends early", 0.1, 8.0, 0.05)
LONG = Habit("long", 0.1, 33.0, 0.05)
ABORTED = Habit("aborted", 0.1, 33.0, 0.05, commits=False)
MANAGED = tuple(k for k in ALL_KINDS if k.way is Way.GATED)
HABITS = (SHORT, EARLY, LONG, ABORTED)


@dataclass
class ExactlyOnce:
    """An exactly-once application: what it commits, it commits by transactions, and by no other way.

    It goes on polling while one is open, and ends it whatever has become of its membership. ``names_member``: the
    coordinator checks that it is a member (KIP-447); aiokafka names none.
    """

    consumer: FakeConsumer
    habit: Habit
    names_member: bool = True
    hands_in: bool = False
    """Whether it also sends, in its next transaction, what it was given before it lost the partition."""
    in_hand: dict[TopicPartition, int] = field(default_factory=dict)
    producer: FakeProducer = field(init=False)
    dead: bool = False
    sent: int = 0

    def __post_init__(self) -> None:
        self.consumer.auto_commit_s = None
        self.producer = FakeProducer(self.consumer.kafka)

    def start(self, after_s: float) -> None:
        self.consumer.kafka.clock.after(after_s, self._begin)
        self._take()

    def _take(self) -> None:
        """Records come while a transaction is open; their offsets go with the next one."""
        self.in_hand.update(self.consumer.positions)
        self.consumer.kafka.clock.after(0.1, self._take)

    def die(self) -> None:
        """Its transaction stays open until it times out."""
        self.dead = True
        self.consumer.crash()

    def _begin(self) -> None:
        clock, habit = self.consumer.kafka.clock, self.habit
        clock.after(habit.sends_s, self._send)
        clock.after(habit.open_s, self._end)
        clock.after(habit.open_s + habit.pause_s, self._begin)

    def _send(self) -> None:
        consumer = self.consumer
        # One thread polls and commits: it does neither while it rejoins.
        waits = not consumer.positions or consumer._rejoining or consumer._joining
        if self.dead or (waits and not self.hands_in):
            return
        offsets = {**self.in_hand, **consumer.positions} if self.hands_in else consumer.positions
        self.in_hand.clear()
        self.sent += self.producer.send_offsets(
            consumer.group_id, offsets, consumer.metadata() if self.names_member else None
        )

    def _end(self) -> None:
        if not self.dead:
            with contextlib.suppress(Fenced):
                self.producer.end(commit=self.habit.commits)


def a_world(kind: Kind, folder: Path, habit: Habit, later_s: float = 0.0) -> tuple[World, list[ExactlyOnce]]:
    """Its group has committed by transactions for a while."""
    if kind is GO_OFTEN:
        kind = replace(kind, consumer=GO.consumer)
    world = World(kind, folder)
    applications = [ExactlyOnce(c, habit, names_member=kind.consumer != OLD) for c in world.consumers]
    for number, application in enumerate(applications):
        application.start(0.1 * (1 + number))
    world.clock.sleep(6 + later_s)
    world.targets = {p: world.kafka.committed(GROUP)[p] - BACK for p in RESET}
    return world, applications


def executed(world: World, *, describe_s: float = 0.01) -> RunResult:
    """By a writer whose requests take a moment."""
    world.create()
    asks = ("groups", "committed", "pending", "leave")
    kafka: Any = Delayed(world.kafka, world.clock, {}, describe_s=describe_s, slow=asks)
    result = job.execute(world.store, kafka, world.clock)
    assert result is not None
    return result


@pytest.mark.parametrize("habit", HABITS, ids=lambda h: h.name)
@pytest.mark.parametrize("kind", KINDS, ids=lambda k: k.name)
def test_a_group_that_commits_by_transactions_goes_on_from_its_targets(
    kind: Kind, habit: Habit, tmp_path: Path
) -> None:
    for number in range(10 if habit is SHORT else 3):
        world, applications = a_world(kind, tmp_path / str(number), habit, 0.037 * number)
        result = executed(world)
        assert result.phase is ResetPhase.SUCCEEDED, result
        assert all(a.sent for a in applications)
        world.settle(80)
        world.check_reset(at_most=result.rounds + 1)


def _handing_in(folder: Path, open_s: float, later_s: float) -> tuple[World, frozenset[TopicPartition]]:
    """A group of aiokafka's whose first application sends, in its next transaction, what it had in hand when it lost
    its partitions; they are given to one that reads and commits nothing for a while. Returns its partitions of the
    reset."""
    kind = next(k for k in KINDS if k.name == "before-kip-429")
    world, applications = a_world(kind, folder, Habit("hands in", 0.0, open_s, 0.02), later_s)
    applications[0].hands_in = True
    applications[2].habit, world.consumers[2].records_per_poll = Habit("seldom", 0.0, 60.0, 0.02), 0
    for consumer, name in zip(world.consumers, reversed([c.client_id for c in world.consumers]), strict=True):
        consumer.client_id = name
    return world, frozenset(world.consumers[0].positions.keys() & world.targets.keys())


@pytest.mark.parametrize("open_s", [0.6, 2.0, 5.0])
def test_a_partition_whose_offset_an_application_had_in_hand_is_not_counted_as_begun(
    open_s: float, tmp_path: Path
) -> None:
    """Its owner began at the target, and replaces the offset by its next commit. Until then nobody knows."""
    for number in range(6):
        world, theirs = _handing_in(tmp_path / str(number), open_s, 0.137 * number)
        result = executed(world)
        assert (result.phase, result.rounds) == (ResetPhase.SUCCEEDED, 1), result
        assert any(world.kafka.committed(GROUP)[p] > world.targets[p] for p in theirs)
        assert result.waiting is not None
        assert result.waiting >= len(theirs)


@pytest.mark.parametrize("open_s", [0.6, 2.0, 5.0])
def test_an_offset_that_an_application_had_in_hand_is_replaced_where_there_is_another_round(
    open_s: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or its next owner would begin there."""
    carry_out = Handover.carry_out

    def unsure_once(self: Handover, round_: Round, group: Group) -> Outcome:
        outcome = carry_out(self, round_, group)
        others = round_.pending - theirs
        return replace(outcome, unsure=outcome.unsure | others) if round_.number == 1 else outcome

    monkeypatch.setattr(Handover, "carry_out", unsure_once)
    for number in range(6):
        world, theirs = _handing_in(tmp_path / str(number), open_s, 0.137 * number)
        result = executed(world)
        assert result.phase is ResetPhase.SUCCEEDED, result
        committed = world.kafka.committed(GROUP)
        owned = [p for p in theirs if world.kafka.groups([GROUP])[GROUP].owner(p) is not None]
        slow = [p for p in owned if p in world.consumers[2].positions]
        assert {p: committed[p] for p in slow} == {p: world.targets[p] for p in slow}
        began = {b.partition: b.offset for c in world.consumers for b in c.began if b.at_s > world.started_s}
        assert {p: began[p] for p in theirs} == {p: world.targets[p] for p in theirs}


@pytest.mark.parametrize("ahead", [False, True], ids=["back", "ahead"])
def test_applications_that_hand_nothing_in_are_reset_once(ahead: bool, tmp_path: Path) -> None:
    kind = next(k for k in KINDS if k.name == "before-kip-429")
    for number, open_s in enumerate((0.03, 1.0, 5.0)):
        world, _ = a_world(kind, tmp_path / str(number), Habit("well", 0.0, open_s, 0.02))
        if ahead:
            world.targets = {p: world.kafka.committed(GROUP)[p] + 30 for p in RESET}
        result = executed(world)
        assert (result.phase, result.rounds) == (ResetPhase.SUCCEEDED, 1), result


@pytest.mark.parametrize("is_led", [True, False], ids=["led", "cannot be led"])
def test_applications_that_own_all_that_is_reset_are_not_reset_again_and_again(
    is_led: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of them stays in the group until the next round. By then what the others have read since their targets is
    beyond where they were, and looks like what they may have had in hand."""
    if not is_led:
        choose_way = way_choice.choose_way
        monkeypatch.setattr(way_choice, "choose_way", lambda owners: choose_way(replace(owners, not_led="a test")))
    kind = next(k for k in KINDS if k.name == "before-kip-429")
    for number, open_s in enumerate((0.03, 2.0, 6.0)):
        world, _ = a_world(kind, tmp_path / str(number), Habit("well", 0.0, open_s, 0.02))
        world.targets = {p: world.kafka.committed(GROUP)[p] - BACK for p in PARTITIONS}
        result = executed(world)
        assert result.phase is ResetPhase.SUCCEEDED, result
        assert result.way in {Way.HANDOVER, *({Way.LEADING} if is_led else ())}
        assert result.rounds <= 4, result
        world.settle(80)
        world.check_reset(at_most=result.rounds + 1)


@pytest.mark.parametrize("kind", [k for k in KINDS if k.name in ("eager", "static")], ids=lambda k: k.name)
def test_members_of_an_eager_group_wait_for_their_transactions_once(kind: Kind, tmp_path: Path) -> None:
    """librdkafka begins at ``auto.offset.reset`` where a second rebalance meets it as it waits."""
    kind = replace(kind, consumer=(*kind.consumer, ("gives_waiting_up", True)))
    for number in range(5):
        world, _ = a_world(kind, tmp_path / str(number), LONG, 0.137 * number)
        for n, consumer in enumerate(world.consumers):
            consumer.heartbeat_s = 3.0 - 0.7 * n  # so that they hear of it one after the other
        result = executed(world)
        assert result.phase is ResetPhase.SUCCEEDED, result
        world.settle(80)
        world.check_reset(at_most=result.rounds + 1)
        assert not [b for c in world.consumers for b in c.began if b.at_s > world.started_s and b.offset == 0]


def test_a_group_is_reset_in_a_moment_without_transactions(tmp_path: Path) -> None:
    """A cooperative group's members rebalance twice, whatever is done; they go on until then."""
    world = World(next(k for k in KINDS if k.name == "cooperative"), tmp_path)
    outsider = FakeProducer(world.kafka)
    outsider.send_offsets(GROUP, dict.fromkeys(RESET, 1), None)
    world.clock.after(9.0, lambda: outsider.end(commit=True))
    members = frozenset(c.member_id for c in world.consumers)
    seen: list[frozenset[str]] = []
    world.clock.after(8.9, lambda: seen.append(frozenset(c.member_id for c in world.consumers)))
    result = executed(world)
    assert seen == [members]
    assert result.phase is ResetPhase.SUCCEEDED, result
    world.settle(80)
    world.check_reset(at_most=result.rounds + 1)


@pytest.mark.parametrize("kind", KINDS, ids=lambda k: k.name)
def test_the_open_transaction_of_a_dead_owner_does_not_keep_a_run(kind: Kind, tmp_path: Path) -> None:
    """It is aborted after its time-out of a minute; the run is done by then, or as soon as its place is taken."""
    world, applications = a_world(kind, tmp_path, LONG)
    applications[0].die()
    result = executed(world)
    assert result.phase is ResetPhase.SUCCEEDED, result
    world.settle(150)
    world.check_reset(at_most=result.rounds + 1)


@pytest.mark.parametrize("habit", [LONG, ABORTED], ids=lambda h: h.name)
@pytest.mark.parametrize("kind", [k for k in KINDS if k.way is Way.BARRIER], ids=lambda k: k.name)
def test_members_rebalance_once_while_their_transactions_stay_open(kind: Kind, habit: Habit, tmp_path: Path) -> None:
    """A second rebalance would meet librdkafka while it waits for the transaction, and it would begin elsewhere."""
    world, _ = a_world(kind, tmp_path, habit)
    result = executed(world)
    assert (result.phase, result.way, result.rounds) == (ResetPhase.SUCCEEDED, Way.HANDOVER, 1)


@pytest.mark.parametrize("kind", [k for k in KINDS if k.way is Way.BARRIER], ids=lambda k: k.name)
def test_members_of_a_group_far_away_rebalance_once_too(kind: Kind, tmp_path: Path) -> None:
    """Where a look is out of date by the time it can be acted upon."""
    world, _ = a_world(kind, tmp_path, LONG)
    result = executed(world, describe_s=0.2)
    assert (result.phase, result.way, result.rounds) == (ResetPhase.SUCCEEDED, Way.HANDOVER, 1)
    world.settle(80)
    world.check_reset(at_most=2)


@pytest.mark.parametrize("kind", KINDS, ids=lambda k: k.name)
def test_a_run_ends_once_its_owners_have_shown_that_they_go_on(kind: Kind, tmp_path: Path) -> None:
    """Although they have a transaction open at nearly every moment."""
    world, _ = a_world(kind, tmp_path, Habit("one after the other", 0.0, 4.0, 0.01))
    result = executed(world)
    assert result.phase is ResetPhase.SUCCEEDED, result
    assert world.clock.monotonic() - world.started_s < 40.0


@pytest.mark.parametrize("kind", WAITING, ids=lambda k: k.name)
def test_a_run_waits_for_a_transaction_up_to_the_default_time_out_of_one(kind: Kind, tmp_path: Path) -> None:
    """Only then it shows where its owners have begun."""
    world, _ = a_world(kind, tmp_path, SHORT)
    producer = FakeProducer(world.kafka)
    producer.send_offsets(GROUP, dict.fromkeys(RESET, 7), None)
    world.clock.after(50.0, lambda: producer.end(commit=False))
    result = executed(world)
    assert result.phase is ResetPhase.SUCCEEDED, result
    assert world.clock.monotonic() > world.started_s + 50.0
    assert result.begun == len(RESET)


HANDED_OVER = tuple(k for k in KINDS if k.way is Way.HANDOVER)


@dataclass
class DiesAfter(Process):
    """A writer that dies just after its first call of that name."""

    name: str = ""

    def call(self, name: str, do: Callable[[], Any]) -> Any:
        if self.dies_at is None and name.endswith(self.name):
            self.dies_at = len(self.calls) + 1
        return super().call(name, do)


class LastOffsets:
    """What the owners send to their last transactions, which are committed ``ends_after_s`` later."""

    def __init__(self, world: World, applications: list[ExactlyOnce], ends_after_s: float) -> None:
        for application in applications:
            application.habit = Habit("no more", 1e6, 1e6, 0.0)
        world.clock.sleep(1)
        self._clock = world.clock
        self._left = list(applications)
        self._ends_after_s = ends_after_s

    def send(self, of: FakeConsumer | None = None) -> None:
        """Once each, as soon as it can; ``of`` one of them only."""
        for application in [a for a in self._left if of in (None, a.consumer)]:
            before = application.sent
            application._send()
            if application.sent > before:
                self._left.remove(application)
                self._clock.after(self._ends_after_s, application._end)

    @property
    def are_sent(self) -> bool:
        return not self._left


@pytest.mark.parametrize("dies", [True, False], ids=["dies", "lives"])
@pytest.mark.parametrize("ends_after_s", [0.0, 0.5, 25.0])
@pytest.mark.parametrize("kind", HANDED_OVER, ids=lambda k: k.name)
def test_what_was_sent_between_the_targets_and_the_leaving_is_found(
    kind: Kind, ends_after_s: float, dies: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the writer that made the owners leave, or by its successor, however late it shows."""
    world, applications = a_world(kind, tmp_path, SHORT)
    offsets = LastOffsets(world, applications, ends_after_s)
    leave = FakeMembership.leave

    def leave_late(self: FakeMembership, group_id: str, members: Any) -> Any:
        offsets.send()
        return leave(self, group_id, members)

    monkeypatch.setattr(FakeMembership, "leave", leave_late)
    world.create()
    if dies:
        with pytest.raises(Killed):
            world.execute(DiesAfter(name="membership.leave", after=True))
    result = world.execute()
    assert offsets.are_sent
    assert result is not None
    assert result.phase is ResetPhase.SUCCEEDED, result
    world.settle(60)
    world.check_reset(at_most=result.rounds + 1)


@pytest.mark.parametrize("ends_after_s", [0.0, 0.3, 0.8, 25.0])
@pytest.mark.parametrize("kind", [k for k in KINDS if k.way is Way.BARRIER], ids=lambda k: k.name)
def test_what_was_sent_just_before_a_join_was_let_go_is_found(
    kind: Kind, ends_after_s: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world, applications = a_world(kind, tmp_path, SHORT)
    offsets = LastOffsets(world, applications, ends_after_s)
    heartbeat = FakeConsumer._heartbeat

    def send_and_rejoin(self: FakeConsumer) -> None:
        if self.kafka._group(GROUP).state is GroupState.PREPARING_REBALANCE:
            offsets.send(self)
        heartbeat(self)

    monkeypatch.setattr(FakeConsumer, "_heartbeat", send_and_rejoin)
    world.create()
    result = world.execute()
    assert offsets.are_sent
    assert result is not None
    assert result.phase is ResetPhase.SUCCEEDED, result
    world.settle(60)
    world.check_reset(at_most=result.rounds + 1)


def test_what_is_sent_while_nobody_owns_the_partitions_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By an application whose consumer has left and whose producer names only the group."""
    world, applications = a_world(KINDS[0], tmp_path, SHORT)
    before = world.kafka.committed(GROUP)
    for application in applications:
        application.dead = True
        application.consumer.close()
    commit, producer = FakeTransaction.commit, FakeProducer(world.kafka)

    def commit_late(self: FakeTransaction) -> None:
        commit(self)
        if not sent:
            sent.append(producer.send_offsets(GROUP, {p: before[p] for p in RESET}, None))
            producer.end(commit=True)

    sent: list[bool] = []
    monkeypatch.setattr(FakeTransaction, "commit", commit_late)
    world.create()
    result = world.execute()
    assert sent
    assert result is not None
    assert (result.phase, result.way) == (ResetPhase.SUCCEEDED, Way.UNOWNED)
    world.clock.sleep(1)
    committed = world.kafka.committed(GROUP)
    assert {p: committed[p] for p in RESET} == world.targets


@pytest.mark.parametrize("kind", [k for k in MANAGED if k.name in ("managed-eager", "managed-consumer")])
def test_what_is_sent_behind_closed_gates_is_found(kind: Kind, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a producer that does not run the agent, for a consumer that does; it shows once the gates are open again."""
    world = World(kind, tmp_path)
    before = world.kafka.committed(GROUP)
    commit, producer, sent = FakeTransaction.commit, FakeProducer(world.kafka), []

    def commit_late(self: FakeTransaction) -> None:
        commit(self)
        if not sent:
            sent.append(producer.send_offsets(GROUP, {p: before[p] for p in RESET}, None))
            world.clock.after(0.5, lambda: producer.end(commit=True))

    monkeypatch.setattr(FakeTransaction, "commit", commit_late)
    world.create()
    result = world.execute()
    assert sent
    assert result is not None
    assert (result.phase, result.way) == (ResetPhase.SUCCEEDED, Way.GATED)
    world.settle()
    for partition in RESET:
        last = [b for c in world.consumers for b in c.began if b.partition == partition][-1]
        assert last.offset == world.targets[partition]
    world.check_nothing_missing()


@pytest.mark.parametrize("kind", KINDS, ids=lambda k: k.name)
def test_targets_that_show_late_are_waited_for_also_behind_open_transactions(
    kind: Kind, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which hide whether they show."""
    monkeypatch.setattr(fake_kafka, "VISIBLE_AT_MOST_S", 2.0)
    world, _ = a_world(kind, tmp_path, LONG)
    world.kafka.visible_after = 10**6
    result = executed(world)
    assert result.phase is ResetPhase.SUCCEEDED, result
    world.settle(80)
    world.check_reset(at_most=result.rounds + 1)


@pytest.mark.parametrize("kind", WAITING, ids=lambda k: k.name)
def test_a_run_is_not_over_while_its_owners_wait_for_a_transaction(kind: Kind, tmp_path: Path) -> None:
    """Of somebody else, who began it before the run, and aborts it in the end."""
    world, _ = a_world(kind, tmp_path, SHORT)
    producer = FakeProducer(world.kafka)
    producer.send_offsets(GROUP, dict.fromkeys(RESET, 7), None)
    world.clock.after(12.0, lambda: producer.end(commit=False))
    result = executed(world)
    assert result.phase is ResetPhase.SUCCEEDED, result
    assert world.clock.monotonic() > world.started_s + 12.0
    world.settle()
    world.check_reset(at_most=result.rounds + 1)
