"""What a driver and an executor ask of the API server is what the chart grants their accounts, by the audit log.

The real job of a fleet, on a real broker: the driver has its account's token, and the processes of its executors have
theirs. What Spark itself asks for, pods of executors above all, takes a node that runs them:
`test_drivers_and_executors_use_every_right_that_they_have` in tests/e2e/cluster/test_real_pods.py, likewise both ways.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import pytest
from kubernetes import client as kube

from apiserver.offsets import committed, leave_at, produce
from chart.rendering import environment
from devstack import ApiServer, KafkaCluster, spark_jars
from support.installed_chart import Installed
from support.rights import Right
from support.stack_fixtures import MakeTopic, Unique
from tidegate.jobs.options import local_options
from tidegate.kafka.connection import Connection
from tidegate.reset.config_map_store import ConfigMapRunStore
from tidegate.reset.model.request import ApplySettings, FleetRequest, RunRequest
from tidegate.reset.model.targets import ToOffset
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
        log = _carry_out(installed, driver, executor, f"configmap://{namespace}/p-one", tmp_path)
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


def _carry_out(installed: Installed, driver: str, executor: str, location: str, folder: Path) -> str:
    """The job's log, once it has ended well."""
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
    done = subprocess.run(
        [sys.executable, "-c", JOB, location],
        env={
            **os.environ,
            "KUBECONFIG": str(installed.kubeconfig(driver, folder / "driver.kubeconfig")),
            "PYSPARK_PYTHON": sys.executable,
            "PYSPARK_SUBMIT_ARGS": shlex.join([*submit, "pyspark-shell"]),
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr
