"""A KafkaConnection that other namespaces use, on a real API server and broker."""

from __future__ import annotations

import base64
import secrets
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pytest
from kubernetes import client as kube

from apiserver.offsets import committed, leave_at, produce
from devstack import ApiServer, KafkaCluster
from support.operator_process import OperatorProcess, Resources, condition_of, until
from support.stack_fixtures import OWN_KINDS, MakeTopic, topics_of
from tidegate.kafka.connection import Connection
from tidegate.kafka_client.client import KafkaClient
from tidegate.reset.codec import encode_request
from tidegate.reset.model.request import RunRequest
from tidegate.reset.model.targets import ToEarliest
from tidegate.reset.runs.request import run_name, run_uid


@dataclass(frozen=True)
class Shared:
    """``platform`` has KafkaConnection ``prod``; ``alpha`` may use groups and topics that begin with its own name,
    ``beta`` all of them, and ``outside`` nothing."""

    operator: OperatorProcess
    bootstrap: str
    platform: Resources
    alpha: Resources
    beta: Resources
    outside: Resources

    def through(self, name: str = "prod") -> dict[str, Any]:
        return {"connectionRef": {"name": name, "namespace": self.platform.namespace}}

    def entries(self) -> dict[str, dict[str, Any]]:
        alpha, beta = self.alpha.namespace, self.beta.namespace
        return {
            alpha: {"name": alpha, "groups": [f"{alpha}-*"], "topics": [f"{alpha}-*"]},
            beta: {"name": beta},
        }

    def list_only(self, *namespaces: str) -> None:
        entries = [entry for name, entry in self.entries().items() if name in namespaces]
        self.platform.patch("kafkaconnections", "prod", {"spec": {"allow": {"namespaces": entries}}})

    def held(self, group: str) -> list[str]:
        """The holders of the group's gates, by the control topic."""
        kafka = KafkaClient(Connection(self.bootstrap))
        try:
            return sorted(key.holder for key in kafka.control.read([group]).holds if key.group == group)
        finally:
            kafka.close()


@pytest.fixture(scope="module")
def world(
    apiserver: ApiServer,
    kube_client: kube.ApiClient,
    crds_installed: None,
    kafka: KafkaCluster,
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Shared]:
    names = [f"{prefix}-{secrets.token_hex(2)}" for prefix in ("platform", "alpha", "beta", "outside")]
    core = kube.CoreV1Api(kube_client)
    for name in names:
        core.create_namespace(kube.V1Namespace(metadata=kube.V1ObjectMeta(name=name)))
    platform, alpha, beta, outside = (Resources(kube_client, name) for name in names)
    environment = {"TIDEGATE_NAMESPACES": ",".join(names), "TIDEGATE_LOG_LEVEL": "DEBUG"}
    operator = OperatorProcess(apiserver.kubeconfig, names[0], tmp_path_factory.mktemp("operator"), environment)
    made = Shared(operator, kafka.bootstrap, platform, alpha, beta, outside)
    failed_before = request.session.testsfailed
    with operator:
        platform.connection("prod", kafka.bootstrap, allow={"namespaces": list(made.entries().values())})
        platform.wait_connection("prod")
        yield made
    if request.session.testsfailed > failed_before:
        print(f"--- {operator.log}\n{operator.tail(200)}")
    for resources in (platform, alpha, beta, outside):
        resources.clear()
        core.delete_namespace(resources.namespace)


@pytest.fixture(scope="module")
def make_alphas_topic(world: Shared, kafka: KafkaCluster) -> Iterator[MakeTopic]:
    yield from topics_of(kafka, lambda prefix=world.alpha.namespace: f"{prefix}-{secrets.token_hex(2)}")


def reason(body: Mapping[str, Any], condition: str) -> str:
    return str(condition_of(body, condition).get("reason"))


def refused(resources: Resources, name: str) -> tuple[str, str]:
    """Why a reset does not begin."""
    until(lambda: condition_of(resources.get_reset(name), "Complete").get("status") == "False", f"{name} is refused")
    said = condition_of(resources.get_reset(name), "Complete")
    return said["reason"], said["message"]


