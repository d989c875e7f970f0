"""Tenants of one operator: what a resource names beyond its namespace or its connection's limits, it does not get.

Each path by which a resource names something: docs/explanation/security.md has the same list, with what stops it.
"""

import base64
import os
import secrets
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from confluent_kafka import Consumer, TopicPartition
from kubernetes import client as kube
from kubernetes.client.exceptions import ApiException
from kubernetes.config import new_client_from_config_dict

from devstack import ApiServer, KafkaCluster
from support.operator_process import OperatorProcess, Resources, condition_of, until
from support.stack_fixtures import OWN_KINDS, topics_of
from tidegate.kafka.connection import Authentication, AuthenticationType, Connection
from tidegate.reset.codec import decode_plan, decode_request, encode_plan, encode_request
from tidegate.reset.model.request import RunRequest
from tidegate.reset.model.targets import ToEarliest
from tidegate.reset.runs.request import run_name, run_uid

SERVICE_ACCOUNT_TOKEN = Path("/var/run/secrets/kubernetes.io/serviceaccount/token")


@dataclass(frozen=True)
class Tenants:
    """``mine`` may touch groups and topics that begin with ``mine-``; ``theirs`` has everything worth having."""

    operator: OperatorProcess
    bootstrap: str
    mine: Resources
    theirs: Resources
    my_topic: str
    their_topic: str

    def committed(self, group: str, at: int = 0) -> None:
        """The group stands somewhere on my topic."""
        consumer = Consumer({"bootstrap.servers": self.bootstrap, "group.id": group})
        consumer.commit(offsets=[TopicPartition(self.my_topic, 0, at)], asynchronous=False)
        consumer.close()

    def offset(self, group: str) -> int:
        """Where it stands by now."""
        consumer = Consumer({"bootstrap.servers": self.bootstrap, "group.id": group})
        [found] = consumer.committed([TopicPartition(self.my_topic, 0)], timeout=10)
        consumer.close()
        return int(found.offset)


@pytest.fixture(scope="module")
def tenants(
    apiserver: ApiServer,
    kube_client: kube.ApiClient,
    crds_installed: None,
    kafka: KafkaCluster,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Tenants]:
    names = [f"{prefix}-{secrets.token_hex(2)}" for prefix in ("mine", "theirs")]
    core = kube.CoreV1Api(kube_client)
    for name in names:
        core.create_namespace(kube.V1Namespace(metadata=kube.V1ObjectMeta(name=name)))
    mine, theirs = (Resources(kube_client, name) for name in names)
    topics = topics_of(kafka, lambda prefix="": prefix)
    make_topic = next(topics)
    my_topic, their_topic = (make_topic(name=f"{name}-topic") for name in names)
    environment = {"TIDEGATE_NAMESPACES": ",".join(names), "TIDEGATE_LOG_LEVEL": "DEBUG"}
    operator = OperatorProcess(apiserver.kubeconfig, names[0], tmp_path_factory.mktemp("operator"), environment)
    with operator:
        mine.connection("kafka", kafka.bootstrap, allow={"groups": ["mine-*"], "topics": ["mine-*"]})
        theirs.secret("login", password="theirs")
        theirs.config_map("offsets", csv="mine-topic,0,0\n")
        theirs.connection("theirs", kafka.bootstrap)
        mine.wait_connection("kafka")
        theirs.wait_connection("theirs")
        yield Tenants(operator, kafka.bootstrap, mine, theirs, my_topic, their_topic)
    for resources in (mine, theirs):
        resources.clear()
        core.delete_namespace(resources.namespace)
    for _ in topics:
        """Those that need it are deleted."""


def test_a_secret_of_another_namespace_is_not_found(tenants: Tenants) -> None:
    login = {"secretName": "login", "password": "password"}
    tenants.mine.connection(
        "borrowed", tenants.bootstrap, authentication={"type": "plain", "username": "u", "passwordSecret": login}
    )

    body = tenants.mine.wait_connection("borrowed", ready=False, reason="SecretNotFound")

    assert "no Secret login in this namespace" in condition_of(body, "Ready")["message"]


@pytest.mark.parametrize(
    ("group", "spec", "reason"),
    [
        ("mine-g", {"connectionRef": {"name": "theirs"}}, "WaitingForConnection"),
        ("theirs-g", {}, "GroupNotAllowed"),
        ("tidegate.mine-g", {}, "GroupNotAllowed"),
        ("mine-g", {"partitions": [{"topic": "theirs-topic", "partitions": [0]}]}, "TopicNotAllowed"),
        ("mine-g", {"partitions": [{"topic": "__tidegate", "partitions": [0]}]}, "InternalTopic"),
    ],
    ids=["connection", "group", "marker-group", "topic", "control-topic"],
)
def test_a_pause_reaches_no_further_than_its_connection(
    tenants: Tenants, group: str, spec: dict[str, Any], reason: str, request: pytest.FixtureRequest
) -> None:
    name = f"pause-{request.node.callspec.id}"
    tenants.mine.pause(name, group, **spec)

    tenants.mine.wait_pause(name, "Pending", reason=reason)


