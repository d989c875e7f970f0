"""A coordinator falls silent or dies in the middle of a transaction: each call ends in its time, nothing by halves."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from contextlib import closing

import pytest
from kafka.protocol.metadata import CoordinatorType

from devstack import KafkaCluster
from support.stack_fixtures import MakeTopic, Unique
from tidegate.kafka.connection import Connection
from tidegate.kafka.errors import KafkaFailure, OutcomeUnknown, Unavailable
from tidegate.kafka.model import TopicPartition
from tidegate.kafka_client.client import KafkaClient
from tidegate.kafka_client.wire import Wire
from tidegate.kafka_client.writer import KafkaOffsetWriter, transactional_id

CALL_S = KafkaOffsetWriter._STEP_TIMEOUT_S + Wire.OVERTIME_S
ABORT_S = KafkaOffsetWriter._ABORT_TIMEOUT_S + Wire.OVERTIME_S
SCHEDULING_S = 3.0
"""What a busy machine may add."""
AWAY_S = 60.0


def freeze(cluster: KafkaCluster, broker: int) -> None:
    os.kill(cluster.pid(broker), signal.SIGSTOP)


def thaw(cluster: KafkaCluster, broker: int) -> None:
    os.kill(cluster.pid(broker), signal.SIGCONT)
    cluster.wait_ready()


FAULTS = {"frozen": (freeze, thaw), "killed": (KafkaCluster.kill, KafkaCluster.restart)}


def in_time(call: Callable[[], None]) -> KafkaFailure | None:
    begun = time.monotonic()
    try:
        call()
    except (Unavailable, OutcomeUnknown) as failure:
        return failure
    finally:
        assert time.monotonic() - begun < CALL_S + SCHEDULING_S
    return None


def until_done(call: Callable[[], bool | None]) -> None:
    """``call``: says ``False`` where it is to be tried again."""
    deadline = time.monotonic() + AWAY_S
    while True:
        try:
            if call() is not False:
                return
        except Unavailable:
            if time.monotonic() > deadline:
                raise
        assert time.monotonic() < deadline
        time.sleep(0.1)


@pytest.mark.parametrize("at_commit", [False, True], ids=["send", "commit"])
@pytest.mark.parametrize("fault", FAULTS)
def test_a_coordinator_that_goes_leaves_all_or_nothing(
    fault: str, at_commit: bool, kafka3: KafkaCluster, make_topic3: MakeTopic, unique: Unique
) -> None:
    begin, end = FAULTS[fault]
    partition = TopicPartition(make_topic3(1, replication_factor=3), 0)
    group, other = unique("group"), unique("other")
    with (
        closing(KafkaClient(Connection(kafka3.bootstrap))) as kafka,
        closing(Wire(Connection(kafka3.bootstrap))) as wire,
    ):

        def decided() -> bool:
            return not any(kafka.pending(name, [partition]) for name in (group, other))

        writer = kafka.writer(group, transaction_timeout_s=5)
        writer.fence()
        if at_commit:
            id_ = transactional_id(group)
            broker = wire._find([id_], wire.deadline(), of=CoordinatorType.TRANSACTION)[id_]
        else:
            broker, _, _ = wire.coordinator(other)
        try:
            with writer.transaction() as transaction:
                transaction.send(group, {partition: 1})
                if at_commit:
                    transaction.send(other, {partition: 1})
                begin(kafka3, broker)
                failure = None if at_commit else in_time(lambda: transaction.send(other, {partition: 1}))
                failure = failure or in_time(transaction.commit)
                begun = time.monotonic()
            assert time.monotonic() - begun < ABORT_S + SCHEDULING_S
        finally:
            end(kafka3, broker)

        until_done(writer.fence)
        until_done(decided)
        found = kafka.committed_of([group, other])
        nothing, everything = ({group: told, other: told} for told in ({}, {partition: 1}))
        match failure:
            case None:
                assert found == everything
            case OutcomeUnknown():
                assert found in (nothing, everything)
            case _:
                assert found == nothing, failure

        with writer.transaction() as transaction:
            transaction.send(group, {partition: 2})
            transaction.commit()
        until_done(decided)
        assert kafka.committed(group) == {partition: 2}
