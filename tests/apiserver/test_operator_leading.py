"""ConsumerGroupPause with method Leading: real API server, real broker, unmodified clients."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing

import pytest

from apiserver.conftest import StartOperator
from apiserver.offsets import committed
from devstack import KafkaCluster
from support.clients import ClientKind, ConsumerFleet, GroupProtocol, SteadyProducer
from support.led_groups import group_now, is_whole, read_of
from support.operator_process import Resources, condition_of, until
from support.stack_fixtures import MakeTopic, Unique
from tidegate.kafka.connection import Connection
from tidegate.kafka.model import Group, TopicPartition
from tidegate.kafka_client.client import KafkaClient

pytestmark = pytest.mark.at_once(4)

PARTITIONS = 4
RATE = 50.0
LEADING = {"method": "Leading"}


@pytest.fixture
def topic(make_topic: MakeTopic) -> str:
    return make_topic(PARTITIONS)


@pytest.fixture
def group(unique: Unique) -> str:
    return unique("group")


@pytest.fixture
def p(unique: Unique) -> str:
    """The name of the test's pause."""
    return unique("p")[-50:].strip("-")


@pytest.fixture
def client(kafka: KafkaCluster) -> Iterator[KafkaClient]:
    with closing(KafkaClient(Connection(kafka.bootstrap))) as client:
        yield client


@pytest.fixture
def fleet(kafka: KafkaCluster, topic: str, group: str) -> Iterator[ConsumerFleet]:
    """Two consumers without the agent, which read a steady flow."""
    fleet = ConsumerFleet(ClientKind.LIBRDKAFKA, kafka.bootstrap, group, [topic], 2, assignor="range")
    with fleet, SteadyProducer(kafka.bootstrap, topic, PARTITIONS, RATE):
        fleet.wait_flowing([(topic, number) for number in range(PARTITIONS)])
        yield fleet


def everything(topic: str) -> list[TopicPartition]:
    return [TopicPartition(topic, number) for number in range(PARTITIONS)]


def leaders(group: Group) -> list[str]:
    return [m.member_id for m in group.members if m.client_id == "tidegate-leader"]


def test_a_partition_is_withheld_reset_and_read_from_there_by_unmodified_clients(
    shared: Resources, kafka: KafkaCluster, client: KafkaClient, fleet: ConsumerFleet, topic: str, group: str, p: str
) -> None:
    paused = TopicPartition(topic, 0)
    shared.pause(p, group, {"topic": topic, "partitions": [0]}, **LEADING)
    body = shared.wait_pause(p, "Paused", "1/1", timeout_s=60)
    stands, status = time.time(), body["status"]
    assert condition_of(body, "Ready")["status"] == condition_of(body, "Paused")["status"] == "True"
    assert (status["method"], status["failsOpenAfter"]) == ("Leading", "20s")
    assert leaders(group_now(client, group)) == [status["leader"]["memberId"]]
    assert group_now(client, group).owner(paused) is None
    [row] = status["partitions"]
    assert row["offset"] == committed(kafka.bootstrap, group, topic, PARTITIONS)[0]

    # What its members own can't be reset meanwhile, what nobody owns can.
    shared.reset(f"{p}-1", group, {"offset": 1}, partitions=[{"topic": topic, "partitions": "1"}])
    refused = shared.wait_phase(f"{p}-1", "Failed", "Succeeded")
    assert refused["status"]["phase"] == "Failed"
    assert "method Leading" in str(refused["status"]["conditions"])
    shared.reset(f"{p}-0", group, {"offset": 1}, partitions=[{"topic": topic, "partitions": "0"}])
    done = shared.wait_phase(f"{p}-0", "Succeeded", "Failed", "RolledBack")
    assert (done["status"]["phase"], done["status"]["way"]) == ("Succeeded", "Unowned")

    fleet.wait_flowing([(topic, number) for number in range(1, PARTITIONS)], since=time.time())
    ends = time.time()
    assert read_of(fleet, paused, stands, ends) == []
    shared.delete_pause(p)
    until(lambda: shared.get("consumergrouppauses", p) is None, "it is gone")
    fleet.wait_flowing([(topic, 0)], since=ends)
    assert read_of(fleet, paused, ends, time.time())[0].offset == 1
    until(lambda: is_whole(group_now(client, group), everything(topic), 2), "the group is as before")


@pytest.mark.nightly
def test_the_next_process_goes_on_and_nothing_is_read_meanwhile(
    resources: Resources,
    start_operator: StartOperator,
    kafka: KafkaCluster,
    client: KafkaClient,
    fleet: ConsumerFleet,
    topic: str,
    group: str,
    p: str,
) -> None:
    operator = start_operator()
    resources.connection("kafka", kafka.bootstrap)
    resources.wait_connection("kafka")
    resources.pause(p, group, {"topic": topic, "partitions": [0]}, **LEADING)
    resources.pause(f"{p}-too", group, {"topic": topic, "partitions": [1]}, **LEADING)
    resources.wait_pause(p, "Paused", "1/1", timeout_s=60)
    body = resources.wait_pause(f"{p}-too", "Paused", "1/1", timeout_s=60)
    stands, [leader] = time.time(), leaders(group_now(client, group))
    operator.kill()
    start_operator()
    until(lambda: resources.get_pause(p)["status"]["phase"] == "Paused", "it is paused")
    # Longer than the session of a leader that has died.
    until(lambda: time.time() > stands + 30, "a session is over", timeout_s=60)
    ends = time.time()
    for number in (0, 1):
        assert read_of(fleet, TopicPartition(topic, number), stands, ends) == []
    assert leaders(group_now(client, group)) == [leader]
    assert resources.get_pause(f"{p}-too")["status"]["leader"] == body["status"]["leader"]

    resources.patch_pause(p, suspend=True)
    resources.wait_pause(p, "Resumed", reason="Suspended")
    fleet.wait_flowing([(topic, 0)], since=ends)
    assert leaders(group_now(client, group)) == [leader]
    assert read_of(fleet, TopicPartition(topic, 1), stands, time.time()) == []
    resources.delete_pause(f"{p}-too")
    fleet.wait_flowing([(topic, 1)], since=ends)
    resources.delete_pause(p)
    until(lambda: is_whole(group_now(client, group), everything(topic), 2), "the group is as before")


def test_what_can_not_be_led_is_refused_and_untouched(
    shared: Resources, kafka: KafkaCluster, topic: str, group: str, p: str, unique: Unique
) -> None:
    with ConsumerFleet(
        ClientKind.LIBRDKAFKA, kafka.bootstrap, group, [topic], 1, protocol=GroupProtocol.CONSUMER
    ) as fleet:
        fleet.wait_assigned([(topic, number) for number in range(PARTITIONS)])
        shared.pause(p, group, {"topic": topic}, **LEADING)
        body = shared.wait_pause(p, "Pending", reason="UnsupportedGroup")
        assert not body["metadata"].get("finalizers")
    other = f"{p}-never"
    shared.pause(other, unique("none"), {"topic": topic}, **LEADING, leading={"failOpen": "Never"})
    body = shared.wait_pause(other, "Pending", reason="FailsOpen")
    assert not body["metadata"].get("finalizers")
    for name in (p, other):
        shared.delete_pause(name)
