"""A connection to a fake cluster, as the operator's parts are given it."""

from __future__ import annotations

from support.fake_kafka import FakeKafka
from tidegate.connection.live import Live
from tidegate.kafka.connection import Connection
from tidegate.resources.connection import AllowSpec


def live_of(kafka: FakeKafka, uid: str, allow: AllowSpec | None = None) -> Live:
    """KafkaConnection kafka in namespace ns, without secrets. ``allow``: everything, where it is left out."""
    return Live(
        uid=uid,
        namespace="ns",
        name="kafka",
        digest="d",
        connection=Connection("127.0.0.1:9092"),
        mounted=None,
        secrets={},
        allow=AllowSpec() if allow is None else allow,
        kafka=kafka,
        cluster_id="fake-cluster",
        trouble=None,
    )
