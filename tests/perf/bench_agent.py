"""What does the agent cost where nothing is paused?

Ours: an application that reads a topic to its end, run by ``python -m tidegate_agent run``. Anchor: the same
application, run by Python. Whole processes in turns, the same records; each measures from its first record to its last.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import uuid
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from devstack import KafkaCluster
from perf.report import ROOT, Report, Row
from tidegate.kafka.connection import Connection
from tidegate.kafka_client.client import KafkaClient

APPLICATION = Path(__file__).with_name("reading_application.py")
TOPIC = "records"
PARTITIONS = 8
RECORDS = 2_000_000
RECORD_BYTES = 150
RUNS = 7
CASES = ("poll", "consume", "poll, KIP-848", "consume, KIP-848")
TIMEOUT_S = 300


def main(arguments: list[str]) -> None:
    """``--records N --runs N``."""
    parser = argparse.ArgumentParser("agent", description=__doc__)
    parser.add_argument("--records", type=int, default=RECORDS)
    parser.add_argument("--runs", type=int, default=RUNS)
    options = parser.parse_args(arguments)
    with KafkaCluster.start() as kafka, tempfile.TemporaryDirectory(prefix="tidegate-bench-") as folder:
        fill(kafka.bootstrap, options.records)
        client = KafkaClient(Connection(kafka.bootstrap))
        try:
            complaints = client.control.ensure()
            if complaints:
                raise SystemExit("; ".join(complaints))
            rows = [measure(kafka.bootstrap, client, case, options, Path(folder)) for case in CASES]
        finally:
            client.close()
    Report("agent", "records/s", "without the agent", rows, lower_is_better=False).publish()


def fill(bootstrap: str, records: int) -> None:
    """Put the records on the topic, evenly."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(TOPIC, PARTITIONS)])[TOPIC].result(30)
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 50, "queue.buffering.max.messages": 500_000})
    value = os.urandom(RECORD_BYTES)
    for number in range(records):
        while True:
            try:
                producer.produce(TOPIC, value, partition=number % PARTITIONS)
                break
            except BufferError:
                producer.poll(0.1)
    if producer.flush(60):
        raise SystemExit("the broker did not take all records")


def measure(bootstrap: str, client: KafkaClient, case: str, options: argparse.Namespace, folder: Path) -> Row:
    """One case: both in turns, who begins changes with each turn; one turn of each beforehand does not count."""
    ours: list[float] = []
    anchor: list[float] = []
    for run in range(-1, options.runs):
        both = [(True, ours), (False, anchor)]
        for with_agent, rates in both if run % 2 else reversed(both):
            group = f"bench-{uuid.uuid4().hex[:8]}"
            rate = read(bootstrap, group, case, options.records, folder, with_agent=with_agent)
            if with_agent is not bool(client.managed_members(group)):
                raise SystemExit(f"{case}: the agent {'did not run' if with_agent else 'ran'}, so nothing is compared")
            if run >= 0:
                rates.append(rate)
        if run >= 0:
            print(f"{case}: with the agent {ours[-1]:,.0f}/s, without {anchor[-1]:,.0f}/s", flush=True)
    return Row(case, tuple(ours), tuple(anchor))


def read(bootstrap: str, group: str, case: str, records: int, folder: Path, *, with_agent: bool) -> float:
    """Records per second of one process."""
    how, _, protocol = case.partition(", ")
    out = folder / f"{group}.json"
    program = ["-m", "tidegate_agent", "run", str(APPLICATION)] if with_agent else [str(APPLICATION)]
    job = {
        "bootstrap": bootstrap,
        "group": group,
        "topic": TOPIC,
        "records": records,
        "how": how,
        "protocol": "consumer" if protocol else "classic",
        "out": str(out),
    }
    environment = {k: v for k, v in os.environ.items() if not k.startswith("TIDEGATE_")}
    environment["PYTHONPATH"] = str(ROOT / "agents" / "python")
    subprocess.run(
        [sys.executable, *program, json.dumps(job)], check=True, timeout=TIMEOUT_S, env=environment, capture_output=True
    )
    return float(json.loads(out.read_text())["records_per_second"])


if __name__ == "__main__":
    main(sys.argv[1:])
