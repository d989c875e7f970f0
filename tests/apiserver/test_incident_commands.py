"""The commands of somebody who looks after an incident, with an operator, an API server and a broker; and without."""

from __future__ import annotations

import io
import json
import tarfile
from pathlib import Path

import pytest

from apiserver.offsets import committed, produce
from apiserver.own_topics import Own
from devstack import ApiServer, KafkaCluster
from support.operator_process import OperatorProcess, Resources, until
from support.shell import Shell
from support.stack_fixtures import MakeTopic, Unique
from support.stub_agent import StubAgent
from tidegate.control.records import Hold, HoldKey

PARTITIONS = 2


@pytest.fixture
def shell(apiserver: ApiServer) -> Shell:
    return Shell({"KUBECONFIG": str(apiserver.kubeconfig)})


@pytest.fixture
def topic(make_topic: MakeTopic) -> str:
    return make_topic(PARTITIONS)


@pytest.fixture
def group(unique: Unique) -> str:
    return unique("group")


def read_to_the_end(agent: StubAgent, bootstrap: str, group: str, topic: str) -> None:
    produce(bootstrap, topic, PARTITIONS, 10)
    # Before that a broker that has just started may not have a coordinator for the group, which reading offsets needs.
    until(lambda: all(agent.count(topic, n) == 10 for n in range(PARTITIONS)), "all is read")
    until(
        lambda: committed(bootstrap, group, topic, PARTITIONS) == dict.fromkeys(range(PARTITIONS), 10),
        "all is committed",
    )


def test_a_pause_is_made_shown_explained_and_resumed(
    shared: Resources, kafka: KafkaCluster, topic: str, group: str, unique: Unique, shell: Shell, tmp_path: Path
) -> None:
    of = ("-n", shared.namespace)
    pause, bundle = unique("p"), tmp_path / "bundle.tar.gz"
    with StubAgent(kafka.bootstrap, group, topic) as agent:
        read_to_the_end(agent, kafka.bootstrap, group, topic)

        paused = shell(
            *("pause", group, "-c", "kafka", "--name", pause, "--topic", f"{topic}:0", "--reason", "INC-1", *of)
        )
        status = shell("status", *of)
        why = shell("why", group, "-c", "kafka", *of)
        found = json.loads(shell("status", "-o", "json", *of))
        by_kafka = ("--group", group, "--bootstrap-server", kafka.bootstrap)
        bundled = shell("bundle", "-o", str(bundle), *by_kafka, "--operator-namespace", shared.namespace, *of)
        resumed = shell("resume", pause, *of)

        assert f"consumergrouppause.tidegate.io/{pause} created" in paused
        assert "Paused 1/1: " in paused
        assert f"ConsumerGroupPause {shared.namespace}/{pause} ({group}): Paused 1/1" in status
        assert f"{topic} 0: held by ConsumerGroupPause {shared.namespace}/{pause} since 20" in why
        assert "Not seen" not in why
        assert [row["name"] for row in found["parts"]["Pauses"]] == [pause]
        assert f"consumergrouppause.tidegate.io/{pause} deleted" in resumed
        assert shared.get("consumergrouppauses", pause) is None

    with tarfile.open(bundle) as tar:
        read = {m.name.split("/", 1)[1]: (tar.extractfile(m) or io.BytesIO()).read() for m in tar.getmembers()}
    names, events = read.keys(), json.loads(read[f"events/{shared.namespace}.json"])["items"]
    assert {each["involvedObject"]["apiVersion"] for each in events} == {"tidegate.io/v1alpha1"}
    assert json.loads(read["versions.json"])["kubernetesServer"].startswith("v1.")
    ours = f"resources/consumergrouppauses/{shared.namespace}.{pause}.json"
    assert names >= {"index.json", "versions.json", f"events/{shared.namespace}.json", f"groups/{group}.json", ours}
    assert f"Not included: the operator's pods in {shared.namespace}: no pod has the label" in bundled


def test_nothing_begins_through_a_frozen_connection_until_it_is_thawed(
    shared: Resources, kafka: KafkaCluster, topic: str, group: str, unique: Unique, shell: Shell
) -> None:
    """Through a connection of its own: others' tests use the shared one."""
    of = ("-n", shared.namespace)
    cold, reset, pause = unique("cold"), unique("r"), unique("p")
    shared.connection(cold, kafka.bootstrap)
    with StubAgent(kafka.bootstrap, group, topic) as agent:
        read_to_the_end(agent, kafka.bootstrap, group, topic)

        frozen = shell("freeze", cold, "--reason", "INC-4711", *of)
        again = shell("freeze", cold, "--reason", "me too", *of, code=1)
        shell("reset", group, "-c", cold, "--name", reset, "--to-offset", "4", "--no-wait", *of)
        until(lambda: reason(shared, "offsetresets", reset, "Complete") == "Frozen", "the reset waits")
        shell("pause", group, "-c", cold, "--name", pause, "--topic", f"{topic}:0", "--no-wait", *of)
        until(lambda: reason(shared, "consumergrouppauses", pause, "Paused") == "Frozen", "the pause waits")
        why = shell("why", group, "-c", cold, *of)
        before = committed(kafka.bootstrap, group, topic, PARTITIONS)
        shell("resume", pause, *of)

        thawed = shell("thaw", cold, *of)
        watched = shell("watch", reset, *of)

    assert "Frozen: frozen by " in frozen
    assert f"kafkaconnection.tidegate.io/{cold} frozen" in frozen
    assert "it is already frozen, by " in again
    assert f"KafkaConnection {shared.namespace}/{cold} is frozen: nothing new begins through it." in why
    assert before == dict.fromkeys(range(PARTITIONS), 10)
    assert f"kafkaconnection.tidegate.io/{cold} thawed" in thawed
    assert "Succeeded: " in watched
    shared.delete_connection(cold)


