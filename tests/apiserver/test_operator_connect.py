"""ConsumerGroupPause of sink connectors: real API server, real broker, a real worker of Kafka Connect."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from apiserver.conftest import StartOperator
from apiserver.offsets import committed
from devstack import KafkaCluster
from support.connect_worker import FILE_SOURCE, ConnectWorker
from support.operator_process import Resources, condition_of, until
from support.stack_fixtures import MakeTopic, Unique
from tidegate.connect.ports import PAUSED, RUNNING, STOPPED

PARTITIONS = 2
TARGET = 5


class Flow:
    """Records ``partition:offset`` at 100 a second and partition, into a topic of its own, until it is closed."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.produced = 0
        self._topic = topic
        self._producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "enable.idempotence": True})
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._produce, daemon=True)
        self._thread.start()

    def _produce(self) -> None:
        while not self._ended.wait(0.01):
            for partition in range(PARTITIONS):
                self._producer.produce(self._topic, f"{partition}:{self.produced}", partition=partition)
            self._producer.poll(0)
            self.produced += 1

    def close(self) -> None:
        self._ended.set()
        self._thread.join()
        assert self._producer.flush(30) == 0


class Sink:
    """A sink connector that writes into ``file``, and what it has written."""

    def __init__(self, worker: ConnectWorker, name: str, topic: str, file: Path, **config: str) -> None:
        self.name, self.group, self._file = name, f"connect-{name}", file
        worker.create_sink(name, topic, file, **config)

    @property
    def ref(self) -> Mapping[str, Any]:
        return {"method": "Connect", "connector": {"cluster": "main", "name": self.name}}

    def offsets(self, begin: int = 0) -> dict[int, list[int]]:
        """By partition, the offsets of the lines from number ``begin`` on, in their order."""
        found: dict[int, list[int]] = {partition: [] for partition in range(PARTITIONS)}
        for line in self._file.read_text().splitlines()[begin:]:
            partition, _, offset = line.partition(":")
            found[int(partition)].append(int(offset))
        return found

    @property
    def written(self) -> int:
        return self._file.read_text().count("\n") if self._file.exists() else 0


@pytest.fixture
def p(unique: Unique) -> str:
    """The name of the test's pause and of its connector."""
    return unique("p")


@pytest.fixture
def topic(make_topic: MakeTopic) -> str:
    return make_topic(PARTITIONS)


@pytest.fixture
def flow(kafka: KafkaCluster, topic: str) -> Iterator[Flow]:
    flow = Flow(kafka.bootstrap, topic)
    yield flow
    flow.close()


def connect(resources: Resources, kafka: KafkaCluster, worker: ConnectWorker, name: str = "kafka-connect") -> None:
    """A connection with the worker's cluster ``main``, in the namespace of an operator that runs."""
    resources.connection(name, kafka.bootstrap, connect=[{"name": "main", "url": worker.url}])
    resources.wait_connection(name)


@pytest.fixture(scope="module")
def connected_to_both(shared: Resources, kafka: KafkaCluster, connect_worker: ConnectWorker) -> Resources:
    connect(shared, kafka, connect_worker)
    return shared


BOTH = {"connectionRef": {"name": "kafka-connect"}}


def test_a_sink_is_stopped_while_records_flow_reset_and_reads_exactly_from_there(
    connected_to_both: Resources,
    connect_worker: ConnectWorker,
    kafka: KafkaCluster,
    topic: str,
    flow: Flow,
    p: str,
    tmp_path: Path,
) -> None:
    resources, sink = connected_to_both, Sink(connect_worker, p, topic, tmp_path / "out")
    until(lambda: sink.written > 100, "it writes")

    resources.pause(p, sink.group, reason="INC-4711", **BOTH, **sink.ref)
    body = resources.wait_pause(p, "Paused", f"{PARTITIONS}/{PARTITIONS}", timeout_s=60)
    before, stood, produced = sink.written, committed(kafka.bootstrap, sink.group, topic, PARTITIONS), flow.produced
    assert connect_worker.states(p) == (STOPPED,)
    assert condition_of(body, "Ready")["status"] == condition_of(body, "Paused")["status"] == "True"
    assert (body["status"]["connector"]["state"], body["status"]["method"]) == ("Running", "Connect")
    until(lambda: flow.produced > produced + 200, "records flow on")
    assert (sink.written, committed(kafka.bootstrap, sink.group, topic, PARTITIONS)) == (before, stood)
    # What it had written is what it has committed.
    assert {partition: max(offsets) + 1 for partition, offsets in sink.offsets().items()} == stood

    resources.reset(p, sink.group, {"offset": TARGET}, **BOTH, partitions=[{"topic": topic, "partitions": "0"}])
    done = resources.wait_phase(p, "Succeeded", "Failed", "RolledBack")
    assert (done["status"]["phase"], done["status"]["way"]) == ("Succeeded", "Unowned")
    assert committed(kafka.bootstrap, sink.group, topic, PARTITIONS) == {**stood, 0: TARGET}

    resources.delete_pause(p)
    until(lambda: resources.get("consumergrouppauses", p) is None, "it is gone")
    connect_worker.wait_states(p, RUNNING)
    flow.close()
    end = flow.produced
    until(lambda: sink.written == before + (end - TARGET) + (end - stood[1]), "all is written", timeout_s=60)
    assert sink.offsets(before) == {0: list(range(TARGET, end)), 1: list(range(stood[1], end))}
    connect_worker.delete(p)


