"""What a driver and an executor ask of the API server is what the chart grants their accounts, by the audit log.

The real jobs of a fleet and of a mirror, on real brokers: the driver has its account's token, and the processes of its
executors have theirs. What Spark itself asks for, pods of executors above all, takes a node that runs them:
`test_drivers_and_executors_use_every_right_that_they_have` in tests/e2e/cluster/test_real_pods.py, likewise both ways.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import pytest
from kubernetes import client as kube

from apiserver.offsets import committed, leave_at, produce
from chart.rendering import environment
from devstack import ApiServer, KafkaCluster, spark_jars
from support.installed_chart import Installed
from support.operator_process import Resources, until
from support.rights import Right
from support.stack_fixtures import MakeTopic, Unique
from tidegate.clock import SystemClock
from tidegate.jobs.application import MIRROR_ORDER_VARIABLE
from tidegate.jobs.options import local_options
from tidegate.kafka.connection import Connection
from tidegate.kafka.model import TopicPartition
from tidegate.kafka_client.mirror_cluster import KafkaMirrorCluster
from tidegate.kube.client import KubeClient
from tidegate.kube.ports import MIRRORS, uid_of
from tidegate.offset_mirror.order import (
    MirrorOrder,
    digest,
    encode_document,
    location_of,
    name_of_document,
    name_of_launch,
    name_of_report,
)
from tidegate.offset_mirror.report import Report, encode_report
from tidegate.offset_mirror.topics import FIXED, Copied
from tidegate.reset.config_map_store import ConfigMapRunStore
from tidegate.reset.model.request import ApplySettings, FleetRequest, RunRequest
from tidegate.reset.model.targets import ToOffset
from tidegate.resources.mirror_engine import MirrorJob
from tidegate.resources.offset_mirror import OffsetMirrorStatus
from tidegate.resources.reset import FailurePolicy, ResetPhase

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.apiserver, pytest.mark.nightly]

SPARKS_OWN: Final = {
    *(("pods", verb) for verb in ("get", "list", "watch", "create", "delete", "deletecollection")),
    ("configmaps", "deletecollection"),
    ("services", "deletecollection"),
    ("persistentvolumeclaims", "list"),
    ("persistentvolumeclaims", "deletecollection"),
}
"""Of a driver: how Spark starts, watches and clears up what it has in a cluster."""

JOB: Final = "import sys; from tidegate.spark.entry import reset; sys.exit(reset(sys.argv[1:], {}))"
MIRROR: Final = "import os, sys; from tidegate.spark.entry import mirror; sys.exit(mirror(sys.argv[1:], os.environ))"


def test_driver_and_executor_use_what_they_are_granted_and_need_no_more(
    apiserver: ApiServer,
    crds_installed: None,
    kube_client: kube.ApiClient,
    namespace: str,
    kafka: KafkaCluster,
    make_topic: MakeTopic,
    unique: Unique,
    tmp_path: Path,
) -> None:
    if apiserver.attached:
        pytest.skip("the audit log is that of an API server of our own")
    topic, base = make_topic(2), unique("payments")
    produce(kafka.bootstrap, topic, 2, 100)
    groups = [f"{base}-{name}" for name in "ab"]
    for group in groups:
        leave_at(kafka.bootstrap, group, topic, {0: 50, 1: 50})
    deadline = datetime.now(UTC) + timedelta(minutes=5)
    ConfigMapRunStore(namespace, "p-one", api_client=kube_client).create(
        RunRequest(
            run_uid="uid/one",
            run_id="one",
            group_id="",
            connection=Connection(kafka.bootstrap),
            selections=(),
            target=ToOffset(10),
            settings=ApplySettings(deadline=deadline),
            fleet=FleetRequest((f"{base}-*",), FailurePolicy.ALL),
        )
    )
    release = namespace[-7:].strip("-")
    installed = Installed(apiserver, kube_client, release, namespace, namespace, {"watchNamespaces": [namespace]})
    try:
        told = environment(installed.manifests, installed.name)
        driver, executor = told["TIDEGATE_SPARK_SERVICE_ACCOUNT"], told["TIDEGATE_SPARK_EXECUTOR_SERVICE_ACCOUNT"]
        submitted = _Submitted(installed, driver, executor, tmp_path)
        log = submitted.ended(submitted.begun(JOB, f"configmap://{namespace}/p-one"))
        log += _mirrored(submitted, Resources(kube_client, namespace), kube_client, kafka, topic)
        result = ConfigMapRunStore(namespace, "p-one", api_client=kube_client).load().result
        granted = {account: installed.granted(account) for account in (driver, executor)}
    finally:
        installed.remove()

    assert result is not None, log
    assert result.phase is ResetPhase.SUCCEEDED, result
    assert [committed(kafka.bootstrap, group, topic, 2) for group in groups] == [{0: 10, 1: 10}] * 2
    used = {account: {use._replace(name="") for use in installed.used(account)} for account in granted}
    assert installed.refused(driver) + installed.refused(executor) == [], log
    assert used[executor] == granted[executor]
    assert used[driver] == granted[driver] - {Right(namespace, verb, "", kind) for kind, verb in SPARKS_OWN}
    assert {(right.resource, right.verb) for right in granted[driver]} >= SPARKS_OWN


def _mirrored(
    submitted: _Submitted, resources: Resources, client: kube.ApiClient, kafka: KafkaCluster, topic: str
) -> str:
    """The log of a mirror's job that has copied all there is, has been given a producer id, and was suspended."""
    operator = KubeClient(client, SystemClock())
    with KafkaCluster.start() as elsewhere:
        with closing(KafkaMirrorCluster(Connection(kafka.bootstrap))) as source:
            here, theirs = source.topics()[topic], source.cluster_id()
            ends = ends_of(source, here.all_partitions())
        with closing(KafkaMirrorCluster(Connection(elsewhere.bootstrap))) as target:
            target.create_topic(topic, 2, FIXED)
            there, ours = until(lambda: target.topics().get(topic), "the topic is there"), target.cluster_id()
            body = resources.mirror("m", {"include": [topic]}, engine="Spark")
            document = name_of_document("m", uid_of(body))
            order = MirrorOrder(
                namespace=resources.namespace,
                name="m",
                uid=uid_of(body),
                launch=name_of_launch(document, 1),
                source=Connection(kafka.bootstrap),
                target=Connection(elsewhere.bootstrap),
                clusters=(theirs, ours),
                settings="",
                topics=(Copied(here, there, compacts=False, filler_key=None),),
                left_out=(),
                tasks=2,
                max_fill=0,
            )
            for place in range(order.tasks):
                empty = encode_report(Report(order.launch))
                operator.put_config_map(body, name_of_report(document, place), empty)
            operator.put_config_map(body, document, encode_document(order))
            status = OffsetMirrorStatus(
                producer_ids=(target.new_producer_id(),), job=MirrorJob(name=order.launch, tasks=2)
            )
            operator.replace_status(MIRRORS, body, status.to_json())
            job = submitted.begun(MIRROR, location_of(order), {MIRROR_ORDER_VARIABLE: digest(order)})
            partitions = there.all_partitions()
            until(lambda: [*ends_of(target, partitions)] == ends, "all is copied", timeout_s=120)
        resources.patch("offsetmirrors", "m", {"spec": {"suspend": True}})
        return submitted.ended(job)


