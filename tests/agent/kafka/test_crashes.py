"""An owner that dies at one step of closing its gate, or of opening it, and the next one in its place.

Each is a process of its own; the next one takes the place at once (a static member), and dies at the next step.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from devstack import KafkaCluster
from support.clients import ConsumerFleet, Delivery, EventKind
from support.gated_applications import Scene
from support.stack_fixtures import MakeTopic, Unique

pytestmark = pytest.mark.at_once(6)

CLOSING = ("PAUSE", "POSITION", "DRAINED", "RECHECK", "FORGET", "BARRIER", "ACK")
CLOSING_BY_ITSELF = ("COMMIT",)
"""As it is with auto-commit, which may commit what its application has not come to report when it dies."""
OPENING = ("TARGET", "SEEK", "RESUME", "OPENED")


class Succession:
    """Owners of both partitions, one after the other; each is named after the step at which it dies."""

    def __init__(self, scene: Scene, fleet: ConsumerFleet) -> None:
        self.scene, self._fleet = scene, fleet
        self._partitions = [(scene.topic, 0), (scene.topic, 1)]

    def begin(self, name: str) -> None:
        self._fleet.add(name, 0, forked=True, config={"crash.at": name})

    def records(self, partition: int, since: float = 0.0) -> list[Delivery]:
        return [delivery for delivery in self._fleet.records(since) if delivery.partition == partition]

    def wait_flowing(self, *partitions: int, since: float | None = None) -> None:
        self._fleet.wait_flowing([self._partitions[p] for p in partitions], since=since)

    def wait_crashed(self, name: str) -> float:
        """When, epoch seconds."""

        def crashes() -> list[float]:
            return [e.t for e in self._fleet.events() if e.kind is EventKind.ERROR and e.member == name]

        self._fleet.wait_for(lambda: bool(crashes()), 30, f"{name} crashes")
        return crashes()[0]


@pytest.fixture(params=["sync"])
def succession(
    kafka: KafkaCluster, make_topic: MakeTopic, unique: Unique, request: pytest.FixtureRequest
) -> Iterator[Succession]:
    scene = Scene(kafka.bootstrap, make_topic(2), unique("crashes"))
    try:
        with ConsumerFleet(
            "librdkafka",
            scene.bootstrap,
            scene.group,
            [scene.topic],
            (),
            commit=request.param,
            commit_every_s=0.05,
            auto_commit_interval_s=0.3,
            agent=True,
            control_topic=scene.settings.control_topic,
            worker=Path(__file__).with_name("crashing_worker.py"),
            config={"group.instance.id": "the-one"},
        ) as fleet:
            yield Succession(scene, fleet)
    finally:
        scene.close()


def is_whole(offsets: list[int]) -> bool:
    """None is left out."""
    return set(offsets) == set(range(min(offsets), max(offsets) + 1))


@pytest.mark.parametrize(
    ("succession", "steps"), [("sync", CLOSING), ("auto", CLOSING_BY_ITSELF)], indirect=["succession"]
)
def test_an_owner_that_dies_while_it_closes_leaves_the_gate_to_the_next_one(
    succession: Succession, steps: tuple[str, ...]
) -> None:
    scene = succession.scene
    succession.begin(steps[0])
    for step, following in pairwise([*steps, "NEVER"]):
        succession.wait_flowing(0, 1)
        scene.until(lambda: (scene.committed() or 0) > 3, "it commits")
        epoch = scene.hold()
        crashed_at = succession.wait_crashed(step)
        last = succession.records(0)[-1].offset
        succession.begin(following)
        ack = scene.acked(epoch)
        succession.wait_flowing(1, since=time.time() + 0.2)
        assert not [d for d in succession.records(0, crashed_at) if d.member == following], step
        assert scene.committed() == ack.offset, step
        assert ack.offset <= last + 1 or steps is CLOSING_BY_ITSELF, step

        scene.reset(ack.offset - 3)
        released_at = time.time()
        scene.release()
        succession.wait_flowing(0, since=released_at)
        assert succession.records(0, released_at)[0].offset == ack.offset - 3, step
    if steps is CLOSING:
        assert is_whole([delivery.offset for delivery in succession.records(0)])
        assert is_whole([delivery.offset for delivery in succession.records(1)])


def test_an_owner_that_dies_while_it_opens_loses_nothing_from_the_target_on(succession: Succession) -> None:
    scene = succession.scene
    succession.begin(OPENING[0])
    for step, following in pairwise([*OPENING, "NEVER"]):
        succession.wait_flowing(0, 1)
        scene.until(lambda: (scene.committed() or 0) > 3, "it commits")
        target = scene.close_gate().offset - 3
        scene.reset(target)
        released_at = time.time()
        scene.release()
        crashed_at = succession.wait_crashed(step)
        by_the_first = succession.records(0, released_at)
        assert not by_the_first or step == "OPENED"
        succession.begin(following)
        succession.wait_flowing(0, since=crashed_at)
        after = [delivery.offset for delivery in succession.records(0, released_at)]
        assert after[0] == target, step
        assert is_whole(after), step
    assert is_whole([delivery.offset for delivery in succession.records(1)])
