"""A node with Tidegate installed by Helm, a broker that pods reach, and an application whose group is changed."""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
import tempfile
import time
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from kubernetes import client as kube
from kubernetes import config as kube_config

from devstack import KafkaCluster
from devstack.images import image_name
from devstack.node import Node
from devstack.spark_operator import install_spark_operator
from devstack.toolcache import helm_binary
from support.checker import ResetRun, Verdict, check
from support.clients import SteadyProducer
from support.deliveries import Partition
from support.earlier_versions import previous
from support.kubectl import Kubectl
from support.ledger import Ledger
from support.operator_process import Body, until
from support.pod_images import APPLICATION_IMAGE, build_images
from support.pods import Application, Stopwatch, make_topics, restricted_namespace, wait_ready
from support.rights import Right, allowed, every_right, rules_of
from tidegate.reset.store import Run, RunNotFound
from tidegate.reset.stores import open_store
from tidegate.resources.reset import ResetPhase

PROJECT: Final = Path(__file__).resolve().parents[2]
CHART: Final = PROJECT / "charts" / "tidegate"
TIDEGATE_NAMESPACE: Final = "tidegate"
APPLICATION_NAMESPACE: Final = "shop"
AGENT_INIT_CONTAINER: Final = "tidegate-agent"
RELEASE: Final = "tidegate"
ACCOUNT: Final = "tidegate"
"""The operator's ServiceAccount."""
SPARK_ACCOUNT: Final = "tidegate-spark"
EXECUTOR_ACCOUNT: Final = "tidegate-spark-executor"
ASKED_NAMESPACES: Final = (APPLICATION_NAMESPACE, TIDEGATE_NAMESPACE, "kube-system")
"""Served, its own, and neither."""

PARTITIONS: Final = 4
RATE: Final = 10.0
RUN_S: Final = 300.0
HELM_S: Final = 300.0
"""Longer than the uninstall hook may take."""