def test_a_namespace_that_is_listed_pauses_and_resets_its_groups(
    world: Shared, kafka: KafkaCluster, make_alphas_topic: MakeTopic
) -> None:
    topic, group = make_alphas_topic(2), f"{world.alpha.namespace}-group"
    produce(kafka.bootstrap, topic, 2, 100)
    leave_at(kafka.bootstrap, group, topic, dict.fromkeys(range(2), 50))

    world.alpha.pause("still", group, {"topic": topic}, **world.through())
    world.alpha.wait_pause("still", "Paused", "2/2")
    world.alpha.reset("back", group, {"offset": 10}, **world.through())
    world.alpha.wait_phase("back", "Succeeded")
    world.alpha.policy("wanted", group, reset={"id": "again", "to": {"offset": 20}}, **world.through())
    until(lambda: world.alpha.get("offsetresets", "wanted-again"), "the policy's reset is there")
    world.alpha.wait_phase("wanted-again", "Succeeded")

    assert committed(kafka.bootstrap, group, topic, 2) == {0: 20, 1: 20}
    back = world.alpha.get_reset("back")["status"]
    assert back["engine"] == "Direct"
    [document] = world.alpha.run_documents("back").values()
    assert kafka.bootstrap in document["request.json"]
    world.alpha.delete_pause("still")


@pytest.mark.parametrize("of", ["pause", "reset"])
def test_one_that_is_not_listed_is_told_the_same_as_where_there_is_nothing(world: Shared, of: str) -> None:
    said = []
    for connection in ("prod", "none"):
        name, group = f"{connection}-{of}", f"{world.alpha.namespace}-group"
        if of == "pause":
            world.outside.pause(name, group, {"topic": "orders"}, **world.through(connection))
            found = condition_of(world.outside.wait_pause(name, "Pending", reason="NoUsableConnection"), "Paused")
        else:
            world.outside.reset(name, group, {"earliest": {}}, **world.through(connection))
            assert refused(world.outside, name)[0] == "NoUsableConnection"
            found = condition_of(world.outside.get_reset(name), "Complete")
        said.append(found["message"].replace(f"KafkaConnection {connection} ", "KafkaConnection X "))
        told = world.outside.events(name)
        assert [reason for reason, _ in told] in ([], ["NoUsableConnection"])

    assert said[0] == said[1]
    assert world.alpha.namespace not in said[0]


@pytest.mark.parametrize(
    ("group", "spec", "to", "reason"),
    [
        ("other-group", {}, {"earliest": {}}, "GroupNotAllowed"),
        ("{own}-group", {"topics": ["other-topic"]}, {"earliest": {}}, "TopicNotAllowed"),
        ("{own}-group", {}, {"group": "other-group"}, "GroupNotAllowed"),
        ("{own}-group", {"engine": "Spark"}, {"earliest": {}}, "SparkNotShared"),
        ("{own}-group", {}, {"record": {"where": "true"}}, "SparkNotShared"),
    ],
    ids=["group", "topic", "to-group", "engine", "record"],
)
def test_its_own_lists_and_no_spark(
    world: Shared, group: str, spec: dict[str, Any], to: dict[str, Any], reason: str, request: pytest.FixtureRequest
) -> None:
    name, own = f"refused-{request.node.callspec.id}", world.alpha.namespace

    world.alpha.reset(name, group.format(own=own), to, **world.through(), **spec)

    found, message = refused(world.alpha, name)
    assert found == reason
    assert f"{world.platform.namespace}/prod" in message
    assert world.alpha.run_documents(name) == {}


def test_a_forged_run_of_another_teams_group_is_not_obeyed(world: Shared) -> None:
    """Whoever may write ConfigMaps in its namespace has a run there before it begins."""
    alpha, own = world.alpha, world.alpha.namespace
    body = alpha.reset("stray", f"{own}-stray", {"earliest": {}}, suspend=True, **world.through())
    metadata = body["metadata"]
    uid, name = run_uid(metadata["uid"], "stray"), run_name("stray", metadata["uid"])
    request = RunRequest(uid, "stray", "beta-group", Connection(world.bootstrap), (), ToEarliest())
    alpha.config_map(name, **{"request.json": encode_request(request), "attempt": "0", "approved": "false"})

    alpha.patch("offsetresets", "stray", {"spec": {"suspend": False}})

    assert "existed before this run began" in condition_of(alpha.wait_refused("stray", "Forged"), "Complete")["message"]


