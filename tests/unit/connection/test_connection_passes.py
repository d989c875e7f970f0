"""A connection's passes: what Prometheus is told of a cluster, and that it goes with its connection."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from support.fake_kafka import FakeClock, FakeKafka
from support.fake_kube import FakeKube
from tidegate.cli.freezing import frozen_step, thawed_step
from tidegate.connection.control_topics import TopicsOfConnections
from tidegate.connection.files import ConnectionFiles
from tidegate.connection.live import Live, LiveConnections
from tidegate.connection.observer import Observer
from tidegate.connection.reconcile import ConnectionReconciler, Parts
from tidegate.connection.watched import Snapshot
from tidegate.control.topics import TopicsChecked
from tidegate.kafka.connection import Connection
from tidegate.kafka.errors import Fenced, KafkaFailure, NotAuthorized, Unavailable
from tidegate.kafka.rights import Resource, Right
from tidegate.kafka_client.settings import BadConnection
from tidegate.kube.ports import CONNECTIONS, Conflict, KubeFailure, KubeUnavailable, Object
from tidegate.resources.base import read_status
from tidegate.resources.conditions import (
    CONNECT_CLUSTERS,
    CONTROL_TOPICS,
    FROZEN,
    PERMISSIONS,
    READY,
    SHARED_ACK_TOPIC,
    find_condition,
)
from tidegate.resources.connection import CapabilitiesStatus, ConnectionStatus, GroupKind, QuotaSpec, Support
from tidegate.service.health import Freshness
from tidegate.service.metrics import Metrics

CREATED = "2026-01-01T00:00:00Z"
NAME = "ns/kafka"


class World:
    """A KafkaConnection and a reconciler."""

    def __init__(self, folder: Path, *, observe: bool = False, quota: QuotaSpec | None = None) -> None:
        self.kube = FakeKube()
        self.clock = FakeClock()
        self.kafka = FakeKafka(self.clock)
        self.metrics = Metrics()
        self.live = LiveConnections()
        self.changed: list[tuple[str, str]] = []
        self.executor = ThreadPoolExecutor(1)
        self.topics = TopicsOfConnections(self.executor, 60, self.live.topics_checked, self.live.is_frozen)
        self.opens: Callable[[Connection], FakeKafka] = lambda _connection: self.kafka
        self.observer = Observer(self.executor, active_tick_s=3600, idle_tick_s=3600, looked=self._looked)
        self.reconciler = ConnectionReconciler(
            Parts(
                kube=self.kube,
                files=ConnectionFiles(folder),
                live=self.live,
                topics=self.topics,
                observer=self.observer,
                open_kafka=self._open,
                executor=self.executor,
                patient_executor=self.executor,
                clock=self.clock,
                metrics=self.metrics,
                idle_tick_s=10,
                observe=observe,
                quota=quota,
                changed=lambda namespace, name: self.changed.append((namespace, name)),
            )
        )
        self.kube.create(CONNECTIONS, "ns", "kafka", {"bootstrapServers": "127.0.0.1:9092"}, CREATED)

    def _open(self, connection: Connection, _uid: str) -> FakeKafka:
        return self.opens(connection)

    def _looked(self, connection: str, seconds: float, groups: int, snapshot: Snapshot) -> None:
        self.metrics.looked(connection, seconds, groups=groups, failed=snapshot.failure is not None, unreadable=0)

    @property
    def body(self) -> Object:
        return self.kube.get(CONNECTIONS, "ns", "kafka")

    def look(self) -> float:
        """One pass with a look of its own; seconds until the next."""
        for live in self.live:
            self.observer.connect(live.uid, NAME, self.kafka)
        return asyncio.run(self.reconciler.reconcile(self.body)).again_after_s

    def metric(self, name: str, **labels: str) -> float | None:
        return self.metrics.registry.get_sample_value(name, {"connection": NAME, **labels})

    def series(self) -> set[str]:
        """The metrics that have a series about this connection."""
        return {
            sample.name
            for family in self.metrics.registry.collect()
            for sample in family.samples
            if sample.labels.get("connection") == NAME and not sample.name.endswith("_created")
        }


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    yield made
    made.executor.shutdown()


@pytest.mark.parametrize("refusal", [KubeFailure("403 exceeded quota"), KubeUnavailable("503"), Conflict("409")])
def test_what_a_look_found_is_said_though_its_event_is_refused(
    world: World, monkeypatch: pytest.MonkeyPatch, refusal: KubeFailure
) -> None:
    def refused(*_: Any) -> None:
        raise refusal

    monkeypatch.setattr(world.kube, "record", refused)

    world.look()

    assert [c["status"] for c in world.body["status"]["conditions"] if c["type"] == "Ready"] == ["True"]


def test_a_connection_that_leads_to_another_cluster_says_that_what_is_held_in_the_one_before_stays_so(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody looks there any more: consumers that run the agent would stand still for good, and nobody said why."""
    world.look()
    there = world.kafka.cluster()
    monkeypatch.setattr(world.kafka, "cluster", lambda: replace(there, cluster_id="another"))
    for _ in range(2):
        world.look()

    [said] = [event for event in world.kube.happenings_of("kafka") if event.reason == "ClusterChanged"]

    assert said.type.value == "Warning"
    assert said.message == (
        "the connection now leads to cluster another, and led to cluster fake-cluster before: what pauses and resets "
        "hold there stays held until somebody releases it (docs/how-to/release-held-partitions.md)"
    )