@pytest.mark.parametrize(
    ("group", "spec", "to", "reason"),
    [
        ("mine-g", {"connectionRef": {"name": "theirs"}}, {"earliest": {}}, "WaitingForConnection"),
        ("theirs-g", {}, {"earliest": {}}, "GroupNotAllowed"),
        ("mine-g", {}, {"group": "theirs-g"}, "GroupNotAllowed"),
        ("mine-g", {}, {"undo": "of-theirs"}, "UndoRunNotFound"),
        ("mine-g", {}, {"configMap": {"name": "offsets", "key": "csv"}}, "ConfigMapNotFound"),
        ("mine-g", {"topics": ["theirs-topic"]}, {"earliest": {}}, "TopicNotAllowed"),
        ("mine-g", {}, {"configMap": {"name": "listed", "key": "csv"}}, "TopicNotAllowed"),
    ],
    ids=["connection", "group", "to-group", "to-undo", "to-config-map", "topics", "listed-topic"],
)
def test_a_reset_reaches_no_further_than_its_connection(
    tenants: Tenants,
    group: str,
    spec: dict[str, Any],
    to: Mapping[str, Any],
    reason: str,
    request: pytest.FixtureRequest,
) -> None:
    name = f"reset-{request.node.callspec.id}"
    if "listed" in name:
        tenants.mine.config_map("listed", csv=f"{tenants.their_topic},0,0\n")

    tenants.mine.reset(name, group, to, **spec)

    until(
        lambda: condition_of(tenants.mine.get_reset(name), "Complete").get("reason") == reason,
        f"{name} is refused: {tenants.mine.get_reset(name).get('status')}",
    )
    assert tenants.theirs.run_documents(name) == {}


def test_a_forged_run_lends_nobody_the_operators_files_or_connections(tenants: Tenants) -> None:
    """Whoever may write ConfigMaps can write brokers and files of choice into a run that waits for its approval."""
    mine = tenants.mine
    tenants.committed("mine-forged")
    mine.reset("forged", "mine-forged", {"earliest": {}}, engine="Direct", approval="Manual")
    mine.wait_phase("forged", "AwaitingApproval")
    [(document, data)] = mine.run_documents("forged").items()
    auth = Authentication(AuthenticationType.PLAIN, username="x", password_file=SERVICE_ACCOUNT_TOKEN)
    with socket.create_server(("127.0.0.1", 0)) as evil:
        evil.setblocking(False)
        connection = Connection(f"127.0.0.1:{evil.getsockname()[1]}", authentication=auth)
        forged = encode_request(replace(decode_request(data["request.json"]), connection=connection))
        mine.core.patch_namespaced_config_map(document, mine.namespace, {"data": {"request.json": forged}})

        mine.approve("forged")
        ended = mine.wait_phase("forged", "Succeeded", "Failed", "RolledBack")

        assert condition_of(ended, "Complete")["reason"] == "Forged"
        with pytest.raises(BlockingIOError):
            evil.accept()


@pytest.mark.parametrize("part", ["approval", "targets"])
def test_who_may_edit_config_maps_approves_nothing_and_sends_no_group_elsewhere(
    tenants: Tenants, kube_client: kube.ApiClient, apiserver: ApiServer, part: str
) -> None:
    """With the rights that Kubernetes' ``edit`` role is made of, beside a person who may approve."""
    mine, name = tenants.mine, f"edited-{part}"
    tenants.committed(f"mine-{name}", at=5)
    mine.reset(name, f"mine-{name}", {"offset": 1}, engine="Direct", approval="Manual")
    mine.wait_phase(name, "AwaitingApproval")
    read = mine.get_reset(name)["status"]["digest"]
    [(document, data)] = mine.run_documents(name).items()
    editor = _editor(mine, kube_client, apiserver, name)
    resets = kube.CustomObjectsApi(editor)
    for change in (resets.patch_namespaced_custom_object, resets.patch_namespaced_custom_object_status):
        with pytest.raises(ApiException) as refused:
            change("tidegate.io", "v1alpha1", mine.namespace, "offsetresets", name, {})
        assert refused.value.status == 403

    plan = decode_plan(data["plan.json"])
    swapped = encode_plan(replace(plan, partitions=tuple(replace(p, target=4) for p in plan.partitions)))
    forged = {"approved": "true"} if part == "approval" else {"plan.json": swapped}
    kube.CoreV1Api(editor).patch_namespaced_config_map(document, mine.namespace, {"data": forged})
    if part == "targets":
        mine.approve(name, read)
    else:
        # A plan that waits is left alone until it is approved or something else happens to it.
        mine.annotate_reset(name, looked="at")

    ended = mine.wait_phase(name, "Succeeded", "Failed", "RolledBack")
    assert (ended["status"]["phase"], condition_of(ended, "Complete")["reason"]) == ("Failed", "Forged")
    assert "Forged" in [reason for reason, _ in mine.events(name)]
    assert tenants.operator.metric("tidegate_runs_finished_total", outcome="Failed", reason="Forged") >= 1
    assert tenants.offset(f"mine-{name}") == 5
    command = [sys.executable, "-m", "tidegate.cli.main", "plan", name, "-n", mine.namespace]
    environment = os.environ | {"KUBECONFIG": str(apiserver.kubeconfig)}
    shown = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert (shown.returncode, shown.stdout, "Tidegate ignores all of it" in shown.stderr) == (1, "", True), shown


