"""Three brokers, and the one that leads the control topic, or the ack topic, or that coordinates the operator's writes,
dies while partitions are paused."""

from __future__ import annotations

import queue
import time
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka.admin import AdminClient

from devstack import KafkaCluster
from support.stack_fixtures import Unique
from tidegate.control.gates import Gates
from tidegate.control.records import Hold, HoldKey
from tidegate.kafka.connection import Connection
from tidegate.kafka.errors import Unavailable
from tidegate.kafka.model import TopicPartition
from tidegate.kafka.offset_records import partition_of
from tidegate.kafka_client.client import KafkaClient
from tidegate.kafka_client.fenced_writer import control_transactional_id
from tidegate_agent.control import ControlLink
from tidegate_agent.gates import Partition

pytestmark = pytest.mark.nightly

WITHIN_S = 60.0
GROUP, MEMBER = "payments", "member-1"


def hold_of(partition: int) -> HoldKey:
    return HoldKey(GROUP, "orders", partition, "pause/c/p")


class Scene:
    """The operator's client and an agent's link, on control topics of their own with three replicas."""

    def __init__(self, kafka: KafkaCluster, topic: str) -> None:
        self.topics = {"control": topic, "acks": f"{topic}_acks", "transactions": "__transaction_state"}
        self.admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
        connection = Connection(kafka.bootstrap, control_topic=topic, control_replication_factor=3)
        self.client = KafkaClient(connection, "uid")
        self.client.control.ensure()
        self.link = ControlLink({"bootstrap.servers": kafka.bootstrap}, topic, self.topics["acks"])
        self.gates = Gates()

    def leader(self, which: str) -> int:
        """Of the topic's only partition, or of that which has the operator's transactional id."""
        topic = self.topics[which]
        partitions = self.admin.list_topics(topic, timeout=30).topics[topic].partitions
        name = control_transactional_id("uid", self.topics["control"])
        leader: int = partitions[partition_of(name, len(partitions))].leader
        return leader

    def hold(self, partition: int) -> int:
        """As the operator does: again, where nobody answers."""
        epochs: list[int] = []

        def held() -> bool:
            try:
                epochs.append(
                    self.client.control.hold({hold_of(partition): Hold("looked into", 1000)})[hold_of(partition)]
                )
            except Unavailable:
                return False
            return True

        self.until(held, f"the hold of partition {partition} is written")
        return epochs[-1]

    def ack(self, partition: int, epoch: int, offset: int) -> None:
        """As the agent does: again, where nobody answers."""

        def sent() -> bool:
            done: queue.Queue[bool] = queue.Queue()
            acks = {Partition("orders", partition): (epoch, offset)}
            self.link.send_acks(GROUP, MEMBER, acks, self.link.known.generation, done.put)
            return done.get(timeout=WITHIN_S)

        self.until(sent, f"the ack of partition {partition} is written")

    def acked(self, partition: int) -> int | None:
        ack = self.gates.ack(GROUP, TopicPartition("orders", partition), MEMBER)
        return None if ack is None else ack.offset

    def closed(self, partition: int) -> int | None:
        """The epoch of the gate that the agent knows."""
        gate = self.link.known.gate(GROUP, Partition("orders", partition))
        return None if gate is None else gate.epoch

    def until(self, reached: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + WITHIN_S
        while not reached():
            assert time.monotonic() < deadline, f"not within {WITHIN_S:g} s: {what}; {self.link.known}"
            try:
                self.gates = self.client.control.read([GROUP], wait_s=0.05)
            except Unavailable:
                continue

    def close(self) -> None:
        self.link.close()
        self.client.close()


@pytest.fixture
def scene(kafka3: KafkaCluster, unique: Unique) -> Iterator[Scene]:
    scene = Scene(kafka3, unique("control"))
    yield scene
    scene.close()


@pytest.mark.parametrize("which", ["control", "acks", "transactions"])
def test_a_pause_outlives_whoever_leads_its_topics(scene: Scene, kafka3: KafkaCluster, which: str) -> None:
    """No gate opens, nothing that was said is lost, and what is said next is heard before the broker is back."""
    first = scene.hold(0)
    scene.link.ask()
    scene.until(lambda: scene.closed(0) == first, "the agent has closed the gate")
    scene.ack(0, first, 11)
    scene.until(lambda: scene.acked(0) == 11, "the operator has read the ack")

    dead = scene.leader(which)
    kafka3.kill(dead)
    try:
        scene.until(lambda: scene.leader(which) not in (dead, -1), "somebody else leads")
        second = scene.hold(1)
        scene.until(lambda: scene.closed(1) == second, "the agent has closed the next gate")
        scene.ack(1, second, 22)
        scene.until(lambda: scene.acked(1) == 22, "the operator has read the next ack")
        assert (scene.closed(0), scene.acked(0), scene.link.known.generation) == (first, 11, 1)
        assert sorted(scene.gates.holds) == [hold_of(0), hold_of(1)]
    finally:
        kafka3.restart(dead)

    scene.client.control.release([hold_of(0), hold_of(1)])
    scene.until(lambda: scene.closed(0) is None and scene.closed(1) is None, "both gates are open")
