"""Many resets begin side by side, and never two of one group."""

import asyncio
import contextlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from support.fake_kube import FakeKube
from support.reset_world import CREATED, T0, Recording, World
from tidegate.kafka.model import GroupType
from tidegate.kube.ports import RESETS, Conflict, Kind, KubeUnavailable, Object

MANY = 20


class Counting(Recording):
    """Counts listings. The answer to the next ``lost`` status writes does not come; each was written or not."""

    def __init__(self) -> None:
        super().__init__()
        self.listed: Counter[str] = Counter()
        self.lost: list[bool] = []

    def list(self, kind: Kind) -> Sequence[Object]:
        self.listed[kind.kind] += 1
        return super().list(kind)

    def replace_status(self, kind: Kind, body: Object, status: Mapping[str, Any]) -> Object:
        if "startedAt" in status and self.lost:
            if self.lost.pop(0):
                super().replace_status(kind, body, status)
            raise KubeUnavailable("nobody answered")
        return super().replace_status(kind, body, status)


class Crowd(World):
    """Resets of many groups."""

    kube: Counting

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        made = Counting()
        vars(made).update({key: value for key, value in vars(self.kube).items() if key not in ("listed", "lost")})
        self.kube = made
        self.reconciler = self.fresh_reconciler()
        for number in range(MANY):
            self.kafka.commit_directly(f"g{number}", {T0: 50})
            self.kafka.set_group(f"g{number}", GroupType.CLASSIC)

    def make(self, name: str, group: str, **spec: Any) -> None:
        asked = {"connectionRef": {"name": "kafka"}, "group": group, "to": {"offset": 10}, **spec}
        self.kube.create(RESETS, "ns", name, asked, CREATED)

    async def look(self, name: str) -> None:
        with contextlib.suppress(Conflict, KubeUnavailable):
            await self.reconciler.reconcile(self.kube.get(RESETS, "ns", name))

    def side_by_side(self, *names: str) -> None:
        """One pass over each, all at once."""

        async def all_of_them() -> None:
            await asyncio.gather(*(self.look(name) for name in names))

        asyncio.run(all_of_them())

    @property
    def begun(self) -> list[str]:
        """Those that are under way by their status."""
        bodies = FakeKube.list(self.kube, RESETS)
        started = [body for body in bodies if (body.get("status") or {}).get("startedAt")]
        return sorted(body["metadata"]["name"] for body in started if "finishedAt" not in body["status"])


@pytest.fixture
def world(tmp_path: Path) -> Iterator[Crowd]:
    made = Crowd(tmp_path)
    yield made
    made.executor.shutdown()


def test_many_resets_begin_by_one_listing(world: Crowd) -> None:
    names = [f"r{number}" for number in range(MANY)]
    for number, name in enumerate(names):
        world.make(name, f"g{number}")

    world.side_by_side(*names)

    assert world.begun == sorted(names)
    assert world.kube.listed["OffsetReset"] == 1


def test_of_several_that_want_one_group_the_oldest_begins(world: Crowd) -> None:
    for number in range(5):
        world.make(f"r{number}", "payments")

    world.side_by_side("r4", "r3", "r2", "r1", "r0")

    [begun] = world.begun
    uids = {body["metadata"]["name"]: body["metadata"]["uid"] for body in FakeKube.list(world.kube, RESETS)}
    assert begun == min(uids, key=lambda name: uids[name])


def refused_until_now(world: Crowd) -> None:
    """Reset `first` was in nobody's way, since it could not begin; now it can."""
    named = {"configMap": {"name": "places", "key": "offsets.csv"}}
    world.make("first", "payments", to=named)
    world.side_by_side("first")
    world.kube.config_maps["ns", "places"] = {"offsets.csv": "orders,0,10\n"}


def test_one_that_is_about_to_begin_is_in_the_way_before_its_status_says_so(world: Crowd) -> None:
    refused_until_now(world)
    world.make("second", "payments")

    world.side_by_side("first", "second")

    assert len(world.begun) == 1


@pytest.mark.parametrize("was_written", [True, False])
def test_one_whose_beginning_nobody_confirmed_is_taken_for_begun(world: Crowd, was_written: bool) -> None:
    refused_until_now(world)
    world.kube.lost = [was_written]
    world.side_by_side("first")
    world.make("second", "payments")

    world.side_by_side("second")

    assert world.begun == (["first"] if was_written else [])
    world.side_by_side("first")
    world.side_by_side("second")
    assert world.begun == ["first"]


def test_one_that_does_not_begin_after_all_is_in_nobodys_way(world: Crowd) -> None:
    world.make("first", "payments", to={"undo": "nothing"})
    world.make("second", "payments")

    world.side_by_side("first", "second")
    world.side_by_side("second")

    assert world.begun == ["second"]


def test_one_that_is_deleted_when_it_is_approved_is_in_nobodys_way_once_it_has_ended(world: Crowd) -> None:
    """Somebody else's finalizer keeps it."""
    world.make("first", "payments", approval="Manual")
    world.name = "first"
    world.passes()
    finalizers = [*world.body["metadata"]["finalizers"], "example.org/keep"]
    FakeKube.set_finalizers(world.kube, RESETS, world.body, finalizers)
    world.approve()
    world.kube.delete(RESETS, "ns", "first", world.clock.now().isoformat())
    world.passes()
    assert world.body["metadata"]["finalizers"] == ["example.org/keep"]
    world.make("second", "payments")

    world.side_by_side("second")

    assert "startedAt" in world.kube.get(RESETS, "ns", "second")["status"]


def test_what_an_earlier_process_has_begun_is_seen_before_the_first_reset_begins(world: Crowd) -> None:
    world.make("old", "payments")
    world.side_by_side("old")
    world.make("new", "payments")

    world.reconciler = world.fresh_reconciler()
    world.side_by_side("new")

    assert world.begun == ["old"]


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_never_two_of_one_group_whatever_comes_when(tmp_path_factory: pytest.TempPathFactory, data: Any) -> None:
    world = Crowd(tmp_path_factory.mktemp("runs"))
    groups = data.draw(st.lists(st.sampled_from(("g0", "g1", "g*")), min_size=2, max_size=5))
    names = []
    for number, group in enumerate(groups):
        names.append(f"r{number}")
        of = {"groups": [group], "group": None} if "*" in group else {"group": group}
        spec = {key: value for key, value in of.items() if value is not None}
        asked = {"connectionRef": {"name": "kafka"}, "to": {"offset": 10}, **spec}
        world.kube.create(RESETS, "ns", names[-1], asked, CREATED)
    for _ in range(data.draw(st.integers(1, 4))):
        world.kube.lost = data.draw(st.lists(st.booleans(), max_size=2))
        world.side_by_side(*data.draw(st.lists(st.sampled_from(names), min_size=1, max_size=5, unique=True)))
        begun = [groups[int(name[1:])] for name in world.begun]
        assert len(begun) <= 1 or ("g*" not in begun and len(set(begun)) == len(begun))
    world.executor.shutdown()
