"""Pausing over the ports: what is confirmed, what is refused, what is taken back."""

from __future__ import annotations

from datetime import timedelta

import pytest

from support.fake_consumer import FakeConsumer
from support.fake_kafka import FakeKafka
from tidegate.admin.errors import (
    ControlTopicUnfit,
    HoldTakenBack,
    NotConfirmed,
    UnknownPartition,
    UnmanagedOwner,
    UnsupportedGroup,
)
from tidegate.admin.service import CLI_HOLDER, Pauses, Resumed
from tidegate.control.records import Ack, Hold, HoldKey
from tidegate.control.standing import Flow, PartitionStanding
from tidegate.kafka.errors import NotAuthorized, Unavailable
from tidegate.kafka.model import GroupType, TopicPartition

GROUP = "payments"
ORDERS = tuple(TopicPartition("orders", n) for n in range(4))
SHORT = timedelta(seconds=2)


class Told:
    """What a pause was told of each partition, once."""

    def __init__(self) -> None:
        self.outcomes: dict[TopicPartition, PartitionStanding | Exception] = {}

    def __call__(self, partition: TopicPartition, outcome: PartitionStanding | Exception) -> None:
        assert partition not in self.outcomes
        self.outcomes[partition] = outcome

    def flow(self, partition: TopicPartition) -> Flow | None:
        outcome = self.outcomes[partition]
        return outcome.flow if isinstance(outcome, PartitionStanding) else None


@pytest.fixture
def kafka() -> FakeKafka:
    kafka = FakeKafka()
    kafka.create_topic("orders", 4)
    kafka.fill("orders", 100)
    return kafka


@pytest.fixture
def pauses(kafka: FakeKafka) -> Pauses:
    return Pauses(kafka, kafka.clock)


def _consumer(kafka: FakeKafka, *, managed: bool, drain_s: float = 0.0) -> FakeConsumer:
    kafka.control.ensure()
    consumer = FakeConsumer(kafka, GROUP, ["orders"], managed=managed, drain_s=drain_s).start()
    kafka.clock.sleep(5)
    return consumer


def _held(kafka: FakeKafka) -> set[TopicPartition]:
    return {key.topic_partition for key, _ in kafka.control.read().of_group(GROUP)}


def test_partitions_are_paused_once_their_owner_has_obeyed(kafka: FakeKafka, pauses: Pauses) -> None:
    consumer = _consumer(kafka, managed=True, drain_s=1.0)
    told = Told()

    pauses.pause(GROUP, ORDERS[:2], told, reason="INC-4711")

    assert [told.flow(p) for p in ORDERS[:2]] == [Flow.CLOSED, Flow.CLOSED]
    assert set(told.outcomes) == set(ORDERS[:2])
    read = len([p for p, _ in consumer.read if p in ORDERS[:2]])
    kafka.clock.sleep(10)
    assert len([p for p, _ in consumer.read if p in ORDERS[:2]]) == read
    assert {h.hold.reason for _, h in kafka.control.read().of_group(GROUP)} == {"INC-4711"}


@pytest.mark.parametrize("group", [GROUP, "nobody-knows-it"])
def test_partitions_that_nobody_owns_are_paused_at_once(kafka: FakeKafka, pauses: Pauses, group: str) -> None:
    kafka.commit_directly(GROUP, {ORDERS[0]: 5})
    told = Told()
    begun = kafka.clock.monotonic()

    pauses.pause(group, ORDERS, told)

    assert {told.flow(p) for p in ORDERS} == {Flow.UNOWNED}
    assert kafka.clock.monotonic() - begun < 1


def test_where_the_owner_runs_no_agent_the_hold_is_taken_back(kafka: FakeKafka, pauses: Pauses) -> None:
    _consumer(kafka, managed=False)
    told = Told()

    pauses.pause(GROUP, [ORDERS[0]], told)

    failure = told.outcomes[ORDERS[0]]
    assert isinstance(failure, UnmanagedOwner)
    assert "runs no agent" in str(failure)
    assert "client consumer, host /127.0.0.1" in str(failure)
    assert _held(kafka) == set()


