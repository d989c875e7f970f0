"""An application that forks while its consumer runs: the child's own consumer obeys gates, and the parent's goes on."""

from __future__ import annotations

import time
from contextlib import closing

import pytest

from devstack import KafkaCluster
from support.clients import ConsumerFleet
from support.forks import true_in_child
from support.gated_applications import Scene
from support.stack_fixtures import MakeTopic, Unique
from tidegate.kafka.connection import Connection
from tidegate.kafka_client.client import KafkaClient
from tidegate_agent import process
from tidegate_agent.gates import Partition
from tidegate_agent.settings import Settings

pytestmark = pytest.mark.at_once(6)


@pytest.mark.parametrize("kind", ["librdkafka", "kafka-python", "aiokafka"])
def test_a_forked_childs_consumer_obeys_and_its_parents_goes_on(
    kafka: KafkaCluster, make_topic: MakeTopic, unique: Unique, kind: str
) -> None:
    scene = Scene(kafka.bootstrap, make_topic(2), unique("forking"))
    both = [(scene.topic, 0), (scene.topic, 1)]
    try:
        with ConsumerFleet(
            kind,
            scene.bootstrap,
            scene.group,
            [scene.topic],
            ["parent"],
            heartbeat_s=0.3,
            auto_commit_interval_s=0.3,
            agent=True,
            control_topic=scene.settings.control_topic,
        ) as fleet:
            fleet.wait_flowing(both)
            fleet.add("child", process=0, forked=True)
            fleet.wait_assigned(both, members=2)
            fleet.wait_flowing(both)
            acks = {}
            for closed, other in ((0, 1), (1, 0)):
                acks[closed] = scene.close_gate(closed)
                acked_at = time.time()
                fleet.wait_flowing([(scene.topic, other)], since=acked_at + 0.3)
                assert not [d for d in fleet.records(acked_at) if d.partition == closed], fleet.owners()
                assert scene.committed(closed) == acks[closed].offset
                scene.reset(2, closed)
                since = time.time()
                scene.release(closed)
                fleet.wait_flowing([(scene.topic, closed)], since=since)
                assert next(d.offset for d in fleet.records(since) if d.partition == closed) == 2
            assert acks[0].member != acks[1].member
            owners = fleet.owners()
            assert {owners[partition] for partition in both} == {"parent", "child"}
    finally:
        scene.close()


def test_a_fork_waits_until_the_agents_clients_are_connected(
    kafka: KafkaCluster, unique: Unique, monkeypatch: pytest.MonkeyPatch
) -> None:
    """glibc keeps the lock of an address lookup in a child that is forked meanwhile: it could never connect."""
    topic = f"__c-{unique('connecting')}"
    KafkaClient(Connection(kafka.bootstrap, control_topic=topic)).control.ensure()
    monkeypatch.setattr(process, "_process", process._Process(settings=Settings(control_topic=topic)))
    link = process.link({"bootstrap.servers": kafka.bootstrap})
    with closing(link):
        ticket = link.ask()
        assert true_in_child(lambda: link.known.answered >= ticket)
        link.send_acks("g", "m", {Partition("orders", 0): (0, 3)}, link.known.generation, lambda _: None)
        assert true_in_child(lambda: link._acks.outstanding == 0)


def test_a_fork_does_not_wait_for_brokers_that_cannot_be_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "_process", process._Process(settings=Settings()))
    link = process.link({"bootstrap.servers": "127.0.0.1:1"})
    with closing(link):
        ticket = link.ask()
        assert true_in_child(lambda: link.known.answered < ticket)