def test_all_connections_of_a_namespace_are_frozen_and_thawed(
    shared: Resources, kafka: KafkaCluster, unique: Unique, shell: Shell
) -> None:
    """One of them was created frozen, and has no audit topic before that ends."""
    of, other = ("-n", shared.namespace), unique("other")
    audit = {"topic": unique("audit")}
    shared.connection(other, kafka.bootstrap, audit=audit, freeze={"reason": "INC-1", "by": "bob"})
    until(lambda: reason(shared, "kafkaconnections", other, "AuditTopic") == "Frozen", "no audit topic is created")
    try:
        frozen = shell("freeze", "--all", "--reason", "INC-4711", *of)
    finally:
        thawed = shell("thaw", "--all", *of)
    until(lambda: reason(shared, "kafkaconnections", other, "AuditTopic") == "Usable", "it is created")

    for name in ("kafka", other):
        assert f"kafkaconnection.tidegate.io/{name} frozen" in frozen
        assert f"kafkaconnection.tidegate.io/{name} thawed" in thawed
    assert f"KafkaConnection {other}: it is already frozen, by bob: INC-1" in frozen
    assert "KafkaConnection kafka: Frozen: frozen by " in frozen
    assert f"KafkaConnection {other}: it was frozen, by bob: INC-1" in thawed
    shared.delete_connection(other)


def reason(resources: Resources, plural: str, name: str, kind: str) -> str:
    body = resources.get(plural, name) or {}
    conditions = (body.get("status") or {}).get("conditions") or ()
    return next((str(each["reason"]) for each in conditions if each["type"] == kind), "")


@pytest.mark.nightly
def test_a_reset_is_watched_undone_and_not_cancelled_after_its_end(
    shared: Resources, kafka: KafkaCluster, topic: str, group: str, unique: Unique, shell: Shell
) -> None:
    of = ("-n", shared.namespace)
    reset, undo = unique("r"), unique("u")
    with StubAgent(kafka.bootstrap, group, topic) as agent:
        read_to_the_end(agent, kafka.bootstrap, group, topic)

        shell("reset", group, "-c", "kafka", "--name", reset, "--to-offset", "4", *of)
        watched = shell("watch", reset, *of)
        ended = shell("cancel", reset, *of, code=1)
        undone = shell("undo", reset, "--name", undo, *of)
        told = shell("why", group, *of)

    assert "Succeeded: " in watched
    assert "has ended as Succeeded, so there is nothing to cancel. To undo it: tidegate undo" in ended
    assert f"offsetreset.tidegate.io/{undo} created" in undone
    assert "Succeeded: " in undone
    assert f"The reset that ended last: OffsetReset {shared.namespace}/{undo}, Succeeded at 20" in told
    assert "Kafka: not asked, because no servers are known: give --bootstrap-server" in told
    assert "No OffsetReset of the group is in progress or waiting" in told


def test_what_is_printed_is_not_created(shared: Resources, group: str, unique: Unique, shell: Shell) -> None:
    name = unique("p")

    printed = json.loads(shell("pause", group, "-c", "kafka", "--name", name, "-n", shared.namespace, "-o", "json"))
    judged = shell("pause", group, "-c", "kafka", "--name", name, "-n", shared.namespace, "--dry-run")

    assert printed["metadata"] == {"namespace": shared.namespace, "name": name}
    assert printed["spec"] == {"connectionRef": {"name": "kafka"}, "group": group}
    assert "created (server dry run)" in judged
    assert shared.get("consumergrouppauses", name) is None


def test_a_reset_that_waits_is_cancelled_with_its_offsets_as_they_were(
    own: Own, topic: str, group: str, unique: Unique, shell: Shell
) -> None:
    name, of = unique("r"), ("-n", own.resources.namespace)
    assert own.control.ensure() == ()
    with StubAgent(own.bootstrap, group, topic, control_topic=own.control_topic) as agent:
        read_to_the_end(agent, own.bootstrap, group, topic)
        until(lambda: own.managed(group), "its owner is known to run the agent")
        agent.obeys = False
        own.resources.reset(name, group, {"offset": 0}, drainTimeout="4m")
        until(own.holders, "the reset has closed its gates")

        why = shell("why", group, "-c", "kafka", *of)
        cancelled = shell("cancel", name, *of)
        agent.obeys = True

    assert f"OffsetReset {own.resources.namespace}/{name} is Pausing." in why
    assert f"held by OffsetReset {own.resources.namespace}/{name} since 20" in why
    assert "Not paused yet: " in why
    assert f"offsetreset.tidegate.io/{name} deleted" in cancelled
    assert own.resources.get("offsetresets", name) is None
    assert own.holders() == set()
    assert committed(own.bootstrap, group, topic, PARTITIONS) == dict.fromkeys(range(PARTITIONS), 10)


