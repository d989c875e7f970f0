"""``tidegate.admin`` against a real broker."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from datetime import UTC, datetime, timedelta

import pytest
from confluent_kafka import Consumer, Producer

from devstack import KafkaCluster
from support.obedient_consumer import ObedientConsumer
from support.operator_process import until
from support.stack_fixtures import MakeTopic, Unique
from tidegate.admin import (
    PartitionsFailed,
    TidegateAdmin,
    UnknownPartition,
    UnmanagedOwner,
)
from tidegate.control.standing import Flow
from tidegate.kafka.model import TopicPartition

PARTITIONS = 4
Start = Callable[..., ObedientConsumer]


@pytest.fixture
def control_topic(unique: Unique) -> str:
    return f"__{unique('control')}"


@pytest.fixture
def topic(make_topic: MakeTopic) -> str:
    return make_topic(PARTITIONS)


@pytest.fixture
def group(unique: Unique) -> str:
    return unique("group")


@pytest.fixture
def admin(kafka: KafkaCluster, control_topic: str) -> Iterator[TidegateAdmin]:
    with TidegateAdmin({"bootstrap.servers": kafka.bootstrap}, control_topic=control_topic) as admin:
        yield admin


@pytest.fixture
def start(kafka: KafkaCluster, group: str, topic: str, control_topic: str) -> Iterator[Start]:
    """Starts consumers that obey; they are closed in the end."""
    with ExitStack() as stack:

        def consumer(**settings: str) -> ObedientConsumer:
            made = ObedientConsumer(kafka.bootstrap, group, topic, control_topic, **settings)
            return stack.enter_context(closing(made))

        yield consumer


@pytest.fixture
def produce(kafka: KafkaCluster, topic: str) -> Callable[[int], None]:
    producer = Producer({"bootstrap.servers": kafka.bootstrap})

    def some(records: int) -> None:
        for number in range(records * PARTITIONS):
            producer.produce(topic, str(number), partition=number % PARTITIONS)
        assert producer.flush(20) == 0

    return some


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_paused_partitions_stand_still_and_go_on_where_they_stood(
    admin: TidegateAdmin, start: Start, produce: Callable[[int], None], topic: str, group: str, protocol: str
) -> None:
    consumer = start(**{"group.protocol": protocol}).wait_for(PARTITIONS)
    produce(10)
    first, second, *others = [TopicPartition(topic, n) for n in range(PARTITIONS)]
    until(lambda: all(consumer.count(p) == 10 for p in (first, second, *others)), "the first records")

    result = admin.pause_partitions(group, [first, second], reason="INC-4711")
    result.all().result(30)

    assert result.partition_result(first).result(0).flow is Flow.CLOSED
    assert result.partition_result(first).result(0).offset == 10
    produce(10)
    until(lambda: all(consumer.count(p) == 20 for p in others), "the others to flow")
    assert (consumer.count(first), consumer.count(second)) == (10, 10)

    listed = admin.list_paused_partitions(group).all().result(30)
    assert list(listed) == [first, second]
    paused = listed[first]
    assert (paused.committed_offset, paused.log_end_offset, paused.lag) == (10, 20, 10)
    assert [(h.holder, h.reason) for h in paused.holds] == [("cli", "INC-4711")]
    assert paused.since is not None
    assert abs(datetime.now(UTC) - paused.since) < timedelta(minutes=1)
    assert paused.standing.owner is not None
    assert paused.standing.owner.client_id == "obedient"

    resumed = admin.resume_partitions(group, [first, second])
    resumed.all().result(30)

    assert resumed.partition_result(first).result(0).was_held
    until(lambda: consumer.count(first) == consumer.count(second) == 20, "the rest after the pause")
    assert consumer.delivered[first] == list(range(20))
    assert admin.list_paused_partitions(group).all().result(30) == {}


def test_a_pause_holds_over_a_rebalance(
    admin: TidegateAdmin, start: Start, produce: Callable[[int], None], topic: str, group: str
) -> None:
    first = start().wait_for(PARTITIONS)
    partitions = [TopicPartition(topic, n) for n in range(PARTITIONS)]
    admin.pause_partitions(group, partitions).all().result(30)

    second = start().wait_for(PARTITIONS // 2)
    first.wait_for(PARTITIONS // 2)
    produce(5)

    def stands() -> bool:
        listed = admin.list_paused_partitions(group).all().result(30)
        return [p.standing.flow for p in listed.values()] == [Flow.CLOSED] * PARTITIONS

    until(stands, "acks of the new owners")
    assert not any(first.delivered.values())
    assert not any(second.delivered.values())


def test_a_consumer_without_the_agent_is_named_and_reads_on(
    admin: TidegateAdmin, kafka: KafkaCluster, topic: str, group: str
) -> None:
    settings = {"bootstrap.servers": kafka.bootstrap, "group.id": group, "client.id": "old-app"}
    partitions = [TopicPartition(topic, n) for n in range(PARTITIONS)]
    with closing(Consumer(settings)) as consumer:
        consumer.subscribe([topic])
        until(lambda: consumer.poll(0.1) is None and consumer.assignment(), "an assignment")

        result = admin.pause_partitions(group, partitions)

        def failure() -> PartitionsFailed | None:
            consumer.poll(0.1)
            done = result.all()
            error = done.exception() if done.done() else None
            return error if isinstance(error, PartitionsFailed) else None

        failed = until(failure, "the refusal")
        assert set(failed.failures) == set(partitions)
        error = failed.failures[partitions[0]]
        assert isinstance(error, UnmanagedOwner)
        assert error.owner.client_id == "old-app"
        assert admin.list_paused_partitions(group).all().result(30) == {}


def test_partitions_that_nobody_reads_are_paused_at_once_and_missing_ones_named(
    admin: TidegateAdmin, topic: str, group: str
) -> None:
    missing = TopicPartition(topic, PARTITIONS)

    result = admin.pause_partitions(group, [TopicPartition(topic, 0), missing])

    assert result.partition_result(TopicPartition(topic, 0)).result(30).flow is Flow.UNOWNED
    assert isinstance(result.partition_result(missing).exception(30), UnknownPartition)
    assert isinstance(result.all().exception(30), PartitionsFailed)


def test_programs_with_holders_of_their_own_do_not_undo_each_others_pauses(
    admin: TidegateAdmin, kafka: KafkaCluster, control_topic: str, topic: str, group: str
) -> None:
    partition = TopicPartition(topic, 0)
    with TidegateAdmin(
        {"bootstrap.servers": kafka.bootstrap}, control_topic=control_topic, holder="nightly-batch"
    ) as other:
        admin.pause_partitions(group, [partition]).all().result(30)
        other.pause_partitions(group, [partition]).all().result(30)

        resumed = admin.resume_partitions(group, [partition]).partition_result(partition).result(30)

        assert resumed.still_held_by == ("nightly-batch",)
        assert partition in other.list_paused_partitions(group).all().result(30)


@pytest.mark.pure
@pytest.mark.parametrize("holder", ["", "pause/a/b", "reset/x"])
def test_the_operators_holders_are_not_for_programs(holder: str) -> None:
    with pytest.raises(ValueError, match="holder"):
        TidegateAdmin({"bootstrap.servers": "127.0.0.1:1"}, holder=holder)
