"""A broker with a topic of order-like JSON records, and the three ways to look through all of them."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import chain
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from devstack import KafkaCluster, script_command, spark_jars
from tidegate.clock import SystemClock
from tidegate.find.windows import Pace
from tidegate.jobs.options import TASKS_A_CORE
from tidegate.kafka.connection import Connection
from tidegate.reset.model.request import RunRequest, Selection
from tidegate.reset.model.targets import ToRecord
from tidegate.spark.find import Found, find_records
from tidegate.spark.session import local_session

PERFORMANCE = "org.apache.kafka.tools.ConsumerPerformance"
TIMEOUT_S = 1800
GROUP = "bench"
"""Whose offsets a search is for; it has read nothing of any topic yet."""
IDLE_S = 8.0
"""After it, consumers that nobody uses are closed: Spark's cache keeps them for 5 s, and looks every 2 s."""
FIRST = datetime(2026, 11, 20, tzinfo=UTC)
"""Time of the first record; one a millisecond follows, over all partitions."""

_VALUES = tuple(
    (
        f'{{"order":{1_000_000 + n},"status":{200 if n % 49 else 404},"customer":"c-{n * 7919 % 99991:05d}",'
        f'"items":{n % 9},"total":{n * 37 % 100_000 / 100:.2f},"currency":"EUR","note":"{"packed and sent " * 2}"}}'
    ).encode()
    for n in range(5000)
)


@dataclass(frozen=True, slots=True)
class Stage:
    """``marked``: the offset, and partition, of the one record that says so, ``None`` for no such record."""

    bootstrap: str
    topic: str
    records: int
    marked: tuple[int, int] | None = None

    def at(self, share: float) -> datetime:
        """The time before which this share of the records lies."""
        return FIRST + timedelta(milliseconds=int(self.records * share))


@contextmanager
def broker() -> Iterator[str]:
    with KafkaCluster.start(1, {"log.segment.bytes": str(256 << 20)}) as cluster:
        yield cluster.bootstrap


def fill(
    bootstrap: str,
    topic: str,
    records: int,
    partitions: int,
    *,
    mark: int | None = None,
    again: int = 0,
    values: Sequence[bytes] = _VALUES,
) -> Stage:
    """``mark``: the number of the record that is to be found. ``again``: so many of the first ones come twice.
    ``values``: what the records hold, one after the other and then from the first on."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(30)
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "linger.ms": 50,
            "batch.size": 1 << 20,
            "queue.buffering.max.messages": 2_000_000,
            "queue.buffering.max.kbytes": 512 << 10,
        }
    )
    began, first_ms = time.monotonic(), int(FIRST.timestamp() * 1000)
    marked = None
    for n in chain(range(again), range(records)):
        value = values[n % len(values)]
        if n == mark:
            value, marked = b'{"order":4711,"status":500,"note":"OutOfStock"}', (n % partitions, n // partitions)
        while True:
            try:
                producer.produce(topic, value, partition=n % partitions, timestamp=first_ms + n)
                break
            except BufferError:
                producer.poll(0.05)
        if n % 10_000 == 0:
            producer.poll(0)
    if producer.flush(TIMEOUT_S):
        raise SystemExit("not all records were produced")
    starts = ConsumerGroupTopicPartitions(GROUP, [TopicPartition(topic, p, 0) for p in range(partitions)])
    admin.alter_consumer_group_offsets([starts])[GROUP].result(30)
    print(f"{topic}: {records:,} records in {time.monotonic() - began:.0f} s", flush=True)
    return Stage(bootstrap, topic, records, marked)


# --- ways to look through all -----------------------------------------------------------------------------------------


def session(cores: int) -> Any:
    """As the executors of a job that reads records."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    return local_session(f"local[{TASKS_A_CORE * cores}]", jars=spark_jars(), reads_records=True)


def search(spark: Any, stage: Stage, target: ToRecord, pace: Pace | None = None) -> tuple[float, Found]:
    """Seconds, and what was found."""
    request = RunRequest("bench/r", "r", GROUP, Connection(stage.bootstrap), (Selection(stage.topic),), target)
    began = time.monotonic()
    found = find_records(spark, request, target, lambda _: None, SystemClock(), pace=pace)
    return time.monotonic() - began, found


def consumer_performance(stage: Stage) -> float:
    """Records/s of the whole run as the tool itself counts: without its JVM's start, with its rebalance.

    Started as its own script does.
    """
    command = [*script_command(PERFORMANCE, heap="512M"), "--bootstrap-server", stage.bootstrap, "--topic", stage.topic]
    command += ["--messages", str(stage.records), "--timeout", "60000"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=True)
    head, values = (line.split(", ") for line in done.stdout.strip().splitlines()[-2:])
    told = dict(zip(head, values, strict=True))
    if float(told["data.consumed.in.nMsg"]) < stage.records:
        raise SystemExit(f"ConsumerPerformance read less than all: {done.stdout}")
    return float(told["nMsg.sec"])


def librdkafka_grep(stage: Stage, partitions: int, needle: bytes) -> float:
    """Records/s of a loop over librdkafka's batches that looks for bytes."""
    consumer = Consumer(
        {
            "bootstrap.servers": stage.bootstrap,
            "group.id": "grep",
            "enable.auto.commit": False,
            "queued.max.messages.kbytes": 256 << 10,
            "fetch.message.max.bytes": 8 << 20,
        }
    )
    began, seen, hits = time.monotonic(), 0, 0
    try:
        consumer.assign([TopicPartition(stage.topic, p, 0) for p in range(partitions)])
        while seen < stage.records:
            for message in consumer.consume(10_000, 10):
                if message.error() is None:
                    seen += 1
                    hits += needle in message.value()
    finally:
        consumer.close()
    if hits:
        raise SystemExit(f"{hits} records have {needle!r}, and none was written")
    return stage.records / (time.monotonic() - began)


def peak_mib(spark: Any) -> int:
    """The most memory that the driver's JVM, which holds the executor too, has had so far."""
    status = Path(f"/proc/{spark.sparkContext._gateway.proc.pid}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) // 1024


def live_mib(spark: Any) -> int:
    """What that JVM needs between searches: its heap once it is swept, and the buffers outside of it."""
    time.sleep(IDLE_S)
    java: Any = spark.sparkContext._jvm.java.lang
    java.System.gc()
    factory = java.management.ManagementFactory
    outside = factory.getPlatformMXBeans(java.Class.forName("java.lang.management.BufferPoolMXBean"))
    used = factory.getMemoryMXBean().getHeapMemoryUsage().getUsed() + sum(pool.getMemoryUsed() for pool in outside)
    return int(used) >> 20
