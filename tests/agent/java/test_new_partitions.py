"""New partitions under ``latest`` of Java's consumers (KIP-1327), by protocol and release, on a real broker."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from devstack import KafkaCluster
from support.gated_applications import Application, Job
from support.java_applications import Java, JavaProcess, agent_environment
from support.new_partitions import ADDED, COMMITTED, EARLIER, INITIAL, MAX_AGE_MS, NEW, OLD, Given, live_through
from tidegate_agent.settings import Settings

CLIENTS = {
    "2.8.2": Java("2.8.2"),
    "4.3.1, KIP-848": Java("4.3.1", "consumer"),
}


class JavaReader:
    """One consumer in a JVM with the agent."""

    def __init__(self, bootstrap: str, topic: str, name: str, jvm: JavaProcess) -> None:
        self.group = f"{topic}-{name.replace(', ', '-').replace(' ', '-')}"
        config = {
            "auto.offset.reset": "latest",
            "auto.offset.reset.latest.max.age": MAX_AGE_MS,
            "metadata.max.age.ms": 300,
        }
        job = Job(bootstrap, self.group, [topic], Settings(), config=config)
        self._application: Application = jvm.application(job)

    def start(self) -> None:
        self._application.start()

    def offsets(self, partition: int) -> list[int]:
        assert not self._application.errors, self._application.errors
        return [given.offset for given in list(self._application.given) if given.partition == partition]

    def stop(self) -> None:
        self._application.stop()


@pytest.fixture(scope="module")
def given(kafka: KafkaCluster) -> Iterator[Given]:
    """Once each has something of every partition it has."""
    with ExitStack() as stack:
        environment = agent_environment(Settings().control_topic)
        jvms = {java: stack.enter_context(JavaProcess(java, environment)) for java in CLIENTS.values()}
        yield live_through(
            kafka.bootstrap,
            lambda topic: {n: JavaReader(kafka.bootstrap, topic, n, jvms[java]) for n, java in CLIENTS.items()},
        )


@pytest.mark.parametrize("name", CLIENTS)
def test_new_partitions_begin_at_their_first_record_and_old_ones_at_latest(given: Given, name: str) -> None:
    assert given[name][NEW] == list(range(len(given[name][NEW])))
    assert given[name][OLD][0] >= EARLIER


@pytest.mark.parametrize("name", CLIENTS)
def test_what_was_there_at_first_what_is_added_and_what_is_out_of_range(given: Given, name: str) -> None:
    assert given[name][ADDED] == list(range(len(given[name][ADDED])))
    assert given[name][INITIAL][0] >= EARLIER
    assert given[name][COMMITTED][0] >= EARLIER
