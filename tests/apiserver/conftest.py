"""Fixtures of the operator's tests."""

import secrets
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
from kubernetes import client as kube

from apiserver.own_topics import Own
from devstack import ApiServer, KafkaCluster
from support.operator_process import OperatorProcess, Resources
from support.stack_fixtures import Unique

StartOperator = Callable[..., OperatorProcess]


@pytest.fixture
def resources(kube_client: kube.ApiClient, crds_installed: None, namespace: str) -> Resources:
    """The resources of the test's own namespace."""
    return Resources(kube_client, namespace)


@pytest.fixture
def start_operator(
    request: pytest.FixtureRequest, apiserver: ApiServer, resources: Resources, tmp_path: Path
) -> Iterator[StartOperator]:
    """Starts an operator for the test's namespace; it is ended with the test, and its log shown when that failed."""
    started: list[OperatorProcess] = []

    def start(environment: Mapping[str, str] | None = None) -> OperatorProcess:
        folder = tmp_path / f"operator-{len(started)}"
        folder.mkdir()
        operator = OperatorProcess(apiserver.kubeconfig, resources.namespace, folder, environment)
        started.append(operator)
        return operator.start()

    yield start
    for operator in started:
        if operator.running:
            operator.stop()
        print(f"--- {operator.log}\n{operator.tail(120)}")


@pytest.fixture(scope="module")
def shared(
    apiserver: ApiServer,
    kube_client: kube.ApiClient,
    crds_installed: None,
    kafka: KafkaCluster,
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Resources]:
    """One namespace with an operator and a ready connection `kafka`, for tests that end neither of them.

    Each makes resources under names of its own and leaves no run under way.
    """
    name = f"shared-{request.module.__name__.rpartition('.')[2].replace('_', '-')}-{secrets.token_hex(2)}"
    core = kube.CoreV1Api(kube_client)
    core.create_namespace(kube.V1Namespace(metadata=kube.V1ObjectMeta(name=name)))
    resources = Resources(kube_client, name)
    operator = OperatorProcess(apiserver.kubeconfig, name, tmp_path_factory.mktemp("operator"))
    failed_before = request.session.testsfailed
    try:
        with operator:
            resources.connection("kafka", kafka.bootstrap)
            resources.wait_connection("kafka")
            yield resources
    finally:
        if request.session.testsfailed > failed_before:
            print(f"--- {operator.log}\n{operator.tail(400)}")
        resources.clear()
        core.delete_namespace(name)


@pytest.fixture
def operator(start_operator: StartOperator) -> OperatorProcess:
    return start_operator()


@pytest.fixture
def connected(resources: Resources, operator: OperatorProcess, kafka: KafkaCluster) -> Resources:
    """The resources, with a ready connection `kafka` to the broker."""
    resources.connection("kafka", kafka.bootstrap)
    resources.wait_connection("kafka")
    return resources


@pytest.fixture
def own(resources: Resources, operator: OperatorProcess, kafka: KafkaCluster, unique: Unique) -> Iterator[Own]:
    made = Own(resources, kafka, f"__{unique('control')}"[:120])
    resources.wait_connection("kafka")
    yield made
    made.close()