def test_an_owner_that_speaks_late_is_waited_for(kafka: FakeKafka, pauses: Pauses) -> None:
    consumer = _consumer(kafka, managed=False)

    def speak() -> None:
        kafka.control.ack(GROUP, "orders", 0, Ack(kafka.control.topics.end - 1, 7, consumer.member_id))

    kafka.clock.after(2.0, speak)
    told = Told()

    pauses.pause(GROUP, [ORDERS[0]], told)

    assert told.flow(ORDERS[0]) is Flow.CLOSED


def test_an_owner_that_does_not_finish_in_time_keeps_its_hold(kafka: FakeKafka, pauses: Pauses) -> None:
    _consumer(kafka, managed=True, drain_s=20.0)
    told = Told()

    pauses.pause(GROUP, [ORDERS[0]], told, timeout=SHORT)

    failure = told.outcomes[ORDERS[0]]
    assert isinstance(failure, NotConfirmed)
    assert "orders-0 is not paused yet: its owner has not finished" in str(failure)
    assert _held(kafka) == {ORDERS[0]}


def test_a_hold_that_is_there_already_is_not_written_again(kafka: FakeKafka, pauses: Pauses) -> None:
    _consumer(kafka, managed=True)
    pauses.pause(GROUP, [ORDERS[0]], Told())
    [(_, before)] = kafka.control.read().of_group(GROUP)
    told = Told()

    pauses.pause(GROUP, ORDERS[:2], told)

    after = {key.topic_partition: held.epoch for key, held in kafka.control.read().of_group(GROUP)}
    assert after[ORDERS[0]] == before.epoch
    assert set(after) == set(ORDERS[:2])


def test_a_hold_of_before_is_not_taken_back_with_those_of_a_refused_call(kafka: FakeKafka, pauses: Pauses) -> None:
    kafka.control.ensure()
    kafka.control.hold({HoldKey(GROUP, "orders", 0, CLI_HOLDER): Hold()})
    _consumer(kafka, managed=False)
    told = Told()

    pauses.pause(GROUP, ORDERS[:2], told)

    assert all(isinstance(o, UnmanagedOwner) for o in told.outcomes.values())
    assert _held(kafka) == {ORDERS[0]}


def test_a_partition_that_somebody_resumes_meanwhile_is_not_called_paused(kafka: FakeKafka, pauses: Pauses) -> None:
    _consumer(kafka, managed=True, drain_s=5.0)
    key = HoldKey(GROUP, "orders", 0, CLI_HOLDER)
    kafka.clock.after(1.0, lambda: kafka.control.release([key]))
    told = Told()

    pauses.pause(GROUP, [ORDERS[0]], told)

    assert isinstance(told.outcomes[ORDERS[0]], HoldTakenBack)


def test_partitions_that_do_not_exist_are_named_and_not_held(kafka: FakeKafka, pauses: Pauses) -> None:
    told = Told()
    missing = [TopicPartition("orders", 9), TopicPartition("nope", 0)]

    pauses.pause(GROUP, [ORDERS[0], *missing], told)

    assert told.flow(ORDERS[0]) is Flow.UNOWNED
    assert all(isinstance(told.outcomes[p], UnknownPartition) for p in missing)
    assert _held(kafka) == {ORDERS[0]}


def test_a_control_topic_that_would_lose_holds_is_refused(kafka: FakeKafka, pauses: Pauses) -> None:
    kafka.control.topics.complaints = ("topic __tidegate has cleanup.policy=delete",)

    with pytest.raises(ControlTopicUnfit, match="cleanup"):
        pauses.pause(GROUP, ORDERS, Told())

    assert kafka.control.writes == []


@pytest.mark.parametrize("kind", [GroupType.STREAMS, GroupType.SHARE])
def test_groups_without_gates_are_refused(kafka: FakeKafka, pauses: Pauses, kind: GroupType) -> None:
    kafka.set_group(GROUP, kind)

    with pytest.raises(UnsupportedGroup, match=str(kind)):
        pauses.pause(GROUP, ORDERS, Told())

    assert kafka.control.writes == []


