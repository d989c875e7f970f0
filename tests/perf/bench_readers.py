"""What do agents at rest cost the brokers of their control topic?

Agents' ways to the control topic (``tidegate_agent.control.ControlLink``) on one broker, beside an operator that writes
the broker's time every 5 s. Ours: as agents are. Anchor: with fetches that wait for 5 s, not 500 ms. In turns;
what the broker was asked is counted by the broker.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Mapping
from typing import Any, Final, Self

from devstack import KafkaCluster
from perf.report import ROOT, Report, Row
from tidegate.kafka.connection import Connection
from tidegate.kafka_client.client import KafkaClient
from tidegate_agent import control
from tidegate_agent.own_clients import reader_settings

DOCS: Final = ROOT / "docs" / "benchmarks" / "readers.json"
AGENTS: Final = 20
RUNS: Final = 2
REST_S: Final = 30.0
CLOCK_S: Final = 5.0
_REQUESTS: Final = "kafka.network:type=RequestMetrics,name=RequestsPerSec,request=*,version=*"
_PARTS_OF_FETCH: Final = ("FetchConsumer", "FetchFollower")
_COUNT: Final = re.compile(r"request=(\w+),version=\w+:Count=(\d+)")


def main(arguments: list[str]) -> None:
    """``--agents N --runs N --rest-s SECONDS``."""
    parser = argparse.ArgumentParser("readers", description=__doc__)
    parser.add_argument("--agents", type=int, default=AGENTS)
    parser.add_argument("--runs", type=int, default=RUNS)
    parser.add_argument("--rest-s", type=float, default=REST_S)
    parser.add_argument("--docs", action="store_true", help=f"write {DOCS.relative_to(ROOT)}")
    options = parser.parse_args(arguments)
    found: dict[bool, list[Counter[str]]] = {True: [], False: []}
    with KafkaCluster.start() as kafka, _Clock(kafka):
        port = _listening(kafka)
        for _ in range(options.runs):
            for ours in (True, False):
                found[ours].append(_at_rest(kafka, port, options, ours=ours))
                print("ours" if ours else "500 ms", dict(found[ours][-1]), flush=True)
    a_second = options.rest_s * options.agents
    rows = [
        Row(name, *(tuple(_of(name, counts) / a_second for counts in found[ours]) for ours in (True, False)))
        for name in ("all", "Fetch", "ListOffsets", "Metadata and DescribeTopicPartitions")
    ]
    report = Report("readers", "requests/s of one agent", "fetch.wait.max.ms=5000", rows)
    report.publish()
    if options.docs:
        DOCS.write_text(json.dumps(report.as_json(), indent=2) + "\n", encoding="utf-8")


class _Clock:
    """An operator that tells the time."""

    def __init__(self, kafka: KafkaCluster) -> None:
        self._client = KafkaClient(Connection(kafka.bootstrap), "bench")
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._tell, daemon=True)

    def __enter__(self) -> Self:
        complaints = self._client.control.ensure()
        if complaints:
            raise SystemExit("; ".join(complaints))
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join(30)
        self._client.close()

    def _tell(self) -> None:
        while not self._over.wait(CLOCK_S):
            self._client.control.write_clock()


def _at_rest(kafka: KafkaCluster, port: int, options: argparse.Namespace, *, ours: bool) -> Counter[str]:
    """By request, what was asked above what is asked without agents."""
    alone = _over(port, kafka, options.rest_s)
    control.reader_settings = reader_settings if ours else _with_longer_waits
    connection = {"bootstrap.servers": kafka.bootstrap}
    links = [control.ControlLink(connection, "__tidegate", "__tidegate_acks") for _ in range(options.agents)]
    try:
        for link in links:
            ticket = link.ask()
            deadline = time.monotonic() + 60
            while link.known.answered < ticket:
                if time.monotonic() > deadline:
                    raise SystemExit("an agent has not read the control topic")
                time.sleep(0.05)
        time.sleep(10)
        return _over(port, kafka, options.rest_s) - alone
    finally:
        control.reader_settings = reader_settings
        for link in links:
            link.close()


def _with_longer_waits(connection: Mapping[str, Any]) -> dict[str, Any]:
    return {**reader_settings(connection), "fetch.wait.max.ms": 5_000}


def _over(port: int, kafka: KafkaCluster, seconds: float) -> Counter[str]:
    before = _asked(port, kafka)
    time.sleep(seconds)
    return _asked(port, kafka) - before


def _asked(port: int, kafka: KafkaCluster) -> Counter[str]:
    said = kafka.tool(
        "org.apache.kafka.tools.JmxTool",
        *("--jmx-url", f"service:jmx:rmi:///jndi/rmi://127.0.0.1:{port}/jmxrmi"),
        *("--object-name", _REQUESTS, "--attributes", "Count", "--one-time", "--report-format", "properties"),
    )
    counts: Counter[str] = Counter()
    for name, count in _COUNT.findall(said):
        if name not in _PARTS_OF_FETCH:
            counts[name] += int(count)
    if not counts:
        raise SystemExit(f"the broker tells no counts: {said[:300]}")
    return counts


def _listening(kafka: KafkaCluster) -> int:
    port = random.randint(20000, 40000)
    command = ["jcmd", str(kafka.pid(0)), "ManagementAgent.start", f"jmxremote.port={port}"]
    command += ["jmxremote.ssl=false", "jmxremote.authenticate=false", "jmxremote.host=127.0.0.1"]
    subprocess.run(command, check=True, capture_output=True)
    return port


def _of(name: str, counts: Counter[str]) -> int:
    return counts.total() if name == "all" else sum(counts[each] for each in name.split(" and "))
