"""The stack as pytest fixtures: nothing starts unless a test asks for it.

A broker or cluster that is there already is used instead where ``TIDEGATE_BOOTSTRAP`` or ``KUBECONFIG`` name one; a
cluster that is not on this machine only with ``TIDEGATE_USE_CLUSTER=1``, since tests create and delete in it.
"""

import contextlib
import itertools
import os
import re
import secrets
import shutil
import urllib.parse
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Protocol

import pytest
import yaml
from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec
from kubernetes import client as kube
from kubernetes import config as kube_config
from kubernetes.dynamic import DynamicClient

from devstack import ApiServer, KafkaCluster, spark_operator_crds
from devstack.commands import crd_files
from devstack.processes import eventually
from support.connect_worker import ConnectWorker
from support.needs import starts

PROJECT = Path(__file__).resolve().parents[2]
TEST_LOGS = PROJECT / "build" / "test-logs"
OWN_KINDS = (
    "consumergrouppauses",
    "kafkaconnections",
    "offsetresetpolicies",
    "offsetresets",
    "offsetbackups",
    "offsetmirrors",
)

# Several processes use one broker (`at_once`), and long names are cut: this alone keeps theirs apart.
_session_id = secrets.token_hex(4)
_numbers = itertools.count(1)


class MakeTopic(Protocol):
    """Makes a topic of its own name and returns the name once every partition's leader answers."""

    def __call__(
        self,
        partitions: int = 1,
        *,
        name: str | None = None,
        replication_factor: int = -1,
        config: Mapping[str, str] | None = None,
    ) -> str: ...


class Unique(Protocol):
    """A name nobody else has: valid for topics, groups and Kubernetes resources, at most 63 characters."""

    def __call__(self, prefix: str = "") -> str: ...


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say where the stack's logs are when tests failed."""
    if TEST_LOGS.is_dir() and (terminalreporter.stats.get("failed") or terminalreporter.stats.get("error")):
        terminalreporter.write_line(f"the stack's logs: {TEST_LOGS.relative_to(PROJECT)}")


def _keep_logs(request: pytest.FixtureRequest, logs: Path | None) -> None:
    """Copy a part's logs into the project when a test of this session failed; called before the part is ended."""
    if logs is None or not request.session.testsfailed:
        return
    # Each of pytest-xdist's workers has a stack of its own.
    target = TEST_LOGS / f"{request.fixturename}-{os.environ.get('PYTEST_XDIST_WORKER', 'main')}"
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(logs, target)


def _kafka(request: pytest.FixtureRequest, start: Callable[[], KafkaCluster]) -> Iterator[KafkaCluster]:
    with start() as cluster:
        yield cluster
        _keep_logs(request, cluster.logs)


@pytest.fixture(scope="session")
@starts("kafka")
def kafka(request: pytest.FixtureRequest) -> Iterator[KafkaCluster]:
    """One broker for the whole session, or the one that ``TIDEGATE_BOOTSTRAP`` names."""
    bootstrap = os.environ.get("TIDEGATE_BOOTSTRAP")
    yield from _kafka(request, lambda: KafkaCluster.attach(bootstrap) if bootstrap else KafkaCluster.start())


@pytest.fixture(scope="session")
@starts("kafka")
def connect_worker(kafka: KafkaCluster) -> Iterator[ConnectWorker]:
    """One worker of Kafka Connect for the whole session. A test that kills it starts it again."""
    with ConnectWorker(kafka.bootstrap) as worker:
        yield worker


@pytest.fixture(scope="session")
@starts("kafka")
def kafka3(request: pytest.FixtureRequest) -> Iterator[KafkaCluster]:
    """Three brokers for the whole session. A test that kills one restarts it."""
    yield from _kafka(request, lambda: KafkaCluster.start(3))


@pytest.fixture(scope="session")
@starts("kafka")
def kafka_secure(request: pytest.FixtureRequest) -> Iterator[KafkaCluster]:
    """One broker with SASL_SSL and SSL listeners and Kafka's authorizer (`KafkaCluster.security`)."""
    yield from _kafka(request, lambda: KafkaCluster.start(security="sasl_ssl", authorizer=True))


@pytest.fixture(scope="session")
@starts("apiserver")
def apiserver(request: pytest.FixtureRequest) -> Iterator[ApiServer]:
    """An API server for the whole session, or the cluster that ``KUBECONFIG`` names."""
    named = kubeconfig_to_use(os.environ)
    with ApiServer.attach(named) if named else ApiServer.start() as server:
        yield server
        _keep_logs(request, server.logs)


def kubeconfig_to_use(environ: Mapping[str, str]) -> Path | None:
    """The file that ``KUBECONFIG`` names, if its cluster is on this machine or ``TIDEGATE_USE_CLUSTER=1`` allows it.

    People have a KUBECONFIG all day; tests must not run against their production by accident.
    """
    named = environ.get("KUBECONFIG", "")
    if not named or not Path(named).is_file():
        return None
    content = yaml.safe_load(Path(named).read_text())
    context = next(entry["context"] for entry in content["contexts"] if entry["name"] == content["current-context"])
    cluster = next(entry["cluster"] for entry in content["clusters"] if entry["name"] == context["cluster"])
    host = urllib.parse.urlsplit(cluster["server"]).hostname
    if host in ("127.0.0.1", "localhost", "::1") or environ.get("TIDEGATE_USE_CLUSTER") == "1":
        return Path(named)
    return None


