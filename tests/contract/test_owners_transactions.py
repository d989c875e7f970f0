"""How a group's coordinator treats offsets that its members' producers send to transactions, held against Kafka in
memory and against a real cluster. What ``reset/commits.py`` and ``reset/sequences.py`` rely on."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from contract.kafka_worlds import FakeWorld, RealWorld, World, new_group, until
from tidegate.kafka.model import GroupType, Offsets, TopicPartition

AT = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)
EXPIRY_S = 1.0


@pytest.fixture(params=["fake", pytest.param("real", marks=pytest.mark.kafka)])
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    made: World = FakeWorld() if request.param == "fake" else RealWorld(request.getfixturevalue("kafka").bootstrap)
    yield made
    made.close()


@pytest.fixture
def partition(world: World) -> TopicPartition:
    made = TopicPartition(world.create_topic(1), 0)
    world.append(made, [AT] * 20)
    return made


def wait_decided(world: World, group_id: str, partition: TopicPartition) -> None:
    until(world, lambda: not world.kafka.pending(group_id, [partition]), "no transaction is open", timeout_s=60)


def commit_from_outside(world: World, group_id: str, offsets: Offsets) -> None:
    writer = world.kafka.writer(group_id, transaction_timeout_s=20)
    with writer.transaction() as transaction:
        transaction.send(group_id, offsets)
        transaction.commit()


@pytest.mark.parametrize("protocol", [GroupType.CLASSIC, GroupType.CONSUMER])
def test_who_is_a_member_is_checked_as_offsets_are_sent_and_not_as_the_transaction_ends(
    world: World, partition: TopicPartition, protocol: GroupType
) -> None:
    group_id = new_group()
    consumer = world.consumer(group_id, [partition.topic], protocol=protocol)
    before, after, metadata = world.producer(), world.producer(), consumer.metadata()
    assert before.send_offsets(group_id, {partition: 7}, metadata)
    assert world.kafka.pending(group_id, [partition]) == {partition}

    world.kafka.membership.leave(group_id, world.kafka.groups([group_id])[group_id].members)

    assert not after.send_offsets(group_id, {partition: 9}, metadata)
    assert world.kafka.pending(group_id, [partition]) == {partition}
    assert world.kafka.committed(group_id, [partition]) == {}
    before.end(commit=True)
    wait_decided(world, group_id, partition)
    assert world.kafka.committed(group_id, [partition]) == {partition: 7}


@pytest.mark.parametrize("protocol", [GroupType.CLASSIC, GroupType.CONSUMER])
def test_a_producer_that_names_no_member_may_send_at_any_time(
    world: World, partition: TopicPartition, protocol: GroupType
) -> None:
    group_id = new_group()
    world.consumer(group_id, [partition.topic], protocol=protocol)
    producer = world.producer()
    world.kafka.membership.leave(group_id, world.kafka.groups([group_id])[group_id].members)
    assert producer.send_offsets(group_id, {partition: 7}, None)
    producer.end(commit=True)
    wait_decided(world, group_id, partition)
    assert world.kafka.committed(group_id, [partition]) == {partition: 7}


@pytest.mark.parametrize(("sends_last", "wins"), [("the owner", 7), ("we", 3)])
def test_of_two_offsets_the_one_that_was_sent_last_wins_whichever_transaction_ends_last(
    world: World, partition: TopicPartition, sends_last: str, wins: int
) -> None:
    group_id = new_group()
    consumer = world.consumer(group_id, [partition.topic])
    owner, metadata = world.producer(), consumer.metadata()
    if sends_last == "we":
        owner.send_offsets(group_id, {partition: 7}, metadata)
        commit_from_outside(world, group_id, {partition: 3})
    else:
        commit_from_outside(world, group_id, {partition: 3})
        owner.send_offsets(group_id, {partition: 7}, metadata)
    assert world.kafka.pending(group_id, [partition]) == {partition}
    owner.end(commit=True)
    wait_decided(world, group_id, partition)
    assert world.kafka.committed(group_id, [partition]) == {partition: wins}


def test_a_transaction_takes_offsets_once_its_producers_last_one_is_over(
    world: World, partition: TopicPartition
) -> None:
    """Which tells that it is, where somebody else's hides it."""
    group_id, other = new_group(), new_group()
    consumer = world.consumer(group_id, [partition.topic])
    owner = world.producer()
    owner.send_offsets(group_id, {partition: 7}, consumer.metadata())
    writer = world.kafka.writer(group_id, transaction_timeout_s=20)
    for offset in range(10, 20):
        with writer.transaction() as transaction:
            transaction.send(group_id, {partition: offset})
            transaction.commit()
        with writer.transaction() as following:
            following.send(other, {partition: 1})
        assert world.kafka.pending(group_id, [partition]) == {partition}
        assert world.kafka.committed(group_id, [partition]) == {partition: offset}
    owner.end(commit=True)
    wait_decided(world, group_id, partition)
    wait_decided(world, other, partition)
    assert world.kafka.committed_of([group_id, other]) == {group_id: {partition: 19}, other: {}}


@pytest.mark.parametrize("times_out", [False, True])
def test_what_is_aborted_leaves_what_was_committed(world: World, partition: TopicPartition, times_out: bool) -> None:
    group_id = new_group()
    consumer = world.consumer(group_id, [partition.topic])
    commit_from_outside(world, group_id, {partition: 3})
    wait_decided(world, group_id, partition)
    owner = world.producer(timeout_s=EXPIRY_S)
    assert owner.send_offsets(group_id, {partition: 7}, consumer.metadata())
    if not times_out:
        owner.end(commit=False)
    wait_decided(world, group_id, partition)
    assert world.kafka.committed(group_id, [partition]) == {partition: 3}