def test_what_somebody_else_had_paused_stays_paused(
    connected_to_both: Resources, connect_worker: ConnectWorker, topic: str, p: str, tmp_path: Path
) -> None:
    resources, sink = connected_to_both, Sink(connect_worker, p, topic, tmp_path / "out")
    connect_worker.call("PUT", f"/connectors/{p}/pause")
    connect_worker.wait_states(p, PAUSED)
    resources.pause(p, sink.group, **BOTH, **sink.ref)
    assert resources.wait_pause(p, "Paused")["status"]["connector"]["state"] == "Paused"
    resources.patch_pause(p, suspend=True)
    resources.wait_pause(p, "Resumed", reason="Suspended")
    until(lambda: connect_worker.states(p) == (PAUSED,), "it is paused as before")
    resources.delete_pause(p)
    connect_worker.delete(p)


def test_what_can_not_be_stopped_is_refused_and_untouched(
    connected_to_both: Resources, connect_worker: ConnectWorker, topic: str, p: str, tmp_path: Path
) -> None:
    resources, sink = connected_to_both, Sink(connect_worker, p, topic, tmp_path / "out")
    (tmp_path / "in").touch()
    source = f"{p[:50]}-source"
    connect_worker.create(source, {"connector.class": FILE_SOURCE, "topic": topic, "file": str(tmp_path / "in")})
    cases = {
        "ConnectorNotFound": (sink.group, {"cluster": "main", "name": f"{p}-none"}),
        "NotASinkConnector": (f"connect-{source}", {"cluster": "main", "name": source}),
        "GroupOfConnector": ("payments", {"cluster": "main", "name": p}),
        "ConnectClusterNotFound": (sink.group, {"cluster": "other", "name": p}),
    }
    for number, (reason, (group, connector)) in enumerate(cases.items()):
        name = f"{p[:50]}-{number}"
        resources.pause(name, group, **BOTH, method="Connect", connector=connector)
        body = resources.wait_pause(name, "Pending", reason=reason)
        assert not body["metadata"].get("finalizers")
        resources.delete_pause(name)
    assert connect_worker.states(p) == connect_worker.states(source) == (RUNNING, RUNNING)
    for name in (p, source):
        connect_worker.delete(name)


@pytest.mark.nightly
def test_workers_before_kafka_3_5_are_refused_and_untouched(
    resources: Resources,
    start_operator: StartOperator,
    kafka: KafkaCluster,
    topic: str,
    p: str,
    tmp_path: Path,
) -> None:
    with ConnectWorker(kafka.bootstrap, "3.4.1") as worker:
        sink = Sink(worker, p, topic, tmp_path / "out")
        start_operator()
        connect(resources, kafka, worker)
        resources.pause(p, sink.group, **BOTH, **sink.ref)
        resources.wait_pause(p, "Pending", reason="ConnectTooOld")
        assert worker.states(p) == (RUNNING, RUNNING)


@pytest.mark.nightly
def test_worker_and_operator_are_killed_midway_and_nothing_is_lost(
    resources: Resources,
    start_operator: StartOperator,
    kafka: KafkaCluster,
    topic: str,
    flow: Flow,
    p: str,
    tmp_path: Path,
) -> None:
    """Its task's member outlives a killed worker by the session's time-out, and it is not called paused before."""
    with ConnectWorker(kafka.bootstrap) as worker:
        # Brokers take no shorter session than 6 s.
        sink = Sink(worker, p, topic, tmp_path / "out", **{"consumer.override.session.timeout.ms": "6000"})
        until(lambda: sink.written > 100, "it writes")
        operator = start_operator()
        connect(resources, kafka, worker)

        worker.kill()
        resources.pause(p, sink.group, **BOTH, **sink.ref)
        resources.wait_pause(p, "Pending", reason="ConnectUnavailable")
        operator.kill()
        worker.start()
        operator = start_operator()
        resources.wait_pause(p, "Paused", timeout_s=90)
        assert worker.states(p) == (STOPPED,)
        before, stood = sink.written, committed(kafka.bootstrap, sink.group, topic, PARTITIONS)

        operator.kill()
        worker.kill()
        resources.delete_pause(p)
        operator = start_operator()
        until(lambda: resources.get_pause(p)["status"]["phase"] == "Resuming", "it waits for Connect")
        worker.start()
        until(lambda: resources.get("consumergrouppauses", p) is None, "it is gone", timeout_s=60)
        worker.wait_states(p, RUNNING)
        flow.close()
        end = flow.produced
        until(lambda: sink.offsets(before) == _from(stood, end), "all is written, and nothing twice", timeout_s=60)


def _from(stood: Mapping[int, int], end: int) -> dict[int, list[int]]:
    return {partition: list(range(stood[partition], end)) for partition in range(PARTITIONS)}