@pytest.mark.parametrize("failure", [Unavailable("nobody answers"), NotAuthorized("describe the cluster")])
def test_a_cluster_is_up_while_it_answers(world: World, failure: KafkaFailure) -> None:
    world.look()
    assert world.metric("tidegate_connection_up") == 1
    assert world.metric("tidegate_observations_total", outcome="ok") == 1
    assert world.metric("tidegate_observations_total", outcome="failed") == 0

    world.kafka.fail("cluster", failure)
    world.look()
    assert world.metric("tidegate_connection_up") == 0
    assert world.metric("tidegate_observations_total", outcome="failed") == 1

    world.look()
    assert world.metric("tidegate_connection_up") == 1


def test_a_connection_that_cannot_be_opened_is_not_up(world: World) -> None:
    spec = {
        "bootstrapServers": "127.0.0.1:9092",
        "authentication": {"type": "plain", "username": "u", "passwordSecret": {"name": "no-such", "key": "k"}},
    }
    world.look()
    world.kube.change(CONNECTIONS, "ns", "kafka", spec=spec)

    world.look()

    assert world.metric("tidegate_connection_up") == 0


def test_what_the_client_library_refuses_is_said(world: World) -> None:
    def refuse(_connection: object) -> FakeKafka:
        raise BadConnection("spec.properties: socket.keepalive.enable: has to be true or false")

    world.opens = refuse

    world.look()

    ready = find_condition(read_status(ConnectionStatus, world.body).conditions, READY)
    assert ready is not None
    assert (ready.status, ready.reason) == ("False", "BadSettings")
    assert "socket.keepalive.enable" in ready.message
    assert world.metric("tidegate_connection_up") == 0


def test_control_topics_that_somebody_needs_are_made_and_said_to_be_usable(world: World) -> None:
    world.look()
    assert find_condition(read_status(ConnectionStatus, world.body).conditions, CONTROL_TOPICS) is None
    world.topics.want("ns", "kafka")

    world.look()

    topics = find_condition(read_status(ConnectionStatus, world.body).conditions, CONTROL_TOPICS)
    assert topics is not None
    assert (topics.status, topics.reason) == ("True", "Usable")


@pytest.mark.parametrize("answers", [True, False])
def test_what_was_said_of_control_topics_goes_with_them(world: World, *, answers: bool) -> None:
    """Nobody may need the ones that the connection names by now, and so look at them, for long."""

    def said() -> str | None:
        found = find_condition(read_status(ConnectionStatus, world.body).conditions, CONTROL_TOPICS)
        return found.message if found is not None else None

    spec = {"bootstrapServers": "127.0.0.1:9092"}
    world.look()
    live = world.live.get("ns", "kafka")
    assert live is not None
    usable = TopicsChecked(True, "Usable", "topics __tidegate and __tidegate.acks exist and are set up as required")
    world.live.topics_checked(live, usable)
    world.look()
    assert said() == usable.message
    world.kube.change(CONNECTIONS, "ns", "kafka", spec={**spec, "allow": {"groups": ["a*"]}})
    world.look()
    assert said() == usable.message, "they are the same"

    world.kube.change(CONNECTIONS, "ns", "kafka", spec={**spec, "controlTopic": {"name": "other"}})
    if not answers:
        world.kafka.fail("groups", Unavailable("nobody answers"))
        world.kafka.fail("cluster", Unavailable("nobody answers"))
    world.look()
    assert said() == (None if answers else usable.message)
    world.look()
    assert said() is None


