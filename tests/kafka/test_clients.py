"""The test clients themselves: each kind starts, reads everything, rebalances, commits as told, and ends.

Of those that are one program, some of it is tried with one of them in continuous integration, and nightly with all.
"""

from __future__ import annotations

import importlib.metadata
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

import confluent_kafka
import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient, MemberDescription

from devstack import KafkaCluster
from devstack.processes import eventually
from support.checker import Outcome, ResetRun, check
from support.clients import (
    ClientKind,
    CommitMode,
    ConsumerFleet,
    EventKind,
    FleetError,
    GroupProtocol,
    Line,
    Partition,
    SteadyProducer,
    produce_all,
)
from support.clients.node import has_node
from support.clients.options import TRANSACTIONAL
from support.reset_trial import FIRST_CLIENTS
from support.stack_fixtures import MakeTopic, Unique
from tidegate.kafka.connection import Connection
from tidegate.kafka.model import TopicPartition as Place
from tidegate.kafka_client.client import KafkaClient

pytestmark = pytest.mark.at_once(3)

HERE = [kind for kind in ClientKind if kind is not ClientKind.KAFKAJS or has_node()]
PROGRAMS = (ClientKind.LIBRDKAFKA, ClientKind.JAVA, ClientKind.FRANZ_GO, ClientKind.KAFKAJS)
"""One of each program that consumers are run by: in Python, Java, Go and Node."""
LINES = [Line(f"line {number}".encode()) for number in range(400)]


def partitions_of(topic: str, count: int = 4) -> list[Partition]:
    return [(topic, number) for number in range(count)]


def ends_of(acked: Mapping[Partition, frozenset[int]]) -> dict[Partition, int]:
    return {partition: max(offsets) + 1 for partition, offsets in acked.items()}


def committed(kafka: KafkaCluster, group: str) -> dict[Partition, int]:
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    (future,) = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)]).values()
    return {(p.topic, p.partition): p.offset for p in future.result(30).topic_partitions}


def members(kafka: KafkaCluster, group: str) -> list[MemberDescription]:
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    (future,) = admin.describe_consumer_groups([group]).values()
    return list(future.result(30).members)


def client_ids(kafka: KafkaCluster, group: str) -> set[str]:
    return {member.client_id for member in members(kafka, group)}


def default_client_ids(kind: ClientKind, group: str) -> set[str]:
    match kind:
        case ClientKind.LIBRDKAFKA:
            return {"rdkafka"}
        case ClientKind.JAVA:
            return {f"consumer-{group}-1"}
        case ClientKind.AIOKAFKA | ClientKind.KAFKA_PYTHON:
            return {f"{kind}-{importlib.metadata.version(kind)}"}
        case ClientKind.FRANZ_GO:
            return {"kgo"}
        case ClientKind.SARAMA:
            return {"sarama"}
        case ClientKind.KAFKAJS:
            return {"kafkajs"}
        case ClientKind.KAFKA_GO:
            return {f"consumers@{socket.gethostname()} (github.com/segmentio/kafka-go)"}


@pytest.mark.parametrize("kind", HERE)
def test_a_crashed_processes_partitions_go_to_the_other(
    kind: ClientKind, kafka: KafkaCluster, make_topic: MakeTopic, unique: Unique
) -> None:
    topic, group = make_topic(4), unique("group")
    partitions = partitions_of(topic)
    with (
        # All the time: where a client tells no assignments, a partition's owner is known only by its deliveries, and a
        # member that joins after everything was read would be given nothing.
        SteadyProducer(kafka.bootstrap, topic, 4, 20) as producer,
        ConsumerFleet(kind, kafka.bootstrap, group, [topic], 2, 2, session_s=6, commit="sync") as fleet,
    ):
        fleet.wait_assigned(partitions)
        fleet.wait_read_to(producer.ends())
        assert client_ids(kafka, group) == default_client_ids(kind, group)

        fleet.kill_process(0)

        fleet.wait_flowing(partitions)
        producer.stop()
        fleet.wait_read_to(producer.ends())
        assert set(fleet.owners().values()) == {"c1"}
        assert [event.member for event in fleet.events() if event.kind is EventKind.KILLED] == ["c0"]
        verdict = check(fleet.records(), producer.acked_offsets())
    assert verdict.ok, verdict.complaints()


