"""How long does an audit of many groups take, and how much memory? Against describing them all with Kafka's own tool.

The tool looks once, and prints committed offsets and lags; the audit looks twice, and the pause between its looks is
not counted. Each is a process of its own, from start to end.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Final, NamedTuple

from confluent_kafka.admin import AdminClient, NewTopic

from contract.kafka_worlds import RealWorld, commit_plainly
from devstack import KafkaCluster, script_command
from perf.report import ROOT, Report, Row
from tidegate.kafka.model import TopicPartition

PARTITIONS: Final = 12
TOPICS: Final = 100
LIVE: Final = 10
WATCH_S: Final = 2
_WRITERS: Final = 4


class Took(NamedTuple):
    seconds: float
    mebibytes: float
    """The process's resident memory at its peak."""
    cpu_s: float


def main(arguments: list[str]) -> None:
    """See ``--help``."""
    parser = argparse.ArgumentParser("audit", description=__doc__)
    parser.add_argument("--groups", type=int, default=2_000)
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args(arguments)
    with KafkaCluster.start() as cluster, ExitStack() as live:
        world = live.enter_context(closing(RealWorld(cluster.bootstrap)))
        _set(world, cluster.bootstrap, options.groups)
        audits, described = list[Took](), list[Took]()
        for _ in range(options.runs):
            audits.append(_audit(cluster.bootstrap, options.groups))
            described.append(_described(cluster.bootstrap))
    case = f"{options.groups:,} groups, {options.groups * PARTITIONS:,} committed offsets"
    Report(
        "audit",
        "s",
        "kafka-consumer-groups --describe --all-groups",
        [
            Row(case, tuple(t.seconds for t in audits), tuple(t.seconds for t in described)),
            Row("of CPU", tuple(t.cpu_s for t in audits), tuple(t.cpu_s for t in described)),
        ],
    ).publish()
    Report(
        "audit-memory",
        "MiB",
        "kafka-consumer-groups --describe --all-groups",
        [Row(case, tuple(t.mebibytes for t in audits), tuple(t.mebibytes for t in described))],
    ).publish()


def _set(world: RealWorld, bootstrap: str, groups: int) -> None:
    """Groups with offsets of one topic each, without members but for a few."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    topics = [f"audit-{number:03d}" for number in range(TOPICS)]
    for future in admin.create_topics([NewTopic(name, PARTITIONS, 1) for name in topics]).values():
        future.result(60)

    def commit(number: int) -> None:
        offsets = {TopicPartition(topics[number % TOPICS], partition): 0 for partition in range(PARTITIONS)}
        commit_plainly(world, f"audit-group-{number:05d}", offsets)

    with ThreadPoolExecutor(_WRITERS) as pool:
        list(pool.map(commit, range(groups - LIVE)))
    for number in range(LIVE):
        world.consumer(f"audit-live-{number:02d}", [topics[number]])


def _audit(bootstrap: str, groups: int) -> Took:
    command = [sys.executable, "-m", "tidegate.cli.main", "audit", "--bootstrap-server", bootstrap]
    took, out = _timed([*command, "--watch", f"{WATCH_S}s", "--exact", "0", "--output", "json"])
    told = json.loads(out)
    assert told["seen"]["groups"] == groups, told["seen"]
    print(f"audit: {took.seconds - WATCH_S:.1f} s, {took.mebibytes:.0f} MiB, {told['counts']}", flush=True)
    return took._replace(seconds=took.seconds - WATCH_S)


def _described(bootstrap: str) -> Took:
    command = script_command("org.apache.kafka.tools.consumer.group.ConsumerGroupCommand")
    took, out = _timed([*command, "--bootstrap-server", bootstrap, "--describe", "--all-groups", "--timeout", "120000"])
    print(
        f"kafka-consumer-groups: {took.seconds:.1f} s, {took.mebibytes:.0f} MiB, {out.count('audit-group')} rows",
        flush=True,
    )
    return took


def _timed(command: Sequence[str]) -> tuple[Took, str]:
    """Raises ``CalledProcessError``."""
    out = Path(ROOT / "build" / "bench" / "audit.out")
    out.parent.mkdir(parents=True, exist_ok=True)
    with out.open("w", encoding="utf-8") as file:
        started = time.monotonic()
        process = subprocess.Popen(command, stdout=file, stderr=subprocess.DEVNULL)
        _, status, used = os.wait4(process.pid, 0)
        seconds = time.monotonic() - started
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command)
    return Took(seconds, used.ru_maxrss / 1024, used.ru_utime + used.ru_stime), out.read_text(encoding="utf-8")
