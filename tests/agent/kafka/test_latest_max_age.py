"""New partitions under ``latest``, as KIP-1327 has them, for each client library and protocol on a real broker.

All clients live through the same at once (`support.new_partitions`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from agent.kafka.confluent_application import Application as ConfluentApplication
from devstack import KafkaCluster
from support.gated_applications import KINDS, Application, Job, KafkaPythonApplication, parts_replaced
from support.new_partitions import ADDED, COMMITTED, EARLIER, INITIAL, MAX_AGE_MS, NEW, OLD, Given, live_through
from tidegate_agent.settings import Settings

CLIENTS = {
    "librdkafka, range": {"protocol": "range"},
    "librdkafka, cooperative": {"protocol": "cooperative"},
    "librdkafka, KIP-848": {"protocol": "kip-848"},
    "librdkafka, assigned by hand": {"by_hand": True},
    "aiokafka": {},
    "kafka-python": {},
}
SUBSCRIBED = [name for name in CLIENTS if "by hand" not in name]


class PatientApplication(KafkaPythonApplication):
    """Its polls last as long as joining may: kafka-python 3.0 forgets a join whose poll ends under way."""

    def _batches(self, consumer: Any) -> Iterator[list[Any]]:
        for batch in consumer.poll(5_000).values():
            for record in batch:
                self._note(record)
            yield batch


PYTHON: dict[str, type[Application]] = {**KINDS, "kafka-python": PatientApplication}


class ClientReader:
    """One client's application; ``offsets`` has what it was given, by partition and in order."""

    def __init__(self, bootstrap: str, topic: str, name: str) -> None:
        self.group = f"{topic}-{name.replace(', ', '-').replace(' ', '-')}"
        librdkafka: dict[str, Any] = {
            "auto.offset.reset": "latest",
            "auto.offset.reset.latest.max.age": MAX_AGE_MS,
            "topic.metadata.refresh.interval.ms": 300,
        }
        python: dict[str, Any] = {
            "auto_offset_reset": "latest",
            "auto_offset_reset_latest_max_age": MAX_AGE_MS,
            "metadata_max_age_ms": 300,
        }
        self._confluent: ConfluentApplication | None = None
        if name in PYTHON:
            self._python = PYTHON[name](Job(bootstrap, self.group, [topic], Settings(), config=python))
            self._start = self._python.start
        else:
            options = CLIENTS[name]
            self._start = lambda: setattr(
                self, "_confluent", ConfluentApplication(bootstrap, self.group, topic, config=librdkafka, **options)
            )

    def start(self) -> None:
        self._start()

    def offsets(self, partition: int) -> list[int]:
        if self._confluent is not None:
            assert self._confluent.error is None, self._confluent.error
            return self._confluent.offsets(partition)
        assert not self._python.errors, self._python.errors
        return [given.offset for given in list(self._python.given) if given.partition == partition]

    def stop(self) -> None:
        if self._confluent is not None:
            self._confluent.close()
        else:
            self._python.stop()


@pytest.fixture(scope="module")
def given(kafka: KafkaCluster) -> Given:
    """Once each has something of every partition it has."""
    with parts_replaced():
        return live_through(
            kafka.bootstrap,
            lambda topic: {name: ClientReader(kafka.bootstrap, topic, name) for name in CLIENTS},
            CLIENTS.keys() - SUBSCRIBED,
        )


@pytest.mark.parametrize("name", CLIENTS)
def test_a_new_partition_begins_at_its_first_record(given: Given, name: str) -> None:
    assert given[name][NEW] == list(range(len(given[name][NEW])))


@pytest.mark.parametrize("name", SUBSCRIBED)
def test_so_does_one_that_is_added_under_a_live_group(given: Given, name: str) -> None:
    assert given[name][ADDED] == list(range(len(given[name][ADDED])))


@pytest.mark.parametrize("name", CLIENTS)
def test_an_older_one_begins_at_latest(given: Given, name: str) -> None:
    assert given[name][OLD][0] >= EARLIER


@pytest.mark.parametrize("name", SUBSCRIBED)
def test_one_of_the_first_discovery_begins_at_latest(given: Given, name: str) -> None:
    assert given[name][INITIAL][0] >= EARLIER


@pytest.mark.parametrize("name", SUBSCRIBED)
def test_a_committed_offset_that_is_out_of_range_is_reset_to_latest_whatever_the_age(given: Given, name: str) -> None:
    assert given[name][COMMITTED][0] >= EARLIER
