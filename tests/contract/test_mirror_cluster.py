"""What a mirror asks of a whole cluster: of the one in memory, and of a real one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as ClientPartition
from confluent_kafka.admin import AdminClient

from apiserver.offsets import produce
from devstack import KafkaCluster
from support.mirror.fake_cluster import FakeMirrorCluster
from support.needs import starts
from support.operator_process import until
from support.stack_fixtures import MakeTopic, Unique
from tidegate.kafka.connection import Connection
from tidegate.kafka.errors import GroupNotEmpty, Unavailable, UnknownPartitions
from tidegate.kafka.model import LogBounds, TopicPartition
from tidegate.kafka_client.mirror_cluster import KafkaMirrorCluster
from tidegate.mirror.batches import read_batches
from tidegate.mirror.model import Interrupted, Tail
from tidegate.mirror.ports import UNDECIDED, GroupOffset, MirrorCluster
from tidegate.mirror.source import SourceRead


@dataclass
class World:
    """`write`: so many records into partition 0 of a topic; `join`: have a member in a group."""

    cluster: MirrorCluster
    topic: str
    group: str
    write: Callable[[str, int], None]
    delete: Callable[[str], None]
    join: Callable[[str, str], None]

    def made(self, partitions: int = 1, **settings: str) -> str:
        self.cluster.create_topic(self.topic, partitions, {k.replace("_", "."): v for k, v in settings.items()})
        until(self.is_there, f"{self.topic} is there")
        return self.topic

    def is_there(self) -> bool:
        if self.topic not in self.cluster.topics():
            return False
        bounds = self.cluster.bounds([TopicPartition(self.topic, 0)])
        return bool(bounds)


@pytest.fixture
def in_memory() -> World:
    fake = FakeMirrorCluster()

    def delete(topic: str) -> None:
        del fake.kept[topic]

    return World(fake, "t", "g", fake.write, delete, lambda group, _: fake.members.add(group))


@pytest.fixture
@starts("kafka")
def real(kafka: KafkaCluster, unique: Unique) -> Iterator[World]:
    consumers: list[Consumer] = []

    def delete(topic: str) -> None:
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
        admin.delete_topics([topic])[topic].result(30)
        until(lambda: topic not in admin.list_topics(timeout=30).topics, f"{topic} is gone")

    def join(group: str, topic: str) -> None:
        consumer = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": group, "log_level": 0})
        consumers.append(consumer)
        consumer.subscribe([topic])

        def has_joined() -> bool:
            consumer.poll(0.1)
            return bool(consumer.assignment())

        until(has_joined, "it has joined", timeout_s=90)

    def write(topic: str, records: int) -> None:
        produce(kafka.bootstrap, topic, 1, records)

    with closing(KafkaMirrorCluster(Connection(kafka.bootstrap))) as cluster:
        yield World(cluster, unique("topic"), unique("group"), write, delete, join)
    for consumer in consumers:
        consumer.close()


@pytest.fixture(params=["in_memory", pytest.param("real", marks=pytest.mark.kafka)])
def world(request: pytest.FixtureRequest) -> World:
    found = request.getfixturevalue(request.param)
    assert isinstance(found, World)
    return found


def test_a_topic_is_created_once_with_its_partitions_and_settings(world: World) -> None:
    topic = world.made(2, retention_ms="-1")
    world.cluster.create_topic(topic, 5, {"retention.ms": "1000"})

    assert world.cluster.topics()[topic].partitions == 2
    assert world.cluster.settings([topic, "none"]).keys() == {topic}
    settings = world.cluster.settings([topic])[topic]
    assert (settings["retention.ms"], settings["cleanup.policy"]) == ("-1", "delete")


@pytest.mark.kafka
def test_another_cluster_to_which_the_addresses_lead_is_not_changed(
    kafka: KafkaCluster, make_topic: MakeTopic, unique: Unique
) -> None:
    topic, group, new = make_topic(), unique("group"), unique("topic")
    partition = TopicPartition(topic, 0)
    with closing(KafkaMirrorCluster(Connection(kafka.bootstrap), "another")) as wrong:
        for ask in (
            wrong.topics,
            lambda: wrong.create_topic(new, 1, {}),
            lambda: wrong.commit(group, {partition: GroupOffset(3)}),
        ):
            with pytest.raises(Unavailable, match="and not to another"):
                ask()
        target = wrong.target(partition)
        assert isinstance(target.tail(1), Interrupted)
        assert isinstance(target.write_markers(10**6, 0, 1), Interrupted)
    with closing(KafkaMirrorCluster(Connection(kafka.bootstrap))) as any_cluster:
        cluster_id = any_cluster.cluster_id()
    with closing(KafkaMirrorCluster(Connection(kafka.bootstrap), cluster_id)) as right:
        assert topic in right.topics()
        assert new not in right.topics()
        assert right.committed([group]) == {group: {}}
        assert right.target(partition).tail(1) == Tail(0, 0)


def test_settings_are_set_and_others_stay(world: World) -> None:
    topic = world.made(retention_ms="-1")
    world.cluster.configure(topic, {"max.message.bytes": "2000000", "cleanup.policy": "compact,delete"})

    def is_set() -> bool:
        settings = world.cluster.settings([topic])[topic]
        return (settings["max.message.bytes"], settings["cleanup.policy"]) == ("2000000", "compact,delete")

    until(is_set, "it is set")
    assert world.cluster.settings([topic])[topic]["retention.ms"] == "-1"


def test_a_topic_is_looked_for_by_name(world: World) -> None:
    assert world.cluster.topic(world.topic) is None
    topic = world.made(2)

    assert world.cluster.topic(topic) == world.cluster.topics()[topic]


def test_partitions_are_added_and_never_fewer(world: World) -> None:
    topic = world.made(1)
    world.cluster.add_partitions(topic, 3)
    until(lambda: world.cluster.topics()[topic].partitions == 3, "they are there")
    world.cluster.add_partitions(topic, 2)
    world.cluster.add_partitions(topic, 3)

    assert world.cluster.topics()[topic].partitions == 3


def test_logs_have_bounds_and_unknown_ones_are_named(world: World) -> None:
    topic = world.made()
    assert world.cluster.bounds([TopicPartition(topic, 0)]) == {TopicPartition(topic, 0): LogBounds(0, 0)}
    world.write(topic, 7)

    assert world.cluster.bounds([TopicPartition(topic, 0)]) == {TopicPartition(topic, 0): LogBounds(0, 7)}
    assert world.cluster.bounds([]) == {}
    with pytest.raises(UnknownPartitions) as unknown:
        world.cluster.bounds([TopicPartition(topic, 0), TopicPartition(topic, 4)])
    assert unknown.value.partitions == {TopicPartition(topic, 4)}
    told = world.cluster.told_bounds([TopicPartition(topic, 0), TopicPartition(topic, 4)])
    assert told == {TopicPartition(topic, 0): LogBounds(0, 7)}
    assert world.cluster.told_bounds([]) == {}


def test_a_topic_is_read_by_its_id(world: World) -> None:
    topic = world.made()
    world.write(topic, 3)
    partition = TopicPartition(topic, 0)
    source = world.cluster.source(partition, world.cluster.topics()[topic].topic_id)
    found = source.read(0)
    assert isinstance(found, SourceRead)
    assert (found.log_start, found.last_stable) == (0, 3)
    assert [*read_batches(found.data)][-1].next_offset == 3
    assert source.read(9) == SourceRead(9, 0, 3)

    world.delete(topic)
    world.made()
    world.write(topic, 5)
    assert isinstance(source.read(0), Interrupted)
    again = world.cluster.source(partition, world.cluster.topics()[topic].topic_id).read(0)
    assert isinstance(again, SourceRead)
    assert again.last_stable == 5


def test_who_may_write_is_not_known_where_there_are_no_acls(world: World) -> None:
    assert world.cluster.writers([world.made()]) is None


def test_producer_ids_are_new_each_time(world: World) -> None:
    assert world.cluster.new_producer_id() != world.cluster.new_producer_id()


def test_a_groups_offsets_are_committed_for_it(world: World) -> None:
    partition = TopicPartition(world.made(), 0)
    assert world.cluster.committed([world.group]) == {world.group: {}}
    assert world.cluster.committed([]) == {}
    world.cluster.commit(world.group, {partition: GroupOffset(5, "metadata")})
    world.cluster.commit(world.group, {partition: GroupOffset(2**63 - 1)})
    assert world.cluster.committed([world.group])[world.group] == {partition: GroupOffset(2**63 - 1)}
    world.cluster.commit(world.group, {partition: GroupOffset(4)})
    world.cluster.commit(f"{world.group}/2", {partition: GroupOffset(7, "more")})

    committed = world.cluster.committed([world.group, f"{world.group}/2"])
    assert committed[world.group] == {partition: GroupOffset(4)}
    assert committed[f"{world.group}/2"] == {partition: GroupOffset(7, "more")}
    assert world.cluster.group_ids() >= {world.group}


@pytest.mark.kafka
def test_a_commit_that_a_transaction_is_to_decide_is_told(
    kafka: KafkaCluster, make_topic: MakeTopic, unique: Unique
) -> None:
    topic, group = make_topic(), unique("group")
    partition = TopicPartition(topic, 0)
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "transactional.id": topic})
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": group})
    with closing(KafkaMirrorCluster(Connection(kafka.bootstrap))) as cluster, closing(consumer):
        cluster.commit(group, {partition: GroupOffset(4)})
        producer.init_transactions()
        producer.begin_transaction()
        producer.send_offsets_to_transaction([ClientPartition(topic, 0, 7)], consumer.consumer_group_metadata())
        assert cluster.committed([group]) == {group: {partition: GroupOffset(UNDECIDED)}}

        producer.commit_transaction()
        until(lambda: cluster.committed([group]) == {group: {partition: GroupOffset(7)}}, "it is decided")


def test_a_group_with_members_is_left_alone(world: World) -> None:
    partition = TopicPartition(world.made(), 0)
    world.write(partition.topic, 9)
    world.join(world.group, partition.topic)

    with pytest.raises(GroupNotEmpty):
        world.cluster.commit(world.group, {partition: GroupOffset(5)})
    assert world.cluster.committed([world.group])[world.group] in ({}, {partition: GroupOffset(9)})
