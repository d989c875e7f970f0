"""What does the agent cost where nothing is paused?

Ours: an application that reads a topic to its end, run by ``python -m tidegate_agent run``. Anchor: the same
application, run by Python. Whole processes in turns, the same records; each measures from its first record to its last.

The same of Java's consumers with ``-javaagent``: records by the CPU seconds that they take (`perf.java_agent_cost`),
also of nine partitions while the gate of a tenth is closed; and, in ``agent-start.json``, what a process's start takes.
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

from devstack import KafkaCluster
from perf import java_agent_cost
from perf.java_agent_cost import fill
from perf.report import ROOT, Report, Row
from tidegate.kafka.connection import Connection
from tidegate.kafka_client.client import KafkaClient

APPLICATION = Path(__file__).with_name("reading_application.py")
TOPIC = "records"
PARTITIONS = 8
RECORDS = 2_000_000
RUNS = 7
CASES = ("poll", "consume", "poll, KIP-848", "consume, KIP-848")
TIMEOUT_S = 300


def main(arguments: list[str]) -> None:
    """``--records N --runs N --java-records N --java-runs N --only python|java --case NAME ...``."""
    parser = argparse.ArgumentParser("agent", description=__doc__)
    parser.add_argument("--records", type=int, default=RECORDS)
    parser.add_argument("--runs", type=int, default=RUNS)
    parser.add_argument("--java-records", type=int, default=java_agent_cost.RECORDS)
    parser.add_argument("--java-runs", type=int, default=java_agent_cost.RUNS)
    parser.add_argument("--only", choices=("python", "java"))
    parser.add_argument("--case", action="append", default=[], help="of Java's, by its name in the table; else all")
    options = parser.parse_args(arguments)
    with KafkaCluster.start() as kafka, tempfile.TemporaryDirectory(prefix="tidegate-bench-") as folder:
        client = KafkaClient(Connection(kafka.bootstrap))
        try:
            complaints = client.control.ensure()
            if complaints:
                raise SystemExit("; ".join(complaints))
            rows: list[Row] = []
            starts: list[Row] = []
            if options.only != "java":
                fill(kafka.bootstrap, TOPIC, PARTITIONS, options.records)
                rows += [measure(kafka.bootstrap, client, case, options, Path(folder)) for case in CASES]
            if options.only != "python":
                bench = java_agent_cost.Bench(kafka.bootstrap, client, Path(folder), options.java_records)
                bench.fill()
                named = set(options.case) or {case.name for case in java_agent_cost.CASES}
                rows += [bench.reading(c, options.java_runs) for c in java_agent_cost.CASES if c.name in named]
                starts += [bench.start(c, options.java_runs) for c in java_agent_cost.STARTS if c.name in named]
        finally:
            client.close()
    Report("agent", "records/s", "without the agent", rows, lower_is_better=False).publish()
    if starts:
        Report("agent-start", "ms of CPU", "without the agent", starts).publish()


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
