"""kafka-python's consumer gets its partitions however short its polls are."""

from __future__ import annotations

import time

from confluent_kafka.admin import AdminClient, NewPartitions
from kafka.consumer import group as kafka_group

from devstack import KafkaCluster
from support.gated_applications import Job, Scene, parts_replaced
from support.stack_fixtures import MakeTopic, Unique
from tidegate_agent.adapters import kafka_python as kafka_python_adapter

WITHIN_S = 90.0


def test_a_rebalance_that_takes_longer_than_a_poll_is_not_forgotten(
    kafka: KafkaCluster, make_topic: MakeTopic, unique: Unique
) -> None:
    with parts_replaced():
        scene = Scene(kafka.bootstrap, make_topic(1), unique("joining"), writes=False)
        job = Job(scene.bootstrap, scene.group, [scene.topic], scene.settings, config={"metadata_max_age_ms": 300})
        kind = kafka_python_adapter.consumer_class(kafka_group.KafkaConsumer, job.settings, job.link)
        consumer = kind(**job.client_config())
        admin = AdminClient({"bootstrap.servers": scene.bootstrap})
        try:
            consumer.subscribe([scene.topic])
            for partitions in range(1, 6):
                if partitions > 1:
                    admin.create_partitions([NewPartitions(scene.topic, partitions)])[scene.topic].result(20)
                deadline = time.monotonic() + WITHIN_S
                while len(consumer.assignment()) < partitions:
                    consumer.poll(1)
                    assert time.monotonic() < deadline, f"partition {partitions} is nobody's"
        finally:
            consumer.close()
            job.close_links()
            scene.close()
