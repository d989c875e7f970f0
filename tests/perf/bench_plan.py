"""How long does it take to plan a reset of a thousand groups?

Ours: what the operator does for a fleet with ``engine: Direct``, and one Spark job (``spark-submit``); both from
nothing to the plans on disk. Anchor: Kafka's own ``kafka-consumer-groups --all-groups --all-topics --reset-offsets
--to-earliest --dry-run``. Whole processes, in turns, against the same broker; all have to come to the same offsets.
"""

from __future__ import annotations

import argparse
import asyncio
import csv
import multiprocessing
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path
from statistics import median
from typing import Any

import pyarrow.parquet
from confluent_kafka import ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from devstack import KafkaCluster, script_command
from devstack.kafka import living_brokers
from perf.report import Report, Row
from tidegate.jobs.archive import make_archive
from tidegate.jobs.options import local_options, spark_home, with_archive
from tidegate.jobs.settings import SparkSettings

TOPICS = 10
PARTITIONS = 50
RECORDS = 20
TOOL = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
TIMEOUT_S = 1800
SET_UP_S = 300

Rows = dict[tuple[str, str, int], int]
"""New offset by group, topic and partition."""


def main(arguments: list[str]) -> None:
    """``--groups N --runs N --distance MS [MS…]``."""
    parser = argparse.ArgumentParser("plan", description=__doc__)
    parser.add_argument("--groups", type=int, default=1000, help=f"with {PARTITIONS} partitions each")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--distance", type=int, nargs="+", default=[0, 5], help="round trips to the broker, in ms")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="tidegate-bench-") as folder:
        archive = Path(folder) / "classes.jsa"
        make_archive(archive)  # once for a machine or an image, like the installation: not measured
        rows = [
            row for ms in options.distance for row in measure(Path(folder), archive, options.groups, options.runs, ms)
        ]
    Report("plan", "s", "kafka-consumer-groups", rows).publish()


def measure(folder: Path, archive: Path, groups: int, runs: int, distance_ms: int) -> list[Row]:
    """A case for each engine: all in turns against a broker that is ``distance_ms`` (there and back) away."""
    with broker(distance_ms) as bootstrap:
        set_up(bootstrap, groups)
        round_trip_ms = measure_round_trip(bootstrap)
        spark, direct, anchor = [], [], []
        for run in range(runs):
            spark_s, spark_rows = measure_spark(bootstrap, folder / f"spark-{distance_ms}-{run}", archive)
            direct_s, direct_rows = measure_direct(bootstrap, folder / f"direct-{distance_ms}-{run}.csv")
            tool_s, tool_rows = measure_tool(bootstrap, folder / f"tool-{distance_ms}-{run}.txt")
            print(f"run {run + 1}: Spark {spark_s:.1f} s, Direct {direct_s:.1f} s, tool {tool_s:.1f} s", flush=True)
            for engine, rows in (("Spark", spark_rows), ("Direct", direct_rows)):
                if rows != tool_rows:
                    different = len(rows.items() ^ tool_rows.items())
                    raise SystemExit(f"{engine} and tool: {len(rows)} and {len(tool_rows)} rows, {different} differ")
            if len(tool_rows) != groups * PARTITIONS:
                raise SystemExit(f"{len(tool_rows)} partitions were planned, not {groups * PARTITIONS}")
            spark.append(spark_s)
            direct.append(direct_s)
            anchor.append(tool_s)
    case = f"{groups:,} groups, {groups * PARTITIONS:,} partitions, broker " + (
        f"{distance_ms} ms away" if distance_ms else "on this machine"
    )
    extra = {"round_trip_ms": round_trip_ms}
    return [
        Row(f"Direct: {case}", tuple(direct), tuple(anchor), extra),
        Row(f"Spark: {case}", tuple(spark), tuple(anchor), extra),
    ]


@contextmanager
def broker(distance_ms: int) -> Iterator[str]:
    """A broker's address. With a distance, every byte to and from it takes half of that longer.

    On one machine a round trip takes 0.05 ms, which no broker in another pod, zone or site is near to.
    """
    if not distance_ms:
        with KafkaCluster.start() as kafka:
            yield kafka.bootstrap
        return
    with socket.create_server(("127.0.0.1", 0), backlog=64) as listener:
        near = f"127.0.0.1:{listener.getsockname()[1]}"
        with KafkaCluster.start(properties={"advertised.listeners": f"PLAINTEXT://{near}"}) as kafka:
            line = multiprocessing.get_context("fork").Process(
                target=run_line, args=(listener, kafka.bootstrap, distance_ms / 2000), daemon=True
            )
            line.start()
            try:
                yield near
            finally:
                line.terminate()
                line.join()


def measure_round_trip(bootstrap: str) -> float:
    """Milliseconds a small request really takes, between the runs: timers and a busy machine add to the distance."""
    seconds = []
    for _ in range(21):
        started = time.monotonic()
        if not living_brokers(bootstrap):
            raise SystemExit(f"{bootstrap} does not answer")
        seconds.append(time.monotonic() - started)
    return round(median(seconds) * 1000, 2)