def test_brokers_that_are_away_for_a_moment_are_waited_for(kafka: FakeKafka, pauses: Pauses) -> None:
    _consumer(kafka, managed=True, drain_s=1.0)
    told = Told()

    def away() -> None:
        kafka.fail("groups", *[Unavailable("nobody answers")] * 3)

    kafka.clock.after(0.5, away)
    pauses.pause(GROUP, [ORDERS[0]], told)

    assert told.flow(ORDERS[0]) is Flow.CLOSED


def test_what_cannot_be_looked_at_any_more_is_not_called_paused(kafka: FakeKafka, pauses: Pauses) -> None:
    _consumer(kafka, managed=True, drain_s=1.0)
    told = Told()
    kafka.clock.after(0.5, lambda: kafka.fail("groups", NotAuthorized("describe group payments")))

    pauses.pause(GROUP, [ORDERS[0]], told)

    assert isinstance(told.outcomes[ORDERS[0]], NotConfirmed)
    assert "describe group payments" in str(told.outcomes[ORDERS[0]])


def test_a_consumer_that_assigned_its_partition_itself_is_waited_for_no_longer_than_its_drain_time_out(
    kafka: FakeKafka, pauses: Pauses
) -> None:
    kafka.control.ensure()
    kafka.control.hold({HoldKey("other", "orders", 0, CLI_HOLDER): Hold()})
    kafka.control.ack(GROUP, "orders", 0, Ack(0, 3, ""))
    told = Told()
    begun = kafka.clock.monotonic()

    pauses.pause(GROUP, [ORDERS[0]], told, drain_timeout=SHORT, timeout=timedelta(seconds=60))

    assert told.flow(ORDERS[0]) is Flow.CLOSING
    assert 2 <= kafka.clock.monotonic() - begun < 6


def test_resuming_says_who_else_keeps_the_gate_closed(kafka: FakeKafka, pauses: Pauses) -> None:
    pauses.pause(GROUP, ORDERS[:2], Told())
    kafka.control.hold({HoldKey(GROUP, "orders", 1, "pause/conn/inc-4711"): Hold()})

    resumed = pauses.resume(GROUP, ORDERS[:3])

    assert resumed == {
        ORDERS[0]: Resumed(was_held=True),
        ORDERS[1]: Resumed(was_held=True, still_held_by=("pause/conn/inc-4711",)),
        ORDERS[2]: Resumed(was_held=False),
    }
    assert _held(kafka) == {ORDERS[1]}
    assert pauses.held(GROUP) == {ORDERS[1]}
    assert pauses.held(GROUP, by_us=True) == frozenset()


def test_the_list_has_all_holders_offset_and_lag(kafka: FakeKafka, pauses: Pauses) -> None:
    kafka.commit_directly(GROUP, {ORDERS[0]: 40})
    kafka.control.ensure()
    kafka.control.hold({HoldKey(GROUP, "orders", 0, "pause/conn/one"): Hold("poison record")})
    pauses.pause(GROUP, ORDERS[:2], Told(), reason="by hand")
    kafka.control.hold({HoldKey(GROUP, "gone", 0, CLI_HOLDER): Hold()})
    kafka.control.hold({HoldKey("other", "orders", 3, CLI_HOLDER): Hold()})

    listed = pauses.paused(GROUP)

    assert list(listed) == [TopicPartition("gone", 0), *ORDERS[:2]]
    first = listed[ORDERS[0]]
    assert [(h.holder, h.reason) for h in first.holds] == [("pause/conn/one", "poison record"), ("cli", "by hand")]
    assert (first.committed_offset, first.log_end_offset, first.lag) == (40, 100, 60)
    assert first.standing.flow is Flow.UNOWNED
    assert (listed[ORDERS[1]].committed_offset, listed[ORDERS[1]].lag) == (None, None)
    assert listed[TopicPartition("gone", 0)].log_end_offset is None


def test_nothing_is_listed_where_nothing_is_held(kafka: FakeKafka, pauses: Pauses) -> None:
    assert pauses.paused(GROUP) == {}
