"""`OffsetReset`s on a real API server and broker, made and looked at with kubectl as a person does."""

import json
import os
import subprocess
import sys
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType
from kubernetes import client as kube

from apiserver.offsets import committed, leave_at, produce
from devstack import ApiServer, KafkaCluster
from support.kubectl import Kubectl
from support.operator_process import Resources, condition_of, until
from support.stack_fixtures import MakeTopic, Unique
from tidegate.cli.main import main

AT_50, AT_10 = dict.fromkeys(range(2), 50), dict.fromkeys(range(2), 10)


class Group:
    """An Empty group that has committed offset 50 of 100 in each of two partitions."""

    def __init__(self, kafka: KafkaCluster, topic: str, name: str) -> None:
        self._bootstrap, self.topic, self.name = kafka.bootstrap, topic, name
        produce(kafka.bootstrap, topic, 2, 100)
        leave_at(kafka.bootstrap, name, topic, AT_50)

    @property
    def offsets(self) -> dict[int, int]:
        return committed(self._bootstrap, self.name, self.topic, 2)


@pytest.fixture
def kubectl(apiserver: ApiServer, shared: Resources) -> Kubectl:
    return Kubectl(apiserver.kubeconfig, shared.namespace)


@pytest.fixture
def group(kafka: KafkaCluster, make_topic: MakeTopic, unique: Unique) -> Group:
    return Group(kafka, make_topic(2), unique("group"))


def asked(group: Group, to: dict[str, Any], **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "tidegate.io/v1alpha1",
        "kind": "OffsetReset",
        "metadata": {"generateName": "replay-"},
        "spec": {"connectionRef": {"name": "kafka"}, "group": group.name, "to": to, **spec},
    }


def created(kubectl: Kubectl, body: dict[str, Any]) -> str:
    """Its name."""
    return kubectl("create", "-f-", "-oname", given=body).strip().rpartition("/")[2]


def test_a_reset_is_created_waited_for_read_and_undone(shared: Resources, kubectl: Kubectl, group: Group) -> None:
    name = created(kubectl, asked(group, {"offset": 10}))
    kubectl("wait", "--for=condition=Complete", f"ors/{name}", "--timeout=60s")

    assert group.offsets == AT_10
    row = next(line for line in kubectl("get", "ors").splitlines() if line.startswith(name))
    assert row.split()[1:6] == [group.name, "Succeeded", "2", "80", "0"]
    wide = kubectl("get", "ors", name, "-owide").splitlines()
    assert wide[0].split() == [
        *("NAME", "GROUP", "PHASE", "PARTITIONS", "REPLAYED", "SKIPPED"),
        *("REPLAY", "WAY", "WAVE", "STANDSTILL", "FINISHED", "PLAN", "APPROVER", "REASON", "AGE"),
    ]
    assert wide[1].split()[-2] == "Applied"
    described = kubectl("describe", "ors", name)
    assert "reset (strategy: Unowned)" in described
    reset = shared.get_reset(name)
    documents = shared.core.list_namespaced_config_map(
        shared.namespace, label_selector=f"tidegate.io/offset-reset={name}"
    ).items
    assert [d.metadata.name for d in documents] == [reset["status"]["plan"]["configMap"]]

    undo = created(kubectl, asked(group, {"undo": name}))
    kubectl("wait", "--for=condition=Complete", f"ors/{undo}", "--timeout=60s")
    assert group.offsets == AT_50


def test_a_reset_that_fails_can_be_waited_for_and_changed_nothing(
    shared: Resources, kubectl: Kubectl, group: Group, unique: Unique
) -> None:
    name = created(kubectl, asked(group, {"offset": 10}, partitions=[{"topic": unique("missing")}]))
    kubectl("wait", "--for=condition=Failed", f"ors/{name}", "--timeout=60s")

    body = shared.get_reset(name)
    assert condition_of(body, "Failed")["reason"] == "UnknownTopic"
    assert condition_of(body, "Complete")["status"] == "False"
    assert group.offsets == AT_50


