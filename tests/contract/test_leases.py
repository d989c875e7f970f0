"""One suite for `tidegate.kube.lease.Leases`: the Lease in memory and that of the real API server."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime

import pytest
from kubernetes import client as kube

from support.fake_leases import FakeLeases
from tidegate.clock import SystemClock
from tidegate.kube.lease import LeaseRecord, Leases
from tidegate.kube.lease_client import LeaseClient
from tidegate.kube.ports import Conflict

NOW = datetime(2026, 5, 4, 12, 0, 0, 123456, tzinfo=UTC)
MINE = LeaseRecord("me", 10, 0, NOW, NOW)


@dataclass
class World:
    leases: Leases
    delete: Callable[[], None]


@pytest.fixture(params=["memory", pytest.param("server", marks=pytest.mark.apiserver)])
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    if request.param == "memory":
        fake = FakeLeases()
        yield World(fake, fake.delete)
        return
    client: kube.ApiClient = request.getfixturevalue("kube_client")
    namespace: str = request.getfixturevalue("namespace")
    objects = kube.CoordinationV1Api(client)
    yield World(
        LeaseClient(client, SystemClock(), namespace, "tidegate", 5.0),
        lambda: objects.delete_namespaced_lease("tidegate", namespace),
    )


def test_what_was_written_is_read(world: World) -> None:
    assert world.leases.read() is None
    made = world.leases.create(MINE)
    assert made == world.leases.read() == MINE
    with pytest.raises(Conflict):
        world.leases.create(MINE)


def test_it_is_written_only_over_what_was_read(world: World) -> None:
    first = world.leases.create(MINE)
    second = world.leases.update(replace(first, transitions=1), first)
    assert second.transitions == 1
    with pytest.raises(Conflict):
        world.leases.update(replace(first, holder="other"), first)
    assert world.leases.read() == second
    released = world.leases.update(LeaseRecord("", 1, 1, NOW, NOW), second)
    assert released == world.leases.read()
    assert released.holder == ""


def test_one_that_is_gone_is_not_written(world: World) -> None:
    first = world.leases.create(MINE)
    world.delete()
    with pytest.raises(Conflict):
        world.leases.update(MINE, first)
    assert world.leases.read() is None
    world.leases.create(MINE)


def test_who_leads_is_told_once(world: World) -> None:
    made = world.leases.create(MINE)
    for _ in range(2):
        world.leases.tell(made, "me became leader")
