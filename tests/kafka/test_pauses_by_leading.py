"""Partitions that are withheld by leading their group: unmodified clients, a real broker, a steady flow of records."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from contextlib import closing

import pytest

from devstack import KafkaCluster
from devstack.processes import eventually
from support.clients import ClientKind, ConsumerFleet, SteadyProducer
from support.clients.node import has_node
from support.clients.options import CLASSIC_ASSIGNORS
from support.led_groups import group_now, is_whole, leading, longest_gap_s, read_of
from support.stack_fixtures import MakeTopic, Unique
from tidegate.kafka.connection import Connection
from tidegate.kafka.errors import Unavailable
from tidegate.kafka.model import GroupState, Topic, TopicPartition
from tidegate.kafka_client.client import KafkaClient
from tidegate.kafka_client.wire import Wire

pytestmark = pytest.mark.at_once(4)

PARTITIONS = 6
RATE = 50.0
PAUSED_S = 4.0

IN_CI = [(ClientKind.FRANZ_GO, "cooperative-sticky", 2), (ClientKind.LIBRDKAFKA, "range", 2)]
CELLS = [
    (kind, assignor, members)
    for kind in ClientKind
    if kind is not ClientKind.KAFKAJS or has_node()
    for assignor in sorted(CLASSIC_ASSIGNORS[kind])
    for members in (2, 8)
]


def partitions_of(topic: str, count: int = PARTITIONS) -> frozenset[TopicPartition]:
    return frozenset(TopicPartition(topic, number) for number in range(count))


@pytest.mark.parametrize(
    ("kind", "assignor", "members"),
    [*IN_CI, *(pytest.param(*cell, marks=pytest.mark.nightly) for cell in CELLS for _ in range(2))],
)
def test_nothing_of_a_withheld_partition_is_delivered_and_nothing_is_missing_afterwards(
    kind: ClientKind, assignor: str, members: int, kafka: KafkaCluster, make_topic: MakeTopic, unique: Unique
) -> None:
    count = max(PARTITIONS, members + 2)
    topic, group = make_topic(count), unique("led")
    everything, paused = partitions_of(topic, count), TopicPartition(topic, 0)
    others = everything - {paused}
    fleet = ConsumerFleet(kind, kafka.bootstrap, group, [topic], members, assignor=assignor)
    with closing(KafkaClient(Connection(kafka.bootstrap))) as client, fleet:
        with SteadyProducer(kafka.bootstrap, topic, count, RATE) as producer:
            fleet.wait_flowing([(p.topic, p.partition) for p in everything])
            assert eventually(lambda: is_whole(group_now(client, group), everything, members), 60)
            began = time.time()
            with leading(kafka.bootstrap, group, frozenset({paused})) as led:
                stands = led.wait_withheld(frozenset({paused}))
                committed = client.committed(group, [paused])
                fleet.wait_flowing([(p.topic, p.partition) for p in others], since=stands)
                settled = time.time()
                assert eventually(lambda: time.time() > settled + PAUSED_S, PAUSED_S + 5)
                assert client.committed(group, [paused]) == committed
                ends = time.time()
                led.end()
            fleet.wait_flowing([(p.topic, p.partition) for p in everything], since=ends)
            back = time.time()
            assert eventually(lambda: is_whole(group_now(client, group), everything, members), 60)
            acked = producer.stop()
        fleet.wait_read_to({partition: max(offsets) + 1 for partition, offsets in acked.items()})
        assert read_of(fleet, paused, stands, ends) == []
        read = {(d.topic, d.partition, d.offset) for d in fleet.records()}
        assert {(*place, offset) for place, offsets in acked.items() for offset in offsets} - read == set()
        print(
            f"{kind} {assignor} {members}: withheld after {stands - began:.1f} s, all back {back - ends:.1f} s after "
            f"the end; others stood at most {longest_gap_s(fleet, others, began, settled):.1f} s at the beginning, "
            f"{longest_gap_s(fleet, others, settled, ends):.1f} s meanwhile, "
            f"{longest_gap_s(fleet, others, ends, back):.1f} s at the end"
        )


def test_a_successor_goes_on_without_a_rebalance_and_without_one_it_opens(
    kafka: KafkaCluster, make_topic: MakeTopic, unique: Unique
) -> None:
    topic, group, session_s = make_topic(PARTITIONS), unique("led"), 6.0
    everything, paused = partitions_of(topic), TopicPartition(topic, 0)
    withheld = frozenset({paused})
    fleet = ConsumerFleet(ClientKind.FRANZ_GO, kafka.bootstrap, group, [topic], 2)
    producer = SteadyProducer(kafka.bootstrap, topic, PARTITIONS, RATE)
    with closing(KafkaClient(Connection(kafka.bootstrap))) as client, fleet, producer:
        fleet.wait_flowing([(p.topic, p.partition) for p in everything])
        with leading(kafka.bootstrap, group, withheld, session_s=session_s) as first:
            stands = first.wait_withheld(withheld)
            seat = first.die()
        with leading(kafka.bootstrap, group, withheld, session_s=session_s, known=seat) as second:
            second.wait_withheld(withheld)
            # Longer than a session: it is heard of.
            goes_on = time.time()
            assert eventually(lambda: time.time() > goes_on + session_s + 2, session_s + 5)
            assert second.session.report.withheld == withheld
            assert second.session.report.lost == 0
            assert second.die() == seat  # the same member in the same generation
        died = time.time()
        assert read_of(fleet, paused, stands, died) == []
        fleet.wait_flowing([(paused.topic, paused.partition)], since=died, timeout=30)
        opened = read_of(fleet, paused, died, time.time())[0].t
        # The coordinator looks after each heartbeat's time; members hear of it with theirs.
        print(f"opened {opened - died:.1f} s after the last heartbeat's process had died; session {session_s} s")
        assert opened - died > session_s - 2
        assert eventually(lambda: is_whole(group_now(client, group), everything, 2), 60)
        with leading(kafka.bootstrap, group, withheld, session_s=session_s, known=seat) as third:
            # Its seat is gone: it says so, and leads again.
            third.wait_withheld(withheld)
            assert third.session.report.lost == 1
            third.end()
        assert eventually(lambda: group_now(client, group).state is GroupState.STABLE, 30)


def test_members_that_wait_for_the_leader_are_answered_although_it_was_not_for_a_moment(
    kafka: KafkaCluster, make_topic: MakeTopic, unique: Unique
) -> None:
    topic, group = make_topic(PARTITIONS), unique("led")
    everything, withheld = partitions_of(topic), frozenset({TopicPartition(topic, 0)})
    fleet = ConsumerFleet(ClientKind.LIBRDKAFKA, kafka.bootstrap, group, [topic], 1, assignor="range")
    producer = SteadyProducer(kafka.bootstrap, topic, PARTITIONS, RATE)
    with closing(KafkaClient(Connection(kafka.bootstrap))) as client, fleet, producer:
        fleet.wait_flowing([(p.topic, p.partition) for p in everything])
        with leading(kafka.bootstrap, group, withheld) as led:
            stands = led.wait_withheld(withheld)
            broken: list[Unavailable] = []
            topics = led.session.kafka.topics

            def unanswered(names: Collection[str] | None = None) -> Mapping[str, Topic]:
                if not broken and group_now(client, group).state is GroupState.COMPLETING_REBALANCE:
                    broken.append(Unavailable("no answer"))
                    raise broken[0]
                return topics(names)

            led.session.kafka.topics = unanswered  # type: ignore[method-assign]
            fleet.add()
            assert eventually(lambda: bool(broken), 30)
            assert eventually(lambda: is_whole(group_now(client, group), everything - withheld, 3), 30)
            fleet.wait_flowing([(p.topic, p.partition) for p in everything - withheld], since=time.time())
            led.wait_withheld(withheld)
            assert led.session.report.lost == 0
            ends = time.time()
            led.end()
        assert read_of(fleet, TopicPartition(topic, 0), stands, ends) == []


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("kind", "assignor"),
    [(ClientKind.FRANZ_GO, "cooperative-sticky"), (ClientKind.LIBRDKAFKA, "range"), (ClientKind.JAVA, "sticky")],
)
def test_members_that_join_leave_and_crash_get_nothing_of_it(
    kind: ClientKind, assignor: str, kafka: KafkaCluster, make_topic: MakeTopic, unique: Unique
) -> None:
    topic, group = make_topic(PARTITIONS), unique("led")
    everything, paused = partitions_of(topic), TopicPartition(topic, 0)
    others = [(topic, number) for number in range(1, PARTITIONS)]
    fleet = ConsumerFleet(kind, kafka.bootstrap, group, [topic], 3, processes=3, assignor=assignor, session_s=10)
    producer = SteadyProducer(kafka.bootstrap, topic, PARTITIONS, RATE)
    with closing(KafkaClient(Connection(kafka.bootstrap))) as client, fleet, producer:
        fleet.wait_flowing([(p.topic, p.partition) for p in everything])
        assert eventually(lambda: is_whole(group_now(client, group), everything, 3), 60)
        with leading(kafka.bootstrap, group, frozenset({paused})) as led:
            stands = led.wait_withheld(frozenset({paused}))
            fleet.add()
            assert eventually(lambda: len(group_now(client, group).members) == 5, 60)
            fleet.wait_flowing(others, since=time.time())
            fleet.stop_member(fleet.members()[0])
            assert eventually(lambda: len(group_now(client, group).members) == 4, 60)
            fleet.wait_flowing(others, since=time.time())
            fleet.kill_process(1)
            assert eventually(lambda: len(group_now(client, group).members) == 3, 60)
            fleet.wait_flowing(others, since=time.time(), timeout=60)
            ends = time.time()
            assert (led.session.report.withheld, led.session.report.lost) == ({paused}, 0)
            led.end()
        assert read_of(fleet, paused, stands, ends) == []
        fleet.wait_flowing([(topic, 0)], since=ends)
        assert eventually(lambda: is_whole(group_now(client, group), everything, 2), 60)


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("kind", "assignor"), [(ClientKind.FRANZ_GO, "cooperative-sticky"), (ClientKind.JAVA, "range")]
)
def test_the_groups_coordinator_dies_and_nothing_is_read(
    kind: ClientKind, assignor: str, kafka3: KafkaCluster, make_topic3: MakeTopic, unique: Unique
) -> None:
    topic, group = make_topic3(PARTITIONS, replication_factor=3), unique("led")
    everything, paused = partitions_of(topic), TopicPartition(topic, 0)
    fleet = ConsumerFleet(kind, kafka3.bootstrap, group, [topic], 2, assignor=assignor)
    producer = SteadyProducer(kafka3.bootstrap, topic, PARTITIONS, RATE)
    with closing(KafkaClient(Connection(kafka3.bootstrap))) as client, fleet, producer:
        fleet.wait_flowing([(p.topic, p.partition) for p in everything])
        assert eventually(lambda: is_whole(group_now(client, group), everything, 2), 60)
        with leading(kafka3.bootstrap, group, frozenset({paused})) as led:
            stands = led.wait_withheld(frozenset({paused}))
            with closing(Wire(Connection(kafka3.bootstrap))) as wire:
                coordinator, _, _ = wire.coordinator(group)
            kafka3.kill(coordinator)
            killed = time.time()
            fleet.wait_flowing([(topic, n) for n in range(1, PARTITIONS)], since=killed, timeout=60)
            # Longer than its session, on another broker.
            assert eventually(lambda: time.time() > killed + 25, 60)
            ends, report = time.time(), led.session.report
            kafka3.restart(coordinator)
            assert (report.withheld, report.lost) == ({paused}, 0), report
            led.end()
        assert read_of(fleet, paused, stands, ends) == []
        fleet.wait_flowing([(topic, 0)], since=ends, timeout=60)
