"""Somebody who may write one tenant's ack topic writes there without end: it costs memory within a bound, it delays
that tenant's pauses until it is read, and no other tenant's.

On a real broker; 10,000 records in continuous integration, a million by night. ``build/flood.txt`` has the figures.
"""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from confluent_kafka import Producer

from devstack import KafkaCluster
from support.ack_flood import AFTER
from support.fuzzing.fuzzer import resident
from support.obeyed import acked
from support.stack_fixtures import Unique
from tidegate.control.acks import MOST_BYTES
from tidegate.control.codec import encode_key, encode_value
from tidegate.control.gates import Gates
from tidegate.control.records import Ack, AckKey, Hold, HoldKey
from tidegate.kafka.connection import Connection
from tidegate.kafka.errors import Unavailable
from tidegate.kafka.model import TopicPartition
from tidegate.kafka_client.client import KafkaClient

MIB = 1024 * 1024
PROJECT = Path(__file__).resolve().parents[2]
QUEUED = 64 * MIB
"""What librdkafka fetches ahead (``queued.max.messages.kbytes``)."""
SLACK = 64 * MIB
"""Of both allocators, and of the test itself."""
ORDERS = TopicPartition("orders", 0)
DEADLINE_S = 600.0


class Tenant:
    """A connection with an ack topic of its own, and the one consumer that writes there what is true."""

    def __init__(self, bootstrap: str, control_topic: str, ack_topic: str, group: str) -> None:
        self.ack_topic, self.group = ack_topic, group
        self.client = KafkaClient(Connection(bootstrap, control_topic=control_topic, ack_topic=ack_topic))
        self._producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0})
        self.key = HoldKey(group, "orders", 0, "pause/c/1")
        assert self.client.control.ensure() == ()

    def hold(self) -> int:
        return self.client.control.hold({self.key: Hold()})[self.key]

    def ack(self, epoch: int, offset: int, group: str | None = None) -> Ack:
        said = Ack(epoch, offset, "m")
        self._producer.produce(self.ack_topic, encode_value(said), encode_key(AckKey(group or self.group, "orders", 0)))
        assert self._producer.flush(60) == 0
        return said

    def pauses(self, offset: int) -> float:
        """One pause from its hold to its ack's being seen, and its release; in seconds."""
        began = time.monotonic()
        said = self.ack(self.hold(), offset)
        while acked(self.client.control.read([self.group], wait_s=0.5), self.group, ORDERS) != said:
            assert time.monotonic() - began < DEADLINE_S
        self.client.control.release([self.key])
        return time.monotonic() - began

    def close(self) -> None:
        self.client.control.close()
        self.client.close()


class Reading(threading.Thread):
    """As the operator looks at a connection: over and over, whether or not the last look came to its end."""

    def __init__(self, tenant: Tenant, groups: list[str]) -> None:
        super().__init__(daemon=True)
        self._tenant, self._groups = tenant, groups
        self.broken: BaseException | None = None
        self.cut_short = 0
        self.ends = threading.Event()

    def run(self) -> None:
        while not self.ends.is_set():
            try:
                self._tenant.client.control.read(self._groups)
            except Unavailable:
                self.cut_short += 1
            except BaseException as error:
                self.broken = error
                raise


@pytest.fixture
def tenants(kafka: KafkaCluster, unique: Unique) -> Iterator[tuple[Tenant, Tenant]]:
    """The one that is flooded, and another one."""
    control = f"__{unique('flood')}"
    with ExitStack() as closing:
        flooded, other = (Tenant(kafka.bootstrap, control, f"{control}_{n}", g) for n, g in ((1, AFTER), (2, "other")))
        closing.callback(flooded.close)
        closing.callback(other.close)
        yield flooded, other


@pytest.mark.parametrize(
    "records", [10_000, pytest.param(int(os.environ.get("TIDEGATE_FLOOD", "1000000")), marks=pytest.mark.nightly)]
)
def test_a_flood_of_acks_is_bounded_and_leaves_others_alone(
    records: int, kafka: KafkaCluster, tenants: tuple[Tenant, Tenant]
) -> None:
    flooded, other = tenants
    epoch = flooded.hold()
    before = flooded.ack(epoch, 7, "bystander")
    usual_s = max(other.pauses(number) for number in range(3))
    flooded.client.control.read([AFTER, "bystander"])
    gc.collect()
    began, at_first = time.monotonic(), resident()
    most, paused_s = at_first, []
    reading = Reading(flooded, [AFTER, "bystander"])
    command = [sys.executable, "-m", "support.ack_flood", kafka.bootstrap, flooded.ack_topic, str(records), str(epoch)]
    with subprocess.Popen(command, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}) as writer:
        reading.start()
        while writer.poll() is None or not paused_s:
            paused_s.append(other.pauses(len(paused_s)))
            most = max(most, resident())
    assert writer.returncode == 0
    said = flooded.ack(epoch, 42)
    written_s = time.monotonic() - began
    while (gates := _read(flooded)) is None or acked(gates, AFTER, ORDERS) != said:
        paused_s.append(other.pauses(len(paused_s)))
        most = max(most, resident())
        assert reading.broken is None
        assert time.monotonic() - began < DEADLINE_S, f"{reading.cut_short} looks were cut short"
    read_s = time.monotonic() - began
    reading.ends.set()
    reading.join(60)

    figures = (
        f"{records:,} hostile acks, written in {written_s:.1f} s, read to their end after {read_s:.1f} s "
        f"({reading.cut_short} looks cut short); memory grew by {(most - at_first) / MIB:.0f} MiB at most; meanwhile "
        f"{len(paused_s)} pauses of another tenant took {sorted(paused_s)[len(paused_s) // 2]:.2f} s (median), "
        f"{max(paused_s):.2f} s (longest); before {usual_s:.2f} s (longest of 3)"
    )
    (PROJECT / "build").mkdir(exist_ok=True)
    (PROJECT / "build" / "flood.txt").write_text(figures + "\n")
    print(figures)
    assert gates.acks[AckKey("bystander", "orders", 0)] == (before,), (
        "a group that the flood does not name keeps its acks"
    )
    assert most - at_first < MOST_BYTES + QUEUED + SLACK, figures
    assert flooded.client.control.unreadable >= records // 4


def _read(tenant: Tenant) -> Gates | None:
    """``None``: not to the end."""
    try:
        return tenant.client.control.read([AFTER, "bystander"])
    except Unavailable:
        return None
