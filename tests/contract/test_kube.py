"""One suite for `tidegate.kube.ports.Kube`: the API server in memory and the real one."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Protocol

import pytest
from kubernetes.client import ApiClient, CoreV1Api, CustomObjectsApi
from kubernetes.client.exceptions import ApiException

from devstack.processes import eventually
from support.fake_kube import FakeKube
from support.operator_process import Resources
from support.stack_fixtures import Unique
from tidegate.clock import SystemClock
from tidegate.kube import client as client_module
from tidegate.kube.client import KubeClient
from tidegate.kube.ports import (
    POLICIES,
    RESETS,
    Conflict,
    EventType,
    Kube,
    KubeEvent,
    NotFound,
    NotOwned,
    Object,
    owner_reference,
)

SPEC = {"connectionRef": {"name": "kafka"}, "group": "payments"}
STATUS = {"observedGeneration": 1, "conditions": []}


class Users(Protocol):
    """What others do to the cluster, and see of it."""

    namespace: str

    def create(self, name: str) -> Object: ...
    def annotate(self, name: str) -> Object: ...
    def delete(self, name: str) -> None: ...
    def secret(self, name: str, key: str, value: str) -> None: ...
    def config_map(self, name: str, key: str, value: str) -> None: ...
    def events(self, name: str) -> list[tuple[str, str]]: ...


class _Memory:
    namespace = "ns"

    def __init__(self, kube: FakeKube) -> None:
        self._kube = kube

    def create(self, name: str) -> Object:
        return self._kube.create(POLICIES, self.namespace, name, SPEC, "2026-01-01T00:00:00Z")

    def annotate(self, name: str) -> Object:
        return self._kube.change(POLICIES, self.namespace, name, annotations={"a": "b"})

    def delete(self, name: str) -> None:
        self._kube.delete(POLICIES, self.namespace, name, "2026-01-01T00:00:00Z")

    def secret(self, name: str, key: str, value: str) -> None:
        self._kube.secrets[self.namespace, name] = {key: value.encode()}

    def config_map(self, name: str, key: str, value: str) -> None:
        self._kube.config_maps[self.namespace, name] = {key: value}

    def events(self, name: str) -> list[tuple[str, str]]:
        return [(h.reason, h.message) for h in self._kube.happenings_of(name)]


class _Real:
    def __init__(self, resources: Resources) -> None:
        self._resources = resources
        self.namespace = resources.namespace

    def create(self, name: str) -> Object:
        return self._resources.policy(name, "payments")

    def annotate(self, name: str) -> Object:
        return self._resources.annotate_policy(name, a="b")

    def delete(self, name: str) -> None:
        self._resources.delete_policy(name)

    def secret(self, name: str, key: str, value: str) -> None:
        self._resources.secret(name, **{key: value})

    def config_map(self, name: str, key: str, value: str) -> None:
        self._resources.config_map(name, **{key: value})

    def events(self, name: str) -> list[tuple[str, str]]:
        return self._resources.events(name)


@dataclass(frozen=True)
class Cluster:
    kube: Kube
    users: Users


@pytest.fixture(params=["memory", pytest.param("apiserver", marks=pytest.mark.apiserver)])
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    if request.param == "memory":
        fake = FakeKube()
        yield Cluster(fake, _Memory(fake))
        return
    request.getfixturevalue("crds_installed")
    client = request.getfixturevalue("kube_client")
    resources = Resources(client, request.getfixturevalue("namespace"))
    yield Cluster(KubeClient(client, SystemClock(), [resources.namespace]), _Real(resources))


def test_a_status_is_replaced_and_nothing_else(cluster: Cluster) -> None:
    body = cluster.users.create("p")

    answered = cluster.kube.replace_status(POLICIES, body, {**STATUS, "history": [{"id": "a", "phase": "Failed"}]})
    cluster.kube.replace_status(POLICIES, answered, STATUS)

    found = cluster.kube.get(POLICIES, cluster.users.namespace, "p")
    assert found["status"] == STATUS
    assert found["metadata"]["generation"] == 1
    assert found["spec"]["group"] == "payments"


def test_an_older_version_is_never_written_from(cluster: Cluster) -> None:
    body = cluster.users.create("p")
    cluster.users.annotate("p")

    with pytest.raises(Conflict):
        cluster.kube.replace_status(POLICIES, body, STATUS)
    with pytest.raises(Conflict):
        cluster.kube.set_finalizers(POLICIES, body, ["tidegate.io/reset-under-way"])


def test_what_is_made_for_an_owner_is_its_own_and_made_once(cluster: Cluster) -> None:
    owner, spec = cluster.users.create("p"), {"connectionRef": {"name": "kafka"}, "group": "g", "to": {"offset": 1}}

    made = cluster.kube.make(RESETS, owner, "p-one", spec)

    assert (made["metadata"]["name"], made["metadata"]["namespace"]) == ("p-one", cluster.users.namespace)
    assert made["metadata"]["ownerReferences"] == [owner_reference(owner)]
    assert spec.items() <= made["spec"].items()
    with pytest.raises(Conflict):
        cluster.kube.make(RESETS, owner, "p-one", spec)


def test_a_finalizer_holds_a_deleted_object_until_it_is_taken_off(cluster: Cluster) -> None:
    cluster.kube.set_finalizers(POLICIES, cluster.users.create("p"), ["tidegate.io/reset-under-way"])
    cluster.users.delete("p")

    held = cluster.kube.get(POLICIES, cluster.users.namespace, "p")
    assert held["metadata"]["deletionTimestamp"]

    cluster.kube.set_finalizers(POLICIES, held, [])
    with pytest.raises(NotFound):
        cluster.kube.get(POLICIES, cluster.users.namespace, "p")


def test_all_objects_are_listed(cluster: Cluster) -> None:
    for name in ("a", "b"):
        cluster.users.create(name)

    assert sorted(body["metadata"]["name"] for body in cluster.kube.list(POLICIES)) == ["a", "b"]


def test_what_is_not_there_is_not_found(cluster: Cluster) -> None:
    gone = cluster.users.create("p")
    cluster.users.delete("p")
    namespace = cluster.users.namespace

    for look in (
        lambda: cluster.kube.get(POLICIES, namespace, "p"),
        lambda: cluster.kube.replace_status(POLICIES, gone, STATUS),
        lambda: cluster.kube.set_finalizers(POLICIES, gone, []),
        lambda: cluster.kube.secret(namespace, "none"),
        lambda: cluster.kube.config_map(namespace, "none"),
    ):
        with pytest.raises(NotFound):
            look()


def test_an_event_is_recorded_once_under_its_key(cluster: Cluster) -> None:
    body = cluster.users.create("p")
    first = KubeEvent(EventType.NORMAL, "Planning", "it is planned", "one/Planning")
    long = KubeEvent(EventType.WARNING, "Failed", "x" * 3000, "one/Failed")

    for happening in (first, first, long):
        cluster.kube.record(body, happening)

    assert [reason for reason, _ in cluster.users.events("p")] == ["Planning", "Failed"]


@pytest.mark.apiserver
def test_what_a_namespace_being_deleted_holds_up_can_be_let_go_of(
    crds_installed: None, kube_client: ApiClient, unique: Unique
) -> None:
    core, name = CoreV1Api(kube_client), unique()
    core.create_namespace({"metadata": {"name": name}})
    kube, resources = KubeClient(kube_client, SystemClock(), [name]), Resources(kube_client, name)
    held = kube.set_finalizers(POLICIES, resources.policy("p", "payments"), ["tidegate.io/reset-under-way"])
    core.delete_namespace(name)

    def takes_nothing() -> bool:
        try:
            resources.config_map(unique("probe"), a="b")
        except ApiException as refused:
            return bool(refused.status == HTTPStatus.FORBIDDEN)
        return False

    assert eventually(takes_nothing, 30)
    kube.record(held, KubeEvent(EventType.NORMAL, "Resumed", "it is deleted", "one/Resumed"))
    resources.delete_policy("p")
    kube.set_finalizers(POLICIES, kube.get(POLICIES, name, "p"), [])
    with pytest.raises(NotFound):
        kube.get(POLICIES, name, "p")


def test_values_are_read_as_they_are(cluster: Cluster) -> None:
    cluster.users.secret("login", "password", "pa ss\n")
    cluster.users.config_map("offsets", "csv", "t,0,1\n")

    assert cluster.kube.secret(cluster.users.namespace, "login") == {"password": b"pa ss\n"}
    assert cluster.kube.config_map(cluster.users.namespace, "offsets") == {"csv": "t,0,1\n"}


def test_a_config_map_is_written_and_written_anew_for_its_owner_alone(cluster: Cluster) -> None:
    namespace = cluster.users.namespace
    owner, other = cluster.users.create("p"), cluster.users.create("q")

    cluster.kube.put_config_map(owner, "place", {"a": "1", "b": "2"})
    assert cluster.kube.config_map(namespace, "place") == {"a": "1", "b": "2"}
    cluster.kube.put_config_map(owner, "place", {"a": "3"})

    assert cluster.kube.config_map(namespace, "place") == {"a": "3"}
    with pytest.raises(Conflict):
        cluster.kube.put_config_map(other, "place", {"a": "4"})
    cluster.users.config_map("theirs", "a", "5")
    with pytest.raises(Conflict):
        cluster.kube.put_config_map(owner, "theirs", {"a": "6"})
    assert cluster.kube.config_map(namespace, "theirs") == {"a": "5"}


def test_a_config_map_is_read_for_its_owner_alone(cluster: Cluster) -> None:
    owner, other = cluster.users.create("p"), cluster.users.create("q")
    cluster.kube.put_config_map(owner, "place", {"a": "1"})
    cluster.users.config_map("theirs", "a", "5")

    assert cluster.kube.own_config_map(owner, "place") == {"a": "1"}
    for reader, name in ((other, "place"), (owner, "theirs")):
        with pytest.raises(NotOwned):
            cluster.kube.own_config_map(reader, name)
    with pytest.raises(NotFound):
        cluster.kube.own_config_map(owner, "nowhere")


def test_a_config_map_is_changed_as_it_was_read_or_not_at_all(cluster: Cluster) -> None:
    kube = cluster.kube
    owner, other = cluster.users.create("p"), cluster.users.create("q")
    kube.put_config_map(owner, "place", {"a": "1"})

    kube.change_config_map(owner, "place", lambda data: {**data, "b": "2"})
    assert kube.own_config_map(owner, "place") == {"a": "1", "b": "2"}
    kube.change_config_map(owner, "place", lambda _: None)
    assert kube.own_config_map(owner, "place") == {"a": "1", "b": "2"}

    def late(data: Mapping[str, str]) -> Mapping[str, str]:
        kube.put_config_map(owner, "place", {"a": "of somebody else"})
        return {**data, "a": "3"}

    with pytest.raises(Conflict):
        kube.change_config_map(owner, "place", late)
    assert kube.own_config_map(owner, "place") == {"a": "of somebody else"}
    with pytest.raises(NotOwned):
        kube.change_config_map(other, "place", lambda data: data)
    with pytest.raises(NotFound):
        kube.change_config_map(owner, "nowhere", lambda data: data)


def test_a_config_map_gets_another_owner_once_and_is_removed(cluster: Cluster) -> None:
    kube, namespace = cluster.kube, cluster.users.namespace
    owner, other = cluster.users.create("p"), cluster.users.create("q")
    kube.put_config_map(owner, "run", {"a": "1"})

    first = kube.add_owner(namespace, "run", owner_reference(other))
    again = kube.add_owner(namespace, "run", owner_reference(other))

    assert (first["kind"], first["name"], bool(first["uid"])) == ("ConfigMap", "run", True)
    assert again == first
    kube.put_config_map(owner, "beneath", {"a": "2"})
    kube.add_owner(namespace, "beneath", first)
    assert kube.config_map(namespace, "run") == {"a": "1"}
    for _ in range(2):
        kube.remove_config_map(namespace, "run")
    with pytest.raises(NotFound):
        kube.config_map(namespace, "run")
    with pytest.raises(NotFound):
        kube.add_owner(namespace, "run", owner_reference(other))


def test_a_config_map_that_is_written_anew_stays_its_other_owners_too(cluster: Cluster) -> None:
    """It would go with the first of them otherwise."""
    kube, namespace = cluster.kube, cluster.users.namespace
    owner, other = cluster.users.create("p"), cluster.users.create("q")
    kube.put_config_map(owner, "run", {"a": "1", "b": "2"})
    kube.add_owner(namespace, "run", owner_reference(other))

    kube.put_config_map(owner, "run", {"a": "3"})

    assert kube.own_config_map(owner, "run") == {"a": "3"}
    assert kube.own_config_map(other, "run") == {"a": "3"}
    kube.put_config_map(other, "run", {"a": "4"})
    assert kube.own_config_map(owner, "run") == {"a": "4"}


def test_what_is_removed_is_the_object_itself_and_none_of_its_name(cluster: Cluster) -> None:
    kube, users = cluster.kube, cluster.users
    old = users.create("gone")
    assert kube.remove(POLICIES, old)
    assert not kube.remove(POLICIES, old)
    with pytest.raises(NotFound):
        kube.get(POLICIES, users.namespace, "gone")

    users.create("gone")
    assert not kube.remove(POLICIES, old)
    assert kube.get(POLICIES, users.namespace, "gone")["metadata"]["uid"] != old["metadata"]["uid"]


def test_whatever_a_config_map_and_a_secret_are_called_they_are_read(cluster: Cluster) -> None:
    cluster.users.config_map("log", "offsets.csv", "orders,0,10")
    cluster.users.secret("log", "password", "secret")
    assert cluster.kube.config_map(cluster.users.namespace, "log") == {"offsets.csv": "orders,0,10"}
    assert cluster.kube.secret(cluster.users.namespace, "log") == {"password": b"secret"}


@pytest.mark.parametrize("name", ["..", "../secrets/password", "a/../../pods"])
def test_a_name_leads_to_no_other_object(cluster: Cluster, name: str) -> None:
    with pytest.raises(NotFound):
        cluster.kube.config_map(cluster.users.namespace, name)


def test_a_listing_has_all_whatever_their_number(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "_PAGE", 2)
    for number in range(5):
        cluster.users.create(f"p-{number}")
    found = cluster.kube.list(POLICIES)
    assert sorted(body["metadata"]["name"] for body in found) == [f"p-{number}" for number in range(5)]
    assert {body["kind"] for body in found} == {"OffsetResetPolicy"}


@pytest.mark.apiserver
def test_who_has_set_which_field_is_not_kept_here_and_stays_there(
    crds_installed: None, kube_client: ApiClient, namespace: str
) -> None:
    resources = Resources(kube_client, namespace)
    kube = KubeClient(kube_client, SystemClock(), [namespace])
    body = resources.policy("p", "payments")
    assert body["metadata"]["managedFields"]
    seen = kube.get(POLICIES, namespace, "p")
    [listed] = kube.list(POLICIES)
    answered = kube.replace_status(POLICIES, seen, STATUS)
    assert not any("managedFields" in each["metadata"] for each in (seen, listed, answered))
    stored = CustomObjectsApi(kube_client).get_namespaced_custom_object(
        POLICIES.group, POLICIES.version, namespace, POLICIES.plural, "p"
    )
    assert body["metadata"]["managedFields"][0]["manager"] in [
        entry["manager"] for entry in stored["metadata"]["managedFields"]
    ]
