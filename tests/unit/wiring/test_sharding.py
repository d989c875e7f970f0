"""Shards: which process looks after which cluster, when that changes, and when a process is lost."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from support.fake_kafka import FakeKafka
from support.live import live_of
from support.many_clusters import ManyClusters, Size
from tidegate.connection.live import LiveConnections
from tidegate.connection.shards import Shard, key_of
from tidegate.kube.client import KubeClient
from tidegate.kube.loop import LevelLoop, Pass
from tidegate.kube.ports import APPROVALS, CONNECTIONS, MIRRORS, PAUSES, RESETS, Kind, Object
from tidegate.service.health import Freshness
from tidegate.service.settings import Settings
from tidegate.wiring.sharding import Sharing
from tidegate.wiring.shared import share

CLUSTERS = 9
SHARDS = 3
SIZE = Size(CLUSTERS, groups=20)
TAKEN_UP_S = 60.0


@pytest.fixture
def world(tmp_path: Path) -> Iterator[ManyClusters]:
    made = ManyClusters(SIZE, tmp_path, SHARDS)
    yield made
    made.close()


def served(world: ManyClusters) -> list[str]:
    return sorted(cluster for process in world.processes for cluster in process.served)


def number_of(cluster: int) -> int:
    [number] = [n for n in range(SHARDS) if Shard(n, SHARDS).has(f"cluster-{cluster}")]
    return number


# --- simulated: several processes on one API server, in virtual time --------------------------------------------------


def test_each_cluster_is_looked_after_by_one_process_and_all_are(world: ManyClusters) -> None:
    world.run(TAKEN_UP_S)

    rest = world.run(60)

    assert served(world) == [f"cluster-{n}" for n in range(CLUSTERS)]
    for number, process in enumerate(world.processes):
        assert process.served == [f"cluster-{n}" for n in range(CLUSTERS) if number_of(n) == number]
    assert {status["groups"]["selected"] for status in world.statuses()} == {SIZE.groups}
    # As many as one process would make: nothing is looked at twice, and none undoes what another writes.
    assert rest.per_s("poll") == pytest.approx(5 * CLUSTERS, rel=0.02)
    assert rest.status_writes == 0


def test_a_shard_that_is_lost_is_taken_over_and_the_others_go_on(world: ManyClusters) -> None:
    world.run(TAKEN_UP_S)
    lost = world.processes[1]
    others = {process: process.served for process in world.processes if process is not lost}

    world.end(lost)
    world.run(TAKEN_UP_S)
    assert served(world) == sorted(cluster for each in others.values() for cluster in each)
    written = world.kube.status_writes

    heir = world.begin(1)
    world.run(TAKEN_UP_S)
    assert heir.served == [f"cluster-{n}" for n in range(CLUSTERS) if number_of(n) == 1]
    assert {process: process.served for process in others} == others
    assert world.kube.status_writes == written, "what the lost one has said stands until more is known"


def test_a_connection_that_leads_to_another_cluster_goes_to_that_ones_shard(world: ManyClusters) -> None:
    world.run(TAKEN_UP_S)
    moved = next(n for n in range(CLUSTERS) if number_of(n) != number_of(0))
    was, becomes = world.processes[number_of(moved)], world.processes[number_of(0)]

    world.move(moved, to=0)
    world.run(TAKEN_UP_S)

    namespace = f"ns-{moved:03}"
    assert was.live.get(namespace, "kafka") is None
    assert becomes.live.cluster_id(namespace, "kafka") == "cluster-0"
    assert world.kube.get(CONNECTIONS, namespace, "kafka")["status"]["clusterId"] == "cluster-0"
    rest = world.run(60)
    assert rest.status_writes == 0
    assert len(served(world)) == CLUSTERS


def test_one_shard_has_everything(tmp_path: Path) -> None:
    world = ManyClusters(Size(2, groups=5), tmp_path)
    try:
        world.run(TAKEN_UP_S)
        [process] = world.processes
        assert process.served == ["cluster-0", "cluster-1"]
    finally:
        world.close()


# --- decided ----------------------------------------------------------------------------------------------------------


def body(kind: Kind, name: str, connection: str = "", cluster_id: str = "", **spec: object) -> Object:
    reference = {"connectionRef": {"name": connection}} if connection else {}
    return {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "metadata": {"namespace": "ns", "name": name, "uid": f"{kind.kind}/{name}", "resourceVersion": "1"},
        "spec": {**reference, **spec},
        "status": {"clusterId": cluster_id} if cluster_id else {},
    }


class Nothing:
    async def reconcile(self, body: Object) -> Pass:
        raise AssertionError(body)

    async def forget(self, body: Object) -> None:
        raise AssertionError(body)

    async def refresh(self, body: Object) -> Object | None:
        raise AssertionError(body)


def sharing(shard: Shard, *known: tuple[Kind, Object]) -> Sharing:
    made = Sharing(shard, LiveConnections())
    made.loops = {kind: LevelLoop(Nothing(), expected=()) for kind in (CONNECTIONS, RESETS, APPROVALS, PAUSES, MIRRORS)}
    for kind, each in known:
        made.loops[kind].stand_by()
        made.loops[kind].notice(None, each)
    return made


def owner(cluster_id: str) -> Shard:
    [shard] = [Shard(n, 4) for n in range(4) if Shard(n, 4).has(cluster_id)]
    return shard


def other_than(shard: Shard) -> Shard:
    return Shard((shard.number + 1) % shard.count, shard.count)


def test_each_key_has_one_shard_and_they_are_spread() -> None:
    counts = [sum(Shard(n, 8).has(f"id-{key}") for key in range(4_000)) for n in range(8)]

    assert sum(counts) == 4_000
    assert min(counts) > 400
    assert Shard().has("anything")


def test_a_connection_is_its_names_until_its_cluster_is_known() -> None:
    fresh, looked_at = body(CONNECTIONS, "kafka"), body(CONNECTIONS, "kafka", cluster_id="id")

    assert (key_of(fresh), key_of(looked_at), key_of(looked_at, "newer")) == ("ns/kafka", "id", "newer")


def test_what_goes_through_a_connection_belongs_to_its_shard_and_what_names_none_to_its_names() -> None:
    ours = owner("id")
    here = sharing(ours, (CONNECTIONS, body(CONNECTIONS, "kafka", cluster_id="id")))
    there = sharing(other_than(ours), (CONNECTIONS, body(CONNECTIONS, "kafka", cluster_id="id")))
    pause, lost = body(PAUSES, "p", "kafka"), body(PAUSES, "p", "gone")

    assert here.is_ours(PAUSES)(pause)
    assert not there.is_ours(PAUSES)(pause)
    assert sum(sharing(Shard(n, 4)).is_ours(PAUSES)(lost) for n in range(4)) == 1


def test_a_connection_of_another_namespace_tells_the_shard_as_well() -> None:
    ours = owner("id")
    known = (CONNECTIONS, body(CONNECTIONS, "kafka", cluster_id="id"))
    pause = body(PAUSES, "p")
    foreign = {
        **pause,
        "metadata": {**pause["metadata"], "namespace": "team"},
        "spec": {"connectionRef": {"name": "kafka", "namespace": "ns"}},
    }

    assert sharing(ours, known).is_ours(PAUSES)(foreign)
    assert not sharing(other_than(ours), known).is_ours(PAUSES)(foreign)


def test_what_this_process_has_seen_itself_counts_before_the_status_says_so() -> None:
    """Else it would begin something for the shard that is about to take over."""
    name = next(n for n in map(str, range(99)) if owner(f"ns/{n}") != owner("id"))
    looks = sharing(owner(f"ns/{name}"), (CONNECTIONS, body(CONNECTIONS, name)))
    pause = body(PAUSES, "p", name)
    assert looks.is_ours(PAUSES)(pause)

    looks.live.put(replace(live_of(FakeKafka(), "c"), name=name, cluster_id="id"))

    assert not looks.is_ours(PAUSES)(pause)
    assert looks.is_ours(CONNECTIONS)(body(CONNECTIONS, name)), "it has to say which cluster that is"


def test_an_approval_belongs_to_its_resets_shard() -> None:
    ours = owner("id")
    known = (
        (CONNECTIONS, body(CONNECTIONS, "kafka", cluster_id="id")),
        (RESETS, body(RESETS, "r", "kafka")),
    )
    approval = body(APPROVALS, "a", reset="r")

    assert sharing(ours, *known).is_ours(APPROVALS)(approval)
    assert not sharing(other_than(ours), *known).is_ours(APPROVALS)(approval)
    assert sum(sharing(Shard(n, 4)).is_ours(APPROVALS)(approval) for n in range(4)) == 1


def test_a_connection_that_a_reset_of_ours_translates_from_is_opened_and_borrowed() -> None:
    ours = owner("id")
    source = body(CONNECTIONS, "source", cluster_id=next(i for i in map(str, range(99)) if not ours.has(i)))
    here = sharing(ours, (CONNECTIONS, body(CONNECTIONS, "kafka", cluster_id="id")), (CONNECTIONS, source))

    assert not here.is_ours(CONNECTIONS)(source)
    here.loops[RESETS].stand_by()
    here.loops[RESETS].notice(None, body(RESETS, "r", "kafka", to={"cluster": {"connectionRef": {"name": "source"}}}))
    assert here.is_ours(CONNECTIONS)(source)
    assert here.is_borrowed(source)
    assert not here.is_borrowed(body(CONNECTIONS, "kafka", cluster_id="id"))


def test_a_mirror_belongs_to_its_targets_shard_which_borrows_the_source() -> None:
    ours = owner("id")
    source = body(CONNECTIONS, "source", cluster_id=next(i for i in map(str, range(99)) if not ours.has(i)))
    here = sharing(ours, (CONNECTIONS, body(CONNECTIONS, "kafka", cluster_id="id")), (CONNECTIONS, source))
    mirror = body(MIRRORS, "m", source={"name": "source"}, target={"name": "kafka"})

    assert here.is_ours(MIRRORS)(mirror)
    assert not here.is_ours(MIRRORS)(body(MIRRORS, "back", source={"name": "kafka"}, target={"name": "source"}))
    assert not here.is_ours(CONNECTIONS)(source)
    here.loops[MIRRORS].stand_by()
    here.loops[MIRRORS].notice(None, mirror)
    here.mirror_changed(mirror)
    assert here.is_ours(CONNECTIONS)(source)
    assert here.is_borrowed(source)


def test_a_shard_is_well_while_that_of_a_connection_which_it_borrows_does_not_run() -> None:
    ours = owner("id")
    source = body(CONNECTIONS, "source", cluster_id=next(i for i in map(str, range(99)) if not ours.has(i)))
    changed = {**source, "metadata": {**source["metadata"], "generation": 2}}
    known = (CONNECTIONS, body(CONNECTIONS, "kafka", cluster_id="id"))
    mirror = (MIRRORS, body(MIRRORS, "m", source={"name": "source"}, target={"name": "kafka"}))
    borrows = sharing(ours, known, (CONNECTIONS, changed), mirror)
    owns = sharing(next(s for s in (Shard(n, 4) for n in range(4)) if s.has(key_of(source))), (CONNECTIONS, changed))

    assert borrows.is_ours(CONNECTIONS)(changed)
    listing = [(CONNECTIONS, [changed])]
    assert Freshness(30, lambda: 0.0).listed(listing, is_ours=borrows.observes) == 0
    assert Freshness(30, lambda: 0.0).listed(listing, is_ours=owns.observes) == 1


def test_what_goes_through_a_connection_that_went_unseen_is_taken_up_by_the_shard_of_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As while the watch was interrupted: the listing has it no more, and nobody tells of that."""
    monkeypatch.setattr("kubernetes.config.load_kube_config", lambda **_: None)
    monkeypatch.setenv("KUBECONFIG", "of the test")
    ours = owner("ns/kafka")
    elsewhere = next(i for i in map(str, range(99)) if not ours.has(i))
    passes, forgotten = list[str](), list[str]()

    class Noting:
        async def reconcile(self, body: Object) -> Pass:
            passes.append(body["metadata"]["name"])
            return Pass(body, 60)

        async def forget(self, body: Object) -> None:
            forgotten.append(body["metadata"]["name"])

        async def refresh(self, _body: Object) -> Object | None:
            return None

    async def story() -> None:
        settings = Settings(shard=ours.number, shards=4, runtime_directory=tmp_path / "runtime")
        shared = share(settings, KubeClient, lambda _uid: None)
        kinds = (CONNECTIONS, RESETS, APPROVALS, PAUSES, MIRRORS)
        loops = shared.sharing.loops = {kind: shared.looped(kind, Noting()) for kind in kinds}
        connection = body(CONNECTIONS, "kafka", cluster_id=elsewhere)
        loops[CONNECTIONS].notice(None, connection)
        shared.sharing.connection_changed(connection)
        loops[PAUSES].notice(None, body(PAUSES, "p", "kafka"))
        await asyncio.sleep(0.05)
        assert passes == []

        await loops[CONNECTIONS].retain([], loops[CONNECTIONS].uids)
        async with asyncio.timeout(10):
            while not passes:  # noqa: ASYNC110 - what is waited for is the code under test, which tells nobody
                await asyncio.sleep(0.01)
        for loop in loops.values():
            await loop.stop()

    asyncio.run(story())

    assert (passes, forgotten) == (["p"], ["kafka"])
