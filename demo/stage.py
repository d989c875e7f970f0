"""What the demo plays on: a broker, an API server, the operator. All of it real, and gone when the demo ends."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from string import Template
from typing import Final

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from demo.cluster import Cluster, ClusterError
from devstack import ApiServer, KafkaCluster, MissingPrerequisiteError, StackError, spark_jars
from devstack.commands import crd_files
from devstack.prerequisites import missing
from devstack.processes import RunFolder, Service, close_run, eventually, free_ports
from support.stack_fixtures import kubeconfig_to_use
from tidegate.jobs.runner import Launch
from tidegate.jobs.runner_local import LocalSparkRunner
from tidegate.kafka.connection import Connection, acks_topic
from tidegate.kafka_client.client import KafkaClient
from tidegate.reset.marker import marker_group

NAMESPACE: Final = "tidegate-demo"
TOPIC: Final = "access-log"
GROUP: Final = "web-analytics"
WATCHERS: Final = "fraud-watch"
"""The group whose consumers run the agent; also the name of its resources."""
PYTHON: Final = "Python"
JAVA: Final = "Java"
"""Its consumers."""
CONTROL_TOPIC: Final = "__tidegate-demo"
PARTITIONS: Final = 8
CONNECTION: Final = "demo"
API_VERSION: Final = "tidegate.io/v1alpha1"

RESOURCES: Final = Path(__file__).parent / "resources"
_START_S: Final = 120.0
_DEMO_KINDS: Final = (
    ("ConsumerGroupPause", WATCHERS),
    ("OffsetReset", "replay-18-may"),
    ("OffsetReset", "undo-replay-18-may"),
    ("OffsetReset", "first-500-after-noon"),
    ("OffsetReset", "replay-while-paused"),
    ("KafkaConnection", CONNECTION),
)


@dataclass(frozen=True, slots=True)
class Stage:
    """Everything that runs. ``kafka`` looks, and never writes."""

    bootstrap: str
    cluster: Cluster
    kubeconfig: Path
    kafka: KafkaClient
    operator: Service
    folder: Path

    def resource(self, file: str) -> str:
        """The text of one of the demo's resources, with the broker's address filled in."""
        return Template((RESOURCES / file).read_text()).substitute(BOOTSTRAP=self.bootstrap)


@contextlib.contextmanager
def set_stage(say: Callable[[str], None]) -> Iterator[Stage]:
    """Start what is not there, and end it again.

    ``TIDEGATE_BOOTSTRAP`` and ``KUBECONFIG`` name what is there; a cluster on another machine is used only with
    ``TIDEGATE_USE_CLUSTER=1``, as by the tests.

    Raises ``StackError``, ``MissingPrerequisiteError`` among them, and ``ClusterError``.
    """
    bootstrap, kubeconfig = os.environ.get("TIDEGATE_BOOTSTRAP"), kubeconfig_to_use(os.environ)
    if lines := missing():
        raise MissingPrerequisiteError("\n".join(lines))
    with contextlib.ExitStack() as ends:
        broker, server = _start_both(bootstrap, kubeconfig, ends)
        say(f"Kafka at {broker.bootstrap}" + (" (TIDEGATE_BOOTSTRAP)" if broker.attached else ", started for the demo"))
        say(
            f"Kubernetes API of {server.kubeconfig}"
            + (" (KUBECONFIG)" if server.attached else ", started for the demo")
        )
        cluster = ends.enter_context(contextlib.closing(Cluster(server.kubeconfig)))
        ends.enter_context(_topic(broker))
        say(f"topic {TOPIC} with {PARTITIONS} partitions")
        _install(cluster)
        stays = ", and both stay there" if server.attached else ""
        say(f"custom resource definitions and namespace {NAMESPACE} applied{stays}")
        kafka = ends.enter_context(contextlib.closing(KafkaClient(Connection(broker.bootstrap))))
        operator, folder = ends.enter_context(_operator(server))
        ends.enter_context(_resources(cluster, server))
        say(f"tidegate-operator runs as process {operator.pid}, and runs Spark jobs with spark-submit on this machine")
        yield Stage(broker.bootstrap, cluster, server.kubeconfig, kafka, operator, folder)


def _start_both(
    bootstrap: str | None, kubeconfig: Path | None, ends: contextlib.ExitStack
) -> tuple[KafkaCluster, ApiServer]:
    """The broker and the API server start at the same time; one that came up is ended also when the other did not."""
    with ThreadPoolExecutor(2) as pool:
        broker = pool.submit(lambda: KafkaCluster.attach(bootstrap) if bootstrap else KafkaCluster.start())
        server = pool.submit(lambda: ApiServer.attach(kubeconfig) if kubeconfig else ApiServer.start())
    # What is ended is always the whole stage, and never because a service failed: no logs to keep.
    for part in (broker, server):
        if part.exception() is None:
            ends.callback(_close, part)
    started = broker.result()
    if bootstrap:
        started.wait_ready(_START_S)
    return started, server.result()


def _close(part: Future[KafkaCluster] | Future[ApiServer]) -> None:
    part.result().close()


@contextlib.contextmanager
def _topic(broker: KafkaCluster) -> Iterator[None]:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    try:
        # The records are of 2015: a broker that deletes by age would take them at once.
        configured = NewTopic(TOPIC, PARTITIONS, config={"retention.ms": "-1"})
        admin.create_topics([configured], operation_timeout=30)[TOPIC].result(30)
    except KafkaException as error:
        if error.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS:
            raise StackError(
                f"{broker.bootstrap} already has a topic {TOPIC}: delete it, or unset TIDEGATE_BOOTSTRAP"
            ) from error
        raise StackError(f"topic {TOPIC} can't be created at {broker.bootstrap}: {error.args[0].str()}") from error
    try:
        yield
    finally:
        if broker.attached:
            made = [GROUP, marker_group(GROUP), WATCHERS, marker_group(WATCHERS)]
            gone = [*admin.delete_consumer_groups(made).values()]
            gone += admin.delete_topics([CONTROL_TOPIC, acks_topic(CONTROL_TOPIC)], operation_timeout=30).values()
            for deleted in gone:
                with contextlib.suppress(KafkaException):  # the demo did not come far enough to make it
                    deleted.result(30)
            admin.delete_topics([TOPIC], operation_timeout=30)[TOPIC].result(30)


def _install(cluster: Cluster) -> None:
    """The definitions and the namespace. They stay on a cluster that stays: others may have come to use them."""
    for path in crd_files():
        cluster.apply(path.read_text())
    kinds = ("KafkaConnection", "OffsetReset", "ConsumerGroupPause")
    if not eventually(lambda: all(cluster.is_served(API_VERSION, kind) for kind in kinds), _START_S):
        raise ClusterError(f"the API server did not serve {', '.join(kinds)} within {_START_S:.0f} s")
    cluster.apply(f"apiVersion: v1\nkind: Namespace\nmetadata: {{name: {NAMESPACE}}}\n")


@contextlib.contextmanager
def _resources(cluster: Cluster, server: ApiServer) -> Iterator[None]:
    """Take the demo's resources away before the operator ends, on a cluster that stays."""
    try:
        yield
    finally:
        if server.attached:
            for kind, name in _DEMO_KINDS:
                cluster.delete(API_VERSION, kind, name, NAMESPACE)
            eventually(
                lambda: not any(cluster.get(API_VERSION, kind, name, NAMESPACE) for kind, name in _DEMO_KINDS), 30
            )


