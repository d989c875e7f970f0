"""What the Java agent costs an application: CPU for what it reads, and its start; see ``bench_agent``.

Whole processes in turns, as the Python agent is measured. CPU is what counts, as the records come from a broker on the
same machine: of the whole process, with the thread that reads the control topic, in readings of a topic from its
beginning to its end, once the JVM has compiled most of what it uses. What its compilers take meanwhile is left out: it
ends, but only after minutes, and with the agent there is more to compile, about 1 s of CPU in all.
"""

from __future__ import annotations

import json
import os
import subprocess
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, Final

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from devstack import prerequisites
from devstack.java_clients import java_program, kafka_client
from devstack.toolcache import Build, toolcache
from perf.report import Row
from support.java_applications import agent_environment
from tidegate.control.records import Hold, HoldKey
from tidegate.kafka_client.client import KafkaClient

SOURCE: Final = Path(__file__).with_name("java") / "ReadingApplication.java"
TOPIC: Final = "java-records"
PARTITIONS: Final = 10
RECORD_BYTES: Final = 150
RECORDS: Final = 1_000_000
"""Of one reading. At a consumer's defaults it takes a second or more on a loopback, most of it waiting."""
WARM, COUNTED = 15, 10
"""Readings."""
RUNS: Final = 9
IDLE_MS: Final = 1000
"""In which the agent's acks are written, by which is known that it ran."""
TIMEOUT_S: Final = 300
HEAP: Final = ("-Xms512m", "-Xmx512m")
"""Of one size, as consumers in production have it. Left to itself, G1 cuts a heap that is still nearly empty to a tenth
when the JVM's classes exceed 21 MB (``MetaspaceSize``), and collects more often from then on. This application alone
stays just below that, at 20 MB; one with a logging framework does not, with the agent or without."""


@dataclass(frozen=True, slots=True)
class Case:
    """``closed``: a partition whose gate is closed, or that the application without the agent pauses itself."""

    client: str
    protocol: str
    closed: int = -1

    @property
    def name(self) -> str:
        protocol = ", KIP-848" if self.protocol == "consumer" else ""
        return f"java {self.client}{protocol}{', one gate of ten closed' if self.closed >= 0 else ''}"


CASES: Final = (
    Case("2.8.2", "classic"),
    Case("4.3.1", "classic"),
    Case("4.3.1", "consumer"),
    Case("2.8.2", "classic", closed=0),
    Case("4.3.1", "consumer", closed=0),
)
STARTS: Final = (Case("2.8.2", "classic"), Case("4.3.1", "consumer"))


class Bench:
    """A broker with a topic that is filled; ``records``: how many there are, a multiple of `PARTITIONS`."""

    def __init__(self, bootstrap: str, client: KafkaClient, folder: Path, records: int) -> None:
        self._bootstrap, self._client, self._folder = bootstrap, client, folder
        self._records = records // PARTITIONS * PARTITIONS
        self._numbers = count()

    def fill(self) -> None:
        """Once."""
        fill(self._bootstrap, TOPIC, PARTITIONS, self._records)

    def reading(self, case: Case, runs: int) -> Row:
        """Records a second of CPU."""
        return in_turns(case.name, runs, lambda with_agent: self._rate(case, with_agent=with_agent))

    def start(self, case: Case, runs: int) -> Row:
        """Milliseconds of CPU of a process that starts, reads one record of each partition and ends."""
        return in_turns(f"{case.name}, start", runs, lambda with_agent: self._start_ms(case, with_agent=with_agent))

    def _rate(self, case: Case, *, with_agent: bool) -> float:
        measured, _ = self._run(case, self._records, WARM, COUNTED, with_agent=with_agent)
        read = self._records * (PARTITIONS - (case.closed >= 0)) // PARTITIONS
        return read * COUNTED / float(sum(measured["cpu_s"]))

    def _start_ms(self, case: Case, *, with_agent: bool) -> float:
        _, cpu_s = self._run(case, PARTITIONS, 0, 1, with_agent=with_agent)
        return 1000 * cpu_s

    def _run(
        self, case: Case, records: int, warm: int, counted: int, *, with_agent: bool
    ) -> tuple[dict[str, Any], float]:
        """What the application measured, and the CPU seconds of its process."""
        group = f"bench-{uuid.uuid4().hex[:8]}"
        holds = [HoldKey(group, TOPIC, case.closed, "bench")] if case.closed >= 0 and with_agent else []
        if holds:
            self._client.control.hold(dict.fromkeys(holds, Hold()))
        out = self._folder / f"{next(self._numbers)}.json"
        job = {
            "bootstrap": self._bootstrap,
            "group": group,
            "topic": TOPIC,
            "partitions": PARTITIONS,
            "records": records,
            "warm": warm,
            "counted": counted,
            "protocol": case.protocol,
            "closed": case.closed,
            "pauses": not with_agent,
            "idle_ms": IDLE_MS,
            "out": str(out),
        }
        libs = kafka_client(case.client).folder()
        command = [java_program(17), *HEAP, "-cp", f"{classes()}:{libs}/*", "ReadingApplication", json.dumps(job)]
        cpu_s = run(command, with_agent=with_agent)
        if with_agent is not bool(self._client.managed_members(group)):
            what = "did not run" if with_agent else "ran"
            raise SystemExit(f"{case.name}: the agent {what}, so nothing is compared")
        if holds:
            self._client.control.release(holds)
        measured: dict[str, Any] = json.loads(out.read_text())
        return measured, cpu_s


