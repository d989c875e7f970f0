"""How long does it take to carry a group's place to another cluster, where millions of records have to be compared?

Two brokers, the same records on both at other offsets, the group in the middle, windows that hold everything. Ours: the
survey, both windows read, hashed and joined in Spark, in a session that has compared a small topic before. Anchor: one
program that reads both topics by librdkafka and keeps the identities of one in a dictionary. In turns, on the same
brokers; each must find the place.
"""

from __future__ import annotations

import argparse
import resource
import time
from datetime import timedelta
from multiprocessing import get_context
from typing import Any

from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient

from perf.record_stage import Stage, broker, fill, peak_mib, session
from perf.report import Report, Row
from tidegate.clock import SystemClock
from tidegate.kafka.connection import Connection
from tidegate.reset.model.request import RunRequest, Selection
from tidegate.reset.model.targets import FromCluster
from tidegate.spark.translation import find_place

MATCH = ("timestamp", "key", "value")
SET_UP_S = 60
AGAIN = 1000
"""Records that the copy begins with twice, so that its offsets are others."""


def main(arguments: list[str]) -> None:
    """``--records N --partitions N --cores N --runs N``; records are those of each side."""
    parser = argparse.ArgumentParser("translate", description=__doc__)
    parser.add_argument("--records", type=int, default=2_000_000)
    parser.add_argument("--partitions", type=int, default=4)
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args(arguments)
    rows = []
    with broker() as here, broker() as there:
        spark = session(options.cores)
        try:
            for records in (options.records // 10, options.records):
                topic, ours, anchor, anchor_mib = f"orders-{records}", [], [], 0
                stages = (
                    fill(here, topic, records, options.partitions, again=AGAIN),
                    fill(there, topic, records, options.partitions),
                )
                place = records // options.partitions // 2
                commit(there, topic, options.partitions, place)
                expected = dict.fromkeys(range(options.partitions), place + AGAIN // options.partitions)
                translate(spark, stages, expected)
                for run in range(options.runs):
                    ours.append(translate(spark, stages, expected))
                    seconds, mib = by_dictionary(stages, options.partitions, place, expected)
                    anchor.append(seconds)
                    anchor_mib = max(anchor_mib, mib)
                    print(f"run {run + 1}, {records:,} records: {ours[-1]:.1f} s, {seconds:.1f} s", flush=True)
                extra = {"JVM's peak (MiB)": peak_mib(spark), "dictionary's peak (MiB)": anchor_mib}
                rows.append(Row(f"2 x {records:,} records", tuple(ours), tuple(anchor), extra))
        finally:
            spark.stop()
    Report("translate", "s", "a dictionary over librdkafka", rows).publish()


def commit(bootstrap: str, topic: str, partitions: int, offset: int) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    offsets = ConsumerGroupTopicPartitions("bench", [TopicPartition(topic, p, offset) for p in range(partitions)])
    deadline = time.monotonic() + SET_UP_S
    while True:  # a broker that is just making its offsets topic says so for each partition
        [future] = admin.alter_consumer_group_offsets([offsets]).values()
        errors = [p.error for p in future.result(30).topic_partitions if p.error is not None]
        if not errors:
            return
        if time.monotonic() > deadline:
            raise SystemExit(f"no offsets could be committed for {SET_UP_S} s: {errors[0]}")
        time.sleep(0.1)


def translate(spark: Any, stages: tuple[Stage, Stage], expected: dict[int, int]) -> float:
    """Seconds."""
    here, there = stages
    target = FromCluster(Connection(there.bootstrap), "bench", MATCH, timedelta(days=1))
    request = RunRequest("b/r", "r", "bench", Connection(here.bootstrap), (Selection(here.topic),), target)
    began = time.monotonic()
    found = find_place(spark, request, target, SystemClock())
    seconds = time.monotonic() - began
    if {p.partition: offset for p, offset in found.findings.offsets.items()} != expected:
        raise SystemExit(f"found {found.findings}, expected {expected}")
    return seconds


def by_dictionary(
    stages: tuple[Stage, Stage], partitions: int, place: int, expected: dict[int, int]
) -> tuple[float, int]:
    """Seconds, and the peak of its memory in MiB; in a process of its own."""
    with get_context("spawn").Pool(1) as pool:
        seconds, mib, found = pool.apply(_by_dictionary, (stages, partitions, place))
    if found != expected:
        raise SystemExit(f"the dictionary found {found}, expected {expected}")
    return seconds, mib


def _by_dictionary(stages: tuple[Stage, Stage], partitions: int, place: int) -> tuple[float, int, dict[int, int]]:
    began = time.monotonic()
    here, there = stages
    done = {
        hash((m.partition(), m.timestamp()[1], m.key(), m.value()))
        for m in records(there, partitions)
        if m.offset() < place
    }
    found: dict[int, int] = {}
    for m in records(here, partitions):
        if hash((m.partition(), m.timestamp()[1], m.key(), m.value())) not in done:
            found[m.partition()] = min(found.get(m.partition(), m.offset()), m.offset())
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    return time.monotonic() - began, peak, found


def records(stage: Stage, partitions: int) -> Any:
    consumer = Consumer(
        {
            "bootstrap.servers": stage.bootstrap,
            "group.id": "dictionary",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "queued.max.messages.kbytes": 256 << 10,
            "fetch.message.max.bytes": 8 << 20,
        }
    )
    consumer.assign([TopicPartition(stage.topic, p, 0) for p in range(partitions)])
    left = partitions
    while left:
        for message in consumer.consume(10_000, 1):
            if message.error() is None:
                yield message
            else:
                left -= 1
    consumer.close()
