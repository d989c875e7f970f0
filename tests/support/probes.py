"""Probes of what brokers allow, made whatever their versions say."""

from __future__ import annotations

from tidegate.kafka.connection import Connection
from tidegate.kafka_client.client import KafkaClient
from tidegate.kafka_client.probe import TRANSACTION_S, KafkaProbe
from tidegate.kafka_client.wire import Wire


def probe_of(connection: Connection, wire: Wire, kafka: KafkaClient) -> KafkaProbe:
    """As ``KafkaClient`` makes one."""
    return KafkaProbe(
        connection.control_topic,
        wire,
        lambda: Wire(connection),
        lambda name: kafka.writer(name, transaction_timeout_s=TRANSACTION_S),
        kafka.topics,
    )
