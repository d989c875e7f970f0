"""A real broker's ack topic, into which somebody who may write there has written what does harm."""

from __future__ import annotations

import gc
import json
import tracemalloc
from collections.abc import Iterator

import pytest
from confluent_kafka import Producer

from devstack import KafkaCluster
from support.alone import alone
from support.obeyed import acked
from support.stack_fixtures import Unique
from tidegate.control.codec import encode_key, encode_value
from tidegate.control.records import Ack, AckKey, Hold, HoldKey
from tidegate.kafka.connection import Connection, acks_topic
from tidegate.kafka.model import TopicPartition
from tidegate.kafka_client.client import KafkaClient

MIB = 1024 * 1024
GROUP, ORDERS = "payments", TopicPartition("orders", 0)
HOLD = HoldKey(GROUP, "orders", 0, "pause/c/1")
HUGE = 2**62

POISON: list[tuple[bytes, bytes | None]] = [
    (b'{"group":"g\\ud800","kind":"ack","partition":0,"topic":"t"}', b'{"epoch":%d,"member":"m","offset":1}' % HUGE),
    (b'{"group":"g\xed\xa0\x80","kind":"ack","partition":0,"topic":"t"}', b'{"epoch":9,"member":"m","offset":1}'),
    (b'{"group":"g","kind":"ack","partition":0,"topic":"t"}', b'{"epoch":%d,"member":"\\udfff","offset":1}' % HUGE),
    (b'{"group":"g","kind":"ack","partition":%d,"topic":"t"}' % 10**40, b'{"epoch":9,"member":"m","offset":1}'),
    (b'{"group":"g","kind":"ack","partition":0,"topic":"t"}', b'{"epoch":%d,"member":"m","offset":1}' % 10**400),
    (b'{"group":' + b"[" * 50_000, b"{}"),
    (b"\xff\xfe", None),
    (b"", b""),
]


class Stage:
    """An ack topic beside a control topic with one hold, and one who writes what it likes."""

    def __init__(self, bootstrap: str, control_topic: str) -> None:
        self.bootstrap, self.control_topic = bootstrap, control_topic
        self._clients: list[KafkaClient] = []
        self.client = self.fresh()
        assert self.client.control.ensure() == ()
        self.epoch = self.client.control.hold({HOLD: Hold()})[HOLD]

    def fresh(self, ack_topic: str | None = None) -> KafkaClient:
        """As after a start of the operator."""
        client = KafkaClient(Connection(self.bootstrap, control_topic=self.control_topic, ack_topic=ack_topic))
        self._clients.append(client)
        return client

    def write(self, *records: tuple[bytes, bytes | None], ack_topic: str | None = None) -> None:
        producer = Producer({"bootstrap.servers": self.bootstrap, "compression.type": "gzip"})
        failed: list[object] = []
        for key, value in records:
            producer.produce(
                ack_topic or acks_topic(self.control_topic),
                value,
                key,
                on_delivery=lambda error, _: failed.append(error) if error is not None else None,
            )
        assert producer.flush(60) == 0
        assert not failed

    def ack(self, ack: Ack, ack_topic: str | None = None) -> None:
        self.write((encode_key(AckKey(GROUP, "orders", 0)), encode_value(ack)), ack_topic=ack_topic)

    def close(self) -> None:
        for client in self._clients:
            client.control.close()
            client.close()


@pytest.fixture
def stage(kafka: KafkaCluster, unique: Unique) -> Iterator[Stage]:
    stage = Stage(kafka.bootstrap, f"__{unique('hostile')}")
    yield stage
    stage.close()


def test_poison_fails_no_pass_and_no_start(stage: Stage) -> None:
    stage.write(*POISON)
    stage.ack(Ack(stage.epoch, 42, "m"))
    stage.write(*POISON)

    for client in (stage.client, stage.fresh()):
        assert client.control.ensure() == ()
        gates = client.control.read([GROUP, "g"])
        assert acked(gates, GROUP, ORDERS) == Ack(stage.epoch, 42, "m")
        assert set(gates.acks) == {AckKey(GROUP, "orders", 0)}
        assert client.control.unreadable == 2 * len(POISON)


