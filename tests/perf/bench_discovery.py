"""What does it cost to look at every partition of a large cluster five times a second?

Ours: ``TopicWatch.poll`` every 200 ms. Anchor: a plain metadata poll at the same pace, by what confluent_kafka has for
it: ``list_topics`` for all topics, ``describe_topics`` for some. In turns against the same three brokers (each needs an
open file a partition, of which a process may have 20,000 where this was written). CPU is that of the whole polling
process, in percent of one core; the brokers' CPU and bytes are those of all three, less what they are when nobody asks.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from confluent_kafka import TopicCollection
from confluent_kafka.admin import AdminClient, NewTopic

from devstack import KafkaCluster
from perf.report import Report, Row
from tidegate.kafka.connection import Connection
from tidegate.kafka_client.cluster_requests import MetadataBrokers, metadata
from tidegate.kafka_client.metadata import read_topics, topics_start
from tidegate.kafka_client.topic_watch import KafkaTopicWatch
from tidegate.kafka_client.wire import Wire

TOPICS = 1000
PARTITIONS = 50
NAMED = 100
INTERVAL_S = 0.2
SECONDS = 30.0
RUNS = 3
CREATED_AT_ONCE = 20
SET_UP_S = 1200
SETTLING_S = 5.0
SETTLED_CPU = 15.0
TIMEOUT_S = 30
# Two index files a partition, which are mapped into memory: sparse ones of 10 MB by default.
BROKER = {"log.index.size.max.bytes": "4096"}
TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")

Poll = Callable[[], object]
Way = Callable[[str, Collection[str] | None], AbstractContextManager[Poll]]


@dataclass(frozen=True, slots=True)
class Spent:
    """What processes have used since they began."""

    cpu_s: float
    brokers_cpu_s: float
    brokers_wrote_bytes: int

    @classmethod
    def so_far(cls, kafka: KafkaCluster) -> Spent:
        cpu_s, wrote = 0.0, 0
        for broker in kafka.brokers:
            process = Path("/proc") / str(kafka.pid(broker))
            # Behind the name in brackets, which may hold anything: the 14th and 15th fields are user and system time.
            fields = (process / "stat").read_text().rpartition(")")[2].split()
            cpu_s += (int(fields[11]) + int(fields[12])) / TICKS_PER_SECOND
            counters = dict(line.split(": ") for line in (process / "io").read_text().splitlines())
            wrote += int(counters["wchar"])
        return cls(time.process_time(), cpu_s, wrote)


@dataclass(frozen=True, slots=True)
class Cost:
    """Of one turn; CPU in percent of one core."""

    cpu: float
    brokers_cpu: float
    polls_per_s: float
    megabytes_per_s: float
    slowest_ms: float


def main(arguments: list[str]) -> None:
    """``--topics N --seconds S --runs N``."""
    parser = argparse.ArgumentParser("discovery", description=__doc__)
    parser.add_argument("--topics", type=int, default=TOPICS, help=f"with {PARTITIONS} partitions each")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="of each turn")
    parser.add_argument("--runs", type=int, default=RUNS)
    options = parser.parse_args(arguments)
    with KafkaCluster.start(3, BROKER, heap="1g") as kafka:
        create(kafka.bootstrap, options.topics)
        idle = settled(kafka, options.seconds)
        some = [name(number) for number in range(min(NAMED, options.topics))]
        rows = [
            measure(
                kafka, f"all {options.topics:,} topics, {options.topics * PARTITIONS:,} partitions", None, options, idle
            ),
            measure(kafka, f"{len(some)} topics of them, {len(some) * PARTITIONS:,} partitions", some, options, idle),
        ]
        print(f"an answer in which something has changed is decoded in {decoding_ms(kafka.bootstrap):.1f} ms")
    Report("discovery", "% of a core", "plain metadata poll", rows).publish()


def name(number: int) -> str:
    return f"discovery.benchmark.topic-{number:05d}"


def create(bootstrap: str, topics: int) -> None:
    """The topics, a few at a time; returns when all are there."""
    began = time.monotonic()
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for start in range(0, topics, CREATED_AT_ONCE):
        new = [NewTopic(name(n), PARTITIONS, 1) for n in range(start, min(start + CREATED_AT_ONCE, topics))]
        for future in admin.create_topics(new, operation_timeout=TIMEOUT_S).values():
            future.result(2 * TIMEOUT_S)
    while len(admin.list_topics(timeout=TIMEOUT_S).topics) < topics:
        if time.monotonic() - began > SET_UP_S:
            raise SystemExit(f"not all of {topics} topics are there after {SET_UP_S} s")
        time.sleep(1)
    print(f"{topics * PARTITIONS:,} partitions were made in {time.monotonic() - began:.0f} s", flush=True)


def settled(kafka: KafkaCluster, seconds: float) -> Cost:
    """What the brokers take when nobody asks, once they are done with the new topics."""
    deadline = time.monotonic() + SET_UP_S
    while turn(kafka, lambda: None, SETTLING_S).brokers_cpu > SETTLED_CPU:
        if time.monotonic() > deadline:
            raise SystemExit(f"the brokers take more than {SETTLED_CPU} % of a core when nobody asks")
    idle = turn(kafka, lambda: None, seconds)
    print(f"nobody asks: {idle}", flush=True)
    return idle


def measure(
    kafka: KafkaCluster, case: str, topics: Collection[str] | None, options: argparse.Namespace, idle: Cost
) -> Row:
    """Both in turns, who begins changes with each."""
    ours: list[Cost] = []
    anchor: list[Cost] = []
    both: list[tuple[str, Way, list[Cost]]] = [("tidegate", watching, ours), ("plain", plain, anchor)]
    for run in range(options.runs):
        for label, way, costs in both if run % 2 else reversed(both):
            with way(kafka.bootstrap, topics) as poll:
                costs.append(turn(kafka, poll, options.seconds))
            print(f"{case}: {label}: {costs[-1]}", flush=True)
    extra: dict[str, float] = {}
    for label, _, costs in both:
        extra |= {
            f"{label}: polls/s": round(median(c.polls_per_s for c in costs), 2),
            f"{label}: MB/s": round(median(c.megabytes_per_s for c in costs) - idle.megabytes_per_s, 2),
            f"{label}: slowest ms": round(max(c.slowest_ms for c in costs), 1),
            f"{label}: brokers %": round(median(c.brokers_cpu for c in costs) - idle.brokers_cpu, 1),
        }
    return Row(case, tuple(c.cpu for c in ours), tuple(c.cpu for c in anchor), extra)


@contextmanager
def watching(bootstrap: str, topics: Collection[str] | None) -> Iterator[Poll]:
    """Ours. Nothing changes meanwhile, so only the first poll tells."""
    watch = KafkaTopicWatch(MetadataBrokers(Wire(Connection(bootstrap))))

    def poll() -> None:
        if watch.poll(topics) is not None:
            raise SystemExit("the watch tells of a change where there was none")

    try:
        watch.poll(topics)
        yield poll
    finally:
        watch.close()


@contextmanager
def plain(bootstrap: str, topics: Collection[str] | None) -> Iterator[Poll]:
    """What a user would write."""
    admin = AdminClient({"bootstrap.servers": bootstrap})

    def poll() -> None:
        if topics is None:
            admin.list_topics(timeout=TIMEOUT_S)
        else:
            for future in admin.describe_topics(TopicCollection(list(topics)), request_timeout=TIMEOUT_S).values():
                future.result(2 * TIMEOUT_S)

    poll()
    yield poll


def turn(kafka: KafkaCluster, poll: Poll, seconds: float) -> Cost:
    """Poll at the interval, or as fast as it goes where that is slower."""
    before, began = Spent.so_far(kafka), time.monotonic()
    polls, slowest_s, due = 0, 0.0, began
    while due < began + seconds:
        started = time.monotonic()
        poll()
        polls += 1
        took_s = time.monotonic() - started
        slowest_s = max(slowest_s, took_s)
        due = max(due + INTERVAL_S, started + took_s)
        time.sleep(max(0.0, due - time.monotonic()))
    after, took_s = Spent.so_far(kafka), time.monotonic() - began
    return Cost(
        cpu=round(100 * (after.cpu_s - before.cpu_s) / took_s, 2),
        brokers_cpu=round(100 * (after.brokers_cpu_s - before.brokers_cpu_s) / took_s, 1),
        polls_per_s=round(polls / took_s, 2),
        megabytes_per_s=round((after.brokers_wrote_bytes - before.brokers_wrote_bytes) / took_s / 1e6, 2),
        slowest_ms=round(1000 * slowest_s, 1),
    )


def decoding_ms(bootstrap: str) -> float:
    """Median of a few times."""
    wire = Wire(Connection(bootstrap))
    try:
        answer = metadata(wire, wire.brokers()[0], None, timeout_s=TIMEOUT_S)
    finally:
        wire.close()
    times = []
    for _ in range(20):
        began = time.perf_counter()
        read_topics(answer, topics_start(answer))
        times.append(time.perf_counter() - began)
    return 1000 * median(times)


if __name__ == "__main__":
    main(sys.argv[1:])