def ends_of(cluster: KafkaMirrorCluster, partitions: Sequence[TopicPartition]) -> list[int]:
    bounds = cluster.bounds(partitions, stable=False)
    return [bounds[partition].latest for partition in partitions]


class _Submitted:
    """Jobs, driver and executors of which have the accounts' tokens."""

    def __init__(self, installed: Installed, driver: str, executor: str, folder: Path) -> None:
        options = {
            **local_options(),
            "spark.executorEnv.KUBECONFIG": f"{installed.kubeconfig(executor, folder / 'executor.kubeconfig')}",
            "spark.jars": ",".join(map(str, spark_jars())),
        }
        submit = [
            "--master",
            "local[2]",
            *(part for key, value in options.items() for part in ("--conf", f"{key}={value}")),
        ]
        self._environment = {
            **os.environ,
            "KUBECONFIG": str(installed.kubeconfig(driver, folder / "driver.kubeconfig")),
            "PYSPARK_PYTHON": sys.executable,
            "PYSPARK_SUBMIT_ARGS": shlex.join([*submit, "pyspark-shell"]),
        }

    def begun(self, job: str, location: str, environment: Mapping[str, str] | None = None) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-c", job, location],
            env={**self._environment, **(environment or {})},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    @staticmethod
    def ended(job: subprocess.Popen[str]) -> str:
        """The job's log, once it has ended well."""
        try:
            log, _ = job.communicate(timeout=300)
        finally:
            job.kill()
        assert job.returncode == 0, log
        return log
