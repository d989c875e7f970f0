"""What is told of groups and logs that no client library's consumer makes."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from typing import Any, Final

import pytest
from confluent_kafka import Producer
from kafka.protocol.consumer import SyncGroupRequest

from devstack import KafkaCluster
from support.stack_fixtures import MakeTopic, Unique
from tidegate.kafka.connection import Connection
from tidegate.kafka.errors import Refused
from tidegate.kafka.model import GroupState, GroupType, TopicPartition
from tidegate.kafka_client.client import KafkaClient
from tidegate.kafka_client.client_pool import ClientPool
from tidegate.kafka_client.codes import MEMBER_ID_REQUIRED, check
from tidegate.kafka_client.group_requests import join_request
from tidegate.kafka_client.wire import Wire

SESSION_MS: Final = 30_000
HOSTILE: Final = {
    "empty": b"",
    "one byte": b"\x00",
    "two thousand million topics": b"\x00\x00\x7f\xff\xff\xff",
    "two thousand million partitions": b"\x00\x00\x00\x00\x00\x01\x00\x01t\x7f\xff\xff\xff",
    "not UTF-8": b"\x00\x00\x00\x00\x00\x01\x00\x01\xff\x00\x00\x00\x00\xff\xff\xff\xff",
    "no end": b"\xff" * 5000,
}


@pytest.fixture
def client(kafka: KafkaCluster) -> Iterator[KafkaClient]:
    with closing(KafkaClient(Connection(kafka.bootstrap))) as client:
        yield client


@pytest.fixture
def wire(kafka: KafkaCluster) -> Iterator[Wire]:
    with closing(Wire(Connection(kafka.bootstrap))) as wire:
        yield wire


def lead(wire: Wire, group_id: str, assignment: bytes, *, protocol_type: str = "consumer") -> str:
    """Join as the only member, which makes the assignment of all members; the member id."""

    def join(member_id: str) -> Any:
        def request() -> Any:
            asked = join_request(group_id, member_id, ["range"], SESSION_MS)
            asked.protocol_type = protocol_type
            return asked

        [answer] = wire.exchange(group_id, request, what="join")
        return answer

    named = join("")
    assert named.error_code == MEMBER_ID_REQUIRED
    joined = join(named.member_id)
    check(joined.error_code, "join")
    row = SyncGroupRequest.SyncGroupRequestAssignment(member_id=joined.member_id, assignment=assignment)

    def request() -> Any:
        return SyncGroupRequest(
            group_id=group_id,
            generation_id=joined.generation_id,
            member_id=joined.member_id,
            assignments=[row],
            max_version=3,
        )

    [synced] = wire.exchange(group_id, request, what="sync")
    check(synced.error_code, "sync")
    return str(joined.member_id)


@pytest.mark.parametrize("assignment", HOSTILE.values(), ids=HOSTILE.keys())
def test_an_assignment_that_cannot_be_read_hides_no_group(
    client: KafkaClient, wire: Wire, unique: Unique, assignment: bytes
) -> None:
    group_id = unique()
    member_id = lead(wire, group_id, assignment)

    group = client.groups([group_id])[group_id]

    assert (group.type, group.state, group.assignor) == (GroupType.CLASSIC, GroupState.STABLE, "range")
    assert [(m.member_id, m.assignment) for m in group.members] == [(member_id, frozenset())]


def test_a_group_of_others_than_consumers_is_refused(client: KafkaClient, wire: Wire, unique: Unique) -> None:
    group_id = unique()
    lead(wire, group_id, b"anything", protocol_type="connect")

    with pytest.raises(Refused, match=f"describe group {group_id}: .*connect"):
        client.groups([group_id])
    assert group_id not in client.group_ids()


def test_readers_of_committed_records_see_the_log_end_before_an_open_transaction(
    kafka: KafkaCluster, client: KafkaClient, make_topic: MakeTopic, unique: Unique
) -> None:
    partition = TopicPartition(make_topic(1), 0)
    plain = Producer({"bootstrap.servers": kafka.bootstrap})
    plain.produce(partition.topic, b"before")
    assert plain.flush(20) == 0
    open_one = Producer({"bootstrap.servers": kafka.bootstrap, "transactional.id": unique()})
    open_one.init_transactions(20)
    open_one.begin_transaction()
    open_one.produce(partition.topic, b"within")
    assert open_one.flush(20) == 0

    assert client.log_bounds([partition])[partition].latest == 2
    assert client.last_stable_offsets([partition]) == {partition: 1}

    open_one.commit_transaction(20)
    deadline = time.monotonic() + 20
    while client.last_stable_offsets([partition]) != {partition: 3}:  # with the transaction's marker
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_clients_of_one_pool_hold_joins_at_once_on_shared_connections(kafka: KafkaCluster, unique: Unique) -> None:
    """A join blocks the connection it is made on, so that is each client's own."""
    groups = [unique("group"), unique("group")]
    with contextlib.ExitStack() as stack:
        for group_id in groups:
            lead(stack.enter_context(closing(Wire(Connection(kafka.bootstrap)))), group_id, b"")
        pool = ClientPool()
        stack.callback(pool.close)
        clients = [pool.open(Connection(kafka.bootstrap)) for _ in groups]
        for client in clients:
            stack.callback(client.close)
        threads = threading.active_count()
        for client, group_id in zip(clients, groups, strict=True):
            hold = stack.enter_context(client.membership.hold(group_id))
            assert client.groups(groups)[group_id].state is GroupState.PREPARING_REBALANCE
            assert not hold.lapsed
        assert threading.active_count() - threads <= 3  # of the shared connections, and of each joiner
        clients[0].close()
        assert clients[1].groups(groups)[groups[1]].state is GroupState.PREPARING_REBALANCE


def test_who_waits_for_records_of_the_control_topic_keeps_nobody_else_waiting(
    kafka: KafkaCluster, unique: Unique
) -> None:
    connection = Connection(kafka.bootstrap, control_topic=unique("control"))
    with closing(KafkaClient(connection)) as client, closing(KafkaClient(connection)) as writer:
        client.control.ensure()
        over = threading.Event()

        def wait() -> None:
            while not over.is_set():
                client.control.read(wait_s=30.0)

        waiting = [threading.Thread(target=wait, daemon=True) for _ in range(5)]
        for thread in waiting:
            thread.start()
        for _ in range(3):
            assert client.control.read() is not None
        over.set()
        writer.control.write_clock()
        for thread in waiting:
            thread.join(15)
        assert not any(thread.is_alive() for thread in waiting)
