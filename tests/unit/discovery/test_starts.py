"""Starts of new partitions: given before anybody owns them, or known to have come too late."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

import pytest

from support.fake_consumer import FakeConsumer
from support.fake_kafka import START, FakeClock, FakeKafka
from tidegate.discovery.backfill import Asker, Backfills
from tidegate.discovery.starts import Outcome, Start, give_starts
from tidegate.kafka.connection import Connection
from tidegate.kafka.errors import Unavailable, UnknownPartitions
from tidegate.kafka.model import GroupState, GroupType, TopicPartition
from tidegate.resources.reset import ResetPhase

GROUP = "payments"
OLD, NEW = TopicPartition("orders", 0), TopicPartition("orders", 1)
HEARTBEAT_S = 3.0
ASKER = Asker("policy", "ns/p", "connection")


@dataclass
class Scene:
    """A topic of one partition, which a group reads, and which is expanded by one."""

    clock: FakeClock = field(default_factory=FakeClock)

    def __post_init__(self) -> None:
        self.kafka = FakeKafka(self.clock)
        self.kafka.create_topic("orders", 1)
        self.kafka.fill("orders", 50)

    def consumer(self, protocol: GroupType = GroupType.CLASSIC, *, managed: bool = False) -> FakeConsumer:
        consumer = FakeConsumer(
            self.kafka,
            GROUP,
            ["orders"],
            protocol=protocol,
            assignor="range" if protocol is GroupType.CLASSIC else "uniform",
            heartbeat_s=HEARTBEAT_S,
            auto_commit_s=1.0,
            managed=managed,
            begins_at_end=True,
        ).start()
        self.clock.sleep(2 * HEARTBEAT_S)
        return consumer

    def expand(self, records: int = 10) -> None:
        self.kafka.add_partitions("orders", 2)
        self.kafka.append(NEW, [START] * records)

    def give(self, *, agents_decide: bool = False) -> Start:
        return give_starts(self.kafka, self.clock, GROUP, [NEW], agents_decide=agents_decide)[NEW]

    def hand_out(self, consumer: FakeConsumer) -> None:
        """The group gets the new partition: its members look at the topic again."""
        if consumer.protocol is GroupType.CLASSIC:
            self.kafka.rebalance(GROUP)
        else:
            self.kafka._retarget(self.kafka._group(GROUP))
        self.clock.sleep(4 * HEARTBEAT_S)

    def read(self, consumer: FakeConsumer) -> list[int]:
        return [offset for partition, offset in consumer.read if partition == NEW]


@pytest.mark.parametrize("protocol", [GroupType.CLASSIC, GroupType.CONSUMER])
def test_a_start_that_comes_before_the_owner_loses_nothing(protocol: GroupType) -> None:
    scene = Scene()
    consumer = scene.consumer(protocol)
    scene.expand()

    start = scene.give()
    scene.hand_out(consumer)

    assert start == Start(Outcome.GIVEN, 0)
    assert scene.read(consumer) == list(range(10))


@pytest.mark.parametrize("protocol", [GroupType.CLASSIC, GroupType.CONSUMER])
def test_without_a_start_the_records_are_lost(protocol: GroupType) -> None:
    scene = Scene()
    consumer = scene.consumer(protocol)
    scene.expand()

    scene.hand_out(consumer)

    assert scene.read(consumer) == []


@pytest.mark.parametrize("protocol", [GroupType.CLASSIC, GroupType.CONSUMER])
def test_an_owner_that_was_there_first_is_noticed_and_sent_back(protocol: GroupType) -> None:
    scene = Scene()
    consumer = scene.consumer(protocol)
    scene.expand()
    scene.hand_out(consumer)

    start = scene.give()
    result = Backfills().carry_out(scene.kafka, scene.clock, Connection("fake:9092"), ASKER, GROUP, [NEW])
    scene.clock.sleep(4 * HEARTBEAT_S)

    assert start == Start(Outcome.OVERTAKEN, 0, 10)
    assert result.phase is ResetPhase.SUCCEEDED
    assert scene.read(consumer)[:10] == list(range(10))


@pytest.mark.parametrize("late_s", [0.02, 0.1, 0.2])
def test_a_late_commit_of_an_owner_that_is_sent_back_does_not_replace_the_start(late_s: float) -> None:
    """Its application holds records for a while, and commits them by hand, here before its consumer has asked where to
    begin."""
    scene = Scene()
    consumer = scene.consumer(GroupType.CONSUMER)
    consumer.fetches_after_s, consumer.records_per_poll = 0.5, 1
    scene.expand()
    scene.hand_out(consumer)
    scene.kafka.append(NEW, [START] * 400)
    scene.clock.sleep(10)
    lost, brought = consumer._lost, []

    def bring() -> None:
        held = dict(consumer.positions)
        lost()
        if not brought:
            brought.append(held)
            scene.clock.after(late_s, lambda: consumer._commit(held))

    consumer._lost = bring  # type: ignore[method-assign]
    asker = replace(ASKER, in_flight=timedelta(seconds=3))

    result = Backfills().carry_out(scene.kafka, scene.clock, Connection("fake:9092"), asker, GROUP, [NEW])
    scene.clock.sleep(60)

    assert brought
    assert (result.phase, result.waiting) == (ResetPhase.SUCCEEDED, 0)
    assert 0 in scene.read(consumer)


def test_an_owner_that_a_rebalance_hides_is_taken_for_one_that_was_there_first() -> None:
    scene = Scene()
    consumer = scene.consumer()
    scene.expand()
    scene.hand_out(consumer)
    scene.kafka.rebalance(GROUP)

    start = scene.give()

    assert scene.kafka.groups([GROUP])[GROUP].state is GroupState.PREPARING_REBALANCE
    assert start == Start(Outcome.OVERTAKEN, 0, 10)


@pytest.mark.parametrize(
    ("was_owned", "expected"), [(False, Start(Outcome.GIVEN, 0)), (True, Start(Outcome.OVERTAKEN, 0, 10))]
)
def test_a_rebalance_that_begins_after_the_look_at_the_owners_hides_nothing(was_owned: bool, expected: Start) -> None:
    scene = Scene()
    consumer = scene.consumer()
    scene.expand()
    if was_owned:
        scene.hand_out(consumer)
    scene.clock.after(0.001, lambda: scene.kafka.rebalance(GROUP))

    start = scene.give()

    assert scene.kafka.groups([GROUP])[GROUP].state is GroupState.PREPARING_REBALANCE
    assert start == expected


def test_an_owner_that_has_committed_already_tells_how_much_it_skipped() -> None:
    scene = Scene()
    consumer = scene.consumer()
    scene.expand(7)
    scene.hand_out(consumer)
    scene.kafka.append(NEW, [START] * 5)
    scene.clock.sleep(3)

    assert scene.give() == Start(Outcome.OVERTAKEN, 0, 12)


def test_an_owner_whose_agent_decides_is_left_alone() -> None:
    scene = Scene()
    consumer = scene.consumer(managed=True)
    scene.expand()
    scene.hand_out(consumer)

    assert scene.give(agents_decide=True).outcome is Outcome.STANDING
    assert scene.give(agents_decide=False).outcome is Outcome.OVERTAKEN


def test_a_group_without_members_wakes_up_at_the_start() -> None:
    scene = Scene()
    scene.kafka.commit_directly(GROUP, {OLD: 50})
    scene.expand()

    assert scene.give().outcome is Outcome.GIVEN
    assert scene.give().outcome is Outcome.STANDING
    assert scene.read(scene.consumer()) == list(range(10))


def test_records_that_retention_took_before_are_not_asked_for() -> None:
    scene = Scene()
    scene.expand()
    scene.kafka.delete_records(NEW, 4)

    scene.give()

    assert scene.kafka.committed(GROUP, [NEW]) == {NEW: 4}


def test_an_owner_of_what_was_only_hidden_keeps_its_offset_where_its_start_turns_out_to_be_gone() -> None:
    """It is assigned the partition as the start is given at 0, finds that out of range, and begins at the end."""
    scene = Scene()
    consumer = scene.consumer()
    scene.expand()
    scene.kafka.delete_records(NEW, 4)
    log_bounds = scene.kafka.log_bounds

    def assigned_meanwhile(partitions: Any) -> Any:
        scene.hand_out(consumer)
        scene.kafka.append(NEW, [START] * 5)
        scene.clock.sleep(3)
        return log_bounds(partitions)

    scene.kafka.log_bounds = assigned_meanwhile  # type: ignore[method-assign]

    starts = give_starts(scene.kafka, scene.clock, GROUP, [NEW], just_made=[NEW], perhaps_hidden=[NEW])

    assert scene.read(consumer) == list(range(10, 15))
    assert starts == {NEW: Start(Outcome.OVERTAKEN, 4, 11)}
    assert scene.kafka.committed(GROUP, [NEW]) == {NEW: 15}


def test_an_offset_that_a_transaction_is_committing_is_waited_for() -> None:
    scene = Scene()
    scene.expand()
    writer = scene.kafka.writer(GROUP, transaction_timeout_s=60)
    with writer.transaction() as transaction:
        transaction.send(GROUP, {NEW: 3})
        with pytest.raises(Unavailable, match="another transaction"):
            scene.give()


def test_a_start_whose_outcome_no_coordinator_tells_is_committed_anew() -> None:
    """The whole cluster was restarted just as it was decided. A reset's transactions have another producer."""
    scene = Scene()
    scene.expand()
    scene.kafka.tells_no_outcome = True
    with pytest.raises(Unavailable, match="still pending"):
        scene.give()

    scene.give()

    assert scene.kafka.committed(GROUP, [NEW]) == {NEW: 0}
    assert not scene.kafka.pending(GROUP, [NEW])