@dataclass(slots=True)
class PodStage:
    """All of it, and the resets that were run on the application's group.

    `password`: of Tidegate's user at the broker, which nothing but a Secret may show.
    """

    node: Node
    kubectl: Kubectl
    kafka: KafkaCluster
    application: Application
    ledger: Ledger
    producer: SteadyProducer
    stopwatch: Stopwatch
    client: kube.ApiClient
    policy: str = "orders"
    password_secret: str = "tidegate-kafka"
    runs: list[ResetRun] = field(default_factory=list)
    more_producers: list[SteadyProducer] = field(default_factory=list)

    @property
    def password(self) -> str:
        return self.kafka.security.password

    # --- installing ---------------------------------------------------------------------------------------------------

    def helm(self, *arguments: str, timeout_s: float = HELM_S) -> str:
        done = subprocess.run(
            [str(helm_binary()), "--kubeconfig", str(self.node.kubeconfig), *arguments],
            capture_output=True,
            text=True,
            timeout=timeout_s + 30,
            check=False,
        )
        assert done.returncode == 0, f"helm {' '.join(arguments)}: {done.stdout}{done.stderr}"
        return done.stdout

    def install(self, chart: Path = CHART, **more: Any) -> None:
        """``helm upgrade --install`` of a chart, until all of it is ready."""
        with tempfile.NamedTemporaryFile("w", suffix=".json") as values:
            json.dump(self.values() | more, values)
            values.flush()
            self.helm(
                *("upgrade", "--install", RELEASE, str(chart), "--namespace", TIDEGATE_NAMESPACE),
                *("--values", values.name, "--wait", "--timeout", f"{HELM_S:.0f}s"),
            )

    def upgrade(self) -> None:
        """From the chart of the commit before this one to this one's; from this one's where there is none before."""
        with tempfile.TemporaryDirectory(prefix="tidegate-chart-") as folder:
            before = previous(CHART, Path(folder))
            if before is not None:
                self.install(before)
            self.install(podAnnotations={"tidegate.io/upgraded": "true"})

    def revision(self) -> int:
        """Helm's, of what is installed."""
        [release] = json.loads(self.helm("list", "--namespace", TIDEGATE_NAMESPACE, "--output", "json"))
        return int(release["revision"])

    def roll_back(self, revision: int) -> None:
        """``helm rollback``, until all of it is ready."""
        self.helm("rollback", RELEASE, str(revision), "--namespace", TIDEGATE_NAMESPACE, "--wait", "--timeout", "300s")

    def operator_images(self) -> set[str]:
        """Of the operator's pods, once there are no others."""

        def images() -> set[str]:
            pods = self.kubectl.pods(TIDEGATE_NAMESPACE, "app.kubernetes.io/component=operator")
            return {container["image"] for pod in pods for container in pod["spec"]["containers"]}

        until(lambda: len(images()) == 1, "the operator's pods are of one version", timeout_s=HELM_S)
        return images()

    def uninstall(self) -> None:
        self.helm("uninstall", RELEASE, "--namespace", TIDEGATE_NAMESPACE, "--wait", "--timeout", f"{HELM_S:.0f}s")

    def values(self) -> dict[str, Any]:
        """For one served namespace, with images that nobody can pull."""
        images = {
            target: {"repository": name, "tag": tag, "pullPolicy": "Never"}
            for target in ("operator", "agent", "spark")
            for name, _, tag in [image_name(target).rpartition(":")]
        }
        return {
            "image": images["operator"],
            "agent": {"image": images["agent"]},
            "spark": {
                "image": images["spark"],
                "driver": {"cores": 1, "memory": "512m"},
                "executor": {"instances": 1, "cores": 1, "memory": "512m"},
                # Driver and executor have to fit beside all the rest on two cores.
                "conf": {f"spark.kubernetes.{role}.request.cores": "100m" for role in ("driver", "executor")},
            },
            "watchNamespaces": [APPLICATION_NAMESPACE],
        }

    def install_spark_operator(self) -> None:
        """The Kubeflow Spark operator, for the application's namespace."""
        install_spark_operator(self.node, [APPLICATION_NAMESPACE])

    def connection(self) -> tuple[Body, ...]:
        """The KafkaConnection, by SCRAM over TLS, and its Secrets."""
        security = self.kafka.security

        def secret(name: str, key: str, value: str) -> Body:
            metadata = {"name": name, "namespace": APPLICATION_NAMESPACE}
            return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": {key: value}}

        spec = {
            "bootstrapServers": security.sasl_ssl_bootstrap,
            "tls": {"trustedCertificates": [{"secretName": "kafka-ca", "certificate": "ca.crt"}]},
            "authentication": {
                "type": "scram-sha-512",
                "username": security.username,
                "passwordSecret": {"secretName": self.password_secret, "password": "password"},
            },
        }
        return (
            secret("kafka-ca", "ca.crt", security.ca.read_text()),
            secret(self.password_secret, "password", security.password),
            {
                "apiVersion": "tidegate.io/v1alpha1",
                "kind": "KafkaConnection",
                "metadata": {"name": "kafka", "namespace": APPLICATION_NAMESPACE},
                "spec": spec,
            },
        )

    def rules(self) -> set[Right]:
        """What the operator's roles say."""
        return rules_of(self.client, ACCOUNT, TIDEGATE_NAMESPACE)

    def answers(self, expected: set[Right]) -> set[Right]:
        """What the API server grants the operator, beyond what anybody may, of all that can be asked for in
        `ASKED_NAMESPACES`, and of `expected`: rights on single objects, and on kinds that this cluster does not serve.
        """
        asked = {*every_right(self.client, ASKED_NAMESPACES), *expected}
        anybody = allowed(self.client, "nobody", TIDEGATE_NAMESPACE, asked)
        return allowed(self.client, ACCOUNT, TIDEGATE_NAMESPACE, asked) - anybody

    def keep_logs(self, folder: Path) -> None:
        """What daemons, pods and the API server have said, and what the cluster holds."""
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(self.node.logs, folder)
        shutil.copyfile(self.node.audit_log, folder / "audit.log")
        own = "kafkaconnections,consumergrouppauses,offsetresetpolicies,offsetresets,offsetbackups,offsetmirrors"
        everything = f"pods,deployments,jobs,{own},sparkapplications"
        (folder / "objects.yaml").write_text(self.kubectl("get", everything, "--all-namespaces", "-o", "yaml"))
        (folder / "events.txt").write_text(self.kubectl("get", "events", "--all-namespaces", "-o", "wide"))

    def operator_log(self) -> str:
        selector = ("-l", "app.kubernetes.io/component=operator", "--tail=-1", "--all-containers")
        return self.kubectl("logs", "-n", TIDEGATE_NAMESPACE, *selector)

    # --- resetting ----------------------------------------------------------------------------------------------------

    def ask(self, run_id: str, reset: Mapping[str, Any]) -> float:
        """``kubectl apply`` of the policy with this reset; returns when (epoch seconds)."""
        asked = time.time()
        self.kubectl.apply(self.policy_manifest({"id": run_id, **reset}))
        return asked

    def reset(self, run_id: str, reset: Mapping[str, Any], *, name: str = "") -> Body:
        """The whole of it, as a user does it; returns the status of its OffsetReset."""
        began = time.monotonic()
        asked = self.ask(run_id, reset)
        status = self.finished(run_id, asked)
        if name:
            self.stopwatch.took(name, time.monotonic() - began)
        return status

    def approve(self, run_id: str) -> None:
        """The plan that waits, in the name of whoever runs kubectl here."""
        name = self.reset_name(run_id)
        status = self.kubectl.get("offsetreset", "-n", APPLICATION_NAMESPACE, name)["status"]
        me = json.loads(self.kubectl("auth", "whoami", "--output", "json"))["status"]["userInfo"]["username"]
        self.kubectl.apply(
            {
                "apiVersion": "tidegate.io/v1alpha1",
                "kind": "OffsetResetApproval",
                "metadata": {"name": name, "namespace": APPLICATION_NAMESPACE},
                "spec": {"reset": name, "plan": status["digest"], "approver": me},
            }
        )

    def finished(self, run_id: str, asked: float) -> Body:
        """Wait for the run, keep it for the checker, and return the status of its OffsetReset."""
        body = wait_ready(self.kubectl, APPLICATION_NAMESPACE, f"offsetresetpolicy/{self.policy}", timeout_s=RUN_S)
        told: Body = body["status"]["reset"]
        assert told["id"] == run_id, told
        found = self.kubectl.get("offsetreset", "-n", APPLICATION_NAMESPACE, self.reset_name(run_id))
        status: Body = found["status"]
        run = self.document(run_id)
        assert run is not None
        assert run.result is not None
        assert run.plan is not None
        targets = {(p.topic, p.partition): o for p, o in run.plan.targets.items()}
        self.runs.append(ResetRun(asked, run.result.finished_at.timestamp(), targets))
        return status

    def reset_name(self, run_id: str) -> str:
        """The OffsetReset that the policy creates for this id."""
        return f"{self.policy}-{run_id}"

    def policy_manifest(self, reset: Mapping[str, Any] | None = None) -> Body:
        spec: Body = {
            "connectionRef": {"name": "kafka"},
            "group": self.application.group,
            "topics": [self.application.topic],
            "discovery": {"interval": "200ms", "newPartitions": "earliest"},
        }
        if reset is not None:
            spec["reset"] = dict(reset)
        return {
            "apiVersion": "tidegate.io/v1alpha1",
            "kind": "OffsetResetPolicy",
            "metadata": {"name": self.policy, "namespace": APPLICATION_NAMESPACE},
            "spec": spec,
        }

    def document(self, run_id: str) -> Run | None:
        """The stored run of this id; ``None`` before there is one."""
        selector = f"app.kubernetes.io/managed-by=tidegate,tidegate.io/offset-reset={self.reset_name(run_id)}"
        found = kube.CoreV1Api(self.client).list_namespaced_config_map(APPLICATION_NAMESPACE, label_selector=selector)
        for config_map in found.items:
            if "request.json" in (config_map.data or {}):
                store = open_store(
                    f"configmap://{APPLICATION_NAMESPACE}/{config_map.metadata.name}", api_client=self.client
                )
                with contextlib.suppress(RunNotFound):
                    return store.load()
        return None

    def wait_phase(self, run_id: str, phases: Collection[ResetPhase]) -> None:
        """Until the run's journal names one of the phases."""

        def reached() -> bool:
            run = self.document(run_id)
            return run is not None and any(entry.phase in phases for entry in run.journal)

        until(reached, f"reset {run_id} in {', '.join(phases)}", timeout_s=RUN_S, pause_s=0.02)

    def kill_spark_pod(self, role: str) -> None:
        """The driver's or an executor's, once there is a running one."""

        def running() -> list[str]:
            pods = self.kubectl.pods(APPLICATION_NAMESPACE, f"spark-role={role}")
            return [pod["metadata"]["name"] for pod in pods if pod["status"]["phase"] == "Running"]

        (name, *_) = until(running, f"a running {role}")
        self.kubectl.kill_pod(APPLICATION_NAMESPACE, name)

    # --- the application ----------------------------------------------------------------------------------------------

    def expand(self, partitions: int) -> tuple[Partition, ...]:
        """Add partitions and produce to them at once; returns them."""
        topic = self.application.topic
        known = len(self.application.partitions)
        numbers = range(known, known + partitions)
        self.kafka.tool(
            "org.apache.kafka.tools.TopicCommand",
            *("--bootstrap-server", self.kafka.bootstrap, "--alter", "--topic", topic),
            *("--partitions", str(numbers.stop)),
        )
        producer = SteadyProducer(self.kafka.bootstrap, topic, numbers, RATE)
        producer.start()
        self.more_producers.append(producer)
        self.application.partitions += tuple((topic, number) for number in numbers)
        return self.application.partitions[known:]

    def stop_producing(self) -> None:
        for more in self.more_producers:
            more.stop()

    def caught_up(self) -> None:
        """Every partition flows, and is no further behind than a second's records."""
        self.ledger.wait_flowing(self.application.partitions)

        def caught_up() -> bool:
            ends = {partition: max(offsets) + 1 for partition, offsets in self.acked().items()}
            last = {p: self.ledger.last(p) for p in self.application.partitions}
            # A record may be delivered before its producer learns that it was acknowledged.
            return all(d is not None and p in ends and d.offset >= ends[p] - RATE for p, d in last.items())

        self.ledger.wait_for(caught_up, 90, "caught up")

    def acked(self) -> dict[Partition, frozenset[int]]:
        acked: dict[Partition, frozenset[int]] = {}
        for producer in (self.producer, *self.more_producers):
            acked |= producer.acked_offsets()
        return acked

    def verdict(self) -> Verdict:
        """What all pods were given, against all resets so far; production goes on."""
        return check(self.ledger.deliveries(), self.acked(), self.runs, drained=False)


