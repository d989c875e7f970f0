"""What the benchmark of scale runs: a broker with many topics and groups, an API server, and a namespace of resources
with an operator of its own for each rung."""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient, NewTopic
from kubernetes import client as kube

from devstack import ApiServer, KafkaCluster
from support.operator_process import Body, OperatorProcess, condition_of
from tidegate.kafka.connection import Connection
from tidegate.kafka.errors import KafkaFailure
from tidegate.kafka.model import TopicPartition
from tidegate.kafka_client.client import KafkaClient

LIVE_MEMBERS = 20
SPARES = 10
"""Groups that no resource of the ladder names: those of one more reset, and of one more pause."""

PARTITIONS_OF_A_BROKER = 17_000
"""Each keeps a file open, and many machines allow a process 20,000."""

_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
_CREATED_AT_ONCE = 50
_CREATORS = 4
_SET_UP_S = 900.0
_REQUESTS = "kafka.network:type=RequestMetrics,name=RequestsPerSec,request=*,version=*"
_WRITES = ("create", "update", "patch", "delete", "deletecollection")

PAUSES, POLICIES, RESETS = "consumergrouppauses", "offsetresetpolicies", "offsetresets"


@dataclass(frozen=True, slots=True)
class Size:
    """How much there is on the Kafka cluster."""

    topics: int
    partitions: int
    groups: int


@dataclass(frozen=True, slots=True)
class Asked:
    """A resource of the ladder, and when it is settled."""

    plural: str
    kind: str
    name: str
    spec: Body
    is_settled: Callable[[Body], bool]