def test_a_reset_of_the_group_is_not_fenced() -> None:
    scene = Scene()
    scene.expand()
    writer = scene.kafka.writer(GROUP, transaction_timeout_s=60)
    with writer.transaction() as transaction:
        transaction.send(GROUP, {OLD: 3})
        scene.give()
        transaction.commit()

    assert scene.kafka.pending(GROUP, [OLD]) or scene.kafka.committed(GROUP, [OLD]) == {OLD: 3}


def test_a_partition_that_the_broker_does_not_know_yet_is_said_to_be_unknown() -> None:
    with pytest.raises(UnknownPartitions):
        Scene().give()


def test_whether_an_owner_came_before_an_earlier_call_s_start_nobody_can_tell() -> None:
    """That call may have died before it looked: an owner is taken for too early, so that nothing is lost."""
    scene = Scene()
    scene.expand()
    scene.give()
    scene.hand_out(scene.consumer())

    assert scene.give().outcome is Outcome.OVERTAKEN


@pytest.mark.parametrize("protocol", [GroupType.CLASSIC, GroupType.CONSUMER])
def test_an_owner_that_has_yet_to_give_the_partition_up_came_before(protocol: GroupType) -> None:
    """It began at the end, and commits when it gives the partition up: until then it seems to be nobody's."""
    classic = protocol is GroupType.CLASSIC
    clock = FakeClock()
    kafka = FakeKafka(clock)
    kafka.hides_revocations = True
    kafka.create_topic("orders", 3)
    kafka.fill("orders", 50)
    settings: dict[str, Any] = {
        "protocol": protocol,
        "assignor": "cooperative-sticky" if classic else "uniform",
        "begins_at_end": True,
        "auto_commit_s": 60.0,
        "gives_up_after_s": 8.0 if classic else 0.0,
    }
    first = FakeConsumer(kafka, GROUP, ["orders"], client_id="a", **settings).start()
    clock.sleep(10)
    kafka.add_partitions("orders", 4)
    new = TopicPartition("orders", 3)
    kafka.append(new, [START] * 10)
    if classic:
        kafka.rebalance(GROUP)
    else:
        kafka._retarget(kafka._group(GROUP))
    clock.sleep(12)
    kafka.append(new, [START] * 5)
    clock.sleep(1)
    FakeConsumer(kafka, GROUP, ["orders"], client_id="b", phase_s=0.3, **settings).start()
    for _ in range(400):
        group = kafka.groups([GROUP])[GROUP]
        if group.owner(new) is None and (group.state is GroupState.STABLE or not classic):
            break
        clock.sleep(0.02)
    assert new in first.positions, "it has not given it up"
    assert kafka.groups([GROUP])[GROUP].owner(new) is None

    start = give_starts(kafka, clock, GROUP, [new])[new]

    assert start.outcome is Outcome.OVERTAKEN