@pytest.fixture(scope="session")
def kube_client(apiserver: ApiServer) -> kube.ApiClient:
    """The Kubernetes client, as administrator."""
    return kube_config.new_client_from_config(str(apiserver.kubeconfig))


@pytest.fixture(scope="session")
def crds_installed(apiserver: ApiServer, kube_client: kube.ApiClient) -> None:
    """The project's CRDs and the Spark operator's, established."""
    files = (*crd_files(), *spark_operator_crds())
    if not apiserver.attached:
        for path in files:
            apiserver.apply(path)
        return
    resources = DynamicClient(kube_client).resources
    crds = resources.get(api_version="apiextensions.k8s.io/v1", kind="CustomResourceDefinition")
    for path in files:
        for manifest in yaml.safe_load_all(path.read_text()):
            name = manifest["metadata"]["name"]
            crds.server_side_apply(body=manifest, name=name, field_manager="tidegate-tests", force_conflicts=True)
            assert eventually(partial(_is_established, kube_client, name), 90), f"{name} is not established"


def _is_established(client: kube.ApiClient, name: str) -> bool:
    found = kube.ApiextensionsV1Api(client).read_custom_resource_definition(name)
    conditions = found.status.conditions or []
    return any(condition.type == "Established" and condition.status == "True" for condition in conditions)


@pytest.fixture
def namespace(kube_client: kube.ApiClient, unique: Unique) -> Iterator[str]:
    """A fresh namespace; in the end our resources in it are deleted, finalizers or not: no later operator sees them."""
    name = unique()
    core = kube.CoreV1Api(kube_client)
    core.create_namespace(kube.V1Namespace(metadata=kube.V1ObjectMeta(name=name)))
    yield name
    custom = kube.CustomObjectsApi(kube_client)
    for plural in OWN_KINDS:
        with contextlib.suppress(kube.ApiException):  # the CRDs need not be installed
            for item in custom.list_namespaced_custom_object("tidegate.io", "v1alpha1", name, plural)["items"]:
                resource = ("tidegate.io", "v1alpha1", name, plural, item["metadata"]["name"])
                custom.patch_namespaced_custom_object(*resource, {"metadata": {"finalizers": None}})
                with contextlib.suppress(kube.ApiException):  # gone with its last finalizer
                    custom.delete_namespaced_custom_object(*resource)
    core.delete_namespace(name)


@pytest.fixture
def unique(request: pytest.FixtureRequest) -> Unique:
    """Makes names out of the test's name."""
    slug = re.sub(r"[^a-z0-9]+", "-", request.node.name.lower().removeprefix("test_")).strip("-")

    def name(prefix: str = "") -> str:
        end = f"{_session_id}-{next(_numbers)}"
        start = re.sub(r"[^a-z0-9]+", "-", f"{prefix}-{slug}".lower()).strip("-")[: 62 - len(end)].strip("-")
        return f"{start or 't'}-{end}"

    return name


@pytest.fixture
def make_topic(kafka: KafkaCluster, unique: Unique) -> Iterator[MakeTopic]:
    """Makes topics on `kafka`."""
    yield from topics_of(kafka, unique)


@pytest.fixture
def make_topic3(kafka3: KafkaCluster, unique: Unique) -> Iterator[MakeTopic]:
    """Makes topics on `kafka3`, replicated three times."""
    yield from topics_of(kafka3, unique)


def topics_of(cluster: KafkaCluster, unique: Unique) -> Iterator[MakeTopic]:
    """A topic factory for a cluster; on a cluster that is not ours the topics are deleted in the end."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    made: list[str] = []

    def make(
        partitions: int = 1,
        *,
        name: str | None = None,
        replication_factor: int = -1,
        config: Mapping[str, str] | None = None,
    ) -> str:
        topic = name or unique()
        wanted = NewTopic(topic, partitions, replication_factor, config=dict(config or {}))
        admin.create_topics([wanted])[topic].result(30)
        made.append(topic)
        assert eventually(lambda: _serves(admin, topic, partitions), 90), f"{topic} has no leaders after 90 s"
        return topic

    yield make
    if cluster.attached and made:
        for deleted in admin.delete_topics(made).values():
            with contextlib.suppress(KafkaException):  # the test has deleted it
                deleted.result(30)


def _serves(admin: AdminClient, topic: str, partitions: int) -> bool:
    """Whether each partition's leader answers, which is more than that the metadata names it."""
    try:
        found = admin.list_topics(topic, timeout=5).topics[topic].partitions
        if len(found) != partitions or any(partition.leader < 0 for partition in found.values()):
            return False
        asked = {TopicPartition(topic, number): OffsetSpec.latest() for number in range(partitions)}
        for answer in admin.list_offsets(asked, request_timeout=5).values():
            answer.result(10)
    except KafkaException:
        return False
    return True
