"""What a link to the control topic owes, the Python agent's as well as the Java agent's: above all that a topic which
is lost and made anew opens no gate before its holders have had the time to write it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from devstack import KafkaCluster
from devstack.processes import eventually
from support.control_links import JavaLinks, Link, Links, PythonLinks
from support.needs import starts
from support.stack_fixtures import Unique
from tidegate.control.records import Ack, AckKey, Hold, HoldKey, PartitionKey, PartitionSeen
from tidegate.kafka.connection import Connection
from tidegate.kafka.errors import Fenced
from tidegate.kafka_client.client import KafkaClient
from tidegate.kafka_client.fenced_writer import FencedWriter
from tidegate_agent.gates import Gate, Partition

WITHIN_S = 90.0
ORDERS = Partition("orders", 0)
KEY = HoldKey("payments", "orders", 0, "pause/c/p")
PYTHON = "python"
KINDS = [PYTHON, "2.8.2", pytest.param("3.9.2", marks=pytest.mark.nightly), "4.3.1"]
"""The Python agent, and the Java agent with these releases of kafka-clients."""


class Scene:
    """A control topic of its own, what the operator does to it, and an agent's link."""

    def __init__(self, kafka: KafkaCluster, topic: str, links: Links) -> None:
        self.topic = topic
        self.bootstrap = kafka.bootstrap
        self.links = links
        self.admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
        self.client = KafkaClient(Connection(kafka.bootstrap, control_topic=topic))
        self.client.control.ensure()
        self.link = self.another_link()

    def another_link(self) -> Link:
        return self.links.open({"bootstrap.servers": self.bootstrap}, self.topic)

    def hold(self) -> int:
        return self.client.control.hold({KEY: Hold("looked into", 1000)})[KEY]

    def delete(self) -> None:
        self.admin.delete_topics([self.topic], operation_timeout=30)[self.topic].result(30)

    def lose(self) -> None:
        self.delete()
        self.until(lambda: not self.client.control.ensure() and self.client.control.exist, "there is a new topic")

    def gate(self) -> Gate | None:
        return self.link.known.gate("payments", ORDERS)

    def until(self, reached: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + WITHIN_S
        while not reached():
            assert time.monotonic() < deadline, f"not within {WITHIN_S} s: {what}; {self.link.known}"
            self.client.control.read(wait_s=0.05)

    def close(self) -> None:
        self.link.close()
        self.client.close()


@pytest.fixture(scope="module")
@starts("kafka")
def jvms() -> Iterator[Callable[[str], JavaLinks]]:
    """By the release of kafka-clients; started when they are first asked for."""
    with ExitStack() as stack:
        started: dict[str, JavaLinks] = {}

        def jvm(client: str) -> JavaLinks:
            if client not in started:
                started[client] = stack.enter_context(JavaLinks(client))
            return started[client]

        yield jvm


@pytest.fixture(params=KINDS)
def links(request: pytest.FixtureRequest, jvms: Callable[[str], JavaLinks]) -> Links:
    return PythonLinks() if request.param == PYTHON else jvms(request.param)


@pytest.fixture
def scene(kafka: KafkaCluster, unique: Unique, links: Links) -> Iterator[Scene]:
    scene = Scene(kafka, unique("control"), links)
    scene.hold()
    ticket = scene.link.ask()
    scene.until(lambda: scene.link.known.answered >= ticket and scene.gate() is not None, "the hold is read")
    yield scene
    scene.close()


def test_nothing_is_acked_before_there_is_a_control_topic(kafka: KafkaCluster, unique: Unique, links: Links) -> None:
    """An ack that waits for its topic would come after that of whoever owns the partition by then."""
    topic = unique("control")
    with (
        closing(KafkaClient(Connection(kafka.bootstrap, control_topic=topic))) as client,
        closing(links.open({"bootstrap.servers": kafka.bootstrap}, topic)) as link,
    ):
        ticket = link.ask()
        assert eventually(lambda: link.known.answered >= ticket, WITHIN_S)
        link.send_ack("payments", ORDERS, 0, -1, 0, "before")
        assert eventually(lambda: link.acked == {"before": True}, WITHIN_S)
        client.control.ensure()
        epoch = client.control.hold({KEY: Hold("looked into", 1000)})[KEY]
        assert eventually(lambda: link.known.generation == 1, WITHIN_S)
        link.send_ack("payments", ORDERS, epoch, 7, 1, "then")
        assert eventually(lambda: link.acked == {"before": True, "then": True}, WITHIN_S)

        assert client.control.read(["payments"]).acks == {AckKey("payments", "orders", 0): (Ack(epoch, 7, "m-1"),)}


def test_a_gate_stays_closed_until_its_holder_has_written_the_new_topic(scene: Scene) -> None:
    scene.lose()
    scene.until(lambda: scene.link.known.generation == 2, "the new topic is read")
    kept = scene.gate()

    epoch = scene.hold()
    scene.until(lambda: (gate := scene.gate()) is not None and gate.epoch == epoch, "its hold is read")
    scene.client.control.release([KEY])

    assert kept is not None
    assert kept.epoch == 0
    scene.until(lambda: scene.gate() is None, "it is open")


def test_a_gate_that_nobody_holds_any_more_opens_after_a_while(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    scene.links.shorten(monkeypatch)
    scene.lose()
    scene.until(lambda: scene.link.known.generation == 2, "the new topic is read")

    assert scene.gate() is not None
    scene.link.let_rebuilding_end()
    scene.until(lambda: scene.gate() is None, "it is open")


def test_a_process_that_starts_while_the_topic_is_lost_waits_for_the_holds(scene: Scene) -> None:
    scene.delete()
    late = scene.another_link()
    try:
        ticket = late.ask()
        scene.until(lambda: late.has_found_it_lost, "it has found that the topic is lost")
        scene.until(lambda: not scene.client.control.ensure() and scene.client.control.exist, "there is a new topic")
        early = late.known.answered
        epoch = scene.hold()
        scene.until(lambda: late.known.answered >= ticket, "its question is answered")
        gate = late.known.gate("payments", ORDERS)
    finally:
        late.close()

    assert early < ticket
    assert gate is not None
    assert gate.epoch == epoch


def test_a_process_does_not_wait_for_ever_for_a_topic_that_nobody_writes(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene.links.shorten(monkeypatch)
    scene.delete()
    late = scene.another_link()
    try:
        ticket = late.ask()
        scene.until(lambda: late.has_found_it_lost, "it has found that the topic is lost")
        late.let_rebuilding_end()
        scene.until(lambda: late.known.answered >= ticket, "its question is answered")
    finally:
        late.close()

    assert not late.known.gates


def test_what_is_said_of_ages_is_read_from_the_start_and_outlives_the_topic(scene: Scene) -> None:
    broker_ms = scene.client.control.write_clock()
    topic_id = scene.link.known.topic_ids.get(scene.topic)
    late = scene.another_link()
    try:
        scene.client.control.write_partitions({PartitionKey(scene.topic, "its-id", 0): PartitionSeen(broker_ms)})
        ticket = late.ask([scene.topic, "orders"])
        scene.until(lambda: late.known.answered >= ticket, "its question is answered")
        first = late.known
        scene.client.control.write_clock()
        scene.until(lambda: late.known.clock is not None and late.known.clock.is_live, "the broker's time is told anew")

        scene.lose()
        scene.until(lambda: late.known.generation == 2, "the new topic is read")
        last = late.known
    finally:
        late.close()

    assert topic_id is None, "nobody asked"
    assert first.clock is not None
    assert (first.clock.broker_ms, first.clock.is_live) == (broker_ms, False)
    assert first.discovered[scene.topic][0].seen(0) == broker_ms
    assert set(first.topic_ids) == {scene.topic}
    assert last.discovered == first.discovered
    assert last.clock is not None
    assert last.clock.broker_ms >= broker_ms


def test_what_a_process_of_the_operator_could_not_commit_opens_no_gate(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It freezes once it has appended its release; meanwhile another process takes over."""
    earlier, later = (KafkaClient(Connection(scene.bootstrap, control_topic=scene.topic), "uid") for _ in range(2))
    thawed, frozen = threading.Event(), threading.Event()
    commit = FencedWriter._end

    def freeze(writer: FencedWriter, *args: Any, **kwargs: Any) -> None:
        frozen.set()
        assert thawed.wait(WITHIN_S)
        commit(writer, *args, **kwargs)

    with closing(earlier), closing(later), ThreadPoolExecutor(1) as process:
        earlier.control.ensure()
        with monkeypatch.context() as frozen_process:
            frozen_process.setattr(FencedWriter, "_end", freeze)
            releasing = process.submit(earlier.control.release, [KEY])
            assert frozen.wait(WITHIN_S)
        later.control.ensure()
        thawed.set()
        with pytest.raises(Fenced):
            releasing.result(WITHIN_S)
        before = scene.gate()
        ticket = scene.link.ask()
        scene.until(lambda: scene.link.known.answered >= ticket, "the topic is read to its end")
        after = scene.gate()
        later.control.release([KEY])
        scene.until(lambda: scene.gate() is None, "it is open")

    assert before is not None
    assert after == before