@contextlib.contextmanager
def pod_stage(*, spark: bool = True) -> Iterator[PodStage]:
    """Start all of it, the application's consumers excepted (`Application.deploy`), and end all of it.

    Needs root; a machine has one at a time. Raises ``StackError``.
    """
    stopwatch = Stopwatch()
    with contextlib.ExitStack() as stack:
        archives = stopwatch.step("images built", build_images)
        node = stack.enter_context(stopwatch.step("node up", Node.start))
        stopwatch.step("images loaded", lambda: node.load(*archives))
        kafka = stack.enter_context(
            stopwatch.step("broker up", lambda: KafkaCluster.start(security="sasl_ssl", host=Node.address))
        )
        kubectl = Kubectl(node.kubeconfig)
        topic, ledger_topic = "orders", "orders-ledger"
        make_topics(kafka.bootstrap, {topic: PARTITIONS, ledger_topic: 1})
        ledger = stack.enter_context(Ledger(kafka.bootstrap, ledger_topic))
        application = Application(
            kubectl,
            APPLICATION_NAMESPACE,
            "bookkeeping",
            image=APPLICATION_IMAGE,
            bootstrap=kafka.bootstrap,
            topic=topic,
            ledger=ledger,
            ledger_topic=ledger_topic,
            partitions=tuple((topic, number) for number in range(PARTITIONS)),
            # librdkafka notices new partitions when it asks for metadata: every five minutes unless told otherwise.
            environment={"CONSUMER_TOPIC_METADATA_REFRESH_INTERVAL_MS": "2000"},
            labels={"tidegate.io/inject": "python"},
        )
        producer = stack.enter_context(SteadyProducer(kafka.bootstrap, topic, PARTITIONS, RATE))
        client = kube_config.new_client_from_config(str(node.kubeconfig))
        stage = PodStage(node, kubectl, kafka, application, ledger, producer, stopwatch, client)
        kubectl.apply(*(restricted_namespace(name) for name in (TIDEGATE_NAMESPACE, APPLICATION_NAMESPACE)))
        if spark:
            stopwatch.step("Spark operator installed", stage.install_spark_operator)
        stopwatch.step("helm install, until all is ready", stage.install)
        kubectl.apply(*stage.connection())
        stopwatch.step(
            "KafkaConnection Ready", lambda: wait_ready(kubectl, APPLICATION_NAMESPACE, "kafkaconnection/kafka")
        )
        kubectl.apply(stage.policy_manifest())
        stack.callback(stage.stop_producing)
        yield stage