@contextlib.contextmanager
def _operator(server: ApiServer) -> Iterator[tuple[Service, Path]]:
    run = RunFolder.create("demo")
    program = shutil.which("tidegate-operator", path=str(Path(sys.executable).parent))
    if program is None:
        raise StackError("tidegate-operator is not installed here: run `make demo`, or pip install -e .")
    (port,) = free_ports(1)
    runs = run.data / "runs"
    operator = Service(
        "operator",
        [program],
        run,
        env={
            "KUBECONFIG": str(server.kubeconfig),
            "TIDEGATE_NAMESPACES": NAMESPACE,
            "TIDEGATE_HEALTH_ADDRESS": f"127.0.0.1:{port}",
            "TIDEGATE_RUNTIME_DIRECTORY": str(run.secrets / "connections"),
            "TIDEGATE_SPARK_RUNNER": "local",
            "TIDEGATE_SPARK_RUNS_DIRECTORY": str(runs),
            "TIDEGATE_SPARK_JARS": ",".join(map(str, spark_jars())),
        },
        grace=10,
    )
    failed = False
    try:
        operator.start()
        wait_healthy(operator, port)
        yield operator, run.path
    except BaseException as error:
        failed = not isinstance(error, KeyboardInterrupt)
        raise
    finally:
        operator.stop()
        _end_jobs(runs)
        close_run(run, [operator], failed=failed)


def wait_healthy(operator: Service, port: int) -> None:
    """Until ``/healthz`` answers with 200. Raises ``StackError`` with the log's end."""
    from http.client import HTTPConnection, HTTPException

    def healthy() -> bool:
        connection = HTTPConnection("127.0.0.1", port, timeout=2)
        try:
            connection.request("GET", "/healthz")
            return connection.getresponse().status == 200
        except (OSError, HTTPException):
            return False
        finally:
            connection.close()

    deadline = time.monotonic() + _START_S
    while not healthy():
        if not operator.alive or time.monotonic() > deadline:
            raise StackError(f"the operator did not become healthy:\n{operator.tail()}")
        time.sleep(0.1)


def _end_jobs(runs: Path) -> None:
    """Jobs may outlive the operator that started them; when the stage goes they have nothing left to do."""
    runner = LocalSparkRunner(runs)
    for folder in sorted(runs.glob("*")):
        if folder.is_dir():
            runner.stop(Launch(folder.name, NAMESPACE, ""))
