"""What was said of topics that are gone is taken back, once nobody can doubt that they are."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from support.discovery_world import RULE, World, records
from support.fake_kafka import FakeClock, FakeKafka
from tidegate.control.records import PartitionKey
from tidegate.discovery import gone
from tidegate.discovery.gone import GoneTopics
from tidegate.kafka.errors import KafkaFailure, NotAuthorized, Unavailable

HOUR = 3600.0


class Stage:
    """Records of topics `a`, `b` and `c`, of which `a` and `b` were deleted, and what is asked of the cluster."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.kafka = FakeKafka(self.clock)
        self.kafka.create_topic("c", 2)
        self.written = [PartitionKey(name, f"id-{name}", number) for name in "abc" for number in range(2)]
        self.topics = GoneTopics(self.kafka, ThreadPoolExecutor(1), self.clock)
        self.shown = {"c"}

    def look(self, after_s: float = 0.0) -> list[str]:
        self.clock.sleep(after_s)
        return [f"{key.topic}-{key.partition}" for key in asyncio.run(self.topics.look(self.written, self.shown))]


@pytest.fixture
def stage() -> Stage:
    return Stage()


def test_a_topic_that_no_look_has_shown_for_an_hour_and_that_is_none_by_its_name_is_gone(stage: Stage) -> None:
    assert stage.look() == []
    assert stage.look(HOUR - 1) == []
    assert stage.look(1) == ["a-0", "a-1", "b-0", "b-1"]


def test_one_that_a_look_has_shown_meanwhile_is_not_asked_for(stage: Stage) -> None:
    stage.look()
    stage.shown = {"a", "b", "c"}
    stage.look(HOUR / 2)
    stage.shown = {"c"}

    assert stage.look(HOUR / 2) == []
    assert stage.look(HOUR) == ["a-0", "a-1", "b-0", "b-1"]


def test_one_that_is_only_not_listed_is_not_gone(stage: Stage) -> None:
    """As a topic that is not asked for by any policy, or a broker that lags behind."""
    stage.shown = set()
    stage.look()

    assert stage.look(HOUR) == ["a-0", "a-1", "b-0", "b-1"]


def test_one_that_may_not_be_described_is_not_gone_and_asked_for_again_an_hour_later(stage: Stage) -> None:
    stage.look()
    stage.kafka.fail("log_bounds", NotAuthorized("describe topic a"))

    assert stage.look(HOUR) == ["b-0", "b-1"]
    stage.written = [key for key in stage.written if key.topic == "a"]
    assert stage.look(HOUR - 1) == []
    assert stage.look(1) == ["a-0", "a-1"]


@pytest.mark.parametrize("failure", [Unavailable("nobody answers"), KafkaFailure("a broker says something else")])
def test_while_brokers_do_not_tell_nothing_is_gone(stage: Stage, failure: KafkaFailure) -> None:
    stage.look()
    stage.kafka.fail("log_bounds", *[failure] * 2)

    assert stage.look(HOUR) == []


def test_not_more_are_asked_for_at_once_than_brokers_should_be(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gone, "_MOST", 1)
    stage.look()

    assert stage.look(HOUR) == ["a-0", "a-1"]
    assert stage.look() == ["b-0", "b-1"]


# --- within an operator -----------------------------------------------------------------------------------------------


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    monkeypatch.setattr(gone, "LOOK_S", 0.02)
    made = World()
    made.kafka.create_topic("refunds", 3)
    yield made
    made.executor.shutdown()


def test_agents_no_longer_read_of_a_topic_that_was_deleted(world: World) -> None:
    with world.operator(**RULE) as operator:
        operator.until(lambda _: len(records(world)) == 2, "the first partitions are told of")
        world.kafka.delete_topic("refunds")
        operator.until(lambda _: "refunds" not in operator.feature._watches["c"].topics, "it is seen to be gone")
        operator.until(lambda _: bool(operator.feature._watches["c"]._gone._unseen_s), "it is noted")
        world.clock.sleep(HOUR)
        operator.until(lambda _: set(records(world)) == {("orders", 1)}, "what was said of it is taken back")


def test_agents_go_on_reading_of_a_topic_that_the_principal_no_longer_sees(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    with world.operator(**RULE) as operator:
        operator.until(lambda _: len(records(world)) == 2, "the first partitions are told of")
        asked: list[str] = []

        def refused(partitions: object) -> None:
            asked.append(str(partitions))
            raise NotAuthorized("describe topic refunds")

        seen = {name: topic for name, topic in world.kafka._public_topics().items() if name != "refunds"}
        monkeypatch.setattr(world.kafka, "_public_topics", lambda: seen)
        monkeypatch.setattr(world.kafka, "log_bounds", refused)
        operator.until(lambda _: bool(operator.feature._watches["c"]._gone._unseen_s), "it is noted")
        world.clock.sleep(HOUR)
        operator.until(lambda _: bool(asked), "it is asked for")

    assert set(records(world)) == {("orders", 1), ("refunds", 2)}