def test_what_is_held_is_released_and_no_plan_applied_once_the_namespace_is_taken_off_the_list(
    world: Shared, kafka: KafkaCluster, make_alphas_topic: MakeTopic
) -> None:
    topic, group, other = make_alphas_topic(1), f"{world.beta.namespace}-held", f"{world.beta.namespace}-planned"
    produce(kafka.bootstrap, topic, 1, 100)
    leave_at(kafka.bootstrap, other, topic, {0: 50})
    world.beta.pause("held", group, {"topic": topic}, **world.through())
    world.beta.wait_pause("held", "Paused", "1/1")
    world.beta.reset("planned", other, {"offset": 10}, approval="Manual", **world.through())
    world.beta.wait_phase("planned", "AwaitingApproval")
    assert len(world.held(group)) == 1

    world.list_only(world.alpha.namespace)
    world.beta.wait_pause("held", "Pending", reason="NoUsableConnection")
    until(lambda: world.held(group) == [], "its hold is released")
    until(lambda: not world.beta.get_pause("held")["metadata"].get("finalizers"), "nothing keeps it")
    world.beta.approve("planned")
    until(lambda: reason(world.beta.get_reset("planned"), "Complete") == "NoUsableConnection", "the approval waits")
    assert committed(kafka.bootstrap, other, topic, 1) == {0: 50}

    world.list_only(world.alpha.namespace, world.beta.namespace)
    world.beta.wait_pause("held", "Paused", "1/1")
    world.beta.wait_phase("planned", "Succeeded")
    assert committed(kafka.bootstrap, other, topic, 1) == {0: 10}
    world.beta.delete_pause("held")


def test_the_login_stays_in_its_namespace(
    world: Shared, kafka_secure: KafkaCluster, kube_client: kube.ApiClient, apiserver: ApiServer
) -> None:
    """A reset and a pause through it by another namespace: the password is in no object or log, the user name in none
    of the other namespace."""
    security = kafka_secure.security
    world.platform.secret("login", **{"ca.crt": security.ca.read_text(), "password": security.admin_password})
    world.platform.connection(
        "secured",
        security.sasl_ssl_bootstrap,
        tls={"trustedCertificates": [{"secretName": "login", "certificate": "ca.crt"}]},
        authentication={
            "type": "scram-sha-512",
            "username": security.admin_username,
            "passwordSecret": {"secretName": "login", "password": "password"},
        },
        allow={"namespaces": [{"name": world.beta.namespace}]},
    )
    world.platform.wait_connection("secured")
    topic = next(topics_of(kafka_secure, lambda prefix="": prefix))(name=f"secured-{secrets.token_hex(2)}")
    selection = {"topic": topic, "partitions": [0]}

    world.beta.reset("secured", "g", {"latest": {}}, partitions=[selection], **world.through("secured"))
    world.beta.pause("secured", "g", selection, **world.through("secured"))
    world.beta.wait_phase("secured", "Succeeded")
    world.beta.wait_pause("secured", "Paused", "1/1")

    custom, namespace = kube.CustomObjectsApi(kube_client), world.beta.namespace
    theirs = [
        str(world.beta.core.list_namespaced_config_map(namespace)),
        str(world.beta.core.list_namespaced_event(namespace)),
        *(str(custom.list_namespaced_custom_object("tidegate.io", "v1alpha1", namespace, kind)) for kind in OWN_KINDS),
    ]
    assert world.beta.get_reset("secured")["status"]["plan"]["configMap"] in theirs[0]
    password = security.admin_password
    everywhere = [*theirs, world.operator.log.read_text(), apiserver.audit_log.read_text()]
    for shape in (password, base64.b64encode(password.encode()).decode()):
        assert [text[:200] for text in everywhere if shape in text] == []
    assert "passwordFile" not in theirs[0]
    assert f'"{security.admin_username}"' not in theirs[0]
    assert world.beta.core.list_namespaced_secret(namespace).items == []
    world.beta.delete_pause("secured")
