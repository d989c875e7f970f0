"""A client that has looked before a broker went away looks again once it is back."""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from devstack import KafkaCluster
from support.clients import ConsumerFleet, SteadyProducer
from tidegate.kafka.connection import Connection
from tidegate.kafka.errors import Unavailable
from tidegate.kafka.model import GroupState
from tidegate.kafka_client.client import KafkaClient

# The brokers are its own, and away for most of the time.
pytestmark = pytest.mark.in_background

WITHIN_S = 30.0
ROUNDS = 3
FROZEN_S = 18.0
"""Longer than any call takes, so that answers come to requests that were given up."""
PROJECT = Path(__file__).resolve().parents[2]


def test_groups_and_topics_are_told_again_after_the_only_broker_was_killed() -> None:
    partitions = [("orders", number) for number in range(2)]
    with KafkaCluster.start() as kafka:
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
        admin.create_topics([NewTopic("orders", 2)])["orders"].result(30)
        client = KafkaClient(Connection(kafka.bootstrap))
        watch = client.topic_watch()
        with (
            SteadyProducer(kafka.bootstrap, "orders", 2, 10),
            ConsumerFleet("librdkafka", kafka.bootstrap, "payments", ["orders"], 2) as fleet,
        ):
            fleet.wait_flowing(partitions)
            assert client.groups(["payments"])["payments"].members
            topics = watch.poll(["orders"])
            [broker] = kafka.brokers
            kafka.kill(broker)
            kafka.restart(broker)
            back = time.monotonic()

            seen = None
            while seen is None or seen.state is not GroupState.STABLE:
                assert time.monotonic() - back < WITHIN_S, f"still {seen}"
                try:
                    seen = client.groups(["payments"])["payments"]
                except Unavailable:
                    continue
            told = None
            while told is None:
                assert time.monotonic() - back < WITHIN_S, "the watch tells nothing"
                with suppress(Unavailable):
                    told = watch.poll(["orders", "returns"])
            assert told == topics
        watch.close()
        client.close()


class Looks:
    """The lines of `support.steady_looks`, in a process of its own: what ends that one must not end the tests."""

    def __init__(self, process: subprocess.Popen[str], errors: Path) -> None:
        self.process = process
        self._errors = errors
        self._lines: queue.Queue[str] = queue.Queue()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        for line in self.process.stdout or ():
            self._lines.put(line.strip())

    def close(self) -> None:
        self.process.kill()
        self.process.wait(30)
        self._reader.join(30)

    def wait_answered(self, names: set[str]) -> None:
        """From now on each look is answered once more."""
        last = "nothing"
        left = set(names)
        while not self._lines.empty():
            self._lines.get()
        deadline = time.monotonic() + WITHIN_S
        while left:
            ended = self.process.poll()
            assert ended is None, f"it ended with {ended}, after: {last}\n{self._errors.read_text()}"
            assert time.monotonic() < deadline, f"not answered: {sorted(left)}; the last: {last}"
            with suppress(queue.Empty):
                last = self._lines.get(timeout=0.5)
                left.discard(last)


@contextmanager
def looking(bootstrap: str, group: str, topic: str, errors: Path) -> Iterator[Looks]:
    command = [sys.executable, "-m", "support.steady_looks", bootstrap, group, topic]
    path = os.pathsep.join(str(PROJECT / folder) for folder in ("operator", "tests"))
    with errors.open("w") as file:
        process = subprocess.Popen(
            command, env=os.environ | {"PYTHONPATH": path}, stdout=subprocess.PIPE, stderr=file, text=True
        )
        looks = Looks(process, errors)
        try:
            yield looks
        finally:
            looks.close()


LOOKS = {
    "cluster",
    "topics",
    "groups",
    "groups again",
    "log_bounds",
    "offsets_at",
    "compacted",
    "committed",
    "listing",
    "targets",
    "control",
    "retention",
    "log",
}


def killed(kafka: KafkaCluster, broker: int) -> None:
    kafka.kill(broker)
    time.sleep(1)  # nobody is there
    kafka.restart(broker)


def frozen(kafka: KafkaCluster, broker: int) -> None:
    os.kill(kafka.pid(broker), signal.SIGSTOP)
    time.sleep(FROZEN_S)
    os.kill(kafka.pid(broker), signal.SIGCONT)
    kafka.wait_ready()


def killed_while_frozen(kafka: KafkaCluster, broker: int) -> None:
    os.kill(kafka.pid(broker), signal.SIGSTOP)
    time.sleep(1)  # requests pile up
    killed(kafka, broker)


@pytest.mark.parametrize("away", [killed, frozen, killed_while_frozen])
def test_no_look_ends_the_process_and_each_is_answered_again(
    away: Callable[[KafkaCluster, int], None], tmp_path: Path
) -> None:
    """librdkafka's admin client would abort it (librdkafka issue 4605): requests are sent, given up, answered late."""
    errors = tmp_path / "errors"
    with KafkaCluster.start() as kafka:
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
        admin.create_topics([NewTopic("orders", 2)])["orders"].result(30)
        [broker] = kafka.brokers
        with (
            ConsumerFleet("librdkafka", kafka.bootstrap, "payments", ["orders"], 1),
            looking(kafka.bootstrap, "payments", "orders", errors) as looks,
        ):
            looks.wait_answered(LOOKS)
            for _ in range(ROUNDS):
                away(kafka, broker)
                looks.wait_answered(LOOKS)
        assert errors.read_text() == ""


@pytest.mark.nightly
def test_looks_are_answered_while_one_of_three_brokers_is_frozen(kafka3: KafkaCluster, tmp_path: Path) -> None:
    """Coordinators and leaders that are silent, and not known to be dead, are followed as those that were killed."""
    errors = tmp_path / "errors"
    topic = f"orders-{time.time_ns()}"
    admin = AdminClient({"bootstrap.servers": kafka3.bootstrap})
    admin.create_topics([NewTopic(topic, 2, 3)])[topic].result(30)
    with (
        ConsumerFleet("librdkafka", kafka3.bootstrap, topic, [topic], 1),
        looking(kafka3.bootstrap, topic, topic, errors) as looks,
    ):
        looks.wait_answered(LOOKS)
        for broker in kafka3.brokers:
            os.kill(kafka3.pid(broker), signal.SIGSTOP)
            try:
                looks.wait_answered(LOOKS)
            finally:
                os.kill(kafka3.pid(broker), signal.SIGCONT)
            kafka3.wait_ready()
            looks.wait_answered(LOOKS)
    assert errors.read_text() == ""
