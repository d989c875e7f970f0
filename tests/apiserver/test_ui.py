"""``tidegate ui`` with an operator, an API server and a broker: what a browser would be told and may ask for."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubernetes import client as kube

from apiserver.offsets import committed, leave_at, produce
from devstack import ApiServer, KafkaCluster
from support.operator_process import Resources, until
from support.shell import Shell
from support.stack_fixtures import MakeTopic, Unique

PARTITIONS = 2
START = {0: 8, 1: 6}


class Tab:
    """What the page's script does, without the browser."""

    def __init__(self, address: str) -> None:
        self.url, _, self.token = address.partition("/#token=")
        self.host = self.url.removeprefix("http://")

    def ask(self, path: str, body: Mapping[str, Any] | None = None) -> tuple[int, Any]:
        connection = http.client.HTTPConnection(self.host, timeout=60)
        headers = {"Authorization": f"Bearer {self.token}"}
        if body is not None:
            headers |= {"Origin": self.url, "Content-Type": "application/json"}
        try:
            connection.request(
                "GET" if body is None else "POST",
                f"/api/{path}",
                None if body is None else json.dumps(body),
                headers,
            )
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read())
        finally:
            connection.close()

    @contextmanager
    def events(self) -> Iterator[Iterator[tuple[str, Any]]]:
        connection = http.client.HTTPConnection(self.host, timeout=60)
        connection.request("GET", "/api/events", headers={"Authorization": f"Bearer {self.token}"})
        try:
            yield _events(connection.getresponse())
        finally:
            connection.close()


def _events(answer: http.client.HTTPResponse) -> Iterator[tuple[str, Any]]:
    kind = ""
    while line := answer.readline().decode().rstrip("\n"):
        if line.startswith("event: "):
            kind = line.removeprefix("event: ")
        elif line.startswith("data: "):
            yield kind, json.loads(line.removeprefix("data: "))
            answer.readline()


@contextmanager
def served(shell: Shell, *arguments: str) -> Iterator[Tab]:
    with shell.start("ui", "--no-browser", *arguments) as process:
        assert process.stdout is not None
        address = process.stdout.readline().strip()
        try:
            assert address.startswith("http://127.0.0.1:"), address + (process.stderr.read() if process.stderr else "")
            yield Tab(address)
        finally:
            process.terminate()
        assert process.wait(20) == 0


@pytest.fixture
def shell(apiserver: ApiServer) -> Shell:
    return Shell({"KUBECONFIG": str(apiserver.kubeconfig)})


def test_a_reset_is_seen_approved_followed_and_undone(
    shared: Resources, kafka: KafkaCluster, make_topic: MakeTopic, unique: Unique, shell: Shell
) -> None:
    topic, group, name = make_topic(PARTITIONS), unique("group"), unique("r")
    produce(kafka.bootstrap, topic, PARTITIONS, 10)
    leave_at(kafka.bootstrap, group, topic, START)
    with served(shell, "-n", shared.namespace, "-c", "kafka") as tab, tab.events() as events:
        about, whole = next(events), next(events)
        shared.reset(name, group, {"offset": 3}, approval="Manual", requester="system:admin")
        told = next(data for kind, data in events if kind == "changes" and is_waiting(data, name))
        status, waits = tab.ask(f"reset/{shared.namespace}/{name}")
        _, plan = tab.ask(f"plan/{shared.namespace}/{name}")
        _, of_group = tab.ask(f"group?group={group}&connection={shared.namespace}/kafka")
        _, listed = tab.ask("groups")
        refused, without = tab.ask("approve", {"namespace": shared.namespace, "name": name, "plan": "0" * 64})
        before = committed(kafka.bootstrap, group, topic, PARTITIONS)

        approved, done = tab.ask("approve", {"namespace": shared.namespace, "name": name, "plan": waits["digest"]})
        next(data for kind, data in events if kind == "changes" and has_state(data, name, "Succeeded"))
        after = committed(kafka.bootstrap, group, topic, PARTITIONS)
        # One look at Kafka serves for a second.
        until(lambda: lanes_of(tab.ask(f"reset/{shared.namespace}/{name}")[1]) == {(8, 3), (6, 3)}, "it stands there")
        _, ended = tab.ask(f"reset/{shared.namespace}/{name}")
        _, undoing = tab.ask(
            "undo", {"namespace": shared.namespace, "name": name, "uid": ended["uid"], "approval": "Automatic"}
        )
        shared.wait_phase(undoing["name"], "Succeeded")

    assert about[1]["you"] == "admin"
    assert (whole[0], whole[1]["trouble"]) == ("lines", {})
    assert told["trouble"] == {}
    assert (status, waits["phase"]) == (200, "AwaitingApproval")
    assert {(p["partition"], p["before"], p["target"], p["now"]) for p in waits["lanes"]} == {
        (0, 8, 3, 8),
        (1, 6, 3, 6),
    }
    assert plan["digest"] == waits["digest"]
    assert "<table>" in plan["html"]
    assert [(p["committed"], p["logEnd"], p["lag"]) for p in of_group["partitions"]] == [(8, 10, 2), (6, 10, 4)]
    assert group in {each["group"] for each in listed["groups"]}
    # It is created, and has no effect, as with the command.
    assert (refused, without["holds"]) == (200, False), without
    assert before == START
    assert (approved, done["holds"]) == (200, True), done
    assert after == {0: 3, 1: 3}
    assert [s["phase"] for s in ended["steps"]][-1] == "Succeeded"
    assert ended["undoable"]
    assert committed(kafka.bootstrap, group, topic, PARTITIONS) == START