def capabilities(world: World) -> CapabilitiesStatus:
    found = read_status(ConnectionStatus, world.body).capabilities
    assert found is not None
    return found


def test_what_the_brokers_allow_is_said_by_kind_of_group(world: World) -> None:
    world.kafka.refuses = frozenset({GroupKind.CONSUMER})

    world.look()

    said = capabilities(world)
    assert said.resettable == "empty, classic, streams"
    assert [(row.groups, row.support) for row in said.resets] == [
        ("Empty", "Supported"),
        ("Classic", "Supported"),
        ("Consumer", "Unsupported"),
        ("Streams", "Supported"),
    ]
    assert "UNKNOWN_MEMBER_ID" in said.resets[2].message


@pytest.mark.parametrize(
    ("support", "resettable"),
    [
        (Support.UNKNOWN, "empty?, classic?, consumer?, streams?"),
        (Support.NOT_OFFERED, "none"),
        (Support.UNSUPPORTED, "none"),
    ],
)
def test_what_is_not_known_is_not_said_to_be_forbidden(world: World, support: Support, resettable: str) -> None:
    world.kafka.told_support = support
    world.look()
    assert capabilities(world).resettable == resettable
    ready = find_condition(read_status(ConnectionStatus, world.body).conditions, READY)
    assert ready is not None
    assert ready.status == "True"


def test_what_the_brokers_allow_stays_where_they_do_not_tell(world: World) -> None:
    world.look()
    before = capabilities(world)

    world.kafka.fail("capabilities", Unavailable("nobody answers"))
    world.look()
    assert capabilities(world) == before

    world.kafka.fail("cluster", Unavailable("nobody answers"))
    world.look()
    assert capabilities(world) == before


def test_other_words_for_the_same_are_not_worth_a_write(world: World) -> None:
    world.kafka.refuses = frozenset(GroupKind)
    world.look()
    before = world.body["metadata"]["resourceVersion"]

    world.kafka.refusal = "the coordinator refused them once more"
    world.look()
    assert world.body["metadata"]["resourceVersion"] == before

    world.kafka.refuses = frozenset({GroupKind.STREAMS})
    world.look()
    assert capabilities(world).resettable == "empty, classic, consumer"


