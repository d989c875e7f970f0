"""What does copying a topic to another cluster cost, and how far does the copy lag?

Ours: an OffsetMirror, by the operator. Anchor: MirrorMaker 2 of Kafka's release, as ``connect-mirror-maker.sh`` starts
it (heap, collector), with the settings of the sample that Kafka ships, and tuned for throughput. Both copy the same
topic of four partitions from one broker to another, in turns.

``records per CPU second``: of the process that copies, user and system time, from the tenth of the records that arrives
first to the last one, so without the start of either. ``lag``: a producer writes 1,000 records a second; from a
record's timestamp, which the producer gives it, to when a consumer of the copy has it.
"""

from __future__ import annotations

import argparse
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median, quantiles

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from devstack import KafkaCluster
from devstack.kafka import script_command
from devstack.toolcache import kafka_connect
from perf.report import Report, Row
from perf.scale_stage import cpu_s
from perf.stage import Stage, set_stage, wait

PARTITIONS = 4
BYTES = 400_000_000
LEAST_BYTES = 40_000_000
SIZES = (100, 1_000)
SMALL_BATCH = 10
PER_SECOND = 1_000
LAG_S = 30
RUNS = 5
COPIED_WITHIN_S = 600.0
WARM = 0.1

SAMPLE: Mapping[str, str] = {
    "clusters": "here, there",
    "here->there.enabled": "true",
    "there->here.enabled": "false",
    **{
        f"{topic}.replication.factor": "1"
        for topic in ("checkpoints.topic", "heartbeats.topic", "offset-syncs.topic", "offset.storage", "status.storage")
    },
    "config.storage.replication.factor": "1",
    "replication.factor": "1",
}
"""``config/connect-mirror-maker.properties``, for one broker in each cluster and one direction."""

TUNED: Mapping[str, str] = {
    "tasks.max": "2",
    "here.consumer.fetch.min.bytes": "1000000",
    "here.consumer.max.partition.fetch.bytes": "5000000",
    "here.consumer.max.poll.records": "10000",
    "there.producer.batch.size": "1000000",
    "there.producer.linger.ms": "100",
    "there.producer.max.request.size": "5000000",
}
"""For throughput: a task for each core, and large batches."""

Copying = AbstractContextManager[tuple[int, str]]
"""While it is open, a topic is copied; gives the pid of what copies, and the copy's name."""


