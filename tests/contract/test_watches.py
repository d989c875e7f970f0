"""One suite for `tidegate.kube.watching.Watches`: the API server in memory and the real one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from support.fake_kube import FakeKube
from support.fake_watches import FakeWatches
from support.operator_process import Resources
from tidegate.kube.ports import POLICIES, Object, name_of
from tidegate.kube.watching import Change, Expired, WatchClient, Watches

SPEC = {"connectionRef": {"name": "kafka"}, "group": "payments"}


class _Memory:
    def __init__(self) -> None:
        self.kube = FakeKube()

    def create(self, name: str) -> Object:
        return self.kube.create(POLICIES, "ns", name, SPEC, "2026-01-01T00:00:00Z")

    def annotate(self, name: str) -> None:
        self.kube.change(POLICIES, "ns", name, annotations={"a": "b"})

    def delete(self, name: str) -> None:
        self.kube.delete(POLICIES, "ns", name, "2026-01-01T00:00:00Z")


class _Real:
    def __init__(self, resources: Resources) -> None:
        self._resources = resources

    def create(self, name: str) -> Object:
        return self._resources.policy(name, "payments")

    def annotate(self, name: str) -> None:
        self._resources.annotate_policy(name, a="b")

    def delete(self, name: str) -> None:
        self._resources.delete_policy(name)


@dataclass(frozen=True)
class Cluster:
    watches: Watches
    users: Any


@pytest.fixture(params=["memory", pytest.param("apiserver", marks=pytest.mark.apiserver)])
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    if request.param == "memory":
        users = _Memory()
        yield Cluster(FakeWatches(users.kube, seconds=1), users)
        return
    request.getfixturevalue("crds_installed")
    client, namespace = request.getfixturevalue("kube_client"), request.getfixturevalue("namespace")
    yield Cluster(WatchClient(client, namespace, seconds=3), _Real(Resources(client, namespace)))


def test_what_is_listed_is_whole_and_what_changes_afterwards_is_told(cluster: Cluster) -> None:
    cluster.users.create("a")
    cluster.users.create("b")

    listing = cluster.watches.listed(POLICIES)
    cluster.users.create("c")
    cluster.users.annotate("a")
    cluster.users.delete("b")
    told = list(cluster.watches.changes(POLICIES, listing.version))

    assert sorted(map(name_of, listing.bodies)) == ["a", "b"]
    assert {body["kind"] for body in listing.bodies} == {"OffsetResetPolicy"}
    newest: dict[str, Change] = {name_of(each.body): each for each in told if each.body is not None}
    assert {name: each.is_gone for name, each in newest.items()} == {"a": False, "b": True, "c": False}
    assert list((newest["a"].body or {})["metadata"]["annotations"].values()) == ["b"]
    assert "managedFields" not in (newest["c"].body or {})["metadata"]


def test_a_watch_ends_by_itself_when_nothing_happens(cluster: Cluster) -> None:
    listing = cluster.watches.listed(POLICIES)

    assert [each for each in cluster.watches.changes(POLICIES, listing.version) if each.body is not None] == []


@pytest.mark.apiserver
def test_a_version_that_is_too_old_has_to_be_listed_anew(
    kube_client: Any, crds_installed: None, namespace: str
) -> None:
    watches = WatchClient(kube_client, namespace, seconds=3)

    with pytest.raises(Expired):
        list(watches.changes(POLICIES, "1"))
