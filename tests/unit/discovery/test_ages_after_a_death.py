"""What agents are told of new partitions where an operator died, or was away, before it had told them."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from support.discovery_world import RULE, World, records
from tidegate.control.records import PartitionKey, PartitionSeen
from tidegate.discovery.remembered import Remembered, decode
from tidegate.kafka.errors import Unavailable


@pytest.fixture
def world() -> Iterator[World]:
    made = World()
    yield made
    made.executor.shutdown()


@contextlib.contextmanager
def no_ages_are_written(world: World, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """As where the process is about to die before it writes them."""

    def write(_records: Mapping[PartitionKey, PartitionSeen | None]) -> None:
        raise Unavailable("nobody answers")

    with monkeypatch.context() as patched:
        patched.setattr(world.kafka.control, "write_partitions", write)
        yield


def remembered(world: World) -> Remembered:
    [data] = world.kube.config_maps.values()
    [group] = json.loads(data["memory.json"])["groups"].values()
    return decode(group["discovery"])


def told(world: World, number: int, spec: Mapping[str, Any] = RULE) -> PartitionSeen:
    """By a fresh process."""
    with world.operator(**spec) as operator:
        operator.until(lambda _: ("orders", number) in records(world), "the partition is told of")
    return records(world)["orders", number]


def began(world: World) -> None:
    with world.operator(**RULE) as operator:
        operator.until(lambda _: len(records(world)) == 1, "the first partitions are told of")


def test_a_partition_that_was_taken_care_of_and_not_told_of_is_no_older_after_a_death(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else agents would begin it at its end."""
    with world.operator(**RULE) as operator:
        operator.until(lambda _: len(records(world)) == 1, "the first partitions are told of")
        with no_ages_are_written(world, monkeypatch):
            world.kafka.add_partitions("orders", 3)
            operator.settled("orders", 3)
    assert ("orders", 2) not in records(world)
    world.clock.sleep(600)
    fresh_ms = round(world.clock.now().timestamp() * 1000)

    seen = told(world, 2)

    assert not seen.initial
    assert seen.seen_ms is not None
    # An upper bound, so it may be a little later than the look; it comes from the process that died, though.
    assert seen.seen_ms < fresh_ms


def test_a_partition_that_came_while_nobody_watched_is_young_also_where_the_time_is_known_late(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    began(world)
    world.kafka.add_partitions("orders", 3)
    clock, failing = world.kafka.control.write_clock, [True]

    def late() -> int:
        if failing:
            raise Unavailable("nobody answers")
        return clock()

    monkeypatch.setattr(world.kafka.control, "write_clock", late)
    with world.operator(**RULE) as operator:
        operator.settled("orders", 3)
        failing.clear()
        operator.until(lambda _: ("orders", 2) in records(world), "the partition is told of")

    assert not records(world)["orders", 2].initial


def test_a_partition_that_came_while_nobody_watched_is_young(world: World) -> None:
    began(world)
    world.kafka.add_partitions("orders", 3)

    assert not told(world, 2).initial


def test_what_a_watch_has_seen_come_is_known_after_its_connection_was_opened_anew(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    with world.operator(**RULE) as operator:
        operator.until(lambda _: len(records(world)) == 1, "the first partitions are told of")
        with no_ages_are_written(world, monkeypatch):
            world.kafka.add_partitions("orders", 3)
            operator.settled("orders", 3)
            operator.opened_anew()
        operator.until(lambda _: ("orders", 2) in records(world), "the partition is told of")

    assert not records(world)["orders", 2].initial


def test_what_has_been_told_is_not_kept_any_longer(world: World) -> None:
    with world.operator(**RULE) as operator:
        operator.until(lambda _: len(records(world)) == 1, "the first partitions are told of")
        world.kafka.add_partitions("orders", 3)
        operator.settled("orders", 3)
        operator.until(lambda _: ("orders", 2) in records(world), "the partition is told of")
        operator.until(lambda _: not remembered(world).untold, "it is not kept")


def test_of_partitions_that_there_are_not_nothing_is_told_whatever_a_config_map_says(world: World) -> None:
    began(world)
    [(where, data)] = world.kube.config_maps.items()
    document = json.loads(data["memory.json"])
    [group] = document["groups"].values()
    group["discovery"]["untold"] = [["nowhere", 0, 2**31 - 1], ["orders", 0, 2**31 - 1, 7, None]]
    world.kube.config_maps[where] = {**data, "memory.json": json.dumps(document)}

    began(world)

    assert {key for key, _ in records(world).items()} <= {("orders", 0), ("orders", 1)}