def run_line(listener: socket.socket, far: str, delay_s: float) -> None:
    """Pass connections on to ``far``, each chunk ``delay_s`` later. Does not return."""
    host, _, port = far.rpartition(":")

    async def one_way(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        loop = asyncio.get_running_loop()
        chunks: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()

        async def deliver() -> None:
            while True:
                due, chunk = await chunks.get()
                await asyncio.sleep(max(0.0, due - loop.time()))
                if not chunk:
                    writer.close()
                    return
                writer.write(chunk)

        delivery = asyncio.create_task(deliver())
        with suppress(ConnectionError):
            while chunk := await reader.read(1 << 18):
                chunks.put_nowait((loop.time() + delay_s, chunk))
        chunks.put_nowait((loop.time() + delay_s, b""))
        await delivery

    async def connect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            far_reader, far_writer = await asyncio.open_connection(host, int(port))
            await asyncio.gather(one_way(reader, far_writer), one_way(far_reader, writer))

    async def serve() -> None:
        server = await asyncio.start_server(connect, sock=listener)
        await server.serve_forever()

    asyncio.run(serve())


def set_up(bootstrap: str, groups: int) -> None:
    """Topics with records, and groups that have read half of one topic each."""
    started = time.monotonic()
    admin = AdminClient({"bootstrap.servers": bootstrap})
    names = [f"orders-{n}" for n in range(TOPICS)]
    for future in admin.create_topics([NewTopic(name, PARTITIONS, 1) for name in names]).values():
        future.result(60)
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 50, "acks": 1})
    for name in names:
        for partition in range(PARTITIONS):
            for record in range(RECORDS):
                producer.produce(name, str(record), partition=partition)
        producer.poll(0)
    if producer.flush(120):
        raise SystemExit("the records could not be written")
    left = {
        f"group-{n:04}": [TopicPartition(names[n % TOPICS], p, RECORDS // 2) for p in range(PARTITIONS)]
        for n in range(groups)
    }
    while left:
        # A batch at a time is under way. A broker that is still loading its offsets topic is asked again.
        batch = dict(islice(left.items(), 200))
        committed = [g for g, future in _commit(admin, batch).items() if _is_committed(future.result(60))]
        for group in committed:
            del left[group]
        if time.monotonic() - started > SET_UP_S:
            raise SystemExit(f"{len(left)} groups could not be set up within {SET_UP_S} s")
    print(f"set up {groups} groups in {time.monotonic() - started:.1f} s", flush=True)


def _commit(admin: AdminClient, offsets: dict[str, list[TopicPartition]]) -> dict[str, Future[Any]]:
    """A request for each group: the client takes no more in one."""
    return {
        group: admin.alter_consumer_group_offsets([ConsumerGroupTopicPartitions(group, rows)], request_timeout=60)[
            group
        ]
        for group, rows in offsets.items()
    }


def _is_committed(answer: Any) -> bool:
    """Errors are told for each partition, and not raised."""
    return all(row.error is None for row in answer.topic_partitions)


def measure_direct(bootstrap: str, output: Path) -> tuple[float, Rows]:
    """The same of a process without Spark."""
    command = [sys.executable, str(Path(__file__).with_name("plan_in_operator.py")), bootstrap, str(output)]
    started = time.monotonic()
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    seconds = time.monotonic() - started
    if done.returncode != 0:
        raise SystemExit(f"{command[1]} failed:\n{done.stderr[-4000:]}")
    with output.open(newline="") as file:
        return seconds, {(group, topic, int(p)): int(target) for group, topic, p, target in csv.reader(file)}


def measure_spark(bootstrap: str, output: Path, archive: Path) -> tuple[float, Rows]:
    """Seconds of the whole process, and what it planned."""
    environment = {
        **{name: os.environ[name] for name in ("PATH", "HOME", "JAVA_HOME", "TMPDIR") if name in os.environ},
        "SPARK_HOME": str(spark_home()),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
    }
    command = [str(spark_home() / "bin" / "spark-submit"), "--master", "local[2]"]
    for key, value in with_archive(local_options(), archive).items():
        command += ["--conf", f"{key}={value}"]
    command += [str(SparkSettings().templates / "jobs" / "plan.py"), "--bootstrap-servers", bootstrap]
    command += ["--pattern", "*", "--to-earliest", "--output", str(output)]
    started = time.monotonic()
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=TIMEOUT_S, check=False, cwd=output.parent
    )
    seconds = time.monotonic() - started
    if done.returncode != 0:
        raise SystemExit(f"spark-submit failed:\n{done.stdout[-2000:]}{done.stderr[-4000:]}")
    table = pyarrow.parquet.read_table(output, columns=["group", "topic", "partition", "target"]).to_pylist()
    return seconds, {(row["group"], row["topic"], row["partition"]): row["target"] for row in table}


def measure_tool(bootstrap: str, output: Path) -> tuple[float, Rows]:
    """Seconds of the whole process, and what it planned."""
    command = [*script_command(TOOL), "--bootstrap-server", bootstrap, "--all-groups", "--all-topics"]
    command += ["--reset-offsets", "--to-earliest", "--dry-run", "--timeout", "600000"]
    started = time.monotonic()
    with output.open("w") as file:
        done = subprocess.run(command, stdout=file, stderr=subprocess.PIPE, text=True, timeout=TIMEOUT_S, check=False)
    seconds = time.monotonic() - started
    if done.returncode != 0:
        raise SystemExit(f"kafka-consumer-groups failed:\n{done.stderr[-4000:]}")
    rows: Rows = {}
    for line in output.read_text().splitlines():
        fields = line.split()
        if len(fields) >= 4 and fields[2].isdecimal() and fields[3].isdecimal():
            rows[fields[0], fields[1], int(fields[2])] = int(fields[3])
    return seconds, rows


if __name__ == "__main__":
    main(sys.argv[1:])
