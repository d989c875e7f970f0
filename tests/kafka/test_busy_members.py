"""A member on a busy machine, which asks late what it is assigned."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any, Final

from confluent_kafka import Producer

from devstack import KafkaCluster
from support.operator_process import until
from support.stack_fixtures import MakeTopic, Unique
from tidegate.clock import SystemClock
from tidegate.kafka.connection import Connection
from tidegate.kafka.model import TopicPartition
from tidegate.kafka_client.client import KafkaClient
from tidegate.reset.model.request import ApplySettings, RunRequest, Selection
from tidegate.reset.model.targets import FromFile, PartitionOffset
from tidegate.reset.runs import job
from tidegate.reset.stores import MemoryRunStore
from tidegate.resources.reset import ResetPhase, Way

LATE_S: Final = 0.7
"""More than a run that does not wait for it takes until the next rebalance."""
PATIENCE_S: Final = 60.0
AT_FIRST: Final = 300
TARGET: Final = 100


class Member:
    """kafka-python in a thread, at its defaults but for a quicker auto-commit. ``offsets``: as delivered."""

    def __init__(self, bootstrap: str, topic: str, group: str, stopping: threading.Event) -> None:
        from kafka import KafkaConsumer

        self.offsets: list[int] = []
        self._stopping = stopping
        self._consumer = KafkaConsumer(
            topic,
            bootstrap_servers=bootstrap,
            group_id=group,
            auto_offset_reset="earliest",
            auto_commit_interval_ms=500,
        )
        coordinator: Any = self._consumer._coordinator
        joined = coordinator._process_join_group_response

        def joined_late(response: Any, *arguments: Any) -> None:
            joined(response, *arguments)
            if response.leader != response.member_id:  # somebody else says who owns what
                time.sleep(LATE_S)

        coordinator._process_join_group_response = joined_late
        self._thread = threading.Thread(target=self._read, name="member", daemon=True)
        self._thread.start()

    def _read(self) -> None:
        with closing(self._consumer):
            while not self._stopping.is_set():
                for records in self._consumer.poll(timeout_ms=1000).values():
                    self.offsets += [record.offset for record in records]

    def join(self) -> None:
        self._thread.join(PATIENCE_S)


@contextmanager
def produced(bootstrap: str, topic: str, stopping: threading.Event) -> Iterator[None]:
    """Some records at once, and then one after the other."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0})

    def produce(count: int) -> None:
        for _ in range(count):
            producer.produce(topic, b"x", partition=0)
        assert producer.flush(PATIENCE_S) == 0

    def go_on() -> None:
        while not stopping.wait(0.05):
            produce(1)

    produce(AT_FIRST)
    thread = threading.Thread(target=go_on, name="producer", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stopping.set()
        thread.join(PATIENCE_S)


def test_a_lone_member_that_is_slow_to_ask_is_reset(kafka: KafkaCluster, make_topic: MakeTopic, unique: Unique) -> None:
    """kafka-python keeps the position of what it is given again, unless it was without it in between."""
    topic, group, stopping = make_topic(1), unique("group"), threading.Event()
    with produced(kafka.bootstrap, topic, stopping), closing(KafkaClient(Connection(kafka.bootstrap))) as client:
        member = Member(kafka.bootstrap, topic, group, stopping)
        partition = TopicPartition(topic, 0)
        until(lambda: client.committed(group).get(partition, 0) >= AT_FIRST, "it has read what was there")
        request = RunRequest(
            unique("run"),
            "1",
            group,
            Connection(kafka.bootstrap),
            (Selection(topic, frozenset({0})),),
            FromFile((PartitionOffset(topic, 0, TARGET),), "test"),
            settings=ApplySettings(),
        )
        result = job.execute(MemoryRunStore(request), client, SystemClock())
        assert result is not None
        assert (result.phase, result.way) == (ResetPhase.SUCCEEDED, Way.LEADING), result
        until(lambda: member.offsets.count(TARGET) == 2, "it reads from the target on")
        stopping.set()
        member.join()
    again = member.offsets.index(TARGET, TARGET + 1)
    assert member.offsets[again:] == list(range(TARGET, TARGET + len(member.offsets) - again))
