"""A failover of a mirror at a cluster of which a broker is lost: the only one that had a copy."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextlib import closing

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from apiserver.offsets import produce
from devstack import KafkaCluster
from support.needs import starts
from support.operator_process import until
from support.stack_fixtures import Unique
from tidegate.kafka.connection import Connection
from tidegate.kafka.model import LogBounds, TopicPartition
from tidegate.kafka_client.mirror_cluster import KafkaMirrorCluster
from tidegate.offset_mirror.ending import fence_some
from tidegate.resources.mirror_failover import FailoverPhase, MirrorFailover
from tidegate.resources.offset_mirror import CopyState, MirroredTopicStatus, OffsetMirrorStatus

pytestmark = pytest.mark.nightly


@pytest.fixture
@starts("kafka")
def three() -> Iterator[KafkaCluster]:
    with KafkaCluster.start(brokers=3) as cluster:
        yield cluster


def test_a_copy_that_is_lost_keeps_no_other_from_its_fence_and_is_given_up_by_deleting_it(
    three: KafkaCluster, unique: Unique
) -> None:
    *left, dies = three.brokers
    stays, lost = unique("stays"), unique("lost")
    admin = AdminClient({"bootstrap.servers": ",".join(three.address(broker) for broker in left)})
    for topic, broker in ((stays, left[0]), (lost, dies)):
        admin.create_topics([NewTopic(topic, num_partitions=1, replica_assignment=[[broker]])])[topic].result(30)
        produce(three.bootstrap, topic, 1, 3)
    three.kill(dies)
    partitions = [TopicPartition(stays, 0), TopicPartition(lost, 0)]
    with closing(KafkaMirrorCluster(Connection(three.address(left[0])))) as cluster:
        until(lambda: cluster.told_bounds(partitions) == {partitions[0]: LogBounds(0, 3)}, "its leader is gone")
        ids = cluster.topics()
        rows = tuple(
            MirroredTopicStatus(
                name=name, source_id="s", target_id=ids[name].topic_id, partitions=1, state=CopyState.IN_SYNC
            )
            for name in (lost, stays)
        )
        failover = MirrorFailover(phase=FailoverPhase.FENCING, fence_id=cluster.new_producer_id())
        status = OffsetMirrorStatus(producer_ids=(10**6,), topics=rows, failover=failover)
        found = fence_some(cluster, status, lambda: True)

        assert [(topic.name, topic.ends) for topic in found.failover.topics] == [(stays, (3,))]
        assert found.message.startswith(
            f"1 partition(s) can't be fenced at the target, such as {lost}-0: write {lost}-0"
        )

        def is_deleted() -> bool:
            # While a controller is elected there may be no answer.
            with contextlib.suppress(KafkaException, TimeoutError):
                admin.delete_topics([lost], operation_timeout=5, request_timeout=10)[lost].result(15)
            return lost not in cluster.topics()

        until(is_deleted, f"{lost} is deleted", timeout_s=90)
        ended = fence_some(cluster, status.model_copy(update={"failover": found.failover}), lambda: True)

    assert not ended.left
    assert {topic.name: topic.ends for topic in ended.failover.topics} == {stays: (3,), lost: ()}
