"""What was sent before the copying was ended, and is carried out later than what comes after it."""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import Iterator, Mapping

import pytest

from support.mirror.fake_cluster import FakeTarget
from support.mirror.passes import World, failed_over
from tidegate.kafka.model import TopicPartition
from tidegate.mirror.model import Appended, Interrupted
from tidegate.mirror.ports import GroupOffset, GroupOffsets
from tidegate.offset_mirror import copying as copying_module

P0 = TopicPartition("t", 0)


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    monkeypatch.setattr(copying_module, "_CLOSING_S", 0.05)
    world = World()
    world.spec["groups"] = {"include": ["*"], "interval": "1s"}
    world.one_pass()
    world.there._numbers = itertools.count(1000)
    world.copied()
    yield world
    world.close()


class Late:
    """The first commit for group `g` at the target is sent, and carried out once it is let go on."""

    def __init__(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        self.sent, self._goes_on = threading.Event(), threading.Event()
        commit = world.there.commit

        def late(group_id: str, offsets: GroupOffsets) -> None:
            if group_id == "g" and not self.sent.is_set():
                self.sent.set()
                assert self._goes_on.wait(60)
            commit(group_id, offsets)

        monkeypatch.setattr(world.there, "commit", late)

    def carried_out(self) -> None:
        self._goes_on.set()


def committing(world: World, monkeypatch: pytest.MonkeyPatch) -> Late:
    """Offset 7, while the source has 9 by now."""
    late = Late(world, monkeypatch)
    world.here.offsets["g"] = {P0: GroupOffset(7)}
    world.passes(late.sent.is_set)
    world.here.offsets["g"] = {P0: GroupOffset(9)}
    return late


def carried_meanwhile(world: World) -> None:
    """As far as it is by what comes next; not at all where that waits."""
    for _ in range(40):
        world.one_pass()
        world.run(asyncio.sleep(0.05))
        if world.there.offsets.get("g") == {P0: GroupOffset(9)}:
            return


def test_a_commit_that_is_carried_out_late_does_not_come_after_newer_ones(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The group would be set back, and be taken for used at the target by an offset that nobody notes any more."""
    late = committing(world, monkeypatch)
    world.spec["parity"] = {"interval": "5s"}
    carried_meanwhile(world)
    late.carried_out()
    world.passes(lambda: world.there.offsets.get("g") == {P0: GroupOffset(9)})
    world.copied()
    world.passes(lambda: world.status.groups is not None and world.status.groups.carried == 1)
    assert world.there.offsets["g"] == {P0: GroupOffset(9)}


@pytest.mark.parametrize("accepts_loss", [True, False])
def test_a_failover_ends_with_what_groups_have_committed_last(
    accepts_loss: bool, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    late = committing(world, monkeypatch)
    world.spec["failover"] = {"acceptLoss": accepts_loss}
    carried_meanwhile(world)
    assert (world.condition("Ready").reason, world.status.failover) == ("FailoverDraining", None)
    late.carried_out()
    failed_over(world, acceptLoss=accepts_loss)

    assert world.there.offsets["g"] == {P0: GroupOffset(9)}


class LateBatch:
    """The first batch from now on is about to be sent, and is once it is let go on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.about, self._goes_on, self._sent = threading.Event(), threading.Event(), threading.Event()
        append = FakeTarget.append

        def late(target: FakeTarget, batches: tuple[bytes, ...]) -> Appended | Interrupted:
            is_first = not self.about.is_set()
            if is_first:
                self.about.set()
                assert self._goes_on.wait(60)
            try:
                return append(target, batches)
            finally:
                if is_first:
                    self._sent.set()

        monkeypatch.setattr(FakeTarget, "append", late)

    def send(self) -> None:
        self._goes_on.set()
        assert self._sent.wait(60)


@pytest.mark.parametrize("begun_anew", [False, True])
def test_a_batch_that_is_sent_late_does_not_get_into_a_copy_that_is_created_again(
    begun_anew: bool, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its broker does not know the producer, and takes anything."""
    batch, create = LateBatch(monkeypatch), world.there.create_topic

    def created(name: str, partitions: int, settings: Mapping[str, str]) -> None:
        create(name, partitions, settings)
        batch.send()

    monkeypatch.setattr(world.there, "create_topic", created)
    world.here.write("t", 5)
    world.passes(batch.about.is_set)
    if begun_anew:
        world.spec["parity"] = {"interval": "5s"}
    del world.there.kept["t"]
    for _ in range(10):
        world.one_pass()
        world.run(asyncio.sleep(0.02))
    batch.send()

    world.passes(
        lambda: "t" in world.there.kept and world.condition("Ready").reason in ("CopiesInSync", "CopiesDrifted")
    )
    world.copied()
    assert world.there.log("t").visible() == world.here.log("t").visible()
