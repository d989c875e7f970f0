"""A topic that a mirror has copied, does not copy for a while, and copies again: it is still the mirror's own."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import pytest

from support.mirror.passes import World
from tidegate.kafka.errors import NotAuthorized
from tidegate.kafka.model import TopicPartition
from tidegate.kube.ports import MIRRORS
from tidegate.mirror.model import Interrupted, Tail


@pytest.fixture
def world() -> Iterator[World]:
    world = World()
    world.spec["topics"] = {"include": ["t", "u"]}
    world.here.create_topic("u", 2, {"retention.ms": "-1"})
    world.here.write("u", 6)
    world.one_pass()
    world.there._numbers = itertools.count(1000)
    world.passes(lambda: len(world.status.topics) == 2)
    world.copied()
    yield world
    world.close()


def left_out(world: World) -> None:
    world.spec["topics"] = {"include": ["t"]}
    world.one_pass()
    world.passes(lambda: [row.name for row in world.status.topics] == ["t"])


def taken_in_again(world: World) -> None:
    world.spec["topics"] = {"include": ["t", "u"]}
    world.one_pass()


def is_copied(world: World) -> bool:
    there, here = world.there.kept["u"].logs, world.here.kept["u"].logs
    return len(there) == len(here) and all(a.visible() == b.visible() for a, b in zip(there, here, strict=True))


def has_its_settings(world: World) -> bool:
    there, here = world.there.kept["u"].settings, world.here.kept["u"].settings
    return there["retention.ms"] == here["retention.ms"]


def with_other_settings(world: World) -> None:
    world.here.kept["u"].settings["retention.ms"] = "1000000"


def with_more_partitions(world: World) -> None:
    world.here.add_partitions("u", 3)
    world.here.write("u", 2, 2)


@pytest.mark.parametrize("changed", [with_other_settings, with_more_partitions])
def test_a_topic_that_was_changed_while_it_was_left_out_is_copied_on(
    changed: Callable[[World], None], world: World
) -> None:
    left_out(world)
    changed(world)
    world.here.write("u", 3)
    taken_in_again(world)
    world.passes(lambda: is_copied(world) and has_its_settings(world))
    world.copied()


def test_a_topic_that_was_changed_while_there_was_no_mirror_is_copied_on_by_the_next_one(world: World) -> None:
    """That knows with which ids its copies were written."""
    former = list(world.status.producer_ids)
    world.run(world.reconciler.forget(world.body))
    world.kube.delete(MIRRORS, "ns", "m", "2026-11-22T12:00:00Z")
    with_more_partitions(world)
    with_other_settings(world)
    world.spec["formerProducerIds"] = former
    world.kube.create(MIRRORS, "ns", "m", world.spec, "2026-11-22T12:00:00Z")
    world.passes(lambda: is_copied(world) and has_its_settings(world))
    world.copied()


def test_what_somebody_else_has_written_since_is_left_as_it_is(world: World) -> None:
    left_out(world)
    world.there.write("u", 1)
    with_more_partitions(world)
    with_other_settings(world)
    taken_in_again(world)
    world.passes(lambda: world.condition("Ready").reason == "CopiesDrifted")

    assert "topic u has records at the target that this mirror did not copy" in world.condition("Ready").message
    assert (len(world.there.kept["u"].logs), world.there.kept["u"].settings["retention.ms"]) == (2, "-1")


def test_whose_a_copy_is_that_cannot_be_read_for_now_is_waited_for(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    left_out(world)
    with_other_settings(world)
    target = world.there.target

    class Away:
        def tail(self, _: int) -> Tail | Interrupted:
            return Interrupted("its last records are not replicated yet")

    monkeypatch.setattr(world.there, "target", lambda p: Away() if p == TopicPartition("u", 0) else target(p))
    taken_in_again(world)
    for _ in range(3):
        assert world.one_pass().reason == "CopiesSeeding"
    monkeypatch.undo()
    world.passes(lambda: [row.name for row in world.status.topics] == ["t", "u"])
    world.copied()
    assert is_copied(world)


def test_a_copy_that_may_not_be_read_is_not_taken_for_the_mirror_s_own(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    left_out(world)
    with_other_settings(world)
    target = world.there.target

    class Denied:
        def tail(self, _: int) -> Tail | Interrupted:
            raise NotAuthorized("allow the principal Read on topic u")

    monkeypatch.setattr(world.there, "target", lambda p: Denied() if p.topic == "u" else target(p))
    taken_in_again(world)
    world.passes(lambda: world.condition("Ready").reason == "CopiesDrifted")

    assert "topic u has records at the target that this mirror did not copy" in world.condition("Ready").message
    assert {row.name: row.state for row in world.status.topics}["t"] == "InSync"