def lanes_of(detail: Mapping[str, Any]) -> set[tuple[int, int]]:
    """Where the group stood before and stands now, by partition."""
    return {(each["before"], each["now"]) for each in detail["lanes"]}


def has_state(data: Mapping[str, Any], name: str, state: str) -> bool:
    return any(line["name"] == name and line["state"] == state for line in data["lines"])


def is_waiting(data: Mapping[str, Any], name: str) -> bool:
    return has_state(data, name, "AwaitingApproval")


def test_who_may_see_only_resets_sees_those_and_is_told_which_right_is_missing(
    resources: Resources, kube_client: kube.ApiClient, apiserver: ApiServer, tmp_path: Path
) -> None:
    resources.reset("mine", "g", {"earliest": {}}, approval="Manual")
    config = limited(resources, kube_client, apiserver, "offsetresets", "list", "watch", "get")
    (tmp_path / "kubeconfig").write_text(yaml.safe_dump(config))
    with served(Shell({"KUBECONFIG": str(tmp_path / "kubeconfig")}), "-n", resources.namespace) as tab:
        with tab.events() as events:
            told: dict[str, Any] = {}
            lines: list[str] = []
            while not told.get("ready") or len(told["trouble"]) < 6:
                _, told = next(events)
                lines += [line["name"] for line in told.get("lines", ())]
        status, refused = tab.ask("approve", {"namespace": resources.namespace, "name": "mine", "plan": "a" * 64})
        _, detail = tab.ask(f"reset/{resources.namespace}/mine")

    assert set(lines) == {"mine"}
    assert "offsetresets" not in told["trouble"]
    assert "cannot list resource" in told["trouble"]["consumergrouppauses"]
    assert "consumergrouppauses" in told["trouble"]["consumergrouppauses"]
    assert status == 409
    assert 'cannot create resource "offsetresetapprovals"' in refused["message"]
    assert (detail["phase"], detail["isPlanned"]) == ("Pending", False)
    assert "has not begun" in detail["problem"]


def limited(
    resources: Resources, admin: kube.ApiClient, apiserver: ApiServer, plural: str, *verbs: str
) -> dict[str, Any]:
    """The kubeconfig of a service account that may do this and nothing else."""
    core, rbac = kube.CoreV1Api(admin), kube.RbacAuthorizationV1Api(admin)
    meta, namespace = kube.V1ObjectMeta(name="limited"), resources.namespace
    core.create_namespaced_service_account(namespace, kube.V1ServiceAccount(metadata=meta))
    rule = kube.V1PolicyRule(api_groups=["tidegate.io"], resources=[plural], verbs=list(verbs))
    rbac.create_namespaced_role(namespace, kube.V1Role(metadata=meta, rules=[rule]))
    to = kube.V1RoleRef(api_group="rbac.authorization.k8s.io", kind="Role", name="limited")
    subject = kube.RbacV1Subject(kind="ServiceAccount", name="limited", namespace=namespace)
    rbac.create_namespaced_role_binding(namespace, kube.V1RoleBinding(metadata=meta, role_ref=to, subjects=[subject]))
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 600}}
    token = core.create_namespaced_service_account_token("limited", namespace, request).status.token
    config: dict[str, Any] = yaml.safe_load(apiserver.kubeconfig.read_text())
    config["users"][0]["user"] = {"token": token}
    return config


def test_a_second_page_on_the_same_port_says_so(shell: Shell, apiserver: ApiServer) -> None:
    with served(shell) as tab:
        port = tab.host.partition(":")[2]

        assert f"can't listen on 127.0.0.1:{port}" in shell("ui", "--no-browser", "--port", port, code=1)


def test_a_page_without_an_api_server_says_so(tmp_path: Path) -> None:
    """Nobody listens there."""
    (tmp_path / "kubeconfig").write_text(
        "{apiVersion: v1, kind: Config, current-context: here, "
        "contexts: [{name: here, context: {cluster: here, user: me}}], "
        'clusters: [{name: here, cluster: {server: "http://127.0.0.1:1"}}], users: [{name: me, user: {}}]}'
    )
    with served(Shell({"KUBECONFIG": str(tmp_path / "kubeconfig")})) as tab, tab.events() as events:
        about = next(events)[1]
        until(lambda: "offsetresets" in next(events)[1].get("trouble", {}), "it is said")

    assert "does not answer" in about["you"]
