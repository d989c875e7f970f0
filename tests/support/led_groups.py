"""Groups of unmodified consumers whose partitions are withheld by leading, while records flow."""

from __future__ import annotations

import contextlib
import itertools
import threading
import time
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from devstack.processes import eventually
from support.clients import ConsumerFleet
from support.deliveries import Delivery
from tidegate.clock import SystemClock
from tidegate.cluster import Kafka
from tidegate.kafka.connection import Connection
from tidegate.kafka.model import Group, GroupState, Seat, TopicPartition
from tidegate.kafka_client.client import KafkaClient
from tidegate.leading.pacing import Pacing
from tidegate.leading.session import LeadingSession

Partitions = frozenset[TopicPartition]


@dataclass(frozen=True, slots=True)
class Running:
    """A session in its thread."""

    session: LeadingSession
    thread: threading.Thread

    def wait_withheld(self, partitions: Partitions, timeout_s: float = 60) -> float:
        """When they were all nobody's (epoch seconds)."""
        assert eventually(lambda: self.session.report.withheld == partitions, timeout_s), self.session.report
        return time.time()

    def end(self) -> None:
        self.session.drop("test")
        self.thread.join(30)
        assert self.session.report.ended

    def die(self) -> Seat:
        """As if its process had ended without a word; its seat."""
        self.session.stop()
        self.thread.join(30)
        seat = self.session.report.seat
        assert seat is not None
        return seat


@contextlib.contextmanager
def leading(
    bootstrap: str,
    group: str,
    partitions: Partitions,
    *,
    session_s: float = 20.0,
    known: Seat | None = None,
) -> Iterator[Running]:
    client = KafkaClient(Connection(bootstrap))
    clock, pacing = SystemClock(), Pacing(session_s=session_s)
    session = LeadingSession(client, group, clock, pacing, lambda: True, known=known)
    session.want("test", partitions)
    running = Running(session, threading.Thread(target=session.run, daemon=True))
    running.thread.start()
    try:
        yield running
    finally:
        session.stop()
        running.thread.join(30)
        client.close()


def group_now(kafka: Kafka, group: str) -> Group:
    return kafka.groups([group])[group]


def is_whole(group: Group, partitions: Collection[TopicPartition], members: int) -> bool:
    """Stable with so many members, who own everything."""
    return group.state is GroupState.STABLE and len(group.members) == members and group.assigned == set(partitions)


def read_of(fleet: ConsumerFleet, partition: TopicPartition, begin: float, end: float) -> list[Delivery]:
    """What was delivered of a partition between two times (epoch seconds)."""
    place = (partition.topic, partition.partition)
    return [d for d in fleet.records() if (d.topic, d.partition) == place and begin < d.t < end]


def longest_gap_s(fleet: ConsumerFleet, partitions: Collection[TopicPartition], begin: float, end: float) -> float:
    """For how long at most one of the partitions stood still between two times."""
    longest = 0.0
    for partition in partitions:
        times = [begin, *(d.t for d in read_of(fleet, partition, begin, end)), end]
        longest = max(longest, *(later - earlier for earlier, later in itertools.pairwise(times)))
    return longest