def test_every_30_seconds_it_asks_whether_another_process_has_replaced_this_one(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[float] = []
    answers: list[KafkaFailure | None] = [Unavailable("nobody answers"), None, None, Fenced("another process")]

    def confirm() -> None:
        asked.append(world.clock.monotonic())
        if (failure := answers.pop(0)) is not None:
            raise failure

    monkeypatch.setattr(world.kafka.control, "confirm", confirm)
    began = world.clock.monotonic()

    for _ in range(3):  # the first is not answered, the second is, the third is too soon
        world.look()
        world.clock.sleep(10)
    assert world.metric("tidegate_connection_up") == 1
    for _ in range(4):
        world.look()
        world.clock.sleep(10)
    before = world.body["metadata"]["resourceVersion"]
    world.kafka.refuses = frozenset(GroupKind)
    with pytest.raises(Fenced):
        world.look()

    assert [at - began for at in asked] == [0, 10, 40, 70]
    assert world.body["metadata"]["resourceVersion"] == before, "it goes on in the other process's place"


def test_no_series_outlives_its_connection(world: World) -> None:
    world.look()
    world.metrics.polled(NAME, 0.1, failed=False)
    assert world.series() == {
        "tidegate_connection_frozen",
        "tidegate_connection_up",
        "tidegate_discovery_polls_total",
        "tidegate_observations_total",
        "tidegate_observed_groups",
        "tidegate_unreadable_control_records",
    }
    body = world.body

    asyncio.run(world.reconciler.forget(body))

    assert world.series() == set()


@pytest.mark.parametrize("answers", [False, True])
def test_a_connection_is_frozen_at_once_and_stays_open(world: World, *, answers: bool) -> None:
    world.look()
    opened = world.live.get("ns", "kafka")
    assert opened is not None
    if not answers:
        world.kafka.fail("groups", Unavailable("nobody answers"))
        world.kafka.fail("cluster", Unavailable("nobody answers"))
    world.changed.clear()
    freeze = {"reason": "INC-4711", "by": "alice", "since": "2026-11-27T03:12:00Z"}
    world.kube.change(CONNECTIONS, "ns", "kafka", spec={"bootstrapServers": "127.0.0.1:9092", "freeze": freeze})

    world.look()

    live = world.live.get("ns", "kafka")
    assert live is not None
    assert live.kafka is opened.kafka
    assert live.frozen == "frozen by alice since 2026-11-27T03:12:00Z: INC-4711"
    assert world.changed == [("ns", "kafka")] * (1 if answers else 2), "frozen, and then in trouble"
    assert world.metric("tidegate_connection_frozen") == 1
    said = find_condition(read_status(ConnectionStatus, world.body).conditions, FROZEN)
    assert said is not None
    assert (
        said.message
        == "frozen by alice since 2026-11-27T03:12:00Z: INC-4711. Nothing new begins; what has begun continues"
    )
    assert frozen_step(world.body).done

    world.kube.change(CONNECTIONS, "ns", "kafka", spec={"bootstrapServers": "127.0.0.1:9092"})
    assert thawed_step(world.body).done is None
    world.look()
    assert find_condition(read_status(ConnectionStatus, world.body).conditions, FROZEN) is None
    assert world.metric("tidegate_connection_frozen") == 0
    assert thawed_step(world.body).done


def test_one_that_is_being_deleted_is_frozen_and_lets_others_do_less_all_the_same(world: World) -> None:
    """Somebody's finalizer may hold it for days, in which it stays open."""
    spec = {"bootstrapServers": "127.0.0.1:9092", "allow": {"namespaces": [{"name": "team-a"}]}}
    world.kube.change(CONNECTIONS, "ns", "kafka", spec=spec)
    world.look()
    world.changed.clear()
    spec = {"bootstrapServers": "127.0.0.1:9092", "freeze": {"reason": "INC-4711"}}
    world.kube.change(CONNECTIONS, "ns", "kafka", spec=spec)
    body = {**world.body, "metadata": {**world.body["metadata"], "deletionTimestamp": "2026-11-27T03:12:00Z"}}

    asyncio.run(world.reconciler.reconcile(body))

    live = world.live.get("ns", "kafka")
    assert live is not None
    assert (live.frozen, world.live.is_frozen(live)) == ("frozen: INC-4711", True)
    assert world.live.used_from("team-a", ("ns", "kafka")) is None
    assert world.changed == [("ns", "kafka")]
    asyncio.run(world.reconciler.reconcile({**body, "spec": {}}))
    assert world.live.is_frozen(live), "by what could be read of it last"


def test_a_process_that_starts_reads_that_it_is_frozen_before_anything_uses_it(world: World) -> None:
    spec = {"bootstrapServers": "127.0.0.1:9092", "freeze": {"reason": "INC-4711"}}
    world.kube.change(CONNECTIONS, "ns", "kafka", spec=spec)
    seen: list[str] = []
    put = world.live.put

    def noted(live: Live) -> None:
        seen.append(live.frozen)
        put(live)

    world.live.put = noted  # type: ignore[method-assign]

    world.look()

    assert set(seen) == {"frozen: INC-4711"}


def test_one_that_cannot_be_opened_counts_as_frozen_all_the_same(world: World) -> None:
    def refuse(_connection: object) -> FakeKafka:
        raise BadConnection("spec.properties: socket.keepalive.enable: has to be true or false")

    world.opens = refuse
    spec = {"bootstrapServers": "127.0.0.1:9092", "freeze": {"reason": "INC-4711"}}
    world.kube.change(CONNECTIONS, "ns", "kafka", spec=spec)

    world.look()

    assert find_condition(read_status(ConnectionStatus, world.body).conditions, FROZEN) is not None
    assert world.metric("tidegate_connection_frozen") == 1


def test_through_a_frozen_connection_no_topic_is_made(world: World) -> None:
    spec = {"bootstrapServers": "127.0.0.1:9092", "freeze": {"reason": "INC-4711"}}
    world.kube.change(CONNECTIONS, "ns", "kafka", spec=spec)
    world.topics.want("ns", "kafka")

    world.look()
    assert not world.kafka.control.topics.control_exists

    world.kube.change(CONNECTIONS, "ns", "kafka", spec={"bootstrapServers": "127.0.0.1:9092"})
    world.look()
    assert world.kafka.control.topics.control_exists


@pytest.mark.parametrize("by_operator", [False, True])
def test_a_connection_that_only_observes_makes_no_topics_and_tries_nothing(
    tmp_path: Path, *, by_operator: bool
) -> None:
    world = World(tmp_path, observe=by_operator)
    spec = {"bootstrapServers": "127.0.0.1:9092", "observe": not by_operator}
    world.kube.change(CONNECTIONS, "ns", "kafka", spec=spec)
    world.topics.want("ns", "kafka")

    world.look()

    live = world.live.get("ns", "kafka")
    assert live is not None
    assert live.observes
    assert find_condition(read_status(ConnectionStatus, world.body).conditions, CONTROL_TOPICS) is None
    assert world.metric("tidegate_connection_up") == 1
    world.kafka.control.read()
    assert not world.kafka.control.exist
    assert "capabilities" not in world.kafka.calls

    world.kube.change(CONNECTIONS, "ns", "kafka", spec={"bootstrapServers": "127.0.0.1:9092", "observe": False})
    world.look()
    now = world.live.get("ns", "kafka")
    assert now is not None
    assert now.observes is by_operator
    world.executor.shutdown()


@pytest.mark.parametrize(
    ("allow", "resets"),
    [
        (None, 2),
        ({"groups": ["a"]}, 2),
        ({"quota": {"concurrentResets": 5}}, 5),
        ({"quota": {}}, None),
    ],
    ids=["nothing is said", "of something else", "its own is larger", "its own has no limits"],
)
def test_a_connection_without_a_quota_has_the_operators(
    tmp_path: Path, allow: dict[str, object] | None, resets: int | None
) -> None:
    world = World(tmp_path, quota=QuotaSpec(concurrent_resets=2))
    spec = {"bootstrapServers": "127.0.0.1:9092", **({"allow": allow} if allow is not None else {})}
    world.kube.change(CONNECTIONS, "ns", "kafka", spec=spec)

    world.look()

    live = world.live.get("ns", "kafka")
    assert live is not None
    assert live.allow.quota is not None
    assert live.allow.quota.concurrent_resets == resets
    world.executor.shutdown()


def test_what_is_allowed_changes_while_the_connection_stays_open(world: World) -> None:
    opened: list[Connection] = []

    def count(connection: Connection) -> FakeKafka:
        opened.append(connection)
        return world.kafka

    world.opens = count
    world.look()

    spec = {"bootstrapServers": "127.0.0.1:9092", "allow": {"namespaces": [{"name": "team-a", "groups": ["a*"]}]}}
    world.kube.change(CONNECTIONS, "ns", "kafka", spec=spec)
    world.look()

    used = world.live.used_from("team-a", ("ns", "kafka"))
    assert used is not None
    assert used.allow.groups == ("a*",)
    assert used.cluster_id
    assert len(opened) == 1
    world.kube.change(CONNECTIONS, "ns", "kafka", spec={**spec, "properties": {"client.id": "other"}})
    world.look()
    assert len(opened) == 2


def test_what_is_withdrawn_counts_also_where_the_connection_can_no_longer_be_opened(world: World) -> None:
    spec = {"bootstrapServers": "127.0.0.1:9092", "allow": {"namespaces": [{"name": "team-a"}]}}
    world.kube.change(CONNECTIONS, "ns", "kafka", spec=spec)
    world.look()
    assert world.live.used_from("team-a", ("ns", "kafka")) is not None

    secret = {"secretName": "no-such", "password": "k"}
    missing = {"type": "plain", "username": "u", "passwordSecret": secret}
    spec = {"bootstrapServers": "127.0.0.1:9092", "authentication": missing, "allow": {"namespaces": []}}
    world.kube.change(CONNECTIONS, "ns", "kafka", spec=spec)
    world.look()

    assert world.live.get("ns", "kafka") is not None
    assert world.live.used_from("team-a", ("ns", "kafka")) is None


def test_what_the_principal_lacks_is_said_and_goes_with_observing(world: World) -> None:
    world.kafka.lacks = frozenset({Right("Read", Resource.TOPIC, "__tidegate_acks")})
    world.look()

    said = find_condition(read_status(ConnectionStatus, world.body).conditions, PERMISSIONS)
    assert said is not None
    assert (said.status, said.reason) == ("False", "Missing")
    ready = find_condition(read_status(ConnectionStatus, world.body).conditions, READY)
    assert ready is not None
    assert ready.status == "True", "the cluster answers, and what needs less works"

    world.kube.change(CONNECTIONS, "ns", "kafka", spec={"bootstrapServers": "127.0.0.1:9092", "observe": True})
    world.look()
    assert find_condition(read_status(ConnectionStatus, world.body).conditions, PERMISSIONS) is None


def test_an_ack_topic_that_another_tenants_connection_names_is_said_while_it_does(world: World) -> None:
    world.look()
    assert find_condition(read_status(ConnectionStatus, world.body).conditions, SHARED_ACK_TOPIC) is None
    [live] = world.live
    world.live.put(replace(live, uid="other", namespace="other"))

    world.look()
    said = find_condition(read_status(ConnectionStatus, world.body).conditions, SHARED_ACK_TOPIC)
    assert said is not None
    assert (said.status, said.reason) == ("True", "OtherConnections")

    world.live.drop("other", "kafka", uid="other")
    world.look()
    assert find_condition(read_status(ConnectionStatus, world.body).conditions, SHARED_ACK_TOPIC) is None


def test_those_at_rest_are_told_when_their_connection_changes(world: World) -> None:
    world.look()
    assert world.changed == [("ns", "kafka")]

    world.look()
    assert world.changed == [("ns", "kafka")], "nothing has changed"

    for _ in range(3):
        world.kafka.fail("cluster", Unavailable("nobody answers"))
        world.look()
    assert world.changed == [("ns", "kafka")] * 2, "once for an outage"
    world.look()
    world.changed.pop()

    spec = {"bootstrapServers": "127.0.0.1:9092", "allow": {"groups": ["payments"]}}
    world.kube.change(CONNECTIONS, "ns", "kafka", spec=spec)
    world.look()
    assert world.changed == [("ns", "kafka")] * 2

    asyncio.run(world.reconciler.forget(world.body))
    assert world.changed == [("ns", "kafka")] * 3
    assert world.live.get("ns", "kafka") is None


def test_a_connect_cluster_without_its_secret_keeps_nobody_else_from_the_cluster(world: World) -> None:
    """It is one of many that a connection names, and of no concern to groups that are no connector's."""
    secret = {"secretName": "login", "password": "pw"}
    connect = [
        {
            "name": "main",
            "url": "https://connect:8083",
            "authentication": {"username": "me", "passwordSecret": secret},
        },
        {"name": "plain", "url": "http://connect:8083"},
    ]
    spec = {"bootstrapServers": "127.0.0.1:9092", "connect": connect}
    world.kube.change(CONNECTIONS, "ns", "kafka", spec=spec)

    world.look()

    conditions = read_status(ConnectionStatus, world.body).conditions
    ready, said = find_condition(conditions, READY), find_condition(conditions, CONNECT_CLUSTERS)
    assert ready is not None
    assert said is not None
    assert (ready.status, said.status, said.reason) == ("True", "False", "SecretNotFound")
    assert (
        "Connect cluster main: spec.connect[0].authentication.passwordSecret: there is no Secret login" in said.message
    )
    [live] = world.live
    assert (live.connect.keys(), live.connect_lacks.keys()) == ({"plain"}, {"main"})
    world.kube.secrets["ns", "login"] = {"other": b"x"}

    world.look()

    [live] = world.live
    assert live.connect_lacks["main"][0] == "SecretKeyNotFound"
    world.kube.secrets["ns", "login"] = {"pw": b"s3cret"}

    world.look()

    [live] = world.live
    assert (live.connect.keys(), live.connect_lacks) == ({"main", "plain"}, {})
    assert find_condition(read_status(ConnectionStatus, world.body).conditions, CONNECT_CLUSTERS) is None


WITH_PASSWORD = {
    "bootstrapServers": "127.0.0.1:9092",
    "authentication": {
        "type": "plain",
        "username": "u",
        "passwordSecret": {"secretName": "login", "password": "pw"},
    },
}


def refusing(failure: KubeFailure) -> Callable[[str, str], Mapping[str, bytes]]:
    def secret(_namespace: str, _name: str) -> Mapping[str, bytes]:
        raise failure

    return secret


FORBIDDEN = KubeFailure('read Secret ns/login: 403 secrets "login" is forbidden')


def test_a_secret_that_the_operator_may_not_read_is_said(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else its generation is observed never, and whoever may create one has the operator restarted again and again."""
    monkeypatch.setattr(world.kube, "secret", refusing(FORBIDDEN))
    world.kube.change(CONNECTIONS, "ns", "kafka", spec=WITH_PASSWORD)

    world.look()

    said = find_condition(read_status(ConnectionStatus, world.body).conditions, READY)
    assert said is not None
    assert (said.status, said.reason) == ("False", "SecretNotReadable")
    assert "403" in said.message
    assert Freshness(30, world.clock.monotonic).listed([(CONNECTIONS, [world.body])]) == 0


def test_a_connect_clusters_secret_that_may_not_be_read_concerns_nobody_else(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = {
        "name": "main",
        "url": "https://connect.example.org:8083",
        "authentication": {"username": "me", "passwordSecret": {"secretName": "login", "password": "pw"}},
    }
    monkeypatch.setattr(world.kube, "secret", refusing(FORBIDDEN))
    world.kube.change(CONNECTIONS, "ns", "kafka", spec={"bootstrapServers": "127.0.0.1:9092", "connect": [cluster]})

    world.look()

    conditions = read_status(ConnectionStatus, world.body).conditions
    ready, said = find_condition(conditions, READY), find_condition(conditions, CONNECT_CLUSTERS)
    assert ready is not None
    assert said is not None
    assert (ready.status, said.status, said.reason) == ("True", "False", "SecretNotReadable")
    world.look()


@pytest.mark.parametrize("failure", [FORBIDDEN, KubeUnavailable("read Secret ns/login: 503")])
def test_what_is_open_goes_on_while_its_secret_is_refused(
    world: World, monkeypatch: pytest.MonkeyPatch, failure: KubeFailure
) -> None:
    """As by an API server that just came up: it refuses everybody until it has read the roles."""
    world.kube.secrets["ns", "login"] = {"pw": b"s3cret"}
    world.kube.change(CONNECTIONS, "ns", "kafka", spec=WITH_PASSWORD)
    world.look()
    before = world.body
    monkeypatch.setattr(world.kube, "secret", refusing(failure))

    with pytest.raises(KubeFailure):
        world.look()

    [live] = world.live
    assert live.trouble is None
    assert world.body == before


def test_what_is_open_says_that_its_secret_is_refused_after_a_while(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = world.kube.secret
    world.kube.secrets["ns", "login"] = {"pw": b"s3cret"}
    world.kube.change(CONNECTIONS, "ns", "kafka", spec=WITH_PASSWORD)
    world.look()
    monkeypatch.setattr(world.kube, "secret", refusing(FORBIDDEN))
    with pytest.raises(KubeFailure):
        world.look()

    world.clock.sleep(61)
    world.look()

    said = find_condition(read_status(ConnectionStatus, world.body).conditions, READY)
    assert said is not None
    assert said.reason == "SecretNotReadable"
    monkeypatch.setattr(world.kube, "secret", read)
    world.look()
    said = find_condition(read_status(ConnectionStatus, world.body).conditions, READY)
    assert said is not None
    assert said.status == "True"