def test_its_spec_can_be_changed_until_it_has_begun(shared: Resources, kubectl: Kubectl, group: Group) -> None:
    name = created(kubectl, asked(group, {"offset": 20}, suspend=True))
    until(lambda: condition_of(shared.get_reset(name), "Complete").get("reason") == "Suspended", "it is suspended")
    shared.patch("offsetresets", name, {"spec": {"to": {"offset": 10}, "topics": [group.topic]}})
    shared.patch("offsetresets", name, {"spec": {"suspend": False}})
    kubectl("wait", "--for=condition=Complete", f"ors/{name}", "--timeout=60s")
    assert group.offsets == AT_10

    changes: tuple[dict[str, Any], ...] = (
        {"to": {"offset": 30}},
        {"group": "another"},
        {"topics": None},
        {"partitions": [{"topic": group.topic}]},
        {"deadline": "1h"},
        {"spark": {"image": "other"}},
    )
    for change in changes:
        refused = kubectl("patch", "ors", name, "--type=merge", "-p", json.dumps({"spec": change}), fails=True)
        assert "spec is immutable once the reset has begun" in refused
    kubectl("patch", "ors", name, "--type=merge", "-p", '{"spec": {"ttlAfterFinished": "1s", "suspend": true}}')
    until(lambda: shared.get("offsetresets", name) is None, "it is deleted after its time")
    assert group.offsets == AT_10


def test_one_that_undoes_itself_is_refused(kubectl: Kubectl, group: Group) -> None:
    body = asked(group, {"undo": "itself"}) | {"metadata": {"name": "itself"}}

    assert "spec.to.undo must name another" in kubectl("create", "-f-", given=body, fails=True)


def test_a_name_that_no_run_can_have_is_refused(kubectl: Kubectl, group: Group) -> None:
    body = asked(group, {"offset": 10}) | {"metadata": {"name": "a.b"}}

    assert "metadata.name must have at most 63" in kubectl("create", "-f-", given=body, fails=True)


def test_resets_of_one_group_take_turns(shared: Resources, kubectl: Kubectl, group: Group) -> None:
    slow = created(kubectl, asked(group, {"offset": 30}, approval="Manual"))
    shared.wait_phase(slow, "AwaitingApproval")
    first = created(kubectl, asked(group, {"offset": 10}))
    kubectl("wait", "--for=condition=Complete", f"ors/{first}", "--timeout=60s")
    assert group.offsets == AT_10

    shared.approve(slow)
    done = shared.wait_phase(slow, "Succeeded", "Failed", "RolledBack")
    second = created(kubectl, asked(group, {"earliest": {}}))
    kubectl("wait", "--for=condition=Complete", f"ors/{second}", "--timeout=60s")

    # Its plan counted on 50: what passed the target meanwhile makes it outdated, and it says so.
    assert condition_of(done, "Complete")["reason"] in ("Applied", "PlanOutdated")
    assert group.offsets == {0: 0, 1: 0}


def test_explain_says_what_each_field_means(kubectl: Kubectl, kube_client: kube.ApiClient) -> None:
    assert kube_client is not None
    text = " ".join(kubectl("explain", "offsetreset.spec").split())

    for field in ("suspend", "ttlAfterFinished", "to", "group", "partitions"):
        assert field in text
    assert "If true, the reset does not begin" in text


