"""What becomes of acks while there is no producer yet, and where it takes no more."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import KafkaException

from tidegate_agent import ack_writer
from tidegate_agent.ack_writer import AckWriter
from tidegate_agent.gates import Partition
from tidegate_agent.own_clients import OwnClients
from tidegate_agent.troubles import Troubles

WITHIN_S = 20.0


class Producer:
    """It has room for some records, and the broker answers when it is polled."""

    def __init__(self, room: int) -> None:
        self.room = room
        self.taken: list[bytes] = []
        self._unanswered: list[Callable[[Any, Any], None]] = []

    def produce(self, _topic: str, value: bytes, _key: bytes, on_delivery: Callable[[Any, Any], None]) -> None:
        if len(self._unanswered) == self.room:
            raise BufferError("Local: Queue full")
        self.taken.append(value)
        self._unanswered.append(on_delivery)

    def poll(self, _seconds: float) -> None:
        answered, self._unanswered = self._unanswered, []
        for each in answered:
            each(None, None)


class Scene:
    """A writer whose producer is made, or not, when the test says so."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, room: int = 100) -> None:
        self.producer = Producer(room)
        self.may_be_made = threading.Event()
        self.failing = False
        self.made = 0
        self.is_current = True
        self.answers: list[tuple[int, bool]] = []
        self.answered = threading.Semaphore(0)
        self.changed = threading.Condition()
        self.clients = OwnClients({}, self.changed)
        self.writer = AckWriter(self.clients, "acks", self.changed, Troubles())
        monkeypatch.setattr(ack_writer, "plain", lambda _kind: self._made)

    def _made(self, _settings: dict[str, Any], **_named: Any) -> Producer:
        self.made += 1
        assert self.may_be_made.wait(WITHIN_S)
        if self.failing:
            raise KafkaException("no token")
        return self.producer

    def send(self, epoch: int, partitions: int = 1) -> None:
        def done(written: bool) -> None:
            self.answers.append((epoch, written))
            self.answered.release()

        acks = {Partition("orders", number): (epoch, 0) for number in range(partitions)}
        self.writer.send("g", "m", acks, lambda: self.is_current, done)

    def wait_answered(self, times: int) -> list[tuple[int, bool]]:
        """The answers so far, once there are so many more."""
        for _ in range(times):
            while not self.answered.acquire(timeout=0.05):
                self.writer.poll(0)
        assert self.writer.outstanding == 0
        return self.answers

    def epochs(self) -> list[int]:
        return [int(value.split(b'"epoch":')[1].split(b",")[0]) for value in self.producer.taken]


@pytest.fixture
def scene(monkeypatch: pytest.MonkeyPatch) -> Scene:
    return Scene(monkeypatch)


def test_acks_that_wait_for_the_producer_are_sent_in_their_order(scene: Scene) -> None:
    for epoch in range(5):
        scene.send(epoch)
    assert (scene.epochs(), scene.writer.outstanding) == ([], 5)
    scene.may_be_made.set()

    assert scene.wait_answered(5) == [(epoch, True) for epoch in range(5)]
    scene.send(5)
    assert scene.wait_answered(1)[-1] == (5, True)
    assert scene.epochs() == list(range(6))


def test_where_no_producer_can_be_made_none_of_them_is_sent_and_the_next_one_tries_again(scene: Scene) -> None:
    scene.failing = True
    scene.send(1)
    scene.send(2)
    scene.may_be_made.set()
    assert scene.wait_answered(2) == [(1, False), (2, False)]
    scene.failing = False

    scene.send(3)

    assert scene.wait_answered(1)[-1] == (3, True)
    assert scene.epochs() == [3]


def test_acks_of_an_earlier_control_topic_are_not_sent_once_the_producer_is_there(scene: Scene) -> None:
    scene.send(1)
    scene.is_current = False
    scene.may_be_made.set()

    assert scene.wait_answered(1) == [(1, False)]
    assert scene.epochs() == []


def test_where_it_takes_only_some_each_send_is_answered_once(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(monkeypatch, room=2)
    scene.may_be_made.set()
    scene.send(1)
    assert scene.wait_answered(1) == [(1, True)]
    scene.send(2, partitions=3)
    scene.send(3)

    assert sorted(scene.wait_answered(2)) == [(1, True), (2, False), (3, False)]
    assert scene.epochs() == [1, 2, 2]


def test_another_producer_is_not_begun_while_one_is_made(scene: Scene) -> None:
    scene.send(1)
    scene.send(2)

    scene.may_be_made.set()
    scene.wait_answered(2)
    assert (scene.made, scene.clients.being_made) == (1, 0)
