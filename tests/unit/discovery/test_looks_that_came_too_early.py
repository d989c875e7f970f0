"""A look that was on its way when a policy came did not ask for the policy's topics, and tells nothing of them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Collection, Iterator, Mapping

import pytest

from support.discovery_world import Operator, World
from support.fake_kafka import FakeTopicWatch
from tidegate.kafka.model import Topic


class HeldWatch:
    """Implements ``tidegate.kafka.ports.TopicWatch``: its looks wait to be let go, where they are held."""

    def __init__(self, watch: FakeTopicWatch) -> None:
        self._watch = watch
        self._turns = threading.Semaphore(0)
        self._held = False
        self.began = threading.Semaphore(0)

    def poll(self, topics: Collection[str] | None = None) -> Mapping[str, Topic] | None:
        told = self._watch.poll(topics)
        if self._held:
            self.began.release()
            self._turns.acquire()
        return told

    def hold(self) -> None:
        """Looks that begin from now on wait."""
        self._held = True

    def let_one_go(self) -> None:
        self._turns.release()

    def let_go(self) -> None:
        self._held = False
        self._turns.release(100)

    def close(self) -> None:
        self._watch.close()


@pytest.fixture
def world() -> Iterator[World]:
    made = World()
    made.kafka.create_topic("refunds", 1)
    yield made
    made.executor.shutdown()


@pytest.fixture
def watch(world: World, monkeypatch: pytest.MonkeyPatch) -> Iterator[HeldWatch]:
    held = HeldWatch(world.kafka.topic_watch())
    monkeypatch.setattr(world.kafka, "topic_watch", lambda: held)
    yield held
    held.let_go()


@pytest.fixture
def other(world: World) -> Iterator[World]:
    """What another policy remembers and says, of the same cluster."""
    made = World()
    made.kafka, made.clock = world.kafka, world.clock
    yield made
    made.executor.shutdown()


def begun(watch: HeldWatch) -> None:
    assert watch.began.acquire(timeout=10), "no look began"


async def a_look_ends_and_the_next_begins(watch: HeldWatch) -> None:
    watch.let_one_go()
    await asyncio.to_thread(begun, watch)


def test_it_is_no_first_discovery_of_a_policy_that_came_meanwhile(world: World, watch: HeldWatch, other: World) -> None:
    with world.operator(topics=["refunds"]) as operator:
        operator.first()
        watch.hold()
        operator.run(asyncio.to_thread(begun, watch))
        spec = {"topics": ["orders"], "discovery": {"interval": "10ms"}}
        later = Operator(other, spec, uid="v", beside=operator)
        later.run = operator.run
        later.run(later.keep())
        later.run(a_look_ends_and_the_next_begins(watch))

        told = later.run(later.keep())
        assert (told.initial_discovery_finished, told.topics) == (False, ())

        watch.let_go()
        assert [(topic.name, topic.initial) for topic in later.first().topics] == [("orders", 2)]


def test_nor_does_it_count_for_topics_that_a_policy_turned_to_meanwhile(world: World, watch: HeldWatch) -> None:
    with world.operator(topics=["refunds"]) as operator:
        watch.hold()
        operator.run(operator.keep())
        operator.run(asyncio.to_thread(begun, watch))
        operator.ask(topics=["orders"], discovery={"interval": "10ms"})
        operator.run(operator.keep())
        operator.run(a_look_ends_and_the_next_begins(watch))

        assert not operator.run(operator.keep()).initial_discovery_finished

        watch.let_go()
        assert [(topic.name, topic.initial) for topic in operator.first().topics] == [("orders", 2)]