def test_the_command_line_creates_one_shows_its_phases_and_undoes_it(
    shared: Resources, apiserver: ApiServer, group: Group, unique: Unique
) -> None:
    def tidegate(*arguments: str) -> tuple[int, str, str]:
        done = subprocess.run(
            [sys.executable, "-m", "tidegate.cli.main", "reset", group.name, "-n", shared.namespace, *arguments],
            env=os.environ | {"KUBECONFIG": str(apiserver.kubeconfig)},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        return done.returncode, done.stdout, done.stderr

    name = unique("cli")
    to_10 = ("-c", "kafka", "--topic", f"{group.topic}:0,1", "--to-offset", "10", "--name", name)
    created = f"offsetreset.tidegate.io/{name} created"
    assert tidegate(*to_10, "--dry-run")[:2] == (0, f"{created} (server dry run)\n")
    assert shared.get("offsetresets", name) is None

    code, out, shown = tidegate(*to_10)

    assert (code, out) == (0, f"{created}\n")
    assert shown.splitlines()[-1].startswith("Succeeded: 2 partition(s) of group")
    assert group.offsets == AT_10
    code, _, complaint = tidegate(*to_10)
    assert (code, "already exists" in complaint) == (1, True)
    assert tidegate("-c", "kafka", "--undo", name)[0] == 0
    assert group.offsets == AT_50
    code, _, shown = tidegate("-c", "kafka", "--topic", unique("missing"), "--to-earliest")
    assert (code, shown.splitlines()[-1].partition(":")[0]) == (1, "Failed")


# --- the audit log ----------------------------------------------------------------------------------------------------


def test_a_reset_and_its_undo_are_in_the_log(
    shared: Resources,
    kafka: KafkaCluster,
    make_topic: MakeTopic,
    unique: Unique,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def audit_log(*arguments: str) -> list[dict[str, Any]]:
        capsys.readouterr()
        assert main(["audit", "log", "--bootstrap-server", kafka.bootstrap, "--audit-topic", log, *arguments]) == 0
        shown = capsys.readouterr()
        assert shown.err == ""
        return [json.loads(text) for text in shown.out.splitlines()]

    topic, group, log = make_topic(2), unique("group"), unique("audit")
    produce(kafka.bootstrap, topic, 2, 100)
    leave_at(kafka.bootstrap, group, topic, {0: 50, 1: 60})
    connection = unique("audited")
    shared.connection(connection, kafka.bootstrap, audit={"topic": log, "required": True})
    until(
        lambda: condition_of(shared.get_connection(connection), "AuditTopic").get("reason") == "Usable",
        "the audit topic is usable",
    )
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    [made] = [f.result() for f in admin.describe_configs([ConfigResource(ResourceType.TOPIC, log)]).values()]
    assert made["cleanup.policy"].value == "delete"
    assert made["message.timestamp.type"].value == "LogAppendTime"

    reference, name = {"name": connection}, unique("replay")
    shared.reset(name, group, {"offset": 10}, connectionRef=reference, requester="ann", approval="Manual")
    shared.wait_phase(name, "AwaitingApproval")
    assert audit_log() == []
    shared.approve(name, approver="bob")
    done = shared.wait_phase(name, "Succeeded", "Failed", "RolledBack")
    assert done["status"]["phase"] == "Succeeded"
    undo = unique("undo")
    shared.reset(undo, group, {"undo": name}, connectionRef=reference)
    shared.wait_phase(undo, "Succeeded")
    assert committed(kafka.bootstrap, group, topic, 2) == {0: 50, 1: 60}

    first, second = audit_log("--group", group, "--since", "1h")
    digest = done["status"]["approvedDigest"]
    assert first["by"] == {"kind": "OffsetReset", "name": name, "namespace": shared.namespace}
    assert (first["requester"], first["approver"]) == ("ann", "bob")
    assert first["plan"] == first["approved"] == digest == done["status"]["digest"]
    assert (first["action"], first["state"], first["way"], first["part"], first["parts"]) == (
        *("reset", "committed", "Unowned", 1, 1),
    )
    assert first["offsets"] == [
        {"topic": topic, "partition": 0, "before": 50, "after": 10},
        {"topic": topic, "partition": 1, "before": 60, "after": 10},
    ]
    assert (second["action"], second["by"]["name"], "requester" in second) == ("undo", undo, False)
    assert [row["after"] for row in second["offsets"]] == [50, 60]
    assert first["at"] < second["at"]
    assert audit_log("--by", f"{shared.namespace}/{undo}") == [second]
    assert audit_log("--group", "another") == []


def test_a_topic_that_cannot_be_relied_on_is_told_of(shared: Resources, kafka: KafkaCluster, unique: Unique) -> None:
    log, connection = unique("audit"), unique("audited")
    config = {"cleanup.policy": "compact", "retention.ms": "60000"}
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    admin.create_topics([NewTopic(log, 1, 1, config=config)])[log].result()
    shared.connection(connection, kafka.bootstrap, audit={"topic": log})
    found = until(lambda: condition_of(shared.get_connection(connection), "AuditTopic"), "the audit topic was checked")
    assert (found["status"], found["reason"]) == ("False", "WrongSettings")
    assert "cleanup.policy=delete" in found["message"]
    assert "message.timestamp.type=LogAppendTime" in found["message"]
    [made] = [f.result() for f in admin.describe_configs([ConfigResource(ResourceType.TOPIC, log)]).values()]
    assert (made["cleanup.policy"].value, made["retention.ms"].value) == ("compact", "60000")

    shared.patch("kafkaconnections", connection, {"spec": {"audit": None}})
    until(lambda: condition_of(shared.get_connection(connection), "AuditTopic") == {}, "nothing is said of it")