def run(command: list[str], *, with_agent: bool) -> float:
    """The process's CPU seconds. Raises ``SystemExit`` with what it said where it fails."""
    inherited = {n: v for n, v in os.environ.items() if not n.startswith(("TIDEGATE_", "JAVA_TOOL"))}
    environment = {**inherited, **(agent_environment("__tidegate") if with_agent else {})}
    before = os.times()
    try:
        done = subprocess.run(command, env=environment, timeout=TIMEOUT_S, capture_output=True, text=True, check=False)
    except subprocess.TimeoutExpired as slow:
        raise SystemExit(f"not within {TIMEOUT_S} s: {command[-1]}") from slow
    after = os.times()
    if done.returncode != 0:
        raise SystemExit(f"{command[-1]}\n{done.stderr[-2000:]}")
    return after.children_user + after.children_system - before.children_user - before.children_system


def in_turns(name: str, runs: int, measure: Callable[[bool], float]) -> Row:
    """With the agent and without, who begins changes with each turn; one turn of each beforehand does not count."""
    ours: list[float] = []
    anchor: list[float] = []
    for number, both in enumerate(_turns(runs, ours, anchor)):
        for with_agent, values in both:
            values.append(measure(with_agent))
        if number == 0:
            ours.clear()
            anchor.clear()
        else:
            print(f"{name}: with the agent {ours[-1]:,.0f}, without {anchor[-1]:,.0f}", flush=True)
    return Row(name, tuple(ours), tuple(anchor))


def _turns(runs: int, ours: list[float], anchor: list[float]) -> Iterator[list[tuple[bool, list[float]]]]:
    both = [(True, ours), (False, anchor)]
    for number in range(runs + 1):
        yield both if number % 2 else both[::-1]


def fill(bootstrap: str, topic: str, partitions: int, records: int) -> None:
    """Put the records on a topic of its own, evenly."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, partitions)])[topic].result(30)
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 50, "queue.buffering.max.messages": 500_000})
    value = os.urandom(RECORD_BYTES)
    for number in range(records):
        while True:
            try:
                producer.produce(topic, value, partition=number % partitions)
                break
            except BufferError:
                producer.poll(0.1)
    if producer.flush(60):
        raise SystemExit("the broker did not take all records")


def classes() -> Path:
    """The folder of the compiled application."""
    libs = kafka_client("2.8.2").folder()

    def build(build: Build) -> None:
        prerequisites.java()
        build.run(["javac", "--release", "11", "-d", str(build.folder), "-cp", f"{libs}/*", str(SOURCE)])

    return toolcache().artifact(
        "reading-application", [SOURCE, libs.name], build, label="the reading application", first_time="2 to 5 s"
    )