@pytest.mark.parametrize("kind", [ClientKind.LIBRDKAFKA, ClientKind.JAVA])
def test_members_of_a_kip_848_group_come_and_go(
    kind: ClientKind, kafka: KafkaCluster, make_topic: MakeTopic, unique: Unique
) -> None:
    topic, group = make_topic(4), unique("group")
    partitions = partitions_of(topic)
    with (
        SteadyProducer(kafka.bootstrap, topic, 4, 20) as producer,
        ConsumerFleet(
            kind, kafka.bootstrap, group, [topic], 2, protocol=GroupProtocol.CONSUMER, client_ids=True
        ) as fleet,
    ):
        fleet.wait_assigned(partitions)
        assert client_ids(kafka, group) == {"c0", "c1"}

        added = fleet.add(process=0)
        fleet.wait_assigned(partitions, members=3)
        fleet.stop_member("c0")
        fleet.wait_flowing(partitions)

        assert fleet.members() == ("c1", added)
        acked = producer.stop()
        fleet.wait_read_to(producer.ends())
        fleet.stop()
    verdict = check(fleet.records(), acked)
    assert verdict.ok, verdict.complaints()


@pytest.mark.parametrize(
    ("kind", "mode"),
    [
        pytest.param(kind, mode, marks=() if mode is CommitMode.WORKER or kind in PROGRAMS else pytest.mark.nightly)
        for kind in FIRST_CLIENTS
        for mode in (CommitMode.ASYNC, CommitMode.WORKER)
    ],
)
def test_commits_by_hand_reach_the_end(
    kind: ClientKind, mode: CommitMode, kafka: KafkaCluster, make_topic: MakeTopic, unique: Unique
) -> None:
    topic, group = make_topic(2), unique("group")
    ends = ends_of(produce_all(kafka.bootstrap, topic, 2, LINES))
    with ConsumerFleet(kind, kafka.bootstrap, group, [topic], 1, commit=mode, hold_s=1.5, static=True) as fleet:
        fleet.wait_read_to(ends)
        assert eventually(lambda: committed(kafka, group) == ends, 90)
        assert {member.group_instance_id for member in members(kafka, group)} == {"c0"}

        # kafka-python tells of a commit only when the application polls again
        fleet.wait_for(lambda: any(event.kind is EventKind.COMMIT for event in fleet.events()), 20, "a commit told")
        if mode is CommitMode.WORKER:
            commits = [event.t for event in fleet.events() if event.kind is EventKind.COMMIT]
            assert min(commits) >= fleet.records()[0].t + 1.5


@pytest.mark.parametrize("kind", sorted(TRANSACTIONAL))
def test_commits_by_transactions_show_when_they_end(
    kind: ClientKind, kafka: KafkaCluster, make_topic: MakeTopic, unique: Unique
) -> None:
    topic, group = make_topic(2), unique("group")
    ends = ends_of(produce_all(kafka.bootstrap, topic, 2, LINES))
    with (
        closing(KafkaClient(Connection(kafka.bootstrap))) as client,
        ConsumerFleet(kind, kafka.bootstrap, group, [topic], 1, commit=CommitMode.TRANSACTIONS, hold_s=3.0) as fleet,
    ):
        assert eventually(lambda: client.pending(group, [Place(*p) for p in ends]), 60)
        fleet.wait_read_to(ends)
        assert eventually(lambda: committed(kafka, group) == ends, 60)


def test_without_commits_the_next_one_reads_everything_again(
    kafka: KafkaCluster, make_topic: MakeTopic, unique: Unique
) -> None:
    topic, group = make_topic(2), unique("group")
    ends = ends_of(produce_all(kafka.bootstrap, topic, 2, LINES))
    for _ in range(2):
        with ConsumerFleet("librdkafka", kafka.bootstrap, group, [topic], 1, commit="none") as fleet:
            fleet.wait_read_to(ends)
            assert len(fleet.records()) == len(LINES)
    assert committed(kafka, group) == {}