@dataclass(frozen=True, slots=True)
class Clusters:
    """Where is copied from, and to."""

    here: str
    there: KafkaCluster
    stage: Stage

    def forget(self, *topics: str) -> None:
        """Delete what there is of them in the other cluster."""
        admin = AdminClient({"bootstrap.servers": self.there.bootstrap})
        present = [topic for topic in topics if topic in admin.list_topics(timeout=30).topics]
        for done in admin.delete_topics(present).values() if present else ():
            done.result(30)
        wait(lambda: not set(present) & set(admin.list_topics(timeout=30).topics), "the copy is gone")


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="make bench NAME=mirror", description=__doc__)
    parser.add_argument("--runs", type=int, default=RUNS, help="times each way")
    parser.add_argument("--bytes", type=int, default=BYTES, help="of values, in each topic that is copied")
    parser.add_argument("--seconds", type=float, default=LAG_S, help="of each measurement of lag")
    options = parser.parse_args(arguments)
    if options.bytes < LEAST_BYTES:
        parser.error(f"less than {LEAST_BYTES:,} bytes take too little CPU time to be measured in ticks of 10 ms")
    runs: int = options.runs
    libs = kafka_connect().folder()
    with set_stage() as stage, KafkaCluster.start() as there:
        clusters = Clusters(stage.bootstrap, there, stage)
        stage.create("kafkaconnections", "KafkaConnection", "there", {"bootstrapServers": there.bootstrap})
        ways: dict[str, Callable[[str], Copying]] = {
            "ours": lambda topic: mirrored(clusters, topic),
            "defaults": lambda topic: mirror_maker(clusters, libs, topic, {}),
            "tuned": lambda topic: mirror_maker(clusters, libs, topic, TUNED),
        }
        costs = [
            *(
                row
                for size in SIZES
                for row in cost(clusters, ways, f"{size} B", size, options.bytes // size, {}, runs)
            ),
            *cost(
                clusters,
                ways,
                f"100 B, {SMALL_BATCH} records a batch",
                100,
                options.bytes // 400,
                {"batch.num.messages": str(SMALL_BATCH)},
                runs,
            ),
        ]
        Report("mirror", "records per CPU second", "MirrorMaker 2", costs, lower_is_better=False).publish()
        lags = lag(clusters, ways, options.seconds, runs)
        Report("mirror-lag", "s", "MirrorMaker 2", lags).publish()


# --- the ways ---------------------------------------------------------------------------------------------------------


@contextmanager
def mirrored(clusters: Clusters, topic: str) -> Iterator[tuple[int, str]]:
    """By an OffsetMirror."""
    stage = clusters.stage
    spec = {"source": {"name": "kafka"}, "target": {"name": "there"}, "topics": {"include": [topic]}}
    stage.create("offsetmirrors", "OffsetMirror", topic, spec)
    try:
        yield stage.operator_pid, topic
    finally:
        stage.delete("offsetmirrors", topic)
        clusters.forget(topic)


@contextmanager
def mirror_maker(clusters: Clusters, libs: Path, topic: str, settings: Mapping[str, str]) -> Iterator[tuple[int, str]]:
    """By a MirrorMaker of its own, which begins at the start of the topic as ours does."""
    with tempfile.TemporaryDirectory(prefix="tidegate-mirror-maker-") as folder:
        properties = Path(folder, "mm2.properties")
        given = {
            **SAMPLE,
            "here.bootstrap.servers": clusters.here,
            "there.bootstrap.servers": clusters.there.bootstrap,
            "here->there.topics": topic,
            **settings,
        }
        properties.write_text("".join(f"{key} = {value}\n" for key, value in given.items()))
        command = script_command("org.apache.kafka.connect.mirror.MirrorMaker", heap="2G", libs=libs)
        process = subprocess.Popen(
            [*command[:1], "-Xms256M", *command[1:], str(properties)], cwd=folder, stdout=subprocess.DEVNULL
        )
        try:
            yield process.pid, f"here.{topic}"
        finally:
            process.terminate()
            process.wait(60)
            admin = AdminClient({"bootstrap.servers": clusters.there.bootstrap})
            internal = [name for name in admin.list_topics(timeout=30).topics if name.startswith(("mm2-", "here."))]
            clusters.forget(*internal, "heartbeats")


# --- the cost ---------------------------------------------------------------------------------------------------------


def cost(
    clusters: Clusters,
    ways: Mapping[str, Callable[[str], Copying]],
    case: str,
    size: int,
    records: int,
    producer: Mapping[str, str],
    runs: int,
) -> list[Row]:
    """Records per CPU second, ours beside each of MirrorMaker's."""
    topic = f"cost-{size}-{len(producer)}"
    written = write(clusters.here, topic, size, records, producer)
    measured: dict[str, list[tuple[float, float]]] = {way: [] for way in ways}
    for run in range(runs):
        for way, copying in ways.items():
            with copying(topic) as (pid, copy):
                measured[way].append(copied(clusters.there.bootstrap, pid, copy, written))
            print(f"{case}, run {run + 1}: {way} {measured[way][-1][0]:,.0f} records per CPU second", flush=True)
    return [
        Row(
            f"{case}, MirrorMaker {'tuned' if way == 'tuned' else 'at its defaults'}",
            tuple(cpu for cpu, _ in measured["ours"]),
            tuple(cpu for cpu, _ in measured[way]),
            {
                "records/s ours": round(median(pace for _, pace in measured["ours"])),
                "records/s theirs": round(median(pace for _, pace in measured[way])),
                "spread ours": _spread([cpu for cpu, _ in measured["ours"]]),
                "spread theirs": _spread([cpu for cpu, _ in measured[way]]),
            },
        )
        for way in ("defaults", "tuned")
    ]


def _spread(values: list[float]) -> str:
    return f"{min(values):,.0f} to {max(values):,.0f}"


def write(bootstrap: str, topic: str, size: int, records: int, settings: Mapping[str, str]) -> int:
    """Fill a topic; how many records it has."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result(30)
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "1", "log_level": 0, **settings})
    for number in range(records):
        value = f"{number:020d}".encode().ljust(size, b"x")
        while True:
            try:
                producer.produce(topic, value, partition=number % PARTITIONS)
                break
            except BufferError:
                producer.poll(0.1)
    producer.flush()
    return records


def copied(bootstrap: str, pid: int, copy: str, records: int) -> tuple[float, float]:
    """Records per CPU second and per second, of all but the first tenth."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "looks", "log_level": 0})
    try:
        wait(lambda: copy in consumer.list_topics(timeout=30).topics, f"there is {copy}", COPIED_WITHIN_S)
        wait(lambda: _arrived(consumer, copy) >= WARM * records, f"{copy} has a tenth", COPIED_WITHIN_S)
        before, spent_s, began = _arrived(consumer, copy), cpu_s(pid), time.monotonic()
        wait(lambda: _arrived(consumer, copy) >= records, f"{copy} has all", COPIED_WITHIN_S)
        used_s, took_s = cpu_s(pid) - spent_s, time.monotonic() - began
    finally:
        consumer.close()
    return (records - before) / used_s, (records - before) / took_s


def _arrived(consumer: Consumer, copy: str) -> int:
    """At the ends of all partitions. Looked at ten times a second at most, which the brokers don't feel."""
    time.sleep(0.1)
    ends = (
        consumer.get_watermark_offsets(TopicPartition(copy, p), timeout=30, cached=False) for p in range(PARTITIONS)
    )
    return sum(end for _, end in ends)


# --- the lag ----------------------------------------------------------------------------------------------------------


def lag(clusters: Clusters, ways: Mapping[str, Callable[[str], Copying]], seconds: float, runs: int) -> list[Row]:
    """From a record's timestamp until a reader of the copy has it, ours beside each of MirrorMaker's."""
    measured: dict[str, list[list[float]]] = {way: [] for way in ways}
    for run in range(runs):
        for way, copying in ways.items():
            topic = f"lag-{way}-{run}"
            write(clusters.here, topic, 100, PARTITIONS, {})
            with copying(topic) as (_, copy):
                measured[way].append(_lags(clusters, topic, copy, seconds))
            print(f"lag, run {run + 1}: {way} {median(measured[way][-1]) * 1000:.0f} ms", flush=True)
    return [
        Row(
            f"{name}, MirrorMaker {'tuned' if way == 'tuned' else 'at its defaults'}",
            tuple(pick(run) for run in measured["ours"]),
            tuple(pick(run) for run in measured[way]),
        )
        for way in ("defaults", "tuned")
        for name, pick in (("median", median), ("99th percentile", lambda run: quantiles(run, n=100)[98]))
    ]


def _lags(clusters: Clusters, topic: str, copy: str, seconds: float) -> list[float]:
    """Of each record of a stretch that begins once the copy is up to date, in seconds."""
    settings = {"bootstrap.servers": clusters.there.bootstrap, "group.id": "reads", "log_level": 0}
    consumer = Consumer({**settings, "fetch.wait.max.ms": 10, "auto.offset.reset": "earliest"})
    wait(lambda: copy in consumer.list_topics(timeout=30).topics, f"there is {copy}", COPIED_WITHIN_S)
    wait(lambda: _arrived(consumer, copy) >= PARTITIONS, f"{copy} is up to date", COPIED_WITHIN_S)
    consumer.assign([TopicPartition(copy, partition, 1) for partition in range(PARTITIONS)])
    total = int(seconds * PER_SECOND)
    writer = threading.Thread(target=_write_evenly, args=(clusters.here, topic, total))
    writer.start()
    lags: list[float] = []
    deadline = time.monotonic() + seconds + COPIED_WITHIN_S
    while len(lags) < total:
        if time.monotonic() > deadline:
            raise SystemExit(f"{copy} has {len(lags)} of {total} records")
        messages = consumer.consume(1000, timeout=0.05)
        lags += [time.time() - message.timestamp()[1] / 1000 for message in messages]
    writer.join()
    consumer.close()
    return lags


def _write_evenly(bootstrap: str, topic: str, total: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0})
    began = time.monotonic()
    for number in range(total):
        if (ahead := began + number / PER_SECOND - time.monotonic()) > 0:
            producer.poll(ahead)
        producer.produce(topic, b"x" * 100, partition=number % PARTITIONS)
    producer.flush()
