"""New partitions of a live group whose starts a process was about to commit as it died."""

from __future__ import annotations

import secrets
from contextlib import closing

import pytest
from confluent_kafka.admin import AdminClient, NewPartitions

from devstack import KafkaCluster
from support.clients import ClientKind, ConsumerFleet, GroupProtocol
from support.clients.producer import SteadyProducer
from support.reset_trial import create_topic
from tidegate.clock import SystemClock
from tidegate.discovery.starts import PURPOSE, Outcome, give_starts
from tidegate.kafka.connection import Connection
from tidegate.kafka.model import TopicPartition
from tidegate.kafka_client.client import KafkaClient


@pytest.mark.parametrize("protocol", [GroupProtocol.CLASSIC, GroupProtocol.CONSUMER])
def test_an_owner_that_waits_for_the_transaction_of_a_dead_process_reads_on(
    protocol: GroupProtocol, kafka: KafkaCluster
) -> None:
    """It has been assigned the partition, and cannot read the committed offset while the transaction is open."""
    topic = group = f"starts-{secrets.token_hex(4)}"
    new = TopicPartition(topic, 2)
    create_topic(kafka.bootstrap, topic, 2)
    with (
        closing(KafkaClient(Connection(kafka.bootstrap))) as client,
        ConsumerFleet(
            ClientKind.LIBRDKAFKA,
            kafka.bootstrap,
            group,
            [topic],
            2,
            protocol=protocol,
            auto_offset_reset="latest",
            config={"topic.metadata.refresh.interval.ms": 1000},
        ) as fleet,
    ):
        fleet.wait_assigned([(topic, 0), (topic, 1)])
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
        admin.create_partitions([NewPartitions(topic, 3)])[topic].result(30)
        with SteadyProducer(kafka.bootstrap, topic, [2], 200.0) as producer:
            dead = client.writer(group, transaction_timeout_s=60.0, purpose=PURPOSE)
            with dead.transaction() as transaction:
                transaction.send(group, {new: 0})
                fleet.wait_assigned([(topic, 2)], members=2)
                assert client.pending(group, [new]) == {new}

                [start] = give_starts(client, SystemClock(), group, [new], just_made=[new]).values()

                # It had an owner before its start could be read, so that has to be sent back there.
                assert (start.outcome, start.begin) == (Outcome.OVERTAKEN, 0)
                fleet.wait_flowing([(topic, 2)], timeout=60)
            producer.stop()