def _editor(resources: Resources, admin: kube.ApiClient, apiserver: ApiServer, account: str) -> kube.ApiClient:
    """A ServiceAccount with what the role ``edit`` is aggregated from."""
    core, meta = resources.core, kube.V1ObjectMeta(name=account)
    core.create_namespaced_service_account(resources.namespace, kube.V1ServiceAccount(metadata=meta))
    kube.RbacAuthorizationV1Api(admin).create_namespaced_role_binding(
        resources.namespace,
        kube.V1RoleBinding(
            metadata=meta,
            role_ref=kube.V1RoleRef(
                api_group="rbac.authorization.k8s.io", kind="ClusterRole", name="system:aggregate-to-edit"
            ),
            subjects=[kube.RbacV1Subject(kind="ServiceAccount", name=account, namespace=resources.namespace)],
        ),
    )
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 600}}
    granted = core.create_namespaced_service_account_token(account, resources.namespace, request)
    config = yaml.safe_load(apiserver.kubeconfig.read_text())
    config["users"][0]["user"] = {"token": granted.status.token}
    return new_client_from_config_dict(config)


def test_a_forged_run_of_another_group_is_not_obeyed(tenants: Tenants) -> None:
    body = tenants.mine.reset("stray", "mine-stray", {"earliest": {}}, engine="Direct", suspend=True)
    request = RunRequest("", "stray", "theirs-g", Connection(tenants.bootstrap), (), ToEarliest())
    _forge(tenants.mine, body, request)

    tenants.mine.patch("offsetresets", "stray", {"spec": {"suspend": False}})
    found = tenants.mine.wait_refused("stray", "Forged")

    assert "existed before this run began" in condition_of(found, "Complete")["message"]


def _forge(resources: Resources, reset: Mapping[str, Any], request: RunRequest) -> None:
    metadata = reset["metadata"]
    forged = replace(request, run_uid=run_uid(metadata["uid"], metadata["name"]))
    name = run_name(metadata["name"], metadata["uid"])
    resources.config_map(name, **{"request.json": encode_request(forged), "attempt": "0", "approved": "false"})


def test_no_secret_is_told_to_anybody(
    tenants: Tenants, kafka_secure: KafkaCluster, kube_client: kube.ApiClient, apiserver: ApiServer
) -> None:
    """A reset and a pause by password, and a wrong password: not in the log at DEBUG, not in any object."""
    security, resources = kafka_secure.security, tenants.theirs
    wrong = f"wrong-{secrets.token_hex(12)}"
    resources.secret("secured", **{"ca.crt": security.ca.read_text(), "right": security.admin_password, "wrong": wrong})
    for key in ("right", "wrong"):
        resources.connection(
            key,
            security.sasl_ssl_bootstrap,
            tls={"trustedCertificates": [{"secretName": "secured", "certificate": "ca.crt"}]},
            authentication={
                "type": "scram-sha-512",
                "username": security.admin_username,
                "passwordSecret": {"secretName": "secured", "password": key},
            },
            properties={"socket.timeout.ms": "2000"},
        )
    resources.wait_connection("right")
    topic = next(topics_of(kafka_secure, lambda prefix="": prefix))(name=f"secured-{secrets.token_hex(2)}")
    selection = {"topic": topic, "partitions": [0]}
    through = {"connectionRef": {"name": "right"}}
    resources.reset("p", "secured", {"latest": {}}, partitions=[selection], engine="Direct", **through)
    resources.pause("held", "secured", selection, **through)
    resources.wait_phase("p", "Succeeded")
    resources.wait_pause("held", "Paused", "1/1")
    resources.wait_connection("wrong", ready=False)

    custom = kube.CustomObjectsApi(kube_client)
    told = [
        tenants.operator.log.read_text(),
        tenants.operator.get("/metrics")[1],
        apiserver.audit_log.read_text(),
        str(resources.core.list_namespaced_config_map(resources.namespace)),
        str(resources.core.list_namespaced_event(resources.namespace)),
    ]
    told += [
        str(custom.list_namespaced_custom_object("tidegate.io", "v1alpha1", resources.namespace, plural))
        for plural in OWN_KINDS
    ]
    for password in (security.admin_password, wrong):
        for shape in (password, base64.b64encode(password.encode()).decode()):
            assert [text[:200] for text in told if shape in text] == []
    assert resources.get_reset("p")["status"]["plan"]["configMap"] in told[3]
    assert "DEBUG" in told[0]
    files = [file for file in tenants.operator.runtime_directory.rglob("*") if file.is_file()]
    assert files
    assert {file.stat().st_mode & 0o777 for file in files} == {0o600}
