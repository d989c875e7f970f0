"""OffsetResets through a KafkaConnection of another namespace, pass by pass."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from support.fake_kube import FakeKube
from support.reset_world import CREATED, T0, FleetWorld, World
from tidegate.jobs.errors import RunnerFailure
from tidegate.kafka.connection import Authentication, AuthenticationType, Connection
from tidegate.kafka.model import GroupType
from tidegate.kube.ports import CONNECTIONS, RESETS
from tidegate.offset_reset.reading import read_spec
from tidegate.offset_reset.runs import Runs
from tidegate.reset.directory_store import DirectoryRunStore
from tidegate.resources.connection import AllowedNamespace, AllowSpec
from tidegate.resources.offset_reset import OffsetResetStatus
from tidegate.resources.reset import Engine

SHARED = {"name": "kafka", "namespace": "platform"}
LOGIN = Authentication(AuthenticationType.PLAIN, username="platform-user", password_file=Path("/run/secret"))
OF_THE_LOGIN = ("/run/", "plain", "platform-user", "id-of-platform", "__of_platform")


def share(world: World, *namespaces: AllowedNamespace, groups: tuple[str, ...] = ("*",)) -> None:
    """Let these namespaces use KafkaConnection ``kafka`` of namespace ``platform``, and nobody else."""
    if world.live.get("platform", "kafka") is None:
        FakeKube.create(world.kube, CONNECTIONS, "platform", "kafka", {"bootstrapServers": "127.0.0.1:9092"}, CREATED)
        world.live.drop("ns", "kafka", uid=world.kube.get(CONNECTIONS, "ns", "kafka")["metadata"]["uid"])
    uid = world.kube.get(CONNECTIONS, "platform", "kafka")["metadata"]["uid"]
    allow = AllowSpec(groups=groups, namespaces=namespaces)
    connection = Connection(
        "127.0.0.1:9092",
        authentication=LOGIN,
        tls=True,
        ca_file=Path("/run/ca.crt"),
        properties={"client.id": "id-of-platform"},
        control_topic="__of_platform",
    )
    world.open_connection("kafka", uid, connection, namespace="platform", allow=allow)
    world.reconciler = world.fresh_reconciler()


def complete(world: World) -> tuple[str, str]:
    said = world.condition("Complete")
    return said["reason"], said["message"]


def test_a_namespace_that_is_listed_resets_its_groups_and_gets_no_login(world: World) -> None:
    share(world, AllowedNamespace(name="ns", groups=("payments",), topics=("orders",)))
    world.ask(connectionRef=SHARED)

    world.passes()

    assert (world.reset["phase"], world.offset) == ("Succeeded", 10)
    [document] = world.documents
    stored = DirectoryRunStore(document.parent, document.stem, clock=world.clock).load()
    assert stored.request.connection == Connection("127.0.0.1:9092")


@pytest.mark.parametrize(
    ("entry", "spec", "reason"),
    [
        (AllowedNamespace(name="ns", groups=("refunds",)), {}, "GroupNotAllowed"),
        (AllowedNamespace(name="ns", topics=("a*",)), {"topics": ["orders"]}, "TopicNotAllowed"),
        (
            AllowedNamespace(name="ns", topics=("a*",)),
            {"topics": ["a"], "partitions": [{"topic": "orders"}]},
            "TopicNotAllowed",
        ),
        (AllowedNamespace(name="ns", groups=("payments",)), {"to": {"group": "other"}}, "GroupNotAllowed"),
        (AllowedNamespace(name="ns"), {"engine": "Spark"}, "SparkNotShared"),
        (AllowedNamespace(name="ns"), {"to": {"record": {"where": "true"}}}, "SparkNotShared"),
        (AllowedNamespace(name="another"), {}, "NoUsableConnection"),
    ],
)
def test_what_is_not_for_the_namespace_is_refused(
    world: World, entry: AllowedNamespace, spec: dict[str, Any], reason: str
) -> None:
    world.engines[Engine.SPARK] = world.runner
    share(world, entry)
    world.ask(connectionRef=SHARED, **spec)

    world.passes()

    assert complete(world)[0] == reason
    assert (world.offset, world.documents) == (50, [])


def test_topics_that_the_group_reads_and_its_namespace_may_not_are_not_reset(world: World) -> None:
    share(world, AllowedNamespace(name="ns", topics=("a*",)))
    world.ask(connectionRef=SHARED)

    world.passes()

    assert (world.reset["phase"], complete(world)[0]) == ("Failed", "TopicNotAllowed")
    assert world.offset == 50


def test_the_same_is_said_where_there_is_no_connection_and_where_it_is_for_others(world: World) -> None:
    world.ask(connectionRef=SHARED)
    world.passes()
    missing = complete(world)

    share(world, AllowedNamespace(name="another", groups=("payments",)))
    world.passes()

    assert complete(world) == missing
    assert missing[0] == "NoUsableConnection"


def test_a_plan_is_not_applied_once_the_permission_is_withdrawn_and_is_once_it_is_given_again(world: World) -> None:
    share(world, AllowedNamespace(name="ns"))
    world.ask(connectionRef=SHARED, approval="Manual")
    world.passes()
    share(world)
    world.approve()

    world.some_passes(5)

    assert world.offset == 50
    assert complete(world)[0] == "NoUsableConnection"
    share(world, AllowedNamespace(name="ns"))
    world.passes()
    assert (world.reset["phase"], world.offset) == ("Succeeded", 10)


def test_a_run_under_way_is_finished_after_that_also_by_another_process(world: World) -> None:
    share(world, AllowedNamespace(name="ns", topics=("orders",)))
    world.ask(connectionRef=SHARED)
    while not world.documents:
        world.some_passes(1)

    share(world)
    world.runner.states.clear()
    world.passes()

    assert (world.reset["phase"], world.offset) == ("Succeeded", 10)


def test_one_that_is_deleted_after_that_is_rolled_back(world: World) -> None:
    share(world, AllowedNamespace(name="ns"))
    world.ask(connectionRef=SHARED)
    while not world.documents:
        world.some_passes(1)
    share(world)
    FakeKube.delete(world.kube, RESETS, "ns", "p", CREATED)

    world.passes()

    assert not world.there
    assert world.offset == 50


def test_resets_of_two_namespaces_take_turns_and_are_not_told_of_each_other(world: World) -> None:
    share(world, AllowedNamespace(name="ns"), AllowedNamespace(name="team-b"))
    asked = {"connectionRef": SHARED, "group": "payments", "to": {"offset": 20}}
    FakeKube.create(world.kube, RESETS, "team-b", "secret-plans", asked, CREATED)
    theirs = world.kube.get(RESETS, "team-b", "secret-plans")
    while "startedAt" not in (theirs.get("status") or {}):
        asyncio.run(world.reconciler.reconcile(theirs))
        theirs = world.kube.get(RESETS, "team-b", "secret-plans")
    world.ask(connectionRef=SHARED)

    world.some_passes(2)

    assert complete(world)[0] == "WaitingForReset"
    assert "an OffsetReset of another namespace is resetting group payments" in complete(world)[1]
    assert not [text for text in ("team-b", "secret-plans") if text in str(world.body["status"])]


@pytest.mark.parametrize("groups", [("refunds",), None])
def test_a_reset_that_may_not_is_in_nobodys_way(world: World, groups: tuple[str, ...] | None) -> None:
    """It is older, and no pass has looked at it yet."""
    hostile = [AllowedNamespace(name="hostile", groups=groups)] if groups is not None else []
    share(world, AllowedNamespace(name="ns"), *hostile)
    for name, of in (("one", {"group": "payments"}), ("all", {"groups": ["*"]})):
        asked = {"connectionRef": SHARED, "to": {"offset": 20}, **of}
        FakeKube.create(world.kube, RESETS, "hostile", name, asked, "2025-01-01T00:00:00Z")
    world.ask(connectionRef=SHARED)

    world.passes()

    assert (world.reset["phase"], world.offset) == ("Succeeded", 10)


def test_a_fleet_is_of_the_namespaces_groups_and_is_not_told_of_others(tmp_path: Path) -> None:
    world = FleetWorld(tmp_path)
    try:
        world.kafka.commit_directly("payments-secret", {T0: 50})
        world.kafka.set_group("payments-secret", GroupType.CLASSIC)
        share(world, AllowedNamespace(name="ns", groups=("payments-b", "payments-c")))
        world.ask(connectionRef=SHARED)

        world.passes()

        assert world.reset["phase"] == "Succeeded"
        assert world.offsets == [50, 10, 10]
        assert world.kafka.committed("payments-secret")[T0] == 50
        told = str(world.body) + "".join(document.read_text() for document in world.documents)
        assert "payments-secret" not in told
        assert not [text for text in OF_THE_LOGIN if text in told]

        world.ask("back", connectionRef=SHARED, to={"undo": "p"})
        world.passes()

        assert world.offsets == [50, 50, 50]
        assert len(world.documents) == 2 * 3
        assert not [d.name for d in world.documents for text in OF_THE_LOGIN if text in d.read_text()]
    finally:
        world.executor.shutdown()
        world.kafka.close()


def test_it_can_be_undone_while_it_is_there_and_its_document_is_owned_by_no_connection(world: World) -> None:
    share(world, AllowedNamespace(name="ns"))
    world.ask(connectionRef=SHARED)
    world.passes()
    world.ask("back", connectionRef=SHARED, to={"undo": "p"})

    world.passes()

    assert world.offset == 50
    assert world.kube.added_owners == {}


def test_unlimited_own_resources_beside_it_stay_as_they_are(world: World) -> None:
    share(world, AllowedNamespace(name="ns", groups=("refunds",)), groups=("payments", "refunds"))
    asked = {"connectionRef": {"name": "kafka"}, "group": "payments", "to": {"offset": 30}}
    FakeKube.create(world.kube, RESETS, "platform", "own", asked, CREATED)
    body = world.kube.get(RESETS, "platform", "own")
    for _ in range(30):
        if (body.get("status") or {}).get("phase") == "Succeeded":
            break
        asyncio.run(world.reconciler.reconcile(body))
        body = world.kube.get(RESETS, "platform", "own")

    assert world.offset == 30


def test_a_connection_that_changes_its_lists_is_seen_by_the_next_pass(world: World) -> None:
    share(world, AllowedNamespace(name="ns", groups=("refunds",)))
    world.ask(connectionRef=SHARED)
    world.passes()
    assert complete(world)[0] == "GroupNotAllowed"
    live = world.live.get("platform", "kafka")
    assert live is not None

    world.live.put(replace(live, allow=AllowSpec(namespaces=(AllowedNamespace(name="ns"),))))
    world.passes()

    assert world.offset == 10


def test_a_run_that_goes_on_without_permission_is_confined_to_what_it_was_allowed_when_it_began(tmp_path: Path) -> None:
    """By its request, for which the digest in the status vouches; to nothing before that was read."""
    world = FleetWorld(tmp_path)
    try:
        share(world, AllowedNamespace(name="ns", groups=("payments-b",), topics=("orders",)))
        world.ask(connectionRef=SHARED, approval="Manual")
        world.passes()
        share(world)
        runs = Runs(world.parts)
        unread = runs.confines(world.body)

        asyncio.run(runs.load(world.body))

        assert (unread.groups, unread.topics, unread.patterns) == ((), (), ())
        read = runs.confines(world.body)
        assert (read.groups, read.topics, read.patterns) == (("payments-b",), ("orders",), ("payments-b",))
        assert read.outside("payments-c") != ""
    finally:
        world.executor.shutdown()
        world.kafka.close()


def test_a_document_that_says_more_than_the_request_did_is_not_believed(world: World) -> None:
    share(world, AllowedNamespace(name="ns", topics=("a*",)))
    world.ask(connectionRef=SHARED, topics=["a*", "orders*"], approval="Manual")
    while not world.documents:
        world.some_passes(1)
    share(world)
    [document] = world.documents
    text = document.read_text()
    assert "a*" in text
    document.write_text(text.replace('\\"a*\\"]', '\\"a*\\",\\"orders\\"]').replace('"a*"]', '"a*","orders"]'))
    assert document.read_text() != text

    world.passes()

    assert (world.reset["phase"], complete(world)[0]) == ("Failed", "Forged")
    assert world.offset == 50


def test_no_job_of_spark_is_made_that_would_have_to_be_given_the_login(world: World) -> None:
    """Whatever a status says of the engine."""
    share(world, AllowedNamespace(name="ns"))
    world.ask(connectionRef=SHARED)
    runs, status = Runs(world.parts), OffsetResetStatus(engine=Engine.SPARK)
    spec, _ = read_spec(world.body)

    with pytest.raises(RunnerFailure, match="platform/kafka may not be given to a job of another namespace"):
        runs.launch(world.body, spec, status, "p-1")


@pytest.mark.parametrize("begun", [False, True])
def test_a_fleet_is_in_nobodys_way_beyond_what_its_own_connection_allows(tmp_path: Path, begun: bool) -> None:
    world = FleetWorld(tmp_path)
    live = world.live.get("ns", "kafka")
    assert live is not None
    world.live.put(replace(live, allow=AllowSpec(groups=("payments-b",))))
    other = AllowSpec(groups=("payments-c",))
    world.open_connection("kafka", "uid-other", world.connection, namespace="team-b", allow=other)
    world.reconciler = world.fresh_reconciler()
    world.ask(groups=["*"])
    if begun:
        world.some_passes(1)
        assert world.reset["startedAt"]

    asked = {"connectionRef": {"name": "kafka"}, "group": "payments-c", "to": {"offset": 20}}
    FakeKube.create(world.kube, RESETS, "team-b", "mine", asked, "2026-11-01T00:00:00Z")
    asyncio.run(world.reconciler.reconcile(world.kube.get(RESETS, "team-b", "mine")))

    assert world.kube.get(RESETS, "team-b", "mine")["status"].get("startedAt")
    world.executor.shutdown()


def test_one_whose_own_connection_is_not_open_is_in_nobodys_way(world: World) -> None:
    world.ask()
    live = world.live.get("ns", "kafka")
    assert live is not None
    world.live.drop("ns", "kafka", uid=live.uid)
    world.open_connection("kafka", "uid-other", world.connection, namespace="team-b")
    world.reconciler = world.fresh_reconciler()

    asked = {"connectionRef": {"name": "kafka"}, "group": "payments", "to": {"offset": 20}}
    FakeKube.create(world.kube, RESETS, "team-b", "mine", asked, "2026-11-01T00:00:00Z")
    asyncio.run(world.reconciler.reconcile(world.kube.get(RESETS, "team-b", "mine")))

    assert world.kube.get(RESETS, "team-b", "mine")["status"]["startedAt"]