def test_a_hold_in_the_ack_topic_is_nobodys(stage: Stage) -> None:
    other = HoldKey("victims", "orders", 0, "pause/c/2")
    stage.write((encode_key(other), encode_value(Hold())), (encode_key(HOLD), None), (b'{"kind":"clock"}', b"{}"))

    for client in (stage.client, stage.fresh()):
        gates = client.control.read([GROUP])
        assert list(gates.holds) == [HOLD], "nothing was held by it, nor released"
        assert gates.clock_ms is None


def test_acks_in_another_tenants_ack_topic_count_for_nobody_else(stage: Stage, unique: Unique) -> None:
    own = f"__{unique('acks')}"
    tenant = stage.fresh(own)
    assert tenant.control.ensure() == ()
    assert list(tenant.control.read([GROUP]).holds) == [HOLD], "the control topic is shared"

    stage.ack(Ack(stage.epoch, 7, "forged"))

    for client in (tenant, stage.fresh(own)):
        assert acked(client.control.read([GROUP]), GROUP, ORDERS) is None

    stage.ack(Ack(stage.epoch, 42, "m"), own)

    for client in (tenant, stage.fresh(own)):
        assert acked(client.control.read([GROUP]), GROUP, ORDERS) == Ack(stage.epoch, 42, "m")
    assert acked(stage.client.control.read([GROUP]), GROUP, ORDERS) == Ack(stage.epoch, 7, "forged")


def bytes_held_by_a_reader(bootstrap: str, control_topic: str) -> tuple[Ack | None, int]:
    """Of both topics, with their flood; and whether that hides the one true ack."""
    client = KafkaClient(Connection(bootstrap, control_topic=control_topic))
    try:
        client.control.ensure()
        gc.collect()
        tracemalloc.start()
        try:
            assert client.control.read(["nobody"]).heard  # from its start
            gates = client.control.read([GROUP])  # and again
            gc.collect()
            return acked(gates, GROUP, ORDERS), tracemalloc.get_traced_memory()[0]
        finally:
            tracemalloc.stop()
    finally:
        client.control.close()
        client.close()


def test_a_flood_of_acks_takes_little_memory_and_hides_no_true_one(stage: Stage) -> None:
    huge = [b'{"group":"%d%s","kind":"ack","partition":0,"topic":"t"}' % (n, b"g" * 860_000) for n in range(30)]
    strangers = [AckKey(f"stranger-{n}", "t" * 249, n) for n in range(5_000)]
    ahead = [AckKey(f"ahead-{n}", "t", 0) for n in range(1_000)]
    stage.write(
        *((key, b'{"epoch":1,"member":"m","offset":1}') for key in huge),
        *((encode_key(key), encode_value(Ack(0, 0, "m" * 1024))) for key in strangers),
        *((encode_key(key), encode_value(Ack(HUGE, 0, "m"))) for key in ahead),
    )
    stage.ack(Ack(stage.epoch, 42, "m"))

    found, held = alone(bytes_held_by_a_reader, stage.bootstrap, stage.control_topic)

    assert found == Ack(stage.epoch, 42, "m")
    assert held < 2 * MIB, "5,000 acks of strangers alone would be 7 MiB"


def test_epochs_out_of_reach_are_taken_back_at_a_start(stage: Stage) -> None:
    """What was written while nobody looked: the next start has it compacted away, before its epoch is reached."""
    key = encode_key(AckKey(GROUP, "orders", 0))
    stage.write((key, json.dumps({"epoch": stage.epoch + 2, "member": "m", "offset": 1}).encode()))
    assert stage.fresh().control.ensure() == ()

    for _ in range(5):
        stage.client.control.hold({HOLD: Hold()})

    assert stage.fresh().control.read([GROUP]).ack(GROUP, ORDERS, "m") is None
