"""Pauses through a KafkaConnection of another namespace, pass by pass."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import pytest

from support.connect_pauses import BY_CONNECT
from support.live import live_of
from support.pause_world import CREATED, SPEC, World
from support.sweeping import Sweeping
from tidegate.connect.ports import (
    PAUSED,
    ConnectCluster,
    ConnectFailure,
    ConnectRefused,
    ConnectUnavailable,
    TargetState,
)
from tidegate.connection.live import Live
from tidegate.kube.ports import CONNECTIONS, PAUSES
from tidegate.pause.plan import FINALIZER
from tidegate.pause.stopper import CONNECT_CLUSTER_UNUSABLE
from tidegate.resources.connection import AllowedNamespace, AllowSpec

SHARED = {"connectionRef": {"name": "kafka", "namespace": "platform"}}


class Tenant(World):
    """Pauses in namespace ``ns`` through KafkaConnection ``kafka`` of namespace ``platform``."""

    def __init__(self) -> None:
        super().__init__()
        self.live.drop("ns", "kafka", uid=self.connection_uid)
        self.kube.delete(CONNECTIONS, "ns", "kafka", CREATED)
        self.kube.create(CONNECTIONS, "platform", "kafka", {"bootstrapServers": "127.0.0.1:9092"}, CREATED)

    def share(self, *namespaces: AllowedNamespace) -> None:
        self.live.put(
            replace(self.shared, allow=AllowSpec(namespaces=namespaces)),
        )
        self.reconciler = self.fresh_reconciler()

    @property
    def shared(self) -> Live:
        return replace(live_of(self.kafka, self.connection_uid), namespace="platform")

    def said(self, kind: str = "Paused") -> tuple[str, str]:
        body = self.body
        assert body is not None
        found = next(c for c in body["status"]["conditions"] if c["type"] == kind)
        return found["reason"], found["message"]

    @property
    def finalizers(self) -> list[str]:
        body = self.body
        assert body is not None
        return list(body["metadata"].get("finalizers") or ())


@pytest.fixture
def world() -> Iterator[Tenant]:
    made = Tenant()
    yield made
    made.close()


def test_a_namespace_that_is_listed_pauses_its_groups(world: Tenant) -> None:
    world.share(AllowedNamespace(name="ns", groups=("payments",), topics=("orders",)))
    world.ask(**SHARED)

    world.passes()

    assert (world.phase, len(world.held)) == ("Paused", 2)


@pytest.mark.parametrize(
    ("entry", "reason", "message"),
    [
        (AllowedNamespace(name="ns", groups=("refunds",)), "GroupNotAllowed", "platform/kafka does not allow group"),
        (AllowedNamespace(name="ns", topics=("refunds",)), "TopicNotAllowed", "platform/kafka does not allow topic"),
    ],
)
def test_its_own_lists_are_its_limits(world: Tenant, entry: AllowedNamespace, reason: str, message: str) -> None:
    world.share(entry)
    world.ask(**SHARED)

    world.passes()

    assert world.held == []
    assert world.said()[0] == reason
    assert message in world.said()[1]


def test_one_that_is_not_listed_is_told_the_same_as_where_there_is_no_connection(world: Tenant) -> None:
    world.ask(**SHARED)
    world.passes()
    missing = world.body

    world.share(AllowedNamespace(name="another"))
    world.drop()
    world.passes()
    world.ask(**SHARED)
    world.passes()

    assert missing is not None
    assert world.body is not None
    assert world.said()[0] == "NoUsableConnection"
    told = [{**c, "lastTransitionTime": ""} for c in world.body["status"]["conditions"]]
    assert told == [{**c, "lastTransitionTime": ""} for c in missing["status"]["conditions"]]
    assert (world.held, world.finalizers) == ([], [])
    assert "another" not in str(world.body)


def test_what_is_held_is_released_once_the_permission_is_withdrawn_and_held_again_once_it_is_given(
    world: Tenant,
) -> None:
    entry = AllowedNamespace(name="ns")
    world.share(entry)
    world.ask(**SHARED)
    world.passes()

    world.share()
    world.passes()

    assert (world.phase, world.held, world.finalizers) == ("Pending", [], [])
    assert world.said()[0] == "NoUsableConnection"
    world.share(entry)
    world.passes()
    assert (world.phase, len(world.held)) == ("Paused", 2)


def test_one_that_is_deleted_after_that_goes(world: Tenant) -> None:
    world.share(AllowedNamespace(name="ns"))
    world.ask(**SHARED)
    world.passes()
    world.share()
    world.drop()

    world.passes()

    assert (world.body, world.held) == (None, [])


def test_whoever_makes_up_a_finalizer_reaches_nobody_elses_holds(world: Tenant) -> None:
    world.share(AllowedNamespace(name="tenant"))
    world.kube.create(PAUSES, "tenant", "theirs", {**SPEC, **SHARED}, CREATED)
    theirs = next(b for b in world.kube.list(PAUSES) if b["metadata"]["namespace"] == "tenant")
    world.body_of = lambda name: next(  # type: ignore[method-assign]
        (b for b in world.kube.list(PAUSES) if b["metadata"]["name"] == name), None
    )
    world.passes("theirs")
    held = world.held
    world.ask(**SHARED)
    world.kube.set_finalizers(PAUSES, world.kube.get(PAUSES, "ns", "p"), [FINALIZER])

    world.passes()

    assert len(held) == 2
    assert world.held == held
    assert theirs["metadata"]["uid"] in held[0].holder
    assert "payments" not in world.said()[1]


TEAMS = 200


def test_two_hundred_namespaces_cost_one_look(world: Tenant) -> None:
    """One describe of their groups, and one reading of the gates, for a round of passes over all their pauses."""
    teams = [f"team-{number}" for number in range(TEAMS)]
    world.share(*(AllowedNamespace(name=team, groups=(f"{team}.*",)) for team in teams))
    world.reconciler = world.fresh_reconciler(60.0)
    for team in teams:
        spec = {**SPEC, **SHARED, "group": f"{team}.payments"}
        world.kube.create(PAUSES, team, "p", spec, CREATED)
    asked: Counter[str] = Counter()
    groups, read, topics = world.kafka.groups, world.control.read, world.kafka.topics
    world.kafka.groups = lambda ids: (asked.update(["groups"]), groups(ids))[1]  # type: ignore[method-assign]
    world.control.read = lambda ids=(), **how: (asked.update(["gates"]), read(ids, **how))[1]  # type: ignore[method-assign]
    world.kafka.topics = lambda names=None: (asked.update(["topics"]), topics(names))[1]  # type: ignore[method-assign]

    async def one_round() -> None:
        await asyncio.gather(*(world.reconciler.reconcile(body) for body in world.kube.list(PAUSES)))

    asyncio.run(one_round())

    assert asked == {"groups": 1, "gates": 1, "topics": 1}
    finalizers = [body["metadata"].get("finalizers") for body in world.kube.list(PAUSES)]
    assert finalizers == [[FINALIZER]] * TEAMS


def test_holds_of_one_that_may_not_and_does_not_let_go_are_swept(world: Tenant) -> None:
    world.share(AllowedNamespace(name="ns"))
    world.ask(**SHARED)
    world.passes()
    sweeping = Sweeping(world.kube, world.live, world.kafka, world.executor)
    sweeping.looks()
    assert len(world.held) == 2

    world.share()
    Sweeping(world.kube, world.live, world.kafka, world.executor).looks(3)

    assert world.held == []


@pytest.mark.parametrize("failure", [ConnectUnavailable, ConnectRefused])
@pytest.mark.parametrize("to_do", ["look", "stop"])
def test_where_another_namespaces_connect_workers_are_is_not_told(
    world: Tenant, failure: type[ConnectFailure], to_do: str
) -> None:
    world.share(AllowedNamespace(name="ns", groups=("connect-sink",), topics=("orders",)))
    [live] = world.live
    world.live.put(replace(live, connect={"main": ConnectCluster("main", "http://connect.internal:8083")}))
    world.connect.create("sink", state=PAUSED)
    told = failure("Connect cluster main at http://connect.internal:8083 answers with HTTP status 418")

    def refuse(_name: str, _state: TargetState) -> None:
        raise told

    if to_do == "look":
        world.connect.failure = told
    world.connect.before = refuse
    world.ask(**{**BY_CONNECT, **SHARED})

    world.passes(limit=6)

    body = str(world.body) + "".join(event.message for event in world.kube.happenings_of("p"))
    assert "platform/kafka" in body
    assert "Connect cluster main" in body
    assert "internal" not in body
    assert "418" not in body


def test_which_secret_a_connect_cluster_lacks_is_told_to_its_own_namespace_only(world: Tenant) -> None:
    world.share(AllowedNamespace(name="ns", groups=("connect-sink",), topics=("orders",)))
    [live] = world.live
    lack = ("SecretNotFound", "spec.connect[0].authentication.passwordSecret: there is no Secret internal-login")
    world.live.put(replace(live, connect_lacks={"main": lack}))
    world.ask(**{**BY_CONNECT, **SHARED})

    world.passes(limit=6)

    assert world.said("Stalled") == (
        CONNECT_CLUSTER_UNUSABLE,
        "Connect cluster main of KafkaConnection platform/kafka: a Secret that it needs can't be used: ask whoever "
        "owns the connection",
    )
    assert "internal" not in str(world.body)
