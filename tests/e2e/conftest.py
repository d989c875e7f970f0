"""All parts together, started once a module: broker, API server, operator with spark-submit, live consumers."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from kubernetes import client as kube

from devstack import ApiServer, KafkaCluster, spark_jars
from support.checker import ResetRun, Verdict, check
from support.clients import ConsumerFleet, SteadyProducer
from support.deliveries import Partition
from support.kubectl import Kubectl
from support.operator_process import Body, OperatorProcess, Resources, until
from tidegate.jobs.runner import Launch
from tidegate.jobs.runner_local import LAUNCH_VARIABLE, LocalSparkRunner
from tidegate.kafka.connection import Connection
from tidegate.kafka_client.client import KafkaClient
from tidegate.reset.store import Run, RunNotFound
from tidegate.reset.stores import open_store
from tidegate.resources.reset import ResetPhase

PARTITIONS: Final = 4
RATE: Final = 10.0
GROUP: Final = "e2e-group"
TOPIC: Final = "e2e-orders"
NAMESPACE: Final = "tidegate-e2e"
POLICY: Final = "e2e"
RUN_S: Final = 240.0


@dataclass(slots=True)
class Live:
    """A live group with a steady flow, the operator that serves its policy, and the resets that were run on it."""

    resources: Resources
    operator: OperatorProcess
    client: kube.ApiClient
    kubectl: Kubectl
    kafka: KafkaClient
    fleet: ConsumerFleet
    producer: SteadyProducer
    spark_runs: Path
    runs: list[ResetRun] = field(default_factory=list)
    ids: list[str] = field(default_factory=list)

    @property
    def partitions(self) -> tuple[Partition, ...]:
        return tuple((TOPIC, number) for number in range(PARTITIONS))

    # --- doing --------------------------------------------------------------------------------------------------------

    def flowing(self) -> None:
        """Every partition delivers new records, so the last reset is behind the consumers."""
        self.fleet.wait_flowing(self.partitions)

        def caught_up() -> bool:
            # A record can be delivered before its producer is told that it was written.
            ends = self.producer.ends()
            last = {p: self.fleet.last_delivery(p) for p in self.partitions}
            return all(d is not None and p in ends and d.offset >= ends[p] - RATE for p, d in last.items())

        self.fleet.wait_for(caught_up, 60, "caught up")
        committed = self.kafka.committed
        until(lambda: len(committed(GROUP)) == PARTITIONS, "every partition has a commit")

    def apply(self, reset: Body) -> float:
        """``kubectl apply`` of the policy with this reset; returns when."""
        manifest = {
            "apiVersion": "tidegate.io/v1alpha1",
            "kind": "OffsetResetPolicy",
            "metadata": {"name": POLICY, "namespace": NAMESPACE},
            "spec": {"connectionRef": {"name": "kafka"}, "group": GROUP, "topics": [TOPIC], "reset": reset},
        }
        asked = time.time()
        self.kubectl("apply", "-f", "-", given=manifest)
        self.ids.append(reset["id"])
        return asked

    def wait_ready(self, run_id: str) -> Body:
        """As a person or Flux waits, for the policy; the OffsetReset that it has created. kstatus: Ready says nothing
        before it speaks of the newest generation."""
        until(lambda: self._observed(run_id), f"reset {run_id} is taken up", timeout_s=120)
        wait = ("wait", "-n", NAMESPACE, "--for=condition=Ready", f"--timeout={RUN_S:.0f}s")
        try:
            self.kubectl(*wait, f"offsetresetpolicy/{POLICY}", timeout_s=RUN_S + 30)
        except AssertionError as error:
            status = json.dumps(self.resources.get_policy(POLICY).get("status"), indent=1)
            raise AssertionError(f"{error}\n{status}\n{self.operator.tail()}") from None
        return self.resources.get_reset(f"{POLICY}-{run_id}")

    def _observed(self, run_id: str) -> bool:
        policy = self.resources.get_policy(POLICY)
        status = policy.get("status", {})
        current = status.get("observedGeneration") == policy["metadata"]["generation"]
        return current and (status.get("reset") or {}).get("id") == run_id

    def kill_driver(self) -> int:
        """``kill -9`` of the Spark driver and all of its processes, as when its pod dies; how many they were."""
        launches = {f"{LAUNCH_VARIABLE}={folder}".encode() for folder in self.spark_runs.glob("*")}
        killed = 0
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                if launches & set((entry / "environ").read_bytes().split(b"\0")):
                    os.kill(int(entry.name), signal.SIGKILL)
                    killed += 1
            except (FileNotFoundError, ProcessLookupError, PermissionError):
                continue
        return killed

    # --- looking ------------------------------------------------------------------------------------------------------

    def document(self, run_id: str) -> Run | None:
        """The stored run of this id; ``None`` before there is one."""
        for name in self.resources.run_documents(f"{POLICY}-{run_id}"):
            with contextlib.suppress(RunNotFound):
                return open_store(f"configmap://{NAMESPACE}/{name}", api_client=self.client).load()
        return None

    def wait_phase(self, run_id: str, phases: Collection[ResetPhase]) -> None:
        """Until the run's journal names one of the phases."""

        def reached() -> bool:
            run = self.document(run_id)
            return run is not None and any(entry.phase in phases for entry in run.journal)

        until(reached, f"reset {run_id} in {', '.join(phases)}", timeout_s=RUN_S, pause_s=0.01)

    def note(self, run_id: str, asked: float) -> Run:
        """Keep the ended run for the checker."""
        run = self.document(run_id)
        assert run is not None
        assert run.result is not None
        assert run.plan is not None
        targets = {(p.topic, p.partition): o for p, o in run.plan.targets.items()}
        self.runs.append(ResetRun(asked, run.result.finished_at.timestamp(), targets))
        return run

    def verdict(self) -> Verdict:
        """What all consumers were given, against all resets so far; production goes on."""
        return check(self.fleet.records(), self.producer.acked_offsets(), self.runs, drained=False)

    def longest_silence(self, since: float) -> float:
        """Seconds for which a partition delivered nothing, from `since` until now, at most."""
        now = time.time()
        longest = 0.0
        for partition in self.partitions:
            times = [d.t for d in self.fleet.records(since=since) if (d.topic, d.partition) == partition]
            longest = max(longest, *(b - a for a, b in zip([since, *times], [*times, now], strict=True)))
        return longest


