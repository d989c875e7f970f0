"""A client that has looked before a broker went away looks again once it is back."""

from __future__ import annotations

import time
from contextlib import suppress

from confluent_kafka.admin import AdminClient, NewTopic

from devstack import KafkaCluster
from support.clients import ConsumerFleet, SteadyProducer
from tidegate.kafka.adapter import KafkaClient
from tidegate.kafka.connection import Connection
from tidegate.kafka.errors import Unavailable
from tidegate.kafka.model import GroupState

WITHIN_S = 30.0


def test_groups_and_topics_are_told_again_after_the_only_broker_was_killed() -> None:
    partitions = [("orders", number) for number in range(2)]
    with KafkaCluster.start() as kafka:
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
        admin.create_topics([NewTopic("orders", 2)])["orders"].result(30)
        client = KafkaClient(Connection(kafka.bootstrap))
        watch = client.topic_watch()
        with (
            SteadyProducer(kafka.bootstrap, "orders", 2, 10),
            ConsumerFleet("librdkafka", kafka.bootstrap, "payments", ["orders"], 2) as fleet,
        ):
            fleet.wait_flowing(partitions)
            assert client.groups(["payments"])["payments"].members
            topics = watch.poll(["orders"])
            [broker] = kafka.brokers
            kafka.kill(broker)
            kafka.restart(broker)
            back = time.monotonic()

            seen = None
            while seen is None or seen.state is not GroupState.STABLE:
                assert time.monotonic() - back < WITHIN_S, f"still {seen}"
                try:
                    seen = client.groups(["payments"])["payments"]
                except Unavailable:
                    continue
            told = None
            while told is None:
                assert time.monotonic() - back < WITHIN_S, "the watch tells nothing"
                with suppress(Unavailable):
                    told = watch.poll(["orders", "returns"])
            assert told == topics
        watch.close()
        client.close()