def test_lines_keep_their_timestamps_and_keys(kafka: KafkaCluster, make_topic: MakeTopic, unique: Unique) -> None:
    topic = make_topic(1)
    produce_all(kafka.bootstrap, topic, 1, [Line(b"old", timestamp_ms=1_000_000_000_000, key=b"k")])

    consumer = confluent_kafka.Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": unique("reader")})
    consumer.assign([TopicPartition(topic, 0, 0)])
    (message,) = consumer.consume(1, 30)
    consumer.close()

    assert (message.key(), message.value()) == (b"k", b"old")
    assert message.timestamp() == (confluent_kafka.TIMESTAMP_CREATE_TIME, 1_000_000_000_000)


def test_a_reset_between_two_fleets_is_seen_by_the_checker(
    kafka: KafkaCluster, make_topic: MakeTopic, unique: Unique
) -> None:
    topic, group = make_topic(2), unique("group")
    p0, _ = partitions_of(topic, 2)
    acked = produce_all(kafka.bootstrap, topic, 2, LINES)
    with ConsumerFleet("librdkafka", kafka.bootstrap, group, [topic], 1) as before:
        before.wait_read_to(ends_of(acked))
    started = time.time()
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    target = ConsumerGroupTopicPartitions(group, [TopicPartition(*p0, 150)])
    for future in admin.alter_consumer_group_offsets([target]).values():
        assert all(p.error is None for p in future.result(30).topic_partitions)

    with ConsumerFleet("librdkafka", kafka.bootstrap, group, [topic], 1) as after:
        after.wait_flowing([p0], since=started)
        after.wait_for(lambda: len(after.records()) >= 50, 30, "50 records")

    records = before.records() + after.records()
    verdict = check(records, acked, [ResetRun(started, None, {p0: 150})])
    (reset,) = verdict.resets
    assert (reset.outcome, reset.first_after_reset) == (Outcome.JUMPED, 150)
    assert verdict.clean, verdict.complaints()
    assert not check(records, acked, [ResetRun(started, None, {p0: 149})]).ok


def test_a_member_that_cannot_start_is_told_at_once(kafka: KafkaCluster, unique: Unique) -> None:
    config = {"no.such.property": "x"}
    with ConsumerFleet("librdkafka", kafka.bootstrap, unique(), ["t"], 1, config=config) as fleet:
        began = time.monotonic()
        with pytest.raises(FleetError, match=r"no\.such\.property"):
            fleet.wait_assigned([("t", 0)], 60)
        assert time.monotonic() - began < 30


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param(kind, marks=() if kind in PROGRAMS else pytest.mark.nightly)
        for kind in HERE
        if kind is not ClientKind.KAFKA_GO
    ],
)
def test_consumers_do_not_outlive_the_process_that_started_them(
    kind: ClientKind, kafka: KafkaCluster, make_topic: MakeTopic, unique: Unique, tmp_path: Path
) -> None:
    script = tmp_path / "parent.py"
    script.write_text(
        "import sys, time\n"
        "from support.clients import ConsumerFleet\n"
        "kind, bootstrap, group, topic = sys.argv[1:]\n"
        "with ConsumerFleet(kind, bootstrap, group, [topic], 1) as fleet:\n"
        "    fleet.wait_assigned([(topic, 0)])\n"
        "    print(*fleet.pids(), flush=True)\n"
        "    time.sleep(600)\n"
    )
    command = [sys.executable, str(script), kind, kafka.bootstrap, unique("group"), make_topic(1)]
    with subprocess.Popen(
        command, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}, stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        (pid,) = map(int, parent.stdout.readline().split())
        parent.send_signal(signal.SIGKILL)
    assert eventually(lambda: not _runs(pid), 90)


def _runs(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"