@pytest.fixture(scope="module")
def live(
    apiserver: ApiServer,
    kube_client: kube.ApiClient,
    crds_installed: None,
    kafka: KafkaCluster,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Live]:
    """Two ordinary consumers, each a process of its own, in a classic group with librdkafka's defaults."""
    folder = tmp_path_factory.mktemp("operator")
    spark_runs = folder / "spark"
    kube.CoreV1Api(kube_client).create_namespace(kube.V1Namespace(metadata=kube.V1ObjectMeta(name=NAMESPACE)))
    resources = Resources(kube_client, NAMESPACE)
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    admin.create_topics([NewTopic(TOPIC, PARTITIONS)], operation_timeout=30)[TOPIC].result(30)
    environment = {
        "TIDEGATE_SPARK_RUNNER": "local",
        "TIDEGATE_SPARK_RUNS_DIRECTORY": str(spark_runs),
        "TIDEGATE_SPARK_JARS": ",".join(map(str, spark_jars())),
    }
    operator = OperatorProcess(apiserver.kubeconfig, NAMESPACE, folder, environment)
    client = KafkaClient(Connection(kafka.bootstrap))
    try:
        with (
            operator,
            SteadyProducer(kafka.bootstrap, TOPIC, PARTITIONS, RATE) as producer,
            ConsumerFleet("librdkafka", kafka.bootstrap, GROUP, [TOPIC], members=2, processes=2) as fleet,
        ):
            resources.connection("kafka", kafka.bootstrap)
            resources.wait_connection("kafka")
            fleet.wait_assigned([(TOPIC, number) for number in range(PARTITIONS)])
            yield Live(
                resources, operator, kube_client, Kubectl(apiserver.kubeconfig), client, fleet, producer, spark_runs
            )
            print(f"--- {operator.log}\n{operator.tail(120)}")
    finally:
        client.close()
        runner = LocalSparkRunner(spark_runs)
        for launch in spark_runs.glob("*"):
            runner.stop(Launch(launch.name, NAMESPACE, ""))