def test_with_operator_and_api_server_killed_all_holds_are_listed_and_released_by_kafka_alone(
    own: Own, operator: OperatorProcess, apiserver: ApiServer, topic: str, group: str, unique: Unique, shell: Shell
) -> None:
    if apiserver.attached:
        pytest.skip("somebody else's API server is not ours to kill")
    pause = unique("p")
    by_kafka = ("--bootstrap-server", own.bootstrap, "--control-topic", own.control_topic)
    assert own.control.ensure() == ()
    with StubAgent(own.bootstrap, group, topic, control_topic=own.control_topic) as agent:
        read_to_the_end(agent, own.bootstrap, group, topic)
        own.resources.pause(pause, group, {"topic": topic, "partitions": [0]}, reason="INC-2")
        own.resources.wait_pause(pause, "Paused", "1/1")
        left = {
            HoldKey(group, topic, 1, "reset/u-1/replay"): Hold("offset reset replay"),
            HoldKey(group, topic, 1, "reset/cli/run-1"): Hold(),
            HoldKey(group, topic, 1, "nightly-batch"): Hold(),
            HoldKey("other", topic, 0, "cli"): Hold(),
        }
        own.control.hold(left)
        operator.kill()
        apiserver.kill()
        try:
            told = shell("why", group, *by_kafka)
            listed = shell("groups", *by_kafka, "--all-groups", "--release-all")
            assert len(own.holders()) == 5
            one = shell(
                "groups", *by_kafka, "--group", group, "--holder", "nightly-batch", "--release-all", "--execute"
            )
            after_one = own.holders()
            rest = shell("groups", *by_kafka, "--all-groups", "--release-all", "--execute")
            assert own.holders() == set()
            before = {n: agent.count(topic, n) for n in range(PARTITIONS)}
            produce(own.bootstrap, topic, PARTITIONS, 5)
            until(lambda: all(agent.count(topic, n) > before[n] for n in before), "all partitions flow", timeout_s=60)
        finally:
            apiserver.restart()

    assert "2 partitions of 2 are held, by 4 holders." in told
    assert "all resources in Kubernetes: " in told
    for holder in ("nightly-batch", "reset/u-1/replay", "reset/cli/run-1", "cli"):
        assert holder in listed
    assert "5 hold(s) would be released. None was" in listed
    assert "1 hold(s) released." in one
    assert "nightly-batch" not in after_one
    assert len(after_one) == 4
    assert "4 hold(s) released." in rest


def test_backups_are_listed_shown_asked_for_and_restored(resources: Resources, shell: Shell, unique: Unique) -> None:
    """Without an operator: what it would say of the backups is said for it."""
    of, name = ("-n", resources.namespace), "nightly"
    path = "file:///claims/backups/offsets/cluster=c/schedule=u/data/20261120T130000Z-nightly-1"
    taken = {"due": "2026-11-20T13:00:00Z", "takenAt": "2026-11-20T13:01:30Z", "path": path}
    taken |= {"groups": 2, "partitions": 7, "bytes": 4096, "unread": 0}
    resources.connection("prod", "127.0.0.1:1")
    resources.backup(name, {"folder": {"path": "offsets"}}, connectionRef={"name": "prod"}, schedule="1h")
    resources.say("offsetbackups", name, {"last": taken, "backups": [taken]})

    listed = json.loads(shell("backup", "list", "--group", "payments", "-o", "json", *of))["backups"]
    shown = shell("backup", "show", name, "--at", "2026-11-20T14:00:00Z", *of)
    shell("backup", "take", name, "--dry-run", *of)
    assert "annotations" not in resources.get_backup(name)["metadata"]
    shell("backup", "take", name, "--no-wait", *of)
    late = shell("backup", "take", name, "--timeout", "1s", *of, code=1)
    shell("backup", "restore", name, "payments", "--name", "dry", "--dry-run", *of)
    shell("backup", "restore", name, "payments", "--name", "back", "--manual", "--no-wait", *of)

    assert [(one["name"], one["connection"], one["path"]) for one in listed] == [(name, "prod", path)]
    assert path in shown
    assert list(resources.get_backup(name)["metadata"]["annotations"]) == ["tidegate.io/take-backup"]
    assert "OffsetBackup nightly was not done within --timeout; it continues." in late
    assert "To watch it: kubectl get offsetbackup nightly" in late
    assert resources.get("offsetresets", "dry") is None
    reset = resources.get_reset("back")["spec"]
    assert (reset["connectionRef"], reset["group"], reset["to"]) == (
        {"name": "prod"},
        "payments",
        {"backup": {"name": name}},
    )
    assert (reset["approval"], bool(reset["requester"])) == ("Manual", True)