def brokers_for(size: Size) -> int:
    return -(-size.topics * size.partitions // PARTITIONS_OF_A_BROKER)


def topic(number: int) -> str:
    return f"scale.topic-{number:05d}"


def group(number: int) -> str:
    return f"scale-group-{number:05d}"


def spare(number: int) -> str:
    return f"scale-spare-{number:02d}"


def connection(number: int) -> str:
    return "kafka" if number == 0 else f"kafka-{number:03d}"


def ladder(resources: int, size: Size, connections: int = 1) -> list[Asked]:
    """So many resources, each of a group of its own as far as there are enough: half pauses (half of them of named
    topics, half of all that the group reads), a quarter of discovery, an eighth of finished resets and an eighth that
    wait for approval. Those of discovery come first: the groups with members are among theirs. They take turns in going
    through so many connections."""
    kinds = [*["discovery"] * 2, *["finished", "waiting"], *["named", "whole"] * 2]
    order = sorted((kinds[n % 8] for n in range(resources)), key=lambda kind: kind != "discovery")
    return [_asked(kind, number, size, connection(number % connections)) for number, kind in enumerate(order)]


def _asked(kind: str, number: int, size: Size, through: str) -> Asked:
    chosen = number % size.groups
    if kind != "discovery" and chosen < LIVE_MEMBERS:
        # Their members run no agent: a pause would wait for them for ever.
        chosen += LIVE_MEMBERS
    of: Body = {"connectionRef": {"name": through}, "group": group(chosen)}
    named = topic(chosen % size.topics)
    match kind:
        case "discovery":
            spec = {**of, "topics": [named], "discovery": {}}
            return Asked(POLICIES, "OffsetResetPolicy", f"discovery-{number}", spec, _is_guarded)
        case "finished":
            spec = {**of, "reset": {"id": "once", "to": {"earliest": {}}, "engine": "Direct"}}
            return Asked(POLICIES, "OffsetResetPolicy", f"finished-{number}", spec, _has_phase("Succeeded"))
        case "waiting":
            reset = {"id": "once", "to": {"earliest": {}}, "engine": "Direct", "approval": "Manual"}
            spec = {**of, "reset": reset}
            return Asked(POLICIES, "OffsetResetPolicy", f"waiting-{number}", spec, _has_phase("AwaitingApproval"))
        case "named":
            spec = {**of, "partitions": [{"topic": named}]}
            return Asked(PAUSES, "ConsumerGroupPause", f"named-{number}", spec, _is_paused)
        case _:
            return Asked(PAUSES, "ConsumerGroupPause", f"whole-{number}", of, _is_paused)


def _is_observed(body: Body) -> bool:
    return bool(body.get("status", {}).get("observedGeneration") == body["metadata"]["generation"])


def _is_paused(body: Body) -> bool:
    return _is_observed(body) and body["status"].get("phase") == "Paused"


def _is_guarded(body: Body) -> bool:
    """By it, or by the policy that looks after the same group: the top rungs have more policies than groups."""
    status = body.get("status", {})
    is_guarded = bool((status.get("discovery") or {}).get("initialDiscoveryFinished"))
    return _is_observed(body) and (is_guarded or bool(status.get("overriddenBy")))


def _has_phase(phase: str) -> Callable[[Body], bool]:
    def has_phase(body: Body) -> bool:
        return bool((body.get("status", {}).get("reset") or {}).get("phase") == phase)

    return has_phase


class Crowd:
    """One broker with all topics and groups, twenty members, and how many requests it has answered."""

    def __init__(self, kafka: KafkaCluster, size: Size) -> None:
        self.kafka = kafka
        self.size = size
        first = random.randint(20000, 40000)
        self._jmx_ports = range(first, first + brokers_for(size))
        self._over = threading.Event()
        self._members = [self._member(number) for number in range(LIVE_MEMBERS)]

    def set_up(self) -> None:
        began = time.monotonic()
        self._create_topics()
        self._commit()
        for broker, port in enumerate(self._jmx_ports):
            command = ["jcmd", str(self.kafka.pid(broker)), "ManagementAgent.start", f"jmxremote.port={port}"]
            command += ["jmxremote.ssl=false", "jmxremote.authenticate=false", "jmxremote.host=127.0.0.1"]
            subprocess.run(command, check=True, capture_output=True)
        for member in self._members:
            member.start()
        print(f"topics and groups took {time.monotonic() - began:.0f} s", flush=True)

    def close(self) -> None:
        self._over.set()
        for member in self._members:
            if member.is_alive():
                member.join(10)

    def requests(self) -> int:
        """All that the brokers were ever asked, by whomever."""
        return sum(self._requests_to(port) for port in self._jmx_ports)

    def _requests_to(self, jmx_port: int) -> int:
        said = self.kafka.tool(
            "org.apache.kafka.tools.JmxTool",
            *("--jmx-url", f"service:jmx:rmi:///jndi/rmi://127.0.0.1:{jmx_port}/jmxrmi"),
            *("--object-name", _REQUESTS, "--attributes", "Count", "--one-time", "--report-format", "properties"),
        )
        return sum(int(found) for found in re.findall(r":Count=(\d+)", said))

    def _create_topics(self) -> None:
        admin = AdminClient({"bootstrap.servers": self.kafka.bootstrap})
        for start in range(0, self.size.topics, _CREATED_AT_ONCE):
            numbers = range(start, min(start + _CREATED_AT_ONCE, self.size.topics))
            new = [NewTopic(topic(number), self.size.partitions, 1) for number in numbers]
            for future in admin.create_topics(new, operation_timeout=60).values():
                future.result(120)
        deadline = time.monotonic() + _SET_UP_S
        while len(admin.list_topics(timeout=60).topics) < self.size.topics:
            if time.monotonic() > deadline:
                raise SystemExit("not all topics are there")
            time.sleep(1)

    def _commit(self) -> None:
        """Offsets of the groups without members: all of the partitions of one topic each."""
        client = KafkaClient(Connection(self.kafka.bootstrap))
        named = [(group(n), n) for n in range(LIVE_MEMBERS, self.size.groups)]
        named += [(spare(n), n) for n in range(SPARES)]
        try:
            for name, number in named:
                partitions = range(self.size.partitions)
                offsets = {TopicPartition(topic(number % self.size.topics), p): 0 for p in partitions}
                self._alter(client, name, offsets)
        finally:
            client.close()

    def _alter(self, client: KafkaClient, name: str, offsets: dict[TopicPartition, int]) -> None:
        """A broker that has just made its offsets topic takes its time before it is any group's coordinator."""
        deadline = time.monotonic() + _SET_UP_S
        while True:
            try:
                client.writer(name, transaction_timeout_s=60).alter(name, offsets)
            except KafkaFailure:
                if time.monotonic() > deadline:
                    raise
                time.sleep(1)
            else:
                return

    def _member(self, number: int) -> threading.Thread:
        def poll() -> None:
            settings = {"bootstrap.servers": self.kafka.bootstrap, "group.id": group(number)}
            consumer = Consumer({**settings, "auto.offset.reset": "earliest"})
            consumer.subscribe([topic(number % self.size.topics)])
            while not self._over.is_set():
                consumer.poll(0.5)
            consumer.close()

        return threading.Thread(target=poll, daemon=True)


@dataclass(slots=True)
class Probes:
    """Asks ``/healthz`` once a second, as a kubelet does: an answer that takes longer than a second is none."""

    operator: OperatorProcess
    asked: int = 0
    failed: int = 0
    _over: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def start(self) -> None:
        self._thread = threading.Thread(target=self._probe, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._over.set()
        if self._thread is not None:
            self._thread.join(10)

    def _probe(self) -> None:
        while not self._over.wait(1):
            began = time.monotonic()
            try:
                well = self.operator.get("/healthz")[0] == 200
            except OSError:
                well = False
            self.asked += 1
            self.failed += not (well and time.monotonic() - began <= 1)


class Rung:
    """One namespace, its operator, and what is asked of it."""

    def __init__(self, server: ApiServer, api: kube.ApiClient, crowd: Crowd, namespace: str) -> None:
        self.crowd = crowd
        self.namespace = namespace
        self._server = server
        self._custom = kube.CustomObjectsApi(api)

    def create(self, plural: str, kind: str, name: str, spec: Body) -> None:
        body = {"apiVersion": "tidegate.io/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec}
        self._custom.create_namespaced_custom_object("tidegate.io", "v1alpha1", self.namespace, plural, body)

    def connect(self, connections: int = 1) -> None:
        """A control topic of its own: what other rungs hold is none of its business."""
        spec = {"bootstrapServers": self.crowd.kafka.bootstrap, "controlTopic": {"name": f"tidegate-{self.namespace}"}}
        names = [connection(number) for number in range(connections)]
        for name in names:
            self.create("kafkaconnections", "KafkaConnection", name, spec)
        for name in names:
            self.wait(lambda name=name: self._is_ready(name), 300)  # type: ignore[misc]

    def _is_ready(self, name: str) -> bool:
        return condition_of(self.get("kafkaconnections", name), "Ready").get("status") == "True"

    def apply(self, asked: list[Asked]) -> float:
        """Create all; when the last one was there (monotonic seconds)."""
        with ThreadPoolExecutor(_CREATORS) as pool:
            list(pool.map(lambda a: self.create(a.plural, a.kind, a.name, a.spec), asked))
        return time.monotonic()

    def unsettled(self, asked: list[Asked]) -> list[Asked]:
        there: dict[tuple[str, str], Body] = {}
        for plural in {a.plural for a in asked}:
            found = self._custom.list_namespaced_custom_object("tidegate.io", "v1alpha1", self.namespace, plural)
            there |= {(plural, body["metadata"]["name"]): body for body in found["items"]}
        return [a for a in asked if not a.is_settled(there[a.plural, a.name])]

    def get(self, plural: str, name: str) -> Body:
        found: Body = self._custom.get_namespaced_custom_object("tidegate.io", "v1alpha1", self.namespace, plural, name)
        return found

    def wait(self, reached: Callable[[], Any], limit_s: float) -> float | None:
        """Seconds until then, looking every 20 ms; ``None``: not within the limit."""
        began = time.monotonic()
        while not reached():
            if time.monotonic() - began > limit_s:
                return None
            time.sleep(0.02)
        return time.monotonic() - began

    def requests_to_api(self) -> Counter[str]:
        """By verb, what was asked of the API server about this namespace."""
        counts: Counter[str] = Counter()
        with self._server.audit_log.open() as lines:
            for line in lines:
                if self.namespace in line:
                    entry = json.loads(line)
                    if entry.get("objectRef", {}).get("namespace") == self.namespace:
                        counts[entry["verb"]] += 1
        return counts


@contextlib.contextmanager
def bare_kopf(kubeconfig: Path, namespace: str, log: Path) -> Iterator[int]:
    """An operator that only watches what is in the namespace; its process id."""
    script = Path(__file__).with_name("bare_kopf.py")
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, str(script), namespace],
            env={**os.environ, "KUBECONFIG": str(kubeconfig)},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        )
        try:
            yield process.pid
        finally:
            process.terminate()
            process.wait(60)


def writes(counts: Counter[str]) -> int:
    return sum(counts[verb] for verb in _WRITES)


def cpu_s(pid: int) -> float:
    """User and system time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS_PER_SECOND


def resident_mib(pid: int) -> float:
    found = re.search(r"(?m)^VmRSS:\s+(\d+) kB$", Path(f"/proc/{pid}/status").read_text())
    if found is None:
        raise RuntimeError(f"process {pid} has no VmRSS")
    return int(found[1]) / 1024


@contextlib.contextmanager
def crowded(size: Size) -> Iterator[Crowd]:
    """A broker with everything on it, or as many as that takes."""
    # Segments are preallocated nowhere, and their indexes are small.
    properties = {"log.index.size.max.bytes": "4096", "log.segment.bytes": "1048576"}
    with KafkaCluster.start(brokers_for(size), properties, heap="1536m") as kafka:
        crowd = Crowd(kafka, size)
        try:
            crowd.set_up()
            yield crowd
        finally:
            crowd.close()
